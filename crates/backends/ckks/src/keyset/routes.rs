//! Rotations by shortest paths: a chain of keys serves a distance without a key, along a shortest path in the
//! Cayley graph. The search starts from the fewest keys and adds the key that saves most seconds for its
//! bytes. These sets are only computed: the back end runs transforms that have all their keys, or that are
//! one chain.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use tacit_he::ckks::{KeyId, Method, TransformPlan, TransformWork, merge_needs};

use super::problem::Class;
use super::rates::{key_bytes, plain_bytes, transforms};
use super::runnable_sets::Running;
use super::search::Selection;
use super::{Cost, KeySetChoice, Wish};
use crate::hops::{Hops, NEVER};

/// Most keys that are added.
const MAX_ADDED: usize = 600;

/// A class with its possible splits, and their costs with all keys.
struct Layer {
    level: usize,
    count: f64,
    splits: Vec<Split>,
}

/// A split of a transform into baby and giant steps, or a chain.
struct Split {
    chained: bool,
    seconds: f64,
    switches: u64,
    ntts: u64,
    /// Distances that have keys of their own; `true` marks a baby step.
    moves: Vec<(i64, bool)>,
}

/// Resident keys by distance, and the hops that they allow at each level.
#[derive(Clone)]
struct Resident {
    keys: BTreeMap<i64, usize>,
    hops: BTreeMap<usize, Hops>,
}

/// The layers of a network, which cost rotations for any set of resident keys.
struct Router<'a> {
    running: &'a Running<'a>,
    layers: Vec<Layer>,
    n: i64,
}

/// A key with its gain when it was last evaluated, ordered by gain.
#[derive(PartialEq)]
struct Candidate {
    gain: f64,
    key: (i64, usize),
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        tacit_floats::rising(&self.gain, &other.gain).then(self.key.cmp(&other.key))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Searches from the keys of `smallest` up; returns `None` if nothing fits.
pub(super) fn route(running: &Running<'_>, smallest: &Selection, wish: &Wish) -> Option<KeySetChoice> {
    let router = Router::new(running)?;
    let (boots, mut resident, others) = router.start(smallest);
    let fixed = running.problem.fixed_seconds + boots;
    let (mut best, mut best_cost) = (None, Cost::INFINITE);
    let mut queue: BinaryHeap<Candidate> =
        router.candidates(&resident).into_iter().map(|key| Candidate { gain: f64::INFINITY, key }).collect();
    for _ in 0..MAX_ADDED {
        let (bytes, seconds) = (router.bytes(&resident) + others.1, fixed + router.seconds(&resident));
        let memory = bytes + running.beside_keys();
        let cost = wish.goal.cost(seconds, bytes, memory);
        if wish.budget.holds(bytes, memory) && cost < best_cost {
            (best, best_cost) = (Some((resident.clone(), bytes, memory, seconds)), cost);
        }
        let Some((distance, level)) = router.next_key(&resident, &mut queue) else { break };
        resident.add(distance, level);
    }
    let (resident, bytes, memory, seconds) = best?;
    let (rotations, transforms) = router.work(&resident);
    Some(KeySetChoice {
        name: "auto, any path".into(),
        about: "as auto, and distances without a key go over shortest ways of those that have one".into(),
        options: None,
        keys: resident.keys.len() + others.0,
        bytes,
        rotation_keys: resident.keys.len(),
        rotation_bytes: bytes - others.1,
        plain_bytes: router.plain_bytes(&resident),
        memory,
        rotations,
        transforms,
        seconds,
    })
}

impl Layer {
    /// Returns `None` if the class cannot be split.
    fn new(running: &Running<'_>, class: &Class) -> Option<Self> {
        let context = &running.frame.context;
        let (n, alpha) = (context.degree() / 2, context.parameters().alpha(class.level));
        let mut splits: Vec<Split> = Vec::new();
        for method in [Method::Flat, Method::Chained] {
            let plans = TransformPlan::choices(n, class.level, method, class.offsets.iter().copied()).ok()?;
            splits.extend(plans.iter().map(|plan| {
                let work = plan.work(alpha);
                Split::new(plan, &work, running.rates.transform(&work, class.share))
            }));
        }
        // Splits with many more moves than the best are not worth their keys.
        let fewest_moves = splits.iter().filter(|s| !s.chained).map(|s| s.moves.len()).min().unwrap_or(0);
        splits.retain(|s| s.chained || s.moves.len() <= fewest_moves + fewest_moves / 2);
        Some(Self { level: class.level, count: class.transforms.len() as f64, splits })
    }
}

impl Split {
    fn new(plan: &TransformPlan, work: &TransformWork, seconds: f64) -> Self {
        let chained = plan.method().is_chained();
        let [babies, giants] = plan.moves();
        // The moves of a chain are its generators; other splits have a key for each move.
        let moves = match chained {
            true => plan.rotations().into_iter().map(|k| (k, false)).collect(),
            false => babies.into_iter().map(|k| (k, true)).chain(giants.into_iter().map(|k| (k, false))).collect(),
        };
        Self { chained, seconds, switches: work.key_switches as u64, ntts: work.ntts as u64, moves }
    }
}

impl Resident {
    fn add(&mut self, distance: i64, level: usize) {
        let highest = self.keys.entry(distance).or_default();
        *highest = level.max(*highest);
        self.hops.iter_mut().filter(|(hops_level, _)| **hops_level <= level).for_each(|(_, hops)| hops.add(distance));
    }

