//! The `cheetah` back end, served.
use crate::Engine;
use tacit_arith::prg::Prg;
use tacit_backends::cheetah::{Cheetah, Keys, Material, Plan};
use tacit_backends::{Backend, BackendError, Held, Output};
use tacit_graph::{ModelGraph, Weights};
use tacit_mpc::{MpcError, Role, Session};
use tacit_net::Channel;

/// A party's end of a connection, from which each phase gets its session. What the setup makes is in the keys.
pub struct Connection {
    role: Role,
    channel: Channel,
    prg: Prg,
}

impl Connection {
    fn session(&mut self) -> Session<'_> {
        Session { role: self.role, channel: &mut self.channel, prg: &mut self.prg }
    }
}

impl Engine for Cheetah {
    type Plan = Plan;
    type Session = Connection;
    type Keys = Keys;
    type Material = Material;
    type Error = BackendError;

    fn name(&self) -> &'static str {
        "cheetah"
    }

    fn parameters(&self) -> [u8; 32] {
        // The options decide everything that the model does not; their text form is stable within a protocol version.
        let text = format!("{:?}", self.options);
        blake3::derive_key("tacit 2026-11 cheetah options", text.as_bytes())
    }

    fn compile(&self, graph: &ModelGraph) -> Result<Plan, BackendError> {
        Backend::compile(self, graph)
    }

    fn plan_digest(&self, plan: &Plan) -> [u8; 32] {
        plan.digest()
    }

    fn session(&self, role: Role, channel: Channel) -> Result<Connection, BackendError> {
        Ok(Connection { role, channel, prg: Prg::from_os().map_err(MpcError::from)? })
    }

    fn channel<'a>(&self, session: &'a mut Connection) -> &'a mut Channel {
        &mut session.channel
    }

    fn setup(&self, plan: &Plan, session: &mut Connection) -> Result<Keys, BackendError> {
        Backend::setup(self, plan, &mut session.session())
    }

    fn offline(
        &self,
        plan: &Plan,
        keys: &mut Keys,
        weights: Option<&Weights>,
        session: &mut Connection,
    ) -> Result<Material, BackendError> {
        Backend::offline(self, plan, keys, weights.map_or(Held::Nothing, Held::Weights), &mut session.session())
    }

    fn online_client(
        &self,
        plan: &Plan,
        material: Material,
        input: &[i64],
        session: &mut Connection,
    ) -> Result<Vec<i64>, BackendError> {
        match Backend::online(self, plan, material, Held::Input(input), &mut session.session())? {
            Output::Values(values) => Ok(values),
            Output::Nothing => Err(BackendError::Misuse("the client's online phase gave no output")),
        }
    }

    fn online_server(
        &self,
        plan: &Plan,
        material: Material,
        weights: &Weights,
        session: &mut Connection,
    ) -> Result<(), BackendError> {
        Backend::online(self, plan, material, Held::Weights(weights), &mut session.session()).map(|_| ())
    }

    fn material_to_bytes(&self, _: &Plan, material: &Material) -> Vec<u8> {
        material.to_bytes()
    }

    fn material_from_bytes(&self, plan: &Plan, role: Role, bytes: &[u8]) -> Result<Material, BackendError> {
        Material::from_bytes(plan, role, bytes)
    }

    fn material_bytes(&self, plan: &Plan, role: Role) -> u64 {
        let cost = self.cost(plan);
        match role {
            Role::Client => cost.client_material_bytes,
            Role::Server => cost.server_material_bytes,
        }
    }
}
