//! `docs/operators.md` says which operators each back end computes. The test makes the table: it imports a
//! network of each operator, and every back end lowers the network.
//! `UPDATE_DOCS=1 cargo test -p tacit-backends --test suite operators` writes the file.

use std::fmt::Write;

use prost::Message;
use tacit_backends::{Options, Registry, Support};
use tacit_graph::import::{ImportOptions, import};
use tacit_graph::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
};
use tacit_graph::onnx::{OPSETS, Operator, REFUSED, advice, operators};
use tacit_graph::{Function, Interval};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operators.md");

#[test]
fn the_table_of_operators_is_up_to_date() {
    let page = write_page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(DOCS, &page).unwrap();
    }
    let stored = std::fs::read_to_string(DOCS).unwrap_or_default();
    let difference = stored.lines().zip(page.lines()).find(|(a, b)| a != b);
    assert!(
        stored == page,
        "docs/operators.md is not what the code says (first difference: {difference:?}): UPDATE_DOCS=1 cargo test -p tacit-backends --test \
         operators"
    );
}

#[test]
fn every_refused_operator_names_a_remedy() {
    for op in REFUSED {
        assert!(operators().iter().all(|o| o.name != *op), "{op} is supported");
        let bytes = network(IMAGE, [node(op, &["x"], &[])]);
        let text = import(&bytes, &ImportOptions::default()).unwrap_err().to_string();
        assert!(text.contains(op), "{text}");
        assert!(text.contains(advice(op)), "{text}");
        assert!(text.contains("`y`"), "{text}");
    }
}

/// Writes the page, and checks what back ends declare.
fn write_page() -> String {
    let registry = Registry::standard();
    let mut out = String::from(
        "# Operators\n\nWritten by `crates/backends/registry/tests/suite/operators.rs` (`UPDATE_DOCS=1 cargo test -p tacit-backends --test suite operators`): \
         each operator is\nimported in a small network and lowered for every back end. `tests/test_import.py` and `tests/test_coverage.py` \
         compare the results\nwith onnxruntime.\n\n",
    );
    writeln!(
        out,
        "Operator sets {} to {} are read, with one input of 32, 16 or 64 bit floats or 8-bit integers, any number of axes, and several \
         outputs\n(joined in one answer). A network is read for a batch of one, whatever batch its file states. Weights may be 16-bit floats \
         (both kinds)\nand may lie in files beside the ONNX file. What depends on constants and shapes alone is folded and not listed; what \
         no output needs\nmay be anything.\n",
        OPSETS.start(),
        OPSETS.end()
    )
    .unwrap();
    // Only tests have the toy.
    let backends: Vec<_> = registry.iter().filter(|b| b.id() != "toy").collect();
    let ids: Vec<&str> = backends.iter().map(|b| b.id()).collect();
    writeln!(out, "| operator | {} | what is supported, and what it costs |", ids.join(" | ")).unwrap();
    writeln!(out, "| --- |{} --- |", " --- |".repeat(ids.len())).unwrap();
    for op in &operators() {
        let model = import(&example(op), &options()).unwrap_or_else(|e| panic!("{}: {e}", op.name)).model;
        let lowers: Vec<&str> =
            backends.iter().map(|b| if b.lower(&model, &Options::default()).is_ok() { "yes" } else { "no" }).collect();
        let declared = backends.iter().map(|b| model.graph.nodes.iter().all(|n| b.support(&n.op) != Support::Missing));
        let declared: Vec<&str> = declared.map(|has| if has { "yes" } else { "no" }).collect();
        assert_eq!(lowers, declared, "{}: what is lowered is what back ends declare", op.name);
        let name = if op.domain.is_empty() { op.name.into() } else { format!("{} ({})", op.name, op.domain) };
        writeln!(out, "| {name} | {} | {} |", lowers.join(" | "), op.about).unwrap();
    }
    out.push_str(
        "\n## Refused\n\nNo back end computes these on secret tensors. The error names the node and says:\n\n",
    );
    out.push_str("| operator | what would help |\n| --- | --- |\n");
    for op in REFUSED {
        writeln!(out, "| {op} | {} |", advice(op)).unwrap();
    }
    out
}

