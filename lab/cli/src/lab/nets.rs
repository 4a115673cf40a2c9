//! The networks of a campaign, kept in its folder with their lowerings: made once, served in every
//! cell.
use super::files::{SOURCE, come_from, replace};
use super::inputs;
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::env;
use std::path::{Path, PathBuf};
use tacit_backends::Registry;
use tacit_cli::lowering::Lowering;
use tacit_cli::print;
use tacit_experiments::campaign;
use tacit_graph::import::{ImportOptions, import};
use tacit_graph::{Model, file, zoo};

/// Default networks for the roles of the paper's smaller ones.
pub const SMALL: [&str; 4] = ["digits", "lenet", "m2", "resnet32"];
/// Default network for the role of the largest, if the file exists.
const LARGE: &str = "models/squeezenet1.1_fp32.onnx";

enum Origin {
    Digits,
    /// A network of the zoo, by name.
    Zoo(String),
    File(PathBuf),
}

pub struct Net {
    pub name: String,
    origin: Origin,
}

impl Net {
    /// Finds a network: `digits`, a name of the zoo, or a file.
    pub fn from_name(text: &str) -> anyhow::Result<Self> {
        if text == "digits" {
            return Ok(Self { name: text.into(), origin: Origin::Digits });
        }
        if zoo::NAMES.iter().any(|(name, _)| *name == text) {
            return Ok(Self { name: text.into(), origin: Origin::Zoo(text.into()) });
        }
        let path = Path::new(text);
        match path.extension().and_then(|e| e.to_str()) {
            Some("onnx" | "tacit") => Self::file(path),
            _ => {
                let names: Vec<&str> = zoo::NAMES.iter().map(|(name, _)| *name).collect();
                bail!("no network {text:?}: name digits, one of {}, or a file (.onnx, .tacit)", names.join(", "))
            }
        }
    }

    /// SqueezeNet of the shared data if it exists, else of the zoo with random weights.
    pub fn squeezenet() -> Self {
        let origin = shared_data_dir().map_or_else(|| Origin::Zoo("squeezenet1.1".into()), Origin::File);
        Self { name: "squeezenet".into(), origin }
    }

    fn file(path: &Path) -> anyhow::Result<Self> {
        let stem = path.file_stem().and_then(|s| s.to_str()).filter(|s| !s.is_empty());
        let name = stem.with_context(|| format!("{}: has no name", path.display()))?.to_owned();
        Ok(Self { name, origin: Origin::File(path.to_owned()) })
    }

    pub fn source(&self) -> anyhow::Result<Value> {
        let source = match &self.origin {
            Origin::Digits => "built in".to_owned(),
            Origin::Zoo(name) => format!("zoo, {name}, seed 1"),
            Origin::File(path) => {
                let bytes = tacit_cli::files::read(path, file::MAX_BYTES)?;
                blake3::hash(&bytes).to_hex().to_string()
            }
        };
        Ok(json!({"name": self.name, "from": source}))
    }

    /// Imports the network; opens model files with the key of `lowering`.
    pub fn model(&self, lowering: &Lowering) -> anyhow::Result<Model> {
        match &self.origin {
            Origin::Digits => inputs::import_digits(),
            // The weights are random, so the import's notes on ranges do not matter.
            Origin::Zoo(name) => Ok(import(&zoo::build(name, 1)?, &ImportOptions::default())?.model),
            Origin::File(path) if path.extension().is_some_and(|e| e == "onnx") => {
                let bytes = tacit_cli::files::read_onnx(path)?;
                tacit_cli::model::import_with_defaults(path, &bytes)
            }
            Origin::File(path) => lowering.seal.read_model(path),
        }
    }
}

