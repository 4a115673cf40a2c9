//! The `cheetah` back end: lattice-based linear layers and silent-OT comparisons, with all
//! input-independent work in an offline phase ([Delphi20] phases, [Chee22] protocols).
//!
//! One invariant is the base of all steps: every secret tensor is shared additively modulo a power
//! of two, and **the client knows its share of every tensor before it knows its input**. Therefore
//! * a linear layer sends nothing online: the server applies its weights to its own share and adds
//!   its offline result;
//! * the client's side of every comparison is fixed offline, and online the server sends masked
//!   tables for it;
//! * after each non-linear layer the client sends one ring element, which moves its share back to
//!   the value it committed to.
//!
//! `model` implements the seam (`tacit_backend_api::seam`), `party` holds a connection's state. `client` and
//! `server` implement the phases on the walks of `tacit_ring::share`, which all back ends on shares use.
//! `plan` compiles a model and `cost` states its costs. `lattice` is the interface of the lattice
//! half: `coeff` implements it for this back end over `linear`. `sci-he` has its own implementation
//! and shares everything else.

mod client;
mod coeff;
mod cost;
mod lattice;
pub mod linear;
mod material;
pub(crate) mod model;
mod options;
mod party;
mod plan;
mod server;

pub use coeff::Cheetah;
pub use coeff::Keys;
pub use cost::TrafficOf;
pub use cost::{costs, online_bytes};
pub use lattice::Lattice;
pub use material::{ClientMaterial, ServerMaterial};
pub use options::Options;
pub use options::read_gates;
pub use party::{ClientParty, ServerParty};
pub use plan::{Group, draft};
pub use plan::{Plan, batched, compile};
pub use tacit_mpc::gate::Leaves;
pub use tacit_ring::share::NodeObserver;
