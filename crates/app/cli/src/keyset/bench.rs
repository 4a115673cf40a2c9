//! `tacit keyset bench`: measures operations on ciphertexts.

use super::machine::{Machine, best};
use super::measure::{Bench, boot_spec, values};
use super::params::find;
use crate::print;
use serde_json::{Value, json};
use std::time::Instant;
use tacit_he::ckks::{
    Bootstrapper, Ciphertext, Encoder, Evaluator, KeyForm, KeyGroup, KeyId, KeyKind, KeySet, Method, ParametersSpec,
    Segment,
};
use tacit_program::args::count;

/// Measure operations on ciphertexts, by level and special primes, and bootstrapping of a parameter
/// set
///
/// Each row has the time of an operation, its transforms and its bytes of keys. A ratio compares
/// the time to the time that these transforms and bytes alone would take on this machine. Rotations
/// and products are at degree 2^16, with primes of 42 bits and keys of both forms (packed for
/// transfer, expanded to words). Other programs on the machine count: look at its load.
///
/// Example: tacit keyset bench --threads 1 --bootstrap B --json
#[derive(clap::Args)]
pub struct BenchArgs {
    /// Number of threads
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = count(256))]
    #[arg(help_heading = "Device")]
    threads: usize,
    /// Levels to measure at
    #[arg(long, value_delimiter = ',', default_value = "5,15", value_name = "LEVELS", value_parser = count(30))]
    #[arg(help_heading = "Model")]
    levels: Vec<usize>,
    /// Numbers of special primes to measure with
    #[arg(long, value_delimiter = ',', default_value = "4,8", value_name = "COUNTS", value_parser = count(10))]
    #[arg(help_heading = "Model")]
    alphas: Vec<usize>,
    /// Parameter set to bootstrap once as well, A (6 GB) or B (3 GB); may be repeated
    #[arg(long, value_name = "SET", help_heading = "Model")]
    bootstrap: Vec<String>,
}

pub fn run(args: &BenchArgs, as_json: bool) -> anyhow::Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(args.threads).build()?;
    let degree = 1 << 16;
    let machine = rayon::ThreadPoolBuilder::new().num_threads(1).build()?.install(|| Machine::measure(degree))?;
    let mut operations = Vec::new();
    for &level in &args.levels {
        for &alpha in args.alphas.iter().filter(|alpha| **alpha <= level) {
            print::note(&format!("level {level}, {alpha} special primes"));
            operations.extend(pool.install(|| at_level(&machine, level, alpha))?);
        }
    }
    let mut bootstraps = Vec::new();
    for name in &args.bootstrap {
        for method in [Method::Hoisted, Method::Paired, Method::Chained] {
            print::note(&format!("bootstrapping, set {name}, {method:?}"));
            bootstraps.push(pool.install(|| bootstrap(name, method))?);
        }
    }
    if as_json {
        let machine = machine.to_json(degree);
        return print::json(&json!({
            "threads": args.threads, "machine": machine, "operations": operations, "bootstraps": bootstraps,
        }));
    }
    print::line(&format!("machine: {}", machine.to_json(degree)))?;
    operations.iter().chain(&bootstraps).try_for_each(|row| print::line(&row.to_string()))
}

