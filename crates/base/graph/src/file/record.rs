//! The sections of a model file: the structure without numbers, and the numbers of the structure.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::float::{FloatGraph, FloatNode, FloatOp};
use crate::function::Function;
use crate::geometry::{ConvGeometry, Slice, Window, checked_elements};
use crate::{Calibration, GraphError, Interface, Model};

/// A model without its numbers.
#[derive(Serialize, Deserialize)]
pub(super) struct Structure {
    model_id: [u8; 16],
    interface: Interface,
    output_multiplier: f64,
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    notes: Vec<String>,
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    calibration: String,
    guessed: bool,
    samples: usize,
    nodes: Vec<Record>,
    output: usize,
}

/// A node without its numbers.
#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    name: String,
    op: Kind,
    inputs: Vec<usize>,
    shape: Vec<usize>,
}

/// A [`FloatOp`] without its numbers.
#[derive(Serialize, Deserialize)]
enum Kind {
    Input,
    Conv(ConvGeometry),
    Dense { out_features: usize },
    Affine,
    PositionScale,
    Relu,
    MaxPool(Window),
    SumPool(Window),
    Add,
    Sub,
    Concat,
    Slice(Slice),
    Pad { before: Vec<usize>, after: Vec<usize> },
    Reshape,
    Transpose(Vec<usize>),
    Function(Function),
    Mul,
}

impl Structure {
    pub(super) fn for_model(model: &Model) -> Self {
        Self {
            model_id: model.model_id,
            interface: model.interface.clone(),
            output_multiplier: model.output_multiplier,
            notes: model.notes.clone(),
            calibration: model.calibration.text.clone(),
            guessed: model.calibration.guessed,
            samples: model.calibration.samples.len(),
            nodes: model.graph.nodes.iter().map(Record::from_node).collect(),
            output: model.graph.output,
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data with known lengths has an encoding")
    }
}

impl Record {
    fn from_node(n: &FloatNode) -> Self {
        Self { name: n.name.clone(), op: Kind::from_op(&n.op), inputs: n.inputs.clone(), shape: n.shape.clone() }
    }
}

impl Kind {
    fn from_op(op: &FloatOp) -> Self {
        match op {
            FloatOp::Input => Self::Input,
            FloatOp::Conv { geometry, .. } => Self::Conv(geometry.clone()),
            FloatOp::Dense { bias, .. } => Self::Dense { out_features: bias.len() },
            FloatOp::Affine { .. } => Self::Affine,
            FloatOp::PositionScale(_) => Self::PositionScale,
            FloatOp::Relu => Self::Relu,
            FloatOp::Function(f) => Self::Function(*f),
            FloatOp::MaxPool(w) => Self::MaxPool(w.clone()),
            FloatOp::SumPool(w) => Self::SumPool(w.clone()),
            FloatOp::Add => Self::Add,
            FloatOp::Sub => Self::Sub,
            FloatOp::Mul => Self::Mul,
            FloatOp::Concat => Self::Concat,
            FloatOp::Slice(s) => Self::Slice(s.clone()),
            FloatOp::Pad { before, after } => Self::Pad { before: before.clone(), after: after.clone() },
            FloatOp::Reshape => Self::Reshape,
            FloatOp::Transpose(perm) => Self::Transpose(perm.clone()),
            FloatOp::ArgMax => unreachable!("a checked model holds no arg max"),
        }
    }

