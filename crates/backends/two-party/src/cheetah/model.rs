//! Implementation of the seam: a float model is lowered to a ring and compiled to a plan. The
//! server has the plan with the weights, the client without.
//!
//! The public part is `postcard((name, version, Options))`, then the public part of the ring level.
//! The private part consists of the ring level's integer weights.

use std::sync::Arc;

use tacit_graph::{Model, Watch};
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::cost;
use super::lattice::Lattice;
use super::options::Options;
use super::plan::{self, Plan};
use super::{ClientMaterial, ClientParty, ServerMaterial, ServerParty};
use tacit_backend_api::seam::{self, ConnectionResources, MaterialSeed};
use tacit_backend_api::{
    BackendError, ClientModel, ClientSide, Costs, LoweringReport, Material, MaterialPart, ServerModel, ServerSide,
    Strain,
};
use tacit_ring::{RingGraph, Weights, public, reference};

/// The public part and the plans, which both parties have.
struct Compiled<L: Lattice> {
    public: Arc<[u8]>,
    /// The plan for one input.
    single_plan: Arc<Plan<L>>,
    /// The plan for the batch of this model.
    plan: Arc<Plan<L>>,
}

struct Server<L: Lattice> {
    compiled: Compiled<L>,
    weights: Arc<Weights>,
    report: Option<tacit_ring::RingReport>,
}

struct Client<L: Lattice> {
    compiled: Compiled<L>,
}

impl<L: Lattice> Compiled<L> {
    fn new(graph: RingGraph, options: Options) -> Result<Self, BackendError> {
        let public = public::write(L::NAME, L::VERSION, &options, &graph)?;
        Ok(Self::from_plan(public.into(), plan::compile(graph, options)?))
    }

    /// Reads a public part, which is untrusted bytes.
    fn read(bytes: &[u8]) -> Result<Self, BackendError> {
        let (options, rest): (Options, _) = public::read(L::NAME, L::VERSION, bytes)?;
        L::check(&options)?;
        let graph = tacit_ring::read_public(rest)?;
        Ok(Self::from_plan(bytes.into(), plan::compile(graph, options)?))
    }

    fn from_plan(public: Arc<[u8]>, plan: Plan<L>) -> Self {
        let single_plan = Arc::new(plan);
        Self { public, plan: Arc::clone(&single_plan), single_plan }
    }

    fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        let batch = seam::checked_batch(batch, self.max_batch())?;
        let (public, single_plan) = (Arc::clone(&self.public), Arc::clone(&self.single_plan));
        Ok(Self { public, plan: Arc::new(plan::batched(&single_plan, batch)), single_plan })
    }

    fn batch(&self) -> usize {
        self.plan.batch()
    }

    fn max_batch(&self) -> usize {
        seam::most_inputs(&cost::costs(&self.single_plan))
    }

    fn costs(&self) -> Costs {
        cost::costs(&self.plan)
    }

    fn digest(&self) -> [u8; 32] {
        self.plan.digest()
    }
}

pub(crate) fn lower<L: Lattice>(
    model: &Model,
    options: &seam::Options,
    watch: &Watch,
) -> Result<Arc<dyn ServerModel>, BackendError> {
    let (options, ring_options) = L::parse(options)?;
    let with_relu_drop = |relu_drop| Options { relu_drop, ..options };
    let target = tacit_ring::Target {
        price: &|graph, dropped| cost::online_bytes::<L>(graph, &with_relu_drop(dropped)).map(|bytes| bytes as f64),
        check: &|graph, dropped| plan::compile::<L>(graph.clone(), with_relu_drop(dropped)).map(drop),
    };
    let lowered = tacit_ring::lower_for(model, &ring_options, target, watch);
    let lowered = lowered.map_err(|error| tacit_ring::of_backend(error, L::NAME))?;
    let compiled = Compiled::<L>::new(lowered.graph, with_relu_drop(lowered.relu_drop))?;
    let mut server = Server { compiled, weights: Arc::new(lowered.weights), report: Some(lowered.report) };
    let bound = seam::Plan::error_bound(&server, &[]);
    server.report.iter_mut().for_each(|report| report.state_bound(bound));
    Ok(Arc::new(server))
}

