//! The `dealt` back end: a third party that knows neither input nor weights makes the offline material, so
//! that the parties need no homomorphic encryption and no oblivious transfer.
//!
//! As in every back end on shares the client knows its share of every tensor before its input. All of them
//! come from one seed, the client's whole half, but for those of linear layers and what follows from them by
//! local steps. Before such a tensor is compared or goes into the next linear layer, the client moves its
//! share of it to one from the seed, offline ([`plan::Plan::moves`]): it sends the difference, which is
//! uniform. So
//! * the dealer, who gave out the seed, knows the client's share of everything that a gate or a linear layer
//!   reads, and deals tables for it (`tacit_mpc::dealt`);
//! * linear layers are `W x = W u + E r + A r`: `u = x - r` is the server's share, `A` is random, known to
//!   server and dealer as a key; `E = W - A` goes to each client once. The dealer gives the server `A r - t`
//!   for a `t` from the client's seed, the client's share is `E r + t`. The dealer never knows `W`, the
//!   client never `A`.
//!
//! Layers whose `E` would be too much for the client can be made with lattices, as `cheetah` makes them, and
//! without the dealer (`lattice`); the client moves its shares of them as of the others.
//!
//! Who must not work together, and what each pair would learn: `docs/threat-model.md`. `plan` the
//! compilation, `statics` A and E, `dealer` what the dealer does, `client` and `server` the parties' phases,
//! `model` the seam, over `compiled`; `asking` and `serving` a connection at either party.

pub(crate) mod audit;
mod client;
mod client_session;
pub(crate) mod compiled;
mod cost;
mod dealer;
mod lattice;
mod model;
mod options;
mod plan;
mod server;
mod server_session;
pub(crate) mod setup;
pub(crate) mod source;
pub(crate) mod statics;

pub use model::Dealt;
pub use options::{Choice, Linear, Options};
pub use plan::{Plan, compile};