    fn has(&self, distance: i64, level: usize) -> bool {
        self.keys.get(&distance).is_some_and(|highest| *highest >= level)
    }
}

impl<'a> Router<'a> {
    /// Returns `None` if no transform rotates.
    fn new(running: &'a Running<'a>) -> Option<Self> {
        let n = running.frame.context.degree() as i64 / 2;
        let classes = running.problem.classes.iter().filter(|class| !class.transforms.is_empty());
        let layers: Vec<Layer> = classes.map(|class| Layer::new(running, class)).collect::<Option<_>>()?;
        (!layers.is_empty()).then_some(Self { running, layers, n })
    }

    /// Seconds of bootstraps, keys of the smallest selection's linear steps, and number and bytes of all
    /// other keys.
    fn start(&self, smallest: &Selection) -> (f64, Resident, (usize, u64)) {
        let problem = &self.running.problem;
        let hops = self.layers.iter().map(|layer| (layer.level, Hops::new(self.n as usize, [])));
        let mut resident = Resident { keys: BTreeMap::new(), hops: hops.collect() };
        let (mut boots, mut others) = (0.0, problem.fixed.clone());
        for (class, &picked) in problem.classes.iter().zip(&smallest.picked) {
            let plan = &class.plans[picked];
            if class.transforms.is_empty() {
                boots += plan.seconds;
                others.extend(&plan.needs);
            } else if let Ok(plan) = self.running.plan(class, plan.method) {
                plan.rotations().into_iter().for_each(|k| resident.add(k, class.level));
            }
        }
        let ids: Vec<KeyId> = others
            .iter()
            .filter_map(|need| problem.keys[need.key].id.map(|(kind, alpha)| KeyId { kind, level: need.level, alpha }))
            .collect();
        let ids = merge_needs(&ids);
        let parameters = self.running.frame.context.parameters();
        let bytes = ids.iter().map(|id| key_bytes(parameters, id.level, id.alpha)).sum();
        (boots, resident, (ids.len(), bytes))
    }

    fn alpha(&self, level: usize) -> usize {
        self.running.frame.context.parameters().alpha(level)
    }

    fn key_bytes(&self, level: usize) -> u64 {
        if level == 0 { 0 } else { key_bytes(self.running.frame.context.parameters(), level, self.alpha(level)) }
    }

    fn bytes(&self, resident: &Resident) -> u64 {
        resident.keys.values().map(|&level| self.key_bytes(level)).sum()
    }

    fn plain_bytes(&self, resident: &Resident) -> u64 {
        let degree = self.running.frame.context.degree();
        resident.keys.values().map(|&level| plain_bytes(degree, level, self.alpha(level))).sum()
    }

