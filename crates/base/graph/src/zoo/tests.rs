use super::*;
use crate::float::FloatOp;
use crate::float::run::run;
use crate::onnx::parse;
use crate::onnx::proto::ModelProto;
use crate::rng::SplitMix;

/// Layers as "op kernel shape", without the ReLU behind each convolution and hidden layer.
fn describe_layers(net: &Outline) -> String {
    let layers = net.layers.iter().filter(|l| l.op != "Relu");
    layers.map(|l| format!("{} {} {:?}", l.op, l.kernel, l.shape)).collect::<Vec<_>>().join("; ")
}

/// [SS26] states the kinds and numbers of layers and the memory of the parameters, four bytes a
/// number. For AlexNet and VGG-16 it counts only the ReLUs behind convolutions.
#[test]
fn networks_of_ss26_have_its_counts_and_sizes() {
    for (name, convolutions, dense, relus, pools, megabytes) in [
        ("m1", 2, 1, 2, 2, 1.6),
        ("m2", 4, 1, 4, 2, 4.0),
        ("hinet", 2, 1, 2, 1, 2.4),
        ("alexnet", 5, 3, 5 + 2, 3, 240.0),
        ("vgg16", 13, 3, 13 + 2, 5, 552.0),
    ] {
        let net = outline(name).unwrap();
        let counts = ["Conv", "Gemm", "Relu", "MaxPool", "AveragePool"].map(|op| net.count(op));
        assert_eq!(counts, [convolutions, dense, relus, pools, 0], "{name}");
        let ours = 4e-6 * net.parameters() as f64;
        assert!((ours / megabytes - 1.0).abs() < 0.02, "{name}: {ours} MB");
    }
}

/// Name, layers without the last fully connected one, parameters, multiplications.
const SMALL: &[(&str, &str, u64, u64)] = &[
    (
        "m1",
        "Conv 5 [64, 24, 24]; MaxPool 2 [64, 12, 12]; Conv 5 [224, 8, 8]; MaxPool 2 [224, 4, 4]; Flatten 0 [3584]",
        396_138,
        23_895_040,
    ),
    (
        "m2",
        "Conv 3 [48, 32, 32]; MaxPool 2 [48, 16, 16]; Conv 3 [96, 16, 16]; MaxPool 2 [96, 8, 8]; Conv 3 [192, 6, 6]; \
         Conv 3 [416, 4, 4]; Flatten 0 [6656]",
        994_826,
        29_484_032,
    ),
    (
        "hinet",
        "Conv 5 [64, 30, 30]; MaxPool 3 [64, 14, 14]; Conv 5 [192, 12, 12]; Flatten 0 [27648]",
        588_746,
        48_833_280,
    ),
    (
        "hinet-mnist",
        "Conv 5 [64, 26, 26]; MaxPool 3 [64, 12, 12]; Conv 5 [192, 10, 10]; Flatten 0 [19200]",
        501_066,
        31_993_600,
    ),
    (
        "shark-hinet",
        "Conv 5 [64, 30, 30]; MaxPool 3 [64, 14, 14]; Conv 5 [64, 12, 12]; MaxPool 3 [64, 5, 5]; Conv 5 [64, 3, 3]; \
         MaxPool 3 [64, 1, 1]; Flatten 0 [64]",
        210_442,
        19_987_840,
    ),
    (
        "minionn-mnist",
        "Conv 5 [16, 24, 24]; MaxPool 2 [16, 12, 12]; Conv 5 [16, 8, 8]; MaxPool 2 [16, 4, 4]; Flatten 0 [256]; \
         Gemm 0 [100]",
        33_542,
        666_600,
    ),
];

#[test]
fn the_small_networks_have_these_layers() {
    for &(name, layers, parameters, macs) in SMALL {
        let net = outline(name).unwrap();
        assert_eq!(describe_layers(&net), format!("{layers}; Gemm 0 [10]"), "{name}");
        assert_eq!((net.parameters(), net.macs()), (parameters, macs), "{name}");
    }
}

/// Sizes known from torchvision, and from the shared SqueezeNet.
#[test]
fn the_large_networks_have_their_known_sizes() {
    for (name, parameters, macs) in [
        ("alexnet", 61_100_840, 714_188_480),
        ("vgg16", 138_357_544, 15_470_264_320),
        ("squeezenet1.1", 1_235_496, 349_151_936),
        ("minionn-cifar", 164_954, 61_089_792),
    ] {
        let net = outline(name).unwrap();
        assert_eq!((net.parameters(), net.macs()), (parameters, macs), "{name}");
    }
    assert!(outline("nothing").unwrap_err().to_string().contains("squeezenet1.1"));
}

#[test]
fn an_outline_equals_the_file() {
    for name in ["m1", "hinet-mnist", "shark-hinet", "minionn-mlp", "tiny-cnn", "resnet32"] {
        let (bytes, net) = (build(name, 1).unwrap(), outline(name).unwrap());
        let file = ModelProto::decode(bytes.as_slice()).unwrap().graph.unwrap();
        let ops: Vec<&str> = file.node.iter().map(|n| n.op_type.as_str()).collect();
        assert_eq!(ops, net.layers.iter().map(|l| l.op.as_str()).collect::<Vec<_>>(), "{name}");
        let numbers: usize = file.initializer.iter().map(|t| t.raw_data.len() / 4).sum();
        assert_eq!(numbers as u64, net.parameters(), "{name}");
        let graph = parse(&bytes).unwrap().graph;
        let weighted = graph.nodes.iter().filter(|n| matches!(n.op, FloatOp::Conv { .. } | FloatOp::Dense { .. }));
        assert_eq!(weighted.map(|n| graph.macs_of(n)).sum::<u64>(), net.macs(), "{name}");
    }
}

#[test]
fn every_network_but_the_largest_is_read_back() {
    for (name, shape) in NAMES {
        // 528 MB of random weights would test nothing that the others do not.
        if *name == "vgg16" || *name == "alexnet" {
            continue;
        }
        let net = parse(&build(name, 1).unwrap()).unwrap();
        assert_eq!(net.graph.nodes[0].shape, shape, "{name}");
        let classes = net.graph.nodes[net.graph.output].elements();
        assert_eq!(classes, if shape[1] == 224 { 1000 } else { 10 }, "{name}");
    }
}

#[test]
fn weights_follow_from_the_seed() {
    assert_eq!(build("tiny-mlp", 1).unwrap(), build("tiny-mlp", 1).unwrap());
    assert_ne!(build("tiny-mlp", 1).unwrap(), build("tiny-mlp", 2).unwrap());
    assert!(build("nothing", 1).unwrap_err().to_string().contains("squeezenet1.1"));
}

#[test]
fn activations_keep_their_size() {
    for name in ["resnet32", "squeezenet1.1"] {
        let net = parse(&build(name, 1).unwrap()).unwrap().graph;
        let mut rng = SplitMix::new(2);
        let x: Vec<f32> = rng.floats(net.nodes[0].elements(), -2.0, 2.0);
        let y = run(&net, &x).unwrap();
        let largest = tacit_floats::largest_magnitude(y);
        assert!((0.05..100.0).contains(&largest), "{name}: {largest}");
    }
}
