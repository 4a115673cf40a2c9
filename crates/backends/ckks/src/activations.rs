//! Lowers activations to polynomials of each element.

use tacit_graph::float::{FloatNode, FloatOp};
use tacit_graph::{FloatGraph, Function, NodeId};
use tacit_he::ckks::Polynomial;
use tacit_he::ckks::approximate::Sign;

use super::emit::{Emitter, Span, Wire, unsupported, usable};
use super::expr::Expr;
use super::fit::{self, Approximation, Fit, Ranged};
use super::intervals::Image;
use super::options::ReluBy;
use super::program::Step;
use tacit_backend_api::Result;

/// Recognises ReLU minus a gap function (GELU, SiLU and similar ones): one polynomial of the difference errs
/// less than two of the parts. Returns the argument and the gap.
fn smooth(graph: &FloatGraph, id: NodeId) -> Option<(NodeId, Function)> {
    let node = &graph.nodes[id];
    let (FloatOp::Sub, [relu, gap]) = (&node.op, &node.inputs[..]) else { return None };
    let [relu, gap] = [relu, gap].map(|&id| &graph.nodes[id]);
    match gap.op {
        FloatOp::Function(function)
            if function.residual_symmetry().is_some()
                && matches!(relu.op, FloatOp::Relu)
                && relu.inputs == gap.inputs =>
        {
            Some((relu.inputs[0], function))
        }
        _ => None,
    }
}

fn relu(x: f64) -> f64 {
    x.max(0.0)
}

const UNBOUNDED: &str = "its argument may be of any size on accepted inputs; accept a narrower range (`--range`), or take `dealt`, which \
                         has it by a table";

struct Argument {
    source: NodeId,
    expr: Expr,
    span: Span,
}

/// Least width of one side of zero as a share of the other, where calibration hardly saw it.
const MIN_SIDE_SHARE: f64 = 0.25;

impl Span {
    /// Widens the range for ReLU: an argument whose sign never changed on samples is not taken for linear.
    fn around_zero(self) -> Self {
        let [low, high] = self.ends();
        if self.certain || low <= -MIN_SIDE_SHARE * high && high >= -MIN_SIDE_SHARE * low {
            return self;
        }
        let [low, high] = [low.min(-MIN_SIDE_SHARE * high), high.max(-MIN_SIDE_SHARE * low)];
        Self { middle: f64::midpoint(low, high), half: (high - low) / 2.0, certain: false }
    }
}

