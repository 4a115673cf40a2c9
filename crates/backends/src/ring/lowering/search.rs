//! The cheapest scales that keep accuracy.

use std::ops::Range;

use tacit_graph::kernel;

use super::emit::{Emitted, Scheme, emit};
use super::{Problem, Target};
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

/// How good a scheme is on some of the calibration samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Quality {
    /// Share of samples with the float network's class.
    pub agreement: f64,
    /// Mean over samples of the root mean square error of the outputs, as a share of their range.
    pub error: f64,
}

/// Runs the samples at `which` with simulated truncation errors.
pub(super) fn quality(
    problem: &Problem,
    emitted: &Emitted,
    which: Range<usize>,
    seed: u64,
) -> Result<Quality, RingError> {
    let (graph, calibration) = (&emitted.graph, &problem.model.calibration);
    let (mut same, mut error) = (0usize, 0.0);
    let count = which.len() as f64;
    problem.tried.set(problem.tried.get() + 1);
    for i in which {
        problem.watch.tell("choosing scales, attempts", problem.tried.get(), None)?;
        let (sample, wanted) = (&calibration.samples[i], &calibration.wanted[i]);
        let fixed = graph.input().fixed;
        let ints: Vec<i64> = sample.iter().map(|&x| fixed.quantize(f64::from(x))).collect();
        let out = reference::run_with_share_errors(graph, &emitted.weights, &ints, seed.wrapping_add(i as u64))?;
        let scale = graph.output().fixed;
        let got: Vec<f64> = out.iter().map(|&v| scale.dequantize(v)).collect();
        same += usize::from(class(&got) == class(wanted));
        error += relative_error(&got, wanted, problem.spread);
    }
    Ok(Quality { agreement: same as f64 / count, error: error / count })
}

/// The class that outputs stand for: the largest of several, the sign of a single one.
pub(super) fn class<T: Copy + Default + PartialOrd>(outputs: &[T]) -> usize {
    match outputs {
        [one] => usize::from(*one > T::default()),
        several => kernel::arg_max(several),
    }
}

/// How far the wanted values of all samples spread: what errors are measured in where those of one sample are all the same.
pub(super) fn spread(wanted: &[Vec<f32>]) -> f64 {
    let [low, high] = range(wanted.iter().flatten());
    match (high > low, high.abs()) {
        (true, _) => high - low,
        (false, size) if size > 0.0 => size,
        _ => 1.0,
    }
}

fn range<'a>(values: impl Iterator<Item = &'a f32>) -> [f64; 2] {
    values.fold([f64::INFINITY, f64::NEG_INFINITY], |[l, h], v| [l.min(f64::from(*v)), h.max(f64::from(*v))])
}

/// Root mean square error as a share of the range of the wanted values (of `spread`, where they have none).
pub(super) fn relative_error(got: &[f64], wanted: &[f32], spread: f64) -> f64 {
    let [low, high] = range(wanted.iter());
    let squares: f64 = got.iter().zip(wanted).map(|(g, w)| (g - f64::from(*w)).powi(2)).sum();
    (squares / wanted.len().max(1) as f64).sqrt() / if high > low { high - low } else { spread }
}

/// Searches schemes from coarse to fine for the one that the back end calls the cheapest, among those that it can compute.
///
/// # Errors
/// No scheme fits the supported rings, the back end can compute none of those that do, or it fails for other reasons.
pub(super) fn cheapest(problem: &Problem, target: &Target) -> Result<Scheme, BackendError> {
    let mut search = Search::new(problem, target);
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
            let Some((_, cost)) = search.computable(p, w)? else { continue };
            if found.as_ref().is_some_and(|(known, _)| cost >= *known) {
                break;
            }
            if search.accepts(p, w, best)? && search.compiles(p, w)? {
                found = Some((cost, search.scheme(p, w)));
                break;
            }
        }
    }
    match found {
        Some((_, scheme)) => Ok(scheme),
        None => search.finest(),
    }
}

struct Search<'a> {
    problem: &'a Problem<'a>,
    target: &'a Target<'a>,
    coarsest: i32,
    /// Why the back end could not compute what it was given last.
    refused: Option<BackendError>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, target: &'a Target) -> Self {
        let coarsest = if problem.model.calibration.guessed { COARSEST_GUESSED } else { COARSEST };
        Self { problem, target, coarsest, refused: None }
    }

    fn scheme(&self, activations: i32, weights: i32) -> Scheme {
        Scheme::Relative { activations, weights, most: self.problem.options.max_frac_bits }
    }

    /// The model under a scheme, its outputs revealed, and what it costs; `None` where no ring or not the back end takes it.
    fn computable(&mut self, activations: i32, weights: i32) -> Result<Option<(Emitted, f64)>, BackendError> {
        let emitted = match emit(self.problem, &self.scheme(activations, weights), false) {
            Err(RingError::NoRing { .. }) => return Ok(None),
            other => other?,
        };
        let price = (self.target.price)(&emitted.graph);
        Ok(self.unless_refused(price)?.map(|cost| (emitted, cost)))
    }

    /// Whether the back end compiles the model under a scheme, as it is revealed in the end.
    fn compiles(&mut self, activations: i32, weights: i32) -> Result<bool, BackendError> {
        let emitted = match emit(self.problem, &self.scheme(activations, weights), self.problem.top1()) {
            Err(RingError::NoRing { .. }) => return Ok(false),
            other => other?,
        };
        let checked = (self.target.check)(&emitted.graph);
        Ok(self.unless_refused(checked)?.is_some())
    }

    /// Rings that this back end cannot compute in: other scales may do.
    fn unless_refused<T>(&mut self, result: Result<T, BackendError>) -> Result<Option<T>, BackendError> {
        match result {
            Err(refused @ BackendError::Unsupported { .. }) => {
                self.refused = Some(refused);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// What a scheme reaches; `None` where it cannot be computed.
    fn quality(&mut self, activations: i32, weights: i32) -> Result<Option<Quality>, BackendError> {
        let Some((emitted, _)) = self.computable(activations, weights)? else { return Ok(None) };
        let Problem { searched, options, .. } = self.problem;
        Ok(Some(quality(self.problem, &emitted, searched.clone(), options.seed)?))
    }

    /// The best agreement that fine scales reach.
    fn reachable(&mut self) -> Result<f64, BackendError> {
        for p in (self.coarsest..=FINEST).rev().step_by(2) {
            if let Some(q) = self.quality(p, p)? {
                return Ok(q.agreement);
            }
        }
        Err(self.nothing_fits())
    }

    fn accepts(&mut self, activations: i32, weights: i32, agreement: f64) -> Result<bool, BackendError> {
        let q = self.quality(activations, weights)?;
        Ok(q.is_some_and(|q| q.agreement >= agreement && q.error <= self.problem.options.error_bound))
    }

    /// The most exact scheme that compiles: nothing met the bound.
    fn finest(&mut self) -> Result<Scheme, BackendError> {
        let mut best: Option<(f64, Scheme)> = None;
        for p in (self.coarsest..=FINEST).rev() {
            if let Some(q) = self.quality(p, p)?
                && best.as_ref().is_none_or(|(e, _)| q.error < *e)
                && self.compiles(p, p)?
            {
                best = Some((q.error, self.scheme(p, p)));
            }
        }
        best.map(|(_, s)| s).ok_or_else(|| self.nothing_fits())
    }

    fn nothing_fits(&mut self) -> BackendError {
        let what = "no choice of scales fits the supported rings: a tensor's values spread too far, or the input range is too wide";
        self.refused.take().unwrap_or_else(|| RingError::NoRing { what: what.into() }.into())
    }
}
