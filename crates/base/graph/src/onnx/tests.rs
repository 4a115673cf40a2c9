use proptest::prelude::*;

use super::proto::{AttributeProto, TensorProto, ValueInfoProto};
use super::*;
use crate::zoo;

mod hostile;

fn decode(bytes: &[u8]) -> ModelProto {
    ModelProto::decode(bytes).unwrap()
}

/// A small network of the zoo with a change.
fn changed(change: impl FnOnce(&mut GraphProto)) -> Result<Network, GraphError> {
    let mut model = decode(&zoo::build("tiny-cnn", 1).unwrap());
    change(model.graph.as_mut().unwrap());
    parse(&model.encode_to_vec())
}

fn message(result: Result<Network, GraphError>) -> String {
    result.unwrap_err().to_string()
}

fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto::new(op, inputs, &[output])
}

/// Appends a node that reads the network's output and `inputs`, and makes its result the output.
fn append_reading(g: &mut GraphProto, op: &str, inputs: &[&str]) {
    let last = g.output[0].name.clone();
    g.node.push(node(op, &[&[&*last][..], inputs].concat(), "end"));
    g.output[0].name = "end".into();
}

fn append(g: &mut GraphProto, op: &str) {
    append_reading(g, op, &[]);
}

/// Appends a node with a change.
fn append_with(g: &mut GraphProto, op: &str, change: impl FnOnce(&mut NodeProto)) {
    append(g, op);
    change(g.node.last_mut().unwrap());
}

#[test]
fn an_unsupported_operator_is_named_with_help() {
    let text = message(changed(|g| append(g, "Selu")));
    assert!(text.contains("Selu") && text.contains("`end`") && text.contains("Relu"), "{text}");
    let text = message(changed(|g| append(g, "Wobble")));
    assert!(text.contains("Wobble") && text.contains("docs/operators.md"), "{text}");
    let text = message(changed(|g| append_with(g, "Cast", |n| n.attribute.push(AttributeProto::int("to", 7)))));
    assert!(text.contains("Cast") && text.contains("MatMul"), "{text}");
}

#[test]
fn a_final_activation_is_left_to_the_client() {
    for (op, activation) in [
        ("Softmax", FinalActivation::Softmax),
        ("LogSoftmax", FinalActivation::LogSoftmax),
        ("Sigmoid", FinalActivation::Sigmoid),
        ("Tanh", FinalActivation::Tanh),
    ] {
        assert_eq!(changed(|g| append(g, op)).unwrap().activation, Some(activation));
    }
    assert_eq!(changed(|_| {}).unwrap().activation, None);
    let text = message(changed(|g| {
        append(g, "Softmax");
        g.node.push(node("Relu", &["end"], "more"));
        g.output[0].name = "more".into();
    }));
    assert!(text.contains("end of the network"), "{text}");
}

/// Reshapes the network to `[1, -1]` in front of its last part of the shape from a `Shape` with
/// these attributes.
fn reshaped_by(start: Option<i64>, end: Option<i64>) -> Result<Vec<usize>, GraphError> {
    let mut bytes = decode(&zoo::build("tiny-cnn", 1).unwrap());
    let graph = bytes.graph.as_mut().unwrap();
    let input = graph.input[0].name.clone();
    let attributes = [("start", start), ("end", end)].into_iter();
    let mut shape = node("Shape", &[&input], "s");
    shape.attribute = attributes.filter_map(|(name, value)| Some(AttributeProto::int(name, value?))).collect();
    let mut concat = node("Concat", &["m", "s"], "t");
    concat.attribute = vec![AttributeProto::int("axis", 0)];
    graph.initializer = vec![TensorProto::ints("m", &[1, -1])];
    graph.node = vec![shape, concat, node("Reshape", &[&input, "t"], "y")];
    graph.output[0].name = "y".into();
    let network = parse(&bytes.encode_to_vec())?;
    Ok(network.graph.nodes[network.graph.output].shape.clone())
}

#[test]
fn a_shape_has_a_start_and_an_end() {
    // The input is [1, 1, 8, 8].
    for (start, end, expected) in [
        (Some(2), None, vec![1, 8, 8]),
        (Some(3), None, vec![8, 8]),
        (Some(-1), Some(4), vec![8, 8]),
        (Some(2), Some(-1), vec![8, 8]),
        (Some(1), Some(3), vec![8, 1, 8]),
        (Some(-100), Some(100), vec![1, 1, 1, 8, 8]),
        (Some(3), Some(2), vec![64]),
    ] {
        let shape = reshaped_by(start, end).unwrap();
        assert_eq!(shape.iter().product::<usize>(), 64);
        assert_eq!(shape, expected, "{start:?} {end:?}");
    }
}

