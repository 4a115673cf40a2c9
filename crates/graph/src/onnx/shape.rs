//! Operations on shapes: what only moves elements, and folding of what is constant (shape chains of exporters).

use super::proto::NodeProto;
use super::tensor::{Constant, Data, decode};
use super::{Reader, Value, attribute, axis, fail, float, int, ints, unsupported};
use crate::GraphError;
use crate::float::FloatOp;
use crate::geometry::{Slice, checked_elements};

/// Longest constant that folding makes: shapes and indices, not tensors.
const MAX_FOLDED: usize = 1 << 24;

impl Reader {
    /// The value of a node that does not depend on the input's values, if it is one of the operations of shape chains.
    pub(super) fn fold(&self, n: &NodeProto) -> Result<Option<Constant>, GraphError> {
        match n.op_type.as_str() {
            "Constant" => return constant_node(n).map(Some),
            "Shape" => return self.shape_of(n),
            _ => {}
        }
        let mut inputs = Vec::with_capacity(n.input.len());
        for name in n.input.iter().filter(|s| !s.is_empty()) {
            match self.values.get(name) {
                Some(Value::Constant(c)) => inputs.push(c.as_ref()),
                _ => return Ok(None),
            }
        }
        let Some(first) = inputs.first() else { return Ok(None) };
        if inputs.iter().any(|c| c.len() > MAX_FOLDED) {
            return Ok(None);
        }
        let folded = match n.op_type.as_str() {
            "Identity" | "Dropout" => (*first).clone(),
            "Cast" => cast(n, first)?,
            "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" => {
                let shape = self.target_shape(n, &first.shape)?;
                Constant { shape, data: first.data.clone() }
            }
            "Transpose" => transpose(n, first)?,
            "Concat" if inputs.iter().all(|c| c.shape.len() == 1 && c.as_ints().is_some()) => {
                Constant::ints(inputs.iter().flat_map(|c| c.as_ints().unwrap_or(&[])).copied().collect())
            }
            "Gather" if inputs.len() == 2 => gather(n, first, inputs[1])?,
            "Slice" if first.shape.len() == 1 && first.as_ints().is_some() => self.sliced(n, first)?,
            "Add" | "Sub" | "Mul" | "Div" if inputs.len() == 2 => match int_arithmetic(n, first, inputs[1]) {
                Some(c) => c,
                None => return Ok(None),
            },
            "ConstantOfShape" => constant_of_shape(n, first)?,
            _ => return Ok(None),
        };
        Ok(Some(folded))
    }

    fn shape_of(&self, n: &NodeProto) -> Result<Option<Constant>, GraphError> {
        let dims: Vec<i64> = match n.input.first().and_then(|i| self.values.get(i)) {
            Some(Value::Constant(c)) => c.shape.iter().map(|&d| d as i64).collect(),
            Some(Value::Wire(w) | Value::Activated(w, _)) => {
                std::iter::once(1).chain(self.shape(*w).iter().map(|&d| d as i64)).collect()
            }
            None => return Err(fail(n, "has no input")),
        };
        // Both may count from the end, and beyond either end they mean that end.
        let rank = dims.len() as i64;
        let clamp = |v: i64| (if v < 0 { v.saturating_add(rank) } else { v }).clamp(0, rank) as usize;
        let (start, end) = (clamp(int(n, "start", 0)), clamp(int(n, "end", rank)));
        Ok(Some(Constant::ints(dims[start..end.max(start)].to_vec())))
    }

    /// Flatten, Reshape, Squeeze, Unsqueeze and trivial Transpose of a tensor.
    pub(super) fn reshape(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let (x, left) = match n.input.first().and_then(|i| self.values.get(i)) {
            Some(Value::Activated(w, left)) => (*w, Some(*left)),
            _ => (self.wire(n, 0)?, None),
        };
        let full: Vec<usize> = std::iter::once(1).chain(self.shape(x).iter().copied()).collect();
        let target = if n.op_type == "Transpose" { trivial_transpose(n, &full)? } else { self.target_shape(n, &full)? };
        let target = match target.as_slice() {
            [1, rest @ ..] if !rest.is_empty() => rest.to_vec(),
            _ => {
                return Err(unsupported(
                    n,
                    format!("for a batch of one it makes shape {target:?}, whose first axis is not the batch"),
                ));
            }
        };
        let made = if target == self.shape(x) { x } else { self.push(n, FloatOp::Reshape, &[x], &target)? };
        Ok(left.map_or(Value::Wire(made), |left| Value::Activated(made, left)))
    }

