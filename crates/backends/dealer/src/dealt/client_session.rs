//! A connection at the client: masked weights once, then a seed for each material.

use std::sync::Arc;

use tacit_arith::prg::{Prg, Seed};
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::audit::Sink;
use super::compiled::Client;
use super::dealer::{self, SEED_BYTES};
use super::lattice;
use super::masked_weights::{self, MaskedWeights};
use super::setup::Expected;
use tacit_backend_api::seam::{Chunks, ConnectionResources, check_made_for, write_material};
use tacit_backend_api::{BackendError, ClientSide, Material, MaterialPart};
use tacit_ring::reference;
use tacit_two_party::cheetah::linear::ClientKeys;

/// A client's connection.
pub(super) struct Asking {
    model: Arc<Client>,
    resources: ConnectionResources,
    prg: Prg,
    /// Keys from the setup, for layers that are not dealt.
    keys: Option<ClientKeys>,
}

/// The client's half.
struct ClientMaterial {
    plan: [u8; 32],
    seed: Seed,
}

impl MaterialPart for ClientMaterial {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.seed.0.to_vec())
    }
}

impl Asking {
    pub(super) fn new(model: Arc<Client>, resources: ConnectionResources, prg: Prg) -> Self {
        Self { model, resources, prg, keys: None }
    }

    fn masked_weights(&self) -> Result<&Arc<MaskedWeights>, BackendError> {
        self.model.masked_weights.get().ok_or(BackendError::Misuse("the setup comes first"))
    }

    fn read(&self, bytes: &[u8]) -> Result<ClientMaterial, BackendError> {
        let seed = <[u8; SEED_BYTES]>::try_from(bytes);
        let seed = seed.map_err(|_| BackendError::Material { what: format!("{} bytes are no seed", bytes.len()) })?;
        Ok(ClientMaterial { plan: self.model.compiled.digest(), seed: Seed(seed) })
    }
}

impl ClientSide for Asking {
    fn set_batch(&mut self, batch: usize) -> Result<(), BackendError> {
        self.model = Arc::new(self.model.batched(batch)?);
        Ok(())
    }

    /// Sends keys if some layers are not dealt. Fetches `E`, unless this process or its folder has
    /// it.
    fn setup(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        let Client { compiled, masked_weights } = &*self.model;
        self.keys = compiled.plan.lattice.client_setup((&mut *channel, &mut self.prg))?;
        let expected =
            Expected { plan: &*compiled.plan, digest: compiled.masked_weights, hasher: masked_weights::hasher };
        expected.take(masked_weights, &self.resources, channel)
    }

    fn offline(&mut self, channel: &mut Channel) -> Result<Material, BackendError> {
        let masked_weights = self.masked_weights()?.clone();
        let ordering = self.model.compiled.ordering(&self.resources);
        let half = loop {
            let mut half = Chunks::default();
            let is_usable = ordering.fetch(
                (&mut *channel, &mut self.prg),
                |seed: &Seed, sink: &mut Sink<'_>| sink(&dealer::seeds(seed)[0].0),
                &mut |bytes| write_material(bytes, &mut half),
            )?;
            if is_usable {
                break half.into_bytes();
            }
        };
        let material = self.read(&half)?;
        let plan = &self.model.compiled.plan;
        let lattice = lattice::Client::new(&plan.lattice, self.keys.as_ref(), &mut self.prg);
        super::client::offline(plan, (&masked_weights, lattice), &material.seed, channel, &self.resources.stop)?;
        Ok(Material::new(material))
    }

    fn online(&mut self, channel: &mut Channel, material: Material, input: &[f32]) -> Result<Vec<f64>, BackendError> {
        let plan = &self.model.compiled.plan;
        let integers = reference::quantize_inputs(plan.graph(), plan.batch(), input)?;
        let ClientMaterial { plan: made_for, seed } = material.take()?;
        check_made_for(&made_for, &self.model.compiled.digest())?;
        let answer = super::client::online(
            plan,
            &seed,
            &integers,
            (channel, &mut self.prg),
            &mut |_, _| {},
            &self.resources.stop,
        )?;
        Ok(reference::dequantize_output(plan.graph(), &answer))
    }

    fn read_material(&self, bytes: &[u8]) -> Result<Material, BackendError> {
        Ok(Material::new(self.read(bytes)?))
    }
}
