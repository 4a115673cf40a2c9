//! The report of a lowering, for the model's owner; the module `text` formats it.

use serde::{Deserialize, Serialize};

use tacit_floats::Interval;
use tacit_graph::FEWEST_SAMPLES;
use tacit_graph::float::FloatOp;
use tacit_graph::float::run::run_tapped;

use super::emit::Emitted;
use super::scheme::Scheme;
pub use super::search::Choice;
use super::search::Found;
use super::{Problem, range, resolution, width};
use crate::op::max_comparisons;
use crate::{Op, RingError, RingGraph, reference};
use tacit_backend_api::classes::{interval, useful_bound};

/// Samples on which every tensor is compared with the float network.
const COMPARED_SAMPLES: usize = 4;

/// The report of one lowering.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RingReport {
    /// Name of the model.
    pub model: String,
    /// The source of the ranges.
    pub calibration: String,
    /// The way scales were chosen.
    pub scheme: String,
    /// Numbers of samples that the search used, and that judge its result.
    pub samples: Samples,
    /// Share of the held-out samples with the float network's class (for a single output: its sign), with
    /// simulated truncation errors. `None` if there are too few samples to hold some out.
    pub agreement: Option<f64>,
    /// Expectation for other inputs like the held-out samples; `None` if `agreement` is `None`.
    pub expected: Option<Expected>,
    /// The tried schemes that no other one beats, from cheap to expensive.
    pub choices: Vec<Choice>,
    /// Mean of the outputs' root mean square error over the held-out samples, or else those of the search, as
    /// a share of their range.
    pub output_error: f64,
    /// Errors of the outputs in their own unit; `None` if only a class is revealed.
    pub errors: Option<OutputErrors>,
    /// One step of the input, in the network's units. Values below half a step count as zero.
    pub input_step: f64,
    /// Tensors whose values can leave their rings.
    pub overflow: Overflow,
    /// Comparisons of one inference, by kind.
    pub comparisons: Comparisons,
    /// Multiplications of one inference in linear layers.
    pub macs: u64,
    /// Private weights and biases.
    pub parameters: u64,
    /// One line for each node that computes.
    pub layers: Vec<LayerReport>,
    /// Rewrites by the importer, with their counts.
    pub notes: Vec<String>,
    /// Warnings for the owner.
    pub warnings: Vec<String>,
}

/// The use of the calibration samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// Samples by which scales were chosen.
    pub searched: usize,
    /// Samples that the search did not use.
    pub held_out: usize,
}

/// Expected share of inputs with the float network's class, by the margins between outputs of the held-out
/// samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The share.
    pub share: f64,
    /// Ends of the 95 % interval, as for a share counted in the same number of samples.
    pub interval: [f64; 2],
}

/// Errors of the outputs, in their own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OutputErrors {
    /// Root mean square distance from the float network: mean over the held-out samples, or else those of the
    /// search.
    pub expected: f64,
    /// Largest distance from the fixed-point model in the clear; `None` if the proven bound is not below the
    /// outputs' own range.
    pub bound: Option<f64>,
    /// Spread of the outputs of the samples.
    pub range: f64,
}

impl RingReport {
    /// Records the largest distance of answers from the fixed-point model in the clear.
    pub fn state_bound(&mut self, bound: f64) {
        if let Some(errors) = &mut self.errors {
            errors.bound = useful_bound(bound, Interval { low: 0.0, high: errors.range });
        }
    }
}

/// How sure it is that no accepted input overflows a tensor's ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Overflow {
    /// Tensors that the weights bound.
    pub certain: usize,
    /// Other tensors, whose rings hold more than the calibrated magnitudes.
    pub likely: usize,
    /// The least factor between what such a ring holds and the largest calibrated magnitude.
    pub least_factor: f64,
}

/// Comparisons of one inference by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparisons {
    /// Elements of ReLUs.
    pub relu: u64,
    /// Two-argument maxima of max pools, rows first and then columns.
    pub max_pool: u64,
    /// Two-argument maxima of a final arg max.
    pub arg_max: u64,
    /// Elements that are moved to a wider ring without a ReLU.
    pub widen: u64,
}

