//! Measured runs, and how far parties, threads and links work in parallel in them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tacit_backends::{Costs, DealingCost, PartyCost, PhaseCost, Role, Sides};
use tacit_net::Phase;

use crate::counts::{Counts, Primitive, counts};
use crate::fit::{Row, fit};
use crate::link::{Link, OnLink};

/// One measured phase, with both parties on the calibrated machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The client's wall time, seconds.
    pub wall_s: f64,
    /// Processor time of client and server, seconds.
    pub cpu_s: Sides<f64>,
    /// Largest resident sets of client and server, bytes.
    pub peak_bytes: Sides<u64>,
}

/// The link of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeenLink {
    /// Rate each way, bit/s.
    pub bits: f64,
    /// Round trip, seconds.
    pub rtt_s: f64,
    /// Bytes that pass at once after a pause.
    pub bucket: f64,
}

/// One measured run of a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The network's name.
    pub network: String,
    /// Threads of each party.
    pub threads: u32,
    /// The link between the parties; `None`: loopback.
    pub link: Option<SeenLink>,
    /// The costs that the network's lowering declares.
    pub costs: Costs,
    /// The phases that ran.
    pub phases: BTreeMap<Phase, Observed>,
}

/// The median run of a network among runs of one kind, so that a disturbed run does not count.
pub(crate) struct MedianRun<'a> {
    /// Index of the network.
    pub network: usize,
    /// The run.
    pub run: &'a Observation,
    /// The measured phase.
    pub took: Observed,
}

impl<'a> MedianRun<'a> {
    /// Returns, for each network with one thread a party, the median run on loopback and the median
    /// run over links.
    pub fn medians(runs: &'a [Observation], networks: &[String], phase: Phase) -> Vec<Self> {
        let mut samples = Vec::new();
        for (network_index, network) in networks.iter().enumerate() {
            for is_far in [false, true] {
                let median = median_run(runs, network, phase, |run| run.threads == 1 && run.link.is_some() == is_far);
                samples.extend(median.map(|(run, took)| Self { network: network_index, run, took }));
            }
        }
        samples
    }

    /// Whether the run went over a link.
    pub fn is_far(&self) -> bool {
        self.run.link.is_some()
    }

    /// Counts the primitives of a party.
    pub fn counts(&self, phase: Phase, role: Role) -> Counts {
        let costs = &self.run.costs;
        counts(costs, phase, role, if self.is_far() { *role.value_of(&costs.carried(phase)) } else { 0 })
    }
}

fn median_run<'a>(
    runs: &'a [Observation],
    network: &str,
    phase: Phase,
    is_wanted: impl Fn(&Observation) -> bool,
) -> Option<(&'a Observation, Observed)> {
    let of_network = runs.iter().filter(|run| run.network == network && is_wanted(run));
    let mut observations: Vec<(&Observation, &Observed)> =
        of_network.filter_map(|run| Some((run, run.phases.get(&phase)?))).collect();
    observations.sort_by(|(_, a), (_, b)| tacit_floats::rising(&a.wall_s, &b.wall_s));
    let (run, middle) = *observations.get(observations.len() / 2)?;
    // A process that has answered before holds more memory, so the smallest peak counts.
    let peak_bytes = Role::each(|role| {
        observations
            .iter()
            .map(|(_, observed)| *role.value_of(&observed.peak_bytes))
            .min()
            .expect("there is one at least")
    });
    Some((run, Observed { peak_bytes, ..*middle }))
}

impl Observation {
    /// Whether the run had one thread and no slowed link: primitives are fitted to such runs.
    fn is_plain(&self) -> bool {
        self.threads == 1 && self.link.is_none()
    }

    /// Returns the time that the phase spends on its link; `None` on loopback.
    fn on_link(&self, phase: Phase) -> Option<OnLink> {
        let SeenLink { bits, rtt_s, bucket } = self.link?;
        let link = Link {
            name: String::new(),
            up_bits_per_s: bits,
            down_bits_per_s: bits,
            rtt_s,
            bucket,
            tunnel_cpu_s_per_byte: 0.0,
        };
        Some(link.phase_time(&self.costs, phase))
    }
}

