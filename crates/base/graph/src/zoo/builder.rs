//! Writes ONNX graphs layer by layer.

use crate::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
};
use crate::rng::SplitMix;

/// A tensor of the graph under construction: name and shape without the batch.
#[derive(Debug, Clone)]
pub(super) struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
}

/// The layers of a network, without weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// Name in the zoo.
    pub name: String,
    /// Shape of the input, `[C, H, W]`.
    pub input: Vec<usize>,
    /// Nodes in the order of the file.
    pub layers: Vec<Layer>,
}

/// One node of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// ONNX operator.
    pub op: String,
    /// Side of the kernel or pooling window; 0 where there is none.
    pub kernel: usize,
    /// Shape of the result without the batch.
    pub shape: Vec<usize>,
    /// Count of numbers in its constants (a batch normalisation has four per channel).
    pub parameters: u64,
    /// Multiplications of weights with activations for one input.
    pub macs: u64,
}

impl Outline {
    /// Count of numbers in all constants.
    pub fn parameters(&self) -> u64 {
        self.layers.iter().map(|l| l.parameters).sum()
    }

    /// Multiplications of weights with activations for one input; pooling has none.
    pub fn macs(&self) -> u64 {
        self.layers.iter().map(|l| l.macs).sum()
    }

    /// Count of numbers in all results for one input; a ReLU replaces its operand.
    pub fn activations(&self) -> u64 {
        let kept = self.layers.iter().filter(|l| l.op != "Relu" && l.op != "Flatten");
        kept.map(|l| l.shape.iter().product::<usize>() as u64).sum()
    }

    /// Returns the number of nodes with this operator.
    pub fn count(&self, op: &str) -> usize {
        self.layers.iter().filter(|l| l.op == op).count()
    }
}

/// Builds one graph.
pub(super) struct Builder {
    name: String,
    input: Tensor,
    result: Tensor,
    nodes: Vec<NodeProto>,
    tensors: Vec<TensorProto>,
    layers: Vec<Layer>,
    /// Count of numbers in constants since the last node; they belong to the next node.
    parameters: u64,
    /// Generator of the weights; `None` if only the outline is needed and constants stay empty.
    rng: Option<SplitMix>,
}

impl Builder {
    /// A graph with weights from `seed`; without a seed, only its outline.
    pub fn new(name: &str, shape: &[usize], seed: Option<u64>) -> Self {
        let input = Tensor { name: "input".into(), shape: shape.to_vec() };
        Self {
            name: name.into(),
            result: input.clone(),
            input,
            nodes: Vec::new(),
            tensors: Vec::new(),
            layers: Vec::new(),
            parameters: 0,
            rng: seed.map(SplitMix::new),
        }
    }

    /// The result of the last node, or what [`continue_from`](Self::continue_from) has set.
    pub fn current(&self) -> Tensor {
        self.result.clone()
    }

    /// Makes the next layer read `x`.
    pub fn continue_from(&mut self, x: &Tensor) {
        self.result = x.clone();
    }

    fn node(&mut self, op: &str, inputs: Vec<String>, shape: Vec<usize>, attribute: Vec<AttributeProto>) -> Tensor {
        let kernel = attribute.iter().find(|a| a.name == "kernel_shape").map_or(0, |a| a.ints[0] as usize);
        let parameters = std::mem::take(&mut self.parameters);
        self.layers.push(Layer { op: op.into(), kernel, shape: shape.clone(), parameters, macs: 0 });
        let name = format!("{}_{}", op.to_lowercase(), self.nodes.len());
        self.nodes.push(NodeProto {
            input: inputs,
            output: vec![name.clone()],
            name: name.clone(),
            op_type: op.into(),
            attribute,
            domain: String::new(),
        });
        self.result = Tensor { name, shape };
        self.result.clone()
    }

