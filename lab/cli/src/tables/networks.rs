//! Table 4 and Fig. 10, 11 of [KDS25] on our back end: networks end to end, by key set.

use anyhow::ensure;
use serde::Serialize;
use std::path::Path;
use tacit_backends::check::{RunReport, run_privately};
use tacit_backends::ckks::Ckks;
use tacit_backends::{Backend, Options};
use tacit_cli::owner::SealArgs;
use tacit_cli::print;
use tacit_graph::Model;

/// Number of inputs that each key set answers: calibration samples.
const INPUTS: usize = 2;

/// Key sets: name, options that use the set, and column of the paper's table.
const SETS: [(&str, &str, Option<usize>); 4] = [
    ("power-of-two", "rotations=powers", Some(0)),
    ("all-required", "rotations=flat", Some(1)),
    ("three for a layer", "rotations=chained", None),
    ("default", "", None),
];

/// Seconds of the paper's Table 4, power-of-two and all-required: rotations, bootstraps, the rest.
pub type Table4 = [[f64; 3]; 2];

/// A network measured with several key sets.
#[derive(Serialize)]
pub struct Measured {
    network: String,
    file: String,
    options: String,
    threads: usize,
    sets: Vec<MeasuredSet>,
}

#[derive(Serialize)]
struct MeasuredSet {
    set: &'static str,
    options: String,
    key_bytes: u64,
    /// Seconds an input: layers (rotations and products with weights), bootstraps, the rest.
    layers_s: f64,
    bootstraps_s: f64,
    rest_s: f64,
    online_s: f64,
    paper_s: Option<[f64; 3]>,
    ran: RunReport,
}

pub struct MeasureRequest<'a> {
    /// The network, as the paper calls it.
    pub name: &'a str,
    pub paper: Option<Table4>,
    pub options: &'a str,
    /// All options of the key set that `tacit keyset design` chooses.
    pub chosen: Option<&'a str>,
}

/// Runs `file` with every key set, both parties in this process. Fails if an answer is farther from
/// the reference than the error bound.
pub fn measure(file: &Path, request: &MeasureRequest<'_>, seal: &SealArgs) -> anyhow::Result<Measured> {
    let model = tacit_cli::bench::load(file, seal)?;
    let mut sets = Vec::new();
    for (set, rotations, column) in SETS {
        let paper = column.and_then(|column| Some(request.paper?[column]));
        sets.push(measure_set(&model, request.name, set, &join_options(request.options, rotations), paper)?);
    }
    if let Some(chosen) = request.chosen {
        sets.push(measure_set(&model, request.name, "chosen by `design`", chosen, None)?);
    }
    let threads = rayon::current_num_threads();
    let (network, file, options) = (request.name.into(), file.display().to_string(), request.options.into());
    Ok(Measured { network, file, options, threads, sets })
}

fn join_options(options: &str, extra: &str) -> String {
    [options, extra].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(",")
}

fn measure_set(
    model: &Model,
    name: &str,
    set: &'static str,
    options: &str,
    paper_s: Option<[f64; 3]>,
) -> anyhow::Result<MeasuredSet> {
    print::note(&format!("{name}, key set {set}: {INPUTS} encrypted inputs"));
    let (watch, progress_bar) = print::watch();
    let lowered = Ckks.lower_watched(model, &options.parse::<Options>()?, &watch)?;
    let inputs = &model.calibration.samples[..INPUTS.min(model.calibration.samples.len())];
    let ran = run_privately(model, &Ckks, &lowered, inputs, &watch)?;
    progress_bar.finish_and_clear();
    ensure!(ran.off <= ran.bound, "{name}, key set {set}: off by {:.2e}, {:.2e} is stated", ran.off, ran.bound);
    let [layers_s, bootstraps_s] = ["linear", "bootstrap"].map(|step| ran.steps.get(step).copied().unwrap_or_default());
    let online_s = ran.online.seconds;
    let rest_s = (online_s - layers_s - bootstraps_s).max(0.0);
    let key_bytes = lowered.costs().setup.server.stored_bytes;
    Ok(MeasuredSet { set, options: options.into(), key_bytes, layers_s, bootstraps_s, rest_s, online_s, paper_s, ran })
}

pub fn show(measured: &Measured) -> anyhow::Result<()> {
    let Measured { network, file, options, threads, sets } = measured;
    let options = if options.is_empty() { String::new() } else { format!(", -O {options}") };
    print::line(&format!(
        "\nTable 4, Fig. 10 and 11 on our back end: {network} ({file}{options}), {threads} threads, seconds an input"
    ))?;
    print::line(&format!(
        "{:<20} {:>10} {:>8} {:>10} {:>8} {:>8}  paper: rotations, bootstraps, rest",
        "key set", "keys, MB", "layers", "bootstraps", "rest", "all"
    ))?;
    for MeasuredSet { set, key_bytes, layers_s, bootstraps_s, rest_s, online_s, paper_s, .. } in sets {
        let paper = paper_s.map_or("-".into(), |[a, b, c]| format!("{a:.1}, {b:.1}, {c:.1}: {:.1}", a + b + c));
        let keys = *key_bytes as f64 / 1e6;
        print::line(&format!(
            "{set:<20} {keys:>10.1} {layers_s:>8.2} {bootstraps_s:>10.2} {rest_s:>8.2} {online_s:>8.2}  {paper}"
        ))?;
    }
    let mut with_options = sets.iter().filter(|set| !set.options.is_empty());
    with_options.try_for_each(|set| print::line(&format!("{:<20} -O {}", set.set, set.options)))
}
