//! The `cheetah` back end: lattice-based linear layers and silent-OT comparisons, with the whole input-independent part pulled into an
//! offline phase ([Delphi20] phases, [Chee22] protocols).
//!
//! One invariant holds it together: every secret tensor is shared additively modulo a power of two, and **the client knows its
//! share of every tensor before it knows its input**. So
//! * a linear layer sends nothing online: the server applies its weights to its own share and adds what the offline phase gave it;
//! * the client's side of every comparison is fixed offline, and online the server sends masked tables for it;
//! * after each non-linear layer the client sends one ring element, which moves its share back to the value it committed to.
//!
//! `client` and `server` walk the graph once per phase; `local` holds what needs no other party, `reduce` the comparison schedules
//! of pools, `truncate` the exact truncation of what is revealed, `linear` the lattice part, `plan` the compilation.

mod client;
mod cost;
pub mod linear;
mod local;
mod material;
mod plan;
mod reduce;
mod server;
mod truncate;

use tacit_mpc::{Ots, Role, Session};

pub use client::{ClientKeys, online_traced as client_online_traced};
pub use cost::online_bytes;
pub use material::{ClientMaterial, ServerMaterial};
pub use plan::Plan;
pub use server::{ServerKeys, online_traced as server_online_traced};
pub use tacit_mpc::gate::Leaves;

use crate::ring::RingGraph;
use crate::{Backend, BackendError, Held, Numerics, Output, PhaseCosts};

/// Public choices of the back end; both parties must use the same (they are part of the plan's digest).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Options {
    /// How the digits of comparisons are evaluated.
    pub leaves: Leaves,
    /// Low bits that ReLU's sign test leaves out: results below `2^relu_drop` units may become 0.
    pub relu_drop: u32,
    /// Error allowed at each linear output before truncation, at least 1 (raised where a wide ring needs it): larger bounds save bytes.
    pub linear_error: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { leaves: Leaves::Masked, relu_drop: 0, linear_error: 1 }
    }
}

/// The back end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cheetah {
    /// Public choices.
    pub options: Options,
}

impl Cheetah {
    /// The setup over given OTs: the exchange of the lattice keys alone.
    ///
    /// # Errors
    /// Channel and protocol errors.
    pub fn setup_with(&self, session: &mut Session<'_>, ots: Ots) -> Result<Keys, BackendError> {
        Ok(match session.role {
            Role::Client => Keys::Client(client::setup(session, ots)?),
            Role::Server => Keys::Server(server::setup(session, ots)?),
        })
    }
}

/// What one party keeps of the setup with one client: lattice keys, and the random OTs that the offline phases draw on. The online
/// phase needs none of it.
pub enum Keys {
    /// The client's secret key.
    Client(ClientKeys),
    /// The client's public key.
    Server(ServerKeys),
}

/// One party's material for one input.
pub enum Material {
    /// The client's half.
    Client(ClientMaterial),
    /// The server's half.
    Server(ServerMaterial),
}

impl Material {
    /// The material as bytes; all lengths follow from the plan.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Material::Client(m) => m.to_bytes(),
            Material::Server(m) => m.to_bytes(),
        }
    }

    /// Reads material of the given role.
    ///
    /// # Errors
    /// `Protocol(Material)` if the bytes do not fit the plan.
    pub fn from_bytes(plan: &Plan, role: Role, bytes: &[u8]) -> Result<Self, BackendError> {
        Ok(match role {
            Role::Client => Material::Client(ClientMaterial::from_bytes(plan, bytes)?),
            Role::Server => Material::Server(ServerMaterial::from_bytes(plan, bytes)?),
        })
    }
}

impl Backend for Cheetah {
    type Plan = Plan;
    type Keys = Keys;
    type Material = Material;

    fn compile(&self, graph: &RingGraph) -> Result<Plan, BackendError> {
        plan::compile(graph, &self.options)
    }

    fn setup(&self, _: &Plan, session: &mut Session<'_>) -> Result<Keys, BackendError> {
        let ots = Ots::setup(session)?;
        self.setup_with(session, ots)
    }

    fn offline(
        &self,
        plan: &Plan,
        keys: &mut Keys,
        held: Held<'_>,
        session: &mut Session<'_>,
    ) -> Result<Material, BackendError> {
        match (keys, held) {
            (Keys::Client(keys), _) => Ok(Material::Client(client::offline(plan, keys, session)?)),
            (Keys::Server(keys), Held::Weights(weights)) => {
                Ok(Material::Server(server::offline(plan, keys, weights, session)?))
            }
            (Keys::Server(_), _) => Err(BackendError::Misuse("the server needs the weights in the offline phase")),
        }
    }

    fn online(
        &self,
        plan: &Plan,
        material: Material,
        held: Held<'_>,
        session: &mut Session<'_>,
    ) -> Result<Output, BackendError> {
        match (material, held) {
            (Material::Client(material), Held::Input(input)) => {
                Ok(Output::Values(client::online_traced(plan, material, input, session, &mut |_, _| {})?))
            }
            (Material::Server(material), Held::Weights(weights)) => {
                server::online_traced(plan, material, weights, session, &mut |_, _| {})?;
                Ok(Output::Nothing)
            }
            _ => Err(BackendError::Misuse("the client needs an input and the server weights in the online phase")),
        }
    }

    fn cost(&self, plan: &Plan) -> PhaseCosts {
        cost::cost(plan)
    }

    fn numerics(&self, plan: &Plan) -> Numerics {
        let layers = 0..plan.graph().nodes().len();
        let linear = layers.map(|id| plan.linear_error(id)).max().unwrap_or(0);
        // floor(s + 1/2) + floor(c) differs from the floor of the sum by at most one.
        Numerics::UlpPerTruncation { below: 1, above: 1, linear, relu_drop: self.options.relu_drop }
    }
}