impl Comparisons {
    /// Total of all kinds.
    pub fn total(&self) -> u64 {
        self.relu + self.max_pool + self.arg_max + self.widen
    }
}

/// One node of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerReport {
    /// Index of the node.
    pub node: usize,
    /// Name of the node.
    pub name: String,
    /// Operation of the node.
    pub op: String,
    /// Shape of the node's tensor.
    pub shape: Vec<usize>,
    /// Bits of the node's ring.
    pub width: u32,
    /// Fraction bits of the tensor.
    pub frac_bits: u32,
    /// Fraction bits of the node's weights, if any.
    pub weight_bits: Option<u32>,
    /// Bits between the largest calibrated magnitude and the limit `2^(width-2)`.
    pub headroom_bits: f64,
    /// Whether no accepted input can overflow the ring; otherwise an overflow is only unlikely.
    pub certain: bool,
    /// Largest difference to the float network (real units).
    pub max_error: f64,
    /// Mean difference to the float network (real units).
    pub mean_error: f64,
    /// Comparisons.
    pub comparisons: u64,
    /// Bits of the ring in which values are compared.
    pub compared_width: Option<u32>,
}

fn comparisons_of(graph: &RingGraph, id: usize) -> u64 {
    let node = &graph.nodes()[id];
    match &node.op {
        Op::Relu | Op::Widen => node.elements() as u64,
        Op::MaxPool(w) => max_comparisons(w, &graph.nodes()[node.inputs[0]].shape, &node.shape),
        Op::ArgMax => graph.nodes()[node.inputs[0]].elements() as u64 - 1,
        _ => 0,
    }
}

/// Counts the comparisons of a model.
pub fn count_comparisons(graph: &RingGraph) -> Comparisons {
    let mut c = Comparisons::default();
    for (id, node) in graph.nodes().iter().enumerate() {
        let n = comparisons_of(graph, id);
        match node.op {
            Op::Relu => c.relu += n,
            Op::MaxPool(_) => c.max_pool += n,
            Op::ArgMax => c.arg_max += n,
            Op::Widen => c.widen += n,
            _ => {}
        }
    }
    c
}

pub(super) fn build(problem: &Problem, choice: Found, emitted: &Emitted) -> Result<RingReport, RingError> {
    let (graph, calibration) = (&emitted.graph, &problem.model.calibration);
    let errors = errors(problem, emitted)?;
    let Found { scheme, relu_drop, quality, choices } = choice;
    let is_search_only = problem.held_out.is_empty();
    let samples = Samples { searched: problem.searched.len(), held_out: problem.held_out.len() };
    let agreement = (!is_search_only).then_some(quality.agreement);
    let share = 1.0 - quality.flips;
    let expected = (!is_search_only).then(|| Expected { share, interval: interval(share, samples.held_out) });
    let (overflow, is_certain) = overflow(problem, emitted);
    let layers = graph
        .nodes()
        .iter()
        .enumerate()
        .map(|(id, n)| {
            let largest = calibration.max_abs[emitted.origin[id]] * f64::from(n.fixed.frac_bits).exp2();
            let headroom = f64::from(n.fixed.width) - 2.0 - largest.max(1.0).log2();
            LayerReport {
                node: id,
                name: n.name.clone(),
                op: n.op.name().into(),
                shape: n.shape.clone(),
                width: n.fixed.width,
                frac_bits: n.fixed.frac_bits,
                weight_bits: n.op.facts().map(|f| f.frac_bits),
                headroom_bits: if matches!(n.op, Op::ArgMax) { 0.0 } else { headroom },
                certain: is_certain[id],
                max_error: errors[id].0,
                mean_error: errors[id].1,
                comparisons: comparisons_of(graph, id),
                compared_width: (comparisons_of(graph, id) > 0).then(|| graph.nodes()[n.inputs[0]].fixed.width),
            }
        })
        .collect();
    let warnings = warnings(problem, emitted, expected, quality.error)?;
    let range = problem.output_range * problem.model.output_multiplier;
    let errors = OutputErrors { expected: quality.distance, bound: None, range };
    Ok(RingReport {
        model: problem.model.interface.name.clone(),
        calibration: calibration.text.clone(),
        scheme: describe(&scheme, relu_drop),
        samples,
        agreement,
        expected,
        choices,
        output_error: quality.error,
        errors: (!problem.top1()).then_some(errors),
        input_step: resolution::input_step(problem, emitted),
        overflow,
        comparisons: count_comparisons(graph),
        macs: graph.macs(),
        parameters: emitted.weights.layers.iter().map(|l| (l.weights.len() + l.bias.len()) as u64).sum(),
        layers,
        notes: problem.model.notes.clone(),
        warnings,
    })
}

