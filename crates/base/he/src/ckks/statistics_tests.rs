//! Errors of every operation over a thousand runs: their deviations are as estimated.

use super::tests::{Bench, diagonal_scale, spec};
use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Runs that share keys. A key's error is one draw for all of them.
const RUNS_PER_CLIENT: usize = 10;
const LEVEL: usize = 3;

/// Sums of squares of errors divided by their estimates, for each operation.
#[derive(Default)]
struct Ratios(BTreeMap<&'static str, (f64, usize)>);

impl Ratios {
    fn note(&mut self, what: &'static str, ratio: f64) {
        let (sum, runs) = self.0.entry(what).or_default();
        (*sum, *runs) = (*sum + ratio * ratio, *runs + 1);
    }

    fn check(&self, runs: usize) {
        for (what, &(sum, count)) in &self.0 {
            let mean = (sum / count as f64).sqrt();
            println!("{what}: {mean:.2} times the estimate over {count} runs");
            assert!(count >= runs && (0.5..=1.5).contains(&mean), "{what}: {mean:.2} times the estimate, {count} runs");
        }
    }
}

fn zip(a: &[Complex], b: &[Complex], op: impl Fn(Complex, Complex) -> Complex) -> Vec<Complex> {
    a.iter().zip(b).map(|(&a, &b)| op(a, b)).collect()
}

fn rotate_slots(a: &[Complex], k: usize) -> Vec<Complex> {
    (0..a.len()).map(|i| a[(i + k) % a.len()]).collect()
}

fn scale_slots(a: &[Complex], factor: f64) -> Vec<Complex> {
    a.iter().map(|v| v.scaled(factor)).collect()
}

/// One client and what its server needs: keys, transforms and diagonals.
struct Client {
    bench: Bench,
    context: Arc<Context>,
    keys: KeySet,
    derived: KeySet,
    public: PublicKey,
    transforms: [LinearTransform; 2],
    diagonals: BTreeMap<i64, Vec<Complex>>,
}

impl Client {
    fn new(log_degree: u32, seed: u8) -> Self {
        let (mut bench, context) = Bench::with_context(&spec(log_degree), seed);
        let n = context.degree() / 2;
        let encoder = Encoder::new(&context, n).unwrap();
        let diagonals: BTreeMap<i64, Vec<Complex>> = [0, 1, 2, 5].map(|d| (d, bench.values(n))).into();
        let scale = diagonal_scale(context.parameters(), LEVEL);
        let transforms = [Method::Hoisted, Method::Chained].map(|method| {
            let spec = TransformSpec { diagonals: &diagonals, level: LEVEL, scale, method, cache_bytes: 0 };
            LinearTransform::new(&encoder, &spec).unwrap()
        });
        let kinds = [KeyKind::Relinearise, KeyKind::ToSparse, KeyKind::FromSparse]
            .into_iter()
            .chain([1, 7].map(|k| KeyKind::Galois(context.rotation_element(k))))
            .chain([KeyKind::Galois(context.conjugation_element())]);
        let level = |kind| if kind == KeyKind::ToSparse { 1 } else { LEVEL };
        let direct_ids = kinds.map(|kind| KeyId::for_level(&context, kind, level(kind)));
        let needs: Vec<KeyId> = transforms.iter().flat_map(|t| t.plan().keys(&context)).chain(direct_ids).collect();
        let keys = bench.keys(&needs);
        let masters = Derivation::masters(&context, LEVEL, &[1, 3]);
        let derived_id = KeyId::for_level(&context, KeyKind::Galois(context.rotation_element(7)), LEVEL);
        let plan = Derivation::new(&context, &[derived_id], &masters).unwrap();
        let derived = plan.run(&context, &bench.keys(&masters)).unwrap();
        let public = bench.secret.public_key(&mut bench.prg);
        Self { bench, context, keys, derived, public, transforms, diagonals }
    }

    fn run(&mut self, ratios: &mut Ratios) {
        let n = self.context.degree() / 2;
        let (x, y) = (self.bench.values(n), self.bench.values(n));
        let (a, b) = (self.bench.encrypt(&x, LEVEL), self.bench.encrypt(&y, LEVEL));
        let encoder = Encoder::new(&self.context, n).unwrap();
        let plaintext = encoder.encode(&y, LEVEL, self.context.parameters().scale(LEVEL)).unwrap();
        let public = self.public.encrypt(&self.context, &plaintext, &mut self.bench.prg);
        let mut note =
            |what, actual: &Ciphertext, expected: &[Complex]| ratios.note(what, self.bench.ratio(actual, expected));
        note("encryption", &a, &x);
        note("public encryption", &public, &y);
        self.sums([&a, &b], [&x, &y], &plaintext, &mut note);
        self.products([&a, &b], [&x, &y], &plaintext, &mut note);
        self.switches(&a, &x, &mut note);
        self.linear(&a, &x, &mut note);
    }

    fn sums(
        &self,
        [a, b]: [&Ciphertext; 2],
        [x, y]: [&[Complex]; 2],
        plaintext: &Plaintext,
        note: &mut impl FnMut(&'static str, &Ciphertext, &[Complex]),
    ) {
        let e = Evaluator::new(&self.context, &self.keys);
        let sum = zip(x, y, |x, y| x + y);
        note("sum", &e.add(a, b).unwrap(), &sum);
        note("sum with a plaintext", &e.add_plain(a, plaintext).unwrap(), &sum);
        note("difference", &e.sub(a, b).unwrap(), &zip(x, y, |x, y| x - y));
        note("negation", &e.negate(a), &scale_slots(x, -1.0));
        let shifted: Vec<Complex> = x.iter().map(|&v| v + Complex::from(-0.75)).collect();
        note("sum with a number", &e.add_real(a, -0.75), &shifted);
        note("drop", &a.drop_to(1).unwrap(), x);
    }

    fn products(
        &self,
        [a, b]: [&Ciphertext; 2],
        [x, y]: [&[Complex]; 2],
        plaintext: &Plaintext,
        note: &mut impl FnMut(&'static str, &Ciphertext, &[Complex]),
    ) {
        let e = Evaluator::new(&self.context, &self.keys);
        let product = zip(x, y, |x, y| x * y);
        let plain = e.mul_plain(a, plaintext).unwrap();
        note("product with a plaintext", &plain, &product);
        note("the same, rescaled", &e.rescale(&plain).unwrap(), &product);
        note("product", &e.mul(a, b).unwrap(), &product);
        note("product and rescaling in one", &e.mul_rescale(a, b).unwrap(), &product);
        note("square", &e.square(a).unwrap(), &zip(x, x, |x, y| x * y));
        let third = e.mul_real(a, 1.0 / 3.0, self.context.parameters().scale(LEVEL));
        note("product with a number", &third, &scale_slots(x, 1.0 / 3.0));
        note("product with an integer", &e.mul_integer(a, -3), &scale_slots(x, -3.0));
        note("adjustment", &e.adjust(a, 2, Scale::power_of_two(39)).unwrap(), x);
    }

    fn switches(&self, a: &Ciphertext, x: &[Complex], note: &mut impl FnMut(&'static str, &Ciphertext, &[Complex])) {
        let e = Evaluator::new(&self.context, &self.keys);
        note("rotation", &e.rotate(a, 7).unwrap(), &rotate_slots(x, 7));
        let with_derived = Evaluator::new(&self.context, &self.derived).rotate(a, 7).unwrap();
        note("rotation by a derived key", &with_derived, &rotate_slots(x, 7));
        for (actual, k) in e.rotate_many(a, &[1, 7]).unwrap().iter().zip([1, 7]) {
            note("hoisted rotation", actual, &rotate_slots(x, k));
        }
        let conjugates: Vec<Complex> = x.iter().map(|v| v.conj()).collect();
        note("conjugation", &e.conjugate(a).unwrap(), &conjugates);
        let sparse = e.switch_secret(&a.drop_to(1).unwrap(), KeyKind::ToSparse).unwrap();
        note("to the sparse secret and back", &e.switch_secret(&sparse, KeyKind::FromSparse).unwrap(), x);
    }

    fn linear(&self, a: &Ciphertext, x: &[Complex], note: &mut impl FnMut(&'static str, &Ciphertext, &[Complex])) {
        let e = Evaluator::new(&self.context, &self.keys);
        let entry = |i: usize| {
            let term = |(&d, values): (&i64, &Vec<Complex>)| values[i] * x[(i + d as usize) % x.len()];
            self.diagonals.iter().map(term).fold(Complex::default(), |sum, term| sum + term)
        };
        let expected: Vec<Complex> = (0..x.len()).map(entry).collect();
        let [hoisted, chained] = self.transforms.each_ref().map(|transform| e.transform(a, transform).unwrap());
        note("hoisted transform", &hoisted, &expected);
        note("chained transform", &chained, &expected);
    }
}

fn deviations(log_degree: u32, runs: usize) {
    let mut ratios = Ratios::default();
    for client in 0..runs / RUNS_PER_CLIENT {
        let mut client = Client::new(log_degree, client as u8);
        (0..RUNS_PER_CLIENT).for_each(|_| client.run(&mut ratios));
    }
    ratios.check(runs);
}

#[test]
fn deviations_are_as_estimated() {
    deviations(6, 1000);
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn deviations_are_as_estimated_in_a_large_ring() {
    deviations(13, 1000);
}
