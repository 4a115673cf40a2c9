//! The model files that are served, and which of them have changed since the last read.
use crate::load::{self, Offering};
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tacit_backends::{Preparation, ServerModel, lowered};
use tacit_net::ServerTls;
use tacit_serve::{Catalog, Source, Unusable};
use tacit_store::seal::{self, Kind};
use tacit_store::{SealKey, keys};

/// Bytes at the start of a file, which include a digest of all of it.
const HEAD_BYTES: u64 = 512;

/// The first [`HEAD_BYTES`] bytes of a model's file and of the lowerings beside it: they change with the
/// files.
type Stamp = Vec<Option<Vec<u8>>>;

pub(crate) struct Files {
    /// Model files, and folders of model files.
    pub(crate) models: Vec<PathBuf>,
    pub(crate) offering: Offering,
    pub(crate) allow_clear: bool,
    pub(crate) has_dealer: bool,
    pub(crate) warm_up: bool,
    pub(crate) seal: Option<SealKey>,
    pub(crate) keys: PathBuf,
    /// The models of the last read, with the stamps of their files.
    pub(crate) loaded: BTreeMap<PathBuf, (Stamp, Vec<Arc<dyn ServerModel>>)>,
}

impl Files {
    /// Loads the models of all files. With `is_reload`, a named file that is gone withdraws its model;
    /// at the start it is an error.
    pub(crate) fn load(&mut self, is_reload: bool) -> anyhow::Result<Catalog> {
        let mut catalog = Catalog::new(self.allow_clear);
        self.offering.backends().iter().filter(|_| self.warm_up).for_each(|backend| catalog.warm_up(backend));
        let mut loaded = BTreeMap::new();
        for path in self.model_files(is_reload)? {
            let stamp = self.stamp(&path)?;
            let chosen = self.offering.backends_for(&path)?;
            let models = match self.loaded.get(&path) {
                Some((old_stamp, models)) if *old_stamp == stamp => models.clone(),
                _ => load::load(&path, &chosen, self.seal.as_ref())?,
            };
            let name = path.file_stem().map_or_else(|| "model".into(), |stem| stem.to_string_lossy());
            for ((backend, _), model) in chosen.iter().zip(&models) {
                ensure!(
                    model.preparation() != Preparation::Dealt || self.has_dealer,
                    "the back end {} takes its material from a dealer: name it with --dealer and --dealer-pin",
                    backend.id()
                );
                catalog.offer(&name, &**backend, Arc::clone(model))?;
            }
            loaded.insert(path, (stamp, models));
        }
        self.loaded = loaded;
        Ok(catalog)
    }

    fn model_files(&self, is_reload: bool) -> anyhow::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for path in &self.models {
            match path.is_dir() {
                true => {
                    let folder_files = models_in(path).with_context(|| path.display().to_string())?;
                    ensure!(
                        is_reload || !folder_files.is_empty(),
                        "{}: there is no .tacit file in this folder",
                        path.display()
                    );
                    files.extend(folder_files);
                }
                false if is_reload && !path.exists() => {}
                false => files.push(path.clone()),
            }
        }
        Ok(files)
    }

    /// Reads the stamp of a model. Call this before reading the files: then a change during the
    /// read shows next time.
    fn stamp(&self, path: &Path) -> anyhow::Result<Stamp> {
        ensure!(path.exists(), "{}: there is no such file", path.display());
        let lowerings = self.offering.backends().into_iter().map(|backend| lowered::path_beside(path, backend.id()));
        [path.to_owned()].into_iter().chain(lowerings).map(|path| self.head(&path)).collect()
    }

    fn head(&self, path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
        if !path.exists() {
            return Ok(None);
        }
        let (content, _) = seal::open_file(path, Kind::of_owner_file(path), self.seal.as_ref())?;
        let mut head = Vec::new();
        content.take(HEAD_BYTES).read_to_end(&mut head).with_context(|| path.display().to_string())?;
        Ok(Some(head))
    }
}

fn models_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "tacit") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

impl Source for Files {
    fn catalog(&mut self) -> Result<Catalog, Unusable> {
        // With all causes, for a log line and an answer.
        self.load(true).map_err(|e| format!("{e:#}").into())
    }

    fn identity(&mut self) -> Result<ServerTls, Unusable> {
        Ok(keys::load_server(&self.keys)?)
    }
}
