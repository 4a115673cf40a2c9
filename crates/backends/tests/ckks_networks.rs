//! Real networks on `ckks`: heavy, so `make test-heavy` runs them. Without `../shared/data` they say that
//! they are skipped.

#[path = "../../graph/tests/data/mod.rs"]
mod data;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tacit_backends::check::check;
use tacit_backends::ckks::Ckks;
use tacit_backends::{Aids, Backend, ClientModel, Material, Options, ServerModel};
use tacit_graph::npy::Npy;
use tacit_graph::{ImportOptions, Model, Watch, import};
use tacit_mpc::run_pair;

/// Images `from ..` of a file of CIFAR-10, with their labels.
fn cifar(name: &str, from: usize, count: usize) -> Option<(Npy, Vec<usize>)> {
    use std::io::Read;
    let file = std::fs::File::open(data::folder()?.join(format!("cifar10/{name}.bin.gz"))).ok()?;
    let mut bytes = vec![0; 3073 * (from + count)];
    flate2::read::GzDecoder::new(file).read_exact(&mut bytes).ok()?;
    let records = || bytes.chunks(3073).skip(from);
    let data = records().flat_map(|r| r[1..].iter().map(|&b| f32::from(b))).collect();
    let labels = records().map(|r| r[0].into()).collect();
    Some((Npy { shape: vec![count, 3, 32, 32], data, is_bytes: true }, labels))
}

/// ResNet-20 with HerPN activations.
const AESPA: &str = "ckks/resnet20_aespa_cifar10.onnx";
/// ResNet-20 with ReLU, and how composites stand for it.
const MPCNN: [&str; 2] = ["models/resnet20_cifar10_bnfolded.onnx", "tolerance=0.002,margin=2"];

/// A network, its normalisation and calibration images.
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
    Some((import(&bytes, &options).expect("the network imports").model, options))
}

fn skipped<T>(found: Option<T>) -> Option<T> {
    if found.is_none() {
        eprintln!("skipped: ../shared/data is not there");
    }
    found
}

/// Lowered with `options`, or those of the environment.
fn lowered(model: &Model, options: &str) -> Arc<dyn ServerModel> {
    let own = std::env::var("TACIT_OPTIONS");
    let options = own.as_deref().unwrap_or(options);
    let started = Instant::now();
    let server = Ckks.lower(model, &options.parse::<Options>().unwrap()).unwrap();
    eprintln!("lowered in {:.1} s\n{}", started.elapsed().as_secs_f64(), server.report().unwrap());
    server
}

fn inputs(options: &ImportOptions, npy: &Npy) -> Vec<Vec<f32>> {
    options.prepare(&[3, 32, 32], npy, usize::MAX).unwrap()
}

/// Processor seconds of this process, both parties' threads (0 where the system does not tell).
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat
        .rsplit(')')
        .next()
        .map(|rest| rest.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()));
    ticks.map_or(0.0, |ticks| ticks.sum::<f64>() / 100.0)
}

/// Seconds that went into each kind of step.
struct Split {
    last: Instant,
    seconds: BTreeMap<&'static str, f64>,
}

impl Split {
    fn new() -> Self {
        Self { last: Instant::now(), seconds: BTreeMap::new() }
    }

    fn note(&mut self, what: &'static str) -> bool {
        let now = Instant::now();
        *self.seconds.entry(what).or_default() += (now - self.last).as_secs_f64();
        self.last = now;
        true
    }
}

