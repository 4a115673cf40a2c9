//! Arithmetic on constants, element by element, with broadcasting.

use super::proto::NodeProto;
use super::tensor::{Constant, Data};
use super::{Budget, fail, float};
use crate::GraphError;
use crate::geometry::checked_elements;

/// Operators on constants that broadcast.
const BROADCASTING: &[&str] = &[
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Mod",
    "Pow",
    "Max",
    "Min",
    "And",
    "Or",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Where",
];

/// Combines two constants under ONNX's broadcasting; the result has integers if both have. `None`
/// if shapes do not fit, or on overflow.
pub(super) fn broadcast(
    a: &Constant,
    b: &Constant,
    ints: impl Fn(i64, i64) -> Option<i64>,
    floats: impl Fn(f32, f32) -> f32,
) -> Option<Constant> {
    let rank = a.shape.len().max(b.shape.len());
    let [sa, sb] = [a, b].map(|c| [vec![1; rank - c.shape.len()], c.shape.clone()].concat());
    if sa.iter().zip(&sb).any(|(x, y)| x != y && *x != 1 && *y != 1) {
        return None;
    }
    // A length of 1 becomes the other length, also 0.
    let shape: Vec<usize> = sa.iter().zip(&sb).map(|(&x, &y)| if x == 1 { y } else { x }).collect();
    let count = checked_elements(&shape)?;
    let (ia, ib) = (positions(&sa, &shape, count), positions(&sb, &shape, count));
    let data = match (&a.data, &b.data) {
        (Data::Ints(x), Data::Ints(y)) => {
            Data::Ints(ia.iter().zip(&ib).map(|(&i, &j)| ints(x[i], y[j])).collect::<Option<_>>()?)
        }
        _ => {
            let (x, y) = (a.to_floats(), b.to_floats());
            Data::Floats(ia.iter().zip(&ib).map(|(&i, &j)| floats(x[i], y[j])).collect())
        }
    };
    Some(Constant { shape, data })
}

/// Returns the longest axes of constants that are aligned at their ends: an upper limit for their
/// broadcast.
pub(super) fn longest_axes(inputs: &[&Constant]) -> Vec<usize> {
    let rank = inputs.iter().map(|c| c.shape.len()).max().unwrap_or(0);
    (1..=rank)
        .rev()
        .map(|from_end| {
            let lengths = inputs.iter().filter_map(|c| Some(c.shape[c.shape.len().checked_sub(from_end)?]));
            lengths.max().unwrap_or(1).max(1)
        })
        .collect()
}

/// Returns for each element of `shape` its position in a broadcast tensor of shape `operand_shape`.
fn positions(operand_shape: &[usize], shape: &[usize], count: usize) -> Vec<usize> {
    (0..count)
        .map(|i| {
            let (mut remaining, mut position, mut stride) = (i, 0, 1);
            for axis in (0..shape.len()).rev() {
                let index = remaining % shape[axis];
                remaining /= shape[axis];
                if operand_shape[axis] != 1 {
                    position += index * stride;
                }
                stride *= operand_shape[axis];
            }
            position
        })
        .collect()
}

/// Computes a node of arithmetic, comparison or choice on constants; `None` for other nodes.
pub(super) fn by_element(n: &NodeProto, budget: &Budget, inputs: &[&Constant]) -> Result<Option<Constant>, GraphError> {
    if let [a] = inputs {
        return unary(n, a);
    }
    if BROADCASTING.contains(&n.op_type.as_str()) {
        budget.elements(n, &longest_axes(inputs))?;
    }
    if let ("Where", [c, a, b]) = (n.op_type.as_str(), inputs) {
        return choose(c, a, b).map(Some).ok_or_else(|| does_not_fit(n));
    }
    let [a, b] = inputs else { return Ok(None) };
    let result = match n.op_type.as_str() {
        "Add" => broadcast(a, b, i64::checked_add, |x, y| x + y),
        "Sub" => broadcast(a, b, i64::checked_sub, |x, y| x - y),
        "Mul" => broadcast(a, b, i64::checked_mul, |x, y| x * y),
        "Div" => broadcast(a, b, i64::checked_div, |x, y| x / y),
        "Mod" => broadcast(a, b, i64::checked_rem_euclid, |x, y| x % y),
        "Pow" => broadcast(a, b, |x, y| x.checked_pow(u32::try_from(y).ok()?), f32::powf),
        "Max" => broadcast(a, b, |x, y| Some(x.max(y)), tacit_floats::larger),
        "Min" => broadcast(a, b, |x, y| Some(x.min(y)), tacit_floats::smaller),
        "And" => broadcast(a, b, |x, y| truth(x != 0 && y != 0), |_, _| f32::NAN),
        "Or" => broadcast(a, b, |x, y| truth(x != 0 || y != 0), |_, _| f32::NAN),
        "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" => {
            let op = n.op_type.as_str();
            let result = broadcast(
                a,
                b,
                |x, y| truth(holds(op, x.cmp(&y))),
                |x, y| f32::from(u8::from(x.partial_cmp(&y).is_some_and(|o| holds(op, o)))),
            );
            result.map(|c| Constant { data: Data::Ints(c.to_floats().iter().map(|v| *v as i64).collect()), ..c })
        }
        _ => return Ok(None),
    };
    result.map(Some).ok_or_else(|| does_not_fit(n))
}