    /// Keys that may be added: every distance of every hoisted split.
    fn candidates(&self, resident: &Resident) -> BTreeSet<(i64, usize)> {
        let mut candidates = BTreeSet::new();
        for layer in &self.layers {
            let hoisted = layer.splits.iter().filter(|split| !split.chained);
            let distances = hoisted.flat_map(|split| &split.moves).map(|(k, _)| *k);
            candidates.extend(distances.filter(|k| !resident.has(*k, layer.level)).map(|k| (k, layer.level)));
        }
        candidates
    }

    /// Seconds, key switches and number-theoretic transforms of one transform of a layer, by its best split.
    fn layer_cost(&self, layer: &Layer, hops: &Hops) -> (f64, u64, u64) {
        let alpha = self.alpha(layer.level);
        let (raised, digits) = (layer.level + alpha, layer.level.div_ceil(alpha));
        let switch = self.running.rates.switch_seconds(layer.level, alpha);
        let product = (2 * raised * digits) as f64 * self.running.rates.product_s;
        let giant = product + ((digits + 1) * raised) as f64 * self.running.rates.ntt_s;
        let costs = layer.splits.iter().map(|split| {
            let Split { mut seconds, mut switches, mut ntts, chained, ref moves } = *split;
            for &(k, is_baby) in moves {
                match hops.count_to(k) {
                    1 => {}
                    far if far == NEVER || chained => return (f64::INFINITY, 0, 0),
                    far => {
                        seconds += f64::from(far) * switch - if is_baby { product } else { giant };
                        switches += u64::from(far) - 1;
                        ntts += u64::from(far) * transforms(layer.level, alpha);
                    }
                }
            }
            (seconds, switches, ntts)
        });
        costs.min_by(|a, b| tacit_floats::rising(&a.0, &b.0)).unwrap_or((f64::INFINITY, 0, 0))
    }

    fn seconds(&self, resident: &Resident) -> f64 {
        self.layers.iter().map(|layer| layer.count * self.layer_cost(layer, &resident.hops[&layer.level]).0).sum()
    }

    /// Key switches and number-theoretic transforms of all layers.
    fn work(&self, resident: &Resident) -> (u64, u64) {
        self.layers.iter().fold((0, 0), |sum, layer| {
            let (_, switches, ntts) = self.layer_cost(layer, &resident.hops[&layer.level]);
            let count = layer.count as u64;
            (sum.0 + switches * count, sum.1 + ntts * count)
        })
    }

    /// Seconds that a key saves for each additional byte.
    fn gain(&self, resident: &Resident, distance: i64, level: usize) -> f64 {
        let old_level = resident.keys.get(&distance).copied().unwrap_or(0);
        let bytes = self.key_bytes(level).saturating_sub(self.key_bytes(old_level)).max(1);
        let mut saved = 0.0;
        for (hops_level, hops) in
            resident.hops.iter().filter(|(hops_level, hops)| **hops_level <= level && hops.count_to(distance) != 1)
        {
            let mut extended = hops.clone();
            extended.add(distance);
            let layers = self.layers.iter().filter(|layer| layer.level == *hops_level);
            saved +=
                layers.map(|l| l.count * (self.layer_cost(l, hops).0 - self.layer_cost(l, &extended).0)).sum::<f64>();
        }
        saved / bytes as f64
    }

    /// The key with the largest gain. Gains fall as keys are added, so only keys whose last gain was the
    /// largest are evaluated again.
    fn next_key(&self, resident: &Resident, queue: &mut BinaryHeap<Candidate>) -> Option<(i64, usize)> {
        let mut fresh: BTreeSet<(i64, usize)> = BTreeSet::new();
        while let Some(first) = queue.pop() {
            if first.gain <= 0.0 {
                return None;
            }
            if fresh.contains(&first.key) {
                return Some(first.key);
            }
            fresh.insert(first.key);
            let (distance, level) = first.key;
            queue.push(Candidate { gain: self.gain(resident, distance, level), key: first.key });
        }
        None
    }
}
