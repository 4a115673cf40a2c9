//! The search for the cheapest scales that preserve accuracy.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::emit::{Emitted, emit};
use super::scheme::Scheme;
use super::{Problem, Target};
use crate::{RingError, reference};
use tacit_backend_api::classes::{class, flip_probability, is_class_of, relative_error, root_mean_square};
use tacit_backend_api::{BackendError, Result};

/// Finest precision to try, in bits relative to a tensor's root mean square.
const FINEST: i32 = 12;
/// Coarsest precision, even if the samples allow less: other inputs may need it.
const COARSEST: i32 = 4;
/// The same for random inputs, whose errors average out more than those of real inputs.
const COARSEST_GUESSED: i32 = 6;
/// How often demands are tightened because of the held-out samples.
const MAX_TIGHTENINGS: usize = 3;
/// Seed offset for judging, with other simulated errors than the search.
const JUDGE_SEED_OFFSET: u64 = 1 << 32;
/// Most multiplications for schemes that are only reported.
const MAX_LOOK_WORK: u64 = 2_000_000_000;
/// Share of the cost that a test of fewer bits must save to be worth its error.
const MIN_SAVING: f64 = 0.01;
/// Most bits by which the precision of weights may exceed that of activations.
const WEIGHTS_ABOVE: i32 = 4;

/// Quality of a scheme on some of the calibration samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Quality {
    /// Share of samples with the float network's class.
    pub agreement: f64,
    /// Expected share of inputs like these that get another class, by the margins between outputs.
    pub flips: f64,
    /// Mean over samples of the outputs' root mean square error, as a share of their range.
    pub error: f64,
    /// The same error in the unit of the float network's outputs.
    pub distance: f64,
}

/// A scheme that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Bits below the root mean square, for tensors.
    pub activations: i32,
    /// Bits below the root mean square, for weights.
    pub weights: i32,
    /// Low bits that ReLUs leave out of their tests.
    pub relu_drop: u32,
    /// Online cost of one inference, by the back end's own measure (bytes both ways).
    pub cost: f64,
    /// Expected share of inputs with the float network's class, on the samples of the search; `None` if those
    /// are made up.
    pub expected_agreement: Option<f64>,
    /// Mean of the outputs' root mean square error on these samples, as a share of their range.
    pub output_error: f64,
}

/// A candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Trial {
    activations: i32,
    weights: i32,
    relu_drop: u32,
}

/// Runs samples with simulated truncation errors and ReLUs that leave out `relu_drop` bits.
fn quality(
    problem: &Problem,
    emitted: &Emitted,
    relu_drop: u32,
    range: Range<usize>,
    seed: u64,
) -> Result<Quality, RingError> {
    let (graph, calibration) = (&emitted.graph, &problem.model.calibration);
    let (mut same_count, mut error, mut flips, mut distance) = (0usize, 0.0, 0.0, 0.0);
    let count = range.len() as f64;
    problem.tried.set(problem.tried.get() + 1);
    for i in range {
        problem.watch.tell("choosing scales, attempts", problem.tried.get(), None)?;
        let (sample, expected) = (&calibration.samples[i], &calibration.wanted[i]);
        let ints = reference::quantize_unchecked(graph, sample);
        let seed = seed.wrapping_add(i as u64);
        let out = reference::run_with_share_errors(graph, &emitted.weights, &ints, seed, relu_drop)?;
        let scale = graph.output().fixed;
        let outputs: Vec<f64> = out.iter().map(|&v| scale.dequantize(v)).collect();
        same_count += usize::from(is_class_of(class(&outputs), expected));
        error += relative_error(&outputs, expected, problem.output_range);
        distance += root_mean_square(&outputs, expected);
        flips += flip_probability(expected, &outputs);
    }
    let distance = distance / count * problem.model.output_multiplier;
    Ok(Quality { agreement: same_count as f64 / count, flips: flips / count, error: error / count, distance })
}

pub(super) struct Found {
    pub scheme: Scheme,
    pub relu_drop: u32,
    pub quality: Quality,
    /// Other tried schemes to report.
    pub choices: Vec<Choice>,
}

/// Requirements on the samples of the search.
#[derive(Debug, Clone, Copy)]
struct Demands {
    error: f64,
    flips: f64,
}

