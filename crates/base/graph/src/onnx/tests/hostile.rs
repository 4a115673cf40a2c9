//! Files made to harm their reader.

use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};
use tacit_foreign::text::is_plain;

use super::super::proto::{EntryProto, TypeProto};
use super::*;
use crate::ImportOptions;

/// Terminal control characters: a title, a line end, a bell, the direction of letters.
const HOSTILE: &str = "x\u{1b}]0;owned\u{7}\r\nERROR forged\u{202e}\u{9b}2J";

#[test]
fn hostile_names_are_escaped_in_errors() {
    let hostile = || HOSTILE.to_owned();
    let texts = [
        message(changed(|g| append(g, HOSTILE))),
        message(changed(|g| append_with(g, "Selu", |n| n.name = hostile()))),
        message(changed(|g| append_with(g, "Relu", |n| n.domain = hostile()))),
        message(changed(|g| append_with(g, "Relu", |n| n.input[0] = hostile()))),
        message(changed(|g| g.output[0].name = hostile())),
        message(changed(|g| {
            g.node[0].input[0] = hostile();
            g.input[0].name = hostile();
            g.input[0].r#type = Some(TypeProto::default());
        })),
        message(changed(|g| {
            g.initializer[0].name = hostile();
            g.node[0].input[1] = hostile();
            g.initializer[0].data_type = 99;
        })),
        message(changed(|g| {
            let s = HOSTILE.into();
            let attribute = AttributeProto { name: "auto_pad".into(), s, r#type: 3, ..AttributeProto::default() };
            g.node[0].attribute.push(attribute);
        })),
    ];
    for text in texts {
        assert!(text.chars().all(is_plain), "{text:?}");
        assert!(text.contains("owned") && text.chars().count() < 3000, "{text}");
    }
    let long = message(changed(|g| append(g, &"y".repeat(1 << 20))));
    assert!(long.chars().count() < 3000, "{}", long.len());
}

#[test]
fn kept_names_are_plain() {
    let network = changed(|g| {
        g.name = HOSTILE.into();
        let result_name = g.output[0].name.clone();
        let mut relu = node("Relu", &[&result_name], HOSTILE);
        relu.name = HOSTILE.into();
        g.node.push(relu);
        g.output[0].name = HOSTILE.into();
    });
    let imported = crate::import_network(network.unwrap(), &ImportOptions::default()).unwrap();
    let outputs = imported.network.outputs.iter().map(|o| &o.name);
    let nodes = imported.model.graph.nodes.iter().map(|n| &n.name);
    for name in outputs.chain(nodes).chain([&imported.model.interface.name]) {
        assert!(name.chars().all(is_plain), "{name:?}");
    }
    assert_eq!(crate::file::read(&crate::file::write(&imported.model).unwrap()).unwrap(), imported.model);
}

/// A graph whose nodes double a constant `times` times, and then use it.
fn doubled(times: usize, op: impl Fn(&str, &str) -> NodeProto) -> Result<Network, GraphError> {
    changed(|g| {
        g.initializer.push(TensorProto::ints("c0", &[1; 16]));
        (0..times).for_each(|i| g.node.push(op(&format!("c{i}"), &format!("c{}", i + 1))));
        append_reading(g, "Add", &[&format!("c{times}")]);
    })
}

#[test]
fn doubling_constants_are_refused_before_they_are_large() {
    let began = Instant::now();
    let concat = |input: &str, output: &str| NodeProto {
        attribute: vec![AttributeProto::int("axis", 0)],
        ..node("Concat", &[input, input], output)
    };
    for times in [22, 45] {
        let text = message(doubled(times, concat));
        assert!(text.contains("Concat") && text.contains("many times what it stores"), "{text}");
    }
    // The same number of elements, made by one node after the other.
    let copied = message(changed(|g| {
        g.initializer.extend([TensorProto::ints("shape", &[1 << 21]), TensorProto::ints("one", &[1])]);
        append_reading(g, "Add", &["many"]);
        g.node.push(node("Expand", &["one", "shape"], "c0"));
        (0..20).for_each(|i| g.node.push(node("Abs", &[&format!("c{i}")], &format!("c{}", i + 1))));
        g.node.push(node("Abs", &["c20"], "many"));
    }));
    assert!(copied.contains("(Abs)") && copied.contains("many times what it stores"), "{copied}");
    // An axis that becomes empty again, a product of two long axes, and a very large number of
    // axes.
    let vanishing = message(changed(|g| {
        let tensors = [("c", &[1; 4][..]), ("times", &[1 << 40, 0]), ("two", &[2, 2])];
        g.initializer.extend(tensors.map(|(name, values)| TensorProto::ints(name, values)));
        g.node.extend([node("Reshape", &["c", "two"], "square"), node("Tile", &["square", "times"], "end")]);
        g.output[0].name = "end".into();
    }));
    assert!(vanishing.contains("many times what it stores"), "{vanishing}");
    let product = message(changed(|g| {
        let long = |name: &str, dims: Vec<i64>| TensorProto { dims, ..TensorProto::ints(name, &[1; 4000]) };
        g.initializer.extend([long("row", vec![1, 4000]), long("column", vec![4000, 1])]);
        g.node.push(node("Mul", &["row", "column"], "end"));
        g.output[0].name = "end".into();
    }));
    assert!(product.contains("(Mul)") && product.contains("many times what it stores"), "{product}");
    let axes = message(changed(|g| g.initializer[0].dims = vec![1; 100_000]));
    assert!(axes.contains("100000 axes"), "{axes}");
    // An undoubled constant passes the size limit; the Add then fails on shapes.
    assert!(doubled(0, concat).unwrap_err().to_string().contains("does not fit"));
    assert!(began.elapsed() < Duration::from_secs(20), "it may be slow, but must not hang");
}

#[test]
fn a_constant_that_many_nodes_use_is_counted_each_time() {
    let text = message(changed(|g| {
        let input = g.input[0].name.clone();
        let one = TensorProto { dims: vec![], ..TensorProto::ints("one", &[1]) };
        g.initializer = vec![TensorProto::ints("shape", &[1, 1000, 8, 8]), one];
        g.node = vec![node("Expand", &["one", "shape"], "many"), node("Expand", &[&input, "shape"], "t0")];
        (0..2000).for_each(|i| g.node.push(node("Add", &[&format!("t{i}"), "many"], &format!("t{}", i + 1))));
        g.output[0].name = "t2000".into();
    }));
    assert!(text.contains("many times what it stores"), "{text}");
}

#[test]
fn external_data_lies_once_in_regular_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    mkfifoat(CWD, path("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    let sparse = std::fs::File::create(path("sparse")).unwrap();
    sparse.set_len(4 << 27).unwrap();
    let entry = |key: &str, value: &str| EntryProto { key: key.into(), value: value.into() };
    let read = |location: &str, change: &dyn Fn(&mut GraphProto)| {
        let mut model = decode(&zoo::build("tiny-cnn", 1).unwrap());
        let graph = model.graph.as_mut().unwrap();
        let t = &mut graph.initializer[0];
        (t.float_data, t.raw_data, t.data_location) = (vec![], vec![], 1);
        t.external_data = vec![entry("location", location)];
        change(graph);
        parse_in(&model.encode_to_vec(), Some(folder.path())).unwrap_err().to_string()
    };
    for (location, kind) in [("pipe", "a named pipe"), ("folder", "a folder"), ("socket", "a socket")] {
        let text = read(location, &|_| ());
        assert!(text.contains(kind), "{location}: {text}");
    }
    // Three overlapping tensors of half a gibibyte.
    let text = read("sparse", &|g| {
        let tensor = g.initializer[0].clone();
        g.initializer =
            (0..3).map(|i| TensorProto { name: format!("c{i}"), dims: vec![1 << 27], ..tensor.clone() }).collect();
        g.node = vec![node("Sum", &["c0", "c1", "c2"], "end")];
        g.output[0].name = "end".into();
    });
    assert!(text.contains("elements together"), "{text}");
}