#[test]
fn a_cycle_is_an_error() {
    let text = message(changed(|g| g.node[1].input[0] = g.output[0].name.clone()));
    assert!(text.contains("cycle"), "{text}");
}

#[test]
fn missing_and_double_names_are_errors() {
    assert!(message(changed(|g| g.node[0].input[0] = "nowhere".into())).contains("nowhere"));
    assert!(message(changed(|g| g.output[0].name = "nowhere".into())).contains("nowhere"));
    assert!(message(changed(|g| g.node[1].output = g.node[0].output.clone())).contains("twice"));
    assert!(message(changed(|g| g.output.push(ValueInfoProto::default()))).contains("nothing makes the output"));
}

#[test]
fn unused_nodes_may_be_unsupported() {
    let network = changed(|_| {}).unwrap();
    let with_addition = changed(|g| {
        let input = g.input[0].name.clone();
        g.node.push(node("Wobble", &[&input, "nowhere"], "unused"));
        g.node.push(node("Relu", &["later"], "sooner"));
        g.node.push(node("Relu", &["sooner"], "later"));
        g.initializer.push(TensorProto { name: "strange".into(), data_type: 14, ..Default::default() });
    });
    assert_eq!(with_addition.unwrap().graph, network.graph);
}

#[test]
fn several_outputs_are_joined() {
    let hidden = |g: &GraphProto| ValueInfoProto { name: g.node[0].output[0].clone(), ..Default::default() };
    let net = changed(|g| {
        let hidden = hidden(g);
        g.output.insert(0, hidden);
    });
    let net = net.unwrap();
    let lengths: Vec<usize> = net.outputs.iter().map(|o| o.shape.iter().product()).collect();
    assert_eq!(lengths.len(), 2);
    assert_eq!(net.graph.nodes[net.graph.output].shape, [lengths.iter().sum::<usize>()]);
    let text = message(changed(|g| {
        append(g, "Softmax");
        let hidden = hidden(g);
        g.output.push(hidden);
    }));
    assert!(text.contains("several outputs"), "{text}");
}

#[test]
fn external_data_is_read_only_from_the_folder_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = zoo::build("tiny-cnn", 1).unwrap();
    let mut model = decode(&bytes);
    let tensor = &mut model.graph.as_mut().unwrap().initializer[0];
    let raw = std::mem::take(&mut tensor.raw_data);
    std::fs::write(folder.path().join("weights.bin"), [&[1; 8], raw.as_slice()].concat()).unwrap();
    tensor.data_location = 1;
    let entries = |model: &mut ModelProto, pairs: [(&str, &str); 3]| {
        model.graph.as_mut().unwrap().initializer[0].external_data =
            pairs.map(|(key, value)| proto::EntryProto { key: key.into(), value: value.into() }).to_vec();
    };
    let length = raw.len().to_string();
    entries(&mut model, [("location", "weights.bin"), ("offset", "8"), ("length", &length)]);
    let graph = parse_in(&model.encode_to_vec(), Some(folder.path())).unwrap();
    assert_eq!(graph.graph, parse(&bytes).unwrap().graph);
    assert!(parse(&model.encode_to_vec()).unwrap_err().to_string().contains("external data"));
    let outside = folder.path().join("../weights.bin").display().to_string();
    #[cfg(unix)]
    std::os::unix::fs::symlink("/etc/hostname", folder.path().join("link.bin")).unwrap();
    for (location, offset, message) in [
        ("weights.bin", "16", "which holds"),
        ("weights.bin", "18446744073709551615", "which holds"),
        ("weights.bin", "x", "offset"),
        ("missing.bin", "0", "missing.bin"),
        ("../weights.bin", "0", "only files in the folder"),
        (outside.as_str(), "0", "only files in the folder"),
        ("link.bin", "0", "outside"),
    ] {
        entries(&mut model, [("location", location), ("offset", offset), ("length", &length)]);
        let text = parse_in(&model.encode_to_vec(), Some(folder.path())).unwrap_err().to_string();
        assert!(text.contains(message), "{location}: {text}");
    }
}

