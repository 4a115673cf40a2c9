//! Real networks on `ckks`, which `make test-heavy` runs. Without `../shared/data` the tests print that
//! they are skipped.

#[path = "../../../base/graph/tests/data/mod.rs"]
mod data;

use std::sync::Arc;
use std::time::Instant;

use tacit_backends::check::{check, run_privately};
use tacit_backends::ckks::Ckks;
use tacit_backends::{Backend, Options, ServerModel};
use tacit_graph::npy::Npy;
use tacit_graph::{ImportOptions, Model, Watch, import};

/// Images `first ..` of a file of CIFAR-10, with their labels.
fn cifar(name: &str, first: usize, count: usize) -> Option<(Npy, Vec<usize>)> {
    use std::io::Read;
    let file = std::fs::File::open(data::folder()?.join(format!("cifar10/{name}.bin.gz"))).ok()?;
    let mut bytes = vec![0; 3073 * (first + count)];
    flate2::read::GzDecoder::new(file).read_exact(&mut bytes).ok()?;
    let records = || bytes.chunks(3073).skip(first);
    let data = records().flat_map(|r| r[1..].iter().map(|&b| f32::from(b))).collect();
    let labels = records().map(|r| r[0].into()).collect();
    Some((Npy { shape: vec![count, 3, 32, 32], data, is_bytes: true }, labels))
}

/// File and options of ResNet-20 with HerPN activations, which may be wrong unnoticed far from images.
const AESPA: [&str; 2] = ["ckks/resnet20_aespa_cifar10.onnx", "unnoticed=1"];
/// File and options of ResNet-20 with ReLU, for which composite polynomials stand.
const MPCNN: [&str; 2] = ["models/resnet20_cifar10_bnfolded.onnx", "tolerance=0.002,margin=2"];

fn network(file: &str) -> Option<(Model, ImportOptions)> {
    let bytes = std::fs::read(data::folder()?.join(file)).ok()?;
    let (calibration, _) = cifar("data_batch_1", 0, 64)?;
    let options = ImportOptions {
        pixel_scale: 1.0 / 255.0,
        mean: vec![0.4914, 0.4822, 0.4465],
        std: vec![0.2023, 0.1994, 0.2010],
        calibration: Some(calibration),
        ..ImportOptions::default()
    };
    Some((import(&bytes, &options).unwrap().model, options))
}

fn note_skipped<T>(value: Option<T>) -> Option<T> {
    if value.is_none() {
        eprintln!("skipped: ../shared/data is not there");
    }
    value
}

/// Lowers a model with `options`, or those of the environment.
fn lower(model: &Model, options: &str) -> Arc<dyn ServerModel> {
    let env_options = std::env::var("TACIT_OPTIONS");
    let options = env_options.as_deref().unwrap_or(options);
    let started = Instant::now();
    let server = Ckks.lower(model, &options.parse::<Options>().unwrap()).unwrap();
    eprintln!("lowered in {:.1} s\n{}", started.elapsed().as_secs_f64(), server.report().unwrap());
    server
}

fn inputs(options: &ImportOptions, npy: &Npy) -> Vec<Vec<f32>> {
    options.prepare(&[3, 32, 32], npy, usize::MAX).unwrap()
}

fn images(default: usize) -> usize {
    std::env::var("TACIT_IMAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn agrees_in_the_clear(file: &str, options: &str) -> Option<(Arc<dyn ServerModel>, ImportOptions)> {
    let (model, import) = note_skipped(network(file))?;
    let server = lower(&model, options);
    let (images, labels) = cifar("test_batch", 0, images(200)).unwrap();
    let started = Instant::now();
    let report = check(&model, &*server, &inputs(&import, &images), Some(&labels), &Watch::default()).unwrap();
    eprintln!("{report:#?}\n{:.1} s", started.elapsed().as_secs_f64());
    assert!(report.agreement >= 0.98, "{report:?}");
    Some((server, import))
}

fn is_answered_from_one_ciphertext(file: &str, options: &str) {
    let Some((model, import)) = note_skipped(network(file)) else { return };
    let server = lower(&model, options);
    let (images, _) = cifar("test_batch", 0, images(1)).unwrap();
    let report = run_privately(&model, &Ckks, &server, &inputs(&import, &images), &Watch::default()).unwrap();
    eprintln!("{report:#?}\n{}", memory());
    let stated = report.stated.unwrap();
    assert!(report.inputs > 0, "{report:?}");
    assert!(report.same_class == report.inputs, "{report:?}");
    assert!(report.off <= stated, "{report:?}");
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|l| l.starts_with("VmHWM") || l.starts_with("VmRSS")).collect::<Vec<_>>().join(", ")
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn aespa_agrees_in_the_clear_and_wild_inputs_are_noticed() {
    let Some((server, import)) = agrees_in_the_clear(AESPA[0], AESPA[1]) else { return };
    // The network diverges on this image, in floats too.
    let (wild, _) = cifar("test_batch", 4453, 1).unwrap();
    let strain = server.strain(&inputs(&import, &wild)[0]).unwrap();
    assert!(strain.iter().any(|s| s.share >= 1.0), "{strain:?}");
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn aespa_is_answered_from_one_ciphertext() {
    is_answered_from_one_ciphertext(AESPA[0], AESPA[1]);
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn mpcnn_agrees_in_the_clear() {
    agrees_in_the_clear(MPCNN[0], MPCNN[1]);
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn mpcnn_is_answered_from_one_ciphertext() {
    is_answered_from_one_ciphertext(MPCNN[0], MPCNN[1]);
}
