//! Functions in the middle of a network, from an ONNX file to an answer: by tables where a back end has them.

use prost::Message;
use tacit_backends::{BackendError, ConnectionResources, Options, Registry, Setup};
use tacit_graph::Interval;
use tacit_graph::import::{ImportOptions, Imported, import};
use tacit_graph::npy::Npy;
use tacit_graph::onnx::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto};
use tacit_graph::rng::SplitMix;
use tacit_mpc::run_pair;

use crate::conformance::parties::{Models, is_near, resources};

const FEATURES: usize = 12;

/// A node whose name is that of its result.
fn node(op: &str, name: &str, inputs: &[&str]) -> NodeProto {
    NodeProto { name: name.into(), ..NodeProto::new(op, inputs, &[name]) }
}

/// 12 features, three layers of 16 with tanh, GELU and a sigmoid between them, five results.
fn network() -> Vec<u8> {
    let mut rng = SplitMix::new(11);
    let mut weights = |name: &str, rows: usize, columns: usize, size: f64| {
        let values = rng.floats(rows * columns, -size, size);
        TensorProto::floats(name, &[rows as i64, columns as i64], values)
    };
    let graph = GraphProto {
        node: vec![
            node("MatMul", "first", &["x", "a"]),
            node("Tanh", "tanh", &["first"]),
            node("MatMul", "second", &["tanh", "b"]),
            node("Gelu", "gelu", &["second"]),
            node("MatMul", "third", &["gelu", "c"]),
            node("Sigmoid", "gate", &["third"]),
            node("MatMul", "y", &["gate", "d"]),
        ],
        name: "functions".into(),
        initializer: vec![
            weights("a", FEATURES, 16, 1.5),
            weights("b", 16, 16, 1.0),
            weights("c", 16, 16, 1.0),
            weights("d", 16, 5, 1.0),
        ],
        input: vec![ValueInfoProto::floats("x", &[1, FEATURES as i64])],
        output: vec![ValueInfoProto { name: "y".into(), ..ValueInfoProto::default() }],
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 20 }];
    ModelProto { graph: Some(graph), opset_import, ..ModelProto::default() }.encode_to_vec()
}

fn import_network() -> Imported {
    let mut rng = SplitMix::new(3);
    let data = rng.floats(32 * FEATURES, -1.0, 1.0);
    let options = ImportOptions {
        calibration: Some(Npy { shape: vec![32, FEATURES], data, is_bytes: false }),
        range: Some(Interval { low: -1.0, high: 1.0 }),
        ..ImportOptions::default()
    };
    import(&network(), &options).unwrap()
}

/// Runs one inference, with its offline phase.
fn infer(models: &Models, resources: &[ConnectionResources; 2], input: &[f32]) -> Vec<f64> {
    let (answer, served) = run_pair(
        |channel| {
            let mut side = models.set_up_client(&resources[0], channel);
            let material = side.offline(channel).unwrap();
            side.online(channel, material, input).unwrap()
        },
        |channel| {
            let mut side = models.set_up_server(&resources[1], channel);
            let material = side.offline(channel)?;
            side.online(channel, material)?;
            Ok::<_, BackendError>(channel.flush()?)
        },
    );
    served.unwrap();
    answer
}

#[test]
fn a_network_with_functions_runs_from_its_file_to_its_answer() {
    let (imported, registry, resources) = (import_network(), Registry::standard(), resources());
    // Few pieces of lines, small tables with one-hot vectors, and larger ones with keys.
    let mut worst = Vec::new();
    // Bits that ReLU's test leaves out are not left out where a ReLU clips an index.
    for (backend, options, wide) in [
        ("dealt", "table_bits=5", false),
        ("dealt", "table_bits=8", false),
        ("dealt", "", true),
        ("dealt", "relu_drop=8", true),
        ("fss", "relu_drop=8", true),
    ] {
        let backend = registry.get(backend).unwrap();
        let models = Models::lower(&**backend, &imported.model, &options.parse().unwrap());
        let server = &models.server;
        assert_eq!(server.setup(), Setup::BeforeOffline);
        let mut rng = SplitMix::new(8);
        let mut error = 0f64;
        for _ in 0..6 {
            let input: Vec<f32> = rng.floats(FEATURES, -1.0, 1.0);
            let answer = infer(&models, &resources, &input);
            let reference = server.reference(&input).unwrap();
            assert!(is_near(&**server, &answer, &reference), "{answer:?}, reference {reference:?}");
            for (expected, float) in reference.iter().zip(imported.model.run(&input).unwrap()) {
                // Of the reference: what the protocol adds is drawn anew each time.
                error = error.max((expected - float).abs());
            }
        }
        worst.push(error);
        let tables: Vec<u32> = tables(&server.describe());
        assert_eq!(tables.len(), 3);
        assert_eq!(tables.iter().any(|bits| *bits > 8), wide, "{tables:?}");
        let described = server.describe();
        let is_lines = |node: &&serde_json::Value| node["op"]["LookUp"]["lines"].is_object();
        let lines = described["nodes"].as_array().unwrap().iter().filter(is_lines).count();
        assert!(wide || lines == 3, "{lines} of 3 functions by lines");
    }
    // Results lie in about [-4, 4].
    assert!(worst.iter().all(|error| *error < 0.06), "{worst:?}");
}

/// Index bits of a model's tables.
fn tables(model: &serde_json::Value) -> Vec<u32> {
    let entries = |node: &serde_json::Value| Some(node["op"]["LookUp"]["entries"].as_array()?.len().ilog2());
    model["nodes"].as_array().unwrap().iter().filter_map(entries).collect()
}

#[test]
fn a_back_end_without_tables_names_the_node_and_another_back_end() {
    let error = Registry::standard().get("cheetah").unwrap().lower(&import_network().model, &Options::default());
    let error = error.err().unwrap().to_string();
    assert!(error.contains("tanh"), "{error}");
    assert!(error.contains("Tanh"), "{error}");
    assert!(error.contains("`dealt` has"), "{error}");
}
