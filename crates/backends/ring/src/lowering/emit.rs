//! Turns the float network under a scheme of scales into fixed-point nodes and integer weights.
//!
//! A tensor comes out of a linear layer with the layer's extra fraction bits ("pending"). In front of a
//! comparison or the next linear layer it is truncated to its own scale. Sums of pending tensors are made
//! before truncation. Truncating `b` bits adds `2^(b-1)` first, in the bias of the layer where that is
//! possible, which rounds to nearest.

mod functions;

use std::collections::HashMap;

use tacit_floats::largest_magnitude;
use tacit_graph::float::{FloatNode, FloatOp};
use tacit_graph::geometry::ConvGeometry;
use tacit_graph::{Calibration, FloatGraph, NodeId, OutputMode};

use super::integers::{factor_bits, facts, half, quantise};
use super::scheme::Scheme;
use super::{Problem, RingOptions, range, width};
use crate::fixed::MAX_FRAC_BITS;
use crate::{Conv2d, FixedPoint, LayerWeights, Linear, Node, Op, RingError, RingGraph, RingSpec, Weights};

/// Room above the extreme inputs that were tried.
pub(super) const EXTREME_MARGIN: f64 = 1.5;

/// A model under one scheme.
pub(super) struct Emitted {
    pub graph: RingGraph,
    pub weights: Weights,
    /// The float node of each fixed-point node.
    pub origin: Vec<usize>,
}

/// A float node's tensor among the fixed-point nodes.
#[derive(Clone, Copy)]
struct Wire {
    id: NodeId,
    frac: u32,
}

struct Emitter<'a> {
    graph: &'a FloatGraph,
    stats: &'a Calibration,
    options: &'a RingOptions,
    scheme: &'a Scheme,
    /// Scale of each float node's tensor in narrow form.
    target: Vec<u32>,
    readers: Vec<usize>,
    nodes: Vec<Node>,
    weights: Vec<LayerWeights>,
    origin: Vec<usize>,
    wires: Vec<Wire>,
    truncated: HashMap<(usize, u32), Wire>,
    /// Sizes of nodes that do not follow from their float node.
    known_sizes: HashMap<NodeId, Size>,
}

/// Known bounds of a node's values.
enum Size {
    /// The values fit this ring exactly.
    Ring(u32),
    /// Largest likely magnitude, and largest on extreme inputs, in units.
    Units([f64; 2]),
}

/// Builds the model; with `top1`, appends an arg max.
pub(super) fn emit(problem: &Problem, scheme: &Scheme, top1: bool) -> Result<Emitted, RingError> {
    let (graph, stats) = (&problem.model.graph, &problem.model.calibration);
    let mut readers = vec![0; graph.nodes.len()];
    graph.nodes.iter().flat_map(|n| &n.inputs).for_each(|&i| readers[i] += 1);
    readers[graph.output] += 1;
    let mut e = Emitter {
        graph,
        stats,
        scheme,
        options: problem.options,
        target: targets(graph, stats, scheme),
        readers,
        nodes: Vec::new(),
        weights: Vec::new(),
        origin: Vec::new(),
        wires: Vec::new(),
        truncated: HashMap::new(),
        known_sizes: HashMap::new(),
    };
    for (id, node) in graph.nodes.iter().enumerate() {
        let wire = e.float_node(id, node)?;
        e.wires.push(wire);
    }
    let output = if top1 { e.arg_max(graph.output) } else { e.logits(graph.output) };
    finish(problem, e, output, top1)
}

