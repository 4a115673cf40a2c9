//! The checks that find a party that deviates, as pure functions over what each party holds. A check comes
//! before the result is released, never after. After a failed check the inference ends, and every piece of
//! material under its key is retired, used or not.

pub mod bits;
pub mod ring;
