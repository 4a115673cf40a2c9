//! Reading ONNX files: bytes -> `FloatGraph`. Every limit is checked before memory is spent; no input makes this panic.
//!
//! The batch axis is stripped: whatever the file states (1, N, a name), the network is read for a batch of one.

mod elementwise;
pub mod proto;
pub mod scan;
mod shape;
pub mod tensor;
mod window;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::rc::Rc;

use prost::Message;

use crate::float::{FloatGraph, FloatOp};
use crate::{FinalActivation, GraphError};
use proto::{AttributeProto, GraphProto, ModelProto, NodeProto};
use tensor::Constant;

/// Largest ONNX file in bytes.
pub const MAX_FILE_BYTES: usize = 2 << 30;
/// Operator-set versions that are understood.
pub const OPSETS: std::ops::RangeInclusive<i64> = 7..=23;

/// A network as its file means it.
#[derive(Debug, Clone)]
pub struct Network {
    /// Name of the graph in the file.
    pub name: String,
    /// The network in real numbers, sorted; without what is left to the client.
    pub graph: FloatGraph,
    /// What the file does to the outputs last.
    pub activation: Option<FinalActivation>,
}

/// What a name of the file stands for.
#[derive(Debug, Clone)]
enum Value {
    /// Known without any input.
    Constant(Rc<Constant>),
    /// A node's tensor; the batch axis is implied.
    Wire(usize),
    /// As `Wire`, but this was left out behind it: only the result may be one.
    Activated(usize, FinalActivation),
}

/// Reads a network.
///
/// # Errors
/// Not ONNX, too large, an operation that is not supported (named, with what would help), shapes that do not fit, a cycle.
pub fn parse(bytes: &[u8]) -> Result<Network, GraphError> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(file(format!("{} bytes, the limit is {MAX_FILE_BYTES}", bytes.len())));
    }
    scan::check(bytes)?;
    let model =
        ModelProto::decode(bytes).map_err(|e| file(format!("this is not an ONNX file, or it is damaged: {e}")))?;
    let opset = model.opset_import.iter().find(|o| o.domain.is_empty() || o.domain == "ai.onnx").map(|o| o.version);
    match opset {
        Some(v) if OPSETS.contains(&v) => {}
        Some(v) => {
            return Err(file(format!(
                "operator set {v} is not supported ({} to {} are)",
                OPSETS.start(),
                OPSETS.end()
            )));
        }
        None => return Err(file("this is not an ONNX file: it states no operator set".into())),
    }
    let graph = model.graph.ok_or_else(|| file("this is not an ONNX file: it holds no graph".into()))?;
    read_graph(graph, opset.unwrap_or_default())
}

fn file(what: String) -> GraphError {
    GraphError::OnnxFile { what }
}

fn read_graph(mut proto: GraphProto, opset: i64) -> Result<Network, GraphError> {
    let mut values = HashMap::new();
    for t in std::mem::take(&mut proto.initializer) {
        values.insert(t.name.clone(), Value::Constant(Rc::new(tensor::decode(&t)?)));
    }
    let mut inputs = proto.input.iter().filter(|i| !values.contains_key(&i.name));
    let input = inputs.next().ok_or_else(|| file("the network has no input".into()))?;
    if let Some(second) = inputs.next() {
        return Err(file(format!(
            "the network has several inputs (`{}`, `{}`): one is supported",
            input.name, second.name
        )));
    }
    let shape = input_shape(input)?;
    let name = input.name.clone();
    let graph = FloatGraph::new(&name, shape).map_err(|what| file(format!("input `{name}`: {what}")))?;
    values.insert(name, Value::Wire(0));
    let [output] = proto.output.as_slice() else {
        let names: Vec<_> = proto.output.iter().map(|o| o.name.as_str()).collect();
        return Err(file(format!("the network has {} outputs {names:?}: export it with exactly one", names.len())));
    };
    let mut reader = Reader { graph, values, opset };
    for index in node_order(&proto.node, &reader.values)? {
        reader.node(&proto.node[index])?;
    }
    let (result, activation) = match reader.values.get(&output.name) {
        Some(Value::Wire(w)) => (*w, None),
        Some(Value::Activated(w, activation)) => (*w, Some(*activation)),
        Some(Value::Constant(_)) => {
            return Err(file(format!("the output `{}` does not depend on the input", output.name)));
        }
        None => return Err(file(format!("nothing makes the output `{}`", output.name))),
    };
    let mut graph = reader.graph;
    graph.output = result;
    graph.sort()?;
    graph.check_work()?;
    let name: String = proto.name.chars().filter(|c| !c.is_control()).take(200).collect();
    Ok(Network { name, graph, activation })
}

