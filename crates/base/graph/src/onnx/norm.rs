//! Networks that end by dividing the answer by its own norm (embeddings of faces, voices,
//! sentences), in the forms that exporters write. The client does the division.

use super::proto::NodeProto;
use super::{Reader, Value, axis, fail, file_error, float, int, unsupported};
use crate::{FinalActivation, GraphError};

/// Advice for a norm in any other use.
pub(super) const ADVICE: &str = "roots and quotients of secret values are not supported, but for a division of the whole answer by its own \
                                 norm at the end of the network; use BatchNormalization, or cut it off and apply it to the answer";

/// Largest constant that counts as a guard against division by zero.
const MAX_GUARD: f32 = 1e-5;

pub(super) fn as_output(name: &str) -> GraphError {
    file_error(format!("the output `{name}` is a norm: export the numbers that it is made of"))
}

impl Reader<'_> {
    pub(super) fn is_norm(&self, n: &NodeProto, k: usize) -> bool {
        matches!(self.value(n, k), Some(Value::Norm(..)))
    }

    /// Reads ReduceL1 and ReduceL2 over everything but the batch.
    pub(super) fn norm(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.real(n, 0)?;
        let axes = self.reduced_axes(n, x.shape.len())?;
        axes.iter().try_for_each(|&a| self.keeps_batch(n, &x, a))?;
        if x.order.iter().any(|a| !axes.contains(a)) {
            return Err(unsupported(n, ADVICE));
        }
        Ok(Value::Norm(x, if n.op_type == "ReduceL1" { FinalActivation::L1 } else { FinalActivation::L2 }))
    }

    /// Reads the nodes that exporters put between a norm and the division: a guard against zero,
    /// copies.
    pub(super) fn norm_copy(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let guards = match n.op_type.as_str() {
            "Clip" if self.opset < 11 => (0.0..=MAX_GUARD).contains(&float(n, "min", 0.0)?),
            "Clip" => {
                self.is_small(n, 1)? && self.constant(n, 2)?.is_none_or(|c| c.to_floats().iter().all(|v| *v > 1e30))
            }
            "Max" | "Add" => n.input.len() == 2 && self.is_small(n, 1)?,
            _ => true,
        };
        match self.values.get(&n.input[0]) {
            Some(value @ Value::Norm(..)) if guards => Ok(value.clone()),
            _ => Err(unsupported(n, ADVICE)),
        }
    }

    /// Returns whether constant input `k` is a guard against division by zero, or absent.
    fn is_small(&self, n: &NodeProto, k: usize) -> Result<bool, GraphError> {
        Ok(self.constant(n, k)?.is_none_or(|c| c.to_floats().iter().all(|v| (0.0..=MAX_GUARD).contains(v))))
    }

    pub(super) fn divide_by_norm(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.real(n, 0)?;
        match self.value(n, 1) {
            Some(Value::Norm(of, kind)) if of.is_same(&x) => Ok(Value::Activated(x, *kind)),
            _ => Err(unsupported(n, ADVICE)),
        }
    }

    /// Reads LpNormalization over everything but the batch.
    pub(super) fn lp_normalization(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.real(n, 0)?;
        let axis_index = axis(n, int(n, "axis", -1), x.shape.len())?;
        self.keeps_batch(n, &x, axis_index)?;
        if x.order.iter().any(|&a| a != axis_index) {
            return Err(unsupported(n, ADVICE));
        }
        match int(n, "p", 2) {
            1 => Ok(Value::Activated(x, FinalActivation::L1)),
            2 => Ok(Value::Activated(x, FinalActivation::L2)),
            p => Err(fail(n, format!("a norm of order {p}: 1 and 2 are defined"))),
        }
    }
}
