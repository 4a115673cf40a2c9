//! `tacit lab measure`: the resources that one command uses on this host.
use super::conduct::versions;
use anyhow::{bail, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tacit_cli::output::{self, Alike};
use tacit_cli::print;
use tacit_measure::usage;
use tacit_meter::command::{Measured, PARTY, Plan, measure};
use tacit_meter::phase::CpuSeconds;
use tacit_meter::record::{EnergyFigure, InterfaceSample};
use tacit_meter::record_file::read_record;
use tacit_meter::source::{Roots, Source, detect, open};
use tacit_meter::{csv, machine};

const HELP: &str = "\
Energy is all energy that the source measures while the command runs, also of other programs (docs/lab.md: a meter at the plug measures
the whole host, rapl its processors, nvml its graphics cards). --idle measures idle power before and after, and subtracts it. Without a
power source the result has no joules. The command and its children find a socket for phase marks in TACIT_MARKS (docs/lab.md); tacit
itself marks setup, offline and online.
Examples:
  tacit lab measure --idle 30 -- tacit infer photo.png --server server:7878 --model net
  tacit lab measure --source model:raspberry-pi-3b -o run.jsonl --csv run.csv -- ./program";

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Seconds between samples, 0.001 or more
    #[arg(long, value_name = "SECONDS", default_value_t = 0.1, help_heading = "Device")]
    interval: f64,
    /// Power source, see `tacit lab sensors`; may be repeated, and the first source is the primary
    /// one [default: all sources found]
    #[arg(long, value_name = "NAME", help_heading = "Device")]
    source: Vec<String>,
    /// Seconds to watch the idle host before and after the command, to subtract its power
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, help_heading = "Device")]
    idle: f64,
    /// Write the record (JSON Lines) to this file
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Write the samples as CSV to this file; needs -o
    #[arg(long, value_name = "FILE", requires = "output", help_heading = "Output")]
    csv: Option<PathBuf>,
    /// Print the result as JSON to standard output
    #[arg(long)]
    json: bool,
    /// Command to measure, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let plan = Plan {
        interval: seconds("interval", args.interval, 0.001)?,
        idle: seconds("idle", args.idle, 0.0)?,
        sources: sources(&args.source)?,
        output: args.output.clone(),
        machine: machine::facts(&usage::Roots::default(), &versions()),
        labels: BTreeMap::new(),
        hurry: Arc::default(),
    };
    let [program, arguments @ ..] = args.command.as_slice() else { bail!("a command is needed") };
    let mut command = Command::new(program);
    command.args(arguments);
    let child = Arc::new(AtomicU32::new(NOT_STARTED));
    let (target, hurry) = (child.clone(), plan.hurry.clone());
    // A signal to this process ends the command, and the measurements so far are kept.
    ctrlc::set_handler(move || interrupt(target.load(Ordering::SeqCst), &hurry))?;
    let measured = measure(command, plan, |pid| child.store(pid.unwrap_or(ENDED), Ordering::SeqCst))?;
    if let (Some(record), Some(path)) = (&args.output, &args.csv) {
        let mut table = Vec::new();
        csv::to_csv(&read_record(record)?, &mut table)?;
        output::write(path, &table, CSV)?;
    }
    if args.json {
        print::json(&as_json(&measured))?;
    } else {
        print_table(&measured)?;
    }
    ensure!(measured.status.success(), "the command failed: {}", measured.status);
    Ok(())
}

/// Checks the value of option `name`, and returns the duration.
fn seconds(name: &str, value: f64, min: f64) -> anyhow::Result<Duration> {
    ensure!((min..=86_400.0).contains(&value), "--{name} must be {min} to 86400 seconds, not {value}");
    Ok(Duration::from_secs_f64(value))
}

/// How an earlier table is recognised.
const CSV: Alike<'_> = Alike::Beginning(b"t_s,");

fn sources(names: &[String]) -> anyhow::Result<Vec<Box<dyn Source>>> {
    let roots = Roots::system();
    if names.is_empty() {
        let usable = detect(&roots).into_iter().filter(|detected| detected.is_usable());
        return Ok(usable.map(|detected| detected.into_source()).collect::<Result<_, _>>()?);
    }
    Ok(names.iter().map(|name| open(name, &roots)).collect::<Result<_, _>>()?)
}

