//! Folding of nodes that do not depend on the input's values: shape chains of exporters, and
//! arithmetic on weights.

use std::rc::Rc;

use super::numbers::{broadcast, by_element, longest_axes};
use super::proto::NodeProto;
use super::shape::permutation;
use super::tensor::{Constant, Data};
use super::view::agree_but_at;
use super::{Budget, Reader, attribute, axes_of, axis, external, fail, float, floats, int, unsupported};
use crate::GraphError;
use crate::geometry::checked_elements;

impl Reader<'_> {
    /// Returns the values of a node that does not depend on the input's values; `None` if the node
    /// does, or is not folded.
    pub(super) fn fold(&self, n: &NodeProto) -> Result<Option<Vec<Constant>>, GraphError> {
        if !n.domain.is_empty() && n.domain != "ai.onnx" {
            return Ok(None);
        }
        match n.op_type.as_str() {
            "Constant" => {
                let constant = self.constant_node(n)?;
                self.budget.count_stored(constant.len())?;
                return Ok(Some(vec![constant]));
            }
            "Shape" => return self.shape_of(n).map(|c| Some(vec![c])),
            "Size" => {
                let dims = self.shape_of(n)?;
                let count = dims.as_ints().into_iter().flatten().product();
                return Ok(Some(vec![Constant { shape: vec![], data: Data::Ints(vec![count]) }]));
            }
            _ => {}
        }
        let mut inputs = Vec::with_capacity(n.input.len());
        for k in (0..n.input.len()).filter(|&k| !n.input[k].is_empty()) {
            match self.constant(n, k) {
                Ok(Some(c)) => inputs.push(c),
                _ => return Ok(None),
            }
        }
        let Some(input) = inputs.first() else { return Ok(None) };
        let folded = match n.op_type.as_str() {
            "Split" => {
                self.budget.count_folded(n, &input.shape)?;
                return self.split_constant(n, input).map(Some);
            }
            "ConstantOfShape" => self.constant_of_shape(n, input)?,
            "Range" if inputs.len() == 3 => self.range(n, &inputs[0], &inputs[1], &inputs[2])?,
            "Expand" => self.expand_to_shape(n, input, inputs.get(1))?,
            "Concat" => concat(n, &self.budget, &inputs.iter().map(AsRef::as_ref).collect::<Vec<_>>())?,
            _ if inputs.len() <= 3 => match self.fold_unary(n, input)? {
                Some(c) => c,
                None => match by_element(n, &self.budget, &inputs.iter().map(AsRef::as_ref).collect::<Vec<_>>())? {
                    Some(c) => c,
                    None => return Ok(None),
                },
            },
            _ => match self.fold_unary(n, input)? {
                Some(c) => c,
                None => return Ok(None),
            },
        };
        self.budget.count_folded(n, &folded.shape)?;
        if let Data::Floats(v) = &folded.data
            && let Some(bad) = v.iter().find(|v| v.is_nan())
        {
            return Err(fail(n, format!("its constants lead to {bad}")));
        }
        Ok(Some(vec![folded]))
    }

    fn expand_to_shape(
        &self,
        n: &NodeProto,
        c: &Constant,
        shape: Option<&Rc<Constant>>,
    ) -> Result<Constant, GraphError> {
        let dims = lengths(n, shape.ok_or_else(|| fail(n, "has no shape"))?)?;
        // The shape may be shorter than the constant's, or have 1 where the constant has a longer
        // axis.
        let element_count = self.budget.elements(n, &dims)?;
        let target = Constant { shape: dims.clone(), data: Data::Ints(vec![0; element_count]) };
        self.budget.elements(n, &longest_axes(&[c, &target]))?;
        let expanded = broadcast(c, &target, |a, _| Some(a), |a, _| a);
        expanded.ok_or_else(|| fail(n, format!("{:?} cannot be spread over {dims:?}", c.shape)))
    }

    /// Applies an operator whose data is one constant: one that moves, picks, converts or reduces its
    /// elements. `None` for other operators.
    fn fold_unary(&self, n: &NodeProto, c: &Constant) -> Result<Option<Constant>, GraphError> {
        Ok(Some(match n.op_type.as_str() {
            "Identity" | "Dropout" => c.clone(),
            "Cast" => cast(n, c)?,
            "CastLike" => c.clone(),
            "Reshape" | "Flatten" => Constant { shape: self.target_shape(n, &c.shape, None)?, data: c.data.clone() },
            "Squeeze" => {
                let axes = match self.integer_list(n, 1, "axes")? {
                    Some(axes) => axes_of(n, &axes, c.shape.len())?,
                    None => (0..c.shape.len()).filter(|&i| c.shape[i] == 1).collect(),
                };
                let remaining_shape: Vec<usize> =
                    (0..c.shape.len()).filter(|i| !axes.contains(i)).map(|i| c.shape[i]).collect();
                if checked_elements(&remaining_shape) != Some(c.len()) {
                    return Err(fail(n, format!("squeezes an axis of {:?} that is not 1", c.shape)));
                }
                Constant { shape: remaining_shape, data: c.data.clone() }
            }
            "Unsqueeze" => {
                let new = self.new_axes(n, c.shape.len())?;
                let mut old = c.shape.iter().copied();
                let rank = c.shape.len() + new.len();
                let shape = (0..rank).map(|i| if new.contains(&i) { 1 } else { old.next().unwrap_or(1) }).collect();
                Constant { shape, data: c.data.clone() }
            }
            "Transpose" => {
                let perm = permutation(n, c.shape.len())?;
                let shape = perm.iter().map(|&p| c.shape[p]).collect();
                select_elements(c, shape, &crate::kernel::transpose_index(&perm, &c.shape))
            }
            "Slice" => {
                let mut result = c.clone();
                for (axis_index, indices) in self.selected_indices(n, &c.shape)? {
                    result = select_along(&result, axis_index, &indices);
                }
                result
            }
            "Gather" => {
                let index_tensor = self.constant_input(n, 1)?;
                let axis_index = axis(n, int(n, "axis", 0), c.shape.len())?;
                let list = index_tensor.as_ints().ok_or_else(|| fail(n, "its indices are not integers"))?;
                let indices = axes_of(n, list, c.shape[axis_index])?;
                let size = self.budget.elements(n, &[c.len() / c.shape[axis_index].max(1), indices.len()])?;
                let selection = select_along(c, axis_index, &indices);
                debug_assert_eq!(selection.len(), size);
                Constant {
                    shape: [&c.shape[..axis_index], &index_tensor.shape, &c.shape[axis_index + 1..]].concat(),
                    data: selection.data,
                }
            }
            "Tile" => self.tile_constant(n, c)?,
            "Clip" => self.clip_constant(n, c)?,
            "QuantizeLinear" | "DequantizeLinear" => self.converted_constant(n, c)?,
            op if op.starts_with("Reduce") => return self.reduce_constant(n, c),
            _ => return Ok(None),
        }))
    }

    /// Clips a constant. Bounds are attributes up to operator set 10, then optional inputs: if the
    /// lower bound is absent, the upper one is still input 2.
    fn clip_constant(&self, n: &NodeProto, c: &Constant) -> Result<Constant, GraphError> {
        let mut result = c.clone();
        if let Some(low) = self.constant_bound(n, 1, "min")? {
            result = broadcast(&result, &low, |x, y| Some(x.max(y)), tacit_floats::larger)
                .ok_or_else(|| fail(n, "does not fit"))?;
        }
        if let Some(high) = self.constant_bound(n, 2, "max")? {
            result = broadcast(&result, &high, |x, y| Some(x.min(y)), tacit_floats::smaller)
                .ok_or_else(|| fail(n, "does not fit"))?;
        }
        Ok(result)
    }

    fn constant_bound(&self, n: &NodeProto, k: usize, name: &str) -> Result<Option<Constant>, GraphError> {
        match self.constant(n, k)? {
            Some(b) if b.len() == 1 => Ok(Some((*b).clone())),
            Some(_) => Err(fail(n, "its bounds are not single numbers")),
            None => {
                let value = attribute(n, name).map(|_| float(n, name, 0.0)).transpose()?;
                Ok(value.map(|v| Constant { shape: vec![], data: Data::Floats(vec![v]) }))
            }
        }
    }

    fn tile_constant(&self, n: &NodeProto, c: &Constant) -> Result<Constant, GraphError> {
        let times = lengths(n, &*self.constant_input(n, 1)?)?;
        if times.len() != c.shape.len() {
            return Err(fail(n, "has not one repeat for each axis"));
        }
        // The axes are repeated one after the other, so none may be too long before another becomes
        // empty.
        let longest: Vec<usize> = times.iter().zip(&c.shape).map(|(t, len)| (t * len).max(1)).collect();
        self.budget.elements(n, &longest)?;
        Ok((0..times.len()).fold(c.clone(), |c, a| {
            let len = c.shape[a];
            select_along(&c, a, &(0..len * times[a]).map(|i| i % len).collect::<Vec<_>>())
        }))
    }

    fn split_constant(&self, n: &NodeProto, c: &Constant) -> Result<Vec<Constant>, GraphError> {
        let (axis_index, sizes) = self.split_sizes(n, &c.shape)?;
        let mut start = 0;
        Ok(sizes
            .into_iter()
            .map(|size| {
                start += size;
                select_along(c, axis_index, &(start - size..start).collect::<Vec<_>>())
            })
            .collect())
    }

    fn reduce_constant(&self, n: &NodeProto, c: &Constant) -> Result<Option<Constant>, GraphError> {
        let rank = c.shape.len();
        let axes_input = self.integer_list(n, 1, "axes")?.unwrap_or_default();
        let mut axes = axes_of(n, &axes_input, rank)?;
        if axes.is_empty() {
            axes = (0..rank).collect();
        }
        let kept_axes: Vec<usize> = (0..rank).filter(|i| !axes.contains(i)).collect();
        let inner: usize = axes.iter().map(|&a| c.shape[a]).product();
        if inner == 0 {
            return Err(fail(n, "reduces nothing"));
        }
        let order = [kept_axes.clone(), axes.clone()].concat();
        let ordered = select_elements(c, vec![c.len()], &crate::kernel::transpose_index(&order, &c.shape));
        let data = match (&ordered.data, n.op_type.as_str()) {
            (Data::Ints(v), op @ ("ReduceProd" | "ReduceSum" | "ReduceMax" | "ReduceMin")) => {
                let folded: Option<Vec<i64>> = v.chunks(inner).map(|group| fold_ints(op, group)).collect();
                Data::Ints(folded.ok_or_else(|| fail(n, "overflows"))?)
            }
            (Data::Floats(v), op @ ("ReduceProd" | "ReduceSum" | "ReduceMean" | "ReduceMax" | "ReduceMin")) => {
                Data::Floats(v.chunks(inner).map(|group| fold_floats(op, group)).collect())
            }
            _ => return Ok(None),
        };
        let keep = int(n, "keepdims", 1) != 0;
        let shape = (0..rank)
            .filter(|i| keep || kept_axes.contains(i))
            .map(|i| if kept_axes.contains(&i) { c.shape[i] } else { 1 });
        Ok(Some(Constant { shape: shape.collect(), data }))
    }

    fn range(
        &self,
        n: &NodeProto,
        start: &Constant,
        limit: &Constant,
        delta: &Constant,
    ) -> Result<Constant, GraphError> {
        let (Some(&[start]), Some(&[limit]), Some(&[delta])) = (start.as_ints(), limit.as_ints(), delta.as_ints())
        else {
            return Err(unsupported(n, "only a range of integers is supported"));
        };
        let span = limit.checked_sub(start).filter(|_| delta != 0).ok_or_else(|| fail(n, "has no end"))?;
        let count = if (span > 0) == (delta > 0) { span.unsigned_abs().div_ceil(delta.unsigned_abs()) } else { 0 };
        let count = usize::try_from(count).map_err(|_| fail(n, "is too long"))?;
        self.budget.elements(n, &[count])?;
        Ok(Constant::ints((0..count as i64).map(|i| start + i * delta).collect()))
    }

    fn constant_of_shape(&self, n: &NodeProto, shape: &Constant) -> Result<Constant, GraphError> {
        let dims = lengths(n, shape)?;
        let count = self.budget.elements(n, &dims)?;
        let value = attribute(n, "value").and_then(|a| a.t.as_ref()).map(super::tensor::decode).transpose()?;
        let data = match value.map(|v| v.data) {
            Some(Data::Ints(v)) if v.len() == 1 => Data::Ints(vec![v[0]; count]),
            Some(Data::Floats(v)) if v.len() == 1 => Data::Floats(vec![v[0]; count]),
            None => Data::Floats(vec![0.0; count]),
            _ => return Err(fail(n, "its value is not a single number")),
        };
        Ok(Constant { shape: dims, data })
    }

    fn constant_node(&self, n: &NodeProto) -> Result<Constant, GraphError> {
        if let Some(t) = attribute(n, "value").and_then(|a| a.t.as_ref()) {
            return external::decode(t, self.folder);
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
        match floats(n, "value_floats")? {
            Some(v) => Ok(Constant { shape: vec![v.len()], data: Data::Floats(v) }),
            None => Err(fail(n, "holds no number or tensor")),
        }
    }
}

