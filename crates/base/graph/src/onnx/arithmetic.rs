//! Add, Sub, Mul, Div, Max and Min of two tensors, or of tensors and constants.

use super::proto::NodeProto;
use super::tensor::Constant;
use super::view::Tensor;
use super::{Reader, fail, unsupported};
use crate::GraphError;
use crate::float::FloatOp;

impl Reader<'_> {
    /// Adds an operation on two tensors, broadcast to one shape.
    pub(super) fn pair(&mut self, n: &NodeProto, op: FloatOp, a: &Tensor, b: &Tensor) -> Result<Tensor, GraphError> {
        let (a, b) = self.broadcast(n, a, b)?;
        let second = self.stored_as(n, &b, &a)?;
        let id = self.push(n, op, &[a.node, second], &[])?;
        Ok(a.with_node(id))
    }

    fn broadcast(&mut self, n: &NodeProto, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor), GraphError> {
        let rank = a.shape.len().max(b.shape.len());
        let (a, b) = (a.with_rank(rank), b.with_rank(rank));
        let shape: Vec<usize> = a.shape.iter().zip(&b.shape).map(|(x, y)| *x.max(y)).collect();
        Ok((self.expand(n, &a, &shape)?, self.expand(n, &b, &shape)?))
    }

    /// Reads Add, Sub, Mul, Div of two tensors (not Div), or of a tensor and constants.
    pub(super) fn arithmetic(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let op = n.op_type.as_str();
        if matches!(op, "Sum" | "Mean") {
            let sum = self.fold_inputs(
                n,
                |r, n, a, b| r.pair(n, FloatOp::Add, a, b),
                |r, n, a, c| r.affine_by(n, a, c, |v| (1.0, v)),
            )?;
            let factor = if op == "Mean" { 1.0 / n.input.len() as f32 } else { 1.0 };
            return self.scale(n, &sum, factor);
        }
        let is_first_constant = self.is_constant(n, 0);
        let (tensor, constant) = match (is_first_constant, self.is_constant(n, 1)) {
            (false, false) => {
                let (a, b) = (self.real(n, 0)?, self.real(n, 1)?);
                let op = match op {
                    "Add" => FloatOp::Add,
                    "Sub" => FloatOp::Sub,
                    "Mul" => FloatOp::Mul,
                    _ => return Err(unsupported(n, DIVISION)),
                };
                return self.pair(n, op, &a, &b);
            }
            (false, true) => (0, 1),
            (true, false) => (1, 0),
            (true, true) => {
                let what = "both inputs are constants that could not be folded; onnxsim folds them";
                return Err(unsupported(n, what));
            }
        };
        let (x, c) = (self.real(n, tensor)?, self.constant_input(n, constant)?);
        let coefficients: fn(f32) -> (f32, f32) = match (op, is_first_constant) {
            ("Add", _) => |v| (1.0, v),
            ("Mul", _) => |v| (v, 0.0),
            ("Sub", false) => |v| (1.0, -v),
            ("Sub", true) => |v| (-1.0, v),
            (_, false) => |v| (1.0 / v, 0.0),
            (_, true) => return Err(unsupported(n, DIVISION)),
        };
        self.affine_by(n, &x, &c, coefficients)
    }

    /// `max(a, b) = b + relu(a - b)`, `min(a, b) = a - relu(a - b)`.
    pub(super) fn extremum(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let is_max = n.op_type == "Max";
        self.fold_inputs(
            n,
            |r, n, a, b| {
                let excess = r.pair(n, FloatOp::Sub, a, b)?;
                let excess = r.relu(n, &excess)?;
                if is_max { r.pair(n, FloatOp::Add, &excess, b) } else { r.pair(n, FloatOp::Sub, a, &excess) }
            },
            |r, n, a, c| {
                let excess = r.affine_by(n, a, c, |v| (1.0, -v))?;
                let excess = r.relu(n, &excess)?;
                if is_max { r.affine_by(n, &excess, c, |v| (1.0, v)) } else { r.pair(n, FloatOp::Sub, a, &excess) }
            },
        )
    }

    /// Folds all inputs of a node, tensors before constants.
    fn fold_inputs(
        &mut self,
        n: &NodeProto,
        tensors: impl Fn(&mut Self, &NodeProto, &Tensor, &Tensor) -> Result<Tensor, GraphError>,
        constants: impl Fn(&mut Self, &NodeProto, &Tensor, &Constant) -> Result<Tensor, GraphError>,
    ) -> Result<Tensor, GraphError> {
        let (fixed, secret): (Vec<usize>, Vec<usize>) = (0..n.input.len()).partition(|&k| self.is_constant(n, k));
        let mut secret = secret.into_iter();
        let index = secret.next().ok_or_else(|| fail(n, "has no input that depends on the network's"))?;
        let mut x = self.real(n, index)?;
        for k in secret {
            let y = self.real(n, k)?;
            x = tensors(self, n, &x, &y)?;
        }
        for k in fixed {
            let c = self.constant_input(n, k)?;
            x = constants(self, n, &x, &c)?;
        }
        Ok(x)
    }

    /// Adds `scale * x + shift`, with `(scale, shift)` made from each element of a broadcast
    /// constant.
    pub(super) fn affine_by(
        &mut self,
        n: &NodeProto,
        x: &Tensor,
        c: &Constant,
        coefficients: impl Fn(f32) -> (f32, f32),
    ) -> Result<Tensor, GraphError> {
        let (values, rank) = (c.to_floats(), x.shape.len().max(c.shape.len()));
        if let [single] = values[..] {
            let x = x.with_rank(rank);
            let (scale, shift) = coefficients(single);
            return self.affine(n, &x, scale, shift);
        }
        let constant_shape = [vec![1; rank - c.shape.len()], c.shape.clone()].concat();
        let x = x.with_rank(rank);
        if constant_shape.iter().zip(&x.shape).any(|(o, s)| o != s && *o != 1 && *s != 1) {
            return Err(fail(
                n,
                format!("a constant of shape {:?} does not fit a tensor of shape {:?}", c.shape, x.shape),
            ));
        }
        let shape: Vec<usize> = constant_shape.iter().zip(&x.shape).map(|(o, s)| *o.max(s)).collect();
        let x = self.expand(n, &x, &shape)?;
        let varies: Vec<usize> = (0..rank).filter(|&i| constant_shape[i] != 1).collect();
        let x = self.arrange_leading(n, &x, &varies)?;
        // The constant's axes in the order in which the tensor stores them.
        let perm: Vec<usize> = x.order.iter().copied().filter(|a| varies.contains(a)).collect();
        let dims: Vec<usize> = perm.iter().map(|&a| constant_shape[a]).collect();
        let source_shape: Vec<usize> = varies.iter().map(|&a| constant_shape[a]).collect();
        let positions: Vec<usize> =
            perm.iter().map(|a| varies.iter().position(|v| v == a).expect("an axis that varies")).collect();
        debug_assert_eq!(dims.iter().product::<usize>(), values.len());
        let ordered = crate::kernel::transpose(&positions, &values, &source_shape);
        let (scale, shift): (Vec<f32>, Vec<f32>) = ordered.into_iter().map(coefficients).unzip();
        if let Some(bad) = scale.iter().chain(&shift).find(|v| !v.is_finite()) {
            return Err(fail(n, format!("its constant leads to {bad}")));
        }
        let id = self.push(n, FloatOp::Affine { scale, shift }, &[x.node], &[])?;
        Ok(x.with_node(id))
    }
}

const DIVISION: &str = "division by a secret tensor (a normalisation by the input's own statistics) is not supported; use BatchNormalization, \
                        or normalise outside of the network";
