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
//! has the masks, and every message has a tag that its sender cannot forge (`l2_phases`,
//! `linear_check`).
//!
//! `docs/notes/fss.md` says what a check rests on and what a failed check costs. `plan` compiles,
//! `material_format` defines both halves, and `dealer` makes them. `client` and `server` are the
//! parties' phases at level `l1`, `l2_phases` those at `l2`. `receive` takes a half from the
//! dealer, and `server_ingest` turns the server's half into material. `model` implements the back
//! end on `compiled`. `client_session` and `server_session` are a connection at either party.

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

pub use compiled::VERSION;
pub use model::Fss;
pub use options::{Level, Options};
pub use plan::{Plan, compile};

#[cfg(test)]
mod tests;
