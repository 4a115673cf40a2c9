//! Writes ONNX graphs layer by layer.

use crate::onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use crate::rng::SplitMix;

/// A tensor of the graph under construction: name and shape without the batch.
#[derive(Debug, Clone)]
pub(super) struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
}

/// Builds one graph.
pub(super) struct Builder {
    name: String,
    input: Tensor,
    last: Tensor,
    nodes: Vec<NodeProto>,
    tensors: Vec<TensorProto>,
    rng: SplitMix,
}

impl Builder {
    pub fn new(name: &str, shape: &[usize], seed: u64) -> Self {
        let input = Tensor { name: "input".into(), shape: shape.to_vec() };
        Self {
            name: name.into(),
            last: input.clone(),
            input,
            nodes: Vec::new(),
            tensors: Vec::new(),
            rng: SplitMix::new(seed),
        }
    }

    pub fn input(&self) -> Tensor {
        self.input.clone()
    }

    fn node(&mut self, op: &str, inputs: Vec<String>, shape: Vec<usize>, attribute: Vec<AttributeProto>) -> Tensor {
        let name = format!("{}_{}", op.to_lowercase(), self.nodes.len());
        self.nodes.push(NodeProto {
            input: inputs,
            output: vec![name.clone()],
            name: name.clone(),
            op_type: op.into(),
            attribute,
            domain: String::new(),
        });
        self.last = Tensor { name, shape };
        self.last.clone()
    }

    /// Adds a constant and returns its name.
    fn tensor(&mut self, shape: &[usize], values: impl Iterator<Item = f32>) -> String {
        let name = format!("w{}", self.tensors.len());
        self.tensors.push(TensorProto {
            dims: shape.iter().map(|&d| d as i64).collect(),
            data_type: 1,
            name: name.clone(),
            raw_data: values.flat_map(f32::to_le_bytes).collect(),
            ..TensorProto::default()
        });
        name
    }

    /// Normal weights with variance `gain / fan_in`.
    fn weights(&mut self, shape: &[usize], gain: f64) -> String {
        let fan_in: usize = shape[1..].iter().product();
        let n: usize = shape.iter().product();
        let deviation = (gain / fan_in as f64).sqrt();
        let mut rng = SplitMix::new(self.rng.next_u64());
        self.tensor(shape, (0..n).map(move |_| (rng.normal() * deviation) as f32))
    }

    fn uniform(&mut self, n: usize, low: f64, high: f64) -> String {
        let mut rng = SplitMix::new(self.rng.next_u64());
        self.tensor(&[n], (0..n).map(move |_| rng.range(low, high) as f32))
    }

    /// Convolution with a square kernel, `gain` 2 in front of a ReLU.
    pub fn conv(&mut self, x: &Tensor, out: usize, k: usize, stride: usize, pad: usize, bias: bool) -> Tensor {
        let weights = self.weights(&[out, x.shape[0], k, k], 2.0);
        let mut inputs = vec![x.name.clone(), weights];
        if bias {
            inputs.push(self.uniform(out, -0.1, 0.1));
        }
        let side = |n: usize| (n + 2 * pad - k) / stride + 1;
        let shape = vec![out, side(x.shape[1]), side(x.shape[2])];
        self.node("Conv", inputs, shape, window(k, stride, pad))
    }

    /// Batch normalisation; `gain` scales gamma (small at the end of a residual branch keeps sums from
    /// growing).
    pub fn batch_norm(&mut self, x: &Tensor, gain: f64) -> Tensor {
        let c = x.shape[0];
        let gamma = self.uniform(c, 0.8 * gain, 1.2 * gain);
        let beta = self.uniform(c, -0.2, 0.2);
        let mean = self.uniform(c, -0.2, 0.2);
        let var = self.uniform(c, 1.0, 3.0);
        let inputs = vec![x.name.clone(), gamma, beta, mean, var];
        self.node("BatchNormalization", inputs, x.shape.clone(), vec![])
    }

    pub fn relu(&mut self, x: &Tensor) -> Tensor {
        self.node("Relu", vec![x.name.clone()], x.shape.clone(), vec![])
    }

