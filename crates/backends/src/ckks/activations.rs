//! Activations as polynomials of each element.

use tacit_graph::float::{FloatNode, FloatOp};
use tacit_graph::{FloatGraph, Function, NodeId};
use tacit_he::ckks::Polynomial;
use tacit_he::ckks::approximate::Sign;

use super::emit::{Emitter, Wire, largest, refused, usable};
use super::expr::Expr;
use super::fit::{Approximation, Fit, Ranged};
use super::options::ReluBy;
use super::program::Step;
use crate::BackendError;

/// What a node computes that takes the gap of a function from ReLU: GELU, SiLU and their like are smooth, so
/// that a polynomial of the difference is nearer than two of the parts. The argument, and the gap.
fn smooth(graph: &FloatGraph, id: NodeId) -> Option<(NodeId, Function)> {
    let node = &graph.nodes[id];
    let (FloatOp::Sub, [relu, gap]) = (&node.op, &node.inputs[..]) else { return None };
    let [relu, gap] = [relu, gap].map(|&id| &graph.nodes[id]);
    match gap.op {
        FloatOp::Function(function)
            if function.is_gap() && matches!(relu.op, FloatOp::Relu) && relu.inputs == gap.inputs =>
        {
            Some((relu.inputs[0], function))
        }
        _ => None,
    }
}

