//! The `dealt` back end: a third party that knows neither input nor weights makes the offline
//! material. The parties need no homomorphic encryption and no oblivious transfer.
//!
//! As in every back end on shares, the client knows its share of every tensor before its input. All
//! shares are derived from one seed, which is the client's whole half, except for those of linear
//! layers and of local steps after them. Before such a tensor is compared or enters the next linear
//! layer, the client moves its share to one from the seed, offline ([`plan::Plan::moves`]): it
//! sends the difference, which is uniform. So
//! * the dealer, which made the seed, knows the client's share of everything that a gate or a
//!   linear layer reads, and deals tables for it (`tacit_mpc::dealt`);
//! * linear layers are `W x = W u + E r + A r`. Here `u = x - r` is the server's share, and `A` is
//!   random, known to server and dealer as a key. Each client gets `E = W - A` once. The dealer
//!   gives the server `A r - t` for a `t` from the client's seed. The client's share is `E r + t`.
//!   The dealer never knows `W`, and the client never knows `A`.
//!
//! Layers whose `E` is too large for the client can use lattices as in `cheetah`, without the
//! dealer (`lattice`). The client moves its shares of them as of the others.
//!
//! `docs/threat-model.md` says which parties must not work together, and what each pair would
//! learn. `plan` compiles, `masked_weights` holds A and E, `dealer` makes the halves, and `client`
//! and `server` are the parties' phases. `model` implements the back end on `compiled`.
//! `client_session` and `server_session` are a connection at either party.

pub(crate) mod audit;
mod client;
mod client_session;
pub(crate) mod compiled;
mod cost;
mod dealer;
mod lattice;
pub(crate) mod masked_weights;
mod model;
mod options;
mod plan;
mod server;
mod server_session;
pub(crate) mod setup;
pub(crate) mod source;

pub use compiled::VERSION;
pub use model::Dealt;
pub use options::{Choice, Linear, Options};
pub use plan::{Plan, compile};