    pub fn conv_relu(&mut self, x: &Tensor, out: usize, k: usize, stride: usize, pad: usize) -> Tensor {
        let c = self.conv(x, out, k, stride, pad, true);
        self.relu(&c)
    }

    /// Convolution without bias, batch normalisation, ReLU.
    pub fn conv_bn_relu(&mut self, x: &Tensor, out: usize, k: usize, stride: usize, pad: usize) -> Tensor {
        let c = self.conv(x, out, k, stride, pad, false);
        let n = self.batch_norm(&c, 1.0);
        self.relu(&n)
    }

    pub fn max_pool(&mut self, x: &Tensor, k: usize, stride: usize, pad: usize) -> Tensor {
        self.pool("MaxPool", x, k, stride, pad)
    }

    pub fn average_pool(&mut self, x: &Tensor, k: usize, stride: usize) -> Tensor {
        self.pool("AveragePool", x, k, stride, 0)
    }

    fn pool(&mut self, op: &str, x: &Tensor, k: usize, stride: usize, pad: usize) -> Tensor {
        let side = |n: usize| (n + 2 * pad - k) / stride + 1;
        let shape = vec![x.shape[0], side(x.shape[1]), side(x.shape[2])];
        self.node(op, vec![x.name.clone()], shape, window(k, stride, pad))
    }

    pub fn global_average(&mut self, x: &Tensor) -> Tensor {
        self.node("GlobalAveragePool", vec![x.name.clone()], vec![x.shape[0], 1, 1], vec![])
    }

    pub fn add(&mut self, a: &Tensor, b: &Tensor) -> Tensor {
        self.node("Add", vec![a.name.clone(), b.name.clone()], a.shape.clone(), vec![])
    }

    pub fn concat(&mut self, parts: &[Tensor]) -> Tensor {
        let mut shape = parts[0].shape.clone();
        shape[0] = parts.iter().map(|p| p.shape[0]).sum();
        let inputs = parts.iter().map(|p| p.name.clone()).collect();
        self.node("Concat", inputs, shape, vec![int("axis", 1)])
    }

    pub fn flatten(&mut self, x: &Tensor) -> Tensor {
        let shape = vec![x.shape.iter().product()];
        self.node("Flatten", vec![x.name.clone()], shape, vec![int("axis", 1)])
    }

    pub fn dense(&mut self, x: &Tensor, out: usize, gain: f64) -> Tensor {
        let weights = self.weights(&[out, x.shape[0]], gain);
        let bias = self.uniform(out, -0.1, 0.1);
        self.node("Gemm", vec![x.name.clone(), weights, bias], vec![out], vec![int("transB", 1)])
    }

    pub fn dense_relu(&mut self, x: &Tensor, out: usize) -> Tensor {
        let d = self.dense(x, out, 2.0);
        self.relu(&d)
    }

    /// The file; the last node makes the output.
    pub fn finish(self) -> ModelProto {
        let value = |t: &Tensor, name: &str| ValueInfoProto {
            name: name.into(),
            r#type: Some(TypeProto {
                tensor_type: Some(TensorTypeProto {
                    elem_type: 1,
                    shape: Some(TensorShapeProto {
                        dim: std::iter::once(1)
                            .chain(t.shape.iter().copied())
                            .map(|d| DimensionProto { dim_value: d as i64, dim_param: String::new() })
                            .collect(),
                    }),
                }),
            }),
        };
        ModelProto {
            ir_version: 7,
            producer_name: "tacit".into(),
            graph: Some(GraphProto {
                input: vec![value(&self.input, &self.input.name)],
                output: vec![value(&self.last, &self.last.name)],
                node: self.nodes,
                name: self.name,
                initializer: self.tensors,
            }),
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 13 }],
        }
    }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), i, r#type: 2, ..AttributeProto::default() }
}

fn window(k: usize, stride: usize, pad: usize) -> Vec<AttributeProto> {
    let ints = |name: &str, v: usize, n: usize| AttributeProto {
        name: name.into(),
        ints: vec![v as i64; n],
        r#type: 7,
        ..AttributeProto::default()
    };
    vec![ints("kernel_shape", k, 2), ints("strides", stride, 2), ints("pads", pad, 4)]
}
