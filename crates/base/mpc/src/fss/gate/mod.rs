//! Gates with dealt material for a server that checks all messages of its client:
//! `z_k = base_k + [y >= 0] X_k` and signed widening, with authenticated comparison keys and tags
//! on every word.
//!
//! The dealer knows the client's share `c` of every tested value and gave the server a mask `rho`. The server
//! opens `xh = s + rho = y + R` with `R = rho - c`. With the N low bits of both,
//! ```text
//! d = msb(R) ^ [xh_low < R_low] ^ lambda,      q = not msb(xh) ^ d = [y >= 0] ^ lambda
//! ```
//! `lambda` is a random bit. The bracket comes from a key of [`compare`](super::compare),
//! `msb(R) ^ lambda` is a dealt bit with a tag. Both parties send the lowest bit of their blocks,
//! so q is public. With `X = P - Q_m` (P public, such as xh; Q such as R, where m is the top bit of
//! xh if the result's ring is wider)
//! ```text
//! [y >= 0] X = (1 - 2q) lambda P + q P - (q ^ lambda) Q_m
//! ```
//! The client draws `a` (its share of lambda) and a `C` for each (q, m), and sends the low w bits
//! of `V = (1 - 2q) a P + C`. The server has the differences to the needed words and so gets its
//! share of the result; the client's share is one that the dealer knows (`target`).
//!
//! **The checks.** The client's bit: all blocks of both go into [`BitCheck`]. V: a and C have w +
//! 41 bits and tags `m = k a + b`, with k and b at the server alone; V's tag and b are computed
//! like V, and [`ring::Check`] compares them. The client sends nothing else. No step depends on
//! whether a check will fail, and rho or lambda masks every message of the server, once.
//!
//! **If both are checked** ([`Checked::Both`]) there is no rho: both parties have the same masked
//! values `xh = y + R`, with R at the dealer alone. Both parties take the same steps (`shared`), and
//! results are masked values again. lambda and the C are shared with tags under a key that neither party has,
//! and V is opened.
//!
//! All steps work on pieces of [`PIECE`] elements, in parallel, each with its own streams. Exact
//! for `|y| < 2^(n-1)` (gates) and `|y| < 2^(n-2)` (widening). Costs: [`FssGate::cost`],
//! [`FssWiden::cost`]. Argument: `docs/notes/fss.md`.

mod agree;
mod check_transcript;
mod columns;
mod deal;
mod lookup;
#[cfg(test)]
mod lookup_tests;
mod party;
mod shared;
#[cfg(test)]
mod shared_tests;
mod spec;
#[cfg(test)]
mod tests;
mod traffic;
mod widen;

pub use check_transcript::CheckTranscript;
pub use deal::{BatchId, BatchKeys, DealerStreams, deal_client, deal_server};
pub use lookup::{FssLookUp, client_look_up, deal_look_up_client, deal_look_up_server, server_look_up, shared_look_up};
pub use party::{client_online, server_online};
pub use shared::{Half, open_words, shared_online, shared_widen};
pub use spec::{Checked, FssCost, FssGate, FssWiden};
pub use widen::{client_widen, deal_widen, server_widen};

#[cfg(doc)]
use super::mac::{bits::BitCheck, ring};

/// Elements of a piece: whole groups of trees.
pub const PIECE: usize = 16 * super::GROUP;
/// Pieces that are dealt together before they are handed over.
pub const PIECES_AT_ONCE: usize = 8;
