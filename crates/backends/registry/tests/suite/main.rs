//! Tests of the crate in one program, which is linked once. What measures what its process holds, and what
//! takes minutes, is a program of its own.
#[path = "../../../../base/graph/tests/data/mod.rs"]
mod data;

mod auditing;
mod check;
mod cheetah;
mod conformance;
mod operators;
mod regressions;
mod shared_models;
mod stopping;
mod tables;
