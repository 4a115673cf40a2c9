//! A connection at the client: masked weights once, then material from the dealer.

use std::io::Read;
use std::sync::Arc;

use tacit_arith::prg::{Prg, Seed};
use tacit_mpc::Role;
use tacit_mpc::codec::Reader;
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::client::{self, ClientMaterial};
use super::compiled::{Client, hasher};
use super::material_format::ClientHead;
use super::receive::Taking;
use super::{Level, dealer, l2_phases, material_format};
use crate::dealt::audit::Sink;
use crate::dealt::masked_weights::MaskedWeights;
use crate::dealt::setup::Expected;
use crate::dealt::source::{Source, SpooledMaterial};
use tacit_backend_api::seam::{Chunks, ConnectionResources, MaterialPlace, write_material};
use tacit_backend_api::{BackendError, ClientSide, Material, MaterialPart};
use tacit_ring::reference;

/// A client's connection.
pub(super) struct Asking {
    model: Arc<Client>,
    resources: ConnectionResources,
    prg: Prg,
}

impl MaterialPart for ClientMaterial {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        material_format::with_digest_appended(&self.plan, Role::Client, &self.bytes)
    }
}

impl Asking {
    pub(super) fn new(model: Arc<Client>, resources: ConnectionResources, prg: Prg) -> Self {
        Self { model, resources, prg }
    }

    fn masked_weights(&self) -> Result<&Arc<MaskedWeights>, BackendError> {
        self.model.masked_weights.get().ok_or(BackendError::Misuse("the setup comes first"))
    }

    /// Streams the client's half to `place`, followed by the results of the offline phase.
    fn make(&mut self, channel: &mut Channel, place: &mut dyn MaterialPlace) -> Result<(), BackendError> {
        let masked_weights = self.masked_weights()?.clone();
        let Self { model, resources, prg } = self;
        let plan = &model.compiled.plan;
        let ordering = model.compiled.ordering(resources);
        let (head, mut digesting) = loop {
            let mut taking = Taking::new(plan, Role::Client);
            let is_usable = ordering.fetch(
                (&mut *channel, &mut *prg),
                // The client's half needs no key of A.
                |seed: &Seed, sink: &mut Sink<'_>| dealer::deal(Role::Client, plan, &[], seed, sink),
                &mut |bytes| taking.take(bytes, &mut |content| write_material(content, place)),
            )?;
            if is_usable {
                break taking.finish()?;
            }
            place.rewind().map_err(|e| BackendError::Spool { what: e.to_string() })?;
        };
        let head = ClientHead::read(plan, &head)?;
        let more = match plan.level() {
            Level::L1 => {
                client::offline(plan, &masked_weights, head, channel, &resources.stop).map(|()| Zeroizing::default())
            }
            Level::L2 => l2_phases::offline_client(plan, &masked_weights, head, (channel, prg), &resources.stop),
        }?;
        digesting.update(&more);
        write_material(&more, place)?;
        write_material(&digesting.finish(), place)
    }
}

impl ClientSide for Asking {
    fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.model = Arc::new(self.model.batched(batch)?);
        Ok(())
    }

    /// Fetches `E`, unless this process or its folder has it.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let Client { compiled, masked_weights } = &*self.model;
        Expected { plan: &*compiled.plan, digest: compiled.stated.masked_weights, hasher }.take(
            masked_weights,
            &self.resources,
            channel,
        )
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        let model = Arc::clone(&self.model);
        let (plan, [_, kept]) = (&model.compiled.plan, material_format::client_bytes(&model.compiled.plan));
        // The server states the size, so memory is taken only for bytes that arrive.
        let mut chunks = Chunks::default();
        self.make(channel, &mut chunks)?;
        let mut bytes = chunks.into_bytes();
        bytes.truncate(kept);
        Ok(Material::new(ClientMaterial { plan: plan.binding(), bytes }))
    }

    fn offline_into(&mut self, channel: &mut Channel, place: &mut dyn MaterialPlace) -> Result<(), BackendError> {
        self.make(channel, place)
    }

    fn online(&mut self, channel: &mut Channel, material: Material, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        let plan = &self.model.compiled.plan;
        let integers = reference::quantize_inputs(plan.graph(), plan.batch(), input)?;
        let (line, stop) = ((channel, &mut self.prg), &self.resources.stop);
        let memory;
        let material = if material.is_spooled() {
            let SpooledMaterial { plan, source } = material.take()?;
            (plan, Source::Spooled(source))
        } else {
            memory = material.take::<ClientMaterial>()?;
            (memory.plan, Source::Memory(Reader::new(&memory.bytes)))
        };
        let answer = match plan.level() {
            Level::L1 => client::online(plan, material, &integers, line, &mut |_, _| {}, stop)?,
            Level::L2 => l2_phases::online_client(plan, material, &integers, line, &mut |_, _| {}, stop)?,
        };
        Ok(reference::dequantize_output(plan.graph(), &answer))
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        Ok(Material::new(ClientMaterial::read(&self.model.compiled.plan, bytes)?))
    }

    fn spooled_material(&self, bytes: u64, source: Box<dyn Read + Send>) -> Result<Material, BackendError> {
        let plan = &self.model.compiled.plan;
        material_format::check_length(bytes, material_format::client_bytes(plan)[1])?;
        Ok(Material::spooled(SpooledMaterial { plan: plan.binding(), source }))
    }
}
