//! Lowers the float network to a program on vectors of slots.
//!
//! Linear operations are merged into one matrix while the result has few more entries than its factors.
//! Products of a tensor with itself, multiples and sums with constants become one polynomial of each element.
//! Slots are scaled to about 1 at most, by the range of their tensor: the certain one for all accepted
//! inputs, or that of the calibration samples.

use std::collections::HashMap;

use tacit_floats::{larger, largest_magnitude};
use tacit_graph::float::{FloatNode, FloatOp};
use tacit_graph::{FloatGraph, Model, NodeId, OutputMode, Watch};

use super::argmax;
use super::expr::{Elementwise, Expr};
use super::fit::{self, Approximation};
use super::intervals::{self, Bounds, Image};
use super::maps;
use super::options::{Domain, Options};
use super::program::{Program, Step, Vector, VectorId};
use super::sparse::Sparse;
use tacit_backend_api::{BackendError, Result};

/// Matrices of at most so many entries are always merged.
const FEW_ENTRIES: usize = 1 << 18;
/// A larger merged matrix may have so many times the entries of its factors.
const MAX_GROWTH: usize = 4;
/// Most entries of all matrices together: 8 bytes each.
const MAX_ENTRIES: usize = 1 << 29;
/// Highest degree up to which products of a tensor with itself are merged.
const MAX_DEGREE: usize = 7;
/// Largest coefficient beside a square: it multiplies errors.
const MAX_LINEAR: f64 = 1024.0;
/// Most calibration samples for ranges, and most multiplications to run them.
const MAX_SAMPLES: usize = 64;
const SAMPLE_WORK: u64 = 4_000_000_000;
/// Factor on a certain range, for errors of the arithmetic.
const CERTAIN_MARGIN: f64 = 1.01;

/// The calibration samples that ranges are taken from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Samples {
    All,
    /// All but those that judge the lowering.
    Searched,
}

/// A range of a tensor's values, by its middle.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub middle: f64,
    pub half: f64,
    /// Whether no accepted input leaves the range.
    pub certain: bool,
}

impl Span {
    /// The half of the span can be divided by.
    fn new([low, high]: [f64; 2], margin: f64, certain: bool) -> Self {
        Self { middle: f64::midpoint(low, high), half: usable((high - low) / 2.0) * margin, certain }
    }

    pub fn ends(&self) -> [f64; 2] {
        [self.middle - self.half, self.middle + self.half]
    }
}

/// A range of a tensor's values, by its ends.
struct KnownRange {
    ends: [f64; 2],
    /// Factor on the range, for values beyond it.
    margin: f64,
    certain: bool,
}

impl KnownRange {
    fn span(&self) -> Span {
        Span::new(self.ends, self.margin, self.certain)
    }

    fn magnitude(&self) -> f64 {
        usable(largest_magnitude(self.ends)) * self.margin
    }
}

/// A tensor as a polynomial, for each element, of the element of an expression.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) origin: usize,
    pub(super) polynomial: Elementwise,
}

/// The expression that polynomials are applied to.
struct Origin {
    expr: Expr,
    shape: Vec<usize>,
    /// The vector that holds it, once it is computed.
    vector: Option<VectorId>,
}

/// The state of a lowering: vectors so far, and each node's value as a wire.
pub(super) struct Emitter<'a> {
    pub(super) graph: &'a FloatGraph,
    pub(super) options: &'a Options,
    pub(super) vectors: Vec<Vector>,
    /// Slots of each vector on each sample.
    pub(super) slots: Vec<Vec<Vec<f64>>>,
    /// Certain bounds of each vector's slots, where there are any.
    pub(super) bounds: Vec<Option<Bounds>>,
    origins: Vec<Origin>,
    pub(super) wires: Vec<Wire>,
    computed: HashMap<NodeId, VectorId>,
    entries: usize,
    pub(super) approximations: Vec<Approximation>,
}

