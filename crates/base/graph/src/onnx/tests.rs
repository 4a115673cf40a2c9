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
    NodeProto {
        op_type: op.into(),
        input: inputs.iter().map(|s| (*s).into()).collect(),
        output: vec![output.into()],
        ..NodeProto::default()
    }
}

/// Appends a node behind the last one and makes its output the network's.
fn append(g: &mut GraphProto, op: &str) {
    let result_name = g.output[0].name.clone();
    g.node.push(node(op, &[&result_name], "end"));
    g.output[0].name = "end".into();
}

#[test]
fn an_unsupported_operator_is_named_with_help() {
    let text = message(changed(|g| append(g, "Selu")));
    assert!(text.contains("Selu") && text.contains("`end`") && text.contains("Relu"), "{text}");
    let text = message(changed(|g| append(g, "Wobble")));
    assert!(text.contains("Wobble") && text.contains("docs/operators.md"), "{text}");
    let text = message(changed(|g| {
        append(g, "Cast");
        let target_type = AttributeProto { name: "to".into(), i: 7, ..AttributeProto::default() };
        g.node.last_mut().unwrap().attribute.push(target_type);
    }));
    assert!(text.contains("Cast") && text.contains("MatMul"), "{text}");
}

#[test]
fn a_final_softmax_is_left_to_the_client() {
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
        let result_name = g.output[0].name.clone();
        g.node.push(node("Relu", &[&result_name], "more"));
        g.output[0].name = "more".into();
    }));
    assert!(text.contains("end of the network"), "{text}");
}

/// Reshapes the network to `[1, -1]` in front of its last part of the shape from a `Shape` with
/// these attributes.
fn reshaped_by(start: Option<i64>, end: Option<i64>) -> Result<Vec<usize>, GraphError> {
    let mut bytes = decode(&zoo::build("tiny-cnn", 1).unwrap());
    let graph = bytes.graph.as_mut().unwrap();
    let (input, list) = (graph.input[0].name.clone(), |name: &str, values: &[i64]| TensorProto {
        name: name.into(),
        dims: vec![values.len() as i64],
        data_type: 7,
        int64_data: values.to_vec(),
        ..TensorProto::default()
    });
    let attribute = |(name, value): (&str, Option<i64>)| {
        value.map(|i| AttributeProto { name: name.into(), r#type: 2, i, ..AttributeProto::default() })
    };
    let mut shape = node("Shape", &[&input], "s");
    shape.attribute = [("start", start), ("end", end)].into_iter().filter_map(attribute).collect();
    let mut concat = node("Concat", &["m", "s"], "t");
    concat.attribute = vec![AttributeProto { name: "axis".into(), r#type: 2, ..AttributeProto::default() }];
    graph.initializer = vec![list("m", &[1, -1])];
    graph.node = vec![shape, concat, node("Reshape", &[&input, "t"], "y")];
    graph.output[0].name = "y".into();
    let network = parse(&bytes.encode_to_vec())?;
    Ok(network.graph.nodes[network.graph.output].shape.clone())
}

#[test]
fn a_shape_has_its_start_and_end() {
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
    let text = message(changed(|g| {
        let result_name = g.output[0].name.clone();
        g.node[1].input[0] = result_name;
    }));
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
fn what_no_output_needs_is_left_out() {
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
    let net = changed(|g| {
        let hidden = ValueInfoProto { name: g.node[0].output[0].clone(), ..Default::default() };
        g.output.insert(0, hidden);
    });
    let net = net.unwrap();
    let lengths: Vec<usize> = net.outputs.iter().map(|o| o.shape.iter().product()).collect();
    assert_eq!(lengths.len(), 2);
    assert_eq!(net.graph.nodes[net.graph.output].shape, [lengths.iter().sum::<usize>()]);
    let text = message(changed(|g| {
        let hidden = ValueInfoProto { name: g.node[0].output[0].clone(), ..Default::default() };
        append(g, "Softmax");
        g.output.push(hidden);
    }));
    assert!(text.contains("several outputs"), "{text}");
}

#[test]
fn external_data_is_read_from_the_folder_of_the_file_alone() {
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

#[test]
fn huge_shapes_are_errors() {
    let dims = |g: &mut GraphProto, d: i64| {
        let shape = g.input[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().shape.as_mut().unwrap();
        shape.dim[2].dim_value = d;
        shape.dim[3].dim_value = d;
    };
    for d in [1 << 20, i64::MAX, -5, 0] {
        assert!(changed(|g| dims(g, d)).is_err(), "{d}");
    }
    for d in [1i64 << 40, i64::MAX, -1] {
        assert!(changed(|g| g.initializer[0].dims[0] = d).is_err(), "{d}");
    }
    // A padding that would make a tensor of a terabyte.
    let text = message(changed(|g| g.node[0].attribute[2].ints = vec![1 << 19; 4]));
    assert!(text.contains("elements"), "{text}");
    // A constant that unfolds.
    assert!(
        changed(|g| {
            let shape = TensorProto {
                name: "s".into(),
                dims: vec![2],
                data_type: 7,
                int64_data: vec![1 << 30, 1 << 30],
                ..Default::default()
            };
            g.initializer.push(shape);
            g.node.push(node("ConstantOfShape", &["s"], "big"));
            append(g, "Add");
            g.node.last_mut().unwrap().input.push("big".into());
        })
        .is_err()
    );
}

#[test]
fn external_data_and_nan_weights_are_refused() {
    assert!(message(changed(|g| g.initializer[0].data_location = 1)).contains("external data"));
    assert!(
        message(changed(|g| g.initializer[0].raw_data[..4].copy_from_slice(&f32::NAN.to_le_bytes()))).contains("NaN")
    );
    assert!(message(changed(|g| g.initializer[0].raw_data.truncate(5))).contains("raw bytes"));
    assert!(message(changed(|g| g.initializer[0].data_type = 14)).contains("float32"));
}

#[test]
fn the_batch_is_stripped_whatever_it_is() {
    for (value, name) in [(1, ""), (0, "N"), (7, "")] {
        let net = changed(|g| {
            let shape = g.input[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().shape.as_mut().unwrap();
            shape.dim[0].dim_value = value;
            shape.dim[0].dim_param = name.into();
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