impl Emitter<'_> {
    /// Lowers a node that is one smooth function of another, if it is one.
    pub(super) fn lower_smooth(&mut self, id: NodeId) -> Result<Option<Wire>> {
        let Some((source, gap)) = smooth(self.graph, id) else { return Ok(None) };
        self.function(id, source, 0.0, &move |x: f64| x.max(0.0) - gap.value(x)).map(Some)
    }

    pub(super) fn activation(&mut self, id: NodeId, node: &FloatNode) -> Result<Wire> {
        let source = node.inputs[0];
        let mut readers = (0..self.graph.nodes.len()).filter(|k| self.graph.nodes[*k].inputs.contains(&id)).peekable();
        if id != self.graph.output && readers.peek().is_some() && readers.all(|k| smooth(self.graph, k).is_some()) {
            // Every reader takes the argument instead.
            return Ok(self.wires[source].clone());
        }
        match node.op {
            FloatOp::Function(function) => {
                // The gap is subtracted from ReLU, which is as large as its argument.
                let share = if function.residual_symmetry().is_some() { 1.0 } else { 0.0 };
                self.function(id, source, share, &move |x| function.value(x))
            }
            _ => self.relu(id, source),
        }
    }

    /// Adds a function of each element, by a polynomial on the range of its argument. `share` as in
    /// [`Ranged::new`].
    fn function(&mut self, id: NodeId, source: NodeId, share: f64, f: &(dyn Fn(f64) -> f64 + Sync)) -> Result<Wire> {
        let argument = self.argument(source)?;
        self.function_on(id, &argument, share, f)
    }

    /// As [`Self::function`], on a given range.
    fn function_on(
        &mut self,
        id: NodeId,
        argument: &Argument,
        share: f64,
        f: &(dyn Fn(f64) -> f64 + Sync),
    ) -> Result<Wire> {
        let span = argument.span;
        let ranged = Ranged::new(f, span.middle, span.half, share);
        match ranged.fit(self.options.tolerance) {
            Some(fit) => Ok(self.push_fit(id, argument, &ranged, fit)),
            None => {
                let [low, high] = ranged.ends();
                let what = match (high - low).is_finite() {
                    true => format!(
                        "no polynomial of degree 63 is within {} of it on [{low:.3}, {high:.3}]; give calibration data with a narrower \
                         range or allow more with `-O tolerance`; `dealt` has it by a table",
                        self.options.tolerance
                    ),
                    false => UNBOUNDED.into(),
                };
                Err(unsupported(self.graph, id, &what))
            }
        }
    }

    /// Adds ReLU: a polynomial on the range of its argument, or `x (1 + sign x) / 2` with the composite sign
    /// of least depth. By default, a composite is used where no polynomial is within the tolerance.
    fn relu(&mut self, id: NodeId, source: NodeId) -> Result<Wire> {
        let method = self.options.relu;
        let mut argument = self.argument(source)?;
        argument.span = argument.span.around_zero();
        let span = argument.span;
        if span.certain && span.ends()[1] <= 0.0 {
            // The result is certainly zero, and no polynomial is constant.
            let zeros = vec![0.0; self.graph.nodes[id].elements()];
            let Wire { origin, polynomial } = self.wires[source].clone();
            return Ok(Wire { origin, polynomial: polynomial.scaled(&zeros, &zeros) });
        }
        if method == ReluBy::Polynomial {
            return self.function_on(id, &argument, 0.0, &relu);
        }
        let ranged = Ranged::new(&relu, span.middle, span.half, 0.0);
        if let Some(fit) = ranged.fit(self.options.tolerance).filter(|_| method == ReluBy::Auto) {
            return Ok(self.push_fit(id, &argument, &ranged, fit));
        }
        // Composite signs, and their errors, are for arguments from -1 to 1.
        match Sign::all().into_iter().find(|sign| relu_error(sign, &ranged) <= self.options.tolerance) {
            Some(sign) => Ok(self.push_composite(id, &argument, &ranged, &sign)),
            None => {
                let errors = Sign::all().into_iter().map(|sign| relu_error(&sign, &ranged));
                let best = errors.fold(f64::INFINITY, tacit_floats::smaller);
                let what = match best.is_finite() {
                    true => format!(
                        "the best composite errs by {best:.1e}: allow that with `-O tolerance`; `dealt` has it by a table"
                    ),
                    false => UNBOUNDED.into(),
                };
                Err(unsupported(self.graph, id, &what))
            }
        }
    }

    fn push_composite(&mut self, id: NodeId, argument: &Argument, ranged: &Ranged<'_>, sign: &Sign) -> Wire {
        let (stages, error) = (&sign.stages, relu_error(sign, ranged));
        let (range, certain) = (tacit_floats::largest_magnitude(ranged.ends()), argument.span.certain);
        let shape = self.graph.nodes[id].shape.clone();
        let n = shape.iter().product();
        let degrees = stages.iter().map(Polynomial::degree).collect();
        self.record_approximation(id, [-range, range], certain, degrees, range, error);
        let argument = self.push_linear(argument.source, shape.clone(), &argument.expr, Some([range, 0.0]));
        // Beyond its range a polynomial soon grows without bound.
        self.vectors[argument].limit = Some(1.0);
        let (mut last, mut largest_value) = (argument, 1.0);
        for (i, stage) in stages.iter().enumerate() {
            // The last stage gives 0 and 1 instead of -1 and 1.
            let polynomial = if i + 1 == stages.len() { stage.scaled(0.5, 0.5) } else { stage.clone() };
            largest_value = fit::largest_magnitude_on(&polynomial, largest_value);
            last = self.push(id, shape.clone(), vec![1.0; n], 0.0, Step::Polynomial { argument: last, polynomial });
            // Each stage's values stay in the domain of the next one.
            self.bounds[last] = certain.then(|| vec![[-largest_value, largest_value]; n]);
        }
        let product = self.push(id, shape, vec![range; n], 0.0, Step::Product { factors: [argument, last] });
        // `error` is a share of the function's largest value, which is at most the range.
        let image = Image { f: &relu, argument: [range, 0.0], error: error * range, unit: range };
        self.bounds[product] = self.bounds[argument].as_ref().filter(|_| certain).map(|bounds| image.bounds(bounds));
        // No other step reads these vectors.
        for slots in &mut self.slots {
            slots[argument..product].iter_mut().for_each(|slots| *slots = Vec::new());
        }
        self.vector_wire(product)
    }

    fn record_approximation(
        &mut self,
        id: NodeId,
        range: [f64; 2],
        certain: bool,
        degrees: Vec<usize>,
        largest: f64,
        error: f64,
    ) {
        let node = &self.graph.nodes[id];
        let (node, op) = (node.name.clone(), node.op.name());
        self.approximations.push(Approximation { node, op, range, certain, degrees, largest, error });
    }

    fn argument(&mut self, source: NodeId) -> Result<Argument> {
        let expr = self.expr(source)?;
        let span = self.span(&expr);
        Ok(Argument { source, expr, span })
    }

    fn push_fit(&mut self, id: NodeId, argument: &Argument, ranged: &Ranged<'_>, fit: Fit) -> Wire {
        let Fit { polynomial, error } = fit;
        let certain = argument.span.certain;
        self.record_approximation(id, ranged.ends(), certain, vec![polynomial.degree()], ranged.top, error);
        let shape = self.graph.nodes[id].shape.clone();
        let argument =
            self.push_linear(argument.source, shape.clone(), &argument.expr, Some([ranged.half, ranged.middle]));
        self.vectors[argument].limit = Some(1.0);
        let unit = usable(ranged.top);
        let scale = vec![unit; shape.iter().product()];
        let vector = self.push(id, shape, scale, 0.0, Step::Polynomial { argument, polynomial });
        let image = Image { f: ranged.f, argument: [ranged.half, ranged.middle], error: error * unit, unit };
        self.bounds[vector] = self.bounds[argument].as_ref().filter(|_| certain).map(|bounds| image.bounds(bounds));
        self.vector_wire(vector)
    }
}

/// The error of ReLU by a composite sign, as a share of ReLU's largest value.
fn relu_error(sign: &Sign, ranged: &Ranged<'_>) -> f64 {
    sign.relu_error() * tacit_floats::largest_magnitude(ranged.ends()) / usable(ranged.top)
}
