//! The time that each primitive takes on a machine, by back end, phase and party: fitted to
//! measured runs of small networks.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tacit_backends::{DealingCost, Role, Sides};
use tacit_foreign::file;
use tacit_net::Phase;

use crate::counts::{Counts, Primitive, memory};
use crate::error::PlanError;
use crate::fit::{Fit, Row, fit, seconds_of};
use crate::observed::{self, MedianRun, Observation, Parallelism, dealing_counts};

/// Version of the file format.
pub const VERSION: u32 = 3;
const BUILT_IN: &str = include_str!("../calibration.toml");
/// Largest file, bytes.
const MAX_FILE: u64 = 1 << 20;
/// Coefficients of the terms of [`memory`].
const MEMORY_COLUMNS: usize = 3;

/// A party's part of a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Seconds for each primitive of the phase; a primitive that is absent takes none.
    pub seconds: BTreeMap<Primitive, f64>,
    /// Root mean square of relative errors, each network predicted from the others. 0.1 is 10 %.
    pub error: f64,
    /// Resident bytes of the process: a constant, a factor for each byte that the plan declares for
    /// the phase, and a factor for each number in the model's weights.
    pub resident: [f64; MEMORY_COLUMNS],
}

impl Rates {
    fn new(observations: &[MedianRun<'_>], phase: Phase, role: Role) -> Self {
        let timed = observations.iter().map(|observation| Row {
            network: observation.network,
            counts: observation.counts(phase, role),
            measured: *role.value_of(&observation.took.cpu_s),
        });
        let Fit { seconds, error } = fit(&timed.collect::<Vec<_>>());
        let rates_by_primitive = Primitive::ALL.into_iter().zip(seconds).filter(|(_, seconds)| *seconds > 0.0);
        // Prefer runs of the programs as users run them, if there are enough: `tacit bench` keeps
        // more on disk.
        let enough = observations.iter().filter(|observation| observation.is_far()).count() > MEMORY_COLUMNS;
        let usable = observations.iter().filter(|observation| observation.is_far() || !enough);
        // Three columns of the same solver.
        let rows = usable.map(|observation| {
            let mut columns: Counts = [0.0; _];
            columns[..MEMORY_COLUMNS].copy_from_slice(&memory(&observation.run.costs, phase, role));
            let measured = *role.value_of(&observation.took.peak_bytes) as f64;
            Row { network: observation.network, counts: columns, measured }
        });
        let [process, by_declared, by_weights, ..] = fit(&rows.collect::<Vec<_>>()).seconds;
        // TOML has infinities, JSON has not.
        let error = error.min(f64::from(u16::MAX));
        Self { seconds: rates_by_primitive.collect(), error, resident: [process, by_declared, by_weights] }
    }

    /// Takes over the cost of a byte on a link.
    fn copy_carried(&mut self, source: &Self) {
        let carried = source.seconds.get(&Primitive::Carried);
        self.seconds.extend(carried.map(|seconds| (Primitive::Carried, *seconds)));
    }

    /// Peak resident bytes of a phase, by the terms of [`memory`].
    #[must_use]
    pub fn resident_bytes(&self, columns: &[f64; MEMORY_COLUMNS]) -> u64 {
        self.resident.iter().zip(columns).map(|(bytes, column)| bytes * column).sum::<f64>() as u64
    }

    /// Predicts the seconds of a party's part on a machine that is slower than the calibrated one
    /// by these factors.
    #[must_use]
    pub fn cpu_s(&self, counts: &Counts, slower: &Counts) -> f64 {
        self.array().iter().zip(slower).zip(counts).map(|((second, slower), count)| second * slower * count).sum()
    }

    /// Seconds for each of [`Primitive::ALL`].
    #[must_use]
    pub fn array(&self) -> Counts {
        by_primitive(&self.seconds)
    }
}

/// Seconds for each of [`Primitive::ALL`]; a primitive that is absent takes none.
fn by_primitive(seconds: &BTreeMap<Primitive, f64>) -> Counts {
    Primitive::ALL.map(|primitive| seconds.get(&primitive).copied().unwrap_or(0.0))
}

/// One phase of a back end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseRates {
    /// The client's part.
    pub client: Rates,
    /// The server's part.
    pub server: Rates,
    /// Share of the shorter party's time that adds to the longer party's: 0 if both always work
    /// side by side, 1 if one waits for the other.
    pub apart: f64,
    /// Share of the computing that several threads divide among themselves.
    pub parallel: f64,
    /// Share of the shorter of computing and transferring that overlaps the longer.
    pub hidden: f64,
    /// Seconds for each primitive of dealing that both parties wait for: the phase's time beyond
    /// their own computing. Empty for back ends without a dealer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dealer: BTreeMap<Primitive, f64>,
}

