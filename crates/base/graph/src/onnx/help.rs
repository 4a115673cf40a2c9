//! The supported operators, and advice for unsupported ones.

use super::ml;
use crate::Function;

/// A supported operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operator {
    /// Name in ONNX.
    pub name: &'static str,
    /// Operator set: empty for the standard one.
    pub domain: &'static str,
    /// The supported forms, and the way they are computed.
    pub about: &'static str,
}

const fn op(name: &'static str, about: &'static str) -> Operator {
    Operator { name, domain: "", about }
}

const fn classical(name: &'static str, about: &'static str) -> Operator {
    Operator { name, domain: ml::DOMAIN, about }
}

const MOVED: &str = "moves elements, costs nothing";
const CLIENT: &str = "at the end of the network: the client applies it";
const ANY_AXIS: &str = "over any axis, at the end of the network: the client applies it";
const EITHER: &str = "at the end of the network the client applies it; elsewhere a table, which not every back end has";
const TABLE: &str = "a table";
const BETWEEN: &str = "a ReLU and a table of what is between them";
const NORM: &str = "over all outputs, where the network ends by dividing them by it: the client does so";

/// Operators on secret tensors, by name. Nodes that depend only on constants and shapes are folded,
/// and may use more operators.
/// Those that [`Function`] has a row for are not listed.
const OPERATORS: &[Operator] = &[
    op("Abs", "one ReLU"),
    op("Add", "of two tensors (broadcast), or of one and constants"),
    op("ArgMax", "over all classes, at the end: reveals the class alone"),
    op("AveragePool", "1 or 2 spatial axes, not dilated"),
    op("BatchNormalization", "folded into a layer where that is exact, else a layer of its own"),
    op("Cast", "to float"),
    op("Clip", "one ReLU for each bound"),
    op("Concat", "along any axis, of tensors and constants"),
    op("Conv", "1 or 2 spatial axes, any stride, padding, dilation and groups"),
    op("ConvTranspose", "1 or 2 spatial axes: a convolution for each phase of the stride"),
    op("DepthToSpace", MOVED),
    op("DequantizeLinear", "of weights, and of what QuantizeLinear made"),
    op("Div", "by constants"),
    op("Dropout", "does nothing"),
    op("Elu", BETWEEN),
    op("Expand", "copies elements"),
    op("Flatten", MOVED),
    op(
        "GRU",
        "forward, sigmoid and tanh, unrolled; its gates are products of secret values, for `ckks` and `clear` alone",
    ),
    op("Gather", "with constant indices"),
    op("Gelu", BETWEEN),
    op("Gemm", "with a constant matrix"),
    op("GlobalAveragePool", "any number of spatial axes"),
    op("GlobalMaxPool", "any number of spatial axes"),
    op("HardSigmoid", "two ReLUs"),
    op("Identity", "does nothing"),
    op("ImageScaler", "as BatchNormalization"),
    op("LeakyRelu", "one ReLU, any slope"),
    op("LogSoftmax", ANY_AXIS),
    op("LpNormalization", "over all outputs, at the end of the network: the client applies it"),
    op("MatMul", "with a constant matrix, on either side"),
    op("Max", "of a tensor with constants or tensors: one ReLU for each further input"),
    op("MaxPool", "1 or 2 spatial axes, not dilated"),
    op("Mean", "as Add"),
    op("Min", "as Max"),
    op(
        "Mul",
        "by constants; of a tensor and its Sigmoid (SiLU) as HardSwish; of two tensors for `ckks` and `clear` alone",
    ),
    op("Neg", "a public factor"),
    op("PRelu", "one ReLU; slopes that differ are private: a layer"),
    op("Pad", "constant (any value), edge, reflect, wrap; negative padding cuts"),
    op("QuantizeLinear", "left out but for its clamping where it stands for an activation; DequantizeLinear follows"),
    op("Reciprocal", "of positive numbers: a table; of a Sqrt one table for both"),
    op("ReduceL1", NORM),
    op("ReduceL2", NORM),
    op("ReduceMax", "over any axes"),
    op("ReduceMean", "over any axes"),
    op("ReduceMin", "over any axes"),
    op("ReduceSum", "over any axes"),
    op("Relu", "a comparison for each element"),
    op("Reshape", MOVED),
    op("Resize", "nearest: copies elements; linear: a fixed layer for each axis"),
    op("Sigmoid", EITHER),
    op("Slice", MOVED),
    op("Softmax", ANY_AXIS),
    op("SpaceToDepth", MOVED),
    op("Split", MOVED),
    op("Squeeze", MOVED),
    op("Sub", "of two tensors (broadcast), or of one and constants"),
    op("Sum", "as Add"),
    op("Tanh", EITHER),
    op("Tile", "copies elements"),
    op("Transpose", MOVED),
    op("Unsqueeze", MOVED),
    op("Upsample", "as Resize"),
    classical("ArrayFeatureExtractor", "of the last axis, with constant indices; labels of classes are not computed"),
    classical("LinearClassifier", "the scores, with a row of coefficients for each class; labels are not computed"),
    classical("LinearRegressor", "as Gemm"),
    classical("Normalizer", CLIENT),
    classical("Scaler", "as BatchNormalization; at the start the client applies it"),
    classical("ZipMap", "the scores in the order of the classes"),
];

