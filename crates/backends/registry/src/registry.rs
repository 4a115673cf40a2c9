//! All back ends by name, for servers, clients and benchmarks.

use std::sync::Arc;

use crate::clear::{self, Clear};
use tacit_backend_api::{Backend, BackendError};
use tacit_ckks::Ckks;
use tacit_dealer_backends::dealt::Dealt;
use tacit_dealer_backends::fss::Fss;
use tacit_two_party::cheetah::Cheetah;
use tacit_two_party::sci_he::SciHe;

/// The back end that is used if none is named.
pub const DEFAULT: &str = "cheetah";

/// The back end that no private one can beat: the server computes on the plain input.
pub const LOWER_BOUND: &str = clear::NAME;

/// Back ends by name.
#[derive(Clone)]
pub struct Registry(Vec<Arc<dyn Backend>>);

impl Registry {
    /// All back ends of this program, the private ones first.
    #[must_use]
    pub fn standard() -> Self {
        Self::new(vec![
            Arc::new(Cheetah),
            Arc::new(SciHe),
            Arc::new(Dealt),
            Arc::new(Fss),
            Arc::new(Ckks),
            Arc::new(Clear),
            #[cfg(feature = "test-util")]
            Arc::new(crate::toy::Toy {
                trust: tacit_backend_api::Trust::ServerSeesInput,
                ..crate::toy::Toy::default()
            }),
        ])
    }

    /// A registry of the given back ends.
    ///
    /// # Panics
    /// If two back ends have the same name.
    #[must_use]
    pub fn new(backends: Vec<Arc<dyn Backend>>) -> Self {
        for (i, backend) in backends.iter().enumerate() {
            assert!(backends[..i].iter().all(|b| b.id() != backend.id()), "two back ends are called {}", backend.id());
        }
        Self(backends)
    }

    /// Returns the back end with this name.
    ///
    /// # Errors
    /// [`BackendError::Unknown`] lists the existing names.
    pub fn get(&self, id: &str) -> Result<&Arc<dyn Backend>, BackendError> {
        self.0.iter().find(|b| b.id() == id).ok_or_else(|| BackendError::Unknown {
            id: id.chars().take(80).collect(),
            known: self.0.iter().map(|b| b.id()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Iterates over all back ends.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.0.iter()
    }
}
