//! The `sci-he` back end ([CF2-20], the study of [PM24]): linear layers by SIMD-packed BFV over a
//! prime field, followed by exact steps.
//!
//! The phases, comparisons and material are those of `cheetah`
//! ([`Lattice`](crate::cheetah::Lattice)); only the way to shares of `W r`, for the client's mask
//! r, differs. [CF2-20] computes all values in the field and compares shares there, at one more
//! comparison for each wrap. Here the field ends with the offline phase. The client knows the mask
//! and its product is bounded, so one OT each moves shares from the field to the ring, without a
//! comparison ([`tacit_mpc::gate::LiftSpec`]). The online phase uses rings only. All truncations
//! are exact, so an answer equals the reference bit for bit.
//!
//! `layout` assigns values to slots, `chain` reaches all rotations with few keys, `plan` chooses
//! field and tiles. `units` lists the answers in the order that both parties use, `client` and
//! `server` run the exchange, `cost` counts its costs, `lattice` implements the lattice half of the
//! protocol.
//!
//! For a tensor whose client share is the mask r and each linear layer W that reads it, client and
//! server obtain `c + s = W r mod 2^l`, except with probability 2^-39 per output: 2^-40 for the
//! noise of an answer and 2^-40 for a product above its bound. Only shapes determine what is
//! skipped, sent or multiplied.

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
