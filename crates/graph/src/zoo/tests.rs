use super::*;
use crate::float::run::run;
use crate::onnx::parse;
use crate::rng::SplitMix;

#[test]
fn every_network_but_the_largest_is_read_back() {
    for (name, shape) in NAMES {
        // 528 MB of random weights prove nothing that the others do not.
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
fn the_seed_decides() {
    assert_eq!(build("tiny-mlp", 1).unwrap(), build("tiny-mlp", 1).unwrap());
    assert_ne!(build("tiny-mlp", 1).unwrap(), build("tiny-mlp", 2).unwrap());
    assert!(build("nothing", 1).unwrap_err().to_string().contains("squeezenet1.1"));
}

#[test]
fn activations_stay_sane() {
    for name in ["resnet32", "squeezenet1.1"] {
        let net = parse(&build(name, 1).unwrap()).unwrap().graph;
        let mut rng = SplitMix::new(2);
        let x: Vec<f32> = (0..net.nodes[0].elements()).map(|_| rng.range(-2.0, 2.0) as f32).collect();
        let y = run(&net, &x).unwrap();
        let largest = y.iter().fold(0f32, |m, v| m.max(v.abs()));
        assert!((0.05..100.0).contains(&largest), "{name}: {largest}");
    }
}