/// Reduces a group of integers; `None` on overflow.
fn fold_ints(op: &str, group: &[i64]) -> Option<i64> {
    match op {
        "ReduceProd" => group.iter().try_fold(1i64, |p, v| p.checked_mul(*v)),
        "ReduceSum" => group.iter().try_fold(0i64, |p, v| p.checked_add(*v)),
        "ReduceMax" => group.iter().copied().max(),
        _ => group.iter().copied().min(),
    }
}

fn fold_floats(op: &str, group: &[f32]) -> f32 {
    match op {
        "ReduceProd" => group.iter().product(),
        "ReduceSum" => group.iter().sum(),
        "ReduceMean" => group.iter().sum::<f32>() / group.len() as f32,
        "ReduceMax" => tacit_floats::range(group.iter().copied()).high as f32,
        _ => tacit_floats::range(group.iter().copied()).low as f32,
    }
}

fn lengths(n: &NodeProto, c: &Constant) -> Result<Vec<usize>, GraphError> {
    let dims: Option<Vec<usize>> = c.as_ints().and_then(|v| v.iter().map(|&d| usize::try_from(d).ok()).collect());
    dims.ok_or_else(|| fail(n, "its shape is not a list of lengths"))
}

fn select_elements(c: &Constant, shape: Vec<usize>, positions: &[usize]) -> Constant {
    let data = match &c.data {
        Data::Ints(v) => Data::Ints(positions.iter().map(|&i| v[i]).collect()),
        Data::Floats(v) => Data::Floats(positions.iter().map(|&i| v[i]).collect()),
    };
    Constant { shape, data }
}