/// Returns all supported operators on secret tensors, by domain and name.
#[must_use]
pub fn operators() -> Vec<Operator> {
    let functions = Function::ALL.iter().filter_map(|function| Some(op(function.onnx()?, about(*function))));
    let mut operators: Vec<Operator> = OPERATORS.iter().copied().chain(functions).collect();
    operators.sort_by_key(|operator| (operator.domain, operator.name));
    operators
}

fn about(function: Function) -> &'static str {
    if function.residual_symmetry().is_some() { BETWEEN } else { TABLE }
}

/// Refused operators with their own advice.
pub const REFUSED: &[&str] = &[
    "Celu",
    "CumSum",
    "Einsum",
    "Erf",
    "GroupNormalization",
    "If",
    "InstanceNormalization",
    "LRN",
    "LSTM",
    "LayerNormalization",
    "Loop",
    "Pow",
    "QLinearConv",
    "RNN",
    "Scan",
    "ScatterND",
    "Selu",
    "TopK",
    "Where",
];

/// Returns advice for an operator that is not supported on secret tensors.
#[must_use]
pub fn advice(op: &str) -> &'static str {
    match op {
        "Erf" | "Selu" | "Celu" | "Softsign" | "Swish" | "QuickGelu" => {
            "no back end computes this function of a secret; export GELU as one node (operator set 20) and SiLU as x * Sigmoid(x), or replace it by Relu, LeakyRelu, HardSigmoid or Relu6 (Clip) and fine-tune"
        }
        "LRN" => "it divides by secret values; train without local response normalisation, or with BatchNormalization",
        "InstanceNormalization"
        | "LayerNormalization"
        | "GroupNormalization"
        | "SimplifiedLayerNormalization"
        | "MeanVarianceNormalization"
        | "RMSNormalization" => {
            "its statistics depend on the secret input, which it divides by; use BatchNormalization"
        }
        "Pow" | "Log" | "ReduceSumSquare" | "ReduceLogSumExp" | "ReduceProd" => {
            "it takes products, roots or quotients of secret values; use layers with constant weights and BatchNormalization"
        }
        "LSTM" | "RNN" => {
            "its gates multiply secret values in an order that no back end has; a GRU is read (for `ckks`), and a convolution over time for every back end"
        }
        "Loop" | "If" | "Scan" => "it is control flow; export the network traced or unrolled",
        "QLinearConv" | "QLinearMatMul" | "QLinearAdd" | "ConvInteger" | "MatMulInteger" | "DynamicQuantizeLinear" => {
            "export the float32 model (tacit quantises it itself), or one with QuantizeLinear and DequantizeLinear around float operators"
        }
        "GlobalLpPool" | "LpPool" => "it takes roots of secret values; use AveragePool or MaxPool",
        "TopK" | "NonMaxSuppression" | "NonZero" | "Unique" => {
            "its result depends on how secret values compare; cut it off and apply it to the network's answer"
        }
        "Where" | "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" | "Not" | "And" | "Or" => {
            "it compares secret values, or chooses by them; Relu, Max, Min and Clip are read"
        }
        "ScatterND" | "ScatterElements" | "GatherND" | "GatherElements" | "GridSample" | "RoiAlign" | "CumSum"
        | "OneHot" => {
            "it moves secret elements by single places; Slice, Gather with constant indices and Concat are read, and onnxsim may turn it into these"
        }
        "Einsum" => "write it as Transpose, Reshape and MatMul",
        _ => {
            "docs/operators.md lists the operators that are supported; onnxsim may remove helper operators in front of the export"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_does_not_repeat_the_error() {
        for name in REFUSED.iter().chain(&["Unknown", "Einsum", "OneHot", "ReduceProd", "LpPool", "QLinearMatMul"]) {
            let text = advice(name);
            assert!(!text.contains("not supported"), "ONNX node {name} is not supported: {text}");
        }
    }
}