    /// Shape that a reshaping node gives to a tensor of shape `from` (batch included).
    fn target_shape(&self, n: &NodeProto, from: &[usize]) -> Result<Vec<usize>, GraphError> {
        let listed = |k: usize, name: &str| -> Result<Option<Vec<i64>>, GraphError> {
            match self.constant(n, k)? {
                Some(c) => c.as_ints().map(|v| Some(v.to_vec())).ok_or_else(|| fail(n, "its axes are not integers")),
                None => Ok(ints(n, name).map(<[i64]>::to_vec)),
            }
        };
        match n.op_type.as_str() {
            "Flatten" => {
                let at = int(n, "axis", 1);
                let at = if at == from.len() as i64 { from.len() } else { axis(n, at, from.len())? };
                Ok(vec![from[..at].iter().product(), from[at..].iter().product()])
            }
            "Reshape" => {
                let wanted = listed(1, "shape")?.ok_or_else(|| fail(n, "has no shape"))?;
                reshaped(n, from, &wanted, int(n, "allowzero", 0) != 0)
            }
            "Squeeze" => {
                let drop = match listed(1, "axes")? {
                    Some(axes) => axes.iter().map(|&a| axis(n, a, from.len())).collect::<Result<Vec<_>, _>>()?,
                    // The batch is kept: a network is written for any batch.
                    None => (1..from.len()).filter(|&i| from[i] == 1).collect(),
                };
                if drop.iter().any(|&i| from[i] != 1) {
                    return Err(fail(n, &format!("squeezes an axis of {from:?} that is not 1")));
                }
                Ok((0..from.len()).filter(|i| !drop.contains(i)).map(|i| from[i]).collect())
            }
            _ => {
                let axes = listed(1, "axes")?.ok_or_else(|| fail(n, "has no axes"))?;
                let rank = from.len() + axes.len();
                let new = axes.iter().map(|&a| axis(n, a, rank)).collect::<Result<Vec<_>, _>>()?;
                let mut old = from.iter();
                (0..rank)
                    .map(|i| if new.contains(&i) { Some(1) } else { old.next().copied() })
                    .collect::<Option<_>>()
                    .ok_or_else(|| fail(n, "its axes repeat"))
            }
        }
    }

    pub(super) fn concat(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let wires = (0..n.input.len()).map(|k| self.wire(n, k)).collect::<Result<Vec<_>, _>>()?;
        let first = *wires.first().ok_or_else(|| fail(n, "has no inputs"))?;
        let rank = self.shape(first).len() + 1;
        let at = axis(n, int(n, "axis", 1), rank)?;
        if at != 1 {
            return Err(unsupported(
                n,
                format!("tensors can be joined along the channels (axis 1) only, not axis {at}"),
            ));
        }
        Ok(Value::Wire(self.push(n, FloatOp::Concat, &wires, &[])?))
    }

    pub(super) fn slice(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        let shape = self.shape(x).to_vec();
        let full: Vec<usize> = std::iter::once(1).chain(shape.iter().copied()).collect();
        let mut s = self.picked(n, &full)?;
        if s.len[0] != 1 {
            return Err(unsupported(n, "it slices the batch".into()));
        }
        for axes in [&mut s.start, &mut s.step, &mut s.len] {
            axes.remove(0);
        }
        if s.len == shape {
            return Ok(Value::Wire(x));
        }
        Ok(Value::Wire(self.push(n, FloatOp::Slice(s), &[x], &[])?))
    }

    /// What is left of a list of integers.
    fn sliced(&self, n: &NodeProto, list: &Constant) -> Result<Constant, GraphError> {
        let s = self.picked(n, &list.shape)?;
        let values = list.as_ints().ok_or_else(|| fail(n, "is no list of integers"))?;
        Ok(Constant::ints((0..s.len[0]).map(|i| values[s.start[0] + i * s.step[0]]).collect()))
    }

