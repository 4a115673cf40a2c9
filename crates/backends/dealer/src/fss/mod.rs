//! The `fss` back end: material from a dealer as in [`dealt`](crate::dealt), with function secret
//! sharing and tags on everything that a client sends. The server detects a deviating client before
//! it releases anything that depends on the deviation. At level `l1` the server is trusted to
//! follow the protocol.
//!
//! The client and the dealer derive the client's share of every tensor from the client's seed,
//! before the input exists. The client sends
//! * offline, for each linear layer `W x = W u + E r + A r`, the word `V = E r + tau`. Here r is
//!   the client's share of the layer's input, and tau a mask from its seed. The server ends on
//!   `W u + (A r - t) + V`, which is `W x - target`; the dealer gives `t = tau + target`. r and tau
//!   have tags under a key of the server. E is public, so V's tag is `E (tag of r) + (tag of tau)`,
//!   and the server's check values follow in the same way (`mac_matmul`);
//! * online its masked input, which is its own choice, and for each gate a bit and a word with tags
//!   (`tacit_mpc::fss::gate`).
//!
//! Both parties enter all of this into a transcript. The server checks the words of the offline
//! phase before it stores the material. It checks everything that was opened online before it sends
//! its share of the result.
//!
//! At level `l2` **both parties are checked**. Both have the same masked values, only the dealer
//! has the masks, and every message has a tag that its sender cannot forge (`masked_walk`,
//! `linear_check`).
//!
//! `docs/notes/fss.md` says what a check rests on and what a failed check costs. `plan` compiles,
//! `material_format` defines both halves, and `dealer` makes them. `client` and `server` are the
//! parties' phases. The [`session`](crate::session) does the rest.

mod client;
mod cost;
mod dealer;
mod linear_check;
mod mac_matmul;
mod masked_walk;
mod material_format;
mod options;
mod plan;
mod server;

use crate::session::model::dealer_backend;

pub use options::{Level, Options};

/// Version of the public part and of its protocol.
pub const VERSION: u32 = 5;

/// The back end.
pub struct Fss;

dealer_backend!(
    Fss,
    "a dealer makes the material, with function secret sharing and tags: a client that deviates is found"
);

#[cfg(test)]
mod tests;
