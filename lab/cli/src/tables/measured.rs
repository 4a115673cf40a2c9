//! Measures the figures of [KDS25] with the library.

use serde_json::{Value, json};
use std::str::FromStr;
use std::time::Instant;
use tacit_cli::keyset::machine::best;
use tacit_cli::keyset::measure::{Bench, boot_spec};
use tacit_cli::keyset::params::find;
use tacit_cli::print;
use tacit_he::ckks::{Bootstrapper, Evaluator, KeyGroup, KeySet, Method, ParametersSpec, Segment};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Rotations by Hamming weight.
    Table3,
    /// Bootstraps by alpha.
    Bootstraps,
    /// The named networks, end to end by key set.
    Networks,
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "table3" => Ok(Self::Table3),
            "bootstraps" => Ok(Self::Bootstraps),
            "networks" => Ok(Self::Networks),
            _ => Err("`table3`, `bootstraps` or `networks`".into()),
        }
    }
}

/// Measures the library on one thread; none for networks, which [`super::networks`] measures.
pub fn measure(measurement: What) -> anyhow::Result<Option<Value>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(|| match measurement {
        What::Table3 => table_3().map(Some),
        What::Bootstraps => bootstraps().map(Some),
        What::Networks => Ok(None),
    })
}

/// The paper's relative times of a rotation by an index of Hamming weight 1 to 7.
const PAPER_TABLE_3: [f64; 7] = [1.0, 2.6, 3.8, 5.3, 5.8, 7.6, 8.3];

fn table_3() -> anyhow::Result<Value> {
    let (level, alpha) = (15, 8);
    print::note(&format!("Table 3: rotations at degree 2^16, level {level}, {alpha} special primes"));
    let mut bench = Bench::new(&ParametersSpec {
        log_degree: 16,
        base_bits: 50,
        segments: vec![Segment { count: level - 1, bits: 42 }],
        special_bits: 50,
        groups: vec![KeyGroup { up_to_level: level, alpha }],
        encapsulated: false,
    })?;
    let powers: Vec<i64> = (0..PAPER_TABLE_3.len()).map(|b| 1 << (2 * b)).collect();
    let (a, keys) = (bench.encrypt_samples(level)?, bench.rotation_keys(&powers, level)?);
    let evaluator = Evaluator::new(&bench.context, &keys);
    let chain = |weight: usize| powers[..weight].iter().try_fold(a.clone(), |a, &k| evaluator.rotate(&a, k));
    chain(PAPER_TABLE_3.len())?;
    let seconds: Vec<f64> = (1..=PAPER_TABLE_3.len()).map(|weight| best(5, || drop(chain(weight)))).collect();
    let rows = seconds.iter().zip(PAPER_TABLE_3).enumerate().map(|(i, (s, paper))| {
        json!({ "weight": i + 1, "ms": s * 1e3, "relative": s / seconds[0], "paper_relative": paper })
    });
    Ok(
        json!({ "table_3": rows.collect::<Vec<_>>(), "degree": 1 << 16, "level": level, "special_primes": alpha, "threads": 1 }),
    )
}

/// Measures bootstraps of both sets with the same number of special primes at all levels, and as the
/// sets define. Keys are hoisted for set B and chained for set A, whose keys would not fit memory.
fn bootstraps() -> anyhow::Result<Value> {
    let mut rows = Vec::new();
    for (name, method, alphas) in
        [("B", Method::Hoisted, [1, 2, 0].as_slice()), ("A", Method::Chained, [2, 4, 6, 0].as_slice())]
    {
        let mut first = None;
        for &alpha in alphas {
            let mut spec = find(name)?.spec();
            let levels = 1 + spec.segments.iter().map(|segment| segment.count).sum::<usize>();
            if alpha > 0 {
                spec.groups = vec![KeyGroup { up_to_level: levels, alpha }];
            }
            let texts: Vec<String> =
                spec.groups.iter().map(|g| format!("{} up to level {}", g.alpha, g.up_to_level)).collect();
            print::note(&format!("bootstrap, set {name}, {method:?}, special primes: {}", texts.join(", ")));
            let (seconds, keys, key_bytes) = bootstrap(name, &spec, method)?;
            let relative = *first.get_or_insert(seconds) / seconds;
            rows.push(json!({
                "set": name, "method": format!("{method:?}").to_lowercase(), "special_primes": texts.join(", "),
                "seconds": seconds, "times_faster_than_the_first": relative, "keys": keys, "key_bytes": key_bytes,
            }));
        }
    }
    Ok(json!({
        "figures_7_and_8": rows, "threads": 1,
        "paper": "alpha = 5 is 1.65 times faster than alpha = 1; dynamic alpha 1.52 times, for 1.52 times the memory",
    }))
}

/// Seconds of the second of two bootstraps, number and bytes of its keys.
fn bootstrap(name: &str, spec: &ParametersSpec, method: Method) -> anyhow::Result<(f64, usize, usize)> {
    let mut bench = Bench::new(spec)?;
    let boot = Bootstrapper::new(&bench.context, &boot_spec(name, bench.context.degree() / 2, method)?)?;
    let keys = KeySet::generate(&bench.secret, &boot.keys(), &mut bench.prg)?;
    let a = bench.encrypt_samples(boot.level_in())?;
    let evaluator = Evaluator::new(&bench.context, &keys);
    boot.bootstrap(&evaluator, &a)?;
    let start = Instant::now();
    boot.bootstrap(&evaluator, &a)?;
    Ok((start.elapsed().as_secs_f64(), keys.len(), keys.memory_bytes()))
}
