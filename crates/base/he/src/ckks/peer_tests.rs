//! Known answers, and decryption across libraries: this crate decrypts Lattigo's ciphertexts, and
//! Lattigo decrypted ours (`benches/peers/lattigo`).
//!
//! `UPDATE_VECTORS=1 cargo test -p tacit-he --lib peer` rewrites our vectors. Then, in
//! `benches/peers/lattigo`, `go run . vectors ../../../crates/base/he/src/ckks/vectors/ours.json`
//! checks them and prints Lattigo's.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::poly::{Ntt, Poly};
use super::shape::Shape;
use super::tests::{Bench, flat_spec, prg, worst};
use super::*;

const OURS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ckks/vectors/ours.json");
const LATTIGO: &str = include_str!("vectors/lattigo.json");
/// Largest error of a slot, in the smallest ring at scales of 2^40.
const TOLERANCE: f64 = 1.0 / (1u64 << 30) as f64;

/// Test vectors in coefficients: the order of a transform does not matter.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Vectors {
    by: String,
    log_degree: u32,
    primes: Vec<u64>,
    special: Vec<u64>,
    /// Coefficients -1, 0, 1.
    secret: Vec<i64>,
    x: Vec<[f64; 2]>,
    y: Vec<[f64; 2]>,
    /// Distance of the rotation.
    steps: i64,
    results: BTreeMap<String, Residues>,
}

/// A ciphertext `(c0, c1)`: residues `[primes, coefficients]`.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Residues {
    scale: f64,
    c0: Vec<Vec<u64>>,
    c1: Vec<Vec<u64>>,
}

fn spec() -> ParametersSpec {
    flat_spec(6, 50, Segment { count: 3, bits: 40 }, 50, 2)
}

fn complex(values: &[[f64; 2]]) -> Vec<Complex> {
    values.iter().map(|[re, im]| Complex::new(*re, *im)).collect()
}

impl Vectors {
    /// The expected slots of each result.
    fn expected(&self) -> BTreeMap<&'static str, Vec<Complex>> {
        let (x, y) = (complex(&self.x), complex(&self.y));
        let pairs = || x.iter().zip(&y);
        let mut rotated = x.clone();
        rotated.rotate_left(self.steps as usize);
        BTreeMap::from([
            ("sum", pairs().map(|(x, y)| *x + *y).collect()),
            ("product", pairs().map(|(x, y)| *x * *y).collect()),
            ("rotation", rotated),
            ("conjugation", x.iter().map(|x| x.conj()).collect()),
            ("encryption", x.clone()),
        ])
    }

    fn check(&self) {
        let context = Arc::new(Context::new(&Parameters::insecure_for_tests(&spec()).unwrap()).unwrap());
        let parameters = context.parameters();
        assert_eq!((parameters.primes(), parameters.special_primes()), (&self.primes[..], &self.special[..]));
        let secret = SecretKey::from_coefficients(&context, &self.secret);
        let encoder = Encoder::new(&context, self.x.len()).unwrap();
        let expected = self.expected();
        assert!(expected.keys().copied().eq(self.results.keys().map(String::as_str)));
        for (name, slots) in expected {
            let result = &self.results[name];
            let ciphertext = Ciphertext {
                c0: read(&context, &result.c0),
                c1: read(&context, &result.c1),
                scale: Scale::new(result.scale).unwrap(),
                slots: slots.len(),
                estimate: Estimate { deviation: 3.3, magnitude: 1.0 },
            };
            let actual = encoder.decode(&secret.decrypt(&ciphertext)).unwrap();
            let worst = worst(&actual, &slots);
            assert!(worst < TOLERANCE, "{name} by {}: off by {worst}", self.by);
        }
    }
}

fn read(context: &Context, residues: &[Vec<u64>]) -> Poly<Ntt> {
    let limb = |k: usize, words: &mut [u64]| {
        assert!(residues[k].iter().all(|&r| r < context.parameters().primes()[k]));
        words.copy_from_slice(&residues[k]);
        Ok(())
    };
    Poly::<Coeff>::read(context, Shape::level(residues.len()), limb).unwrap().into_ntt(context)
}

fn write(context: &Context, ciphertext: &Ciphertext) -> Residues {
    let half = |poly: &Poly<Ntt>| {
        let poly = poly.clone().into_coeff(context);
        (0..ciphertext.level()).map(|k| poly.limb(k).to_vec()).collect()
    };
    Residues { scale: ciphertext.scale().to_f64(), c0: half(&ciphertext.c0), c1: half(&ciphertext.c1) }
}

/// Our vectors, from a known seed.
fn ours() -> Vectors {
    let (mut bench, context) = Bench::with_context(&spec(), 1);
    let parameters = context.parameters();
    let (level, slots, steps) = (parameters.levels(), parameters.degree() / 2, 3);
    let (x, y) = (bench.values(slots), bench.values(slots));
    let keys = bench.rotation_keys(&[steps], level);
    let (a, b) = (bench.encrypt(&x, level), bench.encrypt(&y, level));
    let e = Evaluator::new(&context, &keys);
    let results = [
        ("encryption", a.clone()),
        ("sum", e.add(&a, &b).unwrap()),
        ("product", e.mul_rescale(&a, &b).unwrap()),
        ("rotation", e.rotate(&a, steps).unwrap()),
        ("conjugation", e.conjugate(&a).unwrap()),
    ];
    let pairs = |values: &[Complex]| values.iter().map(|v| [v.re, v.im]).collect();
    // The coefficients that `generate` draws first from this seed.
    let secret = tacit_arith::sample::ternary(prg(1).secret(), parameters.degree()).to_vec();
    Vectors {
        by: "tacit".into(),
        log_degree: parameters.degree().ilog2(),
        primes: parameters.primes().to_vec(),
        special: parameters.special_primes().to_vec(),
        secret,
        x: pairs(&x),
        y: pairs(&y),
        steps,
        results: results.into_iter().map(|(name, c)| (name.to_owned(), write(&context, &c))).collect(),
    }
}

#[test]
fn ciphertexts_match_those_that_lattigo_decrypted() {
    let vectors = ours();
    vectors.check();
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(OURS, serde_json::to_string(&vectors).unwrap() + "\n").unwrap();
    }
    let stored: Vectors = serde_json::from_str(&std::fs::read_to_string(OURS).unwrap()).unwrap();
    assert_eq!(vectors, stored, "ciphertexts of a known seed have changed: make the vectors anew");
}

#[test]
fn decrypts_ciphertexts_of_lattigo() {
    let vectors: Vectors = serde_json::from_str(LATTIGO).unwrap();
    assert_eq!((vectors.by.as_str(), vectors.x.len()), ("lattigo v6.2.0", 32));
    vectors.check();
}
