//! Tests of the crate in one binary, which is linked once. Tests that measure or limit the whole process
//! (memory, descriptors) are separate test binaries.
#[path = "../common/by_hand.rs"]
mod by_hand;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/dealers.rs"]
mod dealers;
#[path = "../common/tls.rs"]
mod tls;

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