/// Shape of the input without its batch axis.
fn input_shape(input: &proto::ValueInfoProto) -> Result<Vec<usize>, GraphError> {
    let fail = |what: &str| file(format!("input `{}`: {what}", input.name));
    let tensor = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).ok_or_else(|| fail("is not a tensor"))?;
    if tensor.elem_type != 1 && tensor.elem_type != 11 {
        return Err(fail("its elements are not float32 or float64"));
    }
    let dims = &tensor.shape.as_ref().ok_or_else(|| fail("states no shape"))?.dim;
    if dims.len() < 2 || dims.len() > 4 {
        return Err(fail("its shape must be [N, C, H, W], [N, C, L] or [N, F], with the batch N first"));
    }
    dims[1..]
        .iter()
        .map(|d| match usize::try_from(d.dim_value) {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(fail("only the batch axis may be symbolic: fix the other axes when exporting")),
        })
        .collect()
}

/// An order in which every node comes after those that make its inputs.
fn node_order(nodes: &[NodeProto], known: &HashMap<String, Value>) -> Result<Vec<usize>, GraphError> {
    let mut maker: HashMap<&str, usize> = HashMap::new();
    for (i, n) in nodes.iter().enumerate() {
        for o in n.output.iter().filter(|o| !o.is_empty()) {
            if known.contains_key(o) || maker.insert(o, i).is_some() {
                return Err(file(format!("`{o}` is made twice")));
            }
        }
    }
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut waiting = vec![0usize; nodes.len()];
    for (i, n) in nodes.iter().enumerate() {
        for name in n.input.iter().filter(|s| !s.is_empty()) {
            if let Some(&m) = maker.get(name.as_str()) {
                users[m].push(i);
                waiting[i] += 1;
            } else if !known.contains_key(name) {
                return Err(file(format!("node {}: nothing makes its input `{name}`", label(n))));
            }
        }
    }
    let mut ready: std::collections::BinaryHeap<_> =
        (0..nodes.len()).filter(|&i| waiting[i] == 0).map(std::cmp::Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(std::cmp::Reverse(i)) = ready.pop() {
        order.push(i);
        for &u in &users[i] {
            waiting[u] -= 1;
            if waiting[u] == 0 {
                ready.push(std::cmp::Reverse(u));
            }
        }
    }
    if let Some(stuck) = (0..nodes.len()).find(|&i| waiting[i] > 0) {
        return Err(file(format!("the graph has a cycle through or before node {}", label(&nodes[stuck]))));
    }
    Ok(order)
}

/// A name for a node that may have none.
fn label(n: &NodeProto) -> String {
    let name = if n.name.is_empty() { n.output.first().map_or("?", |o| o.as_str()) } else { &n.name };
    format!("`{}` ({})", name.chars().take(100).collect::<String>(), n.op_type.chars().take(50).collect::<String>())
}

/// Reads node after node.
struct Reader {
    graph: FloatGraph,
    values: HashMap<String, Value>,
    opset: i64,
}

impl Reader {
    fn node(&mut self, n: &NodeProto) -> Result<(), GraphError> {
        if !n.domain.is_empty() && n.domain != "ai.onnx" {
            return Err(unsupported(
                n,
                format!("operators of domain `{}` are not supported; export standard ONNX", n.domain),
            ));
        }
        let value = match self.fold(n)? {
            Some(constant) => Value::Constant(Rc::new(constant)),
            None => self.operator(n)?,
        };
        match n.output.first() {
            Some(name) if !name.is_empty() => self.values.insert(name.clone(), value),
            _ => return Err(fail(n, "has no output")),
        };
        Ok(())
    }

    fn operator(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        match n.op_type.as_str() {
            "Conv" => self.conv(n),
            "Gemm" => self.gemm(n),
            "MatMul" => self.matmul(n),
            "BatchNormalization" => self.batch_norm(n),
            "Relu" => self.unary(n, FloatOp::Relu),
            "LeakyRelu" => self.leaky_relu(n),
            "Clip" => self.clip(n),
            "MaxPool" => self.max_pool(n),
            "AveragePool" => self.average_pool(n),
            "GlobalAveragePool" => self.global_average_pool(n),
            "GlobalMaxPool" => self.global_max_pool(n),
            "ReduceMean" => self.reduce_mean(n),
            "Add" | "Sub" | "Mul" | "Div" => self.arithmetic(n),
            "Sum" if n.input.len() == 2 => self.arithmetic(n),
            "Neg" => self.negate(n),
            "Concat" => self.concat(n),
            "Slice" => self.slice(n),
            "Pad" => self.pad(n),
            "Flatten" | "Reshape" | "Squeeze" | "Unsqueeze" | "Transpose" => self.reshape(n),
            "Identity" | "Dropout" | "Cast" => self.identity(n),
            "Softmax" | "LogSoftmax" => self.softmax(n),
            "ArgMax" => self.arg_max(n),
            _ => Err(unsupported(n, help(&n.op_type).into())),
        }
    }

    fn identity(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        if attribute(n, "to").is_some_and(|a| a.i != 1 && a.i != 11) {
            return Err(unsupported(n, "a secret tensor can only be cast to float".into()));
        }
        if n.input.is_empty() {
            return Err(fail(n, "has no input"));
        }
        self.values.get(&n.input[0]).cloned().ok_or_else(|| fail(n, "its input is missing"))
    }

    /// The node that makes input `k`; an error where it is constant, absent, or a softmax.
    fn wire(&self, n: &NodeProto, k: usize) -> Result<usize, GraphError> {
        match n.input.get(k).and_then(|name| self.values.get(name)) {
            Some(Value::Wire(w)) => Ok(*w),
            Some(Value::Activated(_, left)) => Err(unsupported(
                n,
                format!(
                    "it reads a {0}; a {0} is supported at the end of the network only, where the client applies it",
                    left.name()
                ),
            )),
            Some(Value::Constant(_)) => {
                Err(unsupported(n, format!("its input {k} is a constant where a tensor is expected")))
            }
            None => Err(fail(n, &format!("has no input {k}"))),
        }
    }

    /// Input `k` if the node has one; it must then be constant.
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

    fn needed(&self, n: &NodeProto, k: usize) -> Result<Rc<Constant>, GraphError> {
        self.constant(n, k)?.ok_or_else(|| fail(n, &format!("has no input {k}")))
    }

    fn shape(&self, wire: usize) -> &[usize] {
        &self.graph.nodes[wire].shape
    }

    fn push(&mut self, n: &NodeProto, op: FloatOp, inputs: &[usize], shape: &[usize]) -> Result<usize, GraphError> {
        let name = if n.name.is_empty() { n.output.first().map_or("", |o| o.as_str()) } else { &n.name };
        let name: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
        self.graph.push(&name, op, inputs, shape).map_err(|what| fail(n, &what))
    }

    fn unary(&mut self, n: &NodeProto, op: FloatOp) -> Result<Value, GraphError> {
        let x = self.wire(n, 0)?;
        Ok(Value::Wire(self.push(n, op, &[x], &[])?))
    }
}

fn fail(n: &NodeProto, what: &str) -> GraphError {
    GraphError::OnnxNode { node: label(n), what: what.into() }
}

fn unsupported(n: &NodeProto, help: String) -> GraphError {
    GraphError::Unsupported { node: label(n), help }
}

/// What would help where an operator is not supported at all.
fn help(op: &str) -> &'static str {
    match op {
        "Sigmoid" | "Tanh" | "HardSigmoid" | "HardSwish" | "Gelu" | "Erf" | "Elu" | "Selu" | "Softplus" | "Mish"
        | "Swish" => {
            "replace this activation by Relu, LeakyRelu or Relu6 (Clip) and fine-tune; a final sigmoid can be cut off and \
             applied by the client"
        }
        "PRelu" => "use LeakyRelu (one slope) instead",
        "LRN" => "train without local response normalisation, or with BatchNormalization",
        "InstanceNormalization" | "LayerNormalization" | "GroupNormalization" => {
            "its statistics depend on the secret input; use BatchNormalization"
        }
        "LSTM" | "GRU" | "RNN" | "Loop" | "If" | "Scan" => "recurrent networks and control flow are not supported",
        "QuantizeLinear"
        | "DequantizeLinear"
        | "QLinearConv"
        | "ConvInteger"
        | "MatMulInteger"
        | "DynamicQuantizeLinear" => "export the float32 model: tacit quantises it itself",
        "ConvTranspose" | "Upsample" | "Resize" => "upsampling networks are not supported; classification networks are",
        "GlobalLpPool" | "LpPool" => "use AveragePool or MaxPool",
        _ => {
            "supported are Conv, Gemm, MatMul, BatchNormalization, Relu, LeakyRelu, Clip, MaxPool, AveragePool, \
             GlobalAveragePool, Add, Sub, Mul and Div by constants, Concat, Slice, Pad, Flatten, Reshape, ArgMax and a final \
             Softmax; onnxsim may remove helper operators"
        }
    }
}

fn attribute<'a>(n: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    n.attribute.iter().find(|a| a.name == name)
}

fn int(n: &NodeProto, name: &str, default: i64) -> i64 {
    attribute(n, name).map_or(default, |a| a.i)
}

fn float(n: &NodeProto, name: &str, default: f32) -> Result<f32, GraphError> {
    let v = attribute(n, name).map_or(default, |a| a.f);
    if v.is_finite() { Ok(v) } else { Err(fail(n, &format!("attribute `{name}` is {v}"))) }
}

fn ints<'a>(n: &'a NodeProto, name: &str) -> Option<&'a [i64]> {
    attribute(n, name).map(|a| a.ints.as_slice())
}

/// An axis that may count from the end, of a tensor of `rank` axes.
fn axis(n: &NodeProto, value: i64, rank: usize) -> Result<usize, GraphError> {
    let rank = rank as i64;
    let from_front = if value < 0 { value.saturating_add(rank) } else { value };
    if (0..rank).contains(&from_front) {
        Ok(from_front as usize)
    } else {
        Err(fail(n, &format!("axis {value} of a tensor of {rank} axes")))
    }
}
