//! Tests of the crate in one program, which is linked once.
mod authority;
mod certificates;
mod common;
mod kill;
mod managed;
mod model;
mod private;
mod seal;
mod store;