impl PhaseRates {
    /// Seconds that the parties wait for their dealer.
    #[must_use]
    pub fn dealer_s(&self, dealing: &DealingCost) -> f64 {
        seconds_of(&by_primitive(&self.dealer), &dealing_counts(dealing))
    }
}

/// The rates of a back end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendRates {
    /// Rates by phase; phases that the back end has not are absent.
    pub phases: BTreeMap<Phase, PhaseRates>,
    /// Names of the networks that the back end was measured on.
    pub networks: Vec<String>,
}

/// The calibration of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The format: [`VERSION`].
    pub version: u32,
    /// The machine's processor and cores.
    pub machine: String,
    /// Description of the runs that the rates come from.
    pub made: String,
    /// Back ends by name.
    pub backends: BTreeMap<String, BackendRates>,
    /// Seconds of one multiplication of the float network, computed without a protocol.
    pub local_mac_s: f64,
}

impl Calibration {
    /// Fits a back end's rates to measured runs. If no run went over a link, the overlap of
    /// computing and transferring and the extra cost of a byte on a link stay as in `before`.
    #[must_use]
    pub fn fit_backend(runs: &[Observation], before: Option<&BackendRates>) -> BackendRates {
        let mut networks: Vec<String> = Vec::new();
        for run in runs {
            if !networks.contains(&run.network) {
                networks.push(run.network.clone());
            }
        }
        let mut phases = BTreeMap::new();
        for phase in Phase::ALL {
            let observations = MedianRun::medians(runs, &networks, phase);
            if observations.is_empty() {
                continue;
            }
            let Sides { mut client, mut server } = Role::each(|role| Rates::new(&observations, phase, role));
            let Parallelism { parties_apart: apart, threads_parallel: parallel } =
                observed::parallelism(runs, &networks, phase);
            let earlier = before.and_then(|rates| rates.phases.get(&phase));
            if let Some(earlier) = earlier.filter(|_| !observations.iter().any(MedianRun::is_far)) {
                client.copy_carried(&earlier.client);
                server.copy_carried(&earlier.server);
            }
            let hidden = observed::hidden_share(runs, &networks, phase);
            let hidden = hidden.or(earlier.map(|earlier| earlier.hidden)).unwrap_or(0.0);
            let dealer =
                if phase == Phase::Offline { observed::dealer(runs, &networks, apart) } else { BTreeMap::new() };
            phases.insert(phase, PhaseRates { client, server, apart, parallel, hidden, dealer });
        }
        BackendRates { phases, networks }
    }

    /// Returns the built-in calibration; its text describes the machine.
    #[must_use]
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN).expect("a test reads it")
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, is no calibration, or has a value that is not allowed.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let text = file::read_text(path, MAX_FILE);
        let text = text.map_err(|source| PlanError::Io { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|detail| PlanError::Wrong { what: path.display().to_string(), detail })
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// The text is no calibration, or has a value that is not allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        if read.version != VERSION {
            return Err(format!(
                "format {}, and {VERSION} is read: make it again with `tacit calibrate`",
                read.version
            ));
        }
        let phases = || read.backends.values().flat_map(|backend| backend.phases.values());
        let rates = phases().flat_map(|phase| [&phase.client, &phase.server]);
        let times = rates.flat_map(|rates| rates.seconds.values().chain([&rates.error]).chain(&rates.resident));
        let times = times.chain(phases().flat_map(|phase| phase.dealer.values()));
        // The bound keeps sums finite; no plan needs a billion seconds.
        if times.chain([&read.local_mac_s]).any(|time| !(0.0..=1e9).contains(time)) || read.local_mac_s == 0.0 {
            return Err("it has a time that is no time".into());
        }
        let shares = phases().flat_map(|phase| [phase.apart, phase.parallel, phase.hidden]);
        if shares.into_iter().any(|share| !(0.0..=1.0).contains(&share)) {
            return Err("`apart`, `parallel` and `hidden` must be from 0 to 1".into());
        }
        Ok(read)
    }

    /// Returns the calibration as TOML.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("names and numbers only")
    }
}