/// Measures operations at a level: a rotation and a product with relinearisation and rescaling;
/// then sums, products with a plaintext and rescaling, which need no key.
fn at_level(machine: &Machine, level: usize, alpha: usize) -> anyhow::Result<Vec<Value>> {
    let mut client = Bench::new(&ParametersSpec {
        log_degree: 16,
        base_bits: 50,
        segments: vec![Segment { count: level - 1, bits: 42 }],
        special_bits: 50,
        groups: vec![KeyGroup { up_to_level: level, alpha }],
        encapsulated: false,
    })?;
    let context = client.context.clone();
    let kinds = [KeyKind::Relinearise, KeyKind::Galois(context.rotation_element(1))];
    let needs = kinds.map(|kind| KeyId::for_level(&context, kind, level));
    let mut keys = KeySet::generate(&client.secret, &needs, &mut client.prg)?;
    let a = client.encrypt(&values(1 << 15), level)?;
    let plain = Encoder::new(&context, 1 << 15)?.encode(&values(1 << 15), level, context.parameters().scale(level))?;
    let mut rows = Vec::new();
    for form in [KeyForm::Packed, KeyForm::Expanded] {
        keys.hold_as(&context, form)?;
        let e = Evaluator::new(&context, &keys);
        let mut row = |label: &str, run: &dyn Fn() -> Result<Ciphertext, tacit_he::HeError>| -> anyhow::Result<()> {
            let before = context.counters().read();
            run()?;
            let counts = context.counters().read() - before;
            let seconds = best(5, || drop(run()));
            let bound_s = counts.ntts as f64 * machine.ntt_s + counts.key_bytes as f64 / machine.memory;
            rows.push(json!({
                "operation": label, "level": level, "special_primes": alpha, "keys": format!("{form:?}").to_lowercase(),
                "ms": seconds * 1e3, "ntts": counts.ntts, "key_bytes": counts.key_bytes,
                "times_transforms_and_key_reads": (bound_s > 0.0).then(|| seconds / bound_s),
            }));
            Ok(())
        };
        if form == KeyForm::Packed {
            row("add", &|| e.add(&a, &a))?;
            row("add a plaintext", &|| e.add_plain(&a, &plain))?;
            row("multiply by a plaintext", &|| e.mul_plain(&a, &plain))?;
            if level > 1 {
                row("rescale", &|| e.rescale(&a))?;
            }
        }
        row("rotate", &|| e.rotate(&a, 1))?;
        if level > 1 {
            row("multiply, relinearise, rescale", &|| e.mul_rescale(&a, &a))?;
        }
    }
    Ok(rows)
}

/// Measures the second of two bootstraps with fresh keys, and the precision that remains.
fn bootstrap(name: &str, method: Method) -> anyhow::Result<Value> {
    let mut client = Bench::new(&find(name)?.spec())?;
    let context = client.context.clone();
    let slots = context.degree() / 2;
    let boot = Bootstrapper::new(&context, &boot_spec(name, slots, method)?)?;
    let start = Instant::now();
    let keys = KeySet::generate(&client.secret, &boot.keys(), &mut client.prg)?;
    let key_generation_s = start.elapsed().as_secs_f64();
    let x = values(slots);
    let a = client.encrypt(&x, boot.level_in())?;
    let e = Evaluator::new(&context, &keys);
    let before = context.counters().read();
    boot.bootstrap(&e, &a)?;
    let counts = context.counters().read() - before;
    let start = Instant::now();
    let fresh = boot.bootstrap(&e, &a)?;
    let seconds = start.elapsed().as_secs_f64();
    let decoded = Encoder::new(&context, slots)?.decode(&client.secret.decrypt(&fresh))?;
    let errors: Vec<f64> = decoded.iter().zip(&x).map(|(a, b)| (*a - *b).abs()).collect();
    let mean = (errors.iter().map(|d| d * d).sum::<f64>() / slots as f64).sqrt();
    let worst = tacit_floats::largest_magnitude(errors.iter().copied());
    Ok(json!({
        "set": name, "method": format!("{method:?}").to_lowercase(), "seconds": seconds,
        "bits": -mean.log2(), "bits_at_worst": -worst.log2(), "bits_estimated": fresh.precision(),
        "level_out": boot.level_out(), "failure_log2": boot.failure_log2(),
        "keys": keys.len(), "key_bytes": keys.memory_bytes(), "key_generation_s": key_generation_s,
        "diagonal_bytes": boot.memory_bytes(), "ntts": counts.ntts, "key_switches": counts.key_switches,
    }))
}
