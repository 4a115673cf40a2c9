//! The cheapest scales that keep accuracy.

use tacit_graph::kernel;

use super::emit::{Emitted, Scheme, emit};
use super::{Price, Problem};
use crate::BackendError;
use crate::ring::{RingError, reference};

/// Finest precision tried, in bits relative to a tensor's root mean square.
const FINEST: i32 = 12;
/// Coarsest precision of activations and of weights, however well the samples take it: other inputs come.
const COARSEST: i32 = 4;
/// The same where ranges come from random inputs, whose errors average out more than those of real ones.
const COARSEST_GUESSED: i32 = 6;
/// How many bits more than activations weights may get, and how many fewer.
const WEIGHTS_ABOVE: i32 = 4;

/// How good a scheme is on the calibration samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Quality {
    /// Share of samples with the float network's class.
    pub agreement: f64,
    /// Mean over samples of the root mean square error of the logits, as a share of their range.
    pub error: f64,
}

/// Runs the samples with simulated truncation errors.
pub(super) fn quality(problem: &Problem, emitted: &Emitted, seed: u64) -> Result<Quality, RingError> {
    let Problem { model, .. } = problem;
    let graph = &emitted.graph;
    let (mut same, mut error) = (0usize, 0.0);
    let samples = &model.calibration.samples;
    problem.tried.set(problem.tried.get() + 1);
    for (i, (sample, wanted)) in samples.iter().zip(&model.calibration.wanted).enumerate() {
        problem.watch.tell("choosing scales, attempts", problem.tried.get(), None)?;
        let fixed = graph.input().fixed;
        let ints: Vec<i64> = sample.iter().map(|&x| fixed.quantize(f64::from(x))).collect();
        let out = reference::run_with_share_errors(graph, &emitted.weights, &ints, seed.wrapping_add(i as u64))?;
        let scale = graph.output().fixed;
        let got: Vec<f64> = out.iter().map(|&v| scale.dequantize(v)).collect();
        same += usize::from(kernel::arg_max(&got) == kernel::arg_max(wanted));
        error += relative_error(&got, wanted);
    }
    Ok(Quality { agreement: same as f64 / samples.len() as f64, error: error / samples.len() as f64 })
}

/// Root mean square error as a share of the range of the wanted values (of their magnitude, where there is no range).
pub(super) fn relative_error(got: &[f64], wanted: &[f32]) -> f64 {
    let low = wanted.iter().copied().fold(f32::INFINITY, f32::min);
    let high = wanted.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let range = if high > low { high - low } else { high.abs().max(f32::MIN_POSITIVE) };
    let squares: f64 = got.iter().zip(wanted).map(|(g, w)| (g - f64::from(*w)).powi(2)).sum();
    (squares / wanted.len().max(1) as f64).sqrt() / f64::from(range)
}

/// Searches schemes from coarse to fine for the one that `price` says is the cheapest.
///
/// # Errors
/// No scheme fits the supported rings, or `price` fails on a model for other reasons than that it cannot be compiled.
pub(super) fn cheapest(problem: &Problem, price: &Price) -> Result<Scheme, BackendError> {
    let search = Search::new(problem);
    let best = search.reachable()?;
    let mut found: Option<(f64, Scheme)> = None;
    let mut first_ok = None;
    for p in search.coarsest..=FINEST {
        // One step beyond the coarsest activations that do: there, coarser weights may do as well.
        if first_ok.is_some_and(|f| p > f + 1) {
            break;
        }
        if first_ok.is_none() && !search.accepts(p, p + WEIGHTS_ABOVE, best)? {
            continue;
        }
        first_ok.get_or_insert(p);
        for w in (p - 2).max(search.coarsest)..=p + WEIGHTS_ABOVE {
            let scheme = search.scheme(p, w);
            let Some(emitted) = fitting(problem, &scheme)? else { continue };
            let cost = match price(&emitted.graph) {
                // Rings that this back end cannot compute in: other scales may do.
                Err(BackendError::Unsupported { .. }) => continue,
                other => other?,
            };
            if found.as_ref().is_some_and(|(known, _)| cost >= *known) {
                break;
            }
            if search.accepts(p, w, best)? {
                found = Some((cost, scheme));
                break;
            }
        }
    }
    match found {
        Some((_, scheme)) => Ok(scheme),
        None => Ok(search.finest()?),
    }
}

/// The model under a scheme, its logits revealed; `None` where it fits no ring.
fn fitting(problem: &Problem, scheme: &Scheme) -> Result<Option<Emitted>, RingError> {
    match emit(problem, scheme, false) {
        Ok(emitted) => Ok(Some(emitted)),
        Err(RingError::NoRing { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

struct Search<'a> {
    problem: &'a Problem<'a>,
    coarsest: i32,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem) -> Self {
        let coarsest = if problem.model.calibration.guessed { COARSEST_GUESSED } else { COARSEST };
        Self { problem, coarsest }
    }

    fn scheme(&self, activations: i32, weights: i32) -> Scheme {
        Scheme::Relative { activations, weights, most: self.problem.options.max_frac_bits }
    }

    /// What a scheme reaches; `None` where it fits no ring.
    fn quality(&self, activations: i32, weights: i32) -> Result<Option<Quality>, RingError> {
        let fitting = fitting(self.problem, &self.scheme(activations, weights))?;
        fitting.map(|emitted| quality(self.problem, &emitted, self.problem.options.seed)).transpose()
    }

    /// The best agreement that fine scales reach.
    fn reachable(&self) -> Result<f64, RingError> {
        for p in (self.coarsest..=FINEST).rev().step_by(2) {
            if let Some(q) = self.quality(p, p)? {
                return Ok(q.agreement);
            }
        }
        Err(RingError::NoRing {
            what: "no choice of scales fits the supported rings: a tensor's values spread too far, or the input range is too wide"
                .into(),
        })
    }

    fn accepts(&self, activations: i32, weights: i32, agreement: f64) -> Result<bool, RingError> {
        let q = self.quality(activations, weights)?;
        Ok(q.is_some_and(|q| q.agreement >= agreement && q.error <= self.problem.options.error_bound))
    }

    /// The finest scheme that fits: nothing met the bound.
    fn finest(&self) -> Result<Scheme, RingError> {
        let mut best: Option<(f64, Scheme)> = None;
        for p in (self.coarsest..=FINEST).rev() {
            if let Some(q) = self.quality(p, p)?
                && best.as_ref().is_none_or(|(e, _)| q.error < *e)
            {
                best = Some((q.error, self.scheme(p, p)));
            }
        }
        best.map(|(_, s)| s)
            .ok_or_else(|| RingError::NoRing { what: "no choice of scales fits the supported rings".into() })
    }
}
