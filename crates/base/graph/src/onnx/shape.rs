//! Operations that change only the shape or the order of axes.

use super::proto::NodeProto;
use super::tensor::Constant;
use super::view::Tensor;
use super::{Batch, Reader, Value, axis, fail, int, ints, unsupported};
use crate::geometry::checked_elements;
use crate::{FinalActivation, GraphError};

impl Reader<'_> {
    /// Returns a tensor's shape, or the part from `start` to `end`.
    pub(super) fn shape_of(&self, n: &NodeProto) -> Result<Constant, GraphError> {
        let dims: Vec<i64> = match n.input.first().and_then(|i| self.values.get(i)) {
            Some(Value::Constant(c)) => c.shape.iter().map(|&d| d as i64).collect(),
            Some(Value::Wire(x) | Value::Activated(x, _) | Value::Quantised(x, _)) => {
                x.shape.iter().map(|&d| d as i64).collect()
            }
            Some(Value::Unusable(why)) => return Err(unsupported(n, format!("its input cannot be had: {why}"))),
            Some(Value::Norm(..)) => return Err(unsupported(n, super::norm::ADVICE.into())),
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
        let (x, left) = match n.input.first().and_then(|i| self.values.get(i)) {
            Some(Value::Activated(x, left)) => (x.clone(), Some(*left)),
            _ => (self.tensor(n, 0)?, None),
        };
        let made = match n.op_type.as_str() {
            "Squeeze" => {
                let gone = match self.listed(n, 1, "axes")? {
                    Some(axes) => axes.iter().map(|&a| axis(n, a, x.shape.len())).collect::<Result<Vec<_>, _>>()?,
                    // A network for any batch size keeps its batch axis.
                    None => (0..x.shape.len())
                        .filter(|&i| x.shape[i] == 1 && (self.batch == Batch::One || x.batch != Some(i)))
                        .collect(),
                };
                if gone.iter().any(|&i| x.shape[i] != 1) {
                    return Err(fail(n, &format!("squeezes an axis of {:?} that is not 1", x.shape)));
                }
                gone.iter()
                    .filter(|_| matches!(self.batch, Batch::Many(_)))
                    .try_for_each(|&a| self.keeps_batch(n, &x, a))?;
                x.without(&gone)
            }
            "Unsqueeze" => x.with_ones(&self.new_axes(n, x.shape.len())?),
            _ => {
                let target = self.target_shape(n, &x.shape, x.batch)?;
                self.viewed(n, &x, target)?
            }
        };
        Ok(left.map_or(Value::Wire(made.clone()), |left| Value::Activated(made, left)))
    }

    /// Returns `x` in another shape, with the same elements in the file's order.
    pub(super) fn viewed(&mut self, n: &NodeProto, x: &Tensor, shape: Vec<usize>) -> Result<Tensor, GraphError> {
        if checked_elements(&shape) != Some(x.elements()) {
            return Err(fail(n, &format!("{:?} cannot become {shape:?}", x.shape)));
        }
        let batch = x.batch.filter(|b| *b == 0 && !shape.is_empty());
        if matches!(self.batch, Batch::Many(_)) && x.batch.is_some() && batch.is_none() {
            return Err(unsupported(n, "it moves the batch from the first axis; export it with a batch of 1".into()));
        }
        if long_lengths(&shape).eq(long_lengths(&x.shape)) {
            let (from, to) = (super::view::long_axes(&x.shape), super::view::long_axes(&shape));
            let moved = x.order.iter().map(|a| to[from.iter().position(|f| f == a).expect("an axis longer than 1")]);
            return Ok(Tensor { order: moved.collect(), shape, batch, ..x.clone() });
        }
        let x = self.straight(n, x)?;
        Ok(Tensor { integer: x.integer, ..Tensor::new(x.node, shape, batch) })
    }

    pub(super) fn transpose(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let Some(Value::Activated(x, left)) = n.input.first().and_then(|i| self.values.get(i)) else {
            let x = self.tensor(n, 0)?;
            return Ok(Value::Wire(x.transposed(&permutation(n, x.shape.len())?)));
        };
        let perm = permutation(n, x.shape.len())?;
        let made = x.transposed(&perm);
        let left = match *left {
            // The same axis at another place.
            FinalActivation::SoftmaxAlong { length, inner, logarithm } => {
                let at = (0..x.shape.len())
                    .find(|&at| x.shape[at] == length as usize && distance(&x.shape, at) == inner as usize)
                    .and_then(|at| perm.iter().position(|&p| p == at));
                let at =
                    at.ok_or_else(|| unsupported(n, "it takes the axes of a softmax apart; cut both off".into()))?;
                let inner = u32::try_from(distance(&made.shape, at)).map_err(|_| fail(n, "is too large"))?;
                FinalActivation::SoftmaxAlong { length, inner, logarithm }
            }
            other => other,
        };
        Ok(Value::Activated(made, left))
    }

    /// Returns the axes that an Unsqueeze of a tensor with `rank` axes adds to the result, sorted.
    pub(super) fn new_axes(&self, n: &NodeProto, rank: usize) -> Result<Vec<usize>, GraphError> {
        let axes = self.listed(n, 1, "axes")?.ok_or_else(|| fail(n, "has no axes"))?;
        let rank = rank + axes.len();
        let mut new = axes.iter().map(|&a| axis(n, a, rank)).collect::<Result<Vec<_>, _>>()?;
        new.sort_unstable();
        if new.windows(2).any(|w| w[0] == w[1]) {
            return Err(fail(n, "its axes repeat"));
        }
        Ok(new)
    }

    /// Returns the shape that Flatten or Reshape gives to a tensor of shape `from`. The file may
    /// state a batch other than 1.
    pub(super) fn target_shape(
        &self,
        n: &NodeProto,
        from: &[usize],
        batch: Option<usize>,
    ) -> Result<Vec<usize>, GraphError> {
        if n.op_type == "Flatten" {
            let at = int(n, "axis", 1);
            let at = if at == from.len() as i64 { from.len() } else { axis(n, at, from.len())? };
            return Ok(vec![from[..at].iter().product(), from[at..].iter().product()]);
        }
        let mut wanted = self.listed(n, 1, "shape")?.ok_or_else(|| fail(n, "has no shape"))?;
        if let (Batch::Many(stated), Some(0), Some(first)) = (self.batch, batch, wanted.first_mut())
            && *first > 0
            && *first % stated as i64 == 0
        {
            *first /= stated as i64;
        }
        reshaped(n, from, &wanted, int(n, "allowzero", 0) != 0)
    }
}

