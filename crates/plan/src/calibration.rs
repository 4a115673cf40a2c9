//! What primitives take on a machine, per back end, phase and party: fitted to measured runs of small
//! networks.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tacit_backends::{Costs, DealingCost, PartyCost, PhaseCost};
use tacit_net::Phase;

use crate::counts::{Counts, Primitive, counts};
use crate::error::{PlanError, wrong};
use crate::fit::{Fit, fit, seconds_of};

/// Format of the file.
pub const VERSION: u32 = 2;
const BUILT_IN: &str = include_str!("../calibration.toml");
/// Largest file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// One measured phase, both parties on the machine that is calibrated, over loopback.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The client's wall time, seconds.
    pub wall_s: f64,
    /// Processor time of client and server, seconds.
    pub cpu_s: [f64; 2],
    /// Largest resident sets of client and server, bytes.
    pub peak_bytes: [u64; 2],
}

/// A link that a run went over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeenLink {
    /// Rate each way, bit/s.
    pub bits: f64,
    /// Round trip, seconds.
    pub rtt_s: f64,
}

/// One measured run of a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The network's name.
    pub network: String,
    /// Threads of each party.
    pub threads: u32,
    /// What was between them; `None`: loopback.
    pub link: Option<SeenLink>,
    /// What its lowering declares.
    pub costs: Costs,
    /// The phases that were run.
    pub phases: BTreeMap<Phase, Observed>,
}

/// A party's part of a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Seconds for each primitive that the phase has; those that are not named take none.
    pub seconds: BTreeMap<Primitive, f64>,
    /// Root mean square of relative errors, each network predicted from the others. 0.1 is 10 %.
    pub error: f64,
    /// Resident bytes of the process: so many, and so many for each that the plan declares for the phase.
    pub resident: [f64; 2],
}

impl Rates {
    /// From runs, each of the network with this number.
    fn new(rows: &[(usize, Costed<'_>, Observed)], party: usize) -> Self {
        let row = |(at, costed, seen): &(usize, Costed<'_>, Observed)| {
            (*at, counts(costed.cost, costed.party(party), costed.carried(party)), seen.cpu_s[party])
        };
        let Fit { seconds, error } = fit(&rows.iter().map(row).collect::<Vec<_>>());
        let named = Primitive::ALL.into_iter().zip(seconds).filter(|(_, seconds)| *seconds > 0.0);
        // Two columns of the same solver.
        let row = |(at, costed, seen): &(usize, Costed<'_>, Observed)| {
            let mut columns: Counts = [0.0; _];
            (columns[0], columns[1]) = (1.0, costed.party(party).peak_memory_bytes as f64);
            (*at, columns, seen.peak_bytes[party] as f64)
        };
        let memory = fit(&rows.iter().map(row).collect::<Vec<_>>()).seconds;
        // TOML has infinities, JSON has not.
        Self { seconds: named.collect(), error: error.min(f64::from(u16::MAX)), resident: [memory[0], memory[1]] }
    }

    /// Takes over what a byte costs over a link.
    fn carry_as(&mut self, other: &Self) {
        let carried = other.seconds.get(&Primitive::Carried);
        self.seconds.extend(carried.map(|seconds| (Primitive::Carried, *seconds)));
    }

    /// Most resident bytes in a phase whose plan declares so many.
    #[must_use]
    pub fn resident_bytes(&self, declared: u64) -> u64 {
        (self.resident[0] + self.resident[1] * declared as f64) as u64
    }

    /// Seconds for each of [`Primitive::ALL`].
    #[must_use]
    pub fn array(&self) -> Counts {
        Primitive::ALL.map(|primitive| self.seconds.get(&primitive).copied().unwrap_or(0.0))
    }
}

/// One phase of a back end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseRates {
    /// The client's part.
    pub client: Rates,
    /// The server's part.
    pub server: Rates,
    /// What of the shorter party's time comes on top of the longer one's: 0 if they always work side by side,
    /// 1 if one waits for the other.
    pub apart: f64,
    /// Share of the computing that more threads share.
    pub parallel: f64,
    /// Share of the shorter one of computing and transferring that happens while the longer one goes on.
    pub hidden: f64,
    /// Seconds for each primitive of dealing, as far as both parties wait for their dealer: what the phase
    /// takes beyond their own computing. Nothing where nobody deals.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dealer: BTreeMap<Primitive, f64>,
}

impl PhaseRates {
    /// Seconds that the parties wait for their dealer.
    #[must_use]
    pub fn dealer_s(&self, dealing: &DealingCost) -> f64 {
        let seconds = Primitive::ALL.map(|primitive| self.dealer.get(&primitive).copied().unwrap_or(0.0));
        seconds_of(&seconds, &dealing_counts(dealing))
    }
}

/// What of dealing takes time, in numbers.
fn dealing_counts(dealing: &DealingCost) -> Counts {
    let party = PartyCost { work: dealing.work, ..PartyCost::default() };
    let sent = PhaseCost { up_bytes: dealing.client_bytes, down_bytes: dealing.server_bytes, ..PhaseCost::default() };
    counts(&sent, &party, 0)
}

/// A back end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendRates {
    /// Its phases; those that it does not have are not there.
    pub phases: BTreeMap<Phase, PhaseRates>,
    /// Names of the networks that it was measured on.
    pub networks: Vec<String>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// [`VERSION`].
    pub version: u32,
    /// Processor, cores.
    pub machine: String,
    /// From what, in words.
    pub made: String,
    /// Back ends by name.
    pub backends: BTreeMap<String, BackendRates>,
    /// Seconds of a multiplication of the float network, run where it is.
    pub local_mac_s: f64,
}