fn finish(problem: &Problem, mut e: Emitter, output: NodeId, top1: bool) -> Result<Emitted, RingError> {
    if let Some(fine) = e.nodes.iter().find(|n| n.fixed.frac_bits > MAX_FRAC_BITS) {
        let what = format!(
            "node `{}` gets {} fraction bits, at most {MAX_FRAC_BITS} are supported",
            fine.name, fine.fixed.frac_bits
        );
        return Err(RingError::NoRing { what });
    }
    let layers: Vec<NodeId> = e.weights.iter().map(|l| l.node).collect();
    let mut weights = Weights { layers: std::mem::take(&mut e.weights) };
    let (likely, extreme) = needs(&e);
    // Unlikely inputs must not exclude all rings: the report warns that they may overflow.
    let larger_needs = likely.iter().zip(extreme).map(|(a, b)| *a.max(&b)).collect();
    let mut rings = Rings::new(&e, larger_needs).or_else(|_| Rings::new(&e, likely))?;
    if problem.options.clamp {
        place(&mut weights, &layers, &rings.new_ids);
        let new_ids = rings.new_ids.clone();
        let graph = rings.graph(problem, output, top1)?;
        let error = problem.options.linear_error;
        let bounds = range::worst_case(&graph, &weights, problem.model.interface.input.range.ends(), error);
        let bounds: Vec<f64> = new_ids.iter().map(|&id| bounds[id]).collect();
        rings = Rings::new(&e, certain_widths(&e, &bounds))?;
    }
    place(&mut weights, &layers, &rings.new_ids);
    let origin = std::mem::take(&mut rings.origin);
    Ok(Emitted { graph: rings.graph(problem, output, top1)?, weights, origin })
}

fn place(weights: &mut Weights, layers: &[NodeId], new_ids: &[NodeId]) {
    weights.layers.iter_mut().zip(layers).for_each(|(layer, &node)| layer.node = new_ids[node]);
}

struct Rings {
    nodes: Vec<Node>,
    origin: Vec<usize>,
    /// Index of each emitted node.
    new_ids: Vec<NodeId>,
}

impl Rings {
    fn new(e: &Emitter, needs: Vec<u32>) -> Result<Self, RingError> {
        let (mut nodes, mut origin) = (e.nodes.clone(), e.origin.clone());
        let new_ids = width::assign(&mut nodes, needs, &mut origin)?;
        Ok(Self { nodes, origin, new_ids })
    }

    fn graph(self, problem: &Problem, output: NodeId, top1: bool) -> Result<RingGraph, RingError> {
        let mut interface = problem.model.interface.clone();
        let output = self.new_ids[output];
        if !top1 {
            // The search compares logits, even if only a class is revealed in the end.
            interface.output_mode = OutputMode::Logits;
            interface.output_shape = self.nodes[output].shape.clone();
        }
        RingGraph::new(RingSpec {
            model_id: problem.model.model_id,
            interface,
            nodes: self.nodes,
            output,
            output_multiplier: problem.model.output_multiplier,
        })
    }
}

/// The narrowest rings for bounds that no input exceeds.
fn certain_widths(e: &Emitter, bounds: &[f64]) -> Vec<u32> {
    let in_quarter = width::nodes_in_quarter(&e.nodes);
    let widths = e.nodes.iter().enumerate().map(|(id, node)| match known_width(e, id, node) {
        Some(width) => width,
        None => width::min_width(bounds[id] + 1.0, in_quarter[id]),
    });
    widths.collect()
}

/// The ring of the index of a table, or of an arg max.
fn known_width(e: &Emitter, id: NodeId, node: &Node) -> Option<u32> {
    if let Some(Size::Ring(width)) = e.known_sizes.get(&id) {
        return Some(*width);
    }
    let input = *node.inputs.first()?;
    let classes: usize = e.nodes[input].shape.iter().product();
    matches!(node.op, Op::ArgMax).then(|| 2 + classes.ilog2() + 1)
}

/// The narrowest rings for calibrated magnitudes with the guard, and for extreme inputs.
fn needs(e: &Emitter) -> (Vec<u32>, Vec<u32>) {
    let in_quarter = width::nodes_in_quarter(&e.nodes);
    let widths = e.nodes.iter().enumerate().map(|(id, node)| {
        if let Some(width) = known_width(e, id, node) {
            return (width, width);
        }
        let [likely, extreme] = match e.known_sizes.get(&id) {
            Some(Size::Units(units)) => *units,
            // Rounding adds one unit.
            _ => e.sizes(e.origin[id]).map(|size| size * f64::from(node.fixed.frac_bits).exp2() + 1.0),
        };
        (width::min_width(likely, true), width::min_width(extreme, in_quarter[id]))
    });
    widths.unzip()
}

