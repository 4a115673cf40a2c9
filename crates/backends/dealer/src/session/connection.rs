//! A connection at either party: masked weights once, then material from the dealer.

use std::io::Read;
use std::sync::Arc;

use tacit_arith::prg::Prg;
use tacit_mpc::{Role, Session};
use tacit_net::Channel;

use super::audit::Ordering;
use super::compiled::{Client, Server};
use super::correlation::{ClientOffline, ClientPhases, Run, ServerOffline, ServerPhases};
use super::half::HalfReceiver;
use super::source::{Sink, Source};
use super::{material, setup};
use tacit_backend_api::seam::{Chunks, ConnectionResources, MaterialPlace, write_material};
use tacit_backend_api::{BackendError, ClientSide, Material, ServerModel, ServerSide};
use tacit_ring::reference;
use tacit_two_party::cheetah::linear::{ClientKeys, ServerKeys};

/// A party's connection for its model `M`, with keys `K` for layers that use lattices.
pub(super) struct Connection<M, K> {
    model: Arc<M>,
    resources: ConnectionResources,
    prg: Prg,
    /// Keys from the setup; `None` before it, and if no layer uses lattices.
    keys: Option<K>,
}

impl<M, K> Connection<M, K> {
    pub(super) fn new(model: Arc<M>, resources: &ConnectionResources, prg: Prg) -> Self {
        Self { model, resources: resources.clone(), prg, keys: None }
    }
}

impl<C: ClientPhases> ClientSide for Connection<Client<C>, ClientKeys> {
    fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.model = Arc::new(self.model.for_batch(batch)?);
        Ok(())
    }

    /// Sends keys if some layers use lattices. Fetches `E`, unless this process or its folder has
    /// it.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        self.keys = self.model.compiled.plan.choices.lattice.client_setup(&mut self.prg, channel)?;
        self.model.fetch_masked_weights(&self.resources, channel)
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        // The server states the size, so memory is taken only for bytes that arrive.
        let mut chunks = Chunks::default();
        self.offline_into(channel, &mut chunks)?;
        Ok(material::wrap(&self.model.compiled.plan, Role::Client, chunks.into_bytes()))
    }

    /// Streams the client's half to `place`, followed by the results of the offline phase.
    fn offline_into(&mut self, channel: &mut Channel, place: &mut dyn MaterialPlace) -> Result<(), BackendError> {
        let Self { model, resources, prg, keys } = self;
        let masked_weights = model.masked_weights.get().ok_or(BackendError::Misuse("the setup comes first"))?;
        let (plan, role) = (&*model.compiled.plan, Role::Client);
        let mut session = Session { role, channel, prg };
        let ordering = Ordering { role, resources, plan, keys: &[] };
        let (head, mut digest) = loop {
            let mut half = HalfReceiver::new(C::half_bytes(plan, role), C::half_digest(plan, role));
            let is_usable = ordering
                .fetch(&mut session, &mut |bytes| half.push(bytes, &mut |content| write_material(content, place)))?;
            if is_usable {
                break half.finish()?;
            }
            place.rewind().map_err(|e| BackendError::Spool { what: e.to_string() })?;
        };
        let inputs = ClientOffline { masked_weights, keys: keys.as_ref(), head: &head };
        let results = C::offline(Run { plan, session: &mut session, stop: &resources.stop }, inputs)?;
        digest.update(&results);
        write_material(&results, place)?;
        write_material(&digest.finish(), place)
    }

    fn online(&mut self, channel: &mut Channel, material: Material, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        let plan = &*self.model.compiled.plan;
        let integers = reference::quantize_inputs(&plan.graph, plan.batch, input)?;
        let mut session = Session { role: Role::Client, channel, prg: &mut self.prg };
        let run = Run { plan, session: &mut session, stop: &self.resources.stop };
        let answer = material::open::<C, _>(material, Role::Client, |half| C::online(run, half, &integers))?;
        Ok(reference::dequantize_output(&plan.graph, &answer))
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        material::read(&self.model.compiled.plan, Role::Client, bytes)
    }

    fn spooled_material(&self, bytes: u64, source: Box<dyn Read + Send>) -> Result<Material, BackendError> {
        material::read_spooled(&*self.model.compiled.plan, Role::Client, bytes, source)
    }
}

impl<C: ServerPhases> Connection<Server<C>, ServerKeys> {
    /// Orders material, buffers its half, and gives `sink` the result of the offline phase.
    fn make_material(&mut self, channel: &mut Channel, sink: &mut Sink<'_>) -> Result<(), BackendError> {
        let Self { model, resources, prg, keys: client_keys } = self;
        let order = model.order().expect("there is an order for every model of this back end");
        let (plan, private, role) = (&*model.compiled.plan, &*model.private, Role::Server);
        let mut session = Session { role, channel, prg };
        let ordering = Ordering { role, resources, plan, keys: &private.keys };
        let bytes = C::half_bytes(plan, role);
        let half = loop {
            let mut spool = resources.spool(bytes.dealt as u64)?;
            let mut half = HalfReceiver::new(bytes, C::half_digest(plan, role));
            let is_usable = ordering.order(&order, &mut session, &mut |bytes| {
                half.push(bytes, &mut |content| write_material(content, &mut *spool))
            })?;
            if is_usable {
                half.finish()?;
                break Source::Spooled(spool.contents()?);
            }
        };
        let (weights, keys, client_keys) = (&private.weights, &*private.keys, client_keys.as_ref());
        let inputs = ServerOffline { weights, keys, client_keys, half, sink };
        C::offline(Run { plan, session: &mut session, stop: &resources.stop }, inputs)
    }
}

impl<C: ServerPhases> ServerSide for Connection<Server<C>, ServerKeys> {
    fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.model = Arc::new(self.model.for_batch(batch)?);
        Ok(())
    }

    /// Receives the client's keys if some layers use lattices. Sends `E`, unless the client has
    /// stored it.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let Server { compiled, private, .. } = &*self.model;
        self.keys = compiled.plan.choices.lattice.server_setup(channel)?;
        setup::send_masked_weights(&*compiled.plan, &private.weights, &private.keys, channel)
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        let mut chunks = Chunks::default();
        self.make_material(channel, &mut |piece| write_material(piece, &mut chunks))?;
        Ok(material::wrap(&self.model.compiled.plan, Role::Server, chunks.into_bytes()))
    }

    fn offline_into(&mut self, channel: &mut Channel, place: &mut dyn MaterialPlace) -> Result<(), BackendError> {
        self.make_material(channel, &mut |piece| write_material(piece, place))
    }

    fn online(&mut self, channel: &mut Channel, material: Material) -> Result<(), BackendError> {
        let Server { compiled, private, .. } = &*self.model;
        let mut session = Session { role: Role::Server, channel, prg: &mut self.prg };
        let run = Run { plan: &*compiled.plan, session: &mut session, stop: &self.resources.stop };
        material::open::<C, _>(material, Role::Server, |half| C::online(run, half, &private.weights))
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        material::read(&self.model.compiled.plan, Role::Server, bytes)
    }

    fn spooled_material(&self, bytes: u64, source: Box<dyn Read + Send>) -> Result<Material, BackendError> {
        material::read_spooled(&*self.model.compiled.plan, Role::Server, bytes, source)
    }
}
