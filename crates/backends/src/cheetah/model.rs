//! The seam: a float model lowered to a ring and compiled to a plan, at the server with its weights, at the
//! client without.
//!
//! The public part is `postcard(("cheetah", version, Options))`, then the public part of the ring level. The
//! private part is that of the ring level: integer weights.

use std::sync::Arc;

use tacit_arith::prg::Prg;
use tacit_graph::{Model, Watch};
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::cost;
use super::options::{self, NAME, Options};
use super::plan::{self, Plan};
use super::{ClientMaterial, ClientParty, ServerMaterial, ServerParty};
use crate::ring::{self, RingGraph, Weights, public, reference};
use crate::seam::{self, Aids};
use crate::{
    Backend, BackendError, ClientModel, ClientSide, Costs, LoweringReport, Material, MaterialPart, ServerModel,
    ServerSide, Strain, Trust,
};

/// Version of the public part and of the protocol that follows from it.
const VERSION: u32 = 3;

/// The back end.
pub struct Cheetah;

/// What both parties have.
struct Compiled {
    public: Vec<u8>,
    plan: Arc<Plan>,
}

struct Server {
    compiled: Compiled,
    weights: Arc<Weights>,
    report: Option<ring::RingReport>,
}

struct Client {
    compiled: Compiled,
}

impl Compiled {
    fn new(graph: RingGraph, options: Options) -> Result<Self, BackendError> {
        let public = public::write((NAME, VERSION), &options, &graph)?;
        Ok(Self { public, plan: Arc::new(plan::compile(graph, options)?) })
    }

    fn read(bytes: &[u8]) -> Result<Self, BackendError> {
        let (options, rest): (Options, _) = public::read((NAME, VERSION), bytes)?;
        options.check()?;
        let graph = ring::read_public(rest)?;
        Ok(Self { public: bytes.to_vec(), plan: Arc::new(plan::compile(graph, options)?) })
    }

    fn costs(&self) -> Costs {
        cost::costs(&self.plan)
    }

    fn digest(&self) -> [u8; 32] {
        self.plan.digest()
    }
}

impl Backend for Cheetah {
    fn id(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "two parties: lattice-based linear layers, silent-OT comparisons; everything but the last bits ahead of time"
    }

    fn trust(&self) -> Trust {
        Trust::TwoParty
    }

    fn lower_watched(
        &self,
        model: &Model,
        text: &seam::Options,
        watch: &Watch,
    ) -> Result<Arc<dyn ServerModel>, BackendError> {
        let (options, ring_options) = options::parse(text)?;
        let price = |graph: &RingGraph| cost::online_bytes(graph, &options).map(|bytes| bytes as f64);
        let check = |graph: &RingGraph| plan::compile(graph.clone(), options).map(drop);
        let target = ring::Target { price: &price, check: &check };
        let lowered = ring::lower_for(model, &ring_options, target, watch).map_err(|e| e.of_backend(NAME))?;
        let compiled = Compiled::new(lowered.graph, options)?;
        Ok(Arc::new(Server { compiled, weights: Arc::new(lowered.weights), report: Some(lowered.report) }))
    }

    fn load(&self, public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>, BackendError> {
        let compiled = Compiled::read(public)?;
        let weights = Arc::new(ring::read_weights(private, compiled.plan.graph())?);
        Ok(Arc::new(Server { compiled, weights, report: None }))
    }

    fn open(&self, public: &[u8]) -> Result<Arc<dyn ClientModel>, BackendError> {
        Ok(Arc::new(Client { compiled: Compiled::read(public)? }))
    }
}

public::seam_plan!(Server, TwoParty, |self| Some(&*self.weights));
public::seam_plan!(Client, TwoParty, |self| None);

impl ServerModel for Server {
    fn public_bytes(&self) -> &[u8] {
        &self.compiled.public
    }

    fn private_bytes(&self) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        Ok(ring::weights_to_bytes(&self.weights))
    }

    fn report(&self) -> Option<&dyn LoweringReport> {
        self.report.as_ref().map(|report| report as &dyn LoweringReport)
    }

    fn reference(&self, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        public::reference(self.compiled.plan.graph(), &self.weights, input)
    }

    fn strain(&self, input: &[f32]) -> Result<Vec<Strain>, BackendError> {
        public::strain(self.compiled.plan.graph(), &self.weights, input)
    }

    fn connect(self: Arc<Self>, aids: &Aids) -> Result<Box<dyn ServerSide>, BackendError> {
        let party = ServerParty::new(self.compiled.plan.clone(), self.weights.clone(), randomness()?);
        Ok(Box::new(party.stopped_by(&aids.stop)))
    }
}

impl ClientModel for Client {
    fn connect(self: Arc<Self>, aids: &Aids) -> Result<Box<dyn ClientSide>, BackendError> {
        Ok(Box::new(ClientParty::new(self.compiled.plan.clone(), randomness()?).stopped_by(&aids.stop)))
    }
}

fn randomness() -> Result<Prg, BackendError> {
    Prg::from_os().map_err(|e| BackendError::Random(e.to_string()))
}

impl MaterialPart for ClientMaterial {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.to_bytes()
    }
}

impl MaterialPart for ServerMaterial {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.to_bytes()
    }
}

impl ServerSide for ServerParty {
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.setup(channel)
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        Ok(Material::new(self.offline(channel)?))
    }

    fn online(&mut self, channel: &mut Channel, material: Material) -> Result<(), BackendError> {
        self.online(channel, material.take()?, &mut |_, _| {})
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        Ok(Material::new(ServerMaterial::from_bytes(self.plan(), bytes)?))
    }
}

impl ClientSide for ClientParty {
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.setup(channel)
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        Ok(Material::new(self.offline(channel)?))
    }

    fn online(&mut self, channel: &mut Channel, material: Material, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        let integers = reference::quantize_input(self.plan().graph(), input)?;
        let answer = self.online(channel, material.take()?, &integers, &mut |_, _| {})?;
        Ok(reference::dequantize_output(self.plan().graph(), &answer))
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        Ok(Material::new(ClientMaterial::from_bytes(self.plan(), bytes)?))
    }
}
