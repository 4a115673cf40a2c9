//! The search for key sets, from the fewest bytes and from the fewest seconds: it repeats the best exchange
//! of one for the other, and tries pairs of changes until nothing gains. [`super::problem`] defines the
//! choices; `docs/scripts/keyset_exact.py` solves the same problem exactly.

use super::problem::{Plan, Problem};
use super::{Budget, Cost, Goal, pareto_front};

/// Selections of the front from which pairs of changes start.
const MAX_STARTS: usize = 6;

/// A plan for each class, and the resulting costs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selection {
    pub picked: Vec<usize>,
    pub seconds: f64,
    pub bytes: u64,
    /// Bytes of keys, weights and what a step holds.
    pub memory: u64,
}

/// A selection that changes step by step, with the uses of each key at each level.
struct Tally<'a> {
    problem: &'a Problem,
    picked: Vec<usize>,
    uses: Vec<Vec<u32>>,
    bytes: u64,
}

/// Another plan for a class.
#[derive(Clone, Copy)]
struct Change {
    class: usize,
    plan: usize,
}

impl<'a> Tally<'a> {
    fn new(problem: &'a Problem, picked: Vec<usize>) -> Self {
        let uses = problem.keys.iter().map(|key| vec![0; key.bytes.len()]).collect();
        let mut tally = Self { problem, picked, uses, bytes: 0 };
        let picked = tally.picked.iter().zip(&problem.classes).flat_map(|(&p, class)| &class.plans[p].needs);
        for need in problem.fixed.iter().chain(picked) {
            tally.uses[need.key][need.level] += 1;
        }
        tally.bytes = (0..problem.keys.len()).map(|key| tally.key_bytes(key)).sum();
        tally
    }

    /// Bytes of a key at the highest level that needs it.
    fn key_bytes(&self, key: usize) -> u64 {
        let level = self.uses[key].iter().rposition(|&count| count > 0).unwrap_or(0);
        self.problem.keys[key].bytes[level]
    }

    fn change(&mut self, class: usize, plan: usize) {
        let plans = &self.problem.classes[class].plans;
        let (old, new) = (&plans[self.picked[class]].needs, &plans[plan].needs);
        for (needs, is_added) in [(new, true), (old, false)] {
            for need in needs {
                let old_bytes = self.key_bytes(need.key);
                let count = &mut self.uses[need.key][need.level];
                *count = if is_added { *count + 1 } else { *count - 1 };
                self.bytes = self.bytes + self.key_bytes(need.key) - old_bytes;
            }
        }
        self.picked[class] = plan;
    }

    fn seconds(&self) -> f64 {
        let plans = self.picked.iter().zip(&self.problem.classes);
        self.problem.fixed_seconds + plans.map(|(&p, class)| class.plans[p].seconds).sum::<f64>()
    }

    /// The server's bytes: keys, weights, and the most that a plan holds.
    fn memory(&self) -> u64 {
        let plans = self.picked.iter().zip(&self.problem.classes);
        let max_held = plans.map(|(&p, class)| class.plans[p].held).max().unwrap_or(0);
        self.bytes + self.problem.weights + max_held
    }

    fn selection(&self) -> Selection {
        let (bytes, memory) = (self.bytes, self.memory());
        Selection { picked: self.picked.clone(), seconds: self.seconds(), bytes, memory }
    }

    /// All changes of a single class's plan.
    fn moves(&self) -> Vec<Change> {
        let moves = self.picked.iter().enumerate().flat_map(|(class, &picked)| {
            let plans = self.problem.classes[class].plans.len();
            (0..plans).filter(move |plan| *plan != picked).map(move |plan| Change { class, plan })
        });
        moves.collect()
    }

    /// Looks at the changed selection, then restores it.
    fn evaluate<T>(&mut self, Change { class, plan }: Change, look: impl FnOnce(&mut Self) -> T) -> T {
        let old_plan = self.picked[class];
        self.change(class, plan);
        let result = look(self);
        self.change(class, old_plan);
        result
    }
}

