//! Parameters: a public description, checked once.

mod check;
mod description;
mod primes;
mod sets;
mod spec;

pub use check::{Secret, SecurityCheck, max_modulus_bits};
pub use description::{KeyGroup, ParametersSpec, SPARSE_WEIGHT, Segment};
pub use sets::{NamedSet, SETS};
pub use spec::Parameters;

#[cfg(test)]
mod tests;