fn warnings(
    problem: &Problem,
    emitted: &Emitted,
    expected: Option<Expected>,
    error: f64,
) -> Result<Vec<String>, RingError> {
    let mut warnings = Vec::new();
    let calibration = &problem.model.calibration;
    if calibration.guessed {
        warnings.push(
            "no calibration samples: ranges come from seeded random inputs, headroom is a guess (`clamp=true` needs none)".into(),
        );
    }
    let required = problem.options.agreement;
    match expected {
        Some(Expected { share, .. }) if share < required => warnings.push(format!(
            "{:.2} % of inputs are expected to get another class than from the float network, {:.2} % were asked for: more fraction bits \
             (`max_frac_bits`), or a smaller `error_bound`",
            100.0 * (1.0 - share),
            100.0 * (1.0 - required)
        )),
        None if !calibration.guessed => warnings.push(format!(
            "{} samples were kept, all of them for the search: from {FEWEST_SAMPLES} on some are held out, and agreement is stated",
            problem.searched.len()
        )),
        _ => {}
    }
    if error > problem.options.error_bound {
        warnings.push(format!(
            "the output error is {:.2} % of the range, above the {:.2} % that the search aims at",
            100.0 * error,
            100.0 * problem.options.error_bound
        ));
    }
    warnings.extend(resolution::warnings(problem, emitted));
    warnings.extend(out_of_range(problem, emitted)?);
    warnings.extend(extremes(problem, emitted));
    Ok(warnings)
}

fn describe(scheme: &Scheme, relu_drop: u32) -> String {
    let tests = match relu_drop {
        0 => String::new(),
        1 => "; ReLUs test all but the lowest bit".into(),
        bits => format!("; ReLUs test all but the {bits} lowest bits"),
    };
    let scales = match scheme {
        Scheme::Fixed { frac, weight } => format!("{frac} fraction bits everywhere, weights {weight}"),
        Scheme::Relative { activations, weights, most } => format!(
            "searched: {activations} bits below the root mean square of each tensor (at most {most} fraction bits), weights {weights}"
        ),
    };
    scales + &tests
}

/// Largest and mean difference to the float network for each fixed-point node, over a few samples.
fn errors(problem: &Problem, emitted: &Emitted) -> Result<Vec<(f64, f64)>, RingError> {
    let (graph, model) = (&emitted.graph, problem.model);
    let count = graph.nodes().len();
    let mut errors = vec![(0f64, 0f64); count];
    let samples = &model.calibration.samples[..model.calibration.samples.len().min(COMPARED_SAMPLES)];
    for (index, sample) in samples.iter().enumerate() {
        problem.watch.tell("comparing each layer with the float network", index, Some(samples.len()))?;
        // Each float tensor is compared with its fixed-point tensors as soon as it is computed.
        let mut typed: Vec<Vec<(usize, Vec<i64>)>> = vec![Vec::new(); model.graph.nodes.len()];
        let ints = reference::quantize_unchecked(graph, sample);
        reference::run_tapped(graph, &emitted.weights, &ints, &mut |id, node, values| {
            let source = emitted.origin[id];
            if !matches!(node.op, Op::ArgMax) && !is_half_done(&node.op, &model.graph.nodes[source].op) {
                typed[source].push((id, values.to_vec()));
            }
        })?;
        run_tapped(&model.graph, sample, &mut |source, _, values| {
            for (id, ints) in std::mem::take(&mut typed[source]) {
                let fixed = graph.nodes()[id].fixed;
                let (mut largest, mut sum) = (0f64, 0f64);
                for (v, w) in ints.iter().zip(values) {
                    let e = (fixed.dequantize(*v) - f64::from(*w)).abs();
                    largest = tacit_floats::larger(largest, e);
                    sum += e;
                }
                errors[id].0 = tacit_floats::larger(errors[id].0, largest);
                errors[id].1 += sum / values.len() as f64 / samples.len() as f64;
            }
        })?;
    }
    Ok(errors)
}

