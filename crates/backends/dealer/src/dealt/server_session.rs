//! A connection at the server: masked weights once, then material from the dealer and the client.

use std::io::Read;
use std::sync::Arc;

use tacit_arith::prg::{Prg, Seed};
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::audit::Sink;
use super::compiled::Server;
use super::dealer::{self, Keys};
use super::lattice;
use super::server::{self, ServerMaterial};
use super::setup;
use super::source::{Source, SpooledMaterial};
use tacit_backend_api::seam::{Chunks, ConnectionResources, MaterialPlace, check_made_for, write_material};
use tacit_backend_api::{BackendError, Material, MaterialPart, ServerModel, ServerSide};
use tacit_mpc::codec::Reader;
use tacit_two_party::cheetah::linear::ServerKeys;

/// A server's connection.
pub(super) struct Serving {
    model: Arc<Server>,
    resources: ConnectionResources,
    prg: Prg,
    /// The client's keys from the setup, for layers that are not dealt.
    keys: Option<ServerKeys>,
}

impl Serving {
    pub(super) fn new(model: Arc<Server>, resources: ConnectionResources, prg: Prg) -> Self {
        Self { model, resources, prg, keys: None }
    }

    /// Orders material, buffers its half, and gives `sink` the result of the offline phase.
    fn make(&mut self, channel: &mut Channel, sink: &mut Sink<'_>) -> Result<(), BackendError> {
        let Self { model, resources, prg, keys: of_client } = self;
        let order = model.order().expect("a dealt model can be ordered");
        let Server { compiled, weights, keys, .. } = &**model;
        let (ordering, keys) = (compiled.ordering(resources), Keys(keys.to_vec()));
        let half = loop {
            let mut spool = resources.spool(server::half_bytes(&compiled.plan) as u64)?;
            let is_usable = ordering.order(
                &order,
                (&mut *channel, &mut *prg),
                |seed: &Seed, sink: &mut Sink<'_>| dealer::server_half(&compiled.plan, &keys, seed, sink),
                &mut |bytes| write_material(bytes, &mut *spool),
            )?;
            if is_usable {
                break Source::Spooled(spool.contents()?);
            }
        };
        let lattice = lattice::Server::new(&compiled.plan.lattice, of_client.as_ref(), weights, prg);
        server::offline(&compiled.plan, (half, lattice), channel, sink, &resources.stop)
    }
}

impl MaterialPart for ServerMaterial {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.bytes.clone()
    }
}

impl ServerSide for Serving {
    fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.model = Arc::new(self.model.batched(batch)?);
        Ok(())
    }

    /// Receives the client's keys if some layers are not dealt. Sends `E`, unless the client has
    /// stored it.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let Server { compiled, weights, keys, .. } = &*self.model;
        self.keys = compiled.plan.lattice.server_setup(channel)?;
        setup::give(&*compiled.plan, weights, keys, channel)
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        let mut chunks = Chunks::default();
        self.make(channel, &mut |piece| write_material(piece, &mut chunks))?;
        Ok(Material::new(ServerMaterial { plan: self.model.compiled.digest(), bytes: chunks.into_bytes() }))
    }

    fn offline_into(&mut self, channel: &mut Channel, place: &mut dyn MaterialPlace) -> Result<(), BackendError> {
        self.make(channel, &mut |piece| write_material(piece, place))
    }

    fn online(&mut self, channel: &mut Channel, material: Material) -> Result<(), BackendError> {
        let Server { compiled, weights, .. } = &*self.model;
        let (memory, spooled);
        let (plan, source) = if material.is_spooled() {
            spooled = material.take::<SpooledMaterial>()?;
            (spooled.plan, Source::Spooled(spooled.source))
        } else {
            memory = material.take::<ServerMaterial>()?;
            (memory.plan, Source::Memory(Reader::new(&memory.bytes)))
        };
        check_made_for(&plan, &compiled.digest())?;
        server::online(&compiled.plan, weights, source, (channel, &mut self.prg), &mut |_, _| {}, &self.resources.stop)
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        let plan = &self.model.compiled.plan;
        server::check_length(plan, bytes.len() as u64)?;
        Ok(Material::new(ServerMaterial { plan: self.model.compiled.digest(), bytes: Zeroizing::new(bytes.to_vec()) }))
    }

    fn spooled_material(&self, bytes: u64, source: Box<dyn Read + Send>) -> Result<Material, BackendError> {
        let plan = &self.model.compiled.plan;
        server::check_length(plan, bytes)?;
        Ok(Material::spooled(SpooledMaterial { plan: self.model.compiled.digest(), source }))
    }
}