impl Emitter<'_> {
    /// A node that is one smooth function of another.
    pub(super) fn smoothed(&mut self, id: NodeId) -> Result<Option<Wire>, BackendError> {
        let Some((source, gap)) = smooth(self.graph, id) else { return Ok(None) };
        self.function(id, source, 0.0, &move |x| x.max(0.0) - gap.value(x)).map(Some)
    }

    /// ReLU or a function of each element.
    pub(super) fn activation(&mut self, id: NodeId, node: &FloatNode) -> Result<Wire, BackendError> {
        let source = node.inputs[0];
        let mut readers = (0..self.graph.nodes.len()).filter(|k| self.graph.nodes[*k].inputs.contains(&id)).peekable();
        if id != self.graph.output && readers.peek().is_some() && readers.all(|k| smooth(self.graph, k).is_some()) {
            // Whoever reads it takes the argument instead.
            return Ok(self.wires[source].clone());
        }
        match node.op {
            FloatOp::Function(function) => {
                // The gap is taken from ReLU, which is as large as its argument.
                let share = if function.is_gap() { 1.0 } else { 0.0 };
                self.function(id, source, share, &move |x| function.value(x))
            }
            _ => self.relu(id, source),
        }
    }

    /// A function of each element, by a polynomial on the range of its argument. Errors are measured in the
    /// function's largest value there, or `share` of the argument's, if that is more.
    fn function(
        &mut self,
        id: NodeId,
        source: NodeId,
        share: f64,
        f: &dyn Fn(f64) -> f64,
    ) -> Result<Wire, BackendError> {
        let (expr, ranged) = self.ranged(source, share, f)?;
        match ranged.fit(self.options.tolerance) {
            Some(fit) => Ok(self.fitted(id, source, &expr, &ranged, fit)),
            None => {
                let [from, to] = ranged.ends();
                let what = format!(
                    "no polynomial of degree 63 is within {} of it on [{from:.3}, {to:.3}]; give calibration data with a narrower range \
                     or allow more with `-O tolerance`; `dealt` has it by a table",
                    self.options.tolerance
                );
                Err(refused(self.graph, id, &what))
            }
        }
    }

    /// ReLU: a polynomial on the range of its argument, or `x (1 + sign x) / 2` with the composite sign of
    /// least depth. Either may err by as much as any function; without a choice a composite comes where no
    /// polynomial is as good.
    fn relu(&mut self, id: NodeId, source: NodeId) -> Result<Wire, BackendError> {
        let way = self.options.relu;
        if way == ReluBy::Polynomial {
            return self.function(id, source, 0.0, &|x| x.max(0.0));
        }
        let (expr, ranged) = self.ranged(source, 0.0, &|x| x.max(0.0))?;
        if let Some(fit) = ranged.fit(self.options.tolerance).filter(|_| way == ReluBy::Auto) {
            return Ok(self.fitted(id, source, &expr, &ranged, fit));
        }
        // Signs are for arguments from -1 to 1, and so are their errors.
        let range = largest(ranged.ends());
        let error = |sign: &Sign| sign.relu_error() * range / usable(ranged.top);
        match Sign::all().into_iter().find(|sign| error(sign) <= self.options.tolerance) {
            Some(sign) => Ok(self.composite(id, source, &expr, range, (&sign, error(&sign)))),
            None => {
                let best = Sign::all().iter().map(error).fold(f64::INFINITY, tacit_floats::smaller);
                let what = format!(
                    "the best composite errs by {best:.1e}: allow that with `-O tolerance`; `dealt` has it by a table"
                );
                Err(refused(self.graph, id, &what))
            }
        }
    }

    fn composite(&mut self, id: NodeId, source: NodeId, expr: &Expr, range: f64, sign: (&Sign, f64)) -> Wire {
        let (Sign { stages, .. }, error) = sign;
        let node = &self.graph.nodes[id];
        let shape = node.shape.clone();
        let n = shape.iter().product();
        self.approximations.push(Approximation {
            node: node.name.clone(),
            op: node.op.name(),
            range: [-range, range],
            degrees: stages.iter().map(Polynomial::degree).collect(),
            error,
        });
        let argument = self.computed(source, shape.clone(), expr, Some([range, 0.0]));
        // Beyond its range a polynomial soon leaves everything.
        self.vectors[argument].limit = Some(1.0);
        let mut last = argument;
        for (i, stage) in stages.iter().enumerate() {
            // The last one gives 0 and 1 instead of -1 and 1.
            let polynomial = if i + 1 == stages.len() { stage.scaled(0.5, 0.5) } else { stage.clone() };
            last = self.push(id, shape.clone(), vec![1.0; n], 0.0, Step::Polynomial { of: last, polynomial });
        }
        let made = self.push(id, shape, vec![range; n], 0.0, Step::Product { of: [argument, last] });
        // Nothing else reads these.
        for slots in &mut self.slots {
            slots[argument..made].iter_mut().for_each(|slots| *slots = Vec::new());
        }
        self.of_vector(made)
    }

    /// The argument of a function, and the function on its range.
    fn ranged<'f>(
        &mut self,
        source: NodeId,
        share: f64,
        f: &'f dyn Fn(f64) -> f64,
    ) -> Result<(Expr, Ranged<'f>), BackendError> {
        let expr = self.expr(source)?;
        let values = self.slots.iter().flat_map(|slots| expr.values(slots));
        let [low, high] = tacit_floats::range(values);
        let (middle, half) = (f64::midpoint(low, high), usable((high - low) / 2.0) * self.options.margin);
        Ok((expr, Ranged::new(f, middle, half, share)))
    }

    /// The polynomial of a function, computed.
    fn fitted(&mut self, id: NodeId, source: NodeId, expr: &Expr, ranged: &Ranged<'_>, fit: Fit) -> Wire {
        let Fit { polynomial, error } = fit;
        let node = &self.graph.nodes[id];
        self.approximations.push(Approximation {
            node: node.name.clone(),
            op: node.op.name(),
            range: ranged.ends(),
            degrees: vec![polynomial.degree()],
            error,
        });
        let shape = node.shape.clone();
        let argument = self.computed(source, shape.clone(), expr, Some([ranged.half, ranged.middle]));
        // Beyond its range a polynomial soon leaves everything.
        self.vectors[argument].limit = Some(1.0);
        let scale = vec![usable(ranged.top); shape.iter().product()];
        let made = self.push(id, shape, scale, 0.0, Step::Polynomial { of: argument, polynomial });
        self.of_vector(made)
    }
}