/// Lowers a model to a program, and lists the functions that it approximates.
pub(super) fn emit(
    model: &Model,
    options: &Options,
    samples: Samples,
    watch: &Watch,
) -> Result<(Program, Vec<Approximation>)> {
    let graph = &model.graph;
    let available = match samples {
        Samples::All => model.calibration.samples.len(),
        Samples::Searched => model.calibration.split(graph).0.len(),
    };
    let count = graph.runs_within(SAMPLE_WORK).clamp(1, MAX_SAMPLES).min(available);
    let mut e = Emitter {
        graph,
        options,
        vectors: Vec::new(),
        slots: vec![Vec::new(); count],
        bounds: Vec::new(),
        origins: Vec::new(),
        wires: Vec::new(),
        computed: HashMap::new(),
        entries: 0,
        approximations: Vec::new(),
    };
    e.input(model, &model.calibration.samples[..count]);
    for (id, node) in graph.nodes.iter().enumerate().skip(1) {
        watch.tell("lowering", id, Some(graph.nodes.len()))?;
        let wire = e.node(id, node)?;
        e.wires.push(wire);
    }
    e.output(model.interface.output_mode)?;
    for (vector, bounds) in e.vectors.iter_mut().zip(&e.bounds) {
        vector.certain =
            bounds.as_ref().map_or(f64::INFINITY, |intervals| largest_magnitude(intervals.iter().copied().flatten()));
    }
    Ok((Program { vectors: e.vectors }, e.approximations))
}

pub(super) fn unsupported(graph: &FloatGraph, id: NodeId, what: &str) -> BackendError {
    let node = &graph.nodes[id];
    BackendError::Unsupported { node: id, name: node.name.clone(), op: node.op.name(), what: what.into() }
}

/// Returns 1 in place of a range that is not positive and finite.
pub(super) fn usable(range: f64) -> f64 {
    if range > 0.0 && range.is_finite() { range } else { 1.0 }
}

