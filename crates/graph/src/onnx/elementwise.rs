//! Element-wise operations, normalisation and what ends a network.

use super::proto::NodeProto;
use super::{Reader, Value, axis, fail, float, int, unsupported};
use crate::float::FloatOp;
use crate::{FinalActivation, GraphError};

impl Reader {
    /// Multiplies every element by one number.
    pub(super) fn scale(&mut self, n: &NodeProto, x: usize, factor: f32) -> Result<usize, GraphError> {
        self.affine(n, x, factor, 0.0)
    }

    fn affine(&mut self, n: &NodeProto, x: usize, factor: f32, addend: f32) -> Result<usize, GraphError> {
        let channels = self.shape(x)[0];
        self.push(n, FloatOp::Affine { scale: vec![factor; channels], shift: vec![addend; channels] }, &[x], &[])
    }

    pub(super) fn batch_norm(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        if int(n, "training_mode", 0) != 0 || n.output.iter().skip(1).any(|o| !o.is_empty()) {
            return Err(unsupported(n, "it is in training mode; export the model in inference mode".into()));
        }
        let epsilon = f64::from(float(n, "epsilon", 1e-5)?);
        let [gamma, beta, mean, var] = [1, 2, 3, 4].map(|k| self.needed(n, k).map(|c| c.to_floats()));
        let (gamma, beta, mean, var) = (gamma?, beta?, mean?, var?);
        let channels = self.shape(x)[0];
        if [&gamma, &beta, &mean, &var].iter().any(|v| v.len() != channels) {
            return Err(fail(n, &format!("its parameters are not {channels} each")));
        }
        let mut scale = Vec::with_capacity(channels);
        let mut shift = Vec::with_capacity(channels);
        for c in 0..channels {
            let factor = f64::from(gamma[c]) / (f64::from(var[c]) + epsilon).sqrt();
            if !factor.is_finite() {
                return Err(fail(n, &format!("variance {} of channel {c} has no square root", var[c])));
            }
            scale.push(factor as f32);
            shift.push((f64::from(beta[c]) - f64::from(mean[c]) * factor) as f32);
        }
        Ok(Value::Wire(self.push(n, FloatOp::Affine { scale, shift }, &[x], &[])?))
    }

    /// `y = alpha * x + (1 - alpha) * relu(x)`.
    pub(super) fn leaky_relu(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        let alpha = float(n, "alpha", 0.01)?;
        if !(0.0..=1.0).contains(&alpha) {
            return Err(unsupported(n, format!("a slope of {alpha} is not supported (0 to 1 are)")));
        }
        let positive = self.push(n, FloatOp::Relu, &[x], &[])?;
        let a = self.scale(n, positive, 1.0 - alpha)?;
        let b = self.scale(n, x, alpha)?;
        Ok(Value::Wire(self.push(n, FloatOp::Add, &[a, b], &[])?))
    }

    /// `clip(x, 0, hi) = relu(x) - relu(x - hi)`; with another lower end, `lo + clip(x - lo, 0, hi - lo)`.
    pub(super) fn clip(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        let bound = |k: usize, name: &str| -> Result<Option<f32>, GraphError> {
            if self.opset < 11 {
                return super::attribute(n, name).map(|_| float(n, name, 0.0)).transpose();
            }
            match self.constant(n, k)? {
                Some(c) if c.len() == 1 => Ok(Some(c.to_floats()[0])),
                Some(_) => Err(fail(n, "its bounds are not single numbers")),
                None => Ok(None),
            }
        };
        // Exporters write "no bound" as the largest float.
        let low = bound(1, "min")?.filter(|v| *v > -1e30);
        let high = bound(2, "max")?.filter(|v| *v < 1e30);
        let made = match (low, high) {
            (None, None) => x,
            (None, Some(hi)) => {
                let above = self.relu_of_shifted(n, x, -hi)?;
                self.push(n, FloatOp::Sub, &[x, above], &[])?
            }
            (Some(lo), None) => {
                let kept = self.relu_of_shifted(n, x, -lo)?;
                self.shifted(n, kept, lo)?
            }
            (Some(lo), Some(hi)) if lo <= hi => {
                let kept = self.relu_of_shifted(n, x, -lo)?;
                let above = self.relu_of_shifted(n, x, -hi)?;
                let inside = self.push(n, FloatOp::Sub, &[kept, above], &[])?;
                self.shifted(n, inside, lo)?
            }
            _ => return Err(fail(n, "its lower bound is above its upper bound")),
        };
        Ok(Value::Wire(made))
    }

    fn relu_of_shifted(&mut self, n: &NodeProto, x: usize, by: f32) -> Result<usize, GraphError> {
        let moved = self.shifted(n, x, by)?;
        self.push(n, FloatOp::Relu, &[moved], &[])
    }

    fn shifted(&mut self, n: &NodeProto, x: usize, by: f32) -> Result<usize, GraphError> {
        if by == 0.0 { Ok(x) } else { self.affine(n, x, 1.0, by) }
    }

    pub(super) fn negate(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        Ok(Value::Wire(self.scale(n, x, -1.0)?))
    }