/// Setup and answers of two parties, with what they took.
fn encrypted(server: &Arc<dyn ServerModel>, inputs: &[Vec<f32>]) -> Vec<Vec<f64>> {
    let client: Arc<dyn ClientModel> = Ckks.open(server.public_bytes()).unwrap();
    let split = Arc::new(Mutex::new(Split::new()));
    let (asked, ()) = run_pair(
        |channel| {
            let mut side = client.clone().connect(&Aids::default()).unwrap();
            let (started, cpu) = (Instant::now(), cpu_s());
            side.setup(channel).unwrap();
            let (sent, took, cpu) = (channel.total_traffic().sent, started.elapsed().as_secs_f64(), cpu_s() - cpu);
            eprintln!("setup: {took:.1} s, {cpu:.1} s of processors, {:.1} MB up", sent as f64 / 1e6);
            let answer = |x: &Vec<f32>| {
                let (started, cpu) = (Instant::now(), cpu_s());
                let answer = side.online(channel, Material::nothing(), x).unwrap();
                let (took, cpu) = (started.elapsed().as_secs_f64(), cpu_s() - cpu);
                eprintln!("an input: {took:.1} s, {cpu:.1} s of processors");
                answer
            };
            inputs.iter().map(answer).collect::<Vec<_>>()
        },
        |channel| {
            let watch = Watch::new({
                let split = split.clone();
                move |step| split.lock().unwrap().note(step.what)
            });
            let mut side = server.clone().connect(&Aids { watch, ..Aids::default() }).unwrap();
            side.setup(channel).unwrap();
            channel.flush().unwrap();
            for i in 0..inputs.len() {
                *split.lock().unwrap() = Split::new();
                let threads = threads(i);
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| side.online(channel, Material::nothing())).unwrap();
                eprintln!("server, {threads} threads (0: all): {:.2?} s; {}", split.lock().unwrap().seconds, memory());
            }
        },
    );
    asked
}

fn class(values: &[f64]) -> usize {
    (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap()
}

/// Threads for input `i`: `TACIT_THREADS=1,2` takes turns.
fn threads(i: usize) -> usize {
    let list = std::env::var("TACIT_THREADS").unwrap_or_default();
    let all: Vec<usize> = list.split(',').filter_map(|n| n.parse().ok()).collect();
    if all.is_empty() { 0 } else { all[i % all.len()] }
}

/// Inputs that the environment asks for.
fn images(default: usize) -> usize {
    std::env::var("TACIT_IMAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn agrees_in_the_clear(file: &str, options: &str) -> Option<(Arc<dyn ServerModel>, ImportOptions)> {
    let (model, import) = skipped(network(file))?;
    let server = lowered(&model, options);
    let (images, labels) = cifar("test_batch", 0, images(200)).unwrap();
    let started = Instant::now();
    let found = check(&model, &*server, &inputs(&import, &images), Some(&labels), &Watch::default()).unwrap();
    eprintln!("{found:#?}\n{:.1} s", started.elapsed().as_secs_f64());
    assert!(found.agreement >= 0.98, "{found:?}");
    Some((server, import))
}

fn is_answered_from_one_ciphertext(file: &str, options: &str) {
    let Some((model, import)) = skipped(network(file)) else { return };
    let server = lowered(&model, options);
    let (images, _) = cifar("test_batch", 0, images(1)).unwrap();
    let images = inputs(&import, &images);
    for (x, got) in images.iter().zip(encrypted(&server, &images)) {
        let (twin, float) = (server.reference(x).unwrap(), model.run(x).unwrap());
        let off = twin.iter().zip(&got).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let bound = server.error_bound(&twin);
        eprintln!(
            "encrypted {got:.3?}\ntwin      {twin:.3?}\nfloat     {float:.3?}\noff by {off:.2e}, {bound:.2e} is stated"
        );
        assert!(off <= bound && class(&got) == class(&float));
    }
    eprintln!("{}", memory());
}

/// What the system says of this process's memory.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|l| l.starts_with("VmHWM") || l.starts_with("VmRSS")).collect::<Vec<_>>().join(", ")
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn aespa_agrees_in_the_clear_and_wild_inputs_are_noticed() {
    let Some((server, import)) = agrees_in_the_clear(AESPA, "") else { return };
    // It diverges on this image, in floats too.
    let (wild, _) = cifar("test_batch", 4453, 1).unwrap();
    let strain = server.strain(&inputs(&import, &wild)[0]).unwrap();
    assert!(strain.iter().any(|s| s.share >= 1.0), "{strain:?}");
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn aespa_is_answered_from_one_ciphertext() {
    is_answered_from_one_ciphertext(AESPA, "");
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
