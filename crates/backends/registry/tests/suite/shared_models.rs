//! The real models of `../shared/data`: all import and lower, agree with their float networks, and have the
//! expected numbers of comparisons.

use crate::data::{self, model};
use tacit_backends::cheetah::{Cheetah, Options, online_bytes};
use tacit_backends::ring::{Op, RingGraph, RingModel, RingOptions, agreement, lower, reference};
use tacit_backends::{BackendError, LoweringReport};
use tacit_graph::npy::Npy;
use tacit_graph::{ImportOptions, Imported, file, import};

/// `count` images from a gzipped file of fixed-size records behind a header.
fn images(path: &str, header: usize, record: usize, skip: usize, shape: &[usize], count: usize) -> Option<Npy> {
    use std::io::Read;
    let file = std::fs::File::open(data::folder()?.join(path)).ok()?;
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

/// Imports with 16 training images and checks agreement on test images that the import did not see.
fn check_agreement(name: &str, base: ImportOptions, train: Option<Npy>, test: Option<Npy>, min_agreement: f64) {
    let (Some(bytes), Some(train), Some(test)) = (model(name), train, test) else { return };
    let options = ImportOptions { calibration: Some(train), max_samples: 16, ..base };
    let imported = import(&bytes, &options).unwrap();
    let lowered = lower(&imported.model, &RingOptions::default(), &price).unwrap();
    let test = options.prepare(&imported.network.graph.nodes[0].shape, &test, usize::MAX).unwrap();
    for simulated in [None, Some(1)] {
        let a = agreement(&imported, &lowered, &test, simulated).unwrap();
        assert!(a.same_class >= min_agreement, "{name}: {a:?}\n{}", lowered.report);
        assert_eq!(a.out_of_range, 0, "{name}");
    }
    // What the file keeps is enough to lower the model again.
    let reread = file::read(&file::write(&imported.model).unwrap()).unwrap();
    assert_eq!(reread, imported.model);
    assert_eq!(lower(&reread, &RingOptions::default(), &price).unwrap(), lowered);
}

fn price(graph: &RingGraph) -> Result<f64, BackendError> {
    online_bytes::<Cheetah>(graph, &Options::default()).map(|bytes| bytes as f64)
}

#[test]
fn mnist_agrees() {
    check_agreement("mnist.onnx", ImportOptions::default(), mnist("train", 16), mnist("t10k", 200), 0.995);
}

#[test]
fn resnet8_agrees() {
    let (train, test) = (cifar("data_batch_1", 16), cifar("test_batch", 50));
    check_agreement("mlperftiny_resnet8_cifar10.onnx", ImportOptions::default(), train, test, 0.98);
}

#[test]
fn resnet20_agrees() {
    let (train, test) = (cifar("data_batch_1", 16), cifar("test_batch", 50));
    check_agreement("resnet20_cifar10.onnx", imagenet_normalisation(), train, test, 0.98);
}

#[test]
fn squeezenet_has_the_comparisons_that_are_known() {
    let Some(bytes) = model("squeezenet1.1_fp32.onnx") else { return };
    // Fixed scales, because the search for scales would take too long.
    let imported = import(&bytes, &imagenet_normalisation()).unwrap();
    let options = RingOptions { frac_bits: Some(8), ..RingOptions::default() };
    let report = lower(&imported.model, &options, &price).unwrap().report;
    let c = report.comparisons;
    assert_eq!((c.relu, c.max_pool), (1_557_160, 2_001_664));
    assert!(report.macs > 340_000_000);
    // Classes of random inputs mean nothing, so only the error is checked.
    assert!(report.output_error < 0.02, "{}", report);
}

/// Whether a value leaves the part of its ring in which results are right: half of the ring, or a
/// quarter where the value is widened or compared with others.
fn overflows(lowered: &RingModel, input: &[f32]) -> bool {
    let nodes = lowered.graph.nodes();
    let ints = reference::quantize_input(&lowered.graph, input).unwrap();
    let beyond = reference::range_check(&lowered.graph, &lowered.weights, &ints).unwrap();
    beyond.iter().any(|out| {
        let mut readers = nodes.iter().filter(|n| n.inputs.contains(&out.node));
        let quarter = readers.any(|n| match n.op {
            Op::Relu => n.fixed.width > nodes[out.node].fixed.width,
            _ => matches!(n.op, Op::MaxPool(_) | Op::ArgMax | Op::Widen),
        });
        quarter || out.max_abs >= 2 * out.limit
    })
}

/// Inputs unlike those of data sets and of the importer's search: diagonals, rings, crosses, blocks of
/// colours.
fn synthetic_inputs(imported: &Imported) -> Vec<Vec<f32>> {
    let shape = imported.model.interface.input_shape.clone();
    let [low, high] = imported.model.interface.input.range.ends();
    let (height, width) = (shape[1], shape[2]);
    let patterns: [fn(usize, usize, usize) -> bool; 10] = [
        |c, y, x| (c + y + x) % 3 == 0,
        |_, y, x| (y + x) % 3 == 0,
        |_, y, x| (y + x) % 4 < 2,
        |_, y, x| (y as i64 - x as i64).rem_euclid(5) < 2,
        |_, y, x| (y / 3 + x / 3) % 2 == 0,
        |_, y, x| y % 3 == 1 && x % 3 == 1,
        |_, y, x| y.abs_diff(16).pow(2) + x.abs_diff(16).pow(2) < 100,
        |_, y, x| (y.abs_diff(16) + x.abs_diff(16)) % 2 == 0 && y < 20,
        |c, y, x| (y / 5 + x / 5 + c) % 2 == 0,
        |c, y, x| (x * 7 + y * 13 + c * 29) % 11 < 5,
    ];
    let pick = |p: &fn(usize, usize, usize) -> bool, i: usize| {
        if p(i / (height * width), i / width % height, i % width) { high } else { low }
    };
    let inputs = patterns.iter().map(|p| (0..shape[0] * height * width).map(|i| pick(p, i)).collect::<Vec<f32>>());
    // A channel may have a narrower range than the input as a whole.
    inputs
        .map(|mut values| {
            imported.model.interface.clip(&mut values);
            values
        })
        .collect()
}

#[test]
fn a_checkerboard_does_not_overflow_resnet8() {
    let (Some(bytes), Some(train), Some(board)) =
        (model("mlperftiny_resnet8_cifar10.onnx"), cifar("data_batch_1", 32), data::array("overflow_checkerboard.npy"))
    else {
        return;
    };
    let options = ImportOptions { calibration: Some(train), max_samples: 32, ..ImportOptions::default() };
    let imported = import(&bytes, &options).unwrap();
    let lowered = lower(&imported.model, &RingOptions::default(), &price).unwrap();
    let mut inputs = options.prepare(&imported.network.graph.nodes[0].shape, &board, 1).unwrap();
    inputs.extend(synthetic_inputs(&imported));
    let wrong = inputs.iter().filter(|x| overflows(&lowered, &imported.client_input(x))).count();
    assert_eq!(wrong, 0, "{}", lowered.report);
    let a = agreement(&imported, &lowered, &inputs[..1], None).unwrap();
    assert!(a.same_class == 1.0, "{a:?}");
    assert!(a.max_error < 0.05, "{a:?}");
    assert!(lowered.report.overflow.certain > 0);
    assert!(lowered.report.overflow.likely > 0);

    // With clamps no node can overflow, even with two calibration images.
    let few_samples = import(&bytes, &ImportOptions { calibration: cifar("data_batch_1", 2), ..options }).unwrap();
    let clamped = lower(&few_samples.model, &RingOptions { clamp: true, ..RingOptions::default() }, &price).unwrap();
    assert_eq!(clamped.report.overflow.likely, 0, "{}", clamped.report);
    assert!(inputs.iter().all(|x| !overflows(&clamped, &few_samples.client_input(x))));
    let images = cifar("test_batch", 100).unwrap();
    let test =
        ImportOptions::default().prepare(&few_samples.network.graph.nodes[0].shape, &images, usize::MAX).unwrap();
    let a = agreement(&few_samples, &clamped, &test, Some(1)).unwrap();
    assert!(a.same_class >= 0.97, "{a:?}");
}

#[test]
fn four_calibration_images_give_rings_without_overflow() {
    let (Some(bytes), Some(train), Some(test)) =
        (model("resnet20_cifar10.onnx"), cifar("data_batch_1", 4), cifar("test_batch", 100))
    else {
        return;
    };
    let options = ImportOptions { calibration: Some(train), ..imagenet_normalisation() };
    let imported = import(&bytes, &options).unwrap();
    let lowered = lower(&imported.model, &RingOptions::default(), &price).unwrap();
    assert_eq!(lowered.report.agreement, None);
    assert!(lowered.report.warnings().iter().any(|w| w.contains("4 samples")), "{}", lowered.report);
    let mut inputs = options.prepare(&imported.network.graph.nodes[0].shape, &test, usize::MAX).unwrap();
    inputs.extend(synthetic_inputs(&imported));
    let wrong = inputs.iter().filter(|x| overflows(&lowered, &imported.client_input(x))).count();
    assert_eq!(wrong, 0, "{}", lowered.report);
}
