//! Lowers a float model to fixed point in rings: chooses scales and rings, and writes a report.
//!
//! Every bit of a ring or of a comparison costs online bytes, so scales are as small as accuracy allows. With
//! the root mean square `rms` of a tensor, its fraction bits are `p_a - log2(rms)`: the same relative
//! precision everywhere. A layer's weights get `p_w + log2(sqrt(fan_in) * rms_in / rms_out)` fraction bits:
//! the same relative noise from rounded weights. The search finds the `(p_a, p_w)` that is cheapest by the
//! back end's own cost model. Candidates must preserve the logits, and the classes as often as requested, on
//! calibration samples with simulated truncation errors. The promised agreement is measured on samples that
//! are held out of the search.

mod agreement;
mod clamp;
mod emit;
mod integers;
mod range;
pub mod report;
mod resolution;
mod scheme;
mod search;
mod spline;
mod table;
mod tabulated;
mod text;
mod width;

#[cfg(test)]
mod fixtures;

use std::cell::Cell;
use std::ops::{Range, RangeInclusive};

use tacit_graph::float::FloatOp;
use tacit_graph::{Model, OutputMode, Watch};

use super::fixed::MAX_FRAC_BITS;
use super::table::MAX_TABLE_BITS;
use super::{RingError, RingGraph, Weights};
pub use agreement::{Agreement, agreement};
use report::RingReport;
use tacit_backend_api::classes::spread;
use tacit_backend_api::{BackendError, Result, Support};
pub use width::strain;

/// The online cost of one inference of a graph in the target back end, in bytes both ways (or any unit that
/// grows with cost). [`Unsupported`](BackendError::Unsupported): it cannot compute in the rings of the graph.
pub type Price<'a> = dyn Fn(&RingGraph) -> Result<f64> + 'a;

/// The back end that a lowering is for. Both functions get the number of low bits that ReLUs do not test.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The [`Price`] of every scheme that the search considers.
    pub price: &'a dyn Fn(&RingGraph, u32) -> Result<f64>,
    /// Checks whether the back end compiles the graph of a scheme that the search would choose; if not,
    /// [`Unsupported`](BackendError::Unsupported).
    pub check: &'a dyn Fn(&RingGraph, u32) -> Result<()>,
}

/// Options of a lowering.
#[derive(Debug, Clone, PartialEq)]
pub struct RingOptions {
    /// Fraction bits of all tensors, instead of the search; at most 47.
    pub frac_bits: Option<u32>,
    /// Fraction bits of all weights, instead of the search (only with `frac_bits`, the default); at most 47.
    pub weight_bits: Option<u32>,
    /// Most fraction bits of a tensor that the search may choose; at most 47.
    pub max_frac_bits: u32,
    /// Headroom above the largest calibrated magnitude, in bits; 0 to 38.
    pub guard_bits: f64,
    /// Largest root mean square error of the logits that the search accepts, as a share of their range.
    pub error_bound: f64,
    /// Required expected share of inputs with the float network's class, if samples can estimate it.
    pub agreement: f64,
    /// Seed of simulated errors.
    pub seed: u64,
    /// The published `magnitude_bits` and `norm_bits` of weights are rounded up to a multiple of this number,
    /// 1 to 31. A larger one tells a client less and costs bytes.
    pub round_facts: u32,
    /// Whether to clamp tensors and choose rings by bounds, so that no accepted input overflows. Otherwise
    /// that is only unlikely.
    pub clamp: bool,
    /// Bits of the widest index of a table; 4 to 16.
    pub table_bits: u32,
    /// Largest error of a layer's result in the target back end, in units of the last place.
    pub linear_error: u32,
    /// How many low bits a ReLU's sign test may leave out in the target back end. The search chooses, the
    /// fewest first.
    pub relu_drop: RangeInclusive<u32>,
}

impl Default for RingOptions {
    fn default() -> Self {
        Self {
            frac_bits: None,
            weight_bits: None,
            max_frac_bits: 12,
            guard_bits: 1.0,
            error_bound: 0.004,
            agreement: 0.99,
            seed: 1,
            round_facts: 1,
            clamp: false,
            table_bits: 12,
            linear_error: 1,
            relu_drop: 0..=0,
        }
    }
}

impl RingOptions {
    fn check(&self) -> Result<(), RingError> {
        let fits = |bits: Option<u32>| bits.is_none_or(|bits| bits <= MAX_FRAC_BITS);
        let is_complete = self.weight_bits.is_none() || self.frac_bits.is_some();
        let is_bound = self.error_bound.is_finite() && self.error_bound >= 0.0;
        let rules = [
            ("frac_bits", fits(self.frac_bits), "must be at most 47"),
            ("weight_bits", fits(self.weight_bits), "must be at most 47"),
            ("max_frac_bits", fits(Some(self.max_frac_bits)), "must be at most 47"),
            ("weight_bits", is_complete, "belongs to `frac_bits`: the search chooses both or none"),
            ("guard_bits", (0.0..=38.0).contains(&self.guard_bits), "must be 0 to 38"),
            ("error_bound", is_bound, "must be a number from 0"),
            ("agreement", (0.0..=1.0).contains(&self.agreement), "must be 0 to 1"),
            ("table_bits", (4..=MAX_TABLE_BITS).contains(&self.table_bits), "must be 4 to 16"),
            ("round_facts", (1..=31).contains(&self.round_facts), "must be 1 to 31"),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            Some((name, _, what)) => Err(RingError::Option { name, what }),
            None => Ok(()),
        }
    }
}

