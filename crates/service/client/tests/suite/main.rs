//! Tests of the crate in one program, which is linked once.
#[path = "../common/mod.rs"]
mod common;

mod connecting;
mod deliveries;
mod input;
mod material;
mod peer;
mod replies;
mod several;
mod states;
mod toy;
