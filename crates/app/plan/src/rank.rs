//! Ranks predictions: by a goal, under limits.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use tacit_backends::{Costs, PhaseCost, Sides, Trust};

use crate::counts::Primitive;
use crate::error::{PlanError, wrong};
use crate::predict::{Predicted, Prediction, Setting};

const SECONDS_A_DAY: f64 = 86_400.0;
const GIGABYTE: f64 = 1e9;

/// The quantity to minimise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Latency from the input to its answer: the online phase.
    Latency,
    /// Both phases of an input, for clients without stock.
    Total,
    /// Joules of both parties for an input, above idle.
    Energy,
    /// Joules of the client for an input, above idle.
    ClientEnergy,
    /// Payload bytes of an input.
    Bytes,
    /// Cost of an input in money: the server's cores and the bytes, by [`Prices`].
    Money,
}

impl Goal {
    /// All goals.
    pub const ALL: [Self; 6] = [Self::Latency, Self::Total, Self::Energy, Self::ClientEnergy, Self::Bytes, Self::Money];

    /// The unit of the score.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Latency | Self::Total => "s",
            Self::Energy | Self::ClientEnergy => "J",
            Self::Bytes => "bytes",
            Self::Money => "of the prices' currency",
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Latency => "latency",
            Self::Total => "total",
            Self::Energy => "energy",
            Self::ClientEnergy => "client-energy",
            Self::Bytes => "bytes",
            Self::Money => "money",
        })
    }
}

impl FromStr for Goal {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        match Self::ALL.into_iter().find(|goal| goal.to_string() == text) {
            Some(goal) => Ok(goal),
            None => {
                let goals = Self::ALL.map(|goal| goal.to_string()).join(", ");
                wrong(format!("goal {text:?}"), format!("there are {goals}"))
            }
        }
    }
}

/// Prices, all in one currency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prices {
    /// Price of one server core for an hour.
    pub core_hour: f64,
    /// Price of 10^9 bytes on the link.
    pub gigabyte: f64,
    /// Price of 10^9 bytes in idle hours, if it differs: applies to bytes sent before the input.
    pub idle_gigabyte: Option<f64>,
}

/// How much a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Usage {
    /// Inputs of a client in a day.
    pub per_day: f64,
    /// Most inputs that arrive at once.
    pub burst: u32,
    /// Clients of the server.
    pub clients: u32,
    /// Prices, for [`Goal::Money`].
    pub prices: Option<Prices>,
    /// Seconds of a day in which link and device are otherwise idle; all material of the day is
    /// made then. `None`: material is made when it is needed.
    pub idle_s: Option<f64>,
    /// Seconds of waiting that one joule of the client is worth, with [`Goal::Latency`] and
    /// [`Goal::Total`].
    pub joule_s: f64,
}

impl Default for Usage {
    fn default() -> Self {
        Self { per_day: 100.0, burst: 1, clients: 1, prices: None, idle_s: None, joule_s: 0.0 }
    }
}

/// Limits on a choice.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Limits {
    /// Memory of the client's process, bytes.
    pub memory: Option<u64>,
    /// Duration of the online phase, seconds.
    pub online_s: Option<f64>,
    /// Bytes that a client sends for its keys.
    pub upload: Option<u64>,
    /// Payload bytes of an input.
    pub bytes: Option<u64>,
    /// Joules of the client for an input, above idle.
    pub client_j: Option<f64>,
    /// Processor seconds of the client for an input.
    pub client_cpu_s: Option<f64>,
    /// Least share of inputs that get the float network's class.
    pub agreement: Option<f64>,
    /// Whether a dealer may be trusted.
    pub dealer: bool,
}

/// Name of the offer that is no back end: the client has the model, and computes the float network.
pub const LOCAL: &str = "local";

/// A lowered model, independent of the machines that run it.
#[derive(Debug, Clone, Serialize)]
pub struct Offer {
    /// Back end, or [`LOCAL`].
    pub backend: String,
    /// The back end's options, as `-O` takes them.
    pub options: String,
    /// The parties that its users trust; `None` if the client has the model.
    pub trust: Option<Trust>,
    /// The costs that the lowering declares.
    pub costs: Costs,
    /// Expected share of inputs that get the float network's class, if known.
    pub agreement: Option<f64>,
}

