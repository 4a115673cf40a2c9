//! Networks quantised with QuantizeLinear and DequantizeLinear around float operators. Such a
//! network is read as the network in real numbers that it approximates: weights are the values that
//! their integers stand for. Between a QuantizeLinear and its DequantizeLinear nothing is rounded. Values
//! are clamped if the smallest integer stands for zero, since quantisers leave out the activation
//! in front of such nodes.

use std::collections::HashMap;
use std::rc::Rc;

use super::proto::{GraphProto, NodeProto};
use super::tensor::{Constant, Data};
use super::{Reader, Value, attribute, axis, fail, file_error, int, unsupported};
use crate::{GraphError, Interval};

/// Advice for any other reader of quantised numbers.
pub(super) const ADVICE: &str = "it reads the integers of a QuantizeLinear, which only a DequantizeLinear of the same scale and zero \
                                 point may do: put one in front of it, or take the float32 model that this file was quantised from \
                                 (tacit quantises it itself)";

pub(super) fn as_output(name: &str) -> GraphError {
    file_error(format!(
        "the output `{name}` is made of integers by a QuantizeLinear: remove that node, so that the network ends in front of it"
    ))
}

/// The error for a DequantizeLinear whose input is not quantised.
const NOT_QUANTISED: &str = "it reads no constant, and nothing that a QuantizeLinear made: take the float32 model that this file was \
                             quantised from (tacit quantises it itself)";

/// Returns the error text for a network that quantises the activation that its client applies last.
pub(super) fn quantises_the_end(activation: &str) -> String {
    format!(
        "it quantises the {activation} that the network ends with: remove this node (and the DequantizeLinear behind it, if there is one), \
         so that the network ends with the {activation}, which the client applies"
    )
}

/// Note for a network with such nodes.
const NOTE: &str = "read in real numbers: the rounding of QuantizeLinear is left out, and so is its clamping but for activations; the \
                    float32 model needs fewer comparisons";

/// The meaning of a quantised tensor's integers: `(q - zero) * scale`.
#[derive(Debug, PartialEq)]
pub(super) struct Steps {
    scale: Vec<f32>,
    zero: Vec<f32>,
}

/// Returns the element types (8 and 16 bit integers) of the constants of a file, by name.
pub(super) fn types(proto: &GraphProto) -> HashMap<String, i32> {
    let stored = proto.initializer.iter().map(|t| (t.name.clone(), t.data_type));
    let constants = proto.node.iter().filter(|n| n.op_type == "Constant").filter_map(|n| {
        let value = attribute(n, "value").and_then(|a| a.t.as_ref())?;
        Some((n.output.first()?.clone(), value.data_type))
    });
    stored.chain(constants).filter(|(_, t)| integer_range(*t).is_some()).collect()
}

/// Returns the smallest and largest integer of an element type.
fn integer_range(kind: i32) -> Option<Interval<f32>> {
    match kind {
        2 => Some(Interval { low: 0.0, high: 255.0 }),
        3 => Some(Interval { low: -128.0, high: 127.0 }),
        4 => Some(Interval { low: 0.0, high: 65_535.0 }),
        5 => Some(Interval { low: -32_768.0, high: 32_767.0 }),
        _ => None,
    }
}

impl Reader<'_> {
    fn steps(&self, n: &NodeProto) -> Result<Steps, GraphError> {
        let scale = self.constant_input(n, 1)?.to_floats();
        let zero = self.constant(n, 2)?.map_or_else(|| vec![0.0; scale.len()], |z| z.to_floats());
        if zero.len() != scale.len() || scale.iter().any(|s| !(s.is_finite() && *s > 0.0)) {
            return Err(fail(n, "its scales are not positive, or not one for each zero point"));
        }
        if int(n, "block_size", 0) != 0 {
            return Err(unsupported(n, "scales for blocks are not supported; use one for each channel"));
        }
        Ok(Steps { scale, zero })
    }

    /// Returns the smallest and largest integer that a QuantizeLinear makes.
    fn output_range(&self, n: &NodeProto) -> Result<Interval<f32>, GraphError> {
        let element_type = n.input.get(2).and_then(|z| self.types.get(z)).copied();
        let kind = element_type.unwrap_or_else(|| match int(n, "output_dtype", 2) {
            0 => 2,
            kind => kind as i32,
        });
        integer_range(kind).ok_or_else(|| unsupported(n, format!("element type {kind} is none of 8 or 16 bits")))
    }

    pub(super) fn quantise(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let mut x = self.real(n, 0)?;
        let steps = self.steps(n)?;
        let Interval { low: least, high: most } = self.output_range(n)?;
        if let ([scale], [zero]) = (&steps.scale[..], &steps.zero[..])
            && *zero == least
        {
            x = self.clip_between(n, &x, Some(0.0), Some((most - zero) * scale))?;
        }
        if self.notes.iter().all(|note| note != NOTE) {
            self.notes.push(NOTE.into());
        }
        Ok(Value::Quantised(x, Rc::new(steps)))
    }

    pub(super) fn dequantise(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let steps = self.steps(n)?;
        match self.value(n, 0) {
            Some(Value::Quantised(x, made)) if **made == steps => Ok(Value::Wire(x.clone())),
            Some(Value::Quantised(..)) => {
                let what = "its scale or zero point is not that of the QuantizeLinear that it reads: take the float32 model that this file \
                            was quantised from (tacit quantises it itself)";
                Err(unsupported(n, what))
            }
            Some(Value::Wire(x)) if x.integer => {
                let what = "the network takes integers, which this node turns into real numbers: remove it, so that the network begins \
                            behind it (bytes become those numbers by the options pixel scale, mean and std), or take the float32 model";
                Err(unsupported(n, what))
            }
            _ => Err(unsupported(n, NOT_QUANTISED)),
        }
    }

    /// Returns the integers of a constant, or the real numbers that its integers stand for.
    pub(super) fn converted_constant(&self, n: &NodeProto, c: &Constant) -> Result<Constant, GraphError> {
        let Steps { scale, zero } = self.steps(n)?;
        let values = c.to_floats();
        let (length, inner) = if scale.len() == 1 {
            (1, values.len().max(1))
        } else {
            let axis_index = axis(n, int(n, "axis", 1), c.shape.len())?;
            if c.shape[axis_index] != scale.len() {
                return Err(fail(n, format!("{} scales for {} channels", scale.len(), c.shape[axis_index])));
            }
            (scale.len(), c.shape[axis_index + 1..].iter().product::<usize>().max(1))
        };
        let steps = (0..values.len()).map(|i| (scale[i / inner % length], zero[i / inner % length]));
        let data = if n.op_type == "QuantizeLinear" {
            let Interval { low: least, high: most } = self.output_range(n)?;
            let whole =
                values.iter().zip(steps).map(|(v, (s, z))| ((v / s).round_ties_even() + z).clamp(least, most) as i64);
            Data::Ints(whole.collect())
        } else {
            Data::Floats(values.iter().zip(steps).map(|(q, (s, z))| (q - z) * s).collect())
        };
        Ok(Constant { shape: c.shape.clone(), data })
    }
}
