//! `tacit simulate cluster`: several servers, and the front that distributes clients among them.
use super::{deliver, profile};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;
use tacit_sched::policy::PolicySpec;
use tacit_sim::{Arrivals, ClusterSpec, ClusterSummary, Death, Mix, Placement, Scenario, Workload};

/// Simulate clusters of like nodes, with the placement of `tacit cluster`
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    /// Profile file with measured job times [default: of the public SHARK code, shipped with tacit]
    #[arg(long, help_heading = "Input")]
    profile: Option<PathBuf>,
    /// Workload: `swiftsnni-mixed`, `swiftsnni-light`, or models with their shares: m1:9,hinet:1
    #[arg(long, default_value = "swiftsnni-light", help_heading = "Input")]
    workload: String,
    /// Numbers of nodes
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64", value_parser = clap::value_parser!(u32).range(1..=1024))]
    #[arg(help_heading = "Server")]
    nodes: Vec<u32>,
    /// Number of requests
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    #[arg(help_heading = "Input")]
    requests: u32,
    /// Work that arrives, as a share of the capacity of all cores
    #[arg(long, default_value_t = 0.7, value_parser = share, help_heading = "Input")]
    load: f64,
    /// Number of cores of each node
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    #[arg(help_heading = "Server")]
    cores: u32,
    /// Number of clients for each node
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    #[arg(help_heading = "Input")]
    clients: u32,
    /// Placement of clients: home (as built), name (by the names alone), anew (every request to the
    /// shortest wait)
    #[arg(long, value_delimiter = ',', default_value = "home,name,anew", value_parser = placement)]
    #[arg(help_heading = "Server")]
    placement: Vec<Placement>,
    /// Policy of the nodes' schedulers
    #[arg(long, default_value = "adaptive", help_heading = "Server")]
    policy: String,
    /// Number of nodes that die, one after the other, in the middle of the requests
    #[arg(long, default_value_t = 0, help_heading = "Server")]
    deaths: u32,
    /// Seconds of a lease; nodes report five times per lease
    #[arg(long, default_value_t = 5.0, value_parser = seconds, help_heading = "Server")]
    lease: f64,
    /// Seed of the run
    #[arg(long, default_value_t = 0, help_heading = "Input")]
    seed: u64,
    /// Write all figures to this file, as JSON
    #[arg(short, long, help_heading = "Output")]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    summary: ClusterSummary,
    /// Rate of arriving requests, a second.
    rate: f64,
    /// Duration of this simulation, seconds.
    took_s: f64,
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.001..=2.0).contains(share)).ok_or_else(|| "a share from 0.001 to 2".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|s| (0.01..=1e6).contains(s)).ok_or_else(|| "seconds from 0.01 to 10^6".into())
}

fn placement(text: &str) -> Result<Placement, String> {
    match text {
        "home" => Ok(Placement::Home),
        "name" => Ok(Placement::Name),
        "anew" => Ok(Placement::Anew),
        _ => Err("home, name or anew".into()),
    }
}

/// Parses a built-in mix, or `m1:9,hinet:1`.
fn mix(text: &str) -> Result<Mix> {
    if !text.contains(':') {
        return Ok(Mix::named(text)?);
    }
    Ok(Mix { name: "given".into(), counts: text.split(',').map(model_share).collect::<Result<_>>()? })
}

/// Parses a model with its share: `m1:9`.
fn model_share(part: &str) -> Result<(String, u32)> {
    let (name, count) = part.split_once(':').with_context(|| format!("{part:?}: expected MODEL:SHARE"))?;
    let count = count.parse().ok().filter(|count| (1..=1_000_000).contains(count));
    Ok((name.to_owned(), count.with_context(|| format!("{part:?}: a share is a whole number from 1"))?))
}

pub fn run(args: &ClusterArgs, as_json: bool) -> Result<()> {
    let profile = profile(args.profile.as_deref())?;
    let policy: PolicySpec = args.policy.parse()?;
    let mut rows = Vec::new();
    for &nodes in &args.nodes {
        if args.deaths >= nodes.max(1) && args.deaths > 0 {
            bail!("--deaths {} is too high for {nodes} nodes: one node must stay", args.deaths);
        }
        let mut workload = Workload::new(mix(&args.workload)?, Arrivals::Poisson(1.0), 0.0);
        workload.requests = args.requests as usize;
        workload.clients = args.clients.saturating_mul(nodes);
        let mut scenario = Scenario::new(&profile, policy.clone(), args.cores, workload)?;
        let rate = args.load * f64::from(nodes * args.cores) / core_seconds(&scenario);
        scenario.workload.arrivals = Arrivals::Poisson(rate);
        let length_s = f64::from(args.requests) / rate;
        for &placement in &args.placement {
            let spec = ClusterSpec {
                scenario: scenario.clone(),
                nodes: nodes as usize,
                placement,
                report_s: args.lease / 5.0,
                lease_s: args.lease,
                deaths: (0..args.deaths).map(|k| args.death(k, length_s)).collect(),
            };
            let began_at = Instant::now();
            let summary = spec.run(args.seed)?;
            rows.push(Row { summary, rate, took_s: began_at.elapsed().as_secs_f64() });
        }
    }
    deliver(args.output.as_deref(), as_json, &rows, &table(&rows))
}

impl ClusterArgs {
    /// Returns the death of node `k` in a run of `length_s` seconds.
    fn death(&self, k: u32, length_s: f64) -> Death {
        let share = 0.3 + 0.4 * f64::from(k) / f64::from(self.deaths.max(1));
        Death { node: k as usize, at_s: length_s * share }
    }
}

/// Returns the mean core-seconds of a request, by the shares of the models.
fn core_seconds(scenario: &Scenario) -> f64 {
    let counts = &scenario.workload.mix.counts;
    let total: f64 = counts.iter().map(|(_, count)| f64::from(*count)).sum();
    let model_texts = scenario.models.iter().zip(counts).map(|(model, (_, count))| {
        let seconds = model.pre.map_or(0.0, |pre| pre.first.time.secs()) + model.on.first.time.secs();
        seconds * f64::from(*count)
    });
    model_texts.sum::<f64>() / total
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "nodes  placement  requests/s        D        W      p95      p99  answers/s  cores  busiest  moved  lost   took\n",
    );
    for Row { summary: s, rate, took_s } in rows {
        writeln!(
            text,
            "{:5}  {:9}  {rate:10.2}  {:6.2} s {:6.2} s {:6.2} s {:6.2} s  {:9.2}  {:3.0} %  {:7.2}  {:5}  {:4}  {took_s:4.0} s",
            s.nodes,
            format!("{:?}", s.placement).to_lowercase(),
            s.input_delay,
            s.waiting_time,
            s.p95,
            s.p99,
            s.throughput,
            100.0 * s.core_use,
            s.busiest,
            s.moved,
            s.lost
        )
        .expect("a string takes everything");
    }
    text
}
