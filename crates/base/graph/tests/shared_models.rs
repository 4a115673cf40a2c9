//! The real models of `../shared/data`.

mod data;

use data::model;
use tacit_graph::float::run::run;
use tacit_graph::onnx::{Network, parse};

#[test]
fn both_forms_of_resnet20_are_the_same_function() {
    let (Some(a), Some(b)) = (model("resnet20_cifar10.onnx"), model("resnet20_cifar10_bnfolded.onnx")) else { return };
    let (a, b) = (parse(&a).unwrap(), parse(&b).unwrap());
    let x: Vec<f32> = (0..3072).map(|i| ((i * 37 % 101) as f32 - 50.0) / 25.0).collect();
    let floats = |net: &Network| run(&net.graph, &x).unwrap();
    for (p, q) in floats(&a).iter().zip(floats(&b)) {
        assert!((p - q).abs() < 1e-3 * (1.0 + q.abs()), "{p} {q}");
    }
}
