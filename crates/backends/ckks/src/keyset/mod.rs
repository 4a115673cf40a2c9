//! Key sets: the keys that a network's rotations need under each strategy ([KDS25]), and the strategies that
//! this back end runs within a budget.

mod paper;
mod presets;
mod problem;
mod rates;
mod reasons;
mod routes;
mod runnable_sets;
mod search;

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use tacit_graph::{Model, Watch};

pub use self::paper::{
    Alphas, BootstrapKeys, PAPER_ALPHAS, PaperAlphas, StageKeys, allowed_alphas, dynamic_key_bytes, paper_key_bytes,
    stage_keys, table_5,
};
pub use self::presets::PRESETS;
pub use self::rates::{MeasuredOperations, Rates};
pub use self::reasons::{Chain, KeyReason};
use self::runnable_sets::{Running, bootstrappers};
use self::search::Selection;
use super::levelled_program::{Emitted, Frame};
use super::levels::Bootstraps;
use super::options::{NAME, Options, find_named};
use super::public::StepRecord;
use super::settle::{AcceptedChoice, settle};
use tacit_backend_api::seam;
use tacit_backend_api::{BackendError, Result};

/// The goal that a chosen set is best at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Least time.
    Latency,
    /// Fewest bytes to send.
    Upload,
    /// Fewest bytes at the server.
    Memory,
    /// Least product of time and bytes.
    Balanced,
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let goals = [
            ("latency", Self::Latency),
            ("upload", Self::Upload),
            ("memory", Self::Memory),
            ("balanced", Self::Balanced),
        ];
        find_named(text, &goals)
    }
}

/// The figures to minimise for a goal. The second decides where the first is the same.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Cost {
    first: f64,
    second: f64,
}

impl Cost {
    const INFINITE: Self = Self { first: f64::INFINITY, second: f64::INFINITY };

    fn rising(&self, other: &Self) -> std::cmp::Ordering {
        tacit_floats::rising(&self.first, &other.first).then(tacit_floats::rising(&self.second, &other.second))
    }
}

impl Goal {
    /// The figures to minimise, from seconds, bytes to send and bytes at the server.
    fn cost(self, seconds: f64, bytes: u64, memory: u64) -> Cost {
        let (first, second) = match self {
            Self::Latency => (seconds, bytes as f64),
            Self::Upload => (bytes as f64, seconds),
            Self::Memory => (memory as f64, seconds),
            Self::Balanced => (seconds * bytes as f64, seconds),
        };
        Cost { first, second }
    }
}

/// One way to serve a network's rotations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeySetChoice {
    /// Its name.
    pub name: String,
    /// Description in one line.
    pub about: String,
    /// All options of the back end that run it; `None` if it is only computed.
    pub options: Option<String>,
    /// Keys of all kinds.
    pub keys: usize,
    /// Bytes to send, seeded and packed.
    pub bytes: u64,
    /// Rotation keys.
    pub rotation_keys: usize,
    /// Bytes of rotation keys.
    pub rotation_bytes: u64,
    /// Bytes of rotation keys with both halves and 8 bytes a residue, as the paper counts.
    pub plain_bytes: u64,
    /// Bytes at the server while it computes for one client: keys, encoded weights, and what a step holds.
    pub memory: u64,
    /// Key switches of rotations in linear steps of one inference.
    pub rotations: u64,
    /// Number-theoretic transforms of linear steps, without those of diagonals.
    pub transforms: u64,
    /// Estimated seconds of an inference on one thread: linear steps, bootstraps, products.
    pub seconds: f64,
}

/// A step's rotations: a row of the table by level and layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableRow {
    /// Nodes whose steps have these rotations, in order, or `bootstraps`.
    pub nodes: Vec<String>,
    /// Level of the rotations.
    pub level: usize,
    /// Special primes of keys at that level.
    pub alpha: usize,
    /// Diagonals.
    pub diagonals: usize,
    /// Distances of rotations where each has a key.
    pub rotations: Vec<i64>,
}

