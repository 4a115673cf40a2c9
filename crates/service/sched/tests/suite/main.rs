//! Tests of the crate in one program, which is linked once.
#[path = "../support/mod.rs"]
mod support;

mod changes;
mod dealing;
mod exhaustive;
mod flood;
mod guarantees;
mod naive;
mod properties;
mod transitions;
