//! From a model file to what is served.
use anyhow::Context;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tacit_backends::{Backend, Options, Registry, ServerModel};
use tacit_graph::{GraphError, Model};

/// The back ends that models may be offered with.
pub(crate) fn registry() -> Registry {
    Registry::new(vec![])
}

/// The model in a `.tacit` file, lowered for each back end in turn.
///
/// # Errors
/// The file cannot be read, is no model file, or a back end does not support it or the options; each names the file.
pub(crate) fn load(
    path: &Path,
    backends: &[Arc<dyn Backend>],
    options: &Options,
) -> anyhow::Result<Vec<Arc<dyn ServerModel>>> {
    let named = || format!("{}", path.display());
    let bytes = fs::read(path).with_context(named)?;
    let model = read(&bytes).with_context(named)?;
    let lower = |backend: &Arc<dyn Backend>| backend.lower(&model, options).with_context(named);
    backends.iter().map(lower).collect()
}

fn read(_: &[u8]) -> Result<Model, GraphError> {
    Err(GraphError::File { section: "whole", what: "model files cannot be read by this build".into() })
}
