//! Opened models that connections of one configuration share: data that a client makes or receives
//! once, such as the keys of a model on encrypted slots or masked weights, serves later ones.

use std::sync::{Arc, Mutex, PoisonError};
use tacit_backends::{BackendError, ClientModel};

/// Most models in the cache: bounds the memory if a server changes its models often.
const MAX_MODELS: usize = 16;

/// Back end, and digest of the public part.
type Name = (String, [u8; 32]);

type Entry = (Name, Arc<dyn ClientModel>);

/// The most recently used models, shared by all clones.
#[derive(Clone, Default)]
pub struct OpenedModels(Arc<Mutex<Vec<Entry>>>);

impl OpenedModels {
    /// Returns the model of this back end and public part from the cache, or opens it with `open`.
    ///
    /// # Errors
    /// Errors of `open`.
    pub(crate) fn get_or(
        &self,
        backend: &str,
        digest: [u8; 32],
        open: impl FnOnce() -> Result<Arc<dyn ClientModel>, BackendError>,
    ) -> Result<Arc<dyn ClientModel>, BackendError> {
        if let Some(model) = self.use_of(backend, &digest, None) {
            return Ok(model);
        }
        // Opens without the lock, since that may take long. The first of two threads wins.
        let model = open()?;
        Ok(self.use_of(backend, &digest, Some(&model)).unwrap_or(model))
    }

    /// Returns the cached model and moves it to the end, where the latest are; else caches `new`.
    fn use_of(
        &self,
        backend: &str,
        digest: &[u8; 32],
        new: Option<&Arc<dyn ClientModel>>,
    ) -> Option<Arc<dyn ClientModel>> {
        // A poisoned lock is safe to use: the steps cannot fail half-way.
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match models.iter().position(|((b, d), _)| b == backend && d == digest) {
            Some(place) => models.remove(place),
            None => ((backend.to_owned(), *digest), new?.clone()),
        };
        let model = entry.1.clone();
        models.push(entry);
        let excess = models.len().saturating_sub(MAX_MODELS);
        models.drain(..excess);
        Some(model)
    }
}

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_backends::Backend;
    use tacit_backends::toy::Toy;

    #[test]
    fn keeps_latest_models() {
        let kept = OpenedModels::default();
        let public = Toy::default().lower(&models::model(1), &"".parse().unwrap()).unwrap().public_bytes().to_vec();
        let get =
            |backend: &str, n: u8| kept.clone().get_or(backend, [n; 32], || Toy::default().open(&public)).unwrap();
        let first = get("toy", 0);
        assert!(Arc::ptr_eq(&first, &get("toy", 0)));
        assert!(!Arc::ptr_eq(&first, &get("other", 0)));
        for n in 2..MAX_MODELS as u8 {
            get("toy", n);
        }
        assert!(Arc::ptr_eq(&first, &get("toy", 0)));
        for n in 1..=MAX_MODELS as u8 {
            get("toy", n);
        }
        assert!(!Arc::ptr_eq(&first, &get("toy", 0)));
        let failed = kept.get_or("toy", [99; 32], || Err(BackendError::Misuse("not this one")));
        assert!(failed.is_err() && kept.use_of("toy", &[99; 32], None).is_none());
    }
}