impl Calibration {
    /// Fits a back end's rates to what was measured; runs of one network are a group. What happens while
    /// bytes travel, which is the protocol's and not the machine's, and what a byte costs there beside what
    /// it costs on loopback, are as `before` where no run went over a link.
    #[must_use]
    pub fn of_backend(runs: &[Observation], before: Option<&BackendRates>) -> BackendRates {
        let mut networks: Vec<String> = Vec::new();
        for run in runs {
            if !networks.contains(&run.network) {
                networks.push(run.network.clone());
            }
        }
        let mut phases = BTreeMap::new();
        for phase in Phase::ALL {
            let mut rows = Vec::new();
            for (at, network) in networks.iter().enumerate() {
                for is_far in [false, true] {
                    let wanted = |run: &Observation| run.threads == 1 && run.link.is_some() == is_far;
                    let seen = median(runs, network, phase, wanted);
                    rows.extend(seen.map(|(costed, seen)| (at, costed, seen)));
                }
            }
            if rows.is_empty() {
                continue;
            }
            let [mut client, mut server] = [0, 1].map(|party| Rates::new(&rows, party));
            let [apart, parallel] = shares(runs, &networks, phase);
            let known = before.and_then(|rates| rates.phases.get(&phase));
            if let Some(known) = known.filter(|_| !rows.iter().any(|(_, costed, _)| costed.is_far)) {
                client.carry_as(&known.client);
                server.carry_as(&known.server);
            }
            let hidden = hidden(runs, &networks, phase).or(known.map(|known| known.hidden)).unwrap_or(0.0);
            let dealer = if phase == Phase::Offline { dealer(runs, &networks, apart) } else { BTreeMap::new() };
            phases.insert(phase, PhaseRates { client, server, apart, parallel, hidden, dealer });
        }
        BackendRates { phases, networks }
    }

    /// The one that comes with the program: what it was measured on is in it.
    #[must_use]
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN).expect("a test reads it")
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is none, or says what cannot be.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let io = |source| PlanError::Io { path: path.to_owned(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(io)?;
        file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(io)?;
        if text.len() as u64 > MAX_FILE {
            return wrong(path.display().to_string(), format!("it is larger than {MAX_FILE} bytes"));
        }
        Self::parse(&text).map_err(|detail| PlanError::Wrong { what: path.display().to_string(), detail })
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        if read.version != VERSION {
            return Err(format!(
                "format {}, and {VERSION} is read: make it again with `tacit calibrate`",
                read.version
            ));
        }
        let phases = || read.backends.values().flat_map(|backend| backend.phases.values());
        let rates = || phases().flat_map(|phase| [&phase.client, &phase.server]);
        let times = rates().flat_map(|rates| rates.seconds.values().chain([&rates.error]).chain(&rates.resident));
        let times = times.chain(phases().flat_map(|phase| phase.dealer.values()));
        // Of a billion seconds nobody makes a plan, and sums of larger ones are no numbers.
        if times.chain([&read.local_mac_s]).any(|time| !(0.0..=1e9).contains(time)) || read.local_mac_s == 0.0 {
            return Err("it has a time that is no time".into());
        }
        let shares = phases().flat_map(|phase| [phase.apart, phase.parallel, phase.hidden]);
        if shares.into_iter().any(|share| !(0.0..=1.0).contains(&share)) {
            return Err("`apart`, `parallel` and `hidden` must be from 0 to 1".into());
        }
        Ok(read)
    }

    /// As TOML.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("names and numbers only")
    }
}

/// A phase's cost by party.
struct Costed<'a> {
    cost: &'a PhaseCost,
    /// Bytes that the dealer sent to the client over the same link as the server.
    dealt: u64,
    /// It ran over a link.
    is_far: bool,
}

impl Costed<'_> {
    /// Bytes that cross a link at a party.
    fn carried(&self, party: usize) -> u64 {
        if self.is_far { self.cost.bytes() + if party == 0 { self.dealt } else { 0 } } else { 0 }
    }

    fn party(&self, party: usize) -> &PartyCost {
        [&self.cost.client, &self.cost.server][party]
    }
}

