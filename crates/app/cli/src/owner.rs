//! Reads and writes the files of a model's owner: models and their lowerings, sealed or not.
use anyhow::Context;
use std::io::Read;
use std::path::{Path, PathBuf};
use tacit_backends::{Backend, Options, Registry, ServerModel, lowered};
use tacit_graph::Model;
use tacit_store::SealKey;
use tacit_store::seal::{self, Kind};
use zeroize::Zeroizing;

/// Where the key is that files are sealed with.
#[derive(clap::Args, Clone, Default)]
pub struct SealArgs {
    /// Encrypt files at rest, and read encrypted files; KEY is a file's name, env:VARIABLE or
    /// cmd:COMMAND
    #[arg(long, global = true, value_name = "KEY", value_parser = parse_seal)]
    seal: Option<ParsedSeal>,
}

#[derive(Clone)]
struct ParsedSeal {
    text: String,
    key: SealKey,
}

fn parse_seal(text: &str) -> Result<ParsedSeal, String> {
    let key = SealKey::from_text(text).map_err(|e| e.to_string())?;
    Ok(ParsedSeal { text: text.to_owned(), key })
}

impl SealArgs {
    /// Returns the key, if one was given.
    pub fn key(&self) -> Option<&SealKey> {
        self.seal.as_ref().map(|seal| &seal.key)
    }

    /// Returns the arguments that give the same key to another program of tacit.
    pub fn arguments(&self) -> Vec<String> {
        self.seal.iter().flat_map(|seal| ["--seal".to_owned(), seal.text.clone()]).collect()
    }

    /// Reads a model file.
    pub fn read_model(&self, path: &Path) -> anyhow::Result<Model> {
        let bytes = seal::read_file(path, Kind::model(path), self.key(), tacit_graph::file::MAX_BYTES)?;
        tacit_graph::file::read(&bytes).with_context(|| path.display().to_string())
    }

    /// Reads a lowered model.
    pub fn read_lowered(&self, path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
        Ok(seal::read_file(path, Kind::lowered(path), self.key(), lowered::MAX_BYTES)?)
    }

    /// Checks, before the work, that a model and its lowering for a back end may be written here.
    pub fn check_output(&self, path: &Path, backend: Option<&str>) -> anyhow::Result<()> {
        seal::check_replaced(path, Kind::model(path), &tacit_graph::file::MAGIC)?;
        let Some(backend) = backend else { return Ok(()) };
        let path = lowered::path_beside(path, backend);
        Ok(seal::check_replaced(&path, Kind::lowered(&path), &lowered::MAGIC)?)
    }

    /// Seals a model file and its lowerings under the name of `target`, from plain files or from files
    /// that were sealed under another name. Returns the written paths.
    pub fn seal_anew(&self, source: &Path, target: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let key = self.key().context("give the key to seal with (--seal)")?;
        let model = read_renamed(source, key, tacit_graph::file::MAX_BYTES)?;
        tacit_graph::file::read(&model).with_context(|| source.display().to_string())?;
        self.write_model(target, &model)?;
        let mut paths = vec![target.to_owned()];
        for backend in Registry::standard().iter() {
            let [source, target] = [source, target].map(|path| lowered::path_beside(path, backend.id()));
            if source.exists() {
                seal::write_file(
                    &target,
                    Kind::lowered(&target),
                    self.key(),
                    &read_renamed(&source, key, lowered::MAX_BYTES)?,
                )?;
                paths.push(target);
            }
        }
        Ok(paths)
    }

    /// Writes a model file that only its owner may read.
    pub fn write_model(&self, path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(seal::write_file(path, Kind::model(path), self.key(), bytes)?)
    }

    /// Writes a lowering beside its model; returns the path.
    pub fn write_lowered(
        &self,
        model_path: &Path,
        model: &Model,
        backend: &dyn Backend,
        options: &Options,
        lowered_model: &dyn ServerModel,
    ) -> anyhow::Result<PathBuf> {
        let origin = lowered::Origin { model: model.digest(), backend: backend.id().into(), options: options.clone() };
        let path = lowered::path_beside(model_path, backend.id());
        seal::write_file(&path, Kind::lowered(&path), self.key(), &lowered::write(&origin, lowered_model)?)?;
        Ok(path)
    }
}

/// Reads a plain file, or a file that was sealed under any name.
fn read_renamed(path: &Path, key: &SealKey, limit: u64) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let (content, bytes) = seal::open_renamed(path, Kind::of_owner_file(path), Some(key))?;
    anyhow::ensure!(bytes <= limit, "{}: {bytes} bytes, the limit is {limit}", path.display());
    let mut bytes_read = Zeroizing::new(Vec::with_capacity(bytes as usize + 1));
    content.take(limit).read_to_end(&mut bytes_read).with_context(|| path.display().to_string())?;
    Ok(bytes_read)
}