/// Selections of which none beats another in both bytes and seconds, by bytes.
pub(super) fn front(problem: &Problem) -> Vec<Selection> {
    let lightest = cheapest_plans(problem, &|plan| {
        plan.needs.iter().map(|need| problem.keys[need.key].bytes[need.level]).sum::<u64>() as f64
    });
    let smallest = improve(problem, lightest, &|s| Cost { first: s.bytes as f64, second: s.seconds }, true);
    let fastest = cheapest_plans(problem, &|plan| plan.seconds);
    let mut selections = Vec::new();
    walk(problem, smallest.picked, &mut selections, &|current, candidate| {
        let gain = current.seconds - candidate.seconds;
        (gain > 0.0).then(|| (candidate.bytes as f64 - current.bytes as f64) / gain)
    });
    walk(problem, fastest, &mut selections, &|current, candidate| {
        let saved = current.bytes as f64 - candidate.bytes as f64;
        (saved > 0.0).then(|| (candidate.seconds - current.seconds) / saved)
    });
    pareto_front(selections, |selection| (selection.bytes, selection.seconds))
}

/// The plan of least cost for each class on its own.
fn cheapest_plans(problem: &Problem, cost: &dyn Fn(&Plan) -> f64) -> Vec<usize> {
    let best = problem.classes.iter().map(|class| {
        let plans = class.plans.iter().enumerate();
        plans.min_by(|a, b| tacit_floats::rising(&cost(a.1), &cost(b.1))).map_or(0, |(i, _)| i)
    });
    best.collect()
}

/// The best selection within the budget, from those of the front that cost least; `None` if none fits.
pub(super) fn find_best(problem: &Problem, front: &[Selection], budget: Budget, goal: Goal) -> Option<Selection> {
    // Outside the budget the cost grows with the bytes, so that improvements lead back into it.
    let cost = |s: &Selection| match budget.holds(s.bytes, s.memory) {
        true => goal.cost(s.seconds, s.bytes, s.memory),
        false => Cost { first: f64::MAX / 2.0, second: s.bytes as f64 + s.memory as f64 },
    };
    let mut starts: Vec<&Selection> = front.iter().collect();
    starts.sort_by(|a, b| cost(a).rising(&cost(b)));
    let improvements =
        starts.into_iter().take(MAX_STARTS).map(|start| improve(problem, start.picked.clone(), &cost, true));
    let best = improvements.min_by(|a, b| cost(a).rising(&cost(b)))?;
    budget.holds(best.bytes, best.memory).then_some(best)
}

/// Makes the change of least price until none has a price, and records every selection.
fn walk(
    problem: &Problem,
    start: Vec<usize>,
    visited: &mut Vec<Selection>,
    price: &dyn Fn(&Selection, &Selection) -> Option<f64>,
) {
    let mut tally = Tally::new(problem, start);
    loop {
        let current = tally.selection();
        let mut best: Option<(f64, Change)> = None;
        for change in tally.moves() {
            let candidate = tally.evaluate(change, |tally| tally.selection());
            if let Some(price) = price(&current, &candidate).filter(|p| best.is_none_or(|(lowest, _)| *p < lowest)) {
                best = Some((price, change));
            }
        }
        visited.push(current);
        let Some((_, Change { class, plan })) = best else { return };
        tally.change(class, plan);
    }
}