/// Finds the cheapest scheme that also meets its promises on the held-out samples, and other schemes to
/// report.
///
/// # Errors
/// If no scheme fits the supported rings, the back end can compute none of those that fit, or it fails for
/// another reason.
pub(super) fn cheapest(problem: &Problem, target: &Target) -> Result<Found> {
    let mut search = Search::new(problem, target);
    let options = problem.options;
    let mut demands = Demands { error: options.error_bound, flips: 1.0 - options.agreement };
    let mut best = search.cheapest(demands)?;
    let mut quality = search.judge(best)?;
    // The search's own samples give too good a result.
    for _ in 0..MAX_TIGHTENINGS {
        if problem.held_out.is_empty() || quality.flips <= 1.0 - options.agreement {
            break;
        }
        demands = Demands { error: demands.error / 2.0, flips: demands.flips / 2.0 };
        best = search.cheapest(demands)?;
        quality = search.judge(best)?;
    }
    search.look_around(best)?;
    Ok(Found { scheme: search.scheme(best), relu_drop: best.relu_drop, quality, choices: search.choices() })
}

/// Quality of a scheme on the held-out samples (or else on those of the search), with other simulated errors.
pub(super) fn judge(problem: &Problem, scheme: &Scheme, relu_drop: u32) -> Result<Quality, RingError> {
    let judges = if problem.held_out.is_empty() { &problem.searched } else { &problem.held_out };
    let (emitted, seed) = (emit(problem, scheme, false)?, problem.options.seed.wrapping_add(JUDGE_SEED_OFFSET));
    quality(problem, &emitted, relu_drop, judges.clone(), seed)
}

