//! The report of `tacit bench`: figures of both parties by phase, and the answer's distance from
//! the back end's reference.
use crate::{ClientConfig, ClientError, Connection, Figures, OpenedModels, PhaseReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use tacit_backends::check::useful_bound;
use tacit_backends::{BackendError, Registry, ServerModel, Sides};
use tacit_graph::{OutputMode, Units};
use tacit_measure::usage::{ProcessLimits, Roots};

/// One party's figures for one phase, as printed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct PartyFigures {
    /// Processor seconds of the party's process.
    pub cpu_s: f64,
    /// Largest resident set during the phase, in bytes.
    pub peak_rss_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

/// One phase, as printed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct PhaseFigures {
    /// The client's wall time in seconds.
    pub wall_s: f64,
    /// Round trips, the larger of both parties' counts.
    pub rounds: u64,
    /// The client.
    pub client: PartyFigures,
    /// The server.
    pub server: PartyFigures,
}

/// Bytes of material at each party.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct MaterialBytes {
    /// The client's half.
    pub client: u64,
    /// The server's half.
    pub server: u64,
}

/// The private answer beside the reference.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct OutputFigures {
    /// Class of the private answer.
    pub argmax: usize,
    /// Class of the back end's reference.
    pub reference_argmax: usize,
    /// Largest difference from the reference in the output's real unit. For top-1: the distance of
    /// the class indices, which says little.
    pub max_error: f64,
    /// The back end's declared worst case of that difference for these weights. `null` for top-1,
    /// and for deep models, where it exceeds the range of the reference's outputs.
    pub error_bound: Option<f64>,
    /// The difference in units of the output's last place. For top-1: 0 if the classes agree,
    /// otherwise 1. `null` if answers are not integers.
    pub max_ulp_error: Option<u64>,
    /// The bound in units of the last place; `null` if there is none or answers are not integers.
    pub ulp_bound: Option<f64>,
}

/// One inference by a fresh client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// Figures of those of `setup`, `offline` and `online` that the back end has.
    pub phases: BTreeMap<String, PhaseFigures>,
    /// The client's wall seconds from the request to the answer: the claim of stored material at
    /// both parties and the online phase.
    pub request_to_answer_s: f64,
    /// Size of the material.
    pub material_bytes: MaterialBytes,
    /// The answer.
    pub output: OutputFigures,
}

/// The whole report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Name of the model.
    pub model: String,
    /// Name of the back end.
    pub backend: String,
    /// Threads of each party.
    pub threads: usize,
    /// Description of the link.
    pub link: String,
    /// Processor and number of cores.
    pub machine: String,
    /// One entry per run.
    pub runs: Vec<Run>,
}

/// Report of a benchmark's client process to its parent process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientRun {
    /// Setup of the connection, where the back end has one.
    pub setup: Option<PhaseReport>,
    /// Offline phase, if the back end has one.
    pub offline: Option<PhaseReport>,
    /// Online phase.
    pub online: PhaseReport,
    /// See [`Run::request_to_answer_s`].
    pub request_to_answer_s: f64,
    /// Bytes of material at the client and the server.
    pub material_bytes: Sides<u64>,
    /// The back end's answer, before the client's own last steps.
    pub values: Vec<f64>,
}

/// Runs the client's side: for each run a fresh connection with its own setup, and material that
/// both parties store before the online phase (`config.store`, and a server with a folder for
/// material).
///
/// # Errors
/// Errors of the connection, the protocol or the store.
pub fn client_runs(
    registry: &Registry,
    config: &ClientConfig,
    model: &str,
    backend: Option<&str>,
    units: Units,
    input: &[f32],
    runs: usize,
) -> Result<Vec<ClientRun>, ClientError> {
    let mut all = Vec::new();
    for _ in 0..runs {
        let config = ClientConfig { opened: OpenedModels::default(), ..config.clone() };
        let mut client = Connection::connect(registry.clone(), config)?.open(model, backend)?;
        let (setup, prepared) = match client.needs_material()? {
            true => (client.setup()?, Some(client.prepare()?)),
            false => (None, None),
        };
        let answer = client.infer_in(units, input)?;
        client.close()?;
        all.push(ClientRun {
            setup: setup.or(answer.setup),
            offline: prepared.map(|p| p.offline),
            online: answer.online,
            request_to_answer_s: answer.request_to_answer_s,
            material_bytes: prepared.map_or(Sides::default(), |p| p.bytes),
            values: answer.revealed,
        });
    }
    Ok(all)
}

