//! `tacit calibrate`: measures this machine for the planner.
use crate::bench::{self, Measured};
use crate::output::{self, Alike};
use crate::print;
use crate::scratch::Scratch;
use anyhow::{Context, bail};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tacit_backends::{Backend, Benchmarks, Costs, Registry, Sides};
use tacit_client::bench::{PhaseFigures, Run};
use tacit_graph::zoo;
use tacit_net::Phase;
use tacit_plan::calibration::{Calibration, VERSION};
use tacit_plan::{Observation, Observed};
use tacit_program::args::count;

/// Numbers of threads a party.
const THREADS: [usize; 2] = [1, 2];

/// Measure the costs of private inference on this machine, for `tacit plan`
///
/// Two processes of one thread each answer networks of the zoo privately on every back end. Their
/// times give the costs of a transform, an oblivious transfer, a multiplication, a byte and an
/// exchange at each party. The command also gives the error of predicting each network from the
/// others, and the gain of two threads. Loopback does not show the work of a party while bytes
/// travel. The built-in calibration gives that share, or runs over links do (--with). The command
/// takes some minutes, with --quick about one; keep the machine idle.
///
/// Example: tacit calibrate -o here.toml && tacit plan net.tacit --server this --server-calibration here.toml
#[derive(clap::Args)]
pub struct Args {
    /// File to write
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: PathBuf,
    /// Back ends to measure [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Model")]
    backends: Vec<String>,
    /// Networks of the zoo to measure [default: some for each back end]
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Model")]
    networks: Vec<String>,
    /// File with earlier runs of the same machine, which count as well: the output of an earlier
    /// call with --json, or of docs/scripts/plan_check.py --as-runs
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    with: Vec<PathBuf>,
    /// Fit the runs of --with, and measure nothing
    #[arg(long, requires = "with", conflicts_with_all = ["backends", "networks"], help_heading = "Input")]
    no_measure: bool,
    /// Number of runs of each network
    #[arg(long, default_value_t = 3, value_parser = count(100), help_heading = "Limits")]
    runs: usize,
    /// Measure a few small networks once each; plans are a little less accurate
    #[arg(long, conflicts_with_all = ["networks", "runs", "no_measure"], help_heading = "Limits")]
    quick: bool,
}

impl Args {
    fn usual(&self, backend: &dyn Backend) -> &'static [&'static str] {
        let Benchmarks { all: full_set, quick } = backend.benchmarks();
        if self.quick { quick } else { full_set }
    }

    fn runs(&self) -> usize {
        if self.quick { 1 } else { self.runs }
    }
}

/// Runs by back end, and the float networks' seconds for a multiplication.
#[derive(Default)]
struct Collected {
    runs: BTreeMap<String, Vec<Observation>>,
    local_mac_s: Vec<f64>,
    skipped: Vec<String>,
}

pub fn run(args: &Args, as_json: bool) -> anyhow::Result<()> {
    // Check the output before minutes of measuring.
    let earlier = Alike::Holds("local_mac_s = ");
    output::check(&args.output, earlier)?;
    File::options().append(true).create(true).open(&args.output).with_context(|| args.output.display().to_string())?;
    let mut collected = Collected::default();
    args.with.iter().try_for_each(|path| collected.read(path))?;
    if !args.no_measure {
        measure(args, &mut collected)?;
    }
    if collected.runs.is_empty() {
        bail!("nothing could be measured:\n  {}", collected.skipped.join("\n  "));
    }
    collected.local_mac_s.sort_by(tacit_floats::rising);
    let local_mac_s = *collected
        .local_mac_s
        .get(collected.local_mac_s.len() / 2)
        .context("the float networks ran too fast to measure: give larger --networks")?;
    let networks: BTreeSet<&str> = collected.runs.values().flatten().map(|run| run.network.as_str()).collect();
    let made_from = format!("{} networks, {} runs each", networks.len(), args.runs());
    let before = Calibration::built_in().backends;
    let backends =
        collected.runs.iter().map(|(name, runs)| (name.clone(), Calibration::fit_backend(runs, before.get(name))));
    let backends = backends.collect();
    let machine = tacit_client::bench::machine();
    let calibration = Calibration { version: VERSION, machine, made: made_from, backends, local_mac_s };
    output::write(&args.output, calibration.to_toml().as_bytes(), earlier)?;
    match as_json {
        true => print::json(&json!({"file": args.output, "calibration": calibration, "runs": collected.runs,
            "local_mac_s": collected.local_mac_s, "skipped": collected.skipped})),
        false => show(&calibration, &collected.skipped, &args.output),
    }
}

