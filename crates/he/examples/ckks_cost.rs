//! What operations of RNS-CKKS cost, by level and alpha, and bootstrapping by set and method:
//! `cargo run --release -p tacit-he --example ckks_cost -- [ops] [B:hoisted] [B:chained]
//! [A:hoisted] [A:chained]`. One line of JSON each.

use std::sync::Arc;
use std::time::Instant;
use tacit_arith::prg::{Prg, SplitPrg};
use tacit_he::ckks::{
    BootstrapSpec, Bootstrapper, Complex, Context, Encoder, Evaluator, KeyForm, KeyGroup, KeyId, KeyKind, KeySet,
    Method, NamedSet, Parameters, ParametersSpec, SecretKey, Segment,
};

type Failure = Box<dyn std::error::Error>;

struct Client {
    context: Arc<Context>,
    secret: SecretKey,
    prg: SplitPrg,
}

impl Client {
    fn new(spec: &ParametersSpec) -> Result<Self, Failure> {
        let context = Arc::new(Context::new(&Parameters::new(spec)?)?);
        let mut prg = SplitPrg::new(Prg::from_os()?);
        let secret = SecretKey::generate(&context, prg.secret());
        Ok(Self { context, secret, prg })
    }

    fn reals(&mut self, n: usize) -> Vec<Complex> {
        let mut next = || (self.prg.secret().next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        (0..n).map(|_| Complex::from(next())).collect()
    }
}

/// Processor time of this process so far, in milliseconds (ticks of 10).
fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() * 10.0
}

/// Least processor time of `runs`, in milliseconds: other programs on the machine do not count.
fn least_cpu(runs: usize, mut work: impl FnMut()) -> f64 {
    let once = |_| {
        let start = cpu_ms();
        work();
        cpu_ms() - start
    };
    (0..runs).map(once).fold(f64::INFINITY, f64::min)
}

/// Best of `runs`, in milliseconds.
fn best(runs: usize, mut work: impl FnMut()) -> f64 {
    let once = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..runs).map(once).fold(f64::INFINITY, f64::min)
}

fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok()).map_or(f64::NAN, |kib| kib / 1024.0)
}

/// Rotation and multiplication at level 15 of N = 2^16, by alpha.
fn operations() -> Result<(), Failure> {
    for alpha in [1, 4, 8] {
        let spec = ParametersSpec {
            log_degree: 16,
            base_bits: 50,
            segments: vec![Segment { count: 14, bits: 42 }],
            special_bits: 50,
            groups: vec![KeyGroup { up_to_level: 15, alpha }],
            encapsulated: false,
        };
        let mut client = Client::new(&spec)?;
        let context = client.context.clone();
        let needs = [KeyKind::Relinearise, KeyKind::Galois(context.rotation_element(1))];
        let needs = needs.map(|kind| KeyId::at(&context, kind, 15));
        let mut keys = KeySet::generate(&client.secret, &needs, &mut client.prg).expect("keys of the plan");
        let values = client.reals(1 << 15);
        let plaintext = Encoder::new(&context, 1 << 15)?.encode(&values, 15, context.parameters().scale(15))?;
        let a = client.secret.encrypt(&plaintext, &mut client.prg);
        for form in [KeyForm::Packed, KeyForm::Expanded] {
            keys.hold_as(&context, form)?;
            let e = Evaluator::new(&context, &keys);
            let rotate = least_cpu(3, || (0..4).for_each(|_| drop(e.rotate(&a, 1)))) / 4.0;
            let multiply = least_cpu(3, || (0..4).for_each(|_| drop(e.mul_rescale(&a, &a)))) / 4.0;
            let bytes = keys.memory_bytes() / 2;
            println!(
                "{{\"alpha\":{alpha},\"keys\":\"{form:?}\",\"rotate_cpu_ms\":{rotate:.0},\"multiply_cpu_ms\":{multiply:.0},\"key_bytes\":{bytes}}}"
            );
        }
    }
    Ok(())
}