    /// Rebuilds the operation on an input of shape `shape`, with its numbers from the section.
    fn with_numbers(self, shape: &[usize], numbers: &mut Numbers) -> Result<FloatOp, GraphError> {
        let channels = shape.first().copied();
        Ok(match self {
            Self::Input => FloatOp::Input,
            Self::Conv(geometry) => {
                let out = geometry.out_channels;
                let row = channels.and_then(|c| geometry.row_len(c));
                let weights = numbers.floats(weight_count(row.and_then(|r| r.checked_mul(out)))?)?;
                FloatOp::Conv { geometry, weights, bias: numbers.floats(out)? }
            }
            Self::Dense { out_features } => {
                let weights = numbers.floats(weight_count(channels.and_then(|c| c.checked_mul(out_features)))?)?;
                FloatOp::Dense { weights, bias: numbers.floats(out_features)? }
            }
            Self::Affine => {
                let n = weight_count(channels)?;
                FloatOp::Affine { scale: numbers.floats(n)?, shift: numbers.floats(n)? }
            }
            Self::PositionScale => {
                FloatOp::PositionScale(numbers.floats(weight_count(shape.get(1..).and_then(checked_elements))?)?)
            }
            Self::Relu => FloatOp::Relu,
            Self::Function(f) => FloatOp::Function(f),
            Self::MaxPool(w) => FloatOp::MaxPool(w),
            Self::SumPool(w) => FloatOp::SumPool(w),
            Self::Add => FloatOp::Add,
            Self::Sub => FloatOp::Sub,
            Self::Mul => FloatOp::Mul,
            Self::Concat => FloatOp::Concat,
            Self::Slice(s) => FloatOp::Slice(s),
            Self::Pad { before, after } => FloatOp::Pad { before, after },
            Self::Reshape => FloatOp::Reshape,
            Self::Transpose(perm) => FloatOp::Transpose(perm),
        })
    }
}

/// Returns a count of weights that the structure states, or the error for a missing count.
fn weight_count(n: Option<usize>) -> Result<usize, GraphError> {
    n.ok_or_else(|| numbers_do_not_fit("weights"))
}

pub(super) fn put_weights(model: &Model, out: &mut impl Write) -> io::Result<()> {
    model.graph.nodes.iter().flat_map(|n| n.op.numbers()).try_for_each(|list| put_floats(list, out))
}

pub(super) fn put_calibration(model: &Model, out: &mut impl Write) -> io::Result<()> {
    let c = &model.calibration;
    for v in c.max_abs.iter().chain(&c.mean_square).chain(&c.extreme) {
        out.write_all(&v.to_le_bytes())?;
    }
    c.samples.iter().chain(&c.wanted).try_for_each(|list| put_floats(list, out))
}

/// Writes floats through a small buffer, since a hashing sink is slow on four bytes at a time.
fn put_floats(values: &[f32], out: &mut impl Write) -> io::Result<()> {
    let mut buffer = [0; 1 << 14];
    for part in values.chunks(buffer.len() / 4) {
        for (bytes, v) in buffer.as_chunks_mut::<4>().0.iter_mut().zip(part) {
            *bytes = v.to_le_bytes();
        }
        out.write_all(&buffer[..4 * part.len()])?;
    }
    Ok(())
}

/// Reads a model from its sections and checks it.
pub(super) fn read(structure: &[u8], weights: &[u8], calibration: &[u8]) -> Result<Model, GraphError> {
    let (s, remainder): (Structure, _) =
        postcard::take_from_bytes(structure).map_err(|e| bad_structure(format!("cannot be decoded: {e}")))?;
    if !remainder.is_empty() {
        return Err(bad_structure(format!("{} bytes left over", remainder.len())));
    }
    let graph = read_graph(s.nodes, s.output, &mut Numbers { section: "weights", unread: weights })?;
    let calibration = read_calibration(&graph, s.samples, s.calibration, s.guessed, calibration)?;
    let model = Model {
        model_id: s.model_id,
        graph,
        interface: s.interface,
        output_multiplier: s.output_multiplier,
        calibration,
        notes: s.notes,
    };
    model.check()?;
    Ok(model)
}

fn bad_structure(what: String) -> GraphError {
    GraphError::File { section: "structure", what }
}

/// Reads the graph. The stated shapes of earlier nodes give the lengths of the numbers; the model's
/// check compares these shapes with those that the operations give.
fn read_graph(records: Vec<Record>, output: usize, numbers: &mut Numbers) -> Result<FloatGraph, GraphError> {
    let mut nodes: Vec<FloatNode> = Vec::with_capacity(records.len());
    for r in records {
        let input_shape = match r.inputs.first() {
            None => &[][..],
            Some(&i) => &nodes.get(i).ok_or_else(|| numbers_do_not_fit("structure"))?.shape,
        };
        let op = r.op.with_numbers(input_shape, numbers)?;
        nodes.push(FloatNode { name: r.name, op, inputs: r.inputs, shape: r.shape });
    }
    numbers.end()?;
    Ok(FloatGraph { nodes, output })
}

fn read_calibration(
    graph: &FloatGraph,
    samples: usize,
    text: String,
    guessed: bool,
    section: &[u8],
) -> Result<Calibration, GraphError> {
    let mut numbers = Numbers { section: "calibration", unread: section };
    let count = graph.nodes.len();
    let (input, output) = (node_length(graph, 0)?, node_length(graph, graph.output)?);
    let (max_abs, mean_square, extreme) = (numbers.doubles(count)?, numbers.doubles(count)?, numbers.doubles(count)?);
    // Each list must be present before the next is allocated: the stated number of samples is not
    // trusted. No list is empty.
    let (samples, outputs) = (numbers.lists(samples, input)?, numbers.lists(samples, output)?);
    numbers.end()?;
    Ok(Calibration { max_abs, mean_square, extreme, samples, wanted: outputs, text, guessed })
}

fn node_length(graph: &FloatGraph, id: usize) -> Result<usize, GraphError> {
    let node = graph.nodes.get(id).ok_or(GraphError::Output { output: id, count: graph.nodes.len() })?;
    checked_elements(&node.shape).ok_or_else(|| numbers_do_not_fit("calibration"))
}

struct Numbers<'a> {
    section: &'static str,
    unread: &'a [u8],
}

impl Numbers<'_> {
    fn floats(&mut self, count: usize) -> Result<Vec<f32>, GraphError> {
        Ok(self.take::<4>(count)?.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// Takes `count` lists of `length` floats.
    fn lists(&mut self, count: usize, length: usize) -> Result<Vec<Vec<f32>>, GraphError> {
        (0..count).map(|_| self.floats(length.max(1))).collect()
    }

    fn doubles(&mut self, count: usize) -> Result<Vec<f64>, GraphError> {
        Ok(self.take::<8>(count)?.iter().map(|b| f64::from_le_bytes(*b)).collect())
    }

    fn take<const B: usize>(&mut self, count: usize) -> Result<&[[u8; B]], GraphError> {
        let cut = count.checked_mul(B).and_then(|n| self.unread.split_at_checked(n));
        let (bytes, unread) = cut.ok_or_else(|| numbers_do_not_fit(self.section))?;
        self.unread = unread;
        Ok(bytes.as_chunks().0)
    }

    fn end(&self) -> Result<(), GraphError> {
        if self.unread.is_empty() { Ok(()) } else { Err(numbers_do_not_fit(self.section)) }
    }
}

fn numbers_do_not_fit(section: &'static str) -> GraphError {
    GraphError::File { section, what: "its length does not fit the structure".into() }
}
