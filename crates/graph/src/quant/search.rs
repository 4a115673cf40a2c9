//! The cheapest scales that keep accuracy.

use super::emit::{Emitted, Scheme, emit};
use super::{ImportOptions, Problem};
use crate::GraphError;
use crate::kernel;
use crate::model::ModelGraph;
use crate::op::{Op, max_comparisons};
use crate::reference;

/// Multiplications that one evaluation may take: bounds the time of an import.
const WORK_PER_EVALUATION: u64 = 1_500_000_000;
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

/// Runs samples with simulated truncation errors. `samples` bounds their number.
pub(super) fn quality(problem: &Problem, emitted: &Emitted, samples: usize, seed: u64) -> Result<Quality, GraphError> {
    let graph = ModelGraph::new(emitted.spec.clone())?;
    let (mut same, mut error) = (0usize, 0.0);
    let count = samples.clamp(1, problem.samples.len());
    for (i, (sample, wanted)) in problem.samples.iter().zip(&problem.wanted).take(count).enumerate() {
        let fixed = graph.input().fixed;
        let ints: Vec<i64> = sample.iter().map(|&x| fixed.quantize(f64::from(x))).collect();
        let out = reference::run_with_share_errors(&graph, &emitted.weights, &ints, seed.wrapping_add(i as u64))?;
        let scale = graph.output().fixed;
        let got: Vec<f64> = out.iter().map(|&v| scale.dequantize(v)).collect();
        same += usize::from(kernel::arg_max(&got) == kernel::arg_max(wanted));
        error += relative_error(&got, wanted);
    }
    Ok(Quality { agreement: same as f64 / count as f64, error: error / count as f64 })
}

/// Root mean square error as a share of the range of the wanted values (of their magnitude, where there is no range).
pub(super) fn relative_error(got: &[f64], wanted: &[f32]) -> f64 {
    let low = wanted.iter().copied().fold(f32::INFINITY, f32::min);
    let high = wanted.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let range = if high > low { high - low } else { high.abs().max(f32::MIN_POSITIVE) };
    let squares: f64 = got.iter().zip(wanted).map(|(g, w)| (g - f64::from(*w)).powi(2)).sum();
    (squares / wanted.len().max(1) as f64).sqrt() / f64::from(range)
}

/// Estimate of what a model costs online: bits of comparisons (about 3.5 messages bits per compared bit) and of ring elements.
fn cost(emitted: &Emitted) -> f64 {
    let nodes = &emitted.spec.nodes;
    nodes
        .iter()
        .map(|n| {
            let width = f64::from(n.fixed.width);
            let before = n.inputs.first().map(|&i| &nodes[i]);
            match (&n.op, before) {
                (Op::Input, _) => n.elements() as f64 * width,
                (Op::Relu | Op::Widen, Some(b)) => n.elements() as f64 * (3.5 * f64::from(b.fixed.width) + width),
                (Op::MaxPool(w), Some(b)) => max_comparisons(w, &b.shape, &n.shape) as f64 * 4.5 * width,
                _ => 0.0,
            }
        })
        .sum()
}

/// Searches schemes from coarse to fine.
///
/// # Errors
/// No scheme fits the supported rings.
pub(super) fn cheapest(problem: &Problem, options: &ImportOptions) -> Result<Scheme, GraphError> {
    let mut search = Search::new(problem, options);
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
            let Ok(emitted) = emit(problem, &scheme, false) else { continue };
            let price = cost(&emitted);
            if found.as_ref().is_some_and(|(known, _)| price >= *known) {
                break;
            }
            if search.accepts(p, w, best)? {
                found = Some((price, scheme));
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
    problem: &'a Problem,
    options: &'a ImportOptions,
    samples: usize,
    coarsest: i32,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, options: &'a ImportOptions) -> Self {
        let samples = (WORK_PER_EVALUATION / problem.graph.macs().max(1)).max(1);
        let coarsest = if options.calibration.is_some() { COARSEST } else { COARSEST_GUESSED };
        Self { problem, options, samples: usize::try_from(samples).unwrap_or(usize::MAX), coarsest }
    }

    fn scheme(&self, activations: i32, weights: i32) -> Scheme {
        Scheme::Relative { activations, weights, most: self.options.max_frac_bits }
    }

    /// What a scheme reaches; `None` where it fits no ring.
    fn quality(&self, activations: i32, weights: i32) -> Result<Option<Quality>, GraphError> {
        match emit(self.problem, &self.scheme(activations, weights), false) {
            Ok(emitted) => quality(self.problem, &emitted, self.samples, self.options.seed).map(Some),
            Err(GraphError::Quantise { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The best agreement that fine scales reach.
    fn reachable(&mut self) -> Result<f64, GraphError> {
        for p in (self.coarsest..=FINEST).rev().step_by(2) {
            if let Some(q) = self.quality(p, p)? {
                return Ok(q.agreement);
            }
        }
        Err(GraphError::Quantise {
            what: "no choice of scales fits the supported rings: a tensor's values spread too far, or the input range is too wide"
                .into(),
        })
    }

    fn accepts(&self, activations: i32, weights: i32, agreement: f64) -> Result<bool, GraphError> {
        let q = self.quality(activations, weights)?;
        Ok(q.is_some_and(|q| q.agreement >= agreement && q.error <= self.options.error_bound))
    }

    /// The finest scheme that fits: nothing met the bound.
    fn finest(&self) -> Result<Scheme, GraphError> {
        let mut best: Option<(f64, Scheme)> = None;
        for p in (self.coarsest..=FINEST).rev() {
            if let Some(q) = self.quality(p, p)?
                && best.as_ref().is_none_or(|(e, _)| q.error < *e)
            {
                best = Some((q.error, self.scheme(p, p)));
            }
        }
        best.map(|(_, s)| s)
            .ok_or_else(|| GraphError::Quantise { what: "no choice of scales fits the supported rings".into() })
    }
}
