//! Reading ONNX files: bytes -> `FloatGraph`. Every limit is checked before memory is allocated; no
//! input causes a panic.
//!
//! The batch axis is removed: the network is read for a batch of one, for any stated batch (1, N, a
//! name).

mod arithmetic;
mod budget;
mod elementwise;
pub mod external;
mod fold;
mod gru;
mod help;
mod input;
mod ml;
mod node;
mod norm;
mod numbers;
mod order;
pub mod proto;
mod quantised;
mod reduce;
pub mod scan;
mod select;
mod shape;
pub mod tensor;
mod upsample;
mod view;
mod window;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use prost::Message;
use tacit_foreign::plain;
use tacit_foreign::text::within;

use crate::float::{FloatGraph, FloatOp};
use crate::{FinalActivation, Function, GraphError, Interval, OutputTensor};
use budget::Budget;
use input::{Batch, input_rank, input_type};
use node::{attribute, axes_of, axis, fail, float, floats, int, ints, label, string_bytes, unsupported};
use order::needed_nodes;
use proto::{GraphProto, ModelProto, NodeProto};
use tensor::Constant;
use view::Tensor;

pub use help::{Operator, REFUSED, advice, operators};

/// Largest ONNX file in bytes.
pub const MAX_FILE_BYTES: usize = 2 << 30;
/// Supported operator-set versions: up to the newest version that onnxruntime, the reference of the
/// tests, supports.
pub const OPSETS: std::ops::RangeInclusive<i64> = 7..=26;

/// Largest number of characters of a node's stored name.
const LONGEST_NAME: usize = 100;
/// Largest number of axes, ends or sizes in a list of a node.
const LONGEST_LIST: usize = 4096;

/// A network read from a file.
#[derive(Debug, Clone)]
pub struct Network {
    /// Name of the graph in the file.
    pub name: String,
    /// The network in real numbers, sorted, without the operations left to the client.
    pub graph: FloatGraph,
    /// The last operation of the file on the outputs, left to the client.
    pub activation: Option<FinalActivation>,
    /// Outputs of the file, in its order. Several are flattened and joined in the graph's result.
    pub outputs: Vec<OutputTensor>,
    /// The range of the input's element type (for 8-bit integers).
    pub input_range: Option<Interval<f32>>,
    /// One sentence for each deviation from the file.
    pub notes: Vec<String>,
}

impl Network {
    /// A network with one output that was not read from a file.
    #[must_use]
    pub fn new(name: &str, graph: FloatGraph) -> Self {
        Self { name: name.into(), graph, activation: None, outputs: vec![], input_range: None, notes: vec![] }
    }
}

/// The value of a name in the file.
#[derive(Debug, Clone)]
enum Value {
    /// A value that is independent of the input.
    Constant(Rc<Constant>),
    /// A tensor that depends on the input.
    Wire(Tensor),
    /// A tensor whose last activation was left out. Only the result may have this form.
    Activated(Tensor, FinalActivation),
    /// The norm of this whole tensor. Only the tensor itself may be divided by it.
    Norm(Tensor, FinalActivation),
    /// Integers of a few bits that stand for this tensor.
    Quantised(Tensor, Rc<quantised::Steps>),
    /// A value that a network cannot compute with (class labels), with the reason.
    Unusable(&'static str),
}

/// Reads a network without external data.
///
/// # Errors
/// As [`parse_in`], and for tensors in other files.
pub fn parse(bytes: &[u8]) -> Result<Network, GraphError> {
    parse_in(bytes, None)
}

/// Reads a network; external data, if any, is in `folder`.
///
/// # Errors
/// If the file is not ONNX or too large, shapes do not fit, there is a cycle, or external data is
/// missing or elsewhere. An operation that is not supported is named, with a remedy.
pub fn parse_in(bytes: &[u8], folder: Option<&Path>) -> Result<Network, GraphError> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(file_error(format!("{} bytes, the limit is {MAX_FILE_BYTES}", bytes.len())));
    }
    scan::check(bytes)?;
    let model = ModelProto::decode(bytes)
        .map_err(|e| file_error(format!("this is not an ONNX file, or it is damaged: {e}")))?;
    let opset_version =
        model.opset_import.iter().find(|o| o.domain.is_empty() || o.domain == "ai.onnx").map(|o| o.version);
    // A file of classical machine learning may use no standard operator at all.
    let classical = model.opset_import.iter().any(|o| o.domain == ml::DOMAIN);
    let opset = match opset_version.or(classical.then_some(*OPSETS.end())) {
        Some(v) if OPSETS.contains(&v) => v,
        Some(v) => {
            return Err(file_error(format!(
                "operator set {v} is not supported ({} to {} are): convert it with onnx.version_converter",
                OPSETS.start(),
                OPSETS.end()
            )));
        }
        None => return Err(file_error("this is not an ONNX file: it states no operator set")),
    };
    let graph = model.graph.ok_or_else(|| file_error("this is not an ONNX file: it holds no graph"))?;
    read_graph(graph, opset, folder)
}

