//! A connection at the server: masked weights once, then material from the dealer and the client.

use std::io::Read;
use std::sync::Arc;

use tacit_arith::prg::{Prg, Seed};
use tacit_mpc::Role;
use tacit_mpc::codec::Reader;
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::compiled::Server;
use super::receive::Taking;
use super::server::{self, ServerMaterial};
use super::server_ingest::Intake;
use super::{Level, dealer, l2_phases, material_format};
use crate::dealt::audit::Sink;
use crate::dealt::setup;
use crate::dealt::source::{Source, SpooledMaterial};
use tacit_backend_api::seam::{Chunks, ConnectionResources, MaterialPlace, write_material};
use tacit_backend_api::{BackendError, Material, MaterialPart, ServerModel, ServerSide};

/// A server's connection.
pub(super) struct Serving {
    model: Arc<Server>,
    resources: ConnectionResources,
    prg: Prg,
}

impl Serving {
    pub(super) fn new(model: Arc<Server>, resources: ConnectionResources, prg: Prg) -> Self {
        Self { model, resources, prg }
    }

    /// Orders material, buffers its half, and gives `sink` the result of the offline phase.
    fn make(&mut self, channel: &mut Channel, sink: &mut Sink<'_>) -> Result<(), BackendError> {
        let Self { model, resources, prg } = self;
        let order = model.order().expect("there is an order for every model of this back end");
        let Server { compiled, weights, keys, .. } = &**model;
        let (plan, ordering) = (&*compiled.plan, compiled.ordering(resources));
        let half = loop {
            let mut spool = resources.spool(material_format::server_bytes(plan)[0] as u64)?;
            let mut taking = Taking::new(plan, Role::Server);
            let is_usable = ordering.order(
                &order,
                (&mut *channel, &mut *prg),
                |seed: &Seed, sink: &mut Sink<'_>| dealer::deal(Role::Server, plan, keys, seed, sink),
                &mut |bytes| taking.take(bytes, &mut |content| write_material(content, &mut *spool)),
            )?;
            if is_usable {
                taking.finish()?;
                break Source::Spooled(spool.contents()?);
            }
        };
        let (intake, head) = Intake::begin(plan, (weights, keys), half, sink)?;
        intake.run(head, (channel, prg), &resources.stop)
    }
}

impl MaterialPart for ServerMaterial {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        material_format::with_digest_appended(&self.plan, Role::Server, &self.bytes)
    }
}

impl ServerSide for Serving {
    fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.model = Arc::new(self.model.batched(batch)?);
        Ok(())
    }

    /// Sends `E`, unless the client has stored it.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let Server { compiled, weights, keys, .. } = &*self.model;
        setup::give(&*compiled.plan, weights, keys, channel)
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        let model = Arc::clone(&self.model);
        let (plan, [_, stored]) = (&model.compiled.plan, material_format::server_bytes(&model.compiled.plan));
        let mut chunks = Chunks::default();
        self.make(channel, &mut |piece| write_material(piece, &mut chunks))?;
        let mut bytes = chunks.into_bytes();
        bytes.truncate(stored);
        Ok(Material::new(ServerMaterial { plan: plan.binding(), bytes }))
    }

    fn offline_into(&mut self, channel: &mut Channel, place: &mut dyn MaterialPlace) -> Result<(), BackendError> {
        self.make(channel, &mut |piece| write_material(piece, place))
    }

    fn online(&mut self, channel: &mut Channel, material: Material) -> Result<(), BackendError> {
        let Server { compiled, weights, .. } = &*self.model;
        let (plan, line, stop) = (&compiled.plan, (channel, &mut self.prg), &self.resources.stop);
        let memory;
        let material = if material.is_spooled() {
            let SpooledMaterial { plan, source } = material.take()?;
            (plan, Source::Spooled(source))
        } else {
            memory = material.take::<ServerMaterial>()?;
            (memory.plan, Source::Memory(Reader::new(&memory.bytes)))
        };
        match plan.level() {
            Level::L1 => server::online(plan, weights, material, line, &mut |_, _| {}, stop),
            Level::L2 => l2_phases::online_server(plan, weights, material, line, &mut |_, _| {}, stop),
        }
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        Ok(Material::new(ServerMaterial::read(&self.model.compiled.plan, bytes)?))
    }

    fn spooled_material(&self, bytes: u64, source: Box<dyn Read + Send>) -> Result<Material, BackendError> {
        let plan = &self.model.compiled.plan;
        material_format::check_length(bytes, material_format::server_bytes(plan)[1])?;
        Ok(Material::spooled(SpooledMaterial { plan: plan.binding(), source }))
    }
}
