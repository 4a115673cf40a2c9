//! Implements the back end: a float model lowered to a ring and compiled to a plan.
//!
//! The public part is
//! `postcard(("fss", version, Options, digest of E, digest of the dealer's part))`,
//! followed by that of the ring level. The private part is a secret of 32 bytes, from
//! which the keys of `A` are derived, followed by that of the ring level. The dealer's part is the
//! keys of `A`, 16 bytes for each linear layer.

use std::sync::Arc;

use tacit_arith::prg::Seed;
use tacit_graph::float::FloatOp;
use tacit_graph::{Model, Watch};
use tacit_mpc::Role;
use zeroize::Zeroizing;

use super::client_session::Asking;
use super::compiled::{Client, Compiled, Server, dealer_keys_digest};
use super::options::{self, NAME, Options};
use super::plan;
use super::server_session::Serving;
use super::{cost, dealer, material_format};
use crate::dealt::masked_weights;
use tacit_backend_api::seam::{self, ConnectionResources, DealerModel, Order};
use tacit_backend_api::{
    Backend, BackendError, ClientModel, ClientSide, LoweringReport, ServerModel, ServerSide, Strain, Support, Trust,
};
use tacit_ring::{self, RingGraph, public};

/// The back end.
pub struct Fss;

/// A model at the dealer.
struct Dealing {
    compiled: Compiled,
    keys: Arc<Vec<Seed>>,
}

impl Backend for Fss {
    fn id(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "a dealer makes the material, with function secret sharing and tags: a client that deviates is found"
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
        let plan = plan::compile(lowered.graph, with(lowered.relu_drop))?;
        let mut server = Server::new((plan, lowered.weights), secret, Some(lowered.report))?;
        let bound = seam::Plan::error_bound(&server, &[]);
        server.report.iter_mut().for_each(|report| report.state_bound(bound));
        Ok(Arc::new(server))
    }

    fn load(&self, public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>, BackendError> {
        let compiled = Compiled::read(public)?;
        let (secret, weights) = masked_weights::read_private(&*compiled.plan, private)?;
        drop(compiled.plan);
        let plan = Arc::into_inner(compiled.single_plan).expect("nobody else has it");
        let server = Server::new((plan, weights), secret, None)?;
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
        if dealer_keys_digest(&compiled.stated.masked_weights, part) != compiled.stated.keys {
            return Err(BackendError::Private { what: "these keys are not those that the public part states".into() });
        }
        let keys = masked_weights::read_keys(&*compiled.plan, part)?;
        Ok(Arc::new(Dealing { compiled, keys: Arc::new(keys) }))
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
            digest: self.compiled.single_plan.binding(),
            batch: self.compiled.batch() as u32,
            public: &self.compiled.public,
            part: &self.dealer_part,
            server_bytes: material_format::with_digest(material_format::server_bytes(&self.compiled.plan)[0]),
        })
    }

    fn batched(&self, batch: usize) -> Result<Arc<dyn ServerModel>, BackendError> {
        Ok(Arc::new(self.batched(batch)?))
    }

    fn spooled_bytes(&self) -> Option<u64> {
        Some(material_format::with_digest(material_format::server_bytes(&self.compiled.plan)[1]))
    }

    fn connect(self: Arc<Self>, resources: &ConnectionResources) -> Result<Box<dyn ServerSide>, BackendError> {
        Ok(Box::new(Serving::new(self, resources.clone(), seam::randomness()?)))
    }
}

impl ClientModel for Client {
    fn batched(&self, batch: usize) -> Result<Arc<dyn ClientModel>, BackendError> {
        Ok(Arc::new(self.batched(batch)?))
    }

    fn spooled_bytes(&self) -> Option<u64> {
        Some(material_format::with_digest(material_format::client_bytes(&self.compiled.plan)[1]))
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
        self.keys.iter().map(masked_weights::fingerprint).collect()
    }

    fn client_bytes(&self) -> u64 {
        material_format::with_digest(material_format::client_bytes(&self.compiled.plan)[0])
    }

    fn client_memory(&self) -> u64 {
        cost::dealing_memory(&self.compiled.plan)
    }

    fn client_half(
        &self,
        dealing: &Seed,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        dealer::deal(Role::Client, &self.compiled.plan, &self.keys, dealing, sink)
    }

    fn server_bytes(&self) -> u64 {
        material_format::with_digest(material_format::server_bytes(&self.compiled.plan)[0])
    }

    fn server_half(
        &self,
        dealing: &Seed,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        dealer::deal(Role::Server, &self.compiled.plan, &self.keys, dealing, sink)
    }
}