impl Offer {
    /// Whether neither party learns more than it should.
    #[must_use]
    pub fn is_private(&self) -> bool {
        matches!(self.trust, Some(Trust::TwoParty | Trust::Dealer))
    }
}

/// An offer on given machines, with the number of threads that suits the goal.
#[derive(Debug, Clone, Serialize)]
pub struct Choice {
    /// Index of the offer.
    pub offer: usize,
    /// Threads of the client.
    pub client_threads: u32,
    /// Threads of the server for one job.
    pub server_threads: u32,
    /// The predicted costs.
    pub predicted: Prediction,
    /// Amount of the goal's quantity that one input takes.
    pub score: f64,
    /// Inputs to keep material for, so that a burst finds it ready.
    pub pool: u32,
    /// Size of that material at client and server, bytes.
    pub pool_bytes: Sides<u64>,
    /// The limits that the choice breaks, with figures.
    pub objections: Vec<String>,
    /// Whether no other private choice is at least as good in latency, client energy and bytes, and
    /// better in one.
    pub pareto: bool,
}

/// Everything that a ranking depends on, except the machines.
pub struct Question<'a> {
    /// The offers to choose from.
    pub offers: &'a [Offer],
    /// The goal.
    pub goal: Goal,
    /// The limits.
    pub limits: Limits,
    /// How much is asked.
    pub usage: Usage,
}