/// Bootstraps of one named set.
fn bootstraps(name: &str, spec: &BootstrapSpec) -> Result<(), Failure> {
    let set = NamedSet::find(name).ok_or("no such set")?;
    let mut client = Client::new(&set.spec())?;
    let context = client.context.clone();
    let start = Instant::now();
    let boot = Bootstrapper::new(&context, spec)?;
    let tables_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let keys = KeySet::generate(&client.secret, &boot.keys(), &mut client.prg).expect("keys of the plan");
    let keygen_s = start.elapsed().as_secs_f64();
    let x = client.reals(spec.slots);
    let encoder = Encoder::new(&context, spec.slots)?;
    let level = boot.level_in();
    let plaintext = encoder.encode(&x, level, context.parameters().scale(level))?;
    let a = client.secret.encrypt(&plaintext, &mut client.prg);
    let e = Evaluator::new(&context, &keys);
    let before = context.counters().read();
    let mut fresh = boot.bootstrap(&e, &a)?;
    let did = context.counters().read() - before;
    let mut cpu = f64::INFINITY;
    let seconds = best(1, || cpu = least_cpu(1, || fresh = boot.bootstrap(&e, &a).expect("it has just worked"))) / 1e3;
    let cpu_s = cpu / 1e3;
    let got = encoder.decode(&client.secret.decrypt(&fresh))?;
    let errors: Vec<f64> = got.iter().zip(&x).map(|(a, b)| (*a - *b).abs()).collect();
    let mean = (errors.iter().map(|d| d * d).sum::<f64>() / errors.len() as f64).sqrt();
    let worst = errors.iter().fold(0.0, |m: f64, d| m.max(*d));
    let mut histogram = std::collections::BTreeMap::<i32, usize>::new();
    errors.iter().for_each(|d| *histogram.entry((-d.log2()).floor().min(40.0) as i32).or_default() += 1);
    println!(
        "{{\"set\":\"{name}\",\"method\":\"{:?}\",\"ratio_bits\":{},\"seconds\":{seconds:.2},\"cpu_s\":{cpu_s:.2},\"bits_rms\":{:.1},\"bits_worst\":{:.1},\"bits_estimated\":{:.1},\"stated_noise\":{:.1},\"stated_approximation\":{:.1},\"level_out\":{},\"keys\":{},\"key_bytes\":{},\"ntts\":{},\"key_switches\":{},\"keygen_s\":{keygen_s:.2},\"tables_s\":{tables_s:.2},\"diagonal_bytes\":{},\"peak_mib\":{:.0}}}",
        spec.method,
        spec.message_ratio_bits,
        -mean.log2(),
        -worst.log2(),
        fresh.precision(),
        -boot.noise().log2(),
        -boot.approximation().log2(),
        boot.level_out(),
        keys.len(),
        keys.memory_bytes(),
        did.ntts,
        did.key_switches,
        boot.memory_bytes(),
        peak_mib(),
    );
    println!("{{\"set\":\"{name}\",\"slots_by_bits\":{histogram:?}}}");
    Ok(())
}

fn main() -> Result<(), Failure> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let has = |what: &str| wanted.is_empty() || wanted.iter().any(|w| w == what);
    if has("ops") {
        operations()?;
    }
    let b = BootstrapSpec {
        slots: 1 << 14,
        slot_to_coeff: 2,
        coeff_to_slot: 3,
        message_ratio_bits: 10,
        arcsine: false,
        method: Method::Hoisted,
        cache_bytes: 1 << 30,
    };
    let a = BootstrapSpec { slot_to_coeff: 3, message_ratio_bits: 8, arcsine: true, ..b };
    for (name, spec) in [("B", b), ("A", a)] {
        for (of_method, method) in [("hoisted", Method::Hoisted), ("chained", Method::Chained)] {
            if has(&format!("{name}:{of_method}")) {
                bootstraps(name, &BootstrapSpec { method, ..spec })?;
            }
        }
    }
    Ok(())
}
