//! Activations, normalisation, and the last operators of a network.

use super::proto::NodeProto;
use super::view::Tensor;
use super::{Reader, Value, axis, fail, float, int, unsupported};
use crate::float::{FloatNode, FloatOp};
use crate::{FinalActivation, Function, GraphError};

impl Reader<'_> {
    pub(super) fn scale(&mut self, n: &NodeProto, x: &Tensor, factor: f32) -> Result<Tensor, GraphError> {
        self.affine(n, x, factor, 0.0)
    }

    /// Adds `factor * x + addend` for all elements, or nothing if that changes nothing.
    pub(super) fn affine(&mut self, n: &NodeProto, x: &Tensor, factor: f32, addend: f32) -> Result<Tensor, GraphError> {
        if factor == 1.0 && addend == 0.0 {
            return Ok(x.clone());
        }
        if !factor.is_finite() || !addend.is_finite() {
            return Err(fail(n, format!("its constant leads to {factor} * x + {addend}")));
        }
        let channels = self.node_shape(x.node)[0];
        let op = FloatOp::Affine { scale: vec![factor; channels], shift: vec![addend; channels] };
        let id = self.push(n, op, &[x.node], &[])?;
        Ok(x.with_node(id))
    }

    /// Applies a factor and an addend for each index of `axis`.
    pub(super) fn affine_along(
        &mut self,
        n: &NodeProto,
        x: &Tensor,
        axis: usize,
        scale: Vec<f32>,
        shift: Vec<f32>,
    ) -> Result<Tensor, GraphError> {
        let length = x.shape.get(axis).copied().ok_or_else(|| fail(n, format!("its input has shape {:?}", x.shape)))?;
        if scale.len() != length || shift.len() != length {
            return Err(fail(n, format!("{} factors and {} addends for {length} channels", scale.len(), shift.len())));
        }
        if let Some(bad) = scale.iter().chain(&shift).find(|v| !v.is_finite()) {
            return Err(fail(n, format!("its constants lead to {bad}")));
        }
        let x = self.arrange_leading(n, x, &[axis])?;
        let id = self.push(n, FloatOp::Affine { scale, shift }, &[x.node], &[])?;
        Ok(x.with_node(id))
    }

    pub(super) fn batch_norm(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        // Older operator sets state training mode by further outputs.
        if int(n, "training_mode", 0) != 0 || n.output.iter().skip(1).any(|o| !o.is_empty()) {
            return Err(unsupported(n, "it is in training mode; export the model in inference mode"));
        }
        let epsilon = f64::from(float(n, "epsilon", 1e-5)?);
        let [gamma, beta, mean, var] = [1, 2, 3, 4].map(|k| self.constant_input(n, k).map(|c| c.to_floats()));
        let (gamma, beta, mean, var) = (gamma?, beta?, mean?, var?);
        let channels = gamma.len();
        if [&beta, &mean, &var].iter().any(|v| v.len() != channels) {
            return Err(fail(n, format!("its parameters are not {channels} each")));
        }
        let mut scale = Vec::with_capacity(channels);
        let mut shift = Vec::with_capacity(channels);
        for c in 0..channels {
            let factor = f64::from(gamma[c]) / (f64::from(var[c]) + epsilon).sqrt();
            if !factor.is_finite() {
                return Err(fail(n, format!("variance {} of channel {c} has no square root", var[c])));
            }
            scale.push(factor as f32);
            shift.push((f64::from(beta[c]) - f64::from(mean[c]) * factor) as f32);
        }
        self.affine_along(n, &x, 1, scale, shift)
    }

    /// `scale * x + bias[c]`.
    pub(super) fn image_scaler(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let scale = float(n, "scale", 1.0)?;
        let bias = super::floats(n, "bias")?.ok_or_else(|| fail(n, "has no bias"))?;
        self.affine_along(n, &x, 1, vec![scale; bias.len()], bias)
    }

    /// `y = alpha * x + (1 - alpha) * relu(x)`.
    pub(super) fn leaky_relu(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let alpha = float(n, "alpha", 0.01)?;
        let positive = self.relu(n, &x)?;
        let a = self.scale(n, &positive, 1.0 - alpha)?;
        let b = self.scale(n, &x, alpha)?;
        self.pair(n, FloatOp::Add, &a, &b)
    }

    /// `y = relu(x) - slope * relu(-x)` with broadcast slopes: one product. Private slopes take a
    /// layer.
    pub(super) fn prelu(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let slope = self.constant_input(n, 1)?;
        let positive = self.relu(n, &x)?;
        let below = self.pair(n, FloatOp::Sub, &positive, &x)?;
        let sloped = self.affine_by(n, &below, &slope, |s| (s, 0.0))?;
        self.pair(n, FloatOp::Sub, &positive, &sloped)
    }

    /// `|x| = 2 relu(x) - x`.
    pub(super) fn abs(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let positive = self.relu(n, &x)?;
        let twice = self.scale(n, &positive, 2.0)?;
        self.pair(n, FloatOp::Sub, &twice, &x)
    }

    pub(super) fn clip(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        // Exporters write "no bound" as the largest float.
        let low = self.bound(n, 1, "min")?.filter(|v| *v > -1e30);
        let high = self.bound(n, 2, "max")?.filter(|v| *v < 1e30);
        self.clip_between(n, &x, low, high)
    }

    /// Returns a bound of a Clip: constant input `k`, or attribute `name` in older operator sets.
    fn bound(&self, n: &NodeProto, k: usize, name: &str) -> Result<Option<f32>, GraphError> {
        if self.opset < 11 {
            return super::attribute(n, name).map(|_| float(n, name, 0.0)).transpose();
        }
        match self.constant(n, k)? {
            Some(c) if c.len() == 1 => Ok(Some(c.to_floats()[0])),
            Some(_) => Err(fail(n, "its bounds are not single numbers")),
            None => Ok(None),
        }
    }

    /// `max(0, min(1, alpha * x + beta))`.
    pub(super) fn hard_sigmoid(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let line = self.affine(n, &x, float(n, "alpha", 0.2)?, float(n, "beta", 0.5)?)?;
        self.clip_between(n, &line, Some(0.0), Some(1.0))
    }

    /// `clip(x, 0, hi) = relu(x) - relu(x - hi)`; with another lower end,
    /// `lo + clip(x - lo, 0, hi - lo)`.
    pub(super) fn clip_between(
        &mut self,
        n: &NodeProto,
        x: &Tensor,
        low: Option<f32>,
        high: Option<f32>,
    ) -> Result<Tensor, GraphError> {
        match (low, high) {
            (None, None) => Ok(x.clone()),
            (None, Some(hi)) => {
                let above = self.relu_of_shifted(n, x, -hi)?;
                self.pair(n, FloatOp::Sub, x, &above)
            }
            (Some(lo), None) => {
                let clamped = self.relu_of_shifted(n, x, -lo)?;
                self.affine(n, &clamped, 1.0, lo)
            }
            (Some(lo), Some(hi)) if lo <= hi => {
                let clamped = self.relu_of_shifted(n, x, -lo)?;
                let above = self.relu_of_shifted(n, x, -hi)?;
                let inside = self.pair(n, FloatOp::Sub, &clamped, &above)?;
                self.affine(n, &inside, 1.0, lo)
            }
            _ => Err(fail(n, "its lower bound is above its upper bound")),
        }
    }

    fn relu_of_shifted(&mut self, n: &NodeProto, x: &Tensor, shift: f32) -> Result<Tensor, GraphError> {
        let shifted = self.affine(n, x, 1.0, shift)?;
        self.relu(n, &shifted)
    }

    pub(super) fn relu(&mut self, n: &NodeProto, x: &Tensor) -> Result<Tensor, GraphError> {
        let id = self.push(n, FloatOp::Relu, &[x.node], &[])?;
        Ok(x.with_node(id))
    }

    pub(super) fn negate(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        self.scale(n, &x, -1.0)
    }

    pub(super) fn softmax(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.real(n, 0)?;
        // Up to operator set 12 the default axis is 1, and all axes from the stated one on count as
        // one.
        let axis_index = axis(n, int(n, "axis", if self.opset < 13 { 1 } else { -1 }), x.shape.len())?;
        let logarithm = n.op_type == "LogSoftmax";
        if x.order.iter().any(|&i| if self.opset < 13 { i < axis_index } else { i != axis_index }) {
            // One softmax for each position: `[outer, length, inner]` in the file's order.
            let end = if self.opset < 13 { x.shape.len() } else { axis_index + 1 };
            let (Some(length), Some(inner)) = (product(&x.shape[axis_index..end]), product(&x.shape[end..])) else {
                return Err(fail(n, "is too large"));
            };
            self.keeps_batch(n, &x, axis_index)?;
            return Ok(Value::Activated(x, FinalActivation::SoftmaxAlong { length, inner, logarithm }));
        }
        let final_activation = if logarithm { FinalActivation::LogSoftmax } else { FinalActivation::Softmax };
        Ok(Value::Activated(x, final_activation))
    }

    /// Turns a Sigmoid or Tanh that was left to the client into a function of the network, if `n`
    /// reads it as its input `k`.
    pub(super) fn compute_activated(&mut self, n: &NodeProto, k: usize) -> Result<(), GraphError> {
        let Some((name, Value::Activated(x, final_activation))) =
            n.input.get(k).and_then(|i| self.values.get_key_value(i))
        else {
            return Ok(());
        };
        let function = match final_activation {
            FinalActivation::Sigmoid => Function::Sigmoid,
            FinalActivation::Tanh => Function::Tanh,
            _ => return Ok(()),
        };
        let (name, x) = (name.clone(), x.clone());
        // The node is named after its own operator, independent of its reader.
        let named = NodeProto { name: name.clone(), op_type: function.name().into(), ..NodeProto::default() };
        let id = self.push(&named, FloatOp::Function(function), &[x.node], &[])?;
        self.values.insert(name, Value::Wire(x.with_node(id)));
        Ok(())
    }

    /// `gelu(x) = relu(x) - residual(x)`.
    pub(super) fn gelu(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let residual = match super::attribute(n, "approximate").map(|a| a.s.as_slice()) {
            None | Some(b"none") => Function::GeluResidual,
            Some(b"tanh") => Function::GeluTanhResidual,
            Some(_) => return Err(fail(n, "its approximation is neither none nor tanh")),
        };
        self.activation(n, &x, residual, 1.0)
    }

    /// An operator that is a row of the functions: the function, or `relu(x) - residual(x)`.
    pub(super) fn function(&mut self, n: &NodeProto, function: Function) -> Result<Tensor, GraphError> {
        if function.residual_symmetry().is_none() {
            return self.unary(n, FloatOp::Function(function));
        }
        let x = self.real(n, 0)?;
        self.activation(n, &x, function, 1.0)
    }

    /// `relu(x) - factor * residual(x)`.
    fn activation(&mut self, n: &NodeProto, x: &Tensor, residual: Function, factor: f32) -> Result<Tensor, GraphError> {
        let positive = self.relu(n, x)?;
        let below = x.with_node(self.push(n, FloatOp::Function(residual), &[x.node], &[])?);
        let below = self.scale(n, &below, factor)?;
        self.pair(n, FloatOp::Sub, &positive, &below)
    }

    /// `x` above 0, `alpha * (exp(x) - 1)` below.
    pub(super) fn elu(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        self.activation(n, &x, Function::EluResidual, float(n, "alpha", 1.0)?)
    }

    /// Returns the input of a product whose other factor is that input's own gate:
    /// `x * sigmoid(x)`, as exporters write SiLU.
    pub(super) fn find_gated_input(&self, n: &NodeProto) -> Option<Tensor> {
        let [a, b] = [0, 1].map(|k: usize| self.value(n, k));
        match_own_gate(a, b).or_else(|| match_own_gate(b, a))
    }

    /// `x * sigmoid(x)` as `relu(x) - residual(x)`.
    pub(super) fn silu(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.find_gated_input(n).ok_or_else(|| fail(n, "is no product with its own sigmoid"))?;
        self.activation(n, &x, Function::SiluResidual, 1.0)
    }

    pub(super) fn is_class(&self, x: &Tensor) -> bool {
        matches!(self.graph.nodes[x.node].op, FloatOp::ArgMax)
    }

    /// `1 / x`; for a square root, one function of its input.
    pub(super) fn reciprocal(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let producer = self.graph.nodes.get(x.node);
        let (function, source) = match producer {
            Some(FloatNode { op: FloatOp::Function(Function::Sqrt), inputs, .. }) => (Function::Rsqrt, inputs[0]),
            _ => (Function::Reciprocal, x.node),
        };
        let id = self.push(n, FloatOp::Function(function), &[source], &[])?;
        Ok(x.with_node(id))
    }

    /// Reads Sigmoid and Tanh, which the client applies if nothing reads them.
    pub(super) fn final_activation(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.real(n, 0)?;
        let final_activation = if n.op_type == "Tanh" { FinalActivation::Tanh } else { FinalActivation::Sigmoid };
        Ok(Value::Activated(x, final_activation))
    }

    pub(super) fn arg_max(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        // The class with the largest probability is the class with the largest logit.
        let x = match self.value(n, 0) {
            Some(Value::Activated(x, _)) => x.clone(),
            _ => self.tensor(n, 0)?,
        };
        let axis_index = axis(n, int(n, "axis", 0), x.shape.len())?;
        if x.order.iter().any(|&i| i != axis_index) || x.elements() == 1 {
            return Err(unsupported(
                n,
                format!(
                    "only an ArgMax over all classes is supported, not over axis {axis_index} of {:?}; cut it off and apply it to the answer",
                    x.shape
                ),
            ));
        }
        if int(n, "select_last_index", 0) != 0 {
            return Err(unsupported(n, "select_last_index = 1 is not supported"));
        }
        let flat = self.push_reshape(n, x.node, &[x.elements()])?;
        let id = self.push(n, FloatOp::ArgMax, &[flat], &[])?;
        let mut shape = x.shape.clone();
        shape[axis_index] = 1;
        let mut result = Tensor::new(id, shape, x.batch);
        if int(n, "keepdims", 1) == 0 {
            result = result.without(&[axis_index]);
        }
        Ok(result)
    }
}

/// Returns the product of lengths, if a softmax can state it.
fn product(lengths: &[usize]) -> Option<u32> {
    u32::try_from(lengths.iter().product::<usize>()).ok()
}

/// Returns `x` if `gate` is its sigmoid.
fn match_own_gate(x: Option<&Value>, gate: Option<&Value>) -> Option<Tensor> {
    match (x, gate) {
        (Some(Value::Wire(x)), Some(Value::Activated(s, FinalActivation::Sigmoid))) if x.is_same(s) => Some(x.clone()),
        _ => None,
    }
}