/// Returns the lengths of the axes that are longer than 1.
fn long_lengths(shape: &[usize]) -> impl Iterator<Item = usize> {
    shape.iter().copied().filter(|d| *d != 1)
}

/// Returns the distance of two elements along axis `at`.
fn distance(shape: &[usize], at: usize) -> usize {
    shape[at + 1..].iter().product()
}

pub(super) fn permutation(n: &NodeProto, rank: usize) -> Result<Vec<usize>, GraphError> {
    let stated = ints(n, "perm").map_or_else(|| (0..rank as i64).rev().collect(), <[i64]>::to_vec);
    let perm = stated.iter().map(|&p| axis(n, p, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() {
        return Err(fail(n, &format!("{stated:?} is not a permutation of {rank} axes")));
    }
    Ok(perm)
}

fn reshaped(n: &NodeProto, from: &[usize], wanted: &[i64], allow_zero: bool) -> Result<Vec<usize>, GraphError> {
    let total: usize = from.iter().product();
    let mut out = Vec::with_capacity(wanted.len());
    for (i, &w) in wanted.iter().enumerate() {
        out.push(match w {
            0 if !allow_zero => *from.get(i).ok_or_else(|| fail(n, "copies an axis that is not there"))?,
            -1 => 0,
            w => usize::try_from(w).map_err(|_| fail(n, &format!("shape {wanted:?}")))?,
        });
    }
    let unknown: Vec<usize> = (0..wanted.len()).filter(|&i| wanted[i] == -1).collect();
    if let [one] = unknown[..] {
        let rest: Vec<usize> = (0..out.len()).filter(|&i| i != one).map(|i| out[i]).collect();
        let rest = checked_elements(&rest).filter(|&r| r > 0 && total.is_multiple_of(r));
        out[one] = total / rest.ok_or_else(|| fail(n, &format!("{from:?} cannot become {wanted:?}")))?;
    }
    if unknown.len() > 1 || checked_elements(&out) != Some(total) {
        return Err(fail(n, &format!("{from:?} cannot become {wanted:?}")));
    }
    Ok(out)
}