/// The run of a network in the middle of those that are wanted: one that something else disturbed is not it.
fn median<'a>(
    runs: &'a [Observation],
    network: &str,
    phase: Phase,
    wanted: impl Fn(&Observation) -> bool,
) -> Option<(Costed<'a>, Observed)> {
    let of_network = runs.iter().filter(|run| run.network == network && wanted(run));
    let mut seen: Vec<(&Observation, &Observed)> =
        of_network.filter_map(|run| Some((run, run.phases.get(&phase)?))).collect();
    seen.sort_by(|(_, a), (_, b)| a.wall_s.total_cmp(&b.wall_s));
    let (run, middle) = seen.get(seen.len() / 2)?;
    // A process that has answered before holds more: the peak of one is that of its first answer.
    let fresh =
        |party: usize| seen.iter().map(|(_, seen)| seen.peak_bytes[party]).min().expect("there is one at least");
    let seen = Observed { peak_bytes: [fresh(0), fresh(1)], ..**middle };
    let dealt = if phase == Phase::Offline { run.costs.dealing.client_bytes } else { 0 };
    Some((Costed { cost: run.costs.of(phase), dealt, is_far: run.link.is_some() }, seen))
}

impl Observation {
    /// One thread, and nothing slowed down: what primitives are fitted to.
    fn is_plain(&self) -> bool {
        self.threads == 1 && self.link.is_none()
    }

    /// Seconds that the phase's client waits for bytes, and those of its round trips.
    fn on_link_s(&self, phase: Phase) -> Option<[f64; 2]> {
        let (link, cost) = (self.link?, self.costs.of(phase));
        Some([8.0 * cost.waited_bytes as f64 / link.bits, link.rtt_s * cost.exchanges as f64])
    }
}

/// Phases that take less tell nothing of shares.
const TELLING_S: f64 = 5e-3;

/// The middle of shares that were seen.
fn middle(mut shares: Vec<f64>) -> Option<f64> {
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).map(|share| share.clamp(0.0, 1.0))
}

/// What of the shorter party's time comes on top, and what threads share: medians over the networks that take
/// long enough to tell.
fn shares(runs: &[Observation], networks: &[String], phase: Phase) -> [f64; 2] {
    let (mut apart, mut parallel) = (Vec::new(), Vec::new());
    for network in networks {
        let Some((_, plain)) = median(runs, network, phase, Observation::is_plain) else { continue };
        let [a, b] = plain.cpu_s;
        if a.min(b) > TELLING_S {
            apart.push((plain.wall_s - a.max(b)) / a.min(b));
        }
        if let Some((_, two)) = median(runs, network, phase, |run| run.threads == 2 && run.link.is_none())
            && plain.wall_s > 4.0 * TELLING_S
        {
            parallel.push(2.0 * (1.0 - two.wall_s / plain.wall_s));
        }
    }
    // Where nobody works long enough to tell: one after the other, and alone.
    [middle(apart).unwrap_or(1.0), middle(parallel).unwrap_or(0.0)]
}

/// What the offline phases take beyond the parties' own computing, fitted to what is dealt for them.
fn dealer(runs: &[Observation], networks: &[String], apart: f64) -> BTreeMap<Primitive, f64> {
    let one = |(at, network): (usize, &String)| {
        let run = runs.iter().find(|run| run.network == *network)?;
        let (_, seen) = median(runs, network, Phase::Offline, Observation::is_plain)?;
        let [a, b] = seen.cpu_s;
        let waited = (seen.wall_s - a.max(b) - apart * a.min(b)).max(0.0);
        (run.costs.dealing != DealingCost::default()).then(|| (at, dealing_counts(&run.costs.dealing), waited))
    };
    let rows: Vec<(usize, Counts, f64)> = networks.iter().enumerate().filter_map(one).collect();
    let seconds = if rows.is_empty() { [0.0; _] } else { fit(&rows).seconds };
    Primitive::ALL.into_iter().zip(seconds).filter(|(_, seconds)| *seconds > 0.0).collect()
}

/// What of the shorter one of computing and transferring happens during the longer one, in runs over links.
fn hidden(runs: &[Observation], networks: &[String], phase: Phase) -> Option<f64> {
    let mut seen = Vec::new();
    for network in networks {
        let Some((_, plain)) = median(runs, network, phase, Observation::is_plain) else { continue };
        for run in runs.iter().filter(|run| run.network == *network && run.threads == 1) {
            let (Some([bytes_s, trips_s]), Some(took)) = (run.on_link_s(phase), run.phases.get(&phase)) else {
                continue;
            };
            let [short, long] = [plain.wall_s.min(bytes_s), plain.wall_s.max(bytes_s)];
            if short > 4.0 * TELLING_S {
                seen.push(1.0 - (took.wall_s - trips_s - long) / short);
            }
        }
    }
    middle(seen)
}

/// What a party's part takes, which so many bytes cross a link for, on a machine that is slower than that
/// which was calibrated, seconds.
#[must_use]
pub fn cpu_s(rates: &Rates, cost: &PhaseCost, (client, carried): (bool, u64), slower: &Counts) -> f64 {
    let party = if client { &cost.client } else { &cost.server };
    let mut seconds = rates.array();
    for (second, slower) in seconds.iter_mut().zip(slower) {
        *second *= slower;
    }
    seconds_of(&seconds, &counts(cost, party, carried))
}