    /// Records the multiplications of the last node: `macs_per_element` for every element of its result.
    fn multiplies(&mut self, macs_per_element: usize) {
        let layer = self.layers.last_mut().expect("called after the node is there");
        layer.macs = layer.shape.iter().product::<usize>() as u64 * macs_per_element as u64;
    }

    /// Adds a constant and returns its name.
    fn tensor(&mut self, shape: &[usize], mut value: impl FnMut(&mut SplitMix) -> f32) -> String {
        let n: usize = shape.iter().product();
        self.parameters += n as u64;
        // Each constant has its own generator, so that a change of one constant does not change
        // others.
        let values = self.rng.as_mut().map(|rng| SplitMix::new(rng.next_u64()));
        let raw_data =
            values.map_or(Vec::new(), |mut rng| (0..n).flat_map(|_| value(&mut rng).to_le_bytes()).collect());
        let name = format!("w{}", self.tensors.len());
        self.tensors.push(TensorProto {
            dims: shape.iter().map(|&d| d as i64).collect(),
            data_type: 1,
            name: name.clone(),
            raw_data,
            ..TensorProto::default()
        });
        name
    }

    /// Adds normal weights with variance `gain / fan_in`.
    fn weights(&mut self, shape: &[usize], gain: f64) -> String {
        let fan_in: usize = shape[1..].iter().product();
        let deviation = (gain / fan_in as f64).sqrt();
        self.tensor(shape, |rng| (rng.normal() * deviation) as f32)
    }

    fn uniform(&mut self, n: usize, low: f64, high: f64) -> String {
        self.tensor(&[n], |rng| rng.range(low, high) as f32)
    }

    /// Adds a convolution with a square kernel; `gain` is 2 in front of a ReLU.
    pub fn conv(&mut self, out: usize, k: usize, stride: usize, pad: usize, bias: bool) -> Tensor {
        let x = self.current();
        let weights = self.weights(&[out, x.shape[0], k, k], 2.0);
        let mut inputs = vec![x.name, weights];
        if bias {
            inputs.push(self.uniform(out, -0.1, 0.1));
        }
        let shape = vec![out, side(x.shape[1], k, stride, pad), side(x.shape[2], k, stride, pad)];
        let conv = self.node("Conv", inputs, shape, window(k, stride, pad));
        self.multiplies(x.shape[0] * k * k);
        conv
    }

    /// Adds a batch normalisation. `gain` scales gamma (a small gain at the end of a residual
    /// branch prevents growing sums).
    pub fn batch_norm(&mut self, gain: f64) -> Tensor {
        let x = self.current();
        let c = x.shape[0];
        let gamma = self.uniform(c, 0.8 * gain, 1.2 * gain);
        let beta = self.uniform(c, -0.2, 0.2);
        let mean = self.uniform(c, -0.2, 0.2);
        let var = self.uniform(c, 1.0, 3.0);
        self.node("BatchNormalization", vec![x.name, gamma, beta, mean, var], x.shape, vec![])
    }

    pub fn relu(&mut self) -> Tensor {
        let x = self.current();
        self.node("Relu", vec![x.name], x.shape, vec![])
    }

    pub fn square(&mut self) -> Tensor {
        let x = self.current();
        self.node("Mul", vec![x.name.clone(), x.name], x.shape, vec![])
    }

    /// Adds a convolution with bias and a ReLU: `out` channels, kernel `k x k`.
    pub fn conv_relu(&mut self, out: usize, k: usize, stride: usize, pad: usize) -> Tensor {
        self.conv(out, k, stride, pad, true);
        self.relu()
    }

    /// Adds a convolution without bias, a batch normalisation and a ReLU.
    pub fn conv_bn_relu(&mut self, out: usize, k: usize, stride: usize, pad: usize) -> Tensor {
        self.conv(out, k, stride, pad, false);
        self.batch_norm(1.0);
        self.relu()
    }