/// Relative to the largest output: the error of float sums in another order, in a back end that is
/// exact.
const ROUNDING: f64 = 1e-6;

/// An error about an answer that is wrong although its back end computes correctly.
fn unusable(what: &str) -> ClientError {
    let what = format!(
        "{what}: the input takes the model beyond what it computes rightly (with `ckks`: it leaves the range of a polynomial); give an \
         input of the data that the model is for (`--input`)"
    );
    BackendError::Data { what }.into()
}

/// Compares a client's run with the back end's reference and returns the printed form. `input` is
/// normalised.
///
/// # Errors
/// The input does not fit the model or overflows it, or the answer is off by more than the model
/// states.
pub fn judge(run: &ClientRun, model: &dyn ServerModel, input: &[f32]) -> Result<Run, ClientError> {
    let reference = model.reference(input)?;
    if run.values.iter().chain(&reference).any(|v| !v.is_finite()) {
        return Err(unusable("the answer is no number"));
    }
    let top1 = model.interface().output_mode == OutputMode::Top1;
    let (Some(argmax), Some(reference_argmax)) = (class(&run.values, top1), class(&reference, top1)) else {
        return Err(unusable("the answer holds no value"));
    };
    let max_error = tacit_floats::largest_distance(&run.values, &reference);
    let bound = model.error_bound(&reference);
    let rounding = ROUNDING * tacit_floats::largest_magnitude(reference.iter().copied());
    if !(top1 || max_error <= bound + rounding) {
        return Err(unusable(&format!("the answer is off by {max_error:.3e}, where at most {bound:.3e} is stated")));
    }
    let range = tacit_floats::range(reference.iter().copied());
    let error_bound = useful_bound(bound, range).filter(|_| !top1);
    let unit = model.output_unit();
    let output = OutputFigures {
        argmax,
        reference_argmax,
        max_error,
        error_bound,
        // The cast saturates.
        max_ulp_error: unit.map(|unit| match top1 {
            true => u64::from(argmax != reference_argmax),
            false => (max_error / unit).round() as u64,
        }),
        ulp_bound: unit.zip(error_bound).map(|(unit, bound)| bound / unit),
    };
    let phases = [("setup", run.setup), ("offline", run.offline), ("online", Some(run.online))];
    let phases = phases.into_iter().filter_map(|(name, report)| Some((name.to_owned(), phase_figures(&report?))));
    Ok(Run {
        phases: phases.collect(),
        request_to_answer_s: run.request_to_answer_s,
        material_bytes: MaterialBytes { client: run.material_bytes.client, server: run.material_bytes.server },
        output,
    })
}

/// The class that a model's outputs tell.
fn class(values: &[f64], top1: bool) -> Option<usize> {
    if top1 { values.first().map(|&c| c as usize) } else { tacit_floats::first_largest(values) }
}

/// The printed form of a report.
#[must_use]
pub fn phase_figures(report: &PhaseReport) -> PhaseFigures {
    let party =
        |f: &Figures| PartyFigures { cpu_s: f.cpu_s, peak_rss_bytes: f.peak_rss_bytes, sent_bytes: f.sent_bytes };
    PhaseFigures {
        wall_s: report.client.wall_s,
        rounds: report.client.rounds.max(report.server.rounds),
        client: party(&report.client),
        server: party(&report.server),
    }
}

/// This machine: processor model, and number of cores that this process may use.
#[must_use]
pub fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|l| l.strip_prefix("model name")).and_then(|l| l.split_once(':'));
    let name = name.map_or("unknown processor", |(_, name)| name.trim());
    let cores = ProcessLimits::read(&Roots::default()).threads();
    format!("{name}, {cores} cores")
}