/// Makes an error about the file; names in it are escaped.
fn file_error(what: impl AsRef<str>) -> GraphError {
    GraphError::OnnxFile { what: plain(what.as_ref()) }
}

fn read_graph(proto: GraphProto, opset: i64, folder: Option<&Path>) -> Result<Network, GraphError> {
    let (needed, order) = needed_nodes(&proto)?;
    let initialisers: HashSet<&str> = proto.initializer.iter().map(|t| t.name.as_str()).collect();
    let mut inputs = proto.input.iter().filter(|i| !initialisers.contains(i.name.as_str()));
    let input = inputs.next().ok_or_else(|| file_error("the network has no input"))?;
    if let Some(second) = inputs.next() {
        return Err(file_error(format!(
            "the network has several inputs (`{}`, `{}`): one is supported; join them to one tensor and split it inside (what never changes belongs into an \
                 initialiser: some exporters leave a constant that a layer captured as an input)",
            input.name, second.name
        )));
    }
    let (shape, batch, element) = input_type(input)?;
    let sample_shape = if shape.len() > 1 { shape[1..].to_vec() } else { shape.clone() };
    let name = input.name.clone();
    let graph = FloatGraph::new(&within(&name, LONGEST_NAME), sample_shape)
        .map_err(|what| file_error(format!("input `{name}`: {what}")))?;
    let mut tensor = Tensor::new(0, shape, (batch != Batch::One || input_rank(input) > 1).then_some(0));
    tensor.integer = element.is_integer();
    let mut values = HashMap::new();
    values.insert(name, Value::Wire(tensor));
    let (types, budget) = (quantised::types(&proto), Budget::default());
    for t in proto.initializer.iter().filter(|t| needed.contains(t.name.as_str())) {
        let constant = external::decode(t, folder)?;
        budget.count_stored(constant.len())?;
        values.insert(t.name.clone(), Value::Constant(Rc::new(constant)));
    }
    let mut reader = Reader { graph, values, opset, batch, folder, types, budget, notes: vec![] };
    for index in order {
        reader.node(&proto.node[index])?;
    }
    let (outputs, activation) = reader.finish(&proto)?;
    let Reader { mut graph, notes, .. } = reader;
    graph.sort()?;
    graph.check_work()?;
    let name = within(&proto.name, 2 * LONGEST_NAME);
    Ok(Network { name, graph, activation, outputs, input_range: element.range(), notes })
}

struct Reader<'a> {
    graph: FloatGraph,
    values: HashMap<String, Value>,
    opset: i64,
    batch: Batch,
    folder: Option<&'a Path>,
    /// Element types of low-bit constants, by name.
    types: HashMap<String, i32>,
    budget: Budget,
    notes: Vec<String>,
}

