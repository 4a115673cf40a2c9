//! Operations that change only the shape or the order of axes.

use super::proto::NodeProto;
use super::tensor::Constant;
use super::view::Tensor;
use super::{Batch, Reader, Value, axes_of, axis, fail, int, ints, unsupported};
use crate::geometry::checked_elements;
use crate::{FinalActivation, GraphError};

impl Reader<'_> {
    /// Returns a tensor's shape, or the part from `start` to `end`.
    pub(super) fn shape_of(&self, n: &NodeProto) -> Result<Constant, GraphError> {
        let dims: Vec<i64> = match self.value(n, 0) {
            Some(Value::Constant(c)) => c.shape.iter().map(|&d| d as i64).collect(),
            Some(Value::Wire(x) | Value::Activated(x, _) | Value::Quantised(x, _)) => {
                x.shape.iter().map(|&d| d as i64).collect()
            }
            Some(Value::Unusable(why)) => return Err(unsupported(n, format!("its input cannot be had: {why}"))),
            Some(Value::Norm(..)) => return Err(unsupported(n, super::norm::ADVICE)),
            None => return Err(fail(n, "has no input")),
        };
        // Both may count from the end; values beyond either end are clamped to it.
        let rank = dims.len() as i64;
        let [start, end] = [int(n, "start", 0), int(n, "end", rank)]
            .map(|v| (if v < 0 { v.saturating_add(rank) } else { v }).clamp(0, rank) as usize);
        Ok(Constant::ints(dims[start..end.max(start)].to_vec()))
    }

    /// Reads Flatten, Reshape, Squeeze and Unsqueeze of a tensor.
    pub(super) fn reshape(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let (x, final_activation) = match self.value(n, 0) {
            Some(Value::Activated(x, final_activation)) => (x.clone(), Some(*final_activation)),
            _ => (self.tensor(n, 0)?, None),
        };
        let result = match n.op_type.as_str() {
            "Squeeze" => {
                let removed_axes = match self.integer_list(n, 1, "axes")? {
                    Some(axes) => axes_of(n, &axes, x.shape.len())?,
                    // A network for any batch size keeps its batch axis.
                    None => (0..x.shape.len())
                        .filter(|&i| x.shape[i] == 1 && (self.batch == Batch::One || x.batch != Some(i)))
                        .collect(),
                };
                if removed_axes.iter().any(|&i| x.shape[i] != 1) {
                    return Err(fail(n, format!("squeezes an axis of {:?} that is not 1", x.shape)));
                }
                removed_axes
                    .iter()
                    .filter(|_| matches!(self.batch, Batch::Many(_)))
                    .try_for_each(|&a| self.keeps_batch(n, &x, a))?;
                x.without(&removed_axes)
            }
            "Unsqueeze" => x.with_ones(&self.new_axes(n, x.shape.len())?),
            _ => {
                let target = self.target_shape(n, &x.shape, x.batch)?;
                self.view_as(n, &x, target)?
            }
        };
        Ok(final_activation
            .map_or(Value::Wire(result.clone()), |final_activation| Value::Activated(result, final_activation)))
    }

    /// Returns `x` in another shape, with the same elements in the file's order.
    pub(super) fn view_as(&mut self, n: &NodeProto, x: &Tensor, shape: Vec<usize>) -> Result<Tensor, GraphError> {
        if checked_elements(&shape) != Some(x.elements()) {
            return Err(fail(n, format!("{:?} cannot become {shape:?}", x.shape)));
        }
        let batch = x.batch.filter(|b| *b == 0 && !shape.is_empty());
        if matches!(self.batch, Batch::Many(_)) && x.batch.is_some() && batch.is_none() {
            return Err(unsupported(n, "it moves the batch from the first axis; export it with a batch of 1"));
        }
        if long_lengths(&shape).eq(long_lengths(&x.shape)) {
            let (old_axes, new_axes) = (super::view::long_axes(&x.shape), super::view::long_axes(&shape));
            let axis_order =
                x.order.iter().map(|a| new_axes[old_axes.iter().position(|f| f == a).expect("an axis longer than 1")]);
            return Ok(Tensor { order: axis_order.collect(), shape, batch, ..x.clone() });
        }
        let x = self.arrange_in_axis_order(n, x)?;
        Ok(Tensor { integer: x.integer, ..Tensor::new(x.node, shape, batch) })
    }

    pub(super) fn transpose(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let Some(Value::Activated(x, final_activation)) = self.value(n, 0) else {
            let x = self.tensor(n, 0)?;
            return Ok(Value::Wire(x.transposed(&permutation(n, x.shape.len())?)));
        };
        let perm = permutation(n, x.shape.len())?;
        let result = x.transposed(&perm);
        let final_activation = match *final_activation {
            // The same axis at another place.
            FinalActivation::SoftmaxAlong { length, inner, logarithm } => {
                let softmax_axis = (0..x.shape.len())
                    .find(|&softmax_axis| {
                        x.shape[softmax_axis] == length as usize && distance(&x.shape, softmax_axis) == inner as usize
                    })
                    .and_then(|softmax_axis| perm.iter().position(|&p| p == softmax_axis));
                let softmax_axis =
                    softmax_axis.ok_or_else(|| unsupported(n, "it takes the axes of a softmax apart; cut both off"))?;
                let inner =
                    u32::try_from(distance(&result.shape, softmax_axis)).map_err(|_| fail(n, "is too large"))?;
                FinalActivation::SoftmaxAlong { length, inner, logarithm }
            }
            other => other,
        };
        Ok(Value::Activated(result, final_activation))
    }

    /// Returns the axes that an Unsqueeze of a tensor with `rank` axes adds to the result, sorted.
    pub(super) fn new_axes(&self, n: &NodeProto, rank: usize) -> Result<Vec<usize>, GraphError> {
        let axes = self.integer_list(n, 1, "axes")?.ok_or_else(|| fail(n, "has no axes"))?;
        let rank = rank + axes.len();
        let mut new = axes_of(n, &axes, rank)?;
        new.sort_unstable();
        if new.windows(2).any(|w| w[0] == w[1]) {
            return Err(fail(n, "its axes repeat"));
        }
        Ok(new)
    }

    /// Returns the shape that Flatten or Reshape gives to a tensor of shape `input_shape`. The file may
    /// state a batch other than 1.
    pub(super) fn target_shape(
        &self,
        n: &NodeProto,
        input_shape: &[usize],
        batch: Option<usize>,
    ) -> Result<Vec<usize>, GraphError> {
        if n.op_type == "Flatten" {
            let start_axis = int(n, "axis", 1);
            let start_axis = if start_axis == input_shape.len() as i64 {
                input_shape.len()
            } else {
                axis(n, start_axis, input_shape.len())?
            };
            return Ok(vec![input_shape[..start_axis].iter().product(), input_shape[start_axis..].iter().product()]);
        }
        let mut target = self.integer_list(n, 1, "shape")?.ok_or_else(|| fail(n, "has no shape"))?;
        if let (Batch::Many(batch_len), Some(0), Some(first_len)) = (self.batch, batch, target.first_mut())
            && *first_len > 0
            && *first_len % batch_len as i64 == 0
        {
            *first_len /= batch_len as i64;
        }
        resolve_reshape(n, input_shape, &target, int(n, "allowzero", 0) != 0)
    }
}

