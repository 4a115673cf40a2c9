//! Attributes of a node, and errors about a node. Text of the file is escaped here before it
//! becomes part of an error.

use tacit_foreign::plain;
use tacit_foreign::text::within;

use super::proto::{AttributeProto, NodeProto};
use crate::GraphError;

/// Returns name and operator of a node; its first output if it has no name.
pub(super) fn label(n: &NodeProto) -> String {
    let name = if n.name.is_empty() { n.output.first().map_or("?", |o| o.as_str()) } else { &n.name };
    format!("`{}` ({})", within(name, 100), within(&n.op_type, 50))
}

pub(super) fn fail(n: &NodeProto, what: impl AsRef<str>) -> GraphError {
    GraphError::OnnxNode { node: label(n), what: plain(what.as_ref()) }
}

pub(super) fn unsupported(n: &NodeProto, help: impl AsRef<str>) -> GraphError {
    GraphError::Unsupported { node: label(n), help: plain(help.as_ref()) }
}

pub(super) fn attribute<'a>(n: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    n.attribute.iter().find(|a| a.name == name)
}

pub(super) fn string_bytes<'a>(n: &'a NodeProto, name: &str, default: &'a [u8]) -> &'a [u8] {
    attribute(n, name).map_or(default, |a| &a.s)
}

pub(super) fn int(n: &NodeProto, name: &str, default: i64) -> i64 {
    attribute(n, name).map_or(default, |a| a.i)
}

pub(super) fn float(n: &NodeProto, name: &str, default: f32) -> Result<f32, GraphError> {
    let v = attribute(n, name).map_or(default, |a| a.f);
    if v.is_finite() { Ok(v) } else { Err(fail(n, format!("attribute `{name}` is {v}"))) }
}

pub(super) fn ints<'a>(n: &'a NodeProto, name: &str) -> Option<&'a [i64]> {
    attribute(n, name).map(|a| a.ints.as_slice())
}

pub(super) fn floats(n: &NodeProto, name: &str) -> Result<Option<Vec<f32>>, GraphError> {
    match attribute(n, name).map(|a| a.floats.clone()) {
        Some(v) if v.iter().any(|v| !v.is_finite()) => {
            Err(fail(n, format!("attribute `{name}` holds what is no number")))
        }
        found => Ok(found),
    }
}

/// Returns the index of an axis that may count from the end, for a tensor of `rank` axes.
pub(super) fn axis(n: &NodeProto, value: i64, rank: usize) -> Result<usize, GraphError> {
    let rank = rank as i64;
    let from_front = if value < 0 { value.saturating_add(rank) } else { value };
    if (0..rank).contains(&from_front) {
        Ok(from_front as usize)
    } else {
        Err(fail(n, format!("axis {value} of a tensor of {rank} axes")))
    }
}

/// Returns the indices of several axes, as [`axis`] does.
pub(super) fn axes_of(n: &NodeProto, values: &[i64], rank: usize) -> Result<Vec<usize>, GraphError> {
    values.iter().map(|&value| axis(n, value, rank)).collect()
}