impl Emitter<'_> {
    fn input(&mut self, model: &Model, samples: &[Vec<f32>]) {
        let [low, high] = model.interface.input.range.ends().map(f64::from);
        let range = usable(low.abs().max(high.abs()));
        let FloatNode { name, shape, .. } = &self.graph.nodes[0];
        let n = shape.iter().product();
        let vector = Vector::new(name.clone(), shape.clone(), vec![range; n], Step::Input);
        for (slots, sample) in self.slots.iter_mut().zip(samples) {
            slots.push(sample.iter().map(|&v| f64::from(v) / range).collect());
        }
        self.bounds.push(Some(vec![[low / range, high / range]; n]));
        self.vectors.push(vector);
        let wire = self.vector_wire(0);
        self.wires.push(wire);
    }

    pub(super) fn vector_wire(&mut self, id: VectorId) -> Wire {
        let expr = Expr::from_vector(id, &self.vectors[id]);
        let shape = self.vectors[id].shape.clone();
        self.origin(expr, shape, Some(id))
    }

    fn origin(&mut self, expr: Expr, shape: Vec<usize>, vector: Option<VectorId>) -> Wire {
        let polynomial = Elementwise::identity(expr.bias.len());
        self.origins.push(Origin { expr, shape, vector });
        Wire { origin: self.origins.len() - 1, polynomial }
    }

    fn node(&mut self, id: NodeId, node: &FloatNode) -> Result<Wire> {
        let first = node.inputs[0];
        if let Some(wire) = self.lower_smooth(id)? {
            return Ok(wire);
        }
        if let Some(map) = maps::map(node, &self.graph.nodes[first].shape) {
            return self.linear(id, first, &map);
        }
        match &node.op {
            FloatOp::Add => self.sum(id, node.inputs[0], node.inputs[1], 1.0),
            FloatOp::Sub => self.sum(id, node.inputs[0], node.inputs[1], -1.0),
            FloatOp::Mul => self.product(id, node.inputs[0], node.inputs[1]),
            FloatOp::Concat => {
                let exprs = node.inputs.iter().map(|&i| self.expr(i)).collect::<Result<Vec<_>, _>>()?;
                Ok(self.origin(Expr::concatenated(exprs), node.shape.clone(), None))
            }
            FloatOp::Relu | FloatOp::Function(_) => self.activation(id, node),
            _ => Err(unsupported(
                self.graph,
                id,
                "maxima of encrypted values are not supported; `dealt` has them, and an average pool in place of a max pool needs none",
            )),
        }
    }

    fn linear(&mut self, id: NodeId, source: NodeId, map: &maps::Map) -> Result<Wire> {
        let shape = self.graph.nodes[id].shape.clone();
        if map.matrix.is_diagonal() {
            let Wire { origin, polynomial } = self.wires[source].clone();
            return Ok(Wire { origin, polynomial: polynomial.scaled(&map.matrix.diagonal_values(), &map.bias) });
        }
        let mut expr = self.expr(source)?;
        let (factors, merged) = (expr.entries() + map.matrix.entries(), expr.entries_mapped(&map.matrix));
        if merged > FEW_ENTRIES && merged > MAX_GROWTH * factors {
            let vector = self.vector(source)?;
            expr = Expr::from_vector(vector, &self.vectors[vector]);
        }
        self.entries += expr.entries_mapped(&map.matrix);
        if self.entries > MAX_ENTRIES {
            let what = format!(
                "the layers up to here have more than {MAX_ENTRIES} products, which needs more memory than is meant for it; \
                 `dealt` has no such limit"
            );
            return Err(unsupported(self.graph, id, &what));
        }
        Ok(self.origin(expr.mapped(map), shape, None))
    }

    pub(super) fn expr(&mut self, id: NodeId) -> Result<Expr> {
        let Wire { origin, polynomial } = &self.wires[id];
        if polynomial.degree() > 1 {
            let vector = self.vector(id)?;
            return Ok(Expr::from_vector(vector, &self.vectors[vector]));
        }
        let source = &self.origins[*origin];
        let expr = source.vector.map_or_else(|| source.expr.clone(), |v| Expr::from_vector(v, &self.vectors[v]));
        Ok(expr.scaled(&polynomial.0[1], &polynomial.0[0]))
    }

    /// Lowers `a + sign b`.
    fn sum(&mut self, id: NodeId, a: NodeId, b: NodeId, sign: f64) -> Result<Wire> {
        let n = self.graph.nodes[id].elements();
        let (signs, zeros) = (vec![sign; n], vec![0.0; n]);
        if self.wires[a].origin == self.wires[b].origin {
            let signed = self.wires[b].polynomial.clone().scaled(&signs, &zeros);
            let polynomial = self.wires[a].polynomial.plus(&signed);
            return Ok(Wire { origin: self.wires[a].origin, polynomial });
        }
        let (left, right) = (self.expr(a)?, self.expr(b)?);
        let sum = left.plus(right.scaled(&signs, &zeros));
        Ok(self.origin(sum, self.graph.nodes[id].shape.clone(), None))
    }

    fn product(&mut self, id: NodeId, a: NodeId, b: NodeId) -> Result<Wire> {
        let degree = self.wires[a].polynomial.degree() + self.wires[b].polynomial.degree();
        if self.wires[a].origin == self.wires[b].origin && degree <= MAX_DEGREE {
            let polynomial = self.wires[a].polynomial.times(&self.wires[b].polynomial);
            return Ok(Wire { origin: self.wires[a].origin, polynomial });
        }
        let shape = self.graph.nodes[id].shape.clone();
        let factors = [self.vector_of_shape(a, &shape)?, self.vector_of_shape(b, &shape)?];
        let scale =
            self.vectors[factors[0]].scale.iter().zip(&self.vectors[factors[1]].scale).map(|(x, y)| x * y).collect();
        let product = self.push(id, shape, scale, 0.0, Step::Product { factors });
        Ok(self.vector_wire(product))
    }

    /// The vector of a node without a shift, in the layout of `shape`.
    fn vector_of_shape(&mut self, id: NodeId, shape: &[usize]) -> Result<VectorId> {
        let vector = self.vector(id)?;
        if self.vectors[vector].shape == shape && self.vectors[vector].shift == 0.0 {
            return Ok(vector);
        }
        let expr = Expr::from_vector(vector, &self.vectors[vector]);
        Ok(self.push_linear(id, shape.to_vec(), &expr, None))
    }

    /// Computes the vector of a node at the first call.
    fn vector(&mut self, id: NodeId) -> Result<VectorId> {
        if let Some(&vector) = self.computed.get(&id) {
            return Ok(vector);
        }
        let Wire { origin, polynomial } = self.wires[id].clone();
        let vector = if polynomial.degree() > 1 {
            let base = self.base(id, origin);
            self.polynomial(id, base, &polynomial)?
        } else if polynomial == Elementwise::identity(polynomial.0[0].len()) {
            self.base(id, origin)
        } else {
            let expr = self.expr(id)?;
            self.push_linear(id, self.graph.nodes[id].shape.clone(), &expr, None)
        };
        self.computed.insert(id, vector);
        Ok(vector)
    }

    /// Computes the vector of an origin at the first call.
    fn base(&mut self, id: NodeId, origin: usize) -> VectorId {
        if let Some(vector) = self.origins[origin].vector {
            return vector;
        }
        let (expr, shape) = (self.origins[origin].expr.clone(), self.origins[origin].shape.clone());
        let vector = self.push_linear(id, shape, &expr, None);
        self.origins[origin].vector = Some(vector);
        vector
    }

    /// Adds a vector of a linear step. `view` gives scale and shift of its slots; by default the scale is the
    /// range of its values.
    pub(super) fn push_linear(
        &mut self,
        id: NodeId,
        shape: Vec<usize>,
        expr: &Expr,
        view: Option<[f64; 2]>,
    ) -> VectorId {
        let [scale, shift] = view.unwrap_or_else(|| {
            [self.magnitude(intervals::expr_bounds(expr, &self.bounds), &|slots| expr.values(slots)), 0.0]
        });
        let n = expr.bias.len();
        let factors = vec![1.0 / scale; n];
        let expr = expr.clone().scaled(&factors, &vec![-shift / scale; n]);
        let parts: Vec<(VectorId, Sparse)> = expr.parts.into_iter().collect();
        self.push(id, shape, vec![scale; n], shift, Step::Linear { parts, bias: expr.bias })
    }

    pub(super) fn span(&self, expr: &Expr) -> Span {
        self.known_range(intervals::expr_bounds(expr, &self.bounds), &|slots| expr.values(slots)).span()
    }

    /// A magnitude that values of slots stay below, as far as their range is known.
    fn magnitude(&self, certain: Option<Bounds>, values: &dyn Fn(&[Vec<f64>]) -> Vec<f64>) -> f64 {
        self.known_range(certain, values).magnitude()
    }

    /// The certain range of the values of slots, or that of the samples, which NaN makes unbounded.
    fn known_range(&self, certain: Option<Bounds>, values: &dyn Fn(&[Vec<f64>]) -> Vec<f64>) -> KnownRange {
        let certain = certain.map(intervals::ends).filter(|ends| ends.iter().all(|end| end.is_finite()));
        if let (Domain::Accepted, Some(ends)) = (self.options.domain, certain) {
            return KnownRange { ends, margin: CERTAIN_MARGIN, certain: true };
        }
        let ends = intervals::ends(self.slots.iter().flat_map(|slots| values(slots)).map(|v| [v, v]));
        let sampled = KnownRange { ends, margin: self.options.margin, certain: false };
        let [low, high] = sampled.span().ends();
        KnownRange { certain: certain.is_some_and(|[l, h]| low <= l && h <= high), ..sampled }
    }

    /// Adds a vector, with its slots on the samples and its certain bounds.
    pub(super) fn push(&mut self, id: NodeId, shape: Vec<usize>, scale: Vec<f64>, shift: f64, step: Step) -> VectorId {
        let mut largest: f64 = 0.0;
        for slots in &mut self.slots {
            let result = step.apply(slots);
            largest = larger(largest, largest_magnitude(result.iter().copied()));
            slots.push(result);
        }
        let name = self.graph.nodes[id].name.clone();
        self.bounds.push(intervals::step_bounds(&step, &self.bounds));
        self.vectors.push(Vector { shift, largest, ..Vector::new(name, shape, scale, step) });
        self.vectors.len() - 1
    }

    fn polynomial(&mut self, id: NodeId, argument: VectorId, p: &Elementwise) -> Result<VectorId> {
        let vector = &self.vectors[argument];
        let (shape, n) = (vector.shape.clone(), vector.scale.len());
        let in_slots = p.rescaled(&vector.scale, vector.shift);
        if p.degree() > 2 {
            let Some(coefficients) = in_slots.uniform() else {
                let what = "a polynomial of degree 3 or more must have the same coefficients for all elements; write it as products of \
                            polynomials of degree 2, or take another back end: `dealt` has functions by tables";
                return Err(unsupported(self.graph, id, what));
            };
            return self.uniform(id, argument, shape, &coefficients);
        }
        let [c0, c1, c2] = [&in_slots.0[0], &in_slots.0[1], &in_slots.0[2]];
        let (linear, constant) = (quotients(c1, c2), quotients(c0, c2));
        if linear.iter().chain(&constant).all(|v| v.abs() <= MAX_LINEAR) {
            return Ok(self.push(id, shape, c2.clone(), 0.0, Step::Square { argument, linear, constant }));
        }
        // Some square coefficients are tiny: use factors for all elements.
        let range = self
            .magnitude(intervals::step_bounds(&quadratic(argument, &in_slots, 1.0), &self.bounds), &|slots| {
                slots[argument].iter().enumerate().map(|(i, &v)| (c2[i] * v + c1[i]) * v + c0[i]).collect()
            });
        Ok(self.push(id, shape, vec![range; n], 0.0, quadratic(argument, &in_slots, range)))
    }

    /// Adds one polynomial for all elements, given by coefficients of powers.
    fn uniform(&mut self, id: NodeId, argument: VectorId, shape: Vec<usize>, coefficients: &[f64]) -> Result<VectorId> {
        let evaluate = |x: f64| coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c);
        let image = Image { f: &evaluate, argument: [1.0, 0.0], error: 0.0, unit: 1.0 };
        let certain = self.bounds[argument].as_ref().map(|bounds| image.bounds(bounds));
        let range = self.magnitude(certain, &|slots| slots[argument].iter().map(|&v| evaluate(v)).collect());
        let fit = fit::interpolate(&|x| evaluate(x) / range, coefficients.len() - 1)
            .ok_or_else(|| unsupported(self.graph, id, "its polynomial is constant; `dealt` has all functions"))?;
        let n = shape.iter().product();
        let vector =
            self.push(id, shape, vec![range; n], 0.0, Step::Polynomial { argument, polynomial: fit.polynomial });
        let image = Image { unit: range, ..image };
        self.bounds[vector] = self.bounds[argument].as_ref().map(|bounds| image.bounds(bounds));
        Ok(vector)
    }

    /// Adds the result as the last vector: one scale, a power of two, and zeros in other slots. For an arg
    /// max the outputs become coefficients.
    fn output(&mut self, mode: OutputMode) -> Result<()> {
        let id = self.graph.output;
        let expr = self.expr(id)?;
        let certain = intervals::expr_bounds(&expr, &self.bounds);
        let range = self.magnitude(certain, &|slots| expr.values(slots)).log2().ceil().exp2();
        let n = self.graph.nodes[id].elements();
        let (shape, expr) = match mode {
            OutputMode::Logits => (n, expr),
            OutputMode::Top1 => (
                argmax::period(n),
                expr.mapped(&maps::Map { matrix: argmax::matrix(n), bias: vec![0.0; argmax::period(n)] }),
            ),
        };
        self.push_linear(id, vec![shape], &expr, Some([range, 0.0]));
        Ok(())
    }
}

fn quotients(numerators: &[f64], denominators: &[f64]) -> Vec<f64> {
    numerators.iter().zip(denominators).map(|(c, s)| c / s).collect()
}

/// The step of a polynomial of degree 2, divided by `range`.
fn quadratic(argument: VectorId, p: &Elementwise, range: f64) -> Step {
    let [constant, linear, square]: [Vec<f64>; 3] = [0usize, 1, 2].map(|d| p.0[d].iter().map(|c| c / range).collect());
    Step::Quadratic { argument, square, linear, constant }
}
