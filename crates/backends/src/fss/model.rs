//! The seam: a float model lowered to a ring and compiled to a plan.
//!
//! The public part is `postcard(("fss", version, Options, digest of E))`, then that of the ring level. The
//! private part is a secret of 32 bytes, from which the keys of `A` follow, then that of the ring level. The
//! dealer's part is the keys of `A`, 16 bytes for each linear layer.

use std::sync::{Arc, OnceLock};

use tacit_arith::prg::{Prg, Seed};
use tacit_graph::{Model, Watch};
use tacit_mpc::Role;
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::client::{self, ClientMaterial};
use super::half;
use super::options::{self, NAME, Options};
use super::plan::{self, Plan};
use super::server::{self, ServerMaterial};
use super::{Level, both, cost, dealer};
use crate::dealt::audit::{Ordering, Sink};
use crate::dealt::setup::{self, Expected};
use crate::dealt::statics::{self, Statics};
use crate::ring::{self, RingGraph, Weights, public, reference};
use crate::seam::{self, Aids, DealerModel, Order};
use crate::{
    Backend, BackendError, ClientModel, ClientSide, Costs, LoweringReport, Material, MaterialPart, ServerModel,
    ServerSide, Strain, Trust,
};

/// Version of the public part and of the protocol that follows from it.
const VERSION: u32 = 2;

/// The back end.
pub struct Fss;

/// What both parties have.
struct Compiled {
    public: Arc<[u8]>,
    /// For one input.
    one: Arc<Plan>,
    /// For the batch of this model.
    plan: Arc<Plan>,
    /// Digest of `E`.
    statics: [u8; 32],
}

struct Server {
    compiled: Compiled,
    weights: Arc<Weights>,
    secret: Zeroizing<[u8; 32]>,
    keys: Arc<Vec<Seed>>,
    part: Arc<Zeroizing<Vec<u8>>>,
    report: Option<ring::RingReport>,
}

struct Client {
    compiled: Compiled,
    /// `E`, once a connection of this process has it.
    statics: Arc<OnceLock<Arc<Statics>>>,
}

/// A model at the dealer.
struct Dealing {
    compiled: Compiled,
    keys: Arc<Vec<Seed>>,
}

impl Compiled {
    fn read(bytes: &[u8]) -> Result<Self, BackendError> {
        let ((options, statics), rest): ((Options, [u8; 32]), _) = public::read((NAME, VERSION), bytes)?;
        options.check()?;
        let plan = plan::compile(ring::read_public(rest)?, options)?.bound_to(&statics);
        Ok(Self::of_one(bytes.into(), plan, statics))
    }

    fn of_one(public: Arc<[u8]>, one: Plan, statics: [u8; 32]) -> Self {
        let one = Arc::new(one);
        Self { public, plan: Arc::clone(&one), one, statics }
    }

    /// The same for a batch.
    fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        let (public, one, statics) = (Arc::clone(&self.public), Arc::clone(&self.one), self.statics);
        let plan = match seam::checked_batch(batch, self.max_batch())? {
            1 => Arc::clone(&one),
            batch => Arc::new(plan::batched(&one, batch)),
        };
        Ok(Self { public, one, plan, statics })
    }

    fn costs(&self) -> Costs {
        cost::costs(&self.plan)
    }

    fn batch(&self) -> usize {
        self.plan.batch()
    }

    fn max_batch(&self) -> usize {
        cost::most_inputs(&self.one)
    }

    /// Over the plan, `E` and the batch: material is bound to all three.
    fn digest(&self) -> [u8; 32] {
        self.plan.binding()
    }
}

fn hasher() -> blake3::Hasher {
    blake3::Hasher::new_derive_key("tacit 2026-11 fss masked weights")
}

impl Server {
    fn new(
        (plan, weights): (Plan, Weights),
        secret: Zeroizing<[u8; 32]>,
        report: Option<ring::RingReport>,
    ) -> Result<Self, BackendError> {
        let keys = statics::keys(&plan, &weights, &secret);
        let statics = statics::digest(&plan, &weights, &keys, hasher())?;
        let public = public::write((NAME, VERSION), &(plan.options(), statics), plan.graph())?;
        let part = Zeroizing::new(keys.iter().flat_map(|key| key.0).collect());
        let compiled = Compiled::of_one(public.into(), plan.bound_to(&statics), statics);
        let (weights, keys, part) = (Arc::new(weights), Arc::new(keys), Arc::new(part));
        Ok(Self { compiled, weights, secret, keys, part, report })
    }

