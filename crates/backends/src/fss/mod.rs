//! The `fss` back end: material from a dealer as in [`dealt`](crate::dealt), with function secret sharing
//! and tags on all that a client sends. A client that deviates is found before the server releases anything
//! that depends on the deviation. At level `l1` the server is trusted to follow the protocol.
//!
//! The client knows its share of every tensor before its input, and so does the dealer: they
//! come from the client's seed. What a client sends is
//! * offline, for each linear layer `W x = W u + E r + A r`, the word `V = E r + tau`, where r is its share
//!   of the layer's input and tau a mask from its seed. The server ends on `W u + (A r - t) + V`, that is
//!   `W x - target`, with a `t = tau + target` from the dealer. r and tau have tags under a key of the
//!   server's; E is public, so V's tag is `E (tag of r) + (tag of tau)`, and what the server needs to
//!   check it follows in the same way ([`mac_matmul`]);
//! * online its masked input, which is its own choice, and for each gate a bit and a word with tags
//!   (`tacit_mpc::fss::gate`).
//!
//! All of it goes into a ledger at both parties; the server checks the words of the offline phase before it
//! keeps the material, and everything that was opened online before it sends its share of the result.
//!
//! At level `l2` **both parties are checked**: they have the same masked values, the dealer alone the
//! masks, and all that either sends is under a tag that it cannot make (`both`, `project`).
//!
//! What a check rests on and what a failed one costs: `docs/notes/fss.md`. `plan` the compilation, `half`
//! what the halves begin and end with, `dealer` what the dealer does, `client` and `server` the parties'
//! phases at level `l1`, `both` those at `l2`, `taking` how halves come, `intake` what the server makes of
//! its own, `model` the seam, over `compiled`; `asking` and `serving` a connection at either party.

mod client;
mod client_session;
pub(crate) mod compiled;
mod cost;
mod dealer;
mod l2_phases;
mod linear_check;
mod mac_matmul;
mod material_format;
mod model;
mod options;
mod plan;
mod receive;
mod server;
mod server_ingest;
mod server_session;

pub use model::Fss;
pub use options::{Level, Options};
pub use plan::{Plan, compile};

#[cfg(test)]
mod tests;
