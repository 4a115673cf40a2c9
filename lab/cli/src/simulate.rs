//! `tacit simulate`: the scheduler in virtual time.
mod cluster;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tacit_cli::output::{self, Alike};
use tacit_cli::print;
use tacit_cli::report;
use tacit_sched::policy::PolicySpec;
use tacit_sched::profile::Speedup;
use tacit_sched::replay::Replay;
use tacit_sched::{Config, Span};
use tacit_sim::grids::{Grid, grid_a, grid_b, grid_c, print as print_grid, sensitivity};
use tacit_sim::sweeps::{print as print_sweeps, sweeps};
use tacit_sim::table2::{print as print_table2, table2};
use tacit_sim::{Arrivals, Batches, Mix, ProfileFile, Run, RunFile, Scenario, SimError, Stock, Workload, parse_trace};

/// Play workloads against the scheduler in virtual time
#[derive(Debug, Args)]
#[command(after_help = "Example: tacit simulate run --rate 1 --policy fcfs -o runs.json")]
pub struct SimulateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run one workload with one seed under one or several policies
    ///
    /// Example: tacit simulate run --rate 1 --policy fcfs,priority -o runs.json
    Run(Box<RunArgs>),
    /// Draw a run on one page: timeline, queues and figures
    ///
    /// Example: tacit simulate report runs.json -o page.html
    Report {
        /// File that `tacit simulate run -o` wrote
        file: PathBuf,
        /// Page to write [default: FILE with .html]; the plots go to PAGE-plots beside the page, as
        /// PNG and SVG
        #[arg(short, long, help_heading = "Output")]
        output: Option<PathBuf>,
    },
    /// Print the paper's Table 2 beside ours
    ///
    /// Example: tacit simulate paper-table2
    PaperTable2(GridArgs),
    /// Vary batches, threads and ageing under the paper's algorithm, as its section 6 does
    ///
    /// Example: tacit simulate paper-sweeps --seeds 5
    PaperSweeps(GridArgs),
    /// Run grids A, B, C and sensitivity with all policies, and check every requirement
    ///
    /// Example: tacit simulate grids --only A -o grids.json
    Grids(GridArgs),
    /// Simulate several servers behind a front: the waits of clients, and the costs of a node that
    /// dies
    ///
    /// Example: tacit simulate cluster --nodes 1,4,16,64 --requests 1000000
    Cluster(Box<cluster::ClusterArgs>),
    /// Run a replay file again; the command fails if the run differs from the recorded one
    ///
    /// Example: tacit simulate replay recorded.json
    Replay {
        /// Replay file
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
struct GridArgs {
    /// Profile file with measured job times [default: of the public SHARK code, shipped with tacit]
    #[arg(long, help_heading = "Input")]
    profile: Option<PathBuf>,
    /// Number of seeds per cell
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    #[arg(help_heading = "Limits")]
    seeds: u64,
    /// First seed; a seed above 0 gives requests that no rule was ever compared on
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    #[arg(help_heading = "Input")]
    first_seed: u64,
    /// Write all figures to this file, as JSON
    #[arg(short, long, help_heading = "Output")]
    output: Option<PathBuf>,
    /// Grids to run, for example `A,C` (`grids` only) [default: all]
    #[arg(long, value_delimiter = ',', help_heading = "Input")]
    only: Vec<String>,
}

impl GridArgs {
    fn range(&self) -> Range<u64> {
        self.first_seed..self.first_seed + self.seeds
    }
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Profile file with measured job times [default: of the public SHARK code, shipped with tacit]
    #[arg(long, help_heading = "Input")]
    profile: Option<PathBuf>,
    /// Workload: `swiftsnni-mixed` or `swiftsnni-light`
    #[arg(long, default_value = "swiftsnni-mixed", help_heading = "Input")]
    workload: String,
    /// Number of requests [default: the number of the workload]
    #[arg(long, help_heading = "Input")]
    requests: Option<usize>,
    /// Requests per second
    #[arg(long, default_value_t = 1.0, help_heading = "Input")]
    rate: f64,
    /// Arrivals: `poisson`, `bursts:ON:OFF`, `diurnal:PERIOD:SWING` or `closed:CLIENTS:THINK`
    /// (seconds)
    #[arg(long, default_value = "poisson", help_heading = "Input")]
    arrivals: String,
    /// Trace file with the requests: `seconds,client,model[,inputs[,notice lead]]` a line
    #[arg(long, help_heading = "Input", hide_short_help = true)]
    trace: Option<PathBuf>,
    /// Share of announced requests
    #[arg(long, default_value_t = 0.0, help_heading = "Input")]
    notices: f64,
    /// Seconds from a notice to its request
    #[arg(long, default_value_t = 60.0, help_heading = "Input")]
    lead: f64,
    /// Inputs of a request: `N`, `geometric:MEAN` or `pareto:ALPHA:MAX`
    #[arg(long, default_value = "1", help_heading = "Input")]
    batch: String,
    /// Number of clients
    #[arg(long, default_value_t = 100, help_heading = "Input")]
    clients: u32,
    /// Share of the requests that one client sends
    #[arg(long, default_value_t = 0.0, help_heading = "Input", hide_short_help = true)]
    heavy_client: f64,
    /// Probability that the client leaves within a minute of a request
    #[arg(long, default_value_t = 0.0, help_heading = "Input", hide_short_help = true)]
    departures: f64,
    /// Probability that a job fails
    #[arg(long, default_value_t = 0.0, help_heading = "Server", hide_short_help = true)]
    failures: f64,
    /// Factor of the spread of job times: each time is multiplied by the factor to a power in [-1,
    /// 1]
    #[arg(long, default_value_t = 1.0, help_heading = "Server", hide_short_help = true)]
    spread: f64,
    /// Seconds from a request to its timeout
    #[arg(long, help_heading = "Limits")]
    timeout: Option<f64>,
    /// Policies: fcfs, priority[:BETA], sequential, srt, adaptive; as the paper prints them
    /// ss26:fcfs[:entry], ss26:priority[:BETA], with optional +exclusive; each with optional
    /// +fair[:STRENGTH]
    #[arg(long, value_delimiter = ',', default_value = "priority", help_heading = "Server")]
    policy: Vec<String>,
    /// Number of cores
    #[arg(long, default_value_t = 48, help_heading = "Server")]
    cores: u32,
    /// Materials that a dealer makes at a time: T_pre then takes no core, and the time of the
    /// profile
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    #[arg(help_heading = "Material", hide_short_help = true)]
    dealings: Option<u32>,
    /// Memory in GiB
    #[arg(long, default_value_t = 256.0, help_heading = "Server")]
    memory: f64,
    /// Phases that may run on several threads: `pre`, `on`, `both`. The assumed speed-up is
    /// Amdahl's
    #[arg(long, help_heading = "Server", hide_short_help = true)]
    moldable: Option<String>,
    /// Assumed parallel share of T_on, for `--moldable` and for `sequential`
    #[arg(long, default_value_t = 0.95, help_heading = "Server", hide_short_help = true)]
    on_parallel: f64,
    /// Assumed parallel share of T_pre, for `--moldable`
    #[arg(long, default_value_t = 0.95, help_heading = "Server", hide_short_help = true)]
    pre_parallel: f64,
    /// Stock to keep: `own` (of each client, from its rate), or, where material fits any client,
    /// `cold` (empty at the start) or `full`
    #[arg(long, help_heading = "Material")]
    pool: Option<String>,
    /// Largest share of the cores for one request
    #[arg(long, default_value_t = 1.0, help_heading = "Limits", hide_short_help = true)]
    batch_share: f64,
    /// Seed of the run
    #[arg(long, default_value_t = 0, help_heading = "Input")]
    seed: u64,
    /// Write every input and job, the queues and the metrics to this file, as JSON; with several
    /// policies, as a list
    #[arg(short, long, help_heading = "Output")]
    output: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// A file cannot be read or written, a setting is out of range, or a replay differs.
pub fn run(args: &SimulateArgs, as_json: bool) -> Result<()> {
    match &args.what {
        What::Run(args) => run_one(args, as_json),
        What::Report { file, output } => report::page(file, output.as_deref()),
        What::PaperTable2(args) => {
            let rows = table2(&profile(args.profile.as_deref())?, &args.range(), 48)?;
            deliver(args.output.as_deref(), as_json, &rows, &print_table2(&rows))
        }
        What::PaperSweeps(args) => {
            let rows = sweeps(&profile(args.profile.as_deref())?, &args.range())?;
            deliver(args.output.as_deref(), as_json, &rows, &print_sweeps(&rows))
        }
        What::Grids(args) => grids(args, as_json),
        What::Cluster(args) => cluster::run(args, as_json),
        What::Replay { file } => {
            let actions = Replay::parse(&read(file)?)?.run()?.len();
            let text = format!("{actions} actions, as recorded; every audit passed");
            deliver(None, as_json, &json!({ "actions": actions, "as_recorded": true }), &text)
        }
    }
}

fn read(path: &Path) -> Result<String> {
    tacit_cli::files::read_text(path)
}

/// Reads a profile file, or takes the shipped profile.
fn profile(path: Option<&Path>) -> Result<ProfileFile> {
    path.map_or_else(|| Ok(ProfileFile::shark()), |path| Ok(ProfileFile::parse(&read(path)?)?))
}

/// Writes the figures to a file, if one is named, and prints them as JSON or text.
fn deliver<T: serde::Serialize>(path: Option<&Path>, as_json: bool, value: &T, text: &str) -> Result<()> {
    if let Some(path) = path {
        let value = serde_json::to_value(value)?;
        output::write(path, value.to_string().as_bytes(), Alike::Json(&value))?;
    }
    match as_json {
        true => print::json(&serde_json::to_value(value)?),
        false => print::line(text.trim_end()),
    }
}

fn grids(args: &GridArgs, as_json: bool) -> Result<()> {
    let profile = profile(args.profile.as_deref())?;
    type Make = fn(&ProfileFile, &Range<u64>) -> Result<Grid, SimError>;
    let makers: [(&str, Make); 4] = [("A", grid_a), ("B", grid_b), ("C", grid_c), ("S", sensitivity)];
    let mut grids = Vec::new();
    for (name, make) in makers {
        if args.only.is_empty() || args.only.iter().any(|chosen| chosen.eq_ignore_ascii_case(name)) {
            let grid = make(&profile, &args.range())?;
            if !as_json {
                print::line(&print_grid(&grid))?;
            }
            grids.push(grid);
        }
    }
    if grids.is_empty() {
        bail!("--only names no grid: give A, B, C or S");
    }
    deliver(args.output.as_deref(), as_json, &grids, "")
}

/// Parses `name:number:number` with exactly `n` numbers.
fn numbers(text: &str, n: usize) -> Result<Vec<f64>> {
    let values: Result<Vec<f64>, _> = text.split(':').skip(1).map(str::parse).collect();
    let values = values.with_context(|| format!("{text:?}: a part is no number"))?;
    if values.len() != n || values.iter().any(|v| !(0.0..1e9).contains(v)) {
        bail!("{text:?}: expected {n} numbers after the name, separated by colons");
    }
    Ok(values)
}

fn arrivals(text: &str, rate: f64) -> Result<Arrivals> {
    if !(1e-6..1e6).contains(&rate) {
        bail!("rate {rate} is not between 1e-6 and 1e6 requests per second");
    }
    Ok(match text.split(':').next().unwrap_or("") {
        "poisson" => Arrivals::Poisson(rate),
        "bursts" => {
            let v = numbers(text, 2)?;
            Arrivals::Bursts { rate, on: v[0].max(1e-3), off: v[1] }
        }
        "diurnal" => {
            let v = numbers(text, 2)?;
            Arrivals::Diurnal { rate, period: v[0].max(1e-3), swing: v[1].min(1.0) }
        }
        "closed" => {
            let v = numbers(text, 2)?;
            Arrivals::Closed { clients: v[0] as u32, think: v[1] }
        }
        _ => bail!("unknown --arrivals {text:?}: give poisson, bursts, diurnal or closed"),
    })
}

fn batches(text: &str) -> Result<Batches> {
    Ok(match text.split(':').next().unwrap_or("") {
        "geometric" => Batches::Geometric(numbers(text, 1)?[0]),
        "pareto" => {
            let v = numbers(text, 2)?;
            Batches::Pareto { alpha: v[0].max(0.1), max: v[1] as u32 }
        }
        number => Batches::Fixed(
            number.parse().with_context(|| format!("--batch {text:?}: give N, geometric:MEAN or pareto:ALPHA:MAX"))?,
        ),
    })
}

/// Returns the scenario for one policy.
fn scenario(args: &RunArgs, profile: &ProfileFile, policy: &str) -> Result<Scenario> {
    let (mix, trace) = match &args.trace {
        Some(path) => {
            let (mix, trace) = parse_trace(&read(path)?)?;
            (mix, Some(trace))
        }
        None => (Mix::named(&args.workload)?, None),
    };
    let mut workload = Workload::new(mix, arrivals(&args.arrivals, args.rate)?, args.notices);
    workload.requests = args.requests.unwrap_or(workload.requests);
    workload.notice_lead = Span::from_secs(args.lead);
    workload.batches = batches(&args.batch)?;
    workload.clients = args.clients;
    workload.heavy_client = args.heavy_client;
    workload.departures = args.departures;
    workload.timeout = args.timeout.map(Span::from_secs);
    let policy: PolicySpec = policy.parse()?;
    let sequential = policy == PolicySpec::Sequential;
    let mut scenario = Scenario::new(profile, policy, args.cores, workload)?;
    let thread_counts = Config::thread_counts(args.cores);
    let moldable = args.moldable.as_deref();
    if let Some(unknown) = moldable.filter(|m| !["pre", "on", "both"].contains(m)) {
        bail!("--moldable {unknown:?}: expected pre, on or both");
    }
    if matches!(moldable, Some("on" | "both")) {
        scenario = scenario.with_on_threads(thread_counts.clone(), Speedup::Amdahl(args.on_parallel));
    } else if sequential {
        scenario = scenario.with_on_threads(vec![args.cores], Speedup::Amdahl(args.on_parallel));
    }
    if matches!(moldable, Some("pre" | "both")) {
        scenario = scenario.with_pre_threads(thread_counts, Speedup::Amdahl(args.pre_parallel));
    }
    scenario = scenario.with_stock(match args.pool.as_deref() {
        None => Stock::None,
        Some("own") => Stock::Own,
        Some("cold") => Stock::Cold,
        Some("full") => Stock::Full,
        Some(unknown) => bail!("--pool {unknown:?}: expected own, cold or full"),
    });
    if let Some(dealings) = args.dealings {
        scenario = scenario.with_dealings(dealings);
    }
    scenario.spread = args.spread;
    scenario.config.batch_share = args.batch_share;
    scenario.config.capacity.memory = (args.memory * (1u64 << 30) as f64) as u64;
    scenario.trace = trace;
    scenario.failures = args.failures;
    Ok(scenario)
}

/// Formats a policy's line of the table.
fn row(file: &RunFile<'_>, run: &Run) -> String {
    let (s, a) = (&file.summary, &file.summary.all);
    format!(
        "| {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.3} | {:.1} | {:.2} | {:.2} | {} |",
        file.policy,
        a.done,
        a.input_delay,
        a.waiting_time,
        a.p50,
        a.p95,
        a.p99,
        s.throughput,
        s.makespan,
        s.core_use,
        s.memory_use,
        run.reports.len() - a.done + s.refused,
    )
}

fn run_one(args: &RunArgs, as_json: bool) -> Result<()> {
    let profile = profile(args.profile.as_deref())?;
    let mut runs: Vec<(Scenario, Run)> = Vec::new();
    for policy in &args.policy {
        let mut scenario = scenario(args, &profile, policy)?;
        scenario.timeline = as_json || args.output.is_some();
        let run = scenario.run(args.seed)?;
        runs.push((scenario, run));
    }
    let mut table = vec![
        "| policy | inputs done | D | W | p50 | p95 | p99 | throughput | makespan | cores | memory | other ends |"
            .into(),
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |".into(),
    ];
    let files: Vec<RunFile<'_>> =
        runs.iter().map(|(scenario, run)| RunFile::from_run(scenario, args.seed, run)).collect();
    table.extend(files.iter().zip(&runs).map(|(file, (_, run))| row(file, run)));
    let (output, table) = (args.output.as_deref(), table.join("\n"));
    match files.as_slice() {
        [file] => deliver(output, as_json, file, &table),
        files => deliver(output, as_json, &files, &table),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_parse_or_say_why() {
        assert_eq!(arrivals("poisson", 2.0).unwrap(), Arrivals::Poisson(2.0));
        let bursts = Arrivals::Bursts { rate: 2.0, on: 60.0, off: 30.0 };
        assert_eq!(arrivals("bursts:60:30", 2.0).unwrap(), bursts);
        assert_eq!(batches("3").unwrap(), Batches::Fixed(3));
        assert_eq!(batches("pareto:1.5:64").unwrap(), Batches::Pareto { alpha: 1.5, max: 64 });
        for text in ["bursts", "bursts:1", "bursts:1:x", "diurnal:1:-1", "lunar"] {
            assert!(arrivals(text, 1.0).is_err(), "{text}");
        }
        assert!(arrivals("poisson", 0.0).is_err());
        assert!(batches("many").is_err());
    }
}