    /// What a slicing node picks of a tensor of shape `full` (batch included).
    fn picked(&self, n: &NodeProto, full: &[usize]) -> Result<Slice, GraphError> {
        let listed = |k: usize, name: &str| -> Result<Option<Vec<i64>>, GraphError> {
            match self.constant(n, k)? {
                Some(c) => c.as_ints().map(|v| Some(v.to_vec())).ok_or_else(|| fail(n, "its indices are not integers")),
                None => Ok(ints(n, name).map(<[i64]>::to_vec)),
            }
        };
        let starts = listed(1, "starts")?.ok_or_else(|| fail(n, "has no starts"))?;
        let ends = listed(2, "ends")?.ok_or_else(|| fail(n, "has no ends"))?;
        let axes = listed(3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = listed(4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
        if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
            return Err(fail(n, "its starts, ends, axes and steps differ in length"));
        }
        let mut s = Slice { start: vec![0; full.len()], step: vec![1; full.len()], len: full.to_vec() };
        for i in 0..starts.len() {
            let at = axis(n, axes[i], full.len())?;
            let len = full[at] as i64;
            let clamp = |v: i64| if v < 0 { v.saturating_add(len).max(0) } else { v.min(len) };
            let (start, end, step) = (clamp(starts[i]), clamp(ends[i]), steps[i]);
            if step <= 0 {
                return Err(unsupported(n, "negative steps are not supported".into()));
            }
            let count = (end - start).max(0).div_euclid(step) + i64::from((end - start).max(0) % step != 0);
            (s.start[at], s.step[at], s.len[at]) = (start as usize, step as usize, count as usize);
        }
        Ok(s)
    }

    pub(super) fn pad(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        if attribute(n, "mode").is_some_and(|a| a.s != b"constant") {
            return Err(unsupported(n, "only constant padding is supported".into()));
        }
        let rank = self.shape(x).len() + 1;
        let (pads, value) = if self.opset < 11 {
            (ints(n, "pads").map(<[i64]>::to_vec), float(n, "value", 0.0)?)
        } else {
            let pads = self.constant(n, 1)?.and_then(|c| c.as_ints().map(<[i64]>::to_vec));
            let value = self.constant(n, 2)?.and_then(|c| c.to_floats().first().copied());
            (pads, value.unwrap_or(0.0))
        };
        if value != 0.0 {
            return Err(unsupported(n, format!("padding with {value} is not supported, with zero it is")));
        }
        if self.constant(n, 3)?.is_some() {
            return Err(unsupported(n, "padding with `axes` is not supported; state all axes".into()));
        }
        let pads = pads.filter(|p| p.len() == 2 * rank).ok_or_else(|| fail(n, &format!("needs {} pads", 2 * rank)))?;
        let sizes = pads
            .iter()
            .map(|&p| {
                usize::try_from(p).map_err(|_| unsupported(n, "negative padding is not supported; use Slice".into()))
            })
            .collect::<Result<Vec<_>, _>>()?;
        if sizes[0] != 0 || sizes[rank] != 0 {
            return Err(unsupported(n, "it pads the batch".into()));
        }
        if sizes.iter().all(|&p| p == 0) {
            return Ok(Value::Wire(x));
        }
        let op = FloatOp::Pad { before: sizes[1..rank].to_vec(), after: sizes[rank + 1..].to_vec() };
        Ok(Value::Wire(self.push(n, op, &[x], &[])?))
    }
}

fn constant_node(n: &NodeProto) -> Result<Constant, GraphError> {
    if let Some(t) = attribute(n, "value").and_then(|a| a.t.as_ref()) {
        return decode(t);
    }
    if let Some(a) = attribute(n, "value_ints") {
        return Ok(Constant::ints(a.ints.clone()));
    }
    if let Some(a) = attribute(n, "value_int") {
        return Ok(Constant { shape: vec![], data: Data::Ints(vec![a.i]) });
    }
    if attribute(n, "value_float").is_some() {
        return Ok(Constant { shape: vec![], data: Data::Floats(vec![float(n, "value_float", 0.0)?]) });
    }
    match attribute(n, "value_floats") {
        Some(a) if a.floats.iter().all(|v| v.is_finite()) => {
            Ok(Constant { shape: vec![a.floats.len()], data: Data::Floats(a.floats.clone()) })
        }
        _ => Err(fail(n, "holds no number or tensor")),
    }
}

fn constant_of_shape(n: &NodeProto, shape: &Constant) -> Result<Constant, GraphError> {
    let dims: Option<Vec<usize>> = shape.as_ints().and_then(|v| v.iter().map(|&d| usize::try_from(d).ok()).collect());
    let dims = dims.ok_or_else(|| fail(n, "its shape is not a list of lengths"))?;
    let count =
        checked_elements(&dims).filter(|&c| c <= MAX_FOLDED).ok_or_else(|| fail(n, "its shape is too large"))?;
    let value = attribute(n, "value").and_then(|a| a.t.as_ref()).map(decode).transpose()?;
    let data = match value.map(|v| v.data) {
        Some(Data::Ints(v)) if v.len() == 1 => Data::Ints(vec![v[0]; count]),
        Some(Data::Floats(v)) if v.len() == 1 => Data::Floats(vec![v[0]; count]),
        None => Data::Floats(vec![0.0; count]),
        _ => return Err(fail(n, "its value is not a single number")),
    };
    Ok(Constant { shape: dims, data })
}

fn cast(n: &NodeProto, c: &Constant) -> Result<Constant, GraphError> {
    let data = match int(n, "to", 1) {
        1 | 11 => Data::Floats(c.to_floats()),
        6 | 7 => match &c.data {
            Data::Ints(v) => Data::Ints(v.clone()),
            Data::Floats(v) => Data::Ints(v.iter().map(|&x| x as i64).collect()),
        },
        other => return Err(unsupported(n, format!("a cast to element type {other} is not supported"))),
    };
    Ok(Constant { shape: c.shape.clone(), data })
}

fn gather(n: &NodeProto, from: &Constant, indices: &Constant) -> Result<Constant, GraphError> {
    let (Some(values), Some(at)) = (from.as_ints(), indices.as_ints()) else {
        return Err(unsupported(n, "gathering is supported for shapes only".into()));
    };
    if from.shape.len() != 1 || int(n, "axis", 0) != 0 {
        return Err(unsupported(n, "gathering is supported for shapes only".into()));
    }
    let picked = at.iter().map(|&i| Ok(values[axis(n, i, values.len())?])).collect::<Result<Vec<_>, GraphError>>()?;
    Ok(Constant { shape: indices.shape.clone(), data: Data::Ints(picked) })
}

/// Integer arithmetic of shape chains: equal lengths, or one of them a single number.
fn int_arithmetic(n: &NodeProto, a: &Constant, b: &Constant) -> Option<Constant> {
    let (x, y) = (a.as_ints()?, b.as_ints()?);
    if x.is_empty() || y.is_empty() || (x.len() != y.len() && x.len() != 1 && y.len() != 1) {
        return None;
    }
    let count = x.len().max(y.len());
    let value = |i: usize| {
        let (p, q) = (x[i % x.len()], y[i % y.len()]);
        match n.op_type.as_str() {
            "Add" => p.checked_add(q),
            "Sub" => p.checked_sub(q),
            "Mul" => p.checked_mul(q),
            _ => p.checked_div(q),
        }
    };
    let data = (0..count).map(value).collect::<Option<Vec<_>>>()?;
    let shape = if x.len() >= y.len() && a.shape.len() >= b.shape.len() { a.shape.clone() } else { b.shape.clone() };
    if checked_elements(&shape) != Some(count) {
        return None;
    }
    Some(Constant { shape, data: Data::Ints(data) })
}

fn transpose(n: &NodeProto, c: &Constant) -> Result<Constant, GraphError> {
    let perm = permutation(n, c.shape.len())?;
    let shape: Vec<usize> = perm.iter().map(|&p| c.shape[p]).collect();
    let mut strides = vec![1; c.shape.len()];
    for i in (1..c.shape.len()).rev() {
        strides[i - 1] = strides[i] * c.shape[i];
    }
    let source = |i: usize| {
        let mut rest = i;
        (0..shape.len()).rev().fold(0, |at, k| {
            let index = rest % shape[k];
            rest /= shape[k];
            at + index * strides[perm[k]]
        })
    };
    let data = match &c.data {
        Data::Ints(v) => Data::Ints((0..v.len()).map(|i| v[source(i)]).collect()),
        Data::Floats(v) => Data::Floats((0..v.len()).map(|i| v[source(i)]).collect()),
    };
    Ok(Constant { shape, data })
}

fn permutation(n: &NodeProto, rank: usize) -> Result<Vec<usize>, GraphError> {
    let stated = ints(n, "perm").map_or_else(|| (0..rank as i64).rev().collect(), <[i64]>::to_vec);
    let perm = stated.iter().map(|&p| axis(n, p, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() {
        return Err(fail(n, &format!("{stated:?} is not a permutation of {rank} axes")));
    }
    Ok(perm)
}

/// A transposition that only moves axes of length 1 is a reshape.
fn trivial_transpose(n: &NodeProto, from: &[usize]) -> Result<Vec<usize>, GraphError> {
    let perm = permutation(n, from.len())?;
    let kept: Vec<usize> = perm.iter().copied().filter(|&p| from[p] != 1).collect();
    if !kept.is_sorted() {
        return Err(unsupported(
            n,
            "it reorders elements; export the model in channels-first layout (for TensorFlow: --inputs-as-nchw)".into(),
        ));
    }
    Ok(perm.iter().map(|&p| from[p]).collect())
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
