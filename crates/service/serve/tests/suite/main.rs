//! Tests of the crate in one program, which is linked once. What counts what its process holds, or changes
//! its limits, is a program of its own.
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/dealers.rs"]
mod dealers;

mod access;
mod backends;
mod batches;
mod cheating;
mod control;
mod control_abuse;
mod dealing;
mod helping;
mod material;
mod metrics;
mod misbehaviour;
mod notices;
mod pools;
mod program;
mod rates;
mod reload;
mod scheduling;
mod serving;
mod slow;
mod traces;
mod warm;