/// A set that no other runnable set beats in both bytes and seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontPoint {
    /// Bytes of keys.
    pub bytes: u64,
    /// Estimated bytes at the server.
    pub memory: u64,
    /// Estimated seconds.
    pub seconds: f64,
    /// Options that run it.
    pub options: String,
}

/// A network's rotations, and the key sets that serve them.
#[derive(Clone, Debug, Serialize)]
pub struct Design {
    /// Name of the network.
    pub model: String,
    /// Name of the parameters, and log2 of the ring degree.
    pub parameters: (String, u32),
    /// Rates from which seconds are computed.
    pub rates: Rates,
    /// Steps with their rotations (distances in slots), if all are hoisted.
    pub steps: Vec<StepRecord>,
    /// Rotations by level and layer.
    pub table: Vec<TableRow>,
    /// Key sets that serve them; those that run come first.
    pub choices: Vec<KeySetChoice>,
    /// The trade-offs that the search found, from fewest bytes to least time.
    pub front: Vec<FrontPoint>,
    /// Index of the chosen set in `choices`.
    pub chosen: usize,
    /// The keys of the chosen set with their reasons; empty for a set that is only computed.
    pub keys: Vec<KeyReason>,
    /// Transforms of the chosen set whose distances have no keys of their own.
    pub chains: Vec<Chain>,
    /// The search problem, for an external solver.
    pub problem: serde_json::Value,
}

/// Budgets in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Most bytes at the server.
    pub memory: Option<u64>,
    /// Most bytes of keys to send.
    pub upload: Option<u64>,
}

impl Budget {
    fn holds(&self, bytes: u64, memory: u64) -> bool {
        self.upload.is_none_or(|max| bytes <= max) && self.memory.is_none_or(|max| memory <= max)
    }
}

/// A request for a key set.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Budgets that the set must keep.
    pub budget: Budget,
    /// Goal that decides between sets within the budgets.
    pub goal: Goal,
    /// A strategy by name: `auto`, or one of [`PRESETS`].
    pub strategy: String,
    /// Speed of the machine.
    pub rates: Rates,
}

impl Default for Wish {
    fn default() -> Self {
        let (budget, rates) = (Budget::default(), Rates::default());
        Self { budget, goal: Goal::Balanced, strategy: "auto".into(), rates }
    }
}

