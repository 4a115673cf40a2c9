//! The real models of `../shared/data`: all import and lower, agree with their float networks, and have the comparisons that are known.

use std::path::{Path, PathBuf};

use tacit_backends::BackendError;
use tacit_backends::cheetah::{Options, online_bytes};
use tacit_backends::ring::{RingGraph, RingOptions, agreement, lower};
use tacit_graph::npy::Npy;
use tacit_graph::{ImportOptions, file, import};

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

/// `count` images from a gzipped file of fixed-size records behind a header.
fn images(path: &str, header: usize, record: usize, skip: usize, shape: &[usize], count: usize) -> Option<Npy> {
    use std::io::Read;
    let file = std::fs::File::open(data()?.join(path)).ok()?;
    let mut bytes = vec![0; header + count * record];
    flate2::read::GzDecoder::new(file).read_exact(&mut bytes).ok()?;
    let data = bytes[header..].chunks(record).flat_map(|r| r[skip..].iter().map(|&b| f32::from(b))).collect();
    Some(Npy { shape: [&[count], shape].concat(), data, is_bytes: true })
}

fn mnist(name: &str, count: usize) -> Option<Npy> {
    images(&format!("mnist/{name}-images-idx3-ubyte.gz"), 16, 784, 0, &[1, 28, 28], count)
}

fn cifar(name: &str, count: usize) -> Option<Npy> {
    images(&format!("cifar10/{name}.bin.gz"), 0, 3073, 1, &[3, 32, 32], count)
}

fn imagenet_normalisation() -> ImportOptions {
    ImportOptions {
        pixel_scale: 1.0 / 255.0,
        mean: vec![0.485, 0.456, 0.406],
        std: vec![0.229, 0.224, 0.225],
        ..ImportOptions::default()
    }
}

/// Imports with 16 training images and demands agreement on test images that the import did not see.
fn agree(name: &str, base: ImportOptions, train: Option<Npy>, test: Option<Npy>, least: f64) {
    let (Some(bytes), Some(train), Some(test)) = (model(name), train, test) else { return };
    let options = ImportOptions { calibration: Some(train), max_samples: 16, ..base };
    let imported = import(&bytes, &options).unwrap();
    let lowered = lower(&imported.model, &RingOptions::default(), &price).unwrap();
    let test = options.prepare(&imported.network.graph.nodes[0].shape, &test, usize::MAX).unwrap();
    for simulated in [None, Some(1)] {
        let a = agreement(&imported, &lowered, &test, simulated).unwrap();
        assert!(a.same_class >= least, "{name}: {a:?}\n{}", lowered.report);
        assert_eq!(a.out_of_range, 0, "{name}");
    }
    // What the file keeps is enough to lower the model again.
    let back = file::read(&file::write(&imported.model).unwrap()).unwrap();
    assert_eq!(back, imported.model);
    assert_eq!(lower(&back, &RingOptions::default(), &price).unwrap(), lowered);
}

fn price(graph: &RingGraph) -> Result<f64, BackendError> {
    online_bytes(graph, &Options::default()).map(|bytes| bytes as f64)
}

#[test]
fn mnist_agrees() {
    agree("mnist.onnx", ImportOptions::default(), mnist("train", 16), mnist("t10k", 200), 0.995);
}

#[test]
fn resnet8_agrees() {
    let (train, test) = (cifar("data_batch_1", 16), cifar("test_batch", 50));
    agree("mlperftiny_resnet8_cifar10.onnx", ImportOptions::default(), train, test, 0.98);
}

#[test]
fn resnet20_agrees() {
    let (train, test) = (cifar("data_batch_1", 16), cifar("test_batch", 50));
    agree("resnet20_cifar10.onnx", imagenet_normalisation(), train, test, 0.98);
}

#[test]
fn squeezenet_has_the_comparisons_that_are_known() {
    let Some(bytes) = model("squeezenet1.1_fp32.onnx") else { return };
    // Given scales: the search would take longer than this test may.
    let imported = import(&bytes, &imagenet_normalisation()).unwrap();
    let options = RingOptions { frac_bits: Some(8), ..RingOptions::default() };
    let report = lower(&imported.model, &options, &price).unwrap().report;
    let c = report.comparisons;
    assert_eq!((c.relu, c.max_pool), (1_557_160, 2_001_664));
    assert!(report.macs > 340_000_000);
    // Random inputs have no class worth speaking of.
    assert!(report.output_error < 0.02, "{}", report);
}