/// Scales of tensors. Tensors that must share one scale (joined, or passed through) take that of their common
/// mean square.
fn targets(graph: &FloatGraph, stats: &Calibration, scheme: &Scheme) -> Vec<u32> {
    let group = graph.groups(keeps_magnitudes);
    let mut sums = vec![(0.0, 0.0); graph.nodes.len()];
    for (id, node) in graph.nodes.iter().enumerate() {
        let r = group[id];
        sums[r].0 += stats.mean_square[id] * node.elements() as f64;
        sums[r].1 += node.elements() as f64;
    }
    (0..graph.nodes.len())
        .map(|id| {
            let (squares, count) = sums[group[id]];
            scheme.tensor(squares / count)
        })
        .collect()
}

/// Whether the results of an operation have the magnitudes of its inputs.
fn keeps_magnitudes(op: &FloatOp) -> bool {
    matches!(
        op,
        FloatOp::Relu
            | FloatOp::MaxPool(_)
            | FloatOp::Reshape
            | FloatOp::Transpose(_)
            | FloatOp::Slice(_)
            | FloatOp::Pad { .. }
            | FloatOp::Concat
    ) || matches!(op, FloatOp::Affine { scale, .. } if scale.iter().all(|s| s.abs() == 1.0))
}

impl Emitter<'_> {
    fn add(&mut self, source: usize, name: &str, op: Op, inputs: &[NodeId], frac: u32) -> Wire {
        let shape = match (&op, inputs.first()) {
            (Op::ArgMax, _) => vec![1],
            (Op::Truncate { .. } | Op::ShiftLeft { .. } | Op::AddConst { .. }, Some(&i)) => self.nodes[i].shape.clone(),
            _ => self.graph.nodes[source].shape.clone(),
        };
        // The width is set once all readers are known.
        let fixed = FixedPoint { width: 0, frac_bits: frac };
        self.nodes.push(Node { name: name.into(), op, inputs: inputs.to_vec(), shape, fixed });
        self.origin.push(source);
        Wire { id: self.nodes.len() - 1, frac }
    }

    /// The tensor of float node `from` with at most `frac` fraction bits.
    fn with_frac_at_most(&mut self, from: usize, frac: u32) -> Wire {
        let wire = self.wires[from];
        if wire.frac <= frac {
            return wire;
        }
        if let Some(&truncated) = self.truncated.get(&(from, frac)) {
            return truncated;
        }
        let bits = wire.frac - frac;
        let name = self.graph.nodes[from].name.clone();
        let mut source = wire.id;
        if !(self.readers[from] == 1 && self.absorb(source, half(bits))) {
            source =
                self.add(from, &format!("{name}.round"), Op::AddConst { value: half(bits) }, &[source], wire.frac).id;
        }
        let cut = self.add(from, &format!("{name}.truncate"), Op::Truncate { bits }, &[source], frac);
        self.truncated.insert((from, frac), cut);
        cut
    }

    /// The tensor in its own scale.
    fn narrow(&mut self, source: usize) -> Wire {
        self.with_frac_at_most(source, self.target[source])
    }

    /// The tensor with exactly `frac` fraction bits.
    fn with_frac(&mut self, source: usize, frac: u32) -> Wire {
        let wire = self.with_frac_at_most(source, frac);
        if wire.frac == frac {
            return wire;
        }
        let name = format!("{}.align", self.graph.nodes[source].name);
        self.add(source, &name, Op::ShiftLeft { bits: frac - wire.frac }, &[wire.id], frac)
    }

    /// Adds a constant to the bias of the layer that makes `id`, if nothing else reads the nodes in between.
    fn absorb(&mut self, id: NodeId, value: i64) -> bool {
        match self.nodes[id].op {
            Op::Conv2d(_) | Op::Linear(_) => {
                let layer = self.weights.iter_mut().rev().find(|l| l.node == id);
                layer.is_some_and(|l| {
                    l.bias.iter_mut().for_each(|b| *b = b.saturating_add(value));
                    true
                })
            }
            Op::Add | Op::Sub | Op::Reshape | Op::Transpose { .. } => {
                let before = self.nodes[id].inputs[0];
                self.readers[self.origin[before]] == 1 && self.absorb(before, value)
            }
            _ => false,
        }
    }

    /// Adds an operation of float node `id` that keeps the scale.
    fn follow(&mut self, id: usize, op: Op, x: Wire) -> Wire {
        let graph = self.graph;
        self.add(id, &graph.nodes[id].name, op, &[x.id], x.frac)
    }

    fn float_node(&mut self, id: usize, node: &FloatNode) -> Result<Wire, RingError> {
        let name = node.name.as_str();
        let input = node.inputs.first().copied().unwrap_or(0);
        Ok(match &node.op {
            FloatOp::Input => self.add(id, name, Op::Input, &[], self.target[id]),
            FloatOp::Conv { geometry, weights, bias } => self.layer(id, node, Some(geometry), weights, bias)?,
            FloatOp::Dense { weights, bias } => self.layer(id, node, None, weights, bias)?,
            FloatOp::Affine { scale, shift } => self.uniform(id, node, f64::from(scale[0]), f64::from(shift[0])),
            FloatOp::PositionScale(factors) => {
                let x = self.narrow(input);
                let largest = largest_magnitude(factors.iter().copied());
                let bits = factor_bits(largest);
                let ints = factors.iter().map(|&f| quantise(f64::from(f), bits)).collect();
                self.add(id, name, Op::MulConst { factors: ints, frac_bits: bits }, &[x.id], x.frac + bits)
            }
            FloatOp::Relu => {
                let x = self.narrow(input);
                self.follow(id, Op::Relu, x)
            }
            FloatOp::Function(function) => self.function(id, name, input, *function)?,
            FloatOp::MaxPool(w) => {
                let x = self.narrow(input);
                self.follow(id, Op::MaxPool(w.clone()), x)
            }
            FloatOp::SumPool(w) => self.follow(id, Op::SumPool(w.clone()), self.wires[input]),
            FloatOp::Add => self.sum(id, node, Op::Add),
            FloatOp::Sub => self.sum(id, node, Op::Sub),
            FloatOp::Concat => {
                let frac = node.inputs.iter().map(|&i| self.wires[i].frac.min(self.target[id])).max().unwrap_or(0);
                let parts: Vec<NodeId> = node.inputs.iter().map(|&i| self.with_frac(i, frac).id).collect();
                self.add(id, name, Op::Concat, &parts, frac)
            }
            FloatOp::Slice(s) => self.follow(id, Op::Slice(s.clone()), self.wires[input]),
            FloatOp::Pad { before, after } => {
                let op = Op::Pad { before: before.clone(), after: after.clone() };
                self.follow(id, op, self.wires[input])
            }
            FloatOp::Reshape => self.follow(id, Op::Reshape, self.wires[input]),
            FloatOp::Transpose(perm) => self.follow(id, Op::Transpose { perm: perm.clone() }, self.wires[input]),
            FloatOp::Mul => unreachable!("products are refused before"),
            FloatOp::ArgMax => unreachable!("a checked model holds no arg max"),
        })
    }

    fn layer(
        &mut self,
        id: usize,
        node: &FloatNode,
        conv: Option<&ConvGeometry>,
        weights: &[f32],
        bias: &[f32],
    ) -> Result<Wire, RingError> {
        let source = node.inputs[0];
        let x = self.narrow(source);
        let row = weights.len() / bias.len();
        let [before, after] = [source, id].map(|i| self.stats.mean_square[i].sqrt());
        let gain = (row as f64).sqrt() * before / after;
        // A tensor of zeros tells nothing about the size of weights.
        let gain = if gain.is_finite() && gain > 0.0 { gain } else { 1.0 };
        let largest = largest_magnitude(weights.iter().copied());
        let bits = self.scheme.layer(gain, largest);
        if largest * f64::from(bits).exp2() >= f64::from(i32::MAX) {
            return Err(RingError::NoRing { what: format!("node `{}` has weights of up to {largest}", node.name) });
        }
        let frac = x.frac + bits;
        let ints: Vec<i32> = weights.iter().map(|&w| quantise(f64::from(w), bits) as i32).collect();
        let facts = facts(&ints, row, bits, self.options.round_facts);
        let op = match conv {
            Some(geometry) => Op::Conv2d(Conv2d { geometry: geometry.clone(), weights: facts }),
            None => Op::Linear(Linear { out_features: bias.len(), weights: facts }),
        };
        let wire = self.add(id, &node.name, op, &[x.id], frac);
        let bias = bias.iter().map(|&b| quantise(f64::from(b), frac)).collect();
        self.weights.push(LayerWeights { node: wire.id, weights: ints, bias });
        Ok(wire)
    }

    /// Likely magnitude of a float node's tensor, and magnitude on extreme inputs.
    fn sizes(&self, source: usize) -> [f64; 2] {
        [self.stats.max_abs[source] * self.options.guard_bits.exp2(), self.stats.extreme[source] * EXTREME_MARGIN]
    }

    /// Multiplies by a public factor and adds a public addend, the same for all elements.
    fn uniform(&mut self, id: usize, node: &FloatNode, scale: f64, shift: f64) -> Wire {
        let source = node.inputs[0];
        let mut x = self.wires[source];
        if scale != 1.0 {
            x = self.narrow(source);
            let power = scale.abs().log2();
            let bits = if power.fract() == 0.0 { (-power).clamp(0.0, 47.0) as u32 } else { factor_bits(scale.abs()) };
            let op = Op::MulConst { factors: vec![quantise(scale, bits)], frac_bits: bits };
            x = self.add(id, &node.name, op, &[x.id], x.frac + bits);
        }
        if shift != 0.0 {
            let op = Op::AddConst { value: quantise(shift, x.frac) };
            x = self.add(id, &format!("{}.shift", node.name), op, &[x.id], x.frac);
        }
        x
    }

    /// Pending operands are added before truncation; a narrow operand brings the other to its scale.
    fn sum(&mut self, id: usize, node: &FloatNode, op: Op) -> Wire {
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let frac = if self.is_pending(a) && self.is_pending(b) {
            self.wires[a].frac.max(self.wires[b].frac)
        } else {
            let narrow = [a, b].into_iter().filter(|&i| !self.is_pending(i)).map(|i| self.wires[i].frac);
            narrow.chain([self.target[id]]).max().unwrap_or(0)
        };
        let (x, y) = (self.with_frac(a, frac), self.with_frac(b, frac));
        self.add(id, &node.name, op, &[x.id, y.id], frac)
    }

    fn is_pending(&self, i: usize) -> bool {
        self.wires[i].frac > self.target[i]
    }

    /// The revealed tensor. It is never an untruncated product, whose lowest bits would reveal more about the
    /// weights than the answer does (and its resharing error depends on them). Two more bits than inside the
    /// network keep near ties apart.
    fn logits(&mut self, source: usize) -> NodeId {
        let (wire, target) = (self.wires[source], self.target[source]);
        if wire.frac <= target {
            return wire.id;
        }
        self.with_frac_at_most(source, (target + 2).min(wire.frac.saturating_sub(2)).max(target)).id
    }

    fn arg_max(&mut self, source: usize) -> NodeId {
        let node = &self.graph.nodes[source];
        let (name, n) = (node.name.clone(), node.elements());
        let mut x = self.narrow(source);
        if self.nodes[x.id].shape.len() != 1 {
            x = self.add(source, &format!("{name}.flat"), Op::Reshape, &[x.id], x.frac);
            self.nodes[x.id].shape = vec![n];
        }
        self.add(source, &format!("{name}.argmax"), Op::ArgMax, &[x.id], 0).id
    }
}
