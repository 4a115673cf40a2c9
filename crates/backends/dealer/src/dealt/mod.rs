//! The `dealt` back end: a third party that knows neither input nor weights makes the offline
//! material. The parties need no homomorphic encryption and no oblivious transfer.
//!
//! As in every back end on shares, the client knows its share of every tensor before its input. All
//! shares are derived from one seed, which is the client's whole half, except for those of linear
//! layers and of local steps after them. Before such a tensor is compared or enters the next linear
//! layer, the client moves its share to one from the seed, offline (`Plan::is_moved`): it sends the
//! difference, which is uniform. So
//! * the dealer, which made the seed, knows the client's share of everything that a gate or a
//!   linear layer reads, and deals tables for it (`tacit_mpc::dealt`);
//! * linear layers are `W x = W u + E r + A r`. Here `u = x - r` is the server's share, and `A` is
//!   random, known to server and dealer as a key. Each client gets `E = W - A` once. The dealer
//!   gives the server `A r - t` for a `t` from the client's seed. The client's share is `E r + t`.
//!   The dealer never knows `W`, and the client never knows `A`.
//!
//! Layers whose `E` is too large for the client can use lattices as in `cheetah`, without the
//! dealer (`session::lattice`). The client moves its shares of them as of the others.
//!
//! `docs/threat-model.md` says which parties must not work together, and what each pair would
//! learn. `plan` compiles, `dealer` makes the halves, and `client` and `server` are the parties'
//! phases. The [`session`](crate::session) does the rest.

mod client;
mod cost;
mod dealer;
mod options;
mod plan;
mod server;

use crate::session::model::dealer_backend;

pub use options::{Choice, Linear, Options};

/// Version of the public part and of its protocol.
pub const VERSION: u32 = 5;

/// The back end.
pub struct Dealt;

dealer_backend!(
    Dealt,
    "a dealer, who works with neither party, makes the material: no lattices, no OT, one exchange a layer"
);
