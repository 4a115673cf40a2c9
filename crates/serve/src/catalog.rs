//! The models that a server offers.
use crate::ServeError;
use std::collections::BTreeMap;
use std::sync::Arc;
use tacit_backends::{Backend, ServerModel, Trust};
use tacit_client::wire::{MAX_PUBLIC_BYTES, ModelInfo, Offer, public_digest};
use tacit_store::Binding;

/// A model with one of its back ends.
pub(crate) struct Offered {
    pub(crate) name: String,
    pub(crate) backend: &'static str,
    pub(crate) model: Arc<dyn ServerModel>,
    /// Digest of the public part.
    pub(crate) public: [u8; 32],
    /// Digest of the plan.
    pub(crate) plan: [u8; 32],
    /// Size of the server's half of a material.
    pub(crate) material_bytes: u64,
}

/// Models by name, each with the back ends it is offered with: lowered, one copy of the weights however many
/// clients there are.
pub struct Catalog {
    models: BTreeMap<String, Vec<Arc<Offered>>>,
    allow_clear: bool,
}

impl Catalog {
    /// An empty catalog. Only with `allow_clear` it takes models whose back end shows the server the input.
    #[must_use]
    pub fn new(allow_clear: bool) -> Self {
        Self { models: BTreeMap::new(), allow_clear }
    }

    /// Offers a model, lowered by `backend`, under a name. What is offered first is what clients prefer.
    ///
    /// # Errors
    /// The name is offered with this back end already, the back end shows the server the input and that was
    /// not allowed, or the public part is too large to be sent.
    pub fn offer(&mut self, name: &str, backend: &dyn Backend, model: Arc<dyn ServerModel>) -> Result<(), ServeError> {
        let refuse = |text: String| Err(ServeError::Usage(format!("model `{name}`: {text}")));
        let id = backend.id();
        if backend.trust() == Trust::ServerSeesInput && !self.allow_clear {
            return refuse(format!(
                "with the back end {id} the server sees every input: that must be allowed explicitly"
            ));
        }
        let public = model.public_bytes();
        if public.len() as u64 > MAX_PUBLIC_BYTES {
            return refuse(format!("its public part has {} bytes, the limit is {MAX_PUBLIC_BYTES}", public.len()));
        }
        let offers = self.models.entry(name.to_owned()).or_default();
        if offers.iter().any(|o| o.backend == id) {
            return refuse(format!("it is offered with the back end {id} already: two files of one name?"));
        }
        offers.push(Arc::new(Offered {
            name: name.to_owned(),
            backend: id,
            public: public_digest(public),
            plan: model.digest(),
            material_bytes: model.costs().offline.server.stored_bytes,
            model,
        }));
        Ok(())
    }

    /// What is on offer, by name.
    #[must_use]
    pub fn list(&self) -> Vec<ModelInfo> {
        let offer = |o: &Arc<Offered>| Offer { backend: o.backend.to_owned(), public: o.public };
        let info = |(name, offers): (&String, &Vec<Arc<Offered>>)| ModelInfo {
            name: name.clone(),
            backends: offers.iter().map(offer).collect(),
        };
        self.models.iter().map(info).collect()
    }

    /// Every model with each of its back ends.
    pub(crate) fn offers(&self) -> impl Iterator<Item = (&str, &Offered)> {
        self.models.iter().flat_map(|(name, offers)| offers.iter().map(move |offered| (name.as_str(), &**offered)))
    }

    /// Whether material with this binding could be used.
    pub(crate) fn has(&self, binding: &Binding) -> bool {
        self.models.values().flatten().any(|o| (o.public, o.plan) == (binding.model, binding.plan))
    }

    /// A model, of those that the asker may use.
    pub(crate) fn get(
        &self,
        name: &str,
        backend: &str,
        allowed: impl Fn(&str) -> bool,
    ) -> Result<Arc<Offered>, ServeError> {
        let short = |text: &str| text.chars().take(80).collect::<String>();
        let Some(offers) = self.models.get(name).filter(|_| allowed(name)) else {
            let known: Vec<&str> = self.models.keys().map(String::as_str).filter(|name| allowed(name)).collect();
            let text = format!("there is no model `{}`; there are: {}", short(name), known.join(", "));
            return Err(ServeError::NotGranted(text));
        };
        offers.iter().find(|o| o.backend == backend).cloned().ok_or_else(|| {
            let known: Vec<&str> = offers.iter().map(|o| o.backend).collect();
            let (asked, known) = (short(backend), known.join(", "));
            ServeError::NotGranted(format!("model `{name}` is not offered with `{asked}`, but with: {known}"))
        })
    }
}
