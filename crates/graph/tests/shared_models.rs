//! The real models of `../shared/data`.

use std::path::{Path, PathBuf};

use tacit_graph::float::run::run;
use tacit_graph::onnx::{Network, parse};

/// The shared data folder, from the repository root upwards; `None` (said on the terminal) where there is none.
fn data() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().map(|a| a.join("shared/data")).find(|p| p.is_dir());
    if found.is_none() {
        eprintln!("SKIP: no shared/data above {}", here.display());
    }
    found
}

fn model(name: &str) -> Option<Vec<u8>> {
    let path = data()?.join("models").join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Some(bytes),
        Err(e) => {
            eprintln!("SKIP: {}: {e}", path.display());
            None
        }
    }
}

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