impl Question<'_> {
    /// Ranks all offers that the calibration covers, the best first. Offers that break a limit or
    /// are not private come last.
    ///
    /// # Errors
    /// [`PlanError`] if the goal is money and no prices were given.
    pub fn ranked(&self, setting: &Setting) -> Result<Vec<Choice>, PlanError> {
        if self.goal == Goal::Money && self.usage.prices.is_none() {
            return wrong("goal money", "give prices: --prices core-hour=0.04,gb=0.05");
        }
        let mut choices: Vec<Choice> =
            (0..self.offers.len()).filter_map(|offer_index| self.choice(offer_index, setting)).collect();
        self.mark(&mut choices);
        choices.sort_by(|a, b| self.faults(a).cmp(&self.faults(b)).then(tacit_floats::rising(&a.score, &b.score)));
        Ok(choices)
    }

    /// Returns whether a choice is not private, and whether it breaks a limit.
    fn faults(&self, choice: &Choice) -> (bool, bool) {
        (!self.offers[choice.offer].is_private(), !choice.objections.is_empty())
    }

    /// Returns the best private choice that breaks no limit.
    ///
    /// # Errors
    /// As [`ranked`](Self::ranked).
    pub fn best(&self, setting: &Setting) -> Result<Option<Choice>, PlanError> {
        Ok(self.ranked(setting)?.into_iter().find(|choice| self.faults(choice) == (false, false)))
    }

    /// Returns the rate, bit/s of the slower way, beyond which an offer gains less than a share
    /// `gain` of its score; `None` if the link is hardly faster or its rate decides nothing.
    #[must_use]
    pub fn enough_rate(&self, offer: usize, setting: &Setting, gain: f64) -> Option<f64> {
        let rate = setting.link.up_bits_per_s.min(setting.link.down_bits_per_s);
        let max_score = (1.0 + gain) * self.score_at(offer, setting, rate)?;
        let (mut low, mut high) = (rate / 1e4, rate);
        if self.score_at(offer, setting, low)? <= max_score {
            return None;
        }
        for _ in 0..40 {
            let middle = (low * high).sqrt();
            if self.score_at(offer, setting, middle)? <= max_score { high = middle } else { low = middle }
        }
        (high < 0.8 * rate).then_some(high)
    }

    /// Returns an offer's score on the link limited to `rate` bit/s each way.
    fn score_at(&self, offer: usize, setting: &Setting, rate: f64) -> Option<f64> {
        let link = setting.link.with_max_rate(rate);
        Some(self.choice(offer, &Setting { link, ..setting.clone() })?.score)
    }

    /// Evaluates an offer: the fewest threads that break the fewest limits and reach the best score
    /// within 1 %.
    fn choice(&self, offer_index: usize, setting: &Setting) -> Option<Choice> {
        let mut best: Option<Choice> = None;
        for client_threads in powers(setting.client.cores) {
            for server_threads in powers(setting.server.cores) {
                let setting = Setting { client_threads, server_threads, ..setting.clone() };
                let candidate = self.with_threads(offer_index, &setting)?;
                if best.as_ref().is_none_or(|best| is_better(&candidate, best)) {
                    best = Some(candidate);
                }
            }
        }
        best
    }

    fn with_threads(&self, offer_index: usize, setting: &Setting) -> Option<Choice> {
        let offer = &self.offers[offer_index];
        let predicted = match offer.trust {
            Some(_) => Prediction::compute(&offer.backend, &offer.costs, setting)?,
            None => local(&offer.costs, setting),
        };
        let PhaseCost { client, server, .. } = offer.costs.offline;
        let stored = Sides { client: client.stored_bytes, server: server.stored_bytes };
        let pool = if predicted.offline.wall_s > 0.0 { self.stock() } else { 0 };
        let mut choice = Choice {
            offer: offer_index,
            client_threads: setting.client_threads,
            server_threads: setting.server_threads,
            score: self.score(&predicted),
            pool,
            pool_bytes: stored.map(|bytes| bytes * u64::from(pool)),
            objections: Vec::new(),
            predicted,
            pareto: false,
        };
        choice.objections = self.objections(offer, &choice, setting);
        Some(choice)
    }

    /// Inputs to keep material for: a burst, or a whole day if material is made in idle hours.
    fn stock(&self) -> u32 {
        let day = if self.usage.idle_s.is_some() { self.usage.per_day.ceil() as u32 } else { 0 };
        self.usage.burst.max(day).max(1)
    }

    fn inputs_for_setup(&self) -> f64 {
        // Keys last for a connection. A connection, such as a sidecar's, is taken to last a day.
        self.usage.per_day.max(1.0)
    }

    fn score(&self, p: &Prediction) -> f64 {
        let inputs = self.inputs_for_setup();
        match self.goal {
            Goal::Latency => p.online.wall_s + self.usage.joule_s * p.client_j(inputs),
            Goal::Total => p.online.wall_s + p.offline.wall_s + self.usage.joule_s * p.client_j(inputs),
            Goal::Energy => p.client_j(inputs) + p.server_j(inputs),
            Goal::ClientEnergy => p.client_j(inputs),
            Goal::Bytes => p.bytes(inputs),
            Goal::Money => {
                let prices = self.usage.prices.expect("the ranking has checked this");
                let cpu_s = p.online.server_cpu_s + p.offline.server_cpu_s + p.setup.server_cpu_s / inputs;
                let ahead = (p.offline.up_bytes + p.offline.down_bytes) as f64;
                let idle = prices.idle_gigabyte.filter(|_| self.usage.idle_s.is_some()).unwrap_or(prices.gigabyte);
                let link = prices.gigabyte * (p.bytes(inputs) - ahead) + idle * ahead;
                prices.core_hour * cpu_s / 3600.0 + link / GIGABYTE
            }
        }
    }

    fn objections(&self, offer: &Offer, choice: &Choice, setting: &Setting) -> Vec<String> {
        let (p, limits) = (&choice.predicted, &self.limits);
        let mut reasons = Vec::new();
        if offer.trust == Some(Trust::Dealer) && !limits.dealer {
            reasons.push("a dealer would have to be trusted (--limit trust=dealer)".into());
        }
        if let Some(min) = limits.agreement.filter(|min| offer.agreement.is_none_or(|share| share < *min)) {
            let share = offer.agreement.map_or("an unknown share".into(), |share| format!("{:.2} %", 100.0 * share));
            reasons.push(format!("{share} of inputs get the float network's class, {:.2} % wanted", 100.0 * min));
        }
        let memory = limits.memory.unwrap_or(setting.client.memory_bytes);
        if p.client_bytes() > memory {
            reasons.push(format!("the client needs {} of memory, {} allowed", mib(p.client_bytes()), mib(memory)));
        }
        if p.server_bytes() > setting.server.memory_bytes {
            let available = mib(setting.server.memory_bytes);
            reasons
                .push(format!("a job needs {} of memory at the server, which has {available}", mib(p.server_bytes())));
        }
        if let Some(max) = limits.online_s.filter(|max| p.online.wall_s > *max) {
            reasons.push(format!("online takes {:.2} s, {max} s allowed", p.online.wall_s));
        }
        if let Some(max) = limits.upload.filter(|max| p.setup.up_bytes > *max) {
            reasons.push(format!("keys are {} up, {} allowed", mib(p.setup.up_bytes), mib(max)));
        }
        if let Some(max) = limits.bytes.filter(|max| p.bytes(self.inputs_for_setup()) > *max as f64) {
            let bytes = p.bytes(self.inputs_for_setup()) as u64;
            reasons.push(format!("an input takes {} on the link, {} allowed", mib(bytes), mib(max)));
        }
        reasons.extend(self.beyond_budget(p));
        let duration_s = p.offline.wall_s + p.online.wall_s;
        if self.usage.per_day * duration_s > SECONDS_A_DAY {
            reasons.push(format!(
                "a client's link and device are busy for {duration_s:.1} s an input: {:.0} fit into a day",
                SECONDS_A_DAY / duration_s
            ));
        }
        let making = self.usage.per_day * p.offline.wall_s;
        if let Some(idle) = self.usage.idle_s.filter(|idle| making > *idle) {
            let [takes, available] = [making, idle].map(|s| s / 3600.0);
            reasons.push(format!("material for a day takes {takes:.1} h to make, {available:.1} h are idle"));
        }
        let cpu = p.offline.server_cpu_s + p.online.server_cpu_s;
        let total_s = self.usage.per_day * f64::from(self.usage.clients) * cpu;
        if total_s > SECONDS_A_DAY * f64::from(setting.server.cores) {
            let max_clients = SECONDS_A_DAY * f64::from(setting.server.cores) / (cpu * self.usage.per_day);
            reasons.push(format!("the server's cores are enough for {max_clients:.0} such clients"));
        }
        reasons
    }

    /// Lists the client's budgets that a prediction breaks.
    fn beyond_budget(&self, p: &Prediction) -> Vec<String> {
        let (inputs, limits) = (self.inputs_for_setup(), &self.limits);
        let quantities = [
            (p.client_j(inputs), limits.client_j, "J"),
            (p.client_cpu_s(inputs), limits.client_cpu_s, "s of processor time"),
        ];
        let broken = quantities.into_iter().filter_map(|(takes, max, unit)| {
            let max = max.filter(|max| takes > *max)?;
            Some(format!("an input costs the client {takes:.3} {unit}, {max:.3} allowed"))
        });
        broken.collect()
    }

    fn mark(&self, choices: &mut [Choice]) {
        let inputs = self.inputs_for_setup();
        let figures = choices.iter().map(|c| {
            let p = &c.predicted;
            (self.offers[c.offer].is_private(), [p.online.wall_s, p.client_j(inputs), p.bytes(inputs)])
        });
        let figures: Vec<(bool, [f64; 3])> = figures.collect();
        for (index, choice) in choices.iter_mut().enumerate() {
            let (private, figure) = figures[index];
            choice.pareto =
                private && !figures.iter().any(|(private, other_figure)| *private && beats(other_figure, &figure));
        }
    }
}