/// Chooses the networks of a campaign, from the smallest: the named ones, then a large one. The large
/// one is the named file (`none` for none), or SqueezeNet of the shared data; a note says that it is
/// missing.
pub fn choose(names: &[String], model: Option<&str>, is_quick: bool) -> anyhow::Result<(Vec<Net>, Option<String>)> {
    let small: Vec<&str> = match names {
        [] => SMALL.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    let mut nets = small.into_iter().map(Net::from_name).collect::<anyhow::Result<Vec<_>>>()?;
    let note = match model {
        Some("none") => None,
        Some(file) => {
            nets.push(Net::from_name(file)?);
            None
        }
        // Named networks need no default, and `--quick` has no time for a large one.
        None if !names.is_empty() || is_quick => None,
        None => match shared_data_dir() {
            Some(_) => {
                nets.push(Net::squeezenet());
                None
            }
            None => Some(format!(
                "no network of SqueezeNet's size: ../shared/data/{LARGE} is not there, so {} has its share; `tacit zoo squeezenet1.1 \
                 -o squeezenet.onnx` makes one for --model squeezenet.onnx",
                SMALL[3]
            )),
        },
    };
    Ok((nets, note))
}

/// Finds SqueezeNet in `TACIT_DATA`, or in the shared data beside the repository of this folder.
fn shared_data_dir() -> Option<PathBuf> {
    let current_dir = env::current_dir().ok()?;
    let around = current_dir.ancestors().map(|folder| folder.join("shared/data"));
    let folders = env::var_os("TACIT_DATA").map(PathBuf::from).into_iter().chain(around);
    folders.map(|folder| folder.join(LARGE)).find(|path| path.is_file())
}

/// Writes `DIR/inputs/NAME.tacit` and its lowering for each network; returns the paths. A continued
/// campaign keeps its files, and refuses other networks.
pub fn prepare(dir: &Path, nets: &[Net], lowering: &Lowering) -> anyhow::Result<Vec<PathBuf>> {
    let folder = dir.join("inputs");
    campaign::managed_folder(dir)?;
    campaign::own_folder(&folder)?;
    let paths: Vec<PathBuf> = nets.iter().map(|net| folder.join(format!("{}.tacit", net.name))).collect();
    let (registry, options) = (Registry::standard(), lowering.options()?);
    let backend = registry.get(&lowering.backend)?;
    let sources = nets.iter().map(Net::source).collect::<anyhow::Result<Vec<Value>>>()?;
    let source = json!({"nets": sources, "backend": backend.id(), "options": options});
    if come_from(&source, &folder, "other networks than were named")? {
        return Ok(paths);
    }
    for (net, path) in nets.iter().zip(&paths) {
        print::note(&format!("{}: importing, and lowering for {}", net.name, backend.id()));
        let model = net.model(lowering).with_context(|| net.name.clone())?;
        let (watch, progress_bar) = print::watch();
        let lowered = backend.lower_watched(&model, &options, &watch).with_context(|| net.name.clone())?;
        progress_bar.finish_and_clear();
        lowering.seal.write_model(path, &tacit_graph::file::write(&model)?)?;
        lowering.seal.write_lowered(path, &model, &**backend, &options, &*lowered)?;
    }
    replace(&folder.join(SOURCE), source.to_string())?;
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tacit_store::managed::MARK;

    #[test]
    fn networks_are_found_by_name_or_file_and_the_large_one_comes_last() {
        let names = |requested: &[&str], model| {
            let requested: Vec<String> = requested.iter().map(|n| (*n).to_owned()).collect();
            let (nets, note) = choose(&requested, model, false).unwrap();
            (nets.into_iter().map(|net| net.name).collect::<Vec<_>>(), note)
        };
        assert_eq!(names(&[], Some("none")), (SMALL.map(String::from).to_vec(), None));
        assert_eq!(names(&["tiny-mlp"], None), (vec!["tiny-mlp".to_owned()], None));
        assert_eq!(names(&["digits"], Some("x/big.onnx")).0, ["digits", "big"]);
        let (nets, note) = choose(&[], None, true).unwrap();
        assert_eq!(nets.len(), 4, "quick goes without a large one");
        assert!(note.is_none());
        let error = choose(&["tiny".into()], None, false).err().unwrap().to_string();
        assert!(error.contains("tiny-mlp"), "{error}");
        assert!(error.contains(".onnx"), "{error}");
    }

    #[test]
    fn a_folder_of_other_networks_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        campaign::managed_folder(dir.path()).unwrap();
        fs::create_dir(dir.path().join("inputs")).unwrap();
        fs::write(dir.path().join("inputs/source.json"), "{}").unwrap();
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            lowering: Lowering,
        }
        let Line { lowering } = clap::Parser::parse_from(["tacit"]);
        let (nets, _) = choose(&["tiny-mlp".into()], None, false).unwrap();
        let error = prepare(dir.path(), &nets, &lowering).unwrap_err().to_string();
        assert!(error.contains("other networks"), "{error}");
        let names = fs::read_dir(dir.path().join("inputs")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.filter(|name| name != MARK).count(), 1);
    }
}