fn options() -> ImportOptions {
    ImportOptions {
        range: Some(Interval { low: -1.0, high: 1.0 }),
        model_id: Some([1; 16]),
        ..ImportOptions::default()
    }
}

/// A node whose result is `y`.
fn node(op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> NodeProto {
    NodeProto { attribute: attributes.to_vec(), ..NodeProto::new(op, inputs, &["y"]) }
}

/// The shape of an image: one of 4 channels of 4 x 4.
const IMAGE: &[i64] = &[1, 4, 4, 4];

/// A network on `x` with the constants that the examples name.
fn network(shape: &[i64], nodes: impl IntoIterator<Item = NodeProto>) -> Vec<u8> {
    let model = ModelProto {
        graph: Some(GraphProto {
            node: nodes.into_iter().collect(),
            name: "operator".into(),
            initializer: constants(),
            input: vec![ValueInfoProto::floats("x", shape)],
            output: vec![ValueInfoProto { name: "y".into(), ..ValueInfoProto::default() }],
        }),
        opset_import: ["", "ai.onnx.ml"]
            .map(|domain| OperatorSetIdProto { domain: domain.into(), version: 13 })
            .to_vec(),
        ..ModelProto::default()
    };
    model.encode_to_vec()
}

fn constants() -> Vec<TensorProto> {
    let real = |name: &str, dims: &[i64]| {
        let count = dims.iter().product::<i64>() as usize;
        TensorProto::floats(name, dims, (0..count).map(|i| [0.5, -0.25, 1.0, 0.75, 0.125][i % 5]).collect())
    };
    let whole = TensorProto::ints;
    let scales = TensorProto { float_data: vec![1.0, 1.0, 2.0, 2.0], ..real("scales", &[4]) };
    let variance = TensorProto { float_data: vec![0.5, 1.0, 1.5, 2.0], ..real("variance", &[4]) };
    vec![
        real("kernel", &[4, 4, 3, 3]),
        real("matrix", &[4, 4]),
        real("channels", &[4, 1, 1]),
        real("per_channel", &[4]),
        real("one", &[]),
        real("gates", &[1, 6, 4]),
        real("recurrent", &[1, 6, 2]),
        scales,
        variance,
        whole("axes", &[2, 3]),
        whole("axis1", &[1]),
        whole("flat", &[1, -1]),
        whole("indices", &[3, 0, 1]),
        whole("starts", &[1]),
        whole("ends", &[3]),
        whole("repeats", &[1, 1, 2, 1]),
        whole("pads", &[0, 0, 1, 1, 0, 0, 1, 1]),
        whole("wide", &[1, 4, 4, 4]),
    ]
}

/// A network whose last operator is `op`.
fn example(op: &Operator) -> Vec<u8> {
    let on = |shape: &[i64], inputs: &[&str], attributes: &[AttributeProto]| {
        let last = NodeProto { domain: op.domain.into(), ..node(op.name, inputs, attributes) };
        network(shape, [last])
    };
    let on_image = |inputs: &[&str], attributes: &[AttributeProto]| on(IMAGE, inputs, attributes);
    let on_row = |inputs: &[&str], attributes: &[AttributeProto]| on(&[1, 4], inputs, attributes);
    let (int, ints, floats) = (AttributeProto::int, AttributeProto::ints, AttributeProto::floats);
    let pool = [ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
    let linear = [floats("coefficients", &[0.5; 8]), floats("intercepts", &[0.5; 2])];
    match op.name {
        "Abs" | "Cast" | "Dropout" | "Flatten" | "GlobalAveragePool" | "GlobalMaxPool" | "HardSigmoid" | "Identity"
        | "Elu" | "Gelu" | "LeakyRelu" | "Neg" | "ReduceMax" | "ReduceMean" | "ReduceMin" | "Relu" | "Sigmoid"
        | "Tanh" | "Transpose" => on_image(&["x"], &[]),
        "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" | "Sum" | "Mean" | "PRelu" => on_image(&["x", "channels"], &[]),
        "ArrayFeatureExtractor" => on_row(&["x", "indices"], &[]),
        "LpNormalization" | "Softmax" | "LogSoftmax" | "ZipMap" | "Normalizer" => on_row(&["x"], &[]),
        "ArgMax" => on_row(&["x"], &[int("axis", 1)]),
        "AveragePool" | "MaxPool" => on_image(&["x"], &pool),
        "BatchNormalization" => on_image(&["x", "per_channel", "per_channel", "per_channel", "variance"], &[]),
        "Clip" => on_image(&["x", "", "one"], &[]),
        "Concat" => on_image(&["x", "x"], &[int("axis", 2)]),
        "Conv" | "ConvTranspose" => on_image(&["x", "kernel"], &[]),
        "DepthToSpace" | "SpaceToDepth" => on_image(&["x"], &[int("blocksize", 2)]),
        "GRU" => network(&[1, 2, 4], [node(op.name, &["x", "gates", "recurrent"], &[int("layout", 1)])]),
        "Gather" => on_image(&["x", "indices"], &[int("axis", 1)]),
        "Gemm" | "MatMul" => on_row(&["x", "matrix"], &[]),
        "ImageScaler" => on_image(&["x"], &[floats("bias", &[0.5; 4])]),
        "Pad" => on_image(&["x", "pads"], &[]),
        "ReduceSum" => on_image(&["x", "axes"], &[]),
        "Reshape" => on_image(&["x", "flat"], &[]),
        "Resize" => on_image(&["x", "", "scales"], &[]),
        "Slice" => on_image(&["x", "starts", "ends", "axis1"], &[]),
        "Split" => on_image(&["x"], &[int("axis", 1)]),
        "Squeeze" => on_row(&["x"], &[]),
        "Tile" => on_image(&["x", "repeats"], &[]),
        "Unsqueeze" => on_image(&["x", "axis1"], &[]),
        "Upsample" => on_image(&["x", "scales"], &[]),
        "LinearClassifier" => {
            let labels = ints("classlabels_ints", &[0, 1]);
            let [coefficients, intercepts] = linear;
            let last = node(op.name, &["x"], &[coefficients, intercepts, labels]);
            network(&[1, 4], [NodeProto { domain: op.domain.into(), output: vec!["label".into(), "y".into()], ..last }])
        }
        "LinearRegressor" => {
            let [coefficients, intercepts] = linear;
            on_row(&["x"], &[coefficients, intercepts, int("targets", 2)])
        }
        "Scaler" => on_row(&["x"], &[floats("offset", &[0.5]), floats("scale", &[2.0])]),
        name if Function::from_onnx(name).is_some_and(|function| !function.is_positive()) => on_image(&["x"], &[]),
        name => example_of_two(name),
    }
}

/// A network for an operator that needs a second operator.
fn example_of_two(name: &str) -> Vec<u8> {
    let with_output = |output: &str, node: NodeProto| NodeProto { output: vec![output.into()], ..node };
    match name {
        "Reciprocal" | "Sqrt" => {
            network(IMAGE, [with_output("s", node("Sigmoid", &["x"], &[])), node(name, &["s"], &[])])
        }
        "ReduceL1" | "ReduceL2" => {
            let norm = with_output("n", node(name, &["x"], &[AttributeProto::ints("axes", &[1])]));
            network(&[1, 4], [norm, node("Div", &["x", "n"], &[])])
        }
        "QuantizeLinear" | "DequantizeLinear" => {
            let steps = with_output("q", node("QuantizeLinear", &["x", "one"], &[]));
            network(IMAGE, [steps, node("DequantizeLinear", &["q", "one"], &[])])
        }
        "Expand" => {
            let mean = with_output("m", node("GlobalAveragePool", &["x"], &[]));
            network(IMAGE, [mean, node("Expand", &["m", "wide"], &[])])
        }
        name => panic!("no example of {name}: add one"),
    }
}