#[test]
fn unordered_nodes_are_sorted() {
    let sorted = changed(|_| {}).unwrap();
    let reversed = changed(|g| g.node.reverse()).unwrap();
    assert_eq!(sorted.graph.nodes.len(), reversed.graph.nodes.len());
}

/// The shape of the network's input.
fn input_shape(g: &mut GraphProto) -> &mut proto::TensorShapeProto {
    g.input[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().shape.as_mut().unwrap()
}

#[test]
fn huge_shapes_are_errors() {
    for d in [1 << 20, i64::MAX, -5, 0] {
        let changed = changed(|g| input_shape(g).dim[2..].iter_mut().for_each(|dim| dim.dim_value = d));
        assert!(changed.is_err(), "{d}");
    }
    for d in [1i64 << 40, i64::MAX, -1] {
        assert!(changed(|g| g.initializer[0].dims[0] = d).is_err(), "{d}");
    }
    // A padding that would make a tensor of a terabyte.
    let text = message(changed(|g| g.node[0].attribute[2].ints = vec![1 << 19; 4]));
    assert!(text.contains("elements"), "{text}");
    // A constant that unfolds.
    let unfolded = changed(|g| {
        g.initializer.push(TensorProto::ints("s", &[1 << 30, 1 << 30]));
        g.node.push(node("ConstantOfShape", &["s"], "big"));
        append_reading(g, "Add", &["big"]);
    });
    assert!(unfolded.is_err());
}

#[test]
fn external_data_and_nan_weights_are_refused() {
    assert!(message(changed(|g| g.initializer[0].data_location = 1)).contains("external data"));
    let nan = changed(|g| g.initializer[0].raw_data[..4].copy_from_slice(&f32::NAN.to_le_bytes()));
    assert!(message(nan).contains("NaN"));
    assert!(message(changed(|g| g.initializer[0].raw_data.truncate(5))).contains("raw bytes"));
    assert!(message(changed(|g| g.initializer[0].data_type = 14)).contains("float32"));
}

#[test]
fn the_batch_is_removed_for_any_stated_batch() {
    for (value, name) in [(1, ""), (0, "N"), (7, "")] {
        let net = changed(|g| {
            let batch = &mut input_shape(g).dim[0];
            (batch.dim_value, batch.dim_param) = (value, name.into());
        });
        assert_eq!(net.unwrap().graph.nodes[0].shape, [1, 8, 8]);
    }
}

#[test]
fn other_files_are_not_onnx() {
    for bytes in [&b""[..], b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"<html></html>"] {
        assert!(message(parse(bytes)).contains("not an ONNX file"), "{bytes:?}");
    }
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = zoo::build("tiny-mlp", 1).unwrap();
    for cut in (0..bytes.len()).step_by(7) {
        assert!(parse(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn damage_never_panics(position in any::<prop::sample::Index>(), xor in 1u8..=255, length in 1usize..4) {
        let mut bytes = zoo::build("tiny-cnn", 1).unwrap();
        let position = position.index(bytes.len());
        bytes.iter_mut().skip(position).take(length).for_each(|b| *b ^= xor);
        if let Ok(net) = parse(&bytes) {
            let _ = crate::rewrite::simplify(&net.graph).unwrap();
        }
    }

    #[test]
    fn damaged_structure_never_panics(node in any::<prop::sample::Index>(), field in 0..5, value in any::<i64>(), small in -4i64..30) {
        let result = changed(|g| {
            let node = node.index(g.node.len());
            let n = &mut g.node[node];
            match field {
                0 => n.attribute.iter_mut().for_each(|a| a.ints.iter_mut().for_each(|i| *i = value)),
                1 => n.attribute.iter_mut().for_each(|a| a.ints.iter_mut().for_each(|i| *i = small)),
                2 => n.attribute.iter_mut().for_each(|a| { a.i = small; a.ints.truncate(1); }),
                3 => drop(n.input.pop()),
                _ => n.op_type = ["Slice", "Pad", "Reshape", "Clip", "Transpose", "Gemm", "Conv", "MaxPool", "ArgMax", "Flatten", "Concat", "Squeeze", "Split", "Gather", "Resize", "ConvTranspose", "DepthToSpace", "ReduceMax", "PRelu", "MatMul", "Max", "Expand"][small.unsigned_abs() as usize % 22].into(),
            }
        });
        if let Ok(net) = result {
            let _ = crate::rewrite::simplify(&net.graph).unwrap();
        }
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&noise);
    }
}