/// Designs a model's key set.
///
/// # Errors
/// Errors of lowering; [`BackendError::Data`] if nothing fits the budget; [`BackendError::Option`] for an
/// unknown strategy.
pub fn design(model: &Model, options: &seam::Options, wish: &Wish, watch: &Watch) -> Result<Design> {
    let mut strategies = std::iter::once("auto").chain(PRESETS.iter().map(|preset| preset.name));
    if !strategies.any(|name| name == wish.strategy) {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let what = format!("`{}`: there are auto, {}", wish.strategy, names.join(", "));
        return Err(BackendError::Option { backend: NAME, key: "strategy".into(), what });
    }
    let AcceptedChoice { options: base, emitted, .. } = settle(model, options, watch)?.choice;
    let frames = placements(&emitted, &base)?;
    let (_, first) = &frames[0];
    let wish = &Wish { rates: wish.rates.for_degree(first.setting.parameters.log_degree), ..wish.clone() };
    let bootstrappers = bootstrappers(first, &base, watch)?;
    let mut points = Vec::new();
    let mut searched = Vec::new();
    for (index, (placed, frame)) in frames.iter().enumerate() {
        watch.tell("searching for key sets", index, Some(frames.len()))?;
        let running = Running::new(frame, placed, options, wish.rates, &bootstrappers)?;
        let front = search::front(&running.problem);
        let picked = search::find_best(&running.problem, &front, wish.budget, wish.goal);
        points.extend(front.iter().map(|selection| running.point(selection)));
        searched.push((running, front, picked));
    }
    let best = searched.into_iter().min_by(|a, b| cost(wish.goal, a.2.as_ref()).rising(&cost(wish.goal, b.2.as_ref())));
    let (running, front, picked) = best.expect("there is a placement");
    let mut runs = running.uniform()?;
    let smallest = front.first().expect("the search begins somewhere");
    if let Some(selection) = &picked {
        runs.push(running.selected("auto", selection)?);
    }
    runs.extend(running.derived(picked.as_ref().unwrap_or(smallest))?);
    let (mut choices, ways): (Vec<KeySetChoice>, Vec<Options>) = runs.into_iter().unzip();
    choices.extend(routes::route(&running, smallest, wish));
    choices.extend(PRESETS.iter().map(|preset| preset.evaluate(&running)).collect::<Result<Vec<_>, _>>()?);
    let chosen = match wish.strategy.as_str() {
        "auto" => choose(&choices[..ways.len()], &front, wish)?,
        name => named(&choices, name, wish.budget)?,
    };
    let (keys, chains) = match ways.get(chosen) {
        Some(options) => running.reasons(options)?,
        None => (Vec::new(), Vec::new()),
    };
    Ok(Design {
        model: model.interface.name.clone(),
        parameters: (running.frame.setting.name.clone(), running.frame.setting.parameters.log_degree),
        rates: wish.rates,
        steps: running.hoisted_steps()?,
        table: running.table()?,
        choices,
        front: pareto_front(points, |point| (point.bytes, point.seconds)),
        chosen,
        keys,
        chains,
        problem: serde_json::to_value(&running.problem).expect("numbers and strings have a JSON form"),
    })
}

/// Infinite figures for no selection.
fn cost(goal: Goal, picked: Option<&Selection>) -> Cost {
    picked.map_or(Cost::INFINITE, |s| goal.cost(s.seconds, s.bytes, s.memory))
}

/// The placements with the fewest bootstraps: the options of each, and its frame. If the options give a
/// placement, that alone.
fn placements(emitted: &Emitted, base: &Options) -> Result<Vec<(Options, Frame)>> {
    let usual = emitted.frame(base, None)?;
    let boots = usual.setting.bootstraps().filter(|_| usual.bootstraps() > 0 && base.placement == 0);
    let mut frames = vec![(base.clone(), usual)];
    for placement in boots.into_iter().flat_map(|Bootstraps { level_in, level_out }| 1..level_out - level_in) {
        let options = Options { placement: placement as u32, ..base.clone() };
        // Too many free levels may leave no solution.
        let Ok(frame) = emitted.frame(&options, Some(&frames[0].1)) else { continue };
        let (_, usual) = &frames[0];
        let is_new = frames.iter().all(|(_, earlier)| levels(earlier) != levels(&frame));
        if frame.setting == usual.setting && frame.bootstraps() <= usual.bootstraps() && is_new {
            frames.push((options, frame));
        }
    }
    let fewest = frames.iter().map(|(_, frame)| frame.bootstraps()).min();
    frames.retain(|(_, frame)| Some(frame.bootstraps()) == fewest);
    Ok(frames)
}

/// The level of each vector, and whether it is bootstrapped.
fn levels(frame: &Frame) -> Vec<(usize, bool)> {
    frame.places.iter().map(|place| (place.level, place.boots)).collect()
}

/// The items that no other one beats in both bytes and seconds, by bytes.
fn pareto_front<T>(mut items: Vec<T>, cost: impl Fn(&T) -> (u64, f64)) -> Vec<T> {
    items.sort_by(|a, b| {
        let ((a_bytes, a_seconds), (b_bytes, b_seconds)) = (cost(a), cost(b));
        a_bytes.cmp(&b_bytes).then(tacit_floats::rising(&a_seconds, &b_seconds))
    });
    let mut least_seconds: Option<f64> = None;
    items.retain(|item| {
        let (_, seconds) = cost(item);
        let is_faster = least_seconds.is_none_or(|least| seconds < least);
        if is_faster {
            least_seconds = Some(seconds);
        }
        is_faster
    });
    items
}