fn select_along(c: &Constant, axis: usize, indices: &[usize]) -> Constant {
    let inner: usize = c.shape[axis + 1..].iter().product();
    let (outer, len): (usize, usize) = (c.shape[..axis].iter().product(), c.shape[axis]);
    let rows = (0..outer).flat_map(|o| indices.iter().map(move |i| (o * len + i) * inner));
    let positions: Vec<usize> = rows.flat_map(|start| start..start + inner).collect();
    let mut shape = c.shape.clone();
    shape[axis] = indices.len();
    select_elements(c, shape, &positions)
}

fn concat(n: &NodeProto, budget: &Budget, parts: &[&Constant]) -> Result<Constant, GraphError> {
    let head = parts[0];
    let axis_index = axis(n, int(n, "axis", 1), head.shape.len())?;
    if !parts.iter().all(|c| agree_but_at(axis_index, &c.shape, &head.shape)) {
        return Err(fail(n, "joins constants of shapes that differ"));
    }
    let outer: usize = head.shape[..axis_index].iter().product();
    let mut shape = head.shape.clone();
    shape[axis_index] = parts.iter().map(|c| c.shape[axis_index]).sum();
    budget.elements(n, &shape)?;
    fn join<T: Copy>(parts: &[Vec<T>], outer: usize) -> Vec<T> {
        (0..outer)
            .flat_map(|o| parts.iter().flat_map(move |p| p[o * (p.len() / outer)..][..p.len() / outer].iter().copied()))
            .collect()
    }
    let ints: Option<Vec<Vec<i64>>> = parts.iter().map(|c| c.as_ints().map(<[i64]>::to_vec)).collect();
    let data = match ints {
        Some(ints) => Data::Ints(join(&ints, outer)),
        None => Data::Floats(join(&parts.iter().map(|c| c.to_floats()).collect::<Vec<_>>(), outer)),
    };
    Ok(Constant { shape, data })
}

fn cast(n: &NodeProto, c: &Constant) -> Result<Constant, GraphError> {
    // Codes of `TensorProto.DataType`.
    let data = match int(n, "to", 1) {
        // FLOAT, FLOAT16, DOUBLE, BFLOAT16.
        1 | 10 | 11 | 16 => Data::Floats(c.to_floats()),
        // BOOL.
        9 => Data::Ints(c.to_floats().iter().map(|v| i64::from(*v != 0.0)).collect()),
        // Integers of 8 to 64 bits.
        2..=7 | 12 | 13 => match &c.data {
            Data::Ints(v) => Data::Ints(v.clone()),
            Data::Floats(v) => Data::Ints(v.iter().map(|&x| x as i64).collect()),
        },
        other => return Err(unsupported(n, format!("a cast to element type {other} is not supported"))),
    };
    Ok(Constant { shape: c.shape.clone(), data })
}