/// Counts the primitives of dealing.
pub(crate) fn dealing_counts(dealing: &DealingCost) -> Counts {
    let client = PartyCost { work: dealing.work, ..PartyCost::default() };
    let (up_bytes, down_bytes) = (dealing.client_bytes, dealing.server_bytes);
    let offline = PhaseCost { up_bytes, down_bytes, client, ..PhaseCost::default() };
    counts(&Costs { offline, ..Costs::default() }, Phase::Offline, Role::Client, 0)
}

/// Processor times up to this are too short to derive a share from, seconds; wall times up to four
/// times as much.
const MIN_PHASE_S: f64 = 5e-3;

fn median_share(mut shares: Vec<f64>) -> Option<f64> {
    shares.sort_by(tacit_floats::rising);
    shares.get(shares.len() / 2).map(|share| share.clamp(0.0, 1.0))
}

/// How far parties and threads work in parallel in a phase.
pub(crate) struct Parallelism {
    /// Share of the shorter party's time that adds to the longer party's, 0 to 1.
    pub parties_apart: f64,
    /// Share of the computing that several threads divide among themselves, 0 to 1.
    pub threads_parallel: f64,
}

/// Measures how far parties and threads work in parallel: medians over the networks that run long
/// enough.
pub(crate) fn parallelism(runs: &[Observation], networks: &[String], phase: Phase) -> Parallelism {
    let (mut parties_apart, mut threads_parallel) = (Vec::new(), Vec::new());
    for network in networks {
        let Some((_, plain)) = median_run(runs, network, phase, Observation::is_plain) else { continue };
        let [shorter_s, longer_s] = sorted(plain.cpu_s);
        if shorter_s > MIN_PHASE_S {
            parties_apart.push((plain.wall_s - longer_s) / shorter_s);
        }
        if let Some((_, two_threads)) = median_run(runs, network, phase, |run| run.threads == 2 && run.link.is_none())
            && plain.wall_s > 4.0 * MIN_PHASE_S
        {
            threads_parallel.push(2.0 * (1.0 - two_threads.wall_s / plain.wall_s));
        }
    }
    // Without a network that runs long enough, parties take turns, and threads share no work.
    Parallelism {
        parties_apart: median_share(parties_apart).unwrap_or(1.0),
        threads_parallel: median_share(threads_parallel).unwrap_or(0.0),
    }
}

fn sorted(Sides { client, server }: Sides<f64>) -> [f64; 2] {
    [client.min(server), client.max(server)]
}

/// Fits the time that offline phases take beyond the parties' own computing to the material that is
/// dealt.
pub(crate) fn dealer(runs: &[Observation], networks: &[String], parties_apart: f64) -> BTreeMap<Primitive, f64> {
    let rows = networks.iter().enumerate().filter_map(|(index, network)| {
        let run = runs.iter().find(|run| run.network == *network)?;
        let (_, observed) = median_run(runs, network, Phase::Offline, Observation::is_plain)?;
        let [shorter_s, longer_s] = sorted(observed.cpu_s);
        let measured = (observed.wall_s - longer_s - parties_apart * shorter_s).max(0.0);
        let dealing = &run.costs.dealing;
        (*dealing != DealingCost::default()).then(|| Row { network: index, counts: dealing_counts(dealing), measured })
    });
    let rows: Vec<Row> = rows.collect();
    let seconds = if rows.is_empty() { [0.0; _] } else { fit(&rows).seconds };
    Primitive::ALL.into_iter().zip(seconds).filter(|(_, seconds)| *seconds > 0.0).collect()
}

/// Measures the share of the shorter of computing and transferring that overlaps the longer, in
/// runs over links.
pub(crate) fn hidden_share(runs: &[Observation], networks: &[String], phase: Phase) -> Option<f64> {
    let mut shares = Vec::new();
    for network in networks {
        let Some((_, plain)) = median_run(runs, network, phase, Observation::is_plain) else { continue };
        for run in runs.iter().filter(|run| run.network == *network && run.threads == 1) {
            let (Some(on_link), Some(took)) = (run.on_link(phase), run.phases.get(&phase)) else { continue };
            let OnLink { transfer_s, round_trips_s, .. } = on_link;
            let [shorter_s, longer_s] = [plain.wall_s.min(transfer_s), plain.wall_s.max(transfer_s)];
            if shorter_s > 4.0 * MIN_PHASE_S {
                shares.push(1.0 - (took.wall_s - round_trips_s - longer_s) / shorter_s);
            }
        }
    }
    median_share(shares)
}
