//! Files of the model's owner: models and their lowerings, sealed or not.
use anyhow::Context;
use std::path::{Path, PathBuf};
use tacit_backends::{Backend, Options, ServerModel, lowered};
use tacit_graph::Model;
use tacit_store::SealKey;
use tacit_store::seal::{self, Kind};
use zeroize::Zeroizing;

/// Where the key is that files are sealed with.
#[derive(clap::Args, Clone, Default)]
pub struct SealArgs {
    /// Encrypt files at rest, and read encrypted ones: KEY is a file's name, env:VARIABLE or cmd:COMMAND
    #[arg(long, global = true, value_name = "KEY", value_parser = given)]
    seal: Option<Given>,
}

/// A key and where it came from.
#[derive(Clone)]
struct Given {
    text: String,
    key: SealKey,
}

fn given(text: &str) -> Result<Given, String> {
    let key = SealKey::from_text(text).map_err(|e| e.to_string())?;
    Ok(Given { text: text.to_owned(), key })
}

impl SealArgs {
    /// The key, if one was given.
    pub fn key(&self) -> Option<&SealKey> {
        self.seal.as_ref().map(|given| &given.key)
    }

    /// The arguments that give another program of ours the same key.
    pub fn arguments(&self) -> Vec<String> {
        self.seal.iter().flat_map(|given| ["--seal".to_owned(), given.text.clone()]).collect()
    }

    /// Reads a model file.
    pub fn read_model(&self, path: &Path) -> anyhow::Result<Model> {
        let bytes = seal::read_file(path, Kind::Model, self.key(), tacit_graph::file::MAX_BYTES)?;
        tacit_graph::file::read(&bytes).with_context(|| path.display().to_string())
    }

    /// Reads a lowered model.
    pub fn read_lowered(&self, path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
        Ok(seal::read_file(path, Kind::Lowered, self.key(), lowered::MAX_BYTES)?)
    }

    /// Writes a model file that only its owner may read.
    pub fn write_model(&self, path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(seal::write_file(path, Kind::Model, self.key(), bytes)?)
    }

    /// Keeps a lowering beside its model; the path.
    pub fn write_lowered(
        &self,
        model_path: &Path,
        model: &Model,
        (backend, options): (&dyn Backend, &Options),
        made: &dyn ServerModel,
    ) -> anyhow::Result<PathBuf> {
        let origin = lowered::Origin { model: model.digest(), backend: backend.id().into(), options: options.clone() };
        let path = lowered::path_beside(model_path, backend.id());
        seal::write_file(&path, Kind::Lowered, self.key(), &lowered::write(&origin, made)?)?;
        Ok(path)
    }
}
