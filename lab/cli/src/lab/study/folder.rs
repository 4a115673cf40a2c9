//! The files that the study makes before any run: networks, inputs, lowerings with their costs.
use super::approach::{Approach, LOCAL};
use crate::lab::files::read_if_present;
use crate::lab::nets::Net;
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use tacit_backends::{Costs, Registry};
use tacit_cli::bench::seeded_input;
use tacit_cli::lowering::Lowering;
use tacit_cli::owner::SealArgs;
use tacit_cli::print;
use tacit_experiments::campaign;
use tacit_graph::{Model, file, npy};

/// The costs of a network by an approach, or why there are none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offered {
    pub net: String,
    pub approach: String,
    pub costs: Option<Costs>,
    pub refused: Option<String>,
}

const OFFERS_FILE: &str = "offers.json";

/// Imports the networks and lowers them for every approach. Keeps the results in `dir`, if given,
/// and reuses them. Refuses a folder with other networks or approaches, or of another version.
pub fn offers(dir: Option<&Path>, nets: &[Net], approaches: &[Approach]) -> anyhow::Result<Vec<Offered>> {
    let Some(dir) = dir else { return make(None, nets, approaches) };
    let folder = dir.join("inputs");
    campaign::own_folder(&folder)?;
    let sources = nets.iter().map(Net::source).collect::<anyhow::Result<Vec<Value>>>()?;
    let names: Vec<&str> = approaches.iter().map(|approach| approach.name).collect();
    let source = json!({"version": env!("CARGO_PKG_VERSION"), "nets": sources, "approaches": names});
    let path = folder.join(OFFERS_FILE);
    if let Some(saved) = read_if_present(&path)? {
        let saved: Value = serde_json::from_slice(&saved).with_context(|| path.display().to_string())?;
        ensure!(
            saved["of"] == source,
            "{} has other networks or approaches, or was made by another version; choose another folder with -o",
            folder.display()
        );
        return Ok(serde_json::from_value(saved["offers"].clone())?);
    }
    let offers = make(Some(&folder), nets, approaches)?;
    // Write this file last: without it, the next run makes all files again.
    write(&path, &json!({"of": source, "offers": offers}))?;
    Ok(offers)
}

/// Compares the networks and inputs that two studies have in common; runs with different ones
/// cannot be taken over. The identity that every import draws may differ.
pub fn same_inputs(dir: &Path, source_dir: &Path) -> anyhow::Result<()> {
    let [own_inputs, source_inputs] = [dir, source_dir].map(|folder| folder.join("inputs"));
    for entry in fs::read_dir(&source_inputs).with_context(|| reading(&source_inputs))? {
        let their = entry.with_context(|| reading(&source_inputs))?.path();
        let Some(our) = their.file_name().map(|name| own_inputs.join(name)).filter(|our| our.exists()) else {
            continue;
        };
        let are_equal = match their.extension().and_then(|e| e.to_str()) {
            Some("tacit") => {
                let seal = SealArgs::default();
                let (a, b) = (seal.read_model(&our)?, seal.read_model(&their)?);
                Model { model_id: a.model_id, ..b } == a
            }
            Some("npy") => read(&our)? == read(&their)?,
            _ => true,
        };
        if !are_equal {
            let (our, their) = (our.display(), their.display());
            bail!("{our} and {their} differ: the runs there are of another network or input and cannot be taken over");
        }
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| reading(path))
}

fn reading(path: &Path) -> String {
    format!("reading {}", path.display())
}

/// Replaces a file of the study atomically.
pub fn write(path: &Path, value: &Value) -> anyhow::Result<()> {
    let part = path.with_extension("part");
    campaign::remove(&part).with_context(|| format!("writing {}", path.display()))?;
    let bytes = serde_json::to_vec_pretty(value)?;
    let result = File::create_new(&part).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    });
    result.with_context(|| format!("writing {}", path.display()))
}

fn make(folder: Option<&Path>, nets: &[Net], approaches: &[Approach]) -> anyhow::Result<Vec<Offered>> {
    let lowering = Lowering::with_defaults("");
    let mut offers = Vec::new();
    for net in nets {
        print::note(&format!("{}: importing, and lowering for every approach", net.name));
        let model = net.model(&lowering).with_context(|| net.name.clone())?;
        if let Some(folder) = folder {
            let interface = &model.interface;
            let input = folder.join(format!("{}.npy", net.name));
            fs::write(&input, npy::write(&interface.input_shape, &seeded_input(interface)))
                .with_context(|| format!("writing {}", input.display()))?;
            let path = folder.join(format!("{}.tacit", net.name));
            lowering.seal.write_model(&path, &file::write(&model)?)?;
        }
        for approach in approaches {
            let (costs, refused) = match lower(folder, net, approach, &model, &lowering)? {
                Ok(costs) => (costs, None),
                Err(reason) => (None, Some(reason)),
            };
            offers.push(Offered { net: net.name.clone(), approach: approach.name.into(), costs, refused });
        }
    }
    Ok(offers)
}

/// Lowers a network and returns its costs; none for the local approach. Returns the reason if the
/// back end refuses.
fn lower(
    folder: Option<&Path>,
    net: &Net,
    approach: &Approach,
    model: &Model,
    lowering: &Lowering,
) -> anyhow::Result<Result<Option<Costs>, String>> {
    if approach.name == LOCAL {
        return Ok(Ok(None));
    }
    let (registry, options) = (Registry::standard(), approach.options());
    let backend = registry.get(approach.backend)?;
    let (watch, progress_bar) = print::watch();
    let lowered = backend.lower_watched(model, &options, &watch);
    progress_bar.finish_and_clear();
    let lowered = match lowered {
        Ok(lowered) => lowered,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if let Some(folder) = folder {
        let path = folder.join(approach.file(&net.name));
        if !path.exists() {
            lowering.seal.write_model(&path, &file::write(model)?)?;
        }
        lowering.seal.write_lowered(&path, model, &**backend, &options, &*lowered)?;
    }
    Ok(Ok(Some(lowered.costs())))
}