/// The best of the sets that run and fit the budget.
fn choose(choices: &[KeySetChoice], front: &[Selection], wish: &Wish) -> Result<usize> {
    let fitting = choices.iter().enumerate().filter(|(_, c)| wish.budget.holds(c.bytes, c.memory));
    fitting.min_by(|a, b| a.1.cost(wish.goal).rising(&b.1.cost(wish.goal))).map(|(i, _)| i).ok_or_else(|| {
        let bytes = choices.iter().map(|c| c.bytes).chain(front.iter().map(|s| s.bytes)).min().unwrap_or(0);
        let leanest = choices.iter().min_by_key(|c| c.memory).expect("there are choices");
        let what = format!(
            "no key set of this network is within the budgets: the fewest bytes to send are {bytes}; a server takes {} bytes of memory with \
             `{}`, of which {} are keys and the others encoded weights and what a step holds. A shallower network, or one with \
             fewer channels, needs less",
            leanest.memory, leanest.name, leanest.bytes
        );
        BackendError::Data { what }
    })
}

fn named(choices: &[KeySetChoice], name: &str, budget: Budget) -> Result<usize> {
    let index = choices.iter().position(|choice| choice.name == name).expect("every strategy is among the choices");
    let KeySetChoice { bytes, memory, .. } = choices[index];
    match budget.holds(bytes, memory) {
        true => Ok(index),
        false => Err(BackendError::Data {
            what: format!("`{name}` takes {bytes} bytes to send and {memory} at the server: more than is allowed"),
        }),
    }
}

impl KeySetChoice {
    fn cost(&self, goal: Goal) -> Cost {
        goal.cost(self.seconds, self.bytes, self.memory)
    }
}

impl fmt::Display for KeySetChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gb = self.bytes as f64 / 1e9;
        let (name, memory) = (&self.name, self.memory as f64 / 1e9);
        let runs = if self.options.is_some() { "runs" } else { "computed" };
        let Self { keys, rotations, transforms, seconds, .. } = self;
        write!(
            f,
            "{name:<30} {runs:<8} {keys:>5} {gb:>9.3} {memory:>9.3} {rotations:>9} {transforms:>10} {seconds:>9.2}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_budgets_with_smallest_sets() {
        let choice = |name: &str, bytes, seconds| KeySetChoice {
            name: name.into(),
            about: String::new(),
            options: None,
            keys: 1,
            bytes,
            rotation_keys: 1,
            rotation_bytes: bytes,
            plain_bytes: bytes,
            memory: bytes + 7,
            rotations: 1,
            transforms: 1,
            seconds,
        };
        let choices = [choice("fast", 100, 10.0), choice("small", 20, 90.0)];
        let pick = |memory, upload, goal| {
            choose(&choices, &[], &Wish { budget: Budget { memory, upload }, goal, ..Wish::default() })
        };
        assert_eq!(pick(None, None, Goal::Latency).unwrap(), 0);
        assert_eq!(pick(Some(100), None, Goal::Latency).unwrap(), 1);
        assert_eq!(pick(None, Some(100), Goal::Latency).unwrap(), 0);
        assert_eq!(pick(None, None, Goal::Upload).unwrap(), 1);
        let error = pick(Some(10), None, Goal::Balanced).unwrap_err().to_string();
        assert!(["small", "27 bytes of memory"].iter().all(|words| error.contains(words)), "{error}");
        assert!(
            named(&choices, "fast", Budget { memory: None, upload: Some(99) }).unwrap_err().to_string().contains("100")
        );
        assert_eq!(named(&choices, "fast", Budget::default()).unwrap(), 0);
    }
}