    /// Add, Sub, Mul, Div: of two tensors (Add, Sub) or of a tensor and a constant.
    pub(super) fn arithmetic(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let is_constant =
            |k: usize| matches!(n.input.get(k).and_then(|i| self.values.get(i)), Some(Value::Constant(_)));
        let op = n.op_type.as_str();
        match (is_constant(0), is_constant(1)) {
            (false, false) => {
                let (a, b) = (self.wire(n, 0)?, self.wire(n, 1)?);
                let op = match op {
                    "Add" | "Sum" => FloatOp::Add,
                    "Sub" => FloatOp::Sub,
                    _ => {
                        return Err(unsupported(
                            n,
                            "the product of two secret tensors is not supported (attention, gates)".into(),
                        ));
                    }
                };
                Ok(Value::Wire(self.push(n, op, &[a, b], &[])?))
            }
            (false, true) => {
                let x = self.wire(n, 0)?;
                let c = self.spread(n, x, 1)?;
                let (scale, shift): (Vec<f32>, Vec<f32>) = match op {
                    "Add" | "Sum" => (vec![1.0; c.len()], c),
                    "Sub" => (vec![1.0; c.len()], c.iter().map(|v| -v).collect()),
                    "Mul" => (c.clone(), vec![0.0; c.len()]),
                    _ => (c.iter().map(|v| 1.0 / v).collect(), vec![0.0; c.len()]),
                };
                self.affine_elements(n, x, scale, shift)
            }
            (true, false) => {
                let x = self.wire(n, 1)?;
                let c = self.spread(n, x, 0)?;
                let (scale, shift) = match op {
                    "Add" | "Sum" => (vec![1.0; c.len()], c),
                    "Sub" => (vec![-1.0; c.len()], c),
                    "Mul" => (c.clone(), vec![0.0; c.len()]),
                    _ => return Err(unsupported(n, "division by a secret tensor is not supported".into())),
                };
                self.affine_elements(n, x, scale, shift)
            }
            (true, true) => Err(unsupported(n, "both inputs are constants; onnxsim folds them".into())),
        }
    }

    /// Constant input `k` broadcast to the tensor `x`: one value per channel where that is enough, else one per element.
    fn spread(&self, n: &NodeProto, x: usize, k: usize) -> Result<Vec<f32>, GraphError> {
        let c = self.needed(n, k)?;
        let values = c.to_floats();
        let shape = self.shape(x);
        // Broadcasting aligns the last axes; the constant may have a batch axis of length 1.
        let mut own: Vec<usize> = c.shape.clone();
        while own.len() > shape.len() && own[0] == 1 {
            own.remove(0);
        }
        while own.len() < shape.len() {
            own.insert(0, 1);
        }
        if own.len() != shape.len() || own.iter().zip(shape).any(|(o, s)| o != s && *o != 1) {
            return Err(fail(n, &format!("a constant of shape {:?} does not fit a tensor [N] + {shape:?}", c.shape)));
        }
        if own[1..].iter().all(|&o| o == 1) {
            return Ok(if values.len() == 1 { vec![values[0]; shape[0]] } else { values });
        }
        let total: usize = shape.iter().product();
        Ok((0..total)
            .map(|i| {
                let (mut rest, mut at, mut stride) = (i, 0, 1);
                for axis in (0..shape.len()).rev() {
                    let index = rest % shape[axis];
                    rest /= shape[axis];
                    if own[axis] != 1 {
                        at += index * stride;
                    }
                    stride *= own[axis];
                }
                values[at]
            })
            .collect())
    }

    fn affine_elements(
        &mut self,
        n: &NodeProto,
        x: usize,
        scale: Vec<f32>,
        shift: Vec<f32>,
    ) -> Result<Value, GraphError> {
        if let Some(bad) = scale.iter().chain(&shift).find(|v| !v.is_finite()) {
            return Err(fail(n, &format!("its constant leads to {bad}")));
        }
        let shape = self.shape(x).to_vec();
        let len = scale.len();
        let op = FloatOp::Affine { scale, shift };
        if len == shape[0] {
            return Ok(Value::Wire(self.push(n, op, &[x], &[])?));
        }
        let flat = self.push(n, FloatOp::Reshape, &[x], &[len])?;
        let made = self.push(n, op, &[flat], &[])?;
        Ok(Value::Wire(self.push(n, FloatOp::Reshape, &[made], &shape)?))
    }

    pub(super) fn softmax(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        let shape = self.shape(x);
        let rank = shape.len() + 1;
        // Up to operator set 12 the default axis is 1 and everything behind it is one axis.
        let at = axis(n, int(n, "axis", if self.opset < 13 { 1 } else { -1 }), rank)?;
        let over_all =
            if self.opset < 13 { at == 1 } else { shape.iter().enumerate().all(|(i, &d)| i + 1 == at || d == 1) };
        if !over_all {
            return Err(unsupported(
                n,
                "only a softmax over all classes at the end of the network is supported".into(),
            ));
        }
        let left = if n.op_type == "LogSoftmax" { FinalActivation::LogSoftmax } else { FinalActivation::Softmax };
        Ok(Value::Activated(x, left))
    }

    pub(super) fn arg_max(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        // The class with the largest probability is the class with the largest logit.
        let x = match n.input.first().and_then(|i| self.values.get(i)) {
            Some(Value::Activated(w, _)) => *w,
            _ => self.wire(n, 0)?,
        };
        let shape = self.shape(x).to_vec();
        let at = axis(n, int(n, "axis", 0), shape.len() + 1)?;
        if at == 0 || shape.iter().enumerate().any(|(i, &d)| i + 1 != at && d != 1) {
            return Err(unsupported(n, "only an ArgMax over all classes is supported".into()));
        }
        if int(n, "select_last_index", 0) != 0 {
            return Err(unsupported(n, "select_last_index = 1 is not supported".into()));
        }
        let flat = if shape.len() == 1 { x } else { self.push(n, FloatOp::Reshape, &[x], &[shape[at - 1]])? };
        Ok(Value::Wire(self.push(n, FloatOp::ArgMax, &[flat], &[])?))
    }
}
