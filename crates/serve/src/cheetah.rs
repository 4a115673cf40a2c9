//! The `cheetah` back end, served.
use crate::Engine;
use tacit_arith::bits::Bits;
use tacit_arith::prg::Prg;
use tacit_backends::cheetah::{Cheetah, Keys, Material, Plan};
use tacit_backends::{Backend, BackendError, Held, Output};
use tacit_graph::{ModelGraph, Weights};
use tacit_mpc::ot::{self, Ot, RandomOtReceiver, RandomOtSender, ReceiverPlanes, SenderPlanes};
use tacit_mpc::{MpcError, Role, Session};
use tacit_net::Channel;

/// OTs of a session before its setup: the online phase needs none, so a connection that only uses stored material
/// never pays for base OTs.
struct BeforeSetup;

fn refuse<T>(n: usize) -> Result<T, MpcError> {
    Err(MpcError::OutOfRange { what: "random OTs before the setup", max: 0, got: n })
}

impl RandomOtSender for BeforeSetup {
    fn reserve(&mut self, _: usize) {}
    fn planes(&mut self, _: &mut Channel, n: usize, _: usize) -> Result<SenderPlanes, MpcError> {
        refuse(n)
    }
    fn words(&mut self, _: &mut Channel, n: usize) -> Result<(Vec<u64>, Vec<u64>), MpcError> {
        refuse(n)
    }
    fn word_pairs(&mut self, _: &mut Channel, n: usize) -> Result<(Vec<[u64; 2]>, Vec<[u64; 2]>), MpcError> {
        refuse(n)
    }
}

impl RandomOtReceiver for BeforeSetup {
    fn reserve(&mut self, _: usize) {}
    fn planes(&mut self, _: &mut Channel, n: usize, _: usize) -> Result<ReceiverPlanes, MpcError> {
        refuse(n)
    }
    fn words(&mut self, _: &mut Channel, n: usize) -> Result<(Bits, Vec<u64>), MpcError> {
        refuse(n)
    }
    fn word_pairs(&mut self, _: &mut Channel, n: usize) -> Result<(Bits, Vec<[u64; 2]>), MpcError> {
        refuse(n)
    }
}

impl Engine for Cheetah {
    type Plan = Plan;
    type Session = Session;
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

    fn session(&self, role: Role, channel: Channel) -> Result<Session, BackendError> {
        let prg = Prg::from_os().map_err(MpcError::from)?;
        Ok(Session::new(role, channel, prg, Ot { sender: BeforeSetup, receiver: BeforeSetup }))
    }

    fn channel<'a>(&self, session: &'a mut Session) -> &'a mut Channel {
        &mut session.channel
    }

    fn setup(&self, plan: &Plan, session: &mut Session) -> Result<Keys, BackendError> {
        let ot = ot::setup(session.role, &mut session.channel, &mut session.prg)?;
        session.sender = Box::new(ot.sender);
        session.receiver = Box::new(ot.receiver);
        Backend::setup(self, plan, session)
    }

    fn offline(
        &self,
        plan: &Plan,
        keys: &mut Keys,
        weights: Option<&Weights>,
        session: &mut Session,
    ) -> Result<Material, BackendError> {
        Backend::offline(self, plan, keys, weights.map_or(Held::Nothing, Held::Weights), session)
    }

    fn online_client(
        &self,
        plan: &Plan,
        material: Material,
        input: &[i64],
        session: &mut Session,
    ) -> Result<Vec<i64>, BackendError> {
        match Backend::online(self, plan, material, Held::Input(input), session)? {
            Output::Values(values) => Ok(values),
            Output::Nothing => Err(BackendError::Misuse("the client's online phase gave no output")),
        }
    }

    fn online_server(
        &self,
        plan: &Plan,
        material: Material,
        weights: &Weights,
        session: &mut Session,
    ) -> Result<(), BackendError> {
        Backend::online(self, plan, material, Held::Weights(weights), session).map(|_| ())
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