/// A lowered model at its owner.
#[derive(Debug, Clone, PartialEq)]
pub struct RingModel {
    /// Public part.
    pub graph: RingGraph,
    /// Private part.
    pub weights: Weights,
    /// Low bits that ReLUs leave out of their tests.
    pub relu_drop: u32,
    /// The results, for the model's owner.
    pub report: RingReport,
}

/// The constant inputs of a search for scales.
struct Problem<'a> {
    model: &'a Model,
    options: &'a RingOptions,
    watch: &'a Watch,
    /// Schemes run on the samples so far.
    tried: Cell<usize>,
    /// Samples that the search uses.
    searched: Range<usize>,
    /// Samples that judge the result; empty if there are few.
    held_out: Range<usize>,
    /// Spread of the outputs of all samples.
    output_range: f64,
}

impl<'a> Problem<'a> {
    fn new(model: &'a Model, options: &'a RingOptions, watch: &'a Watch) -> Self {
        let (searched, held_out) = model.calibration.split(&model.graph);
        let output_range = spread(&model.calibration.wanted);
        Self { model, options, watch, tried: Cell::new(0), searched, held_out, output_range }
    }

    fn top1(&self) -> bool {
        self.model.interface.output_mode == OutputMode::Top1
    }
}

/// Lowers a model for a back end that compiles every graph that it gives a price for.
///
/// # Errors
/// As [`lower_for`].
pub fn lower(model: &Model, options: &RingOptions, price: &Price) -> Result<RingModel> {
    let target = Target { price: &|graph, _| price(graph), check: &|graph, _| price(graph).map(drop) };
    lower_for(model, options, target, &Watch::default())
}

/// Lowers a model and reports progress to `watch`. The back end's price decides between equally good scales;
/// only scales that it compiles are chosen.
///
/// # Errors
/// If an option is out of range, the model is inconsistent, its values fit no supported ring, or the back end
/// compiles none of the candidates (with its reason). Other errors of the back end, and an interruption by
/// `watch`.
pub fn lower_for(model: &Model, options: &RingOptions, target: Target, watch: &Watch) -> Result<RingModel> {
    options.check()?;
    model.check().map_err(RingError::from)?;
    check_forms(model)?;
    let clamped = if options.clamp { Some(clamp::clamped(model, options, &target, watch)?) } else { None };
    let problem = Problem::new(clamped.as_ref().unwrap_or(model), options, watch);
    let search_result = match options.frac_bits {
        Some(f) => {
            let scheme = scheme::Scheme::fixed(f, options.weight_bits.unwrap_or(f));
            let relu_drop = *options.relu_drop.start();
            let quality = search::judge(&problem, &scheme, relu_drop)?;
            search::Found { scheme, relu_drop, quality, choices: Vec::new() }
        }
        None => search::cheapest(&problem, &target)?,
    };
    let emitted = emit::emit(&problem, &search_result.scheme, problem.top1())?;
    emitted.graph.check_weights(&emitted.weights)?;
    let relu_drop = search_result.relu_drop;
    let report = report::build(&problem, search_result, &emitted)?;
    Ok(RingModel { graph: emitted.graph, weights: emitted.weights, relu_drop, report })
}

/// How far back ends of this level compute an operation: they do not multiply shares, and look functions up
/// in tables.
#[must_use]
pub fn support(op: &FloatOp, has_tables: bool) -> Support {
    match op {
        FloatOp::Mul => Support::Missing,
        FloatOp::Function(_) if !has_tables => Support::Missing,
        _ => Support::Full,
    }
}

/// Per-channel constants would be weights: the importer makes depthwise layers of them. Back ends of this
/// level do not multiply shares.
fn check_forms(model: &Model) -> Result<()> {
    for (id, node) in model.graph.nodes.iter().enumerate() {
        match &node.op {
            FloatOp::Affine { scale, shift } if !(is_uniform(scale) && is_uniform(shift)) => {
                return Err(RingError::Unsupported {
                    name: node.name.clone(),
                    what: "a factor or addend for each channel is not supported: import the ONNX file again",
                }
                .into());
            }
            FloatOp::Mul => {
                return Err(BackendError::Unsupported {
                    node: id,
                    name: node.name.clone(),
                    op: node.op.name(),
                    what: "the product of two secret tensors (a gate, attention, squeeze-and-excitation, Swish) is not supported by this \
                           back end; `ckks` has it, or choose a variant of the network without"
                        .into(),
                });
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_uniform(numbers: &[f32]) -> bool {
    numbers.iter().all(|x| *x == numbers[0])
}
