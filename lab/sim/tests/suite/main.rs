//! Tests of the crate in one program, which is linked once.
mod recorded;
mod simulate;
