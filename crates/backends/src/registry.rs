//! All back ends, by name. Whoever serves, asks or measures knows them through here.

use std::sync::Arc;

use crate::cheetah::Cheetah;
use crate::ckks::Ckks;
use crate::clear::Clear;
use crate::dealt::Dealt;
use crate::fss::Fss;
use crate::sci_he::SciHe;
use crate::{Backend, BackendError};

/// The back end that is used where none is named.
pub const DEFAULT: &str = "cheetah";

/// Back ends by name.
#[derive(Clone)]
pub struct Registry(Vec<Arc<dyn Backend>>);

impl Registry {
    /// All back ends of this program: a line each, the ones that keep inputs private first.
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
            Arc::new(crate::toy::Toy { trust: crate::Trust::ServerSeesInput, ..crate::toy::Toy::default() }),
        ])
    }

    /// The given back ends.
    ///
    /// # Panics
    /// If two have one name.
    #[must_use]
    pub fn new(backends: Vec<Arc<dyn Backend>>) -> Self {
        for (i, backend) in backends.iter().enumerate() {
            assert!(backends[..i].iter().all(|b| b.id() != backend.id()), "two back ends are called {}", backend.id());
        }
        Self(backends)
    }

    /// The back end with this name.
    ///
    /// # Errors
    /// [`BackendError::Unknown`] lists those there are.
    pub fn get(&self, id: &str) -> Result<&Arc<dyn Backend>, BackendError> {
        self.0.iter().find(|b| b.id() == id).ok_or_else(|| BackendError::Unknown {
            id: id.chars().take(80).collect(),
            known: self.0.iter().map(|b| b.id()).collect::<Vec<_>>().join(", "),
        })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.0.iter()
    }
}