/// Whether a node's result is no tensor of the float network, whose operation is `float`.
fn is_half_done(op: &Op, float: &FloatOp) -> bool {
    match (op, float) {
        // The factor is applied, but not yet the addend.
        (Op::MulConst { .. }, FloatOp::Affine { shift, .. }) => shift[0] != 0.0,
        // Nodes that prepare the index of a table.
        (op, FloatOp::Function(_)) => !matches!(op, Op::LookUp(_)),
        _ => false,
    }
}

/// A summary, and for each node whether its range is certain.
fn overflow(problem: &Problem, emitted: &Emitted) -> (Overflow, Vec<bool>) {
    let graph = &emitted.graph;
    let (range, error) = (problem.model.interface.input.range.ends(), problem.options.linear_error);
    let bounds = range::worst_case(graph, &emitted.weights, range, error);
    let in_quarter = width::nodes_in_quarter(graph.nodes());
    let mut overflow = Overflow { least_factor: f64::INFINITY, ..Overflow::default() };
    let mut certain = Vec::with_capacity(graph.nodes().len());
    for (id, node) in graph.nodes().iter().enumerate() {
        let limit = width::limit(node.fixed.width, in_quarter[id]);
        let is_certain = matches!(node.op, Op::ArgMax) || bounds[id] < limit;
        certain.push(is_certain);
        if is_certain {
            overflow.certain += 1;
            continue;
        }
        overflow.likely += 1;
        let largest = problem.model.calibration.max_abs[emitted.origin[id]] * f64::from(node.fixed.frac_bits).exp2();
        overflow.least_factor = overflow.least_factor.min(limit / largest.max(1.0));
    }
    // JSON needs a finite number, also if all tensors are certain.
    overflow.least_factor = if overflow.likely == 0 { 0.0 } else { overflow.least_factor };
    (overflow, certain)
}

/// Names nodes whose rings have no room for extreme inputs.
fn extremes(problem: &Problem, emitted: &Emitted) -> Option<String> {
    let (nodes, extreme) = (emitted.graph.nodes(), &problem.model.calibration.extreme);
    let in_quarter = width::nodes_in_quarter(nodes);
    let overflowing = (0..nodes.len()).filter(|&id| {
        let node = &nodes[id];
        let size = extreme[emitted.origin[id]] * f64::from(node.fixed.frac_bits).exp2();
        !matches!(node.op, Op::ArgMax) && size >= width::limit(node.fixed.width, in_quarter[id])
    });
    let names: Vec<&str> = overflowing.map(|id| nodes[id].name.as_str()).collect();
    let first_name = names.first()?;
    Some(format!(
        "extreme inputs (checkerboards, stripes, noise at both ends of the accepted range) overflow the rings of {} tensors, the first \
         is `{first_name}`: state a narrower range",
        names.len()
    ))
}

/// Warns if calibration samples leave the rings that were chosen from them.
fn out_of_range(problem: &Problem, emitted: &Emitted) -> Result<Vec<String>, RingError> {
    let graph = &emitted.graph;
    let mut warnings = Vec::new();
    for sample in problem.model.calibration.samples.iter().take(COMPARED_SAMPLES) {
        let ints = reference::quantize_unchecked(graph, sample);
        for out in reference::range_check(graph, &emitted.weights, &ints)? {
            warnings.push(format!("node `{}` reaches {}, its ring allows {}", out.name, out.max_abs, out.limit));
        }
    }
    warnings.dedup();
    Ok(warnings)
}

impl tacit_backend_api::LoweringReport for RingReport {
    fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("plain data with text keys has an encoding")
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