fn long_lengths(shape: &[usize]) -> impl Iterator<Item = usize> {
    shape.iter().copied().filter(|d| *d != 1)
}

/// Returns the distance of two elements along axis `axis_index`.
fn distance(shape: &[usize], axis_index: usize) -> usize {
    shape[axis_index + 1..].iter().product()
}

pub(super) fn permutation(n: &NodeProto, rank: usize) -> Result<Vec<usize>, GraphError> {
    let perm_attribute = ints(n, "perm").map_or_else(|| (0..rank as i64).rev().collect(), <[i64]>::to_vec);
    let perm = axes_of(n, &perm_attribute, rank)?;
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() {
        return Err(fail(n, format!("{perm_attribute:?} is not a permutation of {rank} axes")));
    }
    Ok(perm)
}

fn resolve_reshape(
    n: &NodeProto,
    input_shape: &[usize],
    target: &[i64],
    allow_zero: bool,
) -> Result<Vec<usize>, GraphError> {
    let total: usize = input_shape.iter().product();
    let mut out = Vec::with_capacity(target.len());
    for (i, &w) in target.iter().enumerate() {
        out.push(match w {
            0 if !allow_zero => *input_shape.get(i).ok_or_else(|| fail(n, "copies an axis that is not there"))?,
            -1 => 0,
            w => usize::try_from(w).map_err(|_| fail(n, format!("shape {target:?}")))?,
        });
    }
    let unknown: Vec<usize> = (0..target.len()).filter(|&i| target[i] == -1).collect();
    if let [unknown_axis] = unknown[..] {
        let known_lengths: Vec<usize> = (0..out.len()).filter(|&i| i != unknown_axis).map(|i| out[i]).collect();
        let known_product = checked_elements(&known_lengths).filter(|&r| r > 0 && total.is_multiple_of(r));
        out[unknown_axis] =
            total / known_product.ok_or_else(|| fail(n, format!("{input_shape:?} cannot become {target:?}")))?;
    }
    if unknown.len() > 1 || checked_elements(&out) != Some(total) {
        return Err(fail(n, format!("{input_shape:?} cannot become {target:?}")));
    }
    Ok(out)
}