    /// The same for a batch.
    fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        let (weights, keys, part) = (Arc::clone(&self.weights), Arc::clone(&self.keys), Arc::clone(&self.part));
        let (compiled, secret) = (self.compiled.batched(batch)?, self.secret.clone());
        Ok(Self { compiled, weights, secret, keys, part, report: None })
    }
}

impl Client {
    /// The same for a batch; what connections of the process have got stays shared.
    fn batched(&self, batch: usize) -> Result<Self, BackendError> {
        Ok(Self { compiled: self.compiled.batched(batch)?, statics: Arc::clone(&self.statics) })
    }
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

    fn lower_watched(
        &self,
        model: &Model,
        text: &seam::Options,
        watch: &Watch,
    ) -> Result<Arc<dyn ServerModel>, BackendError> {
        let (options, ring_options) = options::parse(text)?;
        let price = |graph: &RingGraph| cost::price(graph, &options);
        let check = |graph: &RingGraph| plan::compile(graph.clone(), options).map(drop);
        let target = ring::Target { price: &price, check: &check };
        let lowered = ring::lower_for(model, &ring_options, target, watch).map_err(|e| e.of_backend(NAME))?;
        let mut secret = Zeroizing::new([0; 32]);
        seam::randomness()?.fill_bytes(&mut *secret);
        let plan = plan::compile(lowered.graph, options)?;
        Ok(Arc::new(Server::new((plan, lowered.weights), secret, Some(lowered.report))?))
    }

    fn load(&self, public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>, BackendError> {
        let compiled = Compiled::read(public)?;
        let (secret, weights) = statics::read_private(&*compiled.plan, private)?;
        drop(compiled.plan);
        let plan = Arc::into_inner(compiled.one).expect("nobody else has it");
        let server = Server::new((plan, weights), secret, None)?;
        if *server.compiled.public != *public {
            return Err(BackendError::Private { what: "it belongs to another public part".into() });
        }
        Ok(Arc::new(server))
    }

    fn open(&self, public: &[u8]) -> Result<Arc<dyn ClientModel>, BackendError> {
        Ok(Arc::new(Client { compiled: Compiled::read(public)?, statics: Arc::default() }))
    }

    fn dealing(&self, public: &[u8], part: &[u8]) -> Result<Arc<dyn DealerModel>, BackendError> {
        let compiled = Compiled::read(public)?;
        let keys = statics::read_keys(&*compiled.plan, part)?;
        Ok(Arc::new(Dealing { compiled, keys: Arc::new(keys) }))
    }
}

public::seam_plan!(Server, Dealt, |self| Some(&self.weights));
public::seam_plan!(Client, Dealt, |self| None);

impl ServerModel for Server {
    fn public_bytes(&self) -> &[u8] {
        &self.compiled.public
    }

    fn private_bytes(&self) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        Ok(statics::private_bytes(&self.secret, &self.weights))
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
            digest: self.compiled.one.binding(),
            batch: self.compiled.batch() as u32,
            public: &self.compiled.public,
            part: &self.part,
            server_bytes: half::with_digest(half::server_bytes(&self.compiled.plan)[0]),
        })
    }

    fn batched(&self, batch: usize) -> Result<Arc<dyn ServerModel>, BackendError> {
        Ok(Arc::new(self.batched(batch)?))
    }

    fn connect(self: Arc<Self>, aids: &Aids) -> Result<Box<dyn ServerSide>, BackendError> {
        Ok(Box::new(Serving { model: self, aids: aids.clone(), prg: seam::randomness()? }))
    }
}

impl ClientModel for Client {
    fn batched(&self, batch: usize) -> Result<Arc<dyn ClientModel>, BackendError> {
        Ok(Arc::new(self.batched(batch)?))
    }

    fn connect(self: Arc<Self>, aids: &Aids) -> Result<Box<dyn ClientSide>, BackendError> {
        Ok(Box::new(Asking { model: self, aids: aids.clone(), prg: seam::randomness()? }))
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
        self.keys.iter().map(statics::fingerprint).collect()
    }

    fn client_bytes(&self) -> u64 {
        half::with_digest(half::client_bytes(&self.compiled.plan)[0])
    }

    fn client_half(&self, dealing: &Seed) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        let plan = &self.compiled.plan;
        let mut out = Zeroizing::new(Vec::with_capacity(self.client_bytes() as usize));
        dealer::deal(Role::Client, plan, &self.keys, dealing, &mut |bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(out)
    }

    fn server_bytes(&self) -> u64 {
        half::with_digest(half::server_bytes(&self.compiled.plan)[0])
    }

    fn server_half(
        &self,
        dealing: &Seed,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        dealer::deal(Role::Server, &self.compiled.plan, &self.keys, dealing, sink)
    }
}