impl Collected {
    fn read(&mut self, path: &Path) -> anyhow::Result<()> {
        #[derive(serde::Deserialize)]
        struct Earlier {
            runs: BTreeMap<String, Vec<Observation>>,
            local_mac_s: Vec<f64>,
        }
        let text = crate::files::read_text(path)?;
        let earlier: Earlier = serde_json::from_str(&text)
            .with_context(|| format!("{} is no output of `tacit calibrate --json`", path.display()))?;
        for (name, runs) in earlier.runs {
            self.runs.entry(name).or_default().extend(runs);
        }
        self.local_mac_s.extend(earlier.local_mac_s);
        Ok(())
    }
}

fn measure(args: &Args, collected: &mut Collected) -> anyhow::Result<()> {
    let registry = Registry::standard();
    let names = match args.backends.is_empty() {
        true => registry.iter().map(|backend| backend.id().to_owned()).collect(),
        false => args.backends.clone(),
    };
    let folder = Scratch::new()?;
    let mut files = BTreeMap::new();
    let mut cells = Vec::new();
    for name in &names {
        let backend = registry.get(name)?;
        let networks: Vec<String> = match args.networks.is_empty() {
            true => args.usual(&**backend).iter().map(|network| (*network).to_owned()).collect(),
            false => args.networks.clone(),
        };
        for network in networks {
            if !files.contains_key(&network) {
                files.insert(network.clone(), model(&network, folder.path())?);
            }
            cells.push((name, network));
        }
    }
    let bar = print::bar(cells.len(), "measuring");
    for (name, network) in cells {
        bar.set_message(format!("{name}, {network}"));
        match bench::measure_model(&files[&network], name, args.runs(), &THREADS) {
            Ok(measured) => {
                collected.local_mac_s.push(local_mac_s(&measured));
                collected.runs.entry(name.clone()).or_default().extend(observations(&network, &measured));
            }
            Err(error) => collected.skipped.push(format!("{network} on {name}: {error:#}")),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    collected.local_mac_s.retain(|seconds| seconds.is_finite());
    Ok(())
}

fn model(name: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let model = crate::model::import_with_defaults(Path::new(name), &zoo::build(name, 1)?)?;
    let path = folder.join(format!("{name}.tacit"));
    fs::write(&path, tacit_graph::file::write(&model)?).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn observations(network: &str, measured: &Measured) -> Vec<Observation> {
    let mut observed_runs = Vec::new();
    for (threads, runs) in &measured.runs {
        observed_runs.extend(runs.iter().map(|run| observation(network, measured.costs, *threads as u32, run)));
    }
    observed_runs
}

fn observation(network: &str, costs: Costs, threads: u32, run: &Run) -> Observation {
    let phases = Phase::ALL.into_iter().filter_map(|phase| {
        let figures = run.phases.get(phase.name())?;
        // Skip phases whose keys or weights were not sent because a party still had them.
        let moved_enough = figures.client.sent_bytes + figures.server.sent_bytes >= costs.phase(phase).bytes() / 2;
        moved_enough.then(|| (phase, to_observed(figures)))
    });
    Observation { network: network.to_owned(), threads, link: None, costs, phases: phases.collect() }
}

fn to_observed(figures: &PhaseFigures) -> Observed {
    Observed {
        wall_s: figures.wall_s,
        cpu_s: Sides { client: figures.client.cpu_s, server: figures.server.cpu_s },
        peak_bytes: Sides { client: figures.client.peak_rss_bytes, server: figures.server.peak_rss_bytes },
    }
}

fn local_mac_s(measured: &Measured) -> f64 {
    match measured.local_macs {
        0 => f64::NAN,
        macs => measured.local_cpu_s / macs as f64,
    }
}

fn show(calibration: &Calibration, skipped: &[String], path: &Path) -> anyhow::Result<()> {
    print::line(&format!("{}: {}", path.display(), calibration.machine))?;
    for (name, backend) in &calibration.backends {
        for (phase, rates) in &backend.phases {
            let phase = format!("{phase:?}").to_lowercase();
            let (client, server) = (print::percent(rates.client.error), print::percent(rates.server.error));
            print::line(&format!(
                "  {name:<8} {phase:<8} predicts CPU of unseen networks to {client} (client), {server} (server)"
            ))?;
        }
    }
    for line in skipped {
        print::note(&format!("not measured: {line}"));
    }
    Ok(())
}
