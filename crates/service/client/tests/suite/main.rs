//! Tests of the crate in one program, which is linked once.
#[path = "../common/mod.rs"]
mod common;

mod connecting;
mod input;
mod toy;