/// Whether a choice breaks fewer limits than the best one, or as many at a score 1 % better.
fn is_better(candidate: &Choice, best: &Choice) -> bool {
    let fewer = candidate.objections.len().cmp(&best.objections.len());
    fewer.is_lt() || (fewer.is_eq() && candidate.score < 0.99 * best.score)
}

/// Returns whether no figure of `challenger` is larger and one is smaller.
fn beats(challenger: &[f64; 3], figures: &[f64; 3]) -> bool {
    challenger.iter().zip(figures).all(|(o, m)| o <= m) && challenger != figures
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn local(costs: &Costs, setting: &Setting) -> Prediction {
    let device = &setting.client;
    let mac = Primitive::ALL.iter().position(|p| *p == Primitive::Mac).expect("it is one of all");
    let cpu_s = costs.online.server.work.macs as f64 * device.calibration.local_mac_s * device.slower[mac];
    let (wall_s, client_j) = (cpu_s, device.net_j(cpu_s, 0));
    let online = Predicted { wall_s, compute_s: wall_s, client_cpu_s: cpu_s, client_j, ..Predicted::default() };
    Prediction { online, ..Prediction::default() }
}

/// Returns 1, 2, 4 .. and the number of all cores.
fn powers(cores: u32) -> Vec<u32> {
    let mut threads: Vec<u32> = (0..).map(|k| 1 << k).take_while(|t| *t < cores).collect();
    threads.push(cores.max(1));
    threads
}
