//! The seam: a float model lowered to a ring and compiled to a plan.
//!
//! The public part is `postcard(("fss", version, Options, digest of E))`, then that of the ring level. The
//! private part is a secret of 32 bytes, from which the keys of `A` follow, then that of the ring level. The
//! dealer's part is the keys of `A`, 16 bytes for each linear layer.

use std::sync::{Arc, OnceLock};

use tacit_arith::prg::{Prg, Seed};
use tacit_graph::{Model, Watch};
use tacit_mpc::Role;
use tacit_net::{Channel, Tag};
use zeroize::Zeroizing;

use super::client::{self, ClientMaterial};
use super::half::{self, SEED};
use super::options::{self, NAME, Options};
use super::plan::{self, Plan};
use super::server::{self, ServerMaterial};
use super::{cost, dealer};
use crate::dealt::setup::{self, Expected};
use crate::dealt::statics::{self, Statics};
use crate::ring::{self, RingGraph, Weights, public, reference};
use crate::seam::{self, Aids, Claim, DealerModel, Order, Seal, Ticket};
use crate::{
    Backend, BackendError, ClientModel, ClientSide, Costs, LoweringReport, Material, MaterialPart, ServerModel,
    ServerSide, Strain, Trust,
};

/// Version of the public part and of the protocol that follows from it.
const VERSION: u32 = 1;

/// Offline: which material.
const TICKET: Tag = Tag::new(0x0435, "ticket for the dealer");
/// Offline: for whom material is to be dealt.
const SEAL: Tag = Tag::new(0x0436, "seal of a claim to material");
/// The back end.
pub struct Fss;

/// What both parties have.
struct Compiled {
    public: Vec<u8>,
    plan: Plan,
    /// Digest of `E`.
    statics: [u8; 32],
}

struct Server {
    compiled: Compiled,
    weights: Weights,
    secret: Zeroizing<[u8; 32]>,
    keys: Vec<Seed>,
    part: Zeroizing<Vec<u8>>,
    report: Option<ring::RingReport>,
}

struct Client {
    compiled: Compiled,
    /// `E`, once a connection of this process has it.
    statics: OnceLock<Arc<Statics>>,
}

/// A model at the dealer.
struct Dealing {
    compiled: Compiled,
    keys: Vec<Seed>,
}

impl Compiled {
    fn read(bytes: &[u8]) -> Result<Self, BackendError> {
        let ((options, statics), rest): ((Options, [u8; 32]), _) = public::read((NAME, VERSION), bytes)?;
        options.check()?;
        let plan = plan::compile(ring::read_public(rest)?, options)?.bound_to(&statics);
        Ok(Self { public: bytes.to_vec(), plan, statics })
    }

    fn costs(&self) -> Costs {
        cost::costs(&self.plan)
    }

    /// Over the plan and `E`: material is bound to both.
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
        let mut hasher = hasher();
        statics::write(&plan, &weights, &keys, &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        let statics = *hasher.finalize().as_bytes();
        let public = public::write((NAME, VERSION), &(plan.options(), statics), plan.graph())?;
        let part = Zeroizing::new(keys.iter().flat_map(|key| key.0).collect());
        let plan = plan.bound_to(&statics);
        Ok(Self { compiled: Compiled { public, plan, statics }, weights, secret, keys, part, report })
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
        randomness()?.fill_bytes(&mut *secret);
        let plan = plan::compile(lowered.graph, options)?;
        Ok(Arc::new(Server::new((plan, lowered.weights), secret, Some(lowered.report))?))
    }

    fn load(&self, public: &[u8], private: &[u8]) -> Result<Arc<dyn ServerModel>, BackendError> {
        let compiled = Compiled::read(public)?;
        let wrong = |what: &str| BackendError::Private { what: what.into() };
        let (secret, rest) = private.split_at_checked(32).ok_or_else(|| wrong("it has no secret"))?;
        let secret = Zeroizing::new(*secret.first_chunk().expect("it was cut at 32 bytes"));
        let weights = ring::read_weights(rest, compiled.plan.graph())?;
        let server = Server::new((compiled.plan, weights), secret, None)?;
        if server.compiled.public != public {
            return Err(wrong("it belongs to another public part"));
        }
        Ok(Arc::new(server))
    }

    fn open(&self, public: &[u8]) -> Result<Arc<dyn ClientModel>, BackendError> {
        Ok(Arc::new(Client { compiled: Compiled::read(public)?, statics: OnceLock::new() }))
    }

