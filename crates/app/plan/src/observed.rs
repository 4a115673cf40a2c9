//! Measured runs, and how far parties, threads and links work in parallel in them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tacit_backends::{Costs, DealingCost, PartyCost, PhaseCost, Role, Sides};
use tacit_net::Phase;

use crate::counts::{Counts, Primitive, counts};
use crate::fit::fit;
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
                let median_run = median(runs, network, phase, |run| run.threads == 1 && run.link.is_some() == is_far);
                samples.extend(median_run.map(|(run, took)| Self { network: network_index, run, took }));
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

fn median<'a>(
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

    /// The share of the phase that its link takes.
    fn on_link(&self, phase: Phase) -> Option<OnLink> {
        let SeenLink { bits, rtt_s, bucket } = self.link?;
        let link = Link { name: String::new(), up_bits: bits, down_bits: bits, rtt_s, bucket, tunnel_s: 0.0 };
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

/// Shortest phase from which shares are derived, seconds.
const TELLING_S: f64 = 5e-3;

/// Returns the median of the measured shares.
fn middle(mut shares: Vec<f64>) -> Option<f64> {
    shares.sort_by(tacit_floats::rising);
    shares.get(shares.len() / 2).map(|share| share.clamp(0.0, 1.0))
}

/// Measures the part of the shorter party's time that adds to the phase, and the part of computing
/// that threads share. Both are medians over the networks that run long enough.
pub(crate) fn shares(runs: &[Observation], networks: &[String], phase: Phase) -> [f64; 2] {
    let (mut apart, mut parallel) = (Vec::new(), Vec::new());
    for network in networks {
        let Some((_, plain)) = median(runs, network, phase, Observation::is_plain) else { continue };
        let Sides { client: a, server: b } = plain.cpu_s;
        if a.min(b) > TELLING_S {
            apart.push((plain.wall_s - a.max(b)) / a.min(b));
        }
        if let Some((_, two)) = median(runs, network, phase, |run| run.threads == 2 && run.link.is_none())
            && plain.wall_s > 4.0 * TELLING_S
        {
            parallel.push(2.0 * (1.0 - two.wall_s / plain.wall_s));
        }
    }
    // Without a network that runs long enough, parties take turns, and threads share no work.
    [middle(apart).unwrap_or(1.0), middle(parallel).unwrap_or(0.0)]
}

/// Fits the time that offline phases take beyond the parties' own computing to the material that is
/// dealt.
pub(crate) fn dealer(runs: &[Observation], networks: &[String], apart: f64) -> BTreeMap<Primitive, f64> {
    let rows = networks.iter().enumerate().filter_map(|(network_index, network)| {
        let run = runs.iter().find(|run| run.network == *network)?;
        let (_, observed) = median(runs, network, Phase::Offline, Observation::is_plain)?;
        let Sides { client: a, server: b } = observed.cpu_s;
        let waited = (observed.wall_s - a.max(b) - apart * a.min(b)).max(0.0);
        (run.costs.dealing != DealingCost::default())
            .then(|| (network_index, dealing_counts(&run.costs.dealing), waited))
    });
    let rows: Vec<(usize, Counts, f64)> = rows.collect();
    let seconds = if rows.is_empty() { [0.0; _] } else { fit(&rows).seconds };
    Primitive::ALL.into_iter().zip(seconds).filter(|(_, seconds)| *seconds > 0.0).collect()
}

/// Measures the share of the shorter of computing and transferring that overlaps the longer, in
/// runs over links.
pub(crate) fn hidden_share(runs: &[Observation], networks: &[String], phase: Phase) -> Option<f64> {
    let mut shares = Vec::new();
    for network in networks {
        let Some((_, plain)) = median(runs, network, phase, Observation::is_plain) else { continue };
        for run in runs.iter().filter(|run| run.network == *network && run.threads == 1) {
            let (Some(on_link), Some(took)) = (run.on_link(phase), run.phases.get(&phase)) else { continue };
            let OnLink { transfer_s, round_trips_s, .. } = on_link;
            let [short, long] = [plain.wall_s.min(transfer_s), plain.wall_s.max(transfer_s)];
            if short > 4.0 * TELLING_S {
                shares.push(1.0 - (took.wall_s - round_trips_s - long) / short);
            }
        }
    }
    middle(shares)
}