fn does_not_fit(n: &NodeProto) -> GraphError {
    fail(n, "its constants do not fit each other, or overflow")
}

/// Returns 1 for true and 0 for false, which never overflows.
fn truth(t: bool) -> Option<i64> {
    Some(i64::from(t))
}

fn holds(op: &str, o: std::cmp::Ordering) -> bool {
    match op {
        "Equal" => o.is_eq(),
        "Greater" => o.is_gt(),
        "GreaterOrEqual" => o.is_ge(),
        "Less" => o.is_lt(),
        _ => o.is_le(),
    }
}

fn unary(n: &NodeProto, c: &Constant) -> Result<Option<Constant>, GraphError> {
    let alpha = float(n, "alpha", 0.01)?;
    let data = match (n.op_type.as_str(), &c.data) {
        ("Neg", Data::Ints(v)) => Data::Ints(v.iter().map(|x| x.wrapping_neg()).collect()),
        ("Abs", Data::Ints(v)) => Data::Ints(v.iter().map(|x| x.wrapping_abs()).collect()),
        ("Not", Data::Ints(v)) => Data::Ints(v.iter().map(|x| i64::from(*x == 0)).collect()),
        ("Neg", _) => real(c, |x| -x),
        ("Abs", _) => real(c, f32::abs),
        ("Sqrt", _) => real(c, f32::sqrt),
        ("Exp", _) => real(c, f32::exp),
        ("Log", _) => real(c, f32::ln),
        ("Floor", _) => real(c, f32::floor),
        ("Ceil", _) => real(c, f32::ceil),
        ("Round", _) => real(c, f32::round_ties_even),
        ("Reciprocal", _) => real(c, |x| 1.0 / x),
        ("Relu", _) => real(c, |x| tacit_floats::larger(x, 0.0)),
        ("LeakyRelu", _) => real(c, |x| if x < 0.0 { alpha * x } else { x }),
        ("Sigmoid", _) => real(c, |x| 1.0 / (1.0 + (-x).exp())),
        ("Tanh", _) => real(c, f32::tanh),
        ("Max" | "Min" | "Sum", _) => c.data.clone(),
        _ => return Ok(None),
    };
    Ok(Some(Constant { shape: c.shape.clone(), data }))
}

fn real(c: &Constant, f: impl Fn(f32) -> f32) -> Data {
    Data::Floats(c.to_floats().into_iter().map(f).collect())
}

/// Returns `a` where `c` is not 0, else `b`.
fn choose(c: &Constant, a: &Constant, b: &Constant) -> Option<Constant> {
    // Broadcasts the pair first, then the choice over it.
    let (a, b) = (expand_constant(a, b)?, expand_constant(b, a)?);
    let (a, b) = (expand_constant(&a, c)?, expand_constant(&b, c)?);
    let c = expand_constant(c, &a)?;
    let chosen = c.to_floats();
    let data = match (&a.data, &b.data) {
        (Data::Ints(x), Data::Ints(y)) => {
            Data::Ints((0..x.len()).map(|i| if chosen[i] != 0.0 { x[i] } else { y[i] }).collect())
        }
        _ => {
            let (x, y) = (a.to_floats(), b.to_floats());
            Data::Floats((0..x.len()).map(|i| if chosen[i] != 0.0 { x[i] } else { y[i] }).collect())
        }
    };
    Some(Constant { shape: a.shape, data })
}

/// Returns `x` in the shape of its broadcast with `y`.
fn expand_constant(x: &Constant, y: &Constant) -> Option<Constant> {
    broadcast(x, y, |p, _| Some(p), |p, _| p)
}
