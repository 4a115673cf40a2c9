//! Detection of the host's sources, in the order of preference: external meter, hwmon, INA3221,
//! tegrastats, RAPL, NVML, other sensors of a part of the host, and the model last.
use super::detected::Detected;
use super::model::Model;
use super::replay::{self, Replay};
use super::tegrastats::Tegrastats;
use super::tree::{Disk, Tree};
use super::{Source, csv, http, hwmon, ina3221, nvml, pmic, rapl};
use crate::MeterError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tacit_measure::device::DeviceProfile;

/// Places to search.
#[derive(Clone)]
pub struct Roots {
    /// Sensor files: `/sys` and so on.
    pub tree: Arc<dyn Tree>,
    /// The program `tegrastats`, if any.
    pub tegrastats: Option<PathBuf>,
    /// Interval of the lines of tegrastats.
    pub tegrastats_interval: Duration,
    /// The program `vcgencmd`, if any.
    pub vcgencmd: Option<PathBuf>,
    /// Whether to try NVML.
    pub nvml: bool,
    /// External meters: a growing CSV file, or a URL.
    pub external: Vec<String>,
    /// The model: `PROFILE` or `PROFILE/MODE`; the profile is a built-in one or a file that ends in `.toml`.
    pub model: Option<String>,
}

impl Roots {
    /// This machine, without external meters and model.
    pub fn system() -> Self {
        Self {
            tree: Arc::new(Disk::new("/")),
            tegrastats: program("tegrastats"),
            tegrastats_interval: Duration::from_secs(1),
            vcgencmd: program("vcgencmd"),
            nvml: true,
            external: Vec::new(),
            model: None,
        }
    }

    /// Only the files of a tree, for tests.
    pub fn files(tree: Arc<dyn Tree>) -> Self {
        Self { tree, tegrastats: None, vcgencmd: None, nvml: false, ..Self::system() }
    }
}

fn program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Searches for every source, in the order of preference, and opens usable ones.
pub fn detect(roots: &Roots) -> Vec<Detected> {
    let mut detected: Vec<Detected> = roots
        .external
        .iter()
        .map(|place| Detected::from_result(&format!("external:{place}"), place, open_external(place)))
        .collect();
    let chips = hwmon::detect(&roots.tree);
    detected.extend(chips.host);
    let rails = chips.ina3221.or_else(|| ina3221::detect(&roots.tree));
    let no_rails = rails.is_none();
    detected.extend(rails);
    if let Some(program) = &roots.tegrastats {
        // tegrastats reads the same chips at a higher cost.
        detected.push(if no_rails { tegrastats(program, roots) } else { same_rails(program) });
    }
    detected.push(rapl::detect(&roots.tree));
    if roots.nvml {
        detected.push(nvml::detect());
    }
    if let Some(program) = &roots.vcgencmd {
        let opened = Detected::from_result("pmic", &program.display().to_string(), pmic::open(program));
        detected.push(opened.note("sees the rails behind the board's converters: no losses, no USB devices"));
    }
    detected.extend(chips.components);
    if let Some(model) = &roots.model {
        detected.push(Detected::from_result(&format!("model:{model}"), model, open_model(model)));
    }
    detected
}

fn tegrastats(program: &Path, roots: &Roots) -> Detected {
    let opened = Tegrastats::start(program, roots.tegrastats_interval).map(|t| Box::new(t) as Box<dyn Source>);
    Detected::from_result("tegrastats", &program.display().to_string(), opened)
}

fn same_rails(program: &Path) -> Detected {
    let reason = "not started: ina3221 gives the same rails at less cost".into();
    let remedy = "to use it all the same, name it: --source tegrastats".into();
    Detected::unusable("tegrastats", &program.display().to_string(), reason, remedy)
}

fn open_external(place: &str) -> Result<Box<dyn Source>, MeterError> {
    if place.contains("://") { http::open(place) } else { Ok(Box::new(csv::GrowingCsv::open(Path::new(place))?)) }
}

fn open_model(spec: &str) -> Result<Box<dyn Source>, MeterError> {
    let (profile, mode) = DeviceProfile::load_with_mode(spec)?;
    Ok(Box::new(Model::new(&profile, profile.mode(mode)?)))
}

/// `PATH` or `PATH,interval=SECONDS`.
fn open_replay(spec: &str) -> Result<Box<dyn Source>, MeterError> {
    let (path, interval) = match spec.rsplit_once(",interval=") {
        Some((path, text)) => match text.parse::<f64>() {
            Ok(seconds) if (1e-6..=1e6).contains(&seconds) => (path, seconds),
            _ => {
                let detail = format!("interval {text:?} is no number of seconds");
                return Err(MeterError::malformed(format!("replay:{spec}"), detail));
            }
        },
        None => (spec, 1.0),
    };
    Ok(Box::new(Replay::new(format!("replay:{path}"), replay::load(Path::new(path), interval)?)))
}

/// Opens the source with the given name.
///
/// Names are those of [`detect`] (`rapl`, `hwmon:ina226`; `hwmon` takes the first chip), `external:FILE.csv`,
/// `external:http://...`, `replay:FILE` (CSV, tegrastats log, or `mlperf_tiny` trace; `,interval=SECONDS` for
/// a log without times), and `model:PROFILE[/MODE]`.
///
/// # Errors
/// [`MeterError::Source`] for an unknown name, with the known ones, or for a source that cannot be
/// used; otherwise the error of opening the source.
pub fn open(name: &str, roots: &Roots) -> Result<Box<dyn Source>, MeterError> {
    if let Some((kind, spec)) = name.split_once(':') {
        match kind {
            "external" => return open_external(spec),
            "replay" => return open_replay(spec),
            "model" => return open_model(spec),
            _ => {}
        }
    }
    if let (Some(program), "tegrastats") = (&roots.tegrastats, name) {
        return tegrastats(program, roots).into_source();
    }
    let detected = detect(&Roots { external: Vec::new(), model: None, ..roots.clone() });
    let names: Vec<String> = detected.iter().filter(|d| d.is_usable()).map(|d| d.name.clone()).collect();
    let fitting = detected.into_iter().filter(|d| d.name == name || d.name.split(':').next() == Some(name));
    let (usable, unusable): (Vec<_>, Vec<_>) = fitting.partition(Detected::is_usable);
    let Some(detected) = usable.into_iter().chain(unusable).next() else {
        let usable = if names.is_empty() { "none".into() } else { names.join(", ") };
        return Err(MeterError::Source {
            name: name.into(),
            reason: "there is no such source on this host".into(),
            remedy: format!("usable here: {usable}; also external:FILE.csv, external:URL, replay:FILE, model:PROFILE"),
        });
    };
    detected.into_source()
}