impl Reader<'_> {
    fn node(&mut self, n: &NodeProto) -> Result<(), GraphError> {
        let outcome = if n.input.iter().any(|i| matches!(self.values.get(i), Some(Value::Unusable(ml::LABELS)))) {
            vec![Value::Unusable(ml::LABELS); n.output.len()]
        } else {
            match self.fold(n)? {
                Some(constants) => constants.into_iter().map(|c| Value::Constant(Rc::new(c))).collect(),
                None => self.operator(n)?,
            }
        };
        if n.output.iter().all(String::is_empty) {
            return Err(fail(n, "has no output"));
        }
        for (k, name) in n.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let value =
                outcome.get(k).cloned().unwrap_or(Value::Unusable("its operator is supported without this output"));
            self.values.insert(name.clone(), value);
        }
        Ok(())
    }

    fn operator(&mut self, n: &NodeProto) -> Result<Vec<Value>, GraphError> {
        match n.domain.as_str() {
            "" | "ai.onnx" => {}
            ml::DOMAIN => return self.classical(n),
            domain => {
                return Err(unsupported(
                    n,
                    format!("operators of domain `{domain}` are not supported; export standard ONNX"),
                ));
            }
        }
        if n.op_type == "Split" {
            return Ok(self.split(n)?.into_iter().map(Value::Wire).collect());
        }
        if n.op_type == "GRU" {
            return self.gru(n);
        }
        self.single_result(n).map(|v| vec![v])
    }

    fn single_result(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let result = match n.op_type.as_str() {
            "Div" if self.is_norm(n, 1) => return self.divide_by_norm(n),
            "Clip" | "Max" | "Add" | "Expand" | "Identity" if self.is_norm(n, 0) => return self.norm_copy(n),
            "Conv" => self.conv(n)?,
            "ConvTranspose" => self.conv_transpose(n)?,
            "Gemm" => self.gemm(n)?,
            "MatMul" => self.matmul(n)?,
            "BatchNormalization" => self.batch_norm(n)?,
            "ImageScaler" => self.image_scaler(n)?,
            "Relu" => self.unary(n, FloatOp::Relu)?,
            "LeakyRelu" => self.leaky_relu(n)?,
            "PRelu" => self.prelu(n)?,
            "Clip" => self.clip(n)?,
            "HardSigmoid" => self.hard_sigmoid(n)?,
            "Abs" => self.abs(n)?,
            "Max" | "Min" => self.extremum(n)?,
            "MaxPool" => self.max_pool(n)?,
            "AveragePool" => self.average_pool(n)?,
            "GlobalAveragePool" | "GlobalMaxPool" => self.global_pool(n)?,
            "ReduceMean" | "ReduceSum" | "ReduceMax" | "ReduceMin" => self.reduce(n)?,
            "ReduceL1" | "ReduceL2" => return self.norm(n),
            "LpNormalization" => return self.lp_normalization(n),
            "QuantizeLinear" => return self.quantise(n),
            "DequantizeLinear" => return self.dequantise(n),
            "Mul" if self.find_gated_input(n).is_some() => self.silu(n)?,
            "Add" | "Sub" | "Mul" | "Div" | "Sum" | "Mean" => self.arithmetic(n)?,
            "Neg" => self.negate(n)?,
            "Gelu" => self.gelu(n)?,
            "Elu" => self.elu(n)?,
            "Reciprocal" => self.reciprocal(n)?,
            "Concat" => self.concat(n)?,
            "Slice" => self.slice(n)?,
            "Gather" => self.gather(n)?,
            "Expand" => self.expand_to(n)?,
            "Tile" => self.tile(n)?,
            "Pad" => self.pad(n)?,
            "DepthToSpace" | "SpaceToDepth" => self.depth_and_space(n)?,
            "Resize" | "Upsample" => self.resize(n)?,
            "Transpose" => return self.transpose(n),
            "Flatten" | "Reshape" | "Squeeze" | "Unsqueeze" => return self.reshape(n),
            "Identity" | "Dropout" | "Cast" | "CastLike" => return self.identity(n),
            "Softmax" | "LogSoftmax" => return self.softmax(n),
            "Sigmoid" | "Tanh" => return self.final_activation(n),
            "ArgMax" => self.arg_max(n)?,
            "Where" if self.is_constant(n, 0) => return Err(unsupported(n, select::CONSTANT_MASK)),
            op => match Function::from_onnx(op) {
                Some(function) => self.function(n, function)?,
                None => return Err(unsupported(n, help::advice(op))),
            },
        };
        Ok(Value::Wire(result))
    }

    fn identity(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let element_type = attribute(n, "to").map(|a| a.i);
        let classes = matches!(self.value(n, 0), Some(Value::Wire(x)) if self.is_class(x));
        if element_type.is_some_and(|t| !matches!(t, 1 | 10 | 11 | 16)) && !classes {
            return Err(unsupported(
                n,
                "a secret tensor can only be cast to float; where its integers choose rows (an embedding), give the network \
                 a number for each row, 1 for the one chosen and 0 for the others, and look up by MatMul",
            ));
        }
        if n.input.is_empty() {
            return Err(fail(n, "has no input"));
        }
        if n.op_type == "Dropout" && self.constant(n, 2)?.is_some_and(|c| c.to_floats().contains(&1.0)) {
            return Err(unsupported(n, "it is in training mode; export the model in inference mode"));
        }
        let value = self.values.get(&n.input[0]).cloned().ok_or_else(|| fail(n, "its input is missing"))?;
        Ok(match value {
            Value::Wire(x) if n.op_type == "Cast" || n.op_type == "CastLike" => {
                Value::Wire(Tensor { integer: false, ..x })
            }
            other => other,
        })
    }

    /// Returns input `k` as a tensor; an error if it is constant, absent, or left to the client.
    fn tensor(&mut self, n: &NodeProto, k: usize) -> Result<Tensor, GraphError> {
        self.compute_activated(n, k)?;
        match self.value(n, k) {
            Some(Value::Wire(x)) => Ok(x.clone()),
            Some(Value::Activated(_, left)) if n.op_type == "QuantizeLinear" => {
                Err(unsupported(n, quantised::quantises_the_end(left.name())))
            }
            Some(Value::Activated(_, left)) => Err(unsupported(
                n,
                format!(
                    "it reads a {0}; a {0} is supported at the end of the network only, where the client applies it (one in front of the \
                     network can be applied to the inputs: export what follows it)",
                    left.name()
                ),
            )),
            Some(Value::Norm(..)) => Err(unsupported(n, norm::ADVICE)),
            Some(Value::Quantised(..)) => Err(unsupported(n, quantised::ADVICE)),
            Some(Value::Unusable(why)) => Err(unsupported(n, format!("its input {k} cannot be had: {why}"))),
            Some(Value::Constant(_)) => {
                Err(unsupported(n, format!("its input {k} is a constant where a tensor is expected")))
            }
            None => Err(fail(n, format!("has no input {k}"))),
        }
    }

    /// Returns input `k` as [`Reader::tensor`] does, but only a tensor of real numbers: arithmetic
    /// on integers would wrap.
    fn real(&mut self, n: &NodeProto, k: usize) -> Result<Tensor, GraphError> {
        let x = self.tensor(n, k)?;
        if x.integer {
            return Err(unsupported(n, "it computes with 8-bit integers; put a Cast to float in front"));
        }
        Ok(x)
    }

    /// Returns the value of input `k`, if the node has one.
    fn value(&self, n: &NodeProto, k: usize) -> Option<&Value> {
        self.values.get(n.input.get(k)?)
    }

    fn is_constant(&self, n: &NodeProto, k: usize) -> bool {
        matches!(self.value(n, k), Some(Value::Constant(_)))
    }

    /// Returns input `k`, if the node has one, which must be constant.
    fn constant(&self, n: &NodeProto, k: usize) -> Result<Option<Rc<Constant>>, GraphError> {
        match n.input.get(k).filter(|name| !name.is_empty()).and_then(|name| self.values.get(name)) {
            Some(Value::Constant(c)) => Ok(Some(c.clone())),
            Some(_) => Err(unsupported(
                n,
                format!("its input {k} must be a constant of the file, not computed from the input"),
            )),
            None => Ok(None),
        }
    }

    fn constant_input(&self, n: &NodeProto, k: usize) -> Result<Rc<Constant>, GraphError> {
        self.constant(n, k)?.ok_or_else(|| fail(n, format!("has no input {k}")))
    }

    /// Returns a list of integers: constant input `k`, or attribute `name` in older operator sets.
    fn integer_list(&self, n: &NodeProto, k: usize, name: &str) -> Result<Option<Vec<i64>>, GraphError> {
        match self.constant(n, k)? {
            Some(c) => match c.as_ints() {
                Some(list) if list.len() <= LONGEST_LIST => Ok(Some(list.to_vec())),
                Some(list) => Err(fail(n, format!("has {} `{name}`", list.len()))),
                None => Err(fail(n, format!("its `{name}` are not integers"))),
            },
            None => Ok(ints(n, name).filter(|list| list.len() <= LONGEST_LIST).map(<[i64]>::to_vec)),
        }
    }

    fn node_shape(&self, node: usize) -> &[usize] {
        &self.graph.nodes[node].shape
    }

    fn push(&mut self, n: &NodeProto, op: FloatOp, inputs: &[usize], shape: &[usize]) -> Result<usize, GraphError> {
        let name = if n.name.is_empty() { n.output.first().map_or("", |o| o.as_str()) } else { &n.name };
        self.budget.numbers(n, op.numbers().map(<[f32]>::len).iter().sum())?;
        self.graph.push(&within(name, LONGEST_NAME), op, inputs, shape).map_err(|what| fail(n, what))
    }

    fn unary(&mut self, n: &NodeProto, op: FloatOp) -> Result<Tensor, GraphError> {
        let x = self.real(n, 0)?;
        let id = self.push(n, op, &[x.node], &[])?;
        Ok(x.with_node(id))
    }

    /// Makes the file's outputs the graph's result.
    fn finish(&mut self, proto: &GraphProto) -> Result<(Vec<OutputTensor>, Option<FinalActivation>), GraphError> {
        let mut results = Vec::new();
        for output in &proto.output {
            match self.values.get(&output.name) {
                Some(Value::Wire(x)) => results.push((&output.name, x.clone(), None)),
                Some(Value::Activated(x, activation)) => results.push((&output.name, x.clone(), Some(*activation))),
                Some(Value::Unusable(why)) if *why == ml::LABELS => {
                    self.notes.push(plain(&format!("output `{}` left out: {why}", output.name)));
                }
                Some(Value::Unusable(why)) => {
                    return Err(file_error(format!(
                        "the output `{}` cannot be had: {why}; export it without",
                        output.name
                    )));
                }
                Some(Value::Norm(..)) => return Err(norm::as_output(&output.name)),
                Some(Value::Quantised(..)) => return Err(quantised::as_output(&output.name)),
                Some(Value::Constant(_)) => {
                    return Err(file_error(format!("the output `{}` does not depend on the input", output.name)));
                }
                None => return Err(file_error(format!("nothing makes the output `{}`", output.name))),
            }
        }
        let Some(&(_, _, activation)) = results.first() else {
            return Err(file_error(format!("the network has no output that can be had ({})", self.notes.join("; "))));
        };
        let alike =
            activation.is_none_or(FinalActivation::by_element) && results.iter().all(|(_, _, a)| *a == activation);
        if results.len() > 1 && !alike {
            let final_activations: Vec<_> =
                results.iter().map(|(name, _, a)| (name.as_str(), a.map(FinalActivation::name))).collect();
            return Err(file_error(format!(
                "the network has several outputs with ends of their own {final_activations:?}: export them without, and apply them to the answer"
            )));
        }
        let (mut nodes, mut outputs) = (Vec::new(), Vec::new());
        for (name, x, _) in &results {
            let end = NodeProto { name: (*name).clone(), ..NodeProto::default() };
            let x = self.arrange_in_axis_order(&end, x)?;
            let shape = match x.shape.as_slice() {
                [] => vec![1],
                [1, rest @ ..] if x.batch == Some(0) && !rest.is_empty() => rest.to_vec(),
                shape => shape.to_vec(),
            };
            let stored = if results.len() == 1 { shape.clone() } else { vec![x.elements()] };
            nodes.push(self.push_reshape(&end, x.node, &stored)?);
            outputs.push(OutputTensor { name: plain(name), shape });
        }
        let end = NodeProto { name: "outputs".into(), ..NodeProto::default() };
        self.graph.output = if let [id] = nodes[..] { id } else { self.push(&end, FloatOp::Concat, &nodes, &[])? };
        Ok((outputs, activation))
    }
}
