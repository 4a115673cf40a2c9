//! The model owner's private value: network, interface and calibration. Every back end lowers this
//! value.

use std::ops::Range;

use crate::float::run::run;
use crate::float::{FloatGraph, FloatOp};
use crate::{GraphError, Interface, OutputMode, file};

/// Largest magnitude of a tensor's element that calibration accepts: larger floats may soon
/// overflow.
pub(crate) const MAX_MAGNITUDE: f64 = 1e30;

/// Largest number of multiplications of one run of a search's samples. Bounds the time of a search.
pub(crate) const SEARCH_WORK: u64 = 1_500_000_000;

/// Smallest number of samples of which some are held out to judge a lowering. Fewer samples allow
/// no statement about other inputs.
pub const FEWEST_SAMPLES: usize = 16;

/// Statistics of calibration, and the samples on which a lowering's search tries its scales.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Largest magnitude of each node's tensor over all samples.
    pub max_abs: Vec<f64>,
    /// Mean of squares of each node's tensor over all samples.
    pub mean_square: Vec<f64>,
    /// Largest magnitude of each node's tensor on made-up extreme inputs of the accepted range
    /// (checkerboards, stripes, noise).
    pub extreme: Vec<f64>,
    /// Samples after the client's normalisation, in the network's units: at least one, and at most
    /// as many as a search can evaluate.
    pub samples: Vec<Vec<f32>>,
    /// The network's result for each sample, without the output multiplier.
    pub wanted: Vec<Vec<f32>>,
    /// The source of the ranges: "12 calibration samples", "4 seeded random inputs: headroom is a
    /// guess".
    pub text: String,
    /// Whether the samples were made up, since none were given.
    pub guessed: bool,
}

/// The owner's model: the network in real numbers after rewrites, with float weights and
/// calibration statistics. Private.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Random identity of the import, part of every digest that binds material to the model.
    pub model_id: [u8; 16],
    /// The rewritten network, without a final arg max.
    pub graph: FloatGraph,
    /// Inputs and outputs, for clients.
    pub interface: Interface,
    /// Positive public factor on the output (e.g. the 1/k of a final average pool).
    pub output_multiplier: f64,
    /// Statistics and samples.
    pub calibration: Calibration,
    /// One sentence for each kind of rewrite that the importer made.
    pub notes: Vec<String>,
}

impl Model {
    /// Checks that all parts fit each other.
    ///
    /// # Errors
    /// Names the parts that do not fit.
    pub fn check(&self) -> Result<(), GraphError> {
        self.graph.check()?;
        if let Some(id) = self.graph.nodes.iter().position(|n| n.op == FloatOp::ArgMax) {
            let name = self.graph.nodes[id].name.clone();
            return Err(GraphError::Node { id, name, op: "ArgMax", what: "belongs to the output mode".into() });
        }
        self.interface.check()?;
        let result = &self.graph.nodes[self.graph.output];
        let fits = match self.interface.output_mode {
            OutputMode::Logits => self.interface.output_shape == result.shape,
            // The shape is already checked to be [1].
            OutputMode::Top1 => true,
        };
        if !fits || self.interface.input_shape != self.graph.nodes[0].shape {
            return Err(GraphError::Interface { what: "its shapes are not those of the network".into() });
        }
        if !(self.output_multiplier.is_finite() && self.output_multiplier > 0.0) {
            return Err(GraphError::Interface { what: format!("an output factor of {}", self.output_multiplier) });
        }
        self.calibration.check(&self.graph)
    }

    /// Returns the float result for one input after the client's normalisation, with the output
    /// multiplier applied. In mode top-1 the result is the class index, the first of tied classes.
    /// The result is NaN where the network's is.
    ///
    /// # Errors
    /// If the input's length is wrong.
    pub fn run(&self, input: &[f32]) -> Result<Vec<f64>, GraphError> {
        Ok(self.answer(&self.outputs(input)?))
    }

    /// Returns the network's outputs for one input after the client's normalisation, in both modes:
    /// the outputs from which a class is chosen.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn outputs(&self, input: &[f32]) -> Result<Vec<f64>, GraphError> {
        let result = run(&self.graph, input)?;
        Ok(result.iter().map(|&v| f64::from(v) * self.output_multiplier).collect())
    }

    /// Returns the answer for the values of [`outputs`](Self::outputs).
    pub fn answer(&self, outputs: &[f64]) -> Vec<f64> {
        match self.interface.output_mode {
            OutputMode::Logits => outputs.to_vec(),
            OutputMode::Top1 => vec![tacit_floats::first_largest(outputs).map_or(f64::NAN, |class| class as f64)],
        }
    }

    /// Returns the digest that [`file::digest_of_header`] reads from the model's file. The
    /// digest covers the whole model.
    pub fn digest(&self) -> [u8; 32] {
        file::digest(self)
    }
}

impl Calibration {
    /// Returns the samples that a lowering's search uses, and those that judge it: a quarter, or
    /// more if a search cannot run the others. No samples judge if there are fewer than
    /// [`FEWEST_SAMPLES`], or if they were made up.
    pub fn split(&self, graph: &FloatGraph) -> (Range<usize>, Range<usize>) {
        let count = self.samples.len();
        let max_samples = graph.runs_within(SEARCH_WORK).max(1);
        if count < FEWEST_SAMPLES || self.guessed {
            let searched = count.min(max_samples);
            return (0..searched, searched..searched);
        }
        let searched = (count - count / 4).min(max_samples);
        (0..searched, searched..count)
    }

    /// Checks lengths, and that all values are finite.
    fn check(&self, graph: &FloatGraph) -> Result<(), GraphError> {
        let (nodes, input) = (graph.nodes.len(), graph.nodes[0].elements());
        let output = graph.nodes[graph.output].elements();
        let [max_abs, squares, extreme] = [&self.max_abs, &self.mean_square, &self.extreme];
        for (sizes, most) in
            [(max_abs, MAX_MAGNITUDE), (squares, MAX_MAGNITUDE * MAX_MAGNITUDE), (extreme, MAX_MAGNITUDE)]
        {
            if sizes.len() != nodes || !sizes.iter().all(|v| (0.0..=most).contains(v)) {
                return Err(fault("its statistics are not those of the network"));
            }
        }
        if self.samples.is_empty() || self.samples.len() != self.wanted.len() {
            return Err(fault("no samples, or not one result for each"));
        }
        if !are_finite(&self.samples, input) || !are_finite(&self.wanted, output) {
            return Err(fault("a sample or its result does not fit the network"));
        }
        Ok(())
    }
}

fn are_finite(lists: &[Vec<f32>], n: usize) -> bool {
    lists.iter().all(|l| l.len() == n && l.iter().all(|v| v.is_finite()))
}

fn fault(what: &str) -> GraphError {
    GraphError::Calibration { what: what.into() }
}
