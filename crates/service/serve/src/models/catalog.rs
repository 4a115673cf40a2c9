//! The models that a server offers.
use crate::ServeError;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tacit_backends::seam::{MAX_PUBLIC_BYTES, batch_digest};
use tacit_backends::{Backend, ServerModel, Trust};
use tacit_client::wire::{Device, ModelAndBackend, ModelInfo, Offer, public_digest};
use tacit_graph::OutputMode;
use tacit_store::Binding;

/// A model with one of its back ends.
pub(crate) struct Offered {
    pub(crate) name: String,
    pub(crate) backend: &'static str,
    pub(crate) model: Arc<dyn ServerModel>,
    pub(crate) public: [u8; 32],
    pub(crate) plan: [u8; 32],
    /// Size of the server's half of a material.
    pub(crate) material_bytes: u64,
    /// Digests of the plans for 1, 2 and more inputs in one batch, up to the back end's limit.
    sizes: Vec<[u8; 32]>,
    /// For a batch: the offered model for one input.
    single_offer: Option<Arc<Self>>,
}

impl Offered {
    fn new(name: &str, backend: &'static str, model: Arc<dyn ServerModel>) -> Self {
        let plan = model.digest();
        Self {
            name: name.to_owned(),
            backend,
            public: public_digest(model.public_bytes()),
            plan,
            material_bytes: model.costs().offline.server.stored_bytes,
            sizes: (1..=model.max_batch()).map(|batch| batch_digest(&plan, batch)).collect(),
            model,
            single_offer: None,
        }
    }

    /// Returns the same model for a batch. Estimates, material and the scheduler treat each batch
    /// size as a separate model. Fails if the back end does not run that many inputs as one.
    pub(crate) fn batched(self: &Arc<Self>, batch: usize) -> Result<Arc<Self>, ServeError> {
        let single = self.single();
        if batch == 1 {
            return Ok(Arc::clone(single));
        }
        let model = single.model.batched(batch)?;
        let material_bytes = model.costs().offline.server.stored_bytes;
        let (name, single_offer, sizes) = (single.name.clone(), Some(Arc::clone(single)), Vec::new());
        let (backend, public, plan) = (single.backend, single.public, model.digest());
        Ok(Arc::new(Self { name, backend, public, plan, material_bytes, model, sizes, single_offer }))
    }

    /// The model on offer, for one input.
    pub(crate) fn single(self: &Arc<Self>) -> &Arc<Self> {
        self.single_offer.as_ref().unwrap_or(self)
    }

    pub(crate) fn batch(&self) -> u32 {
        self.model.batch() as u32
    }

    /// Returns the largest batch, at most `wanted`, that needs at most `memory` bytes here, and at
    /// the client at most half of its device's memory, if that is known.
    pub(crate) fn largest_fitting_batch(self: &Arc<Self>, wanted: usize, memory: u64, device: Device) -> usize {
        let model = &self.single().model;
        let at_client = match device.memory_mib {
            0 => u64::MAX,
            mib => u64::from(mib) << 19,
        };
        let fitting = (2..=wanted.min(model.max_batch())).rev().find(|batch| {
            let Ok(costs) = model.batched(*batch).map(|model| model.costs()) else { return false };
            [costs.offline, costs.online]
                .iter()
                .all(|phase| phase.server.peak_memory_bytes <= memory && phase.client.peak_memory_bytes <= at_client)
        });
        fitting.unwrap_or(1)
    }

    /// Bytes of all inputs of the batch.
    pub(crate) fn input_bytes(&self) -> u64 {
        (self.model.interface().input_len() * size_of::<f32>()) as u64 * u64::from(self.batch())
    }

    /// Public part and plan of every batch size: what material of this model may be bound to.
    pub(crate) fn identities(&self) -> impl Iterator<Item = ([u8; 32], [u8; 32])> {
        self.sizes.iter().map(|plan| (self.public, *plan))
    }

    /// The usual notation: `digits=cheetah`.
    fn label(&self) -> String {
        format!("{}={}", self.name, self.backend)
    }

    /// Whether clients learn only the class of an input.
    pub(crate) fn reveals_class_alone(&self) -> bool {
        self.model.interface().output_mode == OutputMode::Top1
    }

    /// Public part and plan: what material for one input is bound to, and what makes two models the
    /// same.
    pub(crate) fn identity(&self) -> ([u8; 32], [u8; 32]) {
        (self.public, self.plan)
    }
}

/// The result of a reload for each model, written `MODEL=BACKEND`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// Newly on offer.
    pub added: Vec<String>,
    /// Another model under the same name.
    pub replaced: Vec<String>,
    /// No longer on offer.
    pub withdrawn: Vec<String>,
    /// Unchanged.
    pub kept: Vec<String>,
}

pub(crate) struct Succession {
    pub(crate) catalog: Catalog,
    pub(crate) changes: Changes,
    pub(crate) removed: Vec<Arc<Offered>>,
}

/// Models by name, each with its back ends. All clients share one copy of a model's weights.
pub struct Catalog {
    models: BTreeMap<String, Vec<Arc<Offered>>>,
    allow_clear: bool,
    /// Back ends whose models are warmed up, by id.
    warm_up: BTreeMap<&'static str, Arc<dyn Backend>>,
}

impl Catalog {
    /// An empty catalog. Models whose back end shows the server the input need `allow_clear`.
    #[must_use]
    pub fn new(allow_clear: bool) -> Self {
        Self { models: BTreeMap::new(), allow_clear, warm_up: BTreeMap::new() }
    }

