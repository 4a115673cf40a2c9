//! The `sci-he` back end ([CF2-20], the study of [PM24]): linear layers by SIMD-packed BFV over a prime
//! field, everything after them exact.
//!
//! Its phases, comparisons and material are those of `cheetah` ([`Lattice`]); what is its own is how client
//! and server come by shares of `W r` for the client's mask r. [CF2-20] keeps all values in the field and
//! compares shares there, at one more comparison for each wrap. Here the field ends with the offline phase:
//! the mask is known to the client and its product is bounded, so shares of it go from the field to the ring
//! by one OT each and no comparison ([`tacit_mpc::gate::LiftSpec`]), and the online phase knows rings only.
//! With truncations that are all exact, an answer equals the reference bit for bit.
//!
//! `layout` says which slot holds what, `chain` how few keys reach all rotations, `plan` chooses field and
//! tiles, `units` what both parties walk
//! along, `client` and `server` run it, `cost` counts it, `lattice` puts it in its place.
//!
//! For a tensor whose client share is the mask r and each linear layer W that reads it, client and server
//! obtain `c + s = W r mod 2^l`, except with probability 2^-39 an output: 2^-40 for the noise of an answer
//! and as much for a product above its bound. What is skipped, sent or multiplied depends on shapes only.

mod chain;
mod client;
mod cost;
mod lattice;
mod layout;
mod plan;
mod server;
mod units;

#[cfg(test)]
mod tests;

pub use client::ClientKeys;
pub use lattice::SciHe;
pub use plan::SlotPlan;
pub use server::{Done, ServerKeys};
