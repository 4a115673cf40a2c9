//! The checks that detect a deviating party, as pure functions of each party's values. A check must
//! precede the release of the result. After a failed check the inference ends, and every piece of
//! material under its key is retired, used or not.

pub mod bits;
pub mod ring;
