//! Linear layers of the `cheetah` back end, offline phase: coefficient encoding of [Chee22] sec. 3
//! (conv as a product of polynomials), after [Delphi20]'s split into phases.
//!
//! For a tensor whose client share is the mask `r` and each linear layer `W` that reads it, client
//! and server obtain `c` and `s` with `c + s = W r + e mod 2^l`, `|e| <= `
//! [`LinearPlan::max_error`] (1 up to 39-bit rings) except with probability 2^-40 per output. The
//! client sends RLWE(r) once per tensor and stride; all layers that read the tensor share its
//! tiling. Where a tile is small, a ciphertext carries several parts, so that neither direction
//! sends zeros; the server splits the ciphertext into these parts. The server answers with one
//! polynomial for each (block of output channels, tile); see `docs/notes/noise.md` for the bound.
//!
//! Bytes: `uploads * Params::up_bytes` up, `answers * Params::down_bytes + 16` per layer down, plus
//! message headers: [`LinearPlan::cost`] states them exactly. One round per tensor. Only shapes
//! determine what is skipped, sent or multiplied.

mod client;
mod cost;
mod error;
mod keys;
mod plan;
mod server;
pub mod tiling;

pub use client::LinearClient;
pub use cost::{ConsumerCost, LinearCost};
pub use error::LinearError;
pub use keys::{ClientKeys, KeyBytes, ServerKeys};
pub use plan::{LinearDraft, LinearPlan, weight_norm_log2};
pub use server::check_weights;
pub use server::{CheckedWeights, Evaluation, LinearServer};
pub use tacit_arith::ring::ConvSpec;
pub use tiling::Consumer;

use std::ops::Range;

use tacit_net::Tag;

/// Message, setup: the client's public key.
const TAG_KEY: Tag = Tag::new(0x0400, "linear public key");
/// Message, setup: the keys with which the server splits ciphertexts.
const TAG_EXPANSION: Tag = Tag::new(0x0404, "linear expansion keys");
/// Message, offline: a ciphertext of a mask.
const TAG_UP: Tag = Tag::new(0x0401, "linear ciphertext");
/// Message, offline: the public seed of an answer.
const TAG_SEED: Tag = Tag::new(0x0402, "linear answer seed");
/// Message, offline: a polynomial of an answer.
const TAG_DOWN: Tag = Tag::new(0x0403, "linear answer");

/// Number of polynomials that are computed before their bytes are passed on. It keeps all threads
/// busy and bounds memory.
pub fn batch() -> usize {
    8 * rayon::current_num_threads()
}

/// Splits `0..count` into ranges of [`batch`] polynomials.
pub fn batches(count: usize) -> impl Iterator<Item = Range<usize>> {
    let size = batch();
    (0..count).step_by(size).map(move |start| start..(start + size).min(count))
}

#[cfg(test)]
pub mod shapes;
#[cfg(test)]
mod tests;
