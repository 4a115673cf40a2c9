//! Implements the back end: a float model lowered to a ring and compiled to a plan.
//!
//! The public part is `postcard(("dealt", version, Options, digest of E))`, followed by that of the
//! ring level. The private part is a secret of 32 bytes, from which the keys of `A` are derived,
//! followed by that of the ring level. The dealer's part is the keys of `A`, 16 bytes for each
//! linear layer.

use std::sync::Arc;

use tacit_arith::prg::Seed;
use tacit_graph::float::FloatOp;
use tacit_graph::{Model, Watch};
use zeroize::Zeroizing;

use super::client_session::Asking;
use super::compiled::{Client, Compiled, Server};
use super::cost;
use super::dealer::{self, Keys, SEED_BYTES};
use super::masked_weights;
use super::options::{self, NAME, Options};
use super::plan;
use super::server;
use super::server_session::Serving;
use tacit_backend_api::seam::{self, ConnectionResources, DealerModel, Order};
use tacit_backend_api::{
    Backend, BackendError, ClientModel, ClientSide, LoweringReport, ServerModel, ServerSide, Strain, Support, Trust,
};
use tacit_ring::{self, RingGraph, public};

/// The back end.
pub struct Dealt;

/// A model at the dealer.
struct Dealing {
    compiled: Compiled,
    keys: Arc<Keys>,
}

impl Backend for Dealt {
    fn id(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "a dealer, who works with neither party, makes the material: no lattices, no OT, one exchange a layer"
    }

    fn trust(&self) -> Trust {
        Trust::Dealer
    }

    fn support(&self, op: &FloatOp) -> Support {
        tacit_ring::support(op, true)
    }

    fn lower_watched(
        &self,
        model: &Model,
        text: &seam::Options,
        watch: &Watch,
    ) -> Result<Arc<dyn ServerModel>, BackendError> {
        let (options, ring_options) = options::parse(text)?;
        let with = |relu_drop| Options { relu_drop, ..options };
        let target = tacit_ring::Target {
            price: &|graph: &RingGraph, dropped| cost::price(graph, &with(dropped)),
            check: &|graph: &RingGraph, dropped| plan::compile(graph.clone(), with(dropped)).map(drop),
        };
        let lowered =
            tacit_ring::lower_for(model, &ring_options, target, watch).map_err(|e| tacit_ring::of_backend(e, NAME))?;
        let mut secret = Zeroizing::new([0; 32]);
        seam::randomness()?.fill_bytes(&mut *secret);
        let plan = Arc::new(plan::compile(lowered.graph, with(lowered.relu_drop))?);
        let mut server = Server::new((plan, lowered.weights), secret, Some(lowered.report))?;
        let bound = seam::Plan::error_bound(&server, &[]);
        server.report.iter_mut().for_each(|report| report.state_bound(bound));
        Ok(Arc::new(server))
    }

    fn load(&self, public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>, BackendError> {
        let compiled = Compiled::read(public)?;
        let (secret, weights) = masked_weights::read_private(&*compiled.plan, private)?;
        let server = Server::new((compiled.single_plan, weights), secret, None)?;
        if *server.compiled.public != *public {
            return Err(BackendError::Private { what: "it belongs to another public part".into() });
        }
        Ok(Arc::new(server))
    }

    fn open(&self, public: &[u8]) -> Result<Arc<dyn ClientModel>, BackendError> {
        Ok(Arc::new(Client { compiled: Compiled::read(public)?, masked_weights: Arc::default() }))
    }

    fn dealing(&self, public: &[u8], part: &[u8]) -> Result<Arc<dyn DealerModel>, BackendError> {
        let compiled = Compiled::read(public)?;
        let keys = masked_weights::read_keys(&*compiled.plan, part)?;
        Ok(Arc::new(Dealing { compiled, keys: Arc::new(Keys(keys)) }))
    }
}

tacit_ring::seam_plan!(Server, Dealt, |self| Some(&self.weights));
tacit_ring::seam_plan!(Client, Dealt, |self| None);

impl ServerModel for Server {
    fn public_bytes(&self) -> &[u8] {
        &self.compiled.public
    }

    fn private_bytes(&self) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        Ok(masked_weights::private_bytes(&self.secret, &self.weights))
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

    fn order(&self) -> Option<Order<'_>> {
        Some(Order {
            backend: NAME,
            digest: self.compiled.digest_of_one(),
            batch: self.compiled.batch() as u32,
            public: &self.compiled.public,
            part: &self.dealer_part,
            server_bytes: server::half_bytes(&self.compiled.plan) as u64,
        })
    }

    fn spooled_bytes(&self) -> Option<u64> {
        Some(server::material_bytes(&self.compiled.plan) as u64)
    }

    fn batched(&self, batch: usize) -> Result<Arc<dyn ServerModel>, BackendError> {
        Ok(Arc::new(self.batched(batch)?))
    }

    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ServerSide>, BackendError> {
        Ok(Box::new(Serving::new(self, resources.clone(), seam::randomness()?)))
    }
}

impl ClientModel for Client {
    fn batched(&self, batch: usize) -> Result<Arc<dyn ClientModel>, BackendError> {
        Ok(Arc::new(self.batched(batch)?))
    }

    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ClientSide>, BackendError> {
        Ok(Box::new(Asking::new(self, resources.clone(), seam::randomness()?)))
    }
}

impl DealerModel for Dealing {
    fn digest(&self) -> [u8; 32] {
        self.compiled.digest()
    }

    fn batched(&self, batch: usize) -> Result<Arc<dyn DealerModel>, BackendError> {
        Ok(Arc::new(Self { compiled: self.compiled.batched(batch)?, keys: Arc::clone(&self.keys) }))
    }

    fn masks(&self) -> Vec<[u8; 32]> {
        self.keys.0.iter().map(masked_weights::fingerprint).collect()
    }

    fn client_bytes(&self) -> u64 {
        SEED_BYTES as u64
    }

    fn client_memory(&self) -> u64 {
        SEED_BYTES as u64
    }

    fn client_half(
        &self,
        dealing: &Seed,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        sink(&dealer::seeds(dealing)[0].0)
    }

    fn server_bytes(&self) -> u64 {
        server::half_bytes(&self.compiled.plan) as u64
    }

    fn server_half(
        &self,
        dealing: &Seed,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        dealer::server_half(&self.compiled.plan, &self.keys, dealing, sink)
    }
}
