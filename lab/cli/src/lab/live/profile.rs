//! The costs of each network alone, measured once and kept in the campaign's folder. Every cell
//! starts with what the server learns from these runs. Number and rate of requests follow from the
//! costs.
use super::settings::{LIMIT_S, MAX_REQUESTS, Settings, affordable};
use super::watch::{Phases, Watched};
use crate::lab::files::{read_if_present, replace};
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use tacit_sched::profile::{Sample, Speedup};
use tacit_sched::{BoundTo, ModelSpec, PhaseSpec, Span, Time};
use tacit_sim::{Arrival, RecordedJob};

pub const PROFILE_FILE: &str = "profile.json";
const RUNS_PER_NET: usize = 3;
/// Overhead of a cell besides its requests: keys, connections, the server's start and end, in
/// seconds.
const CELL_S: f64 = 15.0;

/// The costs of a network that runs alone, in seconds: medians.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alone {
    pub net: String,
    /// T_pre; absent if the back end has no offline phase.
    pub pre_s: Option<f64>,
    /// T_on, seconds.
    pub on_s: f64,
    pub runs: usize,
}

/// The common starting point of all cells of a campaign.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The networks, in the order of their roles.
    pub nets: Vec<Alone>,
    pub requests: usize,
    /// Requests a second, by workload.
    pub rates: BTreeMap<String, f64>,
    /// Expected duration of all cells together, in seconds.
    pub expected_s: f64,
}

/// Returns the runs to measure: all networks in turn, so that only the network differs.
pub fn runs(nets: usize) -> Vec<Arrival> {
    let runs = (0..RUNS_PER_NET * nets).map(|i| Arrival {
        at: Time::ZERO,
        client: i as u64,
        model: (i % nets) as u32,
        inputs: 1,
        lead: None,
        leaves: None,
    });
    runs.collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(tacit_floats::rising);
    values.get(values.len() / 2).copied()
}

fn lengths(runs: &[Phases], job_of: fn(&Phases) -> Option<RecordedJob>) -> Vec<f64> {
    runs.iter().filter_map(job_of).map(|job| job.length()).collect()
}

impl Profile {
    /// Computes the profile from the server's status after [`runs`], one after the other, by
    /// clients with these fingerprints.
    pub fn from_runs(settings: &Settings, watched: &Watched, clients: &[String]) -> anyhow::Result<Self> {
        let phases = watched.phases();
        let mut nets = Vec::new();
        for (i, net) in settings.nets.iter().enumerate() {
            let names_of_net = clients.iter().skip(i).step_by(settings.nets.len());
            let phases_of_net: Vec<Phases> =
                names_of_net.filter_map(|client| phases.get(client.as_str()).copied()).collect();
            let online_s = lengths(&phases_of_net, |p| p.online);
            let runs = online_s.len();
            let on_s =
                median(online_s).with_context(|| format!("{net}: the server's status has no run of this network"))?;
            nets.push(Alone { net: net.clone(), pre_s: median(lengths(&phases_of_net, |p| p.offline)), on_s, runs });
        }
        Self::plan(settings, nets)
    }

    fn plan(settings: &Settings, nets: Vec<Alone>) -> anyhow::Result<Self> {
        let costs: Vec<f64> = nets.iter().map(|net| net.pre_s.unwrap_or(0.0) + net.on_s).collect();
        let (mut rates, mut request_s) = (BTreeMap::new(), 0.0);
        let cells = settings.cells().len() as f64;
        for workload in &settings.traffic.workloads {
            let mean_s = settings.mean(workload, &costs)?.max(1e-6);
            let rate = settings.traffic.rate.unwrap_or(settings.traffic.load / mean_s);
            // Requests arrive at this rate; in the worst case the server answers one at a time.
            request_s += mean_s.max(1.0 / rate) * cells / settings.traffic.workloads.len() as f64;
            rates.insert(workload.clone(), rate);
        }
        let requests = settings.traffic.requests.unwrap_or_else(|| affordable(request_s, cells * CELL_S));
        Ok(Self { nets, requests, rates, expected_s: request_s * requests as f64 + cells * CELL_S })
    }

    /// Returns a note if there are fewer requests than the default, or if the campaign takes long.
    pub fn note(&self, settings: &Settings) -> Option<String> {
        let minutes = (self.expected_s / 60.0).ceil();
        if self.expected_s > LIMIT_S * 1.05 {
            return Some(format!(
                "this takes about {minutes} minutes with {} requests a cell; fewer or smaller networks (--nets, --model none), policies or \
                 workloads take less",
                self.requests
            ));
        }
        let fewer = settings.traffic.requests.is_none() && self.requests < MAX_REQUESTS;
        fewer.then(|| {
            format!("{} requests a cell, for {} would take longer than it should", self.requests, MAX_REQUESTS)
        })
    }

    /// Returns the networks for scheduler and simulator. `dealt`: whether a dealer makes the
    /// material.
    pub fn models(&self, backend: &str, dealt: bool) -> Vec<ModelSpec> {
        let models = self.nets.iter().map(|net| ModelSpec {
            name: net.net.clone(),
            backend: backend.to_owned(),
            link: "loopback".into(),
            binding: BoundTo::Client,
            material_bytes: 0,
            dealt,
            pre: net.pre_s.map(phase),
            on: phase(net.on_s),
        });
        models.collect()
    }

    pub fn write(&self, dir: &Path) -> anyhow::Result<()> {
        replace(&dir.join(PROFILE_FILE), serde_json::to_vec_pretty(self)?)
    }

    pub fn read(dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = dir.join(PROFILE_FILE);
        let Some(text) = read_if_present(&path)? else { return Ok(None) };
        let read: Self = serde_json::from_slice(&text).with_context(|| damaged_profile(&path))?;
        let seconds = read.nets.iter().flat_map(|net| [net.pre_s.unwrap_or(0.0), net.on_s]);
        let is_sound = seconds.chain([read.expected_s]).all(|s| (0.0..1e9).contains(&s))
            && read.rates.values().all(|rate| (1e-6..1e6).contains(rate))
            && (1..=100_000).contains(&read.requests);
        ensure!(is_sound, "{}", damaged_profile(&path));
        Ok(Some(read))
    }
}

fn phase(seconds: f64) -> PhaseSpec {
    PhaseSpec { first: Sample { time: Span::from_secs(seconds), memory: 0 }, speedup: Speedup::None }
}

fn damaged_profile(path: &Path) -> String {
    format!("{}: remove it, and the networks are measured again", path.display())
}
