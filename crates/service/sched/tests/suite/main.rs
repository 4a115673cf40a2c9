//! Tests of the crate in one program, which is linked once.
#[path = "../support/mod.rs"]
mod support;

mod comings_and_goings;
mod dealing;
mod exhaustive;
mod flood;
mod naive;
mod promises;
mod properties;
mod transitions;