/// Improves `start` by single changes and, if `pairs`, by two at once, while `cost` falls.
pub(super) fn improve(
    problem: &Problem,
    start: Vec<usize>,
    cost: &dyn Fn(&Selection) -> Cost,
    pairs: bool,
) -> Selection {
    let mut tally = Tally::new(problem, start);
    loop {
        let current = cost(&tally.selection());
        let (mut best, mut changes) = (current, Vec::new());
        for change in tally.moves() {
            let candidate = tally.evaluate(change, |tally| cost(&tally.selection()));
            if candidate < best {
                (best, changes) = (candidate, vec![change]);
            }
        }
        if changes.is_empty() && pairs {
            for first in tally.moves() {
                let partner = tally.evaluate(first, |tally| {
                    let mut partner = None;
                    for second in tally.moves().into_iter().filter(|second| second.class > first.class) {
                        let candidate = tally.evaluate(second, |tally| cost(&tally.selection()));
                        if candidate < best {
                            (best, partner) = (candidate, Some(second));
                        }
                    }
                    partner
                });
                if let Some(second) = partner {
                    changes = vec![first, second];
                }
            }
        }
        if changes.is_empty() {
            return tally.selection();
        }
        changes.into_iter().for_each(|Change { class, plan }| tally.change(class, plan));
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::{Class, Key, Need};
    use super::*;
    use crate::rotation_method::RotationMethod;
    use tacit_graph::rng::SplitMix;

    /// Makes layers that share some of their keys, with plans of few keys and of many.
    fn random_problem(rng: &mut SplitMix, classes: usize) -> Problem {
        let mut draw = |low: usize, high: usize| rng.range(low as f64, high as f64 + 1.0) as usize;
        let key = |draw: &mut dyn FnMut(usize, usize) -> usize| {
            let unit = draw(1, 4) as u64;
            Key { name: String::new(), id: None, bytes: (0..6u64).map(|level| unit * level * (level + 1)).collect() }
        };
        let keys: Vec<Key> = (0..12).map(|_| key(&mut draw)).collect();
        let class = |level: usize, draw: &mut dyn FnMut(usize, usize) -> usize| {
            let plan = |count: usize| {
                let mut needs: Vec<Need> = (0..count).map(|_| Need { key: draw(0, 11), level }).collect();
                needs.sort();
                needs.dedup();
                let seconds = 20.0 / count as f64 + draw(0, 100) as f64 / 50.0;
                Plan { name: String::new(), method: RotationMethod::HOISTED, seconds, held: count as u64, needs }
            };
            let plans = [1, 2, 3, 4, 6].map(plan).into();
            Class { transforms: vec![0], level, plans, offsets: Default::default(), share: 1.0 }
        };
        let classes = (0..classes).map(|i| class(1 + i % 5, &mut draw)).collect();
        Problem { keys, fixed: vec![Need { key: 0, level: 1 }], fixed_seconds: 1.0, classes, weights: 7 }
    }

    fn all_selections(problem: &Problem) -> Vec<Selection> {
        let mut picks = vec![vec![]];
        for class in &problem.classes {
            let extend = |pick: &Vec<usize>| (0..class.plans.len()).map(|p| [&pick[..], &[p]].concat()).collect();
            picks = picks.iter().flat_map(|pick| -> Vec<Vec<usize>> { extend(pick) }).collect();
        }
        picks.into_iter().map(|pick| Tally::new(problem, pick).selection()).collect()
    }

    #[test]
    fn tally_equals_recomputed_sums() {
        let problem = random_problem(&mut SplitMix::new(1), 4);
        let mut tally = Tally::new(&problem, vec![0; 4]);
        for (class, plan) in [(0, 3), (2, 4), (0, 1), (3, 2), (1, 1), (2, 0)] {
            tally.change(class, plan);
            let fresh = Tally::new(&problem, tally.picked.clone()).selection();
            let needs = tally.picked.iter().zip(&problem.classes).flat_map(|(&p, c)| c.plans[p].needs.clone());
            let mut highest = std::collections::BTreeMap::new();
            for need in needs.chain(problem.fixed.clone()) {
                let level = highest.entry(need.key).or_insert(0);
                *level = need.level.max(*level);
            }
            let bytes: u64 = highest.iter().map(|(&key, &level)| problem.keys[key].bytes[level]).sum();
            assert_eq!((tally.selection(), fresh.bytes), (fresh, bytes));
        }
    }

    /// On average the search is within 3 % of the optimum, for budgets that some selection fits.
    #[test]
    fn search_is_near_optimum() {
        let (mut sum, mut count) = (0.0, 0.0);
        for seed in 0..12 {
            let problem = random_problem(&mut SplitMix::new(seed), 4);
            let front = front(&problem);
            assert!(front.windows(2).all(|w| w[0].bytes < w[1].bytes && w[0].seconds > w[1].seconds));
            let selections = all_selections(&problem);
            let fewest_bytes = front[0].bytes;
            for upload in [fewest_bytes, fewest_bytes * 5 / 4, fewest_bytes * 2, u64::MAX] {
                let optimum =
                    selections.iter().filter(|s| s.bytes <= upload).map(|s| s.seconds).fold(f64::MAX, f64::min);
                let budget = Budget { memory: None, upload: Some(upload) };
                let selected = find_best(&problem, &front, budget, Goal::Latency).unwrap();
                assert!(selected.bytes <= upload);
                assert!(selected.seconds >= optimum - 1e-9);
                sum += selected.seconds / optimum;
                count += 1.0;
            }
        }
        assert!(sum / count < 1.03, "{}", sum / count);
    }
}