    pub fn max_pool(&mut self, k: usize, stride: usize, pad: usize) -> Tensor {
        self.pool("MaxPool", k, stride, pad)
    }

    /// Adds an average pool with windows `k x k` and no padding.
    pub fn average_pool(&mut self, k: usize, stride: usize) -> Tensor {
        self.pool("AveragePool", k, stride, 0)
    }

    fn pool(&mut self, op: &str, k: usize, stride: usize, pad: usize) -> Tensor {
        let x = self.current();
        let shape = vec![x.shape[0], side(x.shape[1], k, stride, pad), side(x.shape[2], k, stride, pad)];
        self.node(op, vec![x.name], shape, window(k, stride, pad))
    }

    /// Adds the average over each channel, `[C, 1, 1]`.
    pub fn global_average(&mut self) -> Tensor {
        let x = self.current();
        self.node("GlobalAveragePool", vec![x.name], vec![x.shape[0], 1, 1], vec![])
    }

    /// Adds the element-wise sum with another tensor.
    pub fn add(&mut self, other: &Tensor) -> Tensor {
        let x = self.current();
        self.node("Add", vec![x.name, other.name.clone()], x.shape, vec![])
    }

    /// Adds a concatenation along the channels.
    pub fn concat(&mut self, parts: &[Tensor]) -> Tensor {
        let mut shape = parts[0].shape.clone();
        shape[0] = parts.iter().map(|p| p.shape[0]).sum();
        let inputs = parts.iter().map(|p| p.name.clone()).collect();
        self.node("Concat", inputs, shape, vec![AttributeProto::int("axis", 1)])
    }

    pub fn flatten(&mut self) -> Tensor {
        let x = self.current();
        let shape = vec![x.shape.iter().product()];
        self.node("Flatten", vec![x.name], shape, vec![AttributeProto::int("axis", 1)])
    }

    /// Adds a fully connected layer with `out` outputs and weights of variance `gain / inputs`.
    pub fn dense(&mut self, out: usize, gain: f64) -> Tensor {
        let x = self.current();
        let inputs = x.shape[0];
        let weights = self.weights(&[out, inputs], gain);
        let bias = self.uniform(out, -0.1, 0.1);
        let dense = self.node("Gemm", vec![x.name, weights, bias], vec![out], vec![AttributeProto::int("transB", 1)]);
        self.multiplies(inputs);
        dense
    }

    pub fn dense_relu(&mut self, out: usize) -> Tensor {
        self.dense(out, 2.0);
        self.relu()
    }

    pub fn outline(self) -> Outline {
        Outline { name: self.name, input: self.input.shape, layers: self.layers }
    }

    /// Returns the file; the last node makes the output.
    pub fn finish(self) -> ModelProto {
        ModelProto {
            ir_version: 7,
            producer_name: "tacit".into(),
            graph: Some(GraphProto {
                input: vec![value_info(&self.input)],
                output: vec![value_info(&self.result)],
                node: self.nodes,
                name: self.name,
                initializer: self.tensors,
            }),
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 13 }],
        }
    }
}

/// Returns the length of an axis after a window of length `k`.
fn side(n: usize, k: usize, stride: usize, pad: usize) -> usize {
    (n + 2 * pad - k) / stride + 1
}

/// Describes a tensor of floats, with a batch of 1.
fn value_info(t: &Tensor) -> ValueInfoProto {
    let dims: Vec<i64> = std::iter::once(1).chain(t.shape.iter().map(|&d| d as i64)).collect();
    ValueInfoProto::floats(&t.name, &dims)
}

fn window(k: usize, stride: usize, pad: usize) -> Vec<AttributeProto> {
    let [k, stride, pad] = [k, stride, pad].map(|v| v as i64);
    vec![
        AttributeProto::ints("kernel_shape", &[k; 2]),
        AttributeProto::ints("strides", &[stride; 2]),
        AttributeProto::ints("pads", &[pad; 4]),
    ]
}
