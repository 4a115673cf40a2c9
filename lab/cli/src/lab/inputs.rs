//! The model and the input of an inference experiment, kept in the campaign's folder so that the
//! folder suffices to repeat the experiment.
use super::files::{SOURCE, come_from};
use anyhow::Context;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tacit_client::input::{self, Fit};
use tacit_experiments::campaign;
use tacit_graph::import::{ImportOptions, import};
use tacit_graph::{Interface, Model, Units, file, npy};

/// The demo's network (see `models/`), for commands without a model.
const DIGITS: &[u8] = include_bytes!("../../../../models/digits.onnx");
const SAMPLES: &[u8] = include_bytes!("../../../../models/digits_samples.npy");
const DIGIT: &[u8] = include_bytes!("../../../../models/digit.npy");

/// Writes `DIR/inputs/model.tacit` and `DIR/inputs/input.npy`. A continued campaign keeps its
/// files, and refuses another model or input.
pub fn prepare(dir: &Path, model: Option<&Path>, input: Option<&Path>) -> anyhow::Result<()> {
    let folder = dir.join("inputs");
    campaign::managed_folder(dir)?;
    campaign::own_folder(&folder)?;
    let (model_bytes, values) = (model.map(read).transpose()?, input.map(read).transpose()?);
    let source = json!({"model": digest(model_bytes.as_deref()), "input": digest(values.as_deref())});
    if come_from(&source, &folder, "another model or input than was given")? {
        return Ok(());
    }
    let owners = match (model, model_bytes) {
        (Some(path), Some(bytes)) if path.extension().is_some_and(|e| e == "onnx") => {
            tacit_cli::model::import_with_defaults(path, &bytes)?
        }
        (_, Some(bytes)) => file::read(&bytes).context("the model")?,
        (_, None) => import_digits()?,
    };
    let interface = &owners.interface;
    let values = match (model, input) {
        (None, _) => DIGIT.to_vec(),
        (Some(_), None) => npy::write(&interface.input_shape, &tacit_cli::bench::seeded_input(interface)),
        (Some(_), Some(path)) => first(path, interface)?,
    };
    write(&folder.join("model.tacit"), &file::write(&owners)?)?;
    write(&folder.join("input.npy"), &values)?;
    write(&folder.join(SOURCE), source.to_string().as_bytes())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    tacit_cli::files::read(path, file::MAX_BYTES)
}

fn digest(bytes: Option<&[u8]>) -> String {
    bytes.map_or("built in".into(), |b| blake3::hash(b).to_hex().to_string())
}

pub(super) fn import_digits() -> anyhow::Result<Model> {
    let options = ImportOptions { calibration: Some(npy::read(SAMPLES)?), ..ImportOptions::default() };
    Ok(import(DIGITS, &options)?.model)
}

/// Reads the first input of a file, normalised for the model (experiments run `tacit infer
/// --normalised`).
fn first(path: &Path, interface: &Interface) -> anyhow::Result<Vec<u8>> {
    let inputs = input::read(path, interface, Fit::Crop, Units::Network)?;
    let values = inputs.first().with_context(|| format!("{} holds no input", path.display()))?;
    Ok(npy::write(&interface.input_shape, values))
}

/// Writes a file atomically, readable only by its owner: a model file holds the weights.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let draft = path.with_extension("new");
    // An older draft may be a link, or readable by others.
    let result = campaign::remove(&draft)
        .and_then(|()| fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft))
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    result.with_context(|| format!("writing {}", draft.display()))?;
    fs::rename(&draft, path).with_context(|| format!("writing {}", path.display()))
}