pub(crate) fn load<L: Lattice>(public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>, BackendError> {
    let compiled = Compiled::<L>::read(public)?;
    let weights = Arc::new(tacit_ring::read_weights(private, compiled.plan.graph())?);
    Ok(Arc::new(Server { compiled, weights, report: None }))
}

pub(crate) fn open<L: Lattice>(public: &[u8]) -> Result<Arc<dyn ClientModel>, BackendError> {
    Ok(Arc::new(Client { compiled: Compiled::<L>::read(public)? }))
}

macro_rules! two_party_backend {
    ($lattice:ty) => {
        impl tacit_backend_api::Backend for $lattice {
            fn id(&self) -> &'static str {
                <Self as $crate::cheetah::Lattice>::NAME
            }

            fn about(&self) -> &'static str {
                <Self as $crate::cheetah::Lattice>::ABOUT
            }

            fn trust(&self) -> tacit_backend_api::Trust {
                tacit_backend_api::Trust::TwoParty
            }

            fn support(&self, op: &tacit_graph::float::FloatOp) -> tacit_backend_api::Support {
                tacit_ring::support(op, false)
            }

            fn lower_watched(
                &self,
                model: &tacit_graph::Model,
                options: &tacit_backend_api::Options,
                watch: &tacit_graph::Watch,
            ) -> Result<std::sync::Arc<dyn tacit_backend_api::ServerModel>, tacit_backend_api::BackendError> {
                $crate::cheetah::model::lower::<Self>(model, options, watch)
            }

            fn load(
                &self,
                public: &[u8],
                private: &[u8],
            ) -> Result<std::sync::Arc<dyn tacit_backend_api::ServerModel>, tacit_backend_api::BackendError> {
                $crate::cheetah::model::load::<Self>(public, private)
            }

            fn open(
                &self,
                public: &[u8],
            ) -> Result<std::sync::Arc<dyn tacit_backend_api::ClientModel>, tacit_backend_api::BackendError> {
                $crate::cheetah::model::open::<Self>(public)
            }
        }
    };
}

pub(crate) use two_party_backend;

two_party_backend!(super::Cheetah);

tacit_ring::seam_plan!(@[L: Lattice] Server<L>, TwoParty, |self| Some(&*self.weights));
tacit_ring::seam_plan!(@[L: Lattice] Client<L>, TwoParty, |self| None);

impl<L: Lattice> ServerModel for Server<L> {
    fn public_bytes(&self) -> &[u8] {
        &self.compiled.public
    }

    fn private_bytes(&self) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        Ok(tacit_ring::weights_to_bytes(&self.weights))
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

    fn batched(&self, batch: usize) -> Result<Arc<dyn ServerModel>, BackendError> {
        let (compiled, weights) = (self.compiled.batched(batch)?, Arc::clone(&self.weights));
        Ok(Arc::new(Self { compiled, weights, report: None }))
    }

    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ServerSide>, BackendError> {
        let mut party = ServerParty::new(self.compiled.single_plan.clone(), self.weights.clone(), seam::randomness()?);
        party.set_batch(self.compiled.plan.batch())?;
        Ok(Box::new(party.stopped_by(&resources.stop)))
    }
}

impl<L: Lattice> ClientModel for Client<L> {
    fn batched(&self, batch: usize) -> Result<Arc<dyn ClientModel>, BackendError> {
        Ok(Arc::new(Self { compiled: self.compiled.batched(batch)? }))
    }

    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ClientSide>, BackendError> {
        let mut party = ClientParty::new(self.compiled.single_plan.clone(), seam::randomness()?);
        party.set_batch(self.compiled.plan.batch())?;
        Ok(Box::new(party.stopped_by(&resources.stop)))
    }
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

impl<L: Lattice> ServerSide for ServerParty<L> {
    fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.set_batch(batch)
    }

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

impl<L: Lattice> ClientSide for ClientParty<L> {
    fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.set_batch(batch)
    }

    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.setup(channel)
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        Ok(Material::new(self.offline(channel)?))
    }

    fn offline_from(&mut self, channel: &mut Channel, seed: MaterialSeed) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        Ok(self.offline_from(channel, seed)?.rest_to_bytes())
    }

    fn with_seed(&self, seed: MaterialSeed, rest: &[u8]) -> Result<Material, BackendError> {
        Ok(Material::new(ClientMaterial::from_seed(self.plan(), seed, rest)?))
    }

    fn online(&mut self, channel: &mut Channel, material: Material, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        let integers = reference::quantize_inputs(self.plan().graph(), self.plan().batch(), input)?;
        let answer = self.online(channel, material.take()?, &integers, &mut |_, _| {})?;
        Ok(reference::dequantize_output(self.plan().graph(), &answer))
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        Ok(Material::new(ClientMaterial::from_bytes(self.plan(), bytes)?))
    }
}
