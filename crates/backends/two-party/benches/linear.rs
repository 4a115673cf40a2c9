//! The offline work of one linear layer of `cheetah`, party by party, on one thread: a 3 x 3 convolution of
//! ResNet-50 and an expanding pair of SqueezeNet, whose members share the ciphertexts. What the server's
//! transforms alone would take is printed first. `cargo bench -p tacit-two-party --bench linear`.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tacit_arith::modulus::Modulus;
use tacit_arith::ntt::NttTable;
use tacit_arith::prg::{Prg, Seed};
use tacit_he::coeff::{Context, DEGREE, MAX_STEPS, P1};
use tacit_two_party::cheetah::linear::{
    CheckedWeights, ClientKeys, Consumer, ConvSpec, LinearClient, LinearError, LinearPlan, LinearServer, ServerKeys,
};

/// A convolution with stride 1 that keeps the size of a square image.
fn square(in_ch: usize, out_ch: usize, side: usize, kernel: usize) -> ConvSpec {
    let base = ConvSpec::linear(in_ch, out_ch);
    ConvSpec { in_h: side, in_w: side, kernel: (kernel, kernel), pads: [kernel / 2; 4], ..base }
}

fn macs(conv: &ConvSpec) -> u64 {
    (conv.out_len() * conv.in_ch * conv.kernel.0 * conv.kernel.1) as u64
}

/// Seconds of one transform, the best of many.
fn transform() -> f64 {
    let table = NttTable::new(DEGREE, Modulus::new(P1).expect("a prime")).expect("a table");
    let mut words: Vec<u64> = (0..DEGREE as u64).collect();
    let mut once = || {
        let start = Instant::now();
        for _ in 0..100 {
            table.forward(black_box(&mut words));
        }
        start.elapsed().as_secs_f64() / 100.0
    };
    (0..20).map(|_| once()).fold(f64::MAX, f64::min)
}

type Frames = VecDeque<Vec<u8>>;

/// Returns a sink that appends messages to `frames`.
fn keep(frames: &mut Frames) -> impl FnMut(&[u8]) -> Result<(), LinearError> {
    |frame| {
        frames.push_back(frame.to_vec());
        Ok(())
    }
}

/// Returns a source that takes messages from `frames`.
fn source(mut frames: Frames) -> impl FnMut(usize) -> Result<Vec<u8>, LinearError> {
    move |_| Ok(frames.pop_front().expect("the peer sends as many as are read"))
}

/// The server's answers to the client's `frames`, layer by layer.
fn answer(keys: &ServerKeys, plan: &LinearPlan, values: &[Vec<i32>], frames: &Frames) -> Vec<Frames> {
    let mut prg = Prg::from_os().expect("randomness");
    let server = LinearServer::receive_from(keys, plan, &mut source(frames.clone())).expect("the client's");
    let layer = |(k, values): (usize, &Vec<i32>)| {
        let weights = CheckedWeights::new(plan, k, values).expect("within the norm");
        let mut answers = Frames::new();
        server.evaluate(k, &weights, &mut prg, &mut keep(&mut answers)).expect("answers");
        answers
    };
    values.iter().enumerate().map(layer).collect()
}

fn bench(c: &mut Criterion) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool of one thread");
    let layers = [
        ("conv 3x3, 64 to 64, 56 x 56", vec![square(64, 64, 56, 3)]),
        ("expand 1x1 and 3x3, 32 to 128 each, 27 x 27", vec![square(32, 128, 27, 1), square(32, 128, 27, 3)]),
    ];
    let ctx = Arc::new(Context::new().expect("parameters"));
    let mut prg = Prg::from_seed(Seed([1; 16]));
    let (keys, bytes) = ClientKeys::generate(&ctx, MAX_STEPS, &mut prg).expect("keys");
    let server_keys = ServerKeys::read(&ctx, MAX_STEPS, &bytes).expect("its own keys");
    let ntt = transform();
    for (name, convs) in layers {
        let consumers: Vec<Consumer> =
            convs.iter().map(|&conv| Consumer { conv, ring_bits: 30, norm_log2: 12 }).collect();
        let plan = LinearPlan::new(&consumers, 1).expect("a plan");
        let cost = plan.cost();
        let transforms = cost.server_ntts();
        println!(
            "{name}: {} ciphertexts up, {:.2} + {:.2} MB, {} transforms at the server: {:.1} ms of {:.2} us each",
            cost.uploads,
            cost.up_bytes as f64 / 1e6,
            cost.down_bytes() as f64 / 1e6,
            transforms,
            1e3 * ntt * transforms as f64,
            1e6 * ntt,
        );
        let mask: Vec<u64> = (0..plan.input_len()).map(|_| prg.next_u64()).collect();
        let values: Vec<Vec<i32>> = convs
            .iter()
            .map(|conv| (0..conv.weight_len()).map(|_| (prg.next_u64() % 61) as i32 - 30).collect())
            .collect();
        let client = LinearClient::new(&keys, &plan);
        let encrypt = || {
            let mut frames = Frames::new();
            pool.install(|| client.encrypt(&mask, &prg, &mut keep(&mut frames))).expect("encryption");
            frames
        };
        let frames = encrypt();
        let answers = pool.install(|| answer(&server_keys, &plan, &values, &frames));
        let mut group = c.benchmark_group(name);
        group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(3));
        group.throughput(Throughput::Elements(convs.iter().map(macs).sum()));
        group.bench_function("client encrypts", |b| b.iter(encrypt));
        group.bench_function("server", |b| {
            b.iter(|| black_box(pool.install(|| answer(&server_keys, &plan, &values, &frames))))
        });
        group.bench_function("client opens", |b| {
            b.iter(|| {
                for (k, frames) in answers.iter().enumerate() {
                    pool.install(|| client.decrypt(k, &mut source(frames.clone()))).expect("the server's answers");
                }
            })
        });
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
