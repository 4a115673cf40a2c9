//! `tacit calibrate`
use crate::bench::{self, Measured};
use crate::print;
use anyhow::{Context, bail};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use tacit_backends::Registry;
use tacit_client::bench::{PhaseFigures, Run};
use tacit_graph::zoo;
use tacit_plan::calibration::{Calibration, Phase, VERSION};
use tacit_plan::{Observation, Observed};

/// Networks that are measured: of different sizes, and different mixtures of linear layers and comparisons.
const NETWORKS: &str = "tiny-cnn,m1,lenet,m2,minionn-cifar,hinet,resnet32,squeezenet1.1";

/// Measures what private inference takes on this machine, for `tacit plan`
///
/// Networks of the zoo are answered privately on every back end, by two processes of one thread each; from
/// their times follows what a transform, an oblivious transfer, a multiplication, a byte and an exchange take
/// at each party, with the error of predicting each network from the others. Takes a minute or two; keep the
/// machine idle.
///
/// Example: tacit calibrate -o here.toml && tacit plan net.tacit --server this --server-calibration here.toml
#[derive(clap::Args)]
pub struct Args {
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Only these back ends [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    backends: Vec<String>,
    /// Networks of the zoo to measure
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = NETWORKS)]
    networks: Vec<String>,
    /// Runs of each
    #[arg(long, default_value_t = 3, value_parser = tacit_args::count(100))]
    runs: usize,
}

pub fn run(args: &Args, as_json: bool) -> anyhow::Result<()> {
    // Said before minutes of measuring, not after.
    let mut file = File::create(&args.output).with_context(|| format!("writing {}", args.output.display()))?;
    let registry = Registry::standard();
    let names = match args.backends.is_empty() {
        true => registry.iter().map(|backend| backend.id().to_owned()).collect(),
        false => args.backends.clone(),
    };
    let folder = tempfile::tempdir().context("making a scratch folder")?;
    let files = networks(&args.networks, folder.path())?;
    let bar = print::bar(names.len() * files.len(), "measuring");
    let (mut backends, mut seen_by, mut skipped, mut local) =
        (BTreeMap::new(), BTreeMap::new(), Vec::new(), Vec::new());
    for name in &names {
        registry.get(name)?;
        let mut seen = Vec::new();
        for (network, file) in &files {
            bar.set_message(format!("{name}, {network}"));
            match bench::measured(file, name, args.runs) {
                Ok(measured) => {
                    local.push(local_mac_s(&measured));
                    seen.extend(observations(network, &measured));
                }
                Err(error) => skipped.push(format!("{network} on {name}: {error:#}")),
            }
            bar.inc(1);
        }
        match seen.is_empty() {
            true => skipped.push(format!("{name}: none of the networks runs on it")),
            false => {
                backends.insert(name.clone(), Calibration::of_backend(&seen));
                seen_by.insert(name.clone(), seen);
            }
        }
    }
    bar.finish_and_clear();
    if backends.is_empty() {
        bail!("nothing could be measured:\n  {}", skipped.join("\n  "));
    }
    local.retain(|seconds: &f64| seconds.is_finite());
    local.sort_by(f64::total_cmp);
    let local_mac_s = *local.get(local.len() / 2).context("the float networks took no time that can be measured")?;
    let made = format!("{} networks, {} runs each", files.len(), args.runs);
    let machine = tacit_client::bench::machine();
    let calibration = Calibration { version: VERSION, machine, made, backends, local_mac_s };
    let written = file.write_all(calibration.to_toml().as_bytes());
    written.with_context(|| format!("writing {}", args.output.display()))?;
    match as_json {
        true => {
            print::json(&json!({"file": args.output, "calibration": calibration, "runs": seen_by, "skipped": skipped}))
        }
        false => show(&calibration, &skipped, &args.output),
    }
}

/// Model files of the zoo's networks, imported once for all back ends.
fn networks(names: &[String], folder: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let make = |name: &String| {
        let model = crate::model::import_with_defaults(Path::new(name), &zoo::build(name, 1)?)?;
        let path = folder.join(format!("{name}.tacit"));
        fs::write(&path, tacit_graph::file::write(&model)?).with_context(|| format!("writing {}", path.display()))?;
        Ok((name.clone(), path))
    };
    names.iter().map(make).collect()
}

fn observations(network: &str, measured: &Measured) -> Vec<Observation> {
    let phases = |run: &Run| {
        let named = |(name, phase)| run.phases.get(name).map(|figures| (phase, observed(figures)));
        [("setup", Phase::Setup), ("offline", Phase::Offline), ("online", Phase::Online)]
            .into_iter()
            .filter_map(named)
            .collect()
    };
    let observation =
        |run: &Run| Observation { network: network.to_owned(), costs: measured.costs, phases: phases(run) };
    measured.runs.iter().map(observation).collect()
}

fn observed(figures: &PhaseFigures) -> Observed {
    Observed {
        wall_s: figures.wall_s,
        cpu_s: [figures.client.cpu_s, figures.server.cpu_s],
        peak_bytes: [figures.client.peak_rss_bytes, figures.server.peak_rss_bytes],
        rounds: figures.rounds,
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
            let percent = |error: f64| format!("{:.0} %", 100.0 * error);
            let phase = format!("{phase:?}").to_lowercase();
            let (client, server) = (percent(rates.client.error), percent(rates.server.error));
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