    fn dealing(&self, public: &[u8], part: &[u8]) -> Result<Arc<dyn DealerModel>, BackendError> {
        let compiled = Compiled::read(public)?;
        let layers = statics::layers(&compiled.plan).count();
        let (keys, rest) = part.as_chunks::<SEED>();
        if keys.len() != layers || !rest.is_empty() {
            let what = format!("{} bytes of keys for {layers} linear layers", part.len());
            return Err(BackendError::Private { what });
        }
        Ok(Arc::new(Dealing { compiled, keys: keys.iter().map(|key| Seed(*key)).collect() }))
    }
}

public::seam_plan!(Server, Dealt, |self| Some(&self.weights));
public::seam_plan!(Client, Dealt, |self| None);

impl ServerModel for Server {
    fn public_bytes(&self) -> &[u8] {
        &self.compiled.public
    }

    fn private_bytes(&self) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        let weights = ring::weights_to_bytes(&self.weights);
        let mut out = Zeroizing::new(Vec::with_capacity(32 + weights.len()));
        out.extend_from_slice(&*self.secret);
        out.extend_from_slice(&weights);
        Ok(out)
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
            digest: self.compiled.digest(),
            public: &self.compiled.public,
            part: &self.part,
            server_bytes: half::with_digest(half::server_bytes(&self.compiled.plan)[0]),
        })
    }

    fn connect(self: Arc<Self>, aids: &Aids) -> Result<Box<dyn ServerSide>, BackendError> {
        Ok(Box::new(Serving { model: self, aids: aids.clone(), prg: randomness()? }))
    }
}

impl ClientModel for Client {
    fn connect(self: Arc<Self>, aids: &Aids) -> Result<Box<dyn ClientSide>, BackendError> {
        Ok(Box::new(Asking { model: self, aids: aids.clone(), prg: randomness()? }))
    }
}

impl DealerModel for Dealing {
    fn digest(&self) -> [u8; 32] {
        self.compiled.digest()
    }

    fn masks(&self) -> Vec<[u8; 32]> {
        self.keys.iter().map(statics::fingerprint).collect()
    }

    fn client_bytes(&self) -> u64 {
        half::with_digest(half::client_bytes(&self.compiled.plan))
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

fn randomness() -> Result<Prg, BackendError> {
    Prg::from_os().map_err(|e| BackendError::Random(e.to_string()))
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
    /// Sends `E`, if the client has not kept it.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let Server { compiled, weights, keys, .. } = &*self.model;
        setup::give(&compiled.plan, weights, keys, channel)
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        let order = self.model.order().expect("there is an order for every model of this back end");
        let seal: Seal = *channel.recv(SEAL, size_of::<Seal>())?.first_chunk().expect("that many bytes came");
        let (ticket, half) = self.aids.dealer()?.deal(&order, &seal)?;
        channel.send(TICKET, &ticket)?;
        channel.flush()?;
        let Server { compiled, weights, keys, .. } = &*self.model;
        let made = server::offline(&compiled.plan, (weights, keys), &half, (channel, &mut self.prg), &self.aids.stop)?;
        Ok(Material::new(made))
    }

    fn online(&mut self, channel: &mut Channel, material: Material) -> Result<(), BackendError> {
        let Server { compiled, weights, .. } = &*self.model;
        let material = material.take()?;
        server::online(&compiled.plan, weights, &material, (channel, &mut self.prg), &mut |_, _| {}, &self.aids.stop)
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
    /// Gets `E`, unless this process or its folder has it.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let Client { compiled, statics } = &*self.model;
        Expected { plan: &compiled.plan, digest: compiled.statics, hasher }.take(statics, &self.aids, channel)
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        let statics = self.statics()?.clone();
        let mut claim = Claim { nonce: [0; 32], digest: self.model.compiled.digest() };
        self.prg.fill_bytes(&mut claim.nonce);
        channel.send(SEAL, &claim.seal())?;
        channel.flush()?;
        let ticket: Ticket = *channel.recv(TICKET, size_of::<Ticket>())?.first_chunk().expect("that many bytes came");
        let half = self.aids.dealer()?.fetch(&ticket, &claim)?;
        let material = ClientMaterial::read(&self.model.compiled.plan, &half)?;
        client::offline(&self.model.compiled.plan, &statics, &material, channel, &self.aids.stop)?;
        Ok(Material::new(material))
    }

    fn online(&mut self, channel: &mut Channel, material: Material, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        let plan = &self.model.compiled.plan;
        let integers = reference::quantize_input(plan.graph(), input)?;
        let material = material.take()?;
        let answer =
            client::online(plan, &material, &integers, (channel, &mut self.prg), &mut |_, _| {}, &self.aids.stop)?;
        Ok(reference::dequantize_output(plan.graph(), &answer))
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        Ok(Material::new(ClientMaterial::read(&self.model.compiled.plan, bytes)?))
    }
}