struct Search<'a> {
    problem: &'a Problem<'a>,
    target: &'a Target<'a>,
    coarsest: i32,
    tried: BTreeMap<Trial, (f64, Quality)>,
    /// The back end's reason for its last refusal.
    refused: Option<BackendError>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, target: &'a Target) -> Self {
        let coarsest = if problem.model.calibration.guessed { COARSEST_GUESSED } else { COARSEST };
        Self { problem, target, coarsest, tried: BTreeMap::new(), refused: None }
    }

    /// A trial with the fewest bits left out.
    fn trial(&self, activations: i32, weights: i32) -> Trial {
        Trial { activations, weights, relu_drop: *self.problem.options.relu_drop.start() }
    }

    fn scheme(&self, trial: Trial) -> Scheme {
        let Trial { activations, weights, .. } = trial;
        Scheme::Relative { activations, weights, most: self.problem.options.max_frac_bits }
    }

    fn judge(&self, trial: Trial) -> Result<Quality, RingError> {
        judge(self.problem, &self.scheme(trial), trial.relu_drop)
    }

    /// The model under a scheme, with its outputs revealed, and its cost; `None` if no ring fits or the back
    /// end refuses.
    fn computable(&mut self, trial: Trial) -> Result<Option<(Emitted, f64)>> {
        let emitted = match emit(self.problem, &self.scheme(trial), false) {
            Err(RingError::NoRing { .. }) => return Ok(None),
            other => other?,
        };
        let price = (self.target.price)(&emitted.graph, trial.relu_drop);
        Ok(self.unless_refused(price)?.map(|cost| (emitted, cost)))
    }

    /// Whether the back end compiles the model as it is finally revealed.
    fn compiles(&mut self, trial: Trial) -> Result<bool> {
        let emitted = match emit(self.problem, &self.scheme(trial), self.problem.top1()) {
            Err(RingError::NoRing { .. }) => return Ok(false),
            other => other?,
        };
        let checked = (self.target.check)(&emitted.graph, trial.relu_drop);
        Ok(self.unless_refused(checked)?.is_some())
    }

    /// Turns a refusal of the rings into `None`: other scales may work.
    fn unless_refused<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(refused @ BackendError::Unsupported { .. }) => {
                self.refused = Some(refused);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Returns `None` if the scheme cannot be computed.
    fn quality(&mut self, trial: Trial) -> Result<Option<Quality>> {
        if let Some((_, quality_before)) = self.tried.get(&trial) {
            return Ok(Some(*quality_before));
        }
        let Some((emitted, cost)) = self.computable(trial)? else { return Ok(None) };
        let Problem { searched, options, .. } = self.problem;
        let result = quality(self.problem, &emitted, trial.relu_drop, searched.clone(), options.seed)?;
        self.tried.insert(trial, (cost, result));
        Ok(Some(result))
    }

    /// Searches from coarse to fine scales, and then with fewer bits in the tests of ReLUs.
    fn cheapest(&mut self, demands: Demands) -> Result<Trial> {
        let reachable = self.reachable()?;
        match self.cheapest_scales(reachable, demands)? {
            Some((cost, trial)) => self.fewest_tested(cost, trial, reachable, demands),
            None => self.finest(),
        }
    }

    fn cheapest_scales(&mut self, best: f64, demands: Demands) -> Result<Option<(f64, Trial)>> {
        let mut least_found: Option<(f64, Trial)> = None;
        let mut first_ok = None;
        for p in self.coarsest..=FINEST {
            // Coarser weights may suffice one step beyond the coarsest sufficient activations.
            if first_ok.is_some_and(|f| p > f + 1) {
                break;
            }
            if first_ok.is_none() && !self.accepts(self.trial(p, p + WEIGHTS_ABOVE), best, demands)? {
                continue;
            }
            first_ok.get_or_insert(p);
            for w in (p - 2).max(self.coarsest)..=p + WEIGHTS_ABOVE {
                let trial = self.trial(p, w);
                let Some((_, cost)) = self.computable(trial)? else { continue };
                if least_found.as_ref().is_some_and(|(least_cost, _)| cost >= *least_cost) {
                    break;
                }
                if self.accepts(trial, best, demands)? && self.compiles(trial)? {
                    least_found = Some((cost, trial));
                    break;
                }
            }
        }
        Ok(least_found)
    }

    /// Finds cheaper trials with more bits left out, at the found scales or with slightly finer weights.
    /// Random inputs tell too little about small values.
    fn fewest_tested(&mut self, mut least_cost: f64, scales: Trial, reachable: f64, demands: Demands) -> Result<Trial> {
        let mut best_scales = scales;
        let drops = self.problem.options.relu_drop.clone().skip(1);
        for relu_drop in drops.take_while(|_| !self.problem.model.calibration.guessed) {
            for weights in [scales.weights, scales.weights + 1] {
                let trial = Trial { weights, relu_drop, ..scales };
                let Some((_, cost)) = self.computable(trial)? else { continue };
                if cost < (1.0 - MIN_SAVING) * least_cost
                    && self.accepts(trial, reachable, demands)?
                    && self.compiles(trial)?
                {
                    (least_cost, best_scales) = (cost, trial);
                    break;
                }
            }
        }
        Ok(best_scales)
    }

    fn reachable(&mut self) -> Result<f64> {
        for p in (self.coarsest..=FINEST).rev().step_by(2) {
            if let Some(q) = self.quality(self.trial(p, p))? {
                return Ok(q.agreement);
            }
        }
        Err(self.nothing_fits())
    }

    fn accepts(&mut self, trial: Trial, agreement: f64, demands: Demands) -> Result<bool> {
        let guessed = self.problem.model.calibration.guessed;
        let q = self.quality(trial)?;
        Ok(q.is_some_and(|q| {
            // Random inputs have no meaningful class, so margins give no information.
            let keeps = if guessed { q.agreement >= agreement } else { q.flips <= demands.flips };
            keeps && q.error <= demands.error
        }))
    }

    /// Tries slightly coarser and finer scales than the chosen ones, if samples are cheap to run: the owner
    /// then sees the knee of the trade-off.
    fn look_around(&mut self, chosen: Trial) -> Result<()> {
        let sample_work = self.problem.model.graph.macs().saturating_mul(self.problem.searched.len() as u64);
        let affordable = (MAX_LOOK_WORK / sample_work.max(1)) as usize;
        for step in [2, 1, -1, 4].into_iter().take(affordable) {
            let activations = chosen.activations + step;
            if (self.coarsest..=FINEST).contains(&activations) {
                self.quality(Trial { activations, weights: chosen.weights + step, ..chosen })?;
            }
        }
        Ok(())
    }

    /// The tried schemes that no other beats in both cost and error.
    fn choices(&self) -> Vec<Choice> {
        let choices = self.tried.iter().map(|(&Trial { activations, weights, relu_drop }, &(cost, q))| Choice {
            activations,
            weights,
            relu_drop,
            cost,
            expected_agreement: (!self.problem.model.calibration.guessed).then_some(1.0 - q.flips),
            output_error: q.error,
        });
        let mut choices: Vec<Choice> = choices.collect();
        choices.sort_by(|a, b| {
            tacit_floats::rising(&a.cost, &b.cost).then(tacit_floats::rising(&a.output_error, &b.output_error))
        });
        let mut least_cost = f64::INFINITY;
        choices.retain(|c| {
            let worth = c.output_error < least_cost;
            least_cost = least_cost.min(c.output_error);
            worth
        });
        choices
    }

    /// The most exact scheme that compiles, if none met the bound.
    fn finest(&mut self) -> Result<Trial> {
        let mut best: Option<(f64, Trial)> = None;
        for p in (self.coarsest..=FINEST).rev() {
            let trial = self.trial(p, p);
            if let Some(q) = self.quality(trial)?
                && best.as_ref().is_none_or(|(e, _)| q.error < *e)
                && self.compiles(trial)?
            {
                best = Some((q.error, trial));
            }
        }
        best.map(|(_, s)| s).ok_or_else(|| self.nothing_fits())
    }

    fn nothing_fits(&mut self) -> BackendError {
        let message = "no choice of scales fits the supported rings: a tensor's values spread too far, or the input range is too wide";
        self.refused.take().unwrap_or_else(|| RingError::NoRing { what: message.into() }.into())
    }
}
