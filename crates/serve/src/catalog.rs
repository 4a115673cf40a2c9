//! The models that a server offers.
use crate::wire::ModelInfo;
use crate::{Engine, ServeError};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tacit_graph::Weights;
use tacit_graph::file::{self, ModelFile};

/// One model, compiled.
pub(crate) struct Served<E: Engine> {
    pub(crate) name: String,
    pub(crate) digest: [u8; 32],
    /// The public section, as clients get it.
    pub(crate) public: Vec<u8>,
    pub(crate) weights: Weights,
    pub(crate) plan: E::Plan,
    pub(crate) plan_digest: [u8; 32],
}

/// Models by name. Weights stay in it; clients get the public sections.
pub struct Catalog<E: Engine> {
    engine: E,
    models: BTreeMap<String, Arc<Served<E>>>,
}

impl<E: Engine> Catalog<E> {
    /// An empty catalog for a back end.
    pub fn new(engine: E) -> Self {
        Self { engine, models: BTreeMap::new() }
    }

    /// Reads a `.tacit` file and adds it under its file name without the extension.
    ///
    /// # Errors
    /// The file cannot be read, is no model file, or cannot be compiled; each names the file.
    pub fn add_file(&mut self, path: &Path) -> Result<(), ServeError> {
        let bytes = fs::read(path).map_err(ServeError::file("reading the model", path))?;
        let name = path.file_stem().map_or_else(|| "model".into(), |s| s.to_string_lossy().into_owned());
        let model =
            file::read(&bytes).map_err(|e| ServeError::Content { path: path.to_owned(), what: e.to_string() })?;
        self.add(&name, model)
    }

    /// Adds a model under a name.
    ///
    /// # Errors
    /// The name is taken, or the back end does not support the model.
    pub fn add(&mut self, name: &str, model: ModelFile) -> Result<(), ServeError> {
        if self.models.contains_key(name) {
            return Err(ServeError::Usage(format!("two models are called `{name}`: rename a file")));
        }
        let plan = self.engine.compile(&model.graph).map_err(|e| ServeError::Engine(Box::new(e)))?;
        let served = Served {
            name: name.into(),
            digest: model.digest,
            public: model.public_bytes()?,
            weights: model.weights,
            plan_digest: self.engine.plan_digest(&plan),
            plan,
        };
        self.models.insert(name.into(), Arc::new(served));
        Ok(())
    }

    pub(crate) fn engine(&self) -> &E {
        &self.engine
    }

    pub(crate) fn get(&self, name: &str) -> Result<Arc<Served<E>>, ServeError> {
        self.models.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = self.models.keys().map(String::as_str).collect();
            let asked: String = name.chars().take(80).collect();
            ServeError::NotGranted(format!("there is no model `{asked}`; there are: {}", known.join(", ")))
        })
    }

    /// What is on offer, by name.
    pub fn list(&self) -> Vec<ModelInfo> {
        let info = |m: &Arc<Served<E>>| ModelInfo { name: m.name.clone(), digest: m.digest };
        self.models.values().map(info).collect()
    }
}

/// Digest of what both parties must agree on once the model is open: parameters and plan.
pub(crate) fn agreed(parameters: [u8; 32], plan: [u8; 32]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("tacit 2026-11 parameters and plan");
    hasher.update(&parameters).update(&plan);
    *hasher.finalize().as_bytes()
}