    /// Offers a model, lowered by `backend`, under a name. Clients prefer the back end offered
    /// first.
    ///
    /// # Errors
    /// If the name is already offered with this back end, the back end shows the server the input
    /// without `allow_clear`, or the public part is too large to be sent.
    pub fn offer(&mut self, name: &str, backend: &dyn Backend, model: Arc<dyn ServerModel>) -> Result<(), ServeError> {
        let id = backend.id();
        if backend.trust() == Trust::ServerSeesInput && !self.allow_clear {
            let text = format!(
                "with the back end {id} the server sees every input: that must be allowed by name (--allow-clear; in Python allow_clear=True)"
            );
            return Err(refused(name, &text));
        }
        let public = model.public_bytes();
        if public.len() as u64 > MAX_PUBLIC_BYTES {
            let text = format!("its public part has {} bytes, the limit is {MAX_PUBLIC_BYTES}", public.len());
            return Err(refused(name, &text));
        }
        let offers = self.models.entry(name.to_owned()).or_default();
        if offers.iter().any(|o| o.backend == id) {
            let text = format!("it is offered with the back end {id} already: two files of one name?");
            return Err(refused(name, &text));
        }
        offers.push(Arc::new(Offered::new(name, id, model)));
        Ok(())
    }

    /// Has models of this back end run one made-up input beside the service if their durations are
    /// unknown, so that the scheduler need not guess.
    pub fn warm_up(&mut self, backend: &Arc<dyn Backend>) {
        self.warm_up.insert(backend.id(), Arc::clone(backend));
    }

    pub(crate) fn backend_to_warm_up(&self, id: &str) -> Option<Arc<dyn Backend>> {
        self.warm_up.get(id).cloned()
    }

    pub(crate) fn offered_models(&self) -> impl Iterator<Item = &Arc<Offered>> {
        self.models.values().flatten()
    }

    /// Models on offer, by name.
    #[must_use]
    pub fn list(&self) -> Vec<ModelInfo> {
        let infos = self.models.iter().map(|(name, offers)| ModelInfo {
            name: name.clone(),
            backends: offers.iter().map(|o| Offer { backend: o.backend.to_owned(), public: o.public }).collect(),
        });
        infos.collect()
    }

    /// Whether clients learn only the class from a model, with each of its back ends.
    pub(crate) fn reveals_class_alone(&self, name: &str) -> bool {
        self.models.get(name).is_some_and(|offers| offers.iter().all(|offered| offered.reveals_class_alone()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Whether this very model is on offer, for one input or a batch, and no other of its name.
    pub(crate) fn is_offered(&self, offered: &Arc<Offered>) -> bool {
        let offered = offered.single();
        self.models.get(&offered.name).is_some_and(|offers| offers.iter().any(|o| Arc::ptr_eq(o, offered)))
    }

    /// Makes this catalog the successor of `previous`. Unchanged models keep their `Arc`, so that
    /// open connections notice nothing.
    pub(crate) fn replace(mut self, previous: &Self) -> Succession {
        let mut changes = Changes::default();
        let mut removed = Vec::new();
        for offered in self.models.values_mut().flatten() {
            let name = offered.label();
            match previous.find(offered) {
                None => changes.added.push(name),
                Some(old) if offered.identity() == old.identity() => {
                    *offered = Arc::clone(old);
                    changes.kept.push(name);
                }
                Some(_) => changes.replaced.push(name),
            }
        }
        for old in previous.offered_models().filter(|old| !self.is_offered(old)) {
            if self.find(old).is_none() {
                changes.withdrawn.push(old.label());
            }
            removed.push(Arc::clone(old));
        }
        Succession { catalog: self, changes, removed }
    }

    /// The offered model that has the name and back end of `offered`.
    pub(crate) fn find(&self, offered: &Offered) -> Option<&Arc<Offered>> {
        self.models.get(&offered.name)?.iter().find(|o| o.backend == offered.backend)
    }

    /// Plans, for one input, of the models on offer.
    pub(crate) fn plans(&self) -> BTreeSet<[u8; 32]> {
        self.offered_models().map(|o| o.plan).collect()
    }

    /// The model and the back end that have a plan; `None` if not on offer.
    pub(crate) fn find_plan(&self, plan: &[u8; 32]) -> Option<ModelAndBackend> {
        let offered = self.offered_models().find(|o| o.plan == *plan)?;
        Some(ModelAndBackend { model: offered.name.clone(), backend: offered.backend.to_owned() })
    }

    /// Whether a model on offer could use material with this binding.
    pub(crate) fn has(&self, binding: &Binding) -> bool {
        self.offered_models().any(|o| o.public == binding.model && o.sizes.contains(&binding.plan))
    }

    pub(crate) fn get(
        &self,
        name: &str,
        backend: &str,
        allowed: impl Fn(&str) -> bool,
    ) -> Result<Arc<Offered>, ServeError> {
        let Some(offers) = self.models.get(name).filter(|_| allowed(name)) else {
            let available: Vec<&str> = self.models.keys().map(String::as_str).filter(|name| allowed(name)).collect();
            let text = format!("there is no model `{}`; there are: {}", short(name), available.join(", "));
            return Err(ServeError::NotGranted(text));
        };
        offers.iter().find(|o| o.backend == backend).cloned().ok_or_else(|| {
            let available: Vec<&str> = offers.iter().map(|o| o.backend).collect();
            let (requested, available) = (short(backend), available.join(", "));
            ServeError::NotGranted(format!("model `{name}` is not offered with `{requested}`, but with: {available}"))
        })
    }
}

fn refused(name: &str, text: &str) -> ServeError {
    ServeError::Usage(format!("model `{name}`: {text}"))
}

/// Cuts a client's text to what fits in an error.
fn short(text: &str) -> String {
    text.chars().take(80).collect()
}