/// A connection at the server.
struct Serving {
    model: Arc<Server>,
    aids: Aids,
    prg: Prg,
}

/// A connection at the client.
struct Asking {
    model: Arc<Client>,
    aids: Aids,
    prg: Prg,
}

impl MaterialPart for ClientMaterial {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        half::sealed(&self.plan, Role::Client, &self.bytes)
    }
}

impl MaterialPart for ServerMaterial {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        half::sealed(&self.plan, Role::Server, &self.bytes)
    }
}

impl ServerSide for Serving {
    fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.model = Arc::new(self.model.batched(batch)?);
        Ok(())
    }

    /// Sends `E`, if the client has not kept it.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let Server { compiled, weights, keys, .. } = &*self.model;
        setup::give(&*compiled.plan, weights, keys, channel)
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        let order = self.model.order().expect("there is an order for every model of this back end");
        let Server { compiled, weights, keys, .. } = &*self.model;
        let ordering = Ordering { aids: &self.aids, rate: compiled.plan.options().audit, plan: compiled.digest() };
        let again = |seed: &Seed, sink: &mut Sink<'_>| dealer::deal(Role::Server, &compiled.plan, keys, seed, sink);
        let mut half = Zeroizing::new(Vec::with_capacity(order.server_bytes as usize));
        ordering.order(&order, (&mut *channel, &mut self.prg), again, &mut |bytes, _| {
            half.extend_from_slice(bytes);
            Ok(())
        })?;
        let (plan, line, stop) = (&compiled.plan, (channel, &mut self.prg), &self.aids.stop);
        Ok(Material::new(match plan.level() {
            Level::L1 => server::offline(plan, (weights, keys), &half, line, stop)?,
            Level::L2 => both::offline_server(plan, (weights, keys), &half, line, stop)?,
        }))
    }

    fn online(&mut self, channel: &mut Channel, material: Material) -> Result<(), BackendError> {
        let Server { compiled, weights, .. } = &*self.model;
        let (plan, line, stop) = (&compiled.plan, (channel, &mut self.prg), &self.aids.stop);
        let material = material.take()?;
        match plan.level() {
            Level::L1 => server::online(plan, weights, &material, line, &mut |_, _| {}, stop),
            Level::L2 => both::online_server(plan, weights, &material, line, &mut |_, _| {}, stop),
        }
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        Ok(Material::new(ServerMaterial::read(&self.model.compiled.plan, bytes)?))
    }
}

impl Asking {
    fn statics(&self) -> Result<&Arc<Statics>, BackendError> {
        self.model.statics.get().ok_or(BackendError::Misuse("the setup comes first"))
    }
}

impl ClientSide for Asking {
    fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.model = Arc::new(self.model.batched(batch)?);
        Ok(())
    }

    /// Gets `E`, unless this process or its folder has it.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let Client { compiled, statics } = &*self.model;
        Expected { plan: &*compiled.plan, digest: compiled.statics, hasher }.take(statics, &self.aids, channel)
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        let statics = self.statics()?.clone();
        let compiled = &self.model.compiled;
        let ordering = Ordering { aids: &self.aids, rate: compiled.plan.options().audit, plan: compiled.digest() };
        // The client's half needs no key of A.
        let again = |seed: &Seed, sink: &mut Sink<'_>| dealer::deal(Role::Client, &compiled.plan, &[], seed, sink);
        let half = ordering.fetch((&mut *channel, &mut self.prg), again)?;
        let (plan, stop) = (&self.model.compiled.plan, &self.aids.stop);
        let material = ClientMaterial::half(plan, &half)?;
        drop(half);
        if plan.level() == Level::L2 {
            let line = (channel, &mut self.prg);
            return Ok(Material::new(both::offline_client(plan, &statics, &material, line, stop)?));
        }
        client::offline(plan, &statics, &material, channel, stop)?;
        Ok(Material::new(material))
    }

    fn online(&mut self, channel: &mut Channel, material: Material, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        let plan = &self.model.compiled.plan;
        let integers = reference::quantize_inputs(plan.graph(), plan.batch(), input)?;
        let material = material.take()?;
        let (line, stop) = ((channel, &mut self.prg), &self.aids.stop);
        let answer = match plan.level() {
            Level::L1 => client::online(plan, &material, &integers, line, &mut |_, _| {}, stop)?,
            Level::L2 => both::online_client(plan, &material, &integers, line, &mut |_, _| {}, stop)?,
        };
        Ok(reference::dequantize_output(plan.graph(), &answer))
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        Ok(Material::new(ClientMaterial::read(&self.model.compiled.plan, bytes)?))
    }
}
