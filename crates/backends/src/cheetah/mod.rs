//! The `cheetah` back end: lattice-based linear layers and silent-OT comparisons, with the whole
//! input-independent part pulled into an offline phase ([Delphi20] phases, [Chee22] protocols).
//!
//! One invariant holds it together: every secret tensor is shared additively modulo a power of two, and **the
//! client knows its share of every tensor before it knows its input**. So
//! * a linear layer sends nothing online: the server applies its weights to its own share and adds what the
//!   offline phase gave it;
//! * the client's side of every comparison is fixed offline, and online the server sends masked tables for
//!   it;
//! * after each non-linear layer the client sends one ring element, which moves its share back to the value
//!   it committed to.
//!
//! `model` is the seam, `party` a connection's state, `client` and `server` what they do in each phase of the
//! walks that all back ends on shares have in common (`ring::share`), `plan` the compilation, `cost` what it
//! all costs. `lattice` says what the lattice half must do: `coeff` is this back end's, over `linear`; that
//! of `sci-he` is another, and everything else is shared with it.

mod client;
mod coeff;
mod cost;
mod lattice;
pub mod linear;
mod material;
mod model;
mod options;
mod party;
mod plan;
mod server;

pub use crate::ring::share::NodeObserver;
pub use coeff::Cheetah;
pub(crate) use coeff::Keys;
pub(crate) use cost::TrafficOf;
pub use cost::{costs, online_bytes};
pub use lattice::Lattice;
pub use material::{ClientMaterial, ServerMaterial};
pub use options::Options;
pub(crate) use options::read_gates;
pub use party::{ClientParty, ServerParty};
pub(crate) use plan::{Group, draft};
pub use plan::{Plan, batched, compile};
pub use tacit_mpc::gate::Leaves;