/// Stands for the command's process id before the command starts.
const NOT_STARTED: u32 = 0;
const ENDED: u32 = u32::MAX;

/// Passes a request to end on to the command. Before the command has started, this process exits:
/// there are no measurements to keep. After its end, its id may belong to another process.
fn interrupt(pid: u32, hurry: &AtomicBool) {
    hurry.store(true, Ordering::SeqCst);
    match i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        Some(pid) => {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        None if pid == ENDED => {}
        None => std::process::exit(130),
    }
}

fn as_json(measured: &Measured) -> serde_json::Value {
    let party = measured.summary.parties.get(PARTY).copied().unwrap_or_default();
    let baselines: BTreeMap<_, _> = measured
        .baselines
        .iter()
        .map(|(name, b)| {
            let baseline = json!({"mean_w": b.mean_w, "sd_w": b.sd_w, "n": b.n, "seconds": b.seconds,
                "drift_w": b.drift_w, "uncertainty_w": b.uncertainty_w()});
            (name, baseline)
        })
        .collect();
    json!({
        "exit_code": measured.status.code(),
        "duration_s": measured.summary.duration_s,
        "user_s": party.user_s,
        "system_s": party.system_s,
        "peak_rss_bytes": party.rss_bytes,
        "energy": measured.summary.energy,
        "idle": baselines,
        "phases": measured.phases,
        "interfaces": measured.interfaces,
        "notes": measured.notes,
        "sampler_cpu_s": measured.sampler_cpu_s,
    })
}

fn print_table(measured: &Measured) -> anyhow::Result<()> {
    let duration = measured.summary.duration_s;
    let party = measured.summary.parties.get(PARTY).copied().unwrap_or_default();
    let cpu = party.user_s + party.system_s;
    print::line(&format!("time      {duration:.3} s"))?;
    print::line(&format!(
        "CPU       user {:.2} s, kernel {:.2} s ({:.2} cores)",
        party.user_s,
        party.system_s,
        cpu / duration.max(1e-9)
    ))?;
    print::line(&format!("memory    peak {}", print::bytes(party.rss_bytes)))?;
    for (name, traffic) in measured.interfaces.iter().filter(|(_, i)| **i != InterfaceSample::default()) {
        print::line(&format!(
            "network   {name}: {} in, {} out",
            print::bytes(traffic.rx_bytes),
            print::bytes(traffic.tx_bytes)
        ))?;
    }
    if measured.sources.is_empty() {
        print::line(
            "energy    no power source: see `tacit lab sensors`, or name a model, --source model:raspberry-pi-3b",
        )?;
    }
    for source in &measured.sources {
        match measured.summary.energy.get(&source.name) {
            Some(figure) => print::line(&format!("energy    {}: {}", source.name, energy(figure)))?,
            None => print::line(&format!("energy    {}: gave no value", source.name))?,
        }
    }
    for cost in &measured.phases {
        let joules = cost.gross_j.map_or(String::new(), |j| format!(", {j:.3} J gross"));
        let cpu =
            cost.cpu_s.map_or(String::new(), |CpuSeconds { user, kernel }| format!(", CPU {user:.2} + {kernel:.2} s"));
        let figures: String = cost.figures.iter().map(|(key, value)| format!(", {key} {value}")).collect();
        print::line(&format!(
            "phase     {} {}: {} x, {:.3} s{cpu}{joules}{figures}",
            cost.party, cost.phase, cost.count, cost.seconds
        ))?;
    }
    measured.notes.iter().try_for_each(|n| print::line(&format!("note      at {:.3} s: {}", n.t, n.text)))
}

fn energy(figure: &EnergyFigure) -> String {
    let provenance = figure.provenance.name();
    let gross = format!("{:.3} J gross, {:.3} W mean ({provenance})", figure.gross_j, figure.mean_w);
    let (Some(net), Some(sd)) = (figure.net_j, figure.net_sd_j) else {
        return format!("{gross}; no idle power taken (--idle), so no net energy");
    };
    let noise = if figure.below_noise { ", below noise" } else { "" };
    format!("{net:.3} +- {sd:.3} J net{noise}, {gross}")
}
