//! Operations at a small degree: values, refusals, counts (errors: `statistics_tests.rs`).

use super::*;
use crate::HeError;
use std::sync::Arc;
use tacit_arith::prg::{Prg, Seed, SplitPrg};

/// One client and its server's context.
pub(super) struct Bench {
    pub context: Arc<Context>,
    pub secret: SecretKey,
    pub prg: SplitPrg,
}

pub(super) fn prg(n: u8) -> SplitPrg {
    SplitPrg::new(Prg::from_seed(Seed([n; 16])))
}

/// q0 of 50 bits and seven levels of 40, alpha 2 up to level 3 and 3 above.
pub(super) fn spec(log_degree: u32) -> ParametersSpec {
    ParametersSpec {
        log_degree,
        base_bits: 50,
        segments: vec![Segment { count: 7, bits: 40 }],
        special_bits: 50,
        groups: vec![KeyGroup { up_to_level: 3, alpha: 2 }, KeyGroup { up_to_level: 8, alpha: 3 }],
        encapsulated: true,
    }
}

/// Without a sparse secret, and alpha special primes at every level.
pub(super) fn flat_spec(
    log_degree: u32,
    base_bits: u32,
    segment: Segment,
    special_bits: u32,
    alpha: usize,
) -> ParametersSpec {
    let groups = vec![KeyGroup { up_to_level: segment.count + 1, alpha }];
    ParametersSpec { log_degree, base_bits, segments: vec![segment], special_bits, groups, encapsulated: false }
}

/// Largest distance of a slot.
pub(super) fn worst(actual: &[Complex], expected: &[Complex]) -> f64 {
    actual.iter().zip(expected).map(|(a, b)| (*a - *b).abs()).fold(0.0, tacit_floats::larger)
}

/// Scale of the diagonals of a transform at `level` between canonical scales.
pub(super) fn diagonal_scale(parameters: &Parameters, level: usize) -> Scale {
    parameters.scale(level - 1).times_prime(parameters.primes()[level - 1]).over(parameters.scale(level))
}

impl Bench {
    pub fn new(spec: &ParametersSpec, seed: u8) -> Self {
        let context = Arc::new(Context::new(&Parameters::insecure_for_tests(spec).unwrap()).unwrap());
        let mut prg = prg(seed);
        let secret = SecretKey::generate(&context, prg.secret());
        Self { context, secret, prg }
    }

    pub fn with_context(spec: &ParametersSpec, seed: u8) -> (Self, Arc<Context>) {
        let bench = Self::new(spec, seed);
        let context = bench.context.clone();
        (bench, context)
    }

    pub fn values(&mut self, n: usize) -> Vec<Complex> {
        let mut next = || (self.prg.secret().next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        (0..n).map(|_| Complex::new(next(), next())).collect()
    }

    pub fn real_values(&mut self, n: usize) -> Vec<Complex> {
        self.values(n).iter().map(|v| Complex::from(v.re)).collect()
    }

    pub fn encrypt(&mut self, values: &[Complex], level: usize) -> Ciphertext {
        let encoder = Encoder::new(&self.context, values.len()).unwrap();
        let plaintext = encoder.encode(values, level, self.context.parameters().scale(level)).unwrap();
        self.secret.encrypt(&plaintext, &mut self.prg)
    }

    pub fn decrypt(&self, ciphertext: &Ciphertext) -> Vec<Complex> {
        let encoder = Encoder::new(&self.context, ciphertext.slots()).unwrap();
        encoder.decode(&self.secret.decrypt(ciphertext)).unwrap().to_vec()
    }

    /// Deviation of the slots' error, divided by its estimate.
    pub fn ratio(&self, ciphertext: &Ciphertext, expected: &[Complex]) -> f64 {
        let actual = self.decrypt(ciphertext);
        let mean =
            actual.iter().zip(expected).map(|(a, b)| (*a - *b).abs().powi(2)).sum::<f64>() / expected.len() as f64;
        mean.sqrt() / ciphertext.estimate().slot_deviation(expected.len(), ciphertext.scale().to_f64())
    }

    pub fn keys(&mut self, needs: &[KeyId]) -> KeySet {
        KeySet::generate(&self.secret, needs, &mut self.prg).unwrap()
    }

    pub fn rotation_keys(&mut self, steps: &[i64], level: usize) -> KeySet {
        let kinds = steps.iter().map(|&k| KeyKind::Galois(self.context.rotation_element(k)));
        let key_kinds = kinds.chain([KeyKind::Galois(self.context.conjugation_element()), KeyKind::Relinearise]);
        let needs: Vec<KeyId> = key_kinds.map(|kind| KeyId::for_level(&self.context, kind, level)).collect();
        self.keys(&needs)
    }
}

#[test]
fn constants_integers_and_negation_are_exact() {
    let mut bench = Bench::new(&spec(8), 1);
    let x = bench.values(16);
    let a = bench.encrypt(&x, 3);
    let keys = KeySet::default();
    let context = bench.context.clone();
    let e = Evaluator::new(&context, &keys);
    let close = |c: &Ciphertext, expected: Vec<Complex>| {
        let worst = worst(&bench.decrypt(c), &expected);
        assert!(worst < 1e-8, "{worst}");
    };
    close(&e.negate(&a), x.iter().map(|&v| -v).collect());
    close(&e.add_real(&a, -0.75), x.iter().map(|&v| v + Complex::from(-0.75)).collect());
    close(&e.mul_integer(&a, -3), x.iter().map(|&v| v.scaled(-3.0)).collect());
    close(&a.drop_to(1).unwrap(), x.clone());
}

#[test]
fn rejects_operands_that_differ() {
    let mut bench = Bench::new(&spec(8), 2);
    let x = bench.values(8);
    let keys = bench.rotation_keys(&[1], 3);
    let context = bench.context.clone();
    let e = Evaluator::new(&context, &keys);
    let (a, low, high) = (bench.encrypt(&x, 3), bench.encrypt(&x, 2), bench.encrypt(&x, 5));
    assert!(matches!(e.add(&a, &low), Err(HeError::Level { need: 3, have: 2, .. })));
    assert!(matches!(e.mul(&a, &low), Err(HeError::Level { .. })));
    let scaled = e.mul_real(&a, 1.0, Scale::power_of_two(3));
    let refused = e.add(&a, &scaled).err().unwrap();
    assert!(refused.to_string().contains("2^39.99") && refused.to_string().contains("2^42.99"), "{refused}");
    assert!(matches!(e.rescale(&a.drop_to(1).unwrap()), Err(HeError::Level { need: 2, have: 1, .. })));
    assert!(matches!(a.drop_to(4), Err(HeError::Level { .. })) && matches!(a.drop_to(0), Err(HeError::Level { .. })));
    assert!(matches!(e.rotate(&high, 1), Err(HeError::KeyTooLow { level: 5, have: 3, .. })));
    assert!(matches!(e.rotate(&a, 2), Err(HeError::MissingKey { level: 3, .. })));
    assert!(matches!(e.mul(&high, &high), Err(HeError::KeyTooLow { level: 5, have: 3, .. })));
    let wide = bench.values(16);
    let wide = bench.encrypt(&wide, 3);
    assert!(matches!(e.add(&a, &wide), Err(HeError::SlotCount { left: 8, right: 16, .. })));
    // Before a run, the stated needs of a circuit give the same refusals.
    let need = |element, level| KeyId::for_level(&context, KeyKind::Galois(element), level);
    let needs = [need(context.rotation_element(1), 3), need(context.conjugation_element(), 3)];
    assert_eq!(keys.check(&needs), Ok(()));
    assert!(matches!(keys.check(&[need(context.rotation_element(1), 4)]), Err(HeError::KeyTooLow { .. })));
    assert!(matches!(keys.check(&[need(context.rotation_element(3), 3)]), Err(HeError::MissingKey { .. })));
    let id = KeyId { alpha: 3, ..needs[0] };
    assert!(matches!(keys.check(&[id]), Err(HeError::KeyAlpha { need: 3, have: 2, .. })));
}

/// A key switch takes `(beta + 2)(L + alpha)` transforms, for either form of the key.
#[test]
fn transforms_and_key_bytes_are_counted() {
    let mut bench = Bench::new(&spec(8), 3);
    let (level, alpha) = (7, 3);
    let x = bench.values(128);
    let a = bench.encrypt(&x, level);
    let mut keys = bench.rotation_keys(&[1, 2, 3], level);
    let context = bench.context.clone();
    let packed = SwitchKey::packed_bytes(&context, KeyId { kind: KeyKind::Relinearise, level, alpha });
    assert_eq!(keys.memory_bytes(), 5 * packed);
    for form in [KeyForm::Packed, KeyForm::Expanded] {
        keys.hold_as(&context, form).unwrap();
        let bytes = if form == KeyForm::Packed { packed } else { 3 * 16 * (level + alpha) * 256 };
        let e = Evaluator::new(&context, &keys);
        let before = context.counters().read();
        let rotated = e.rotate(&a, 1).unwrap();
        let did = context.counters().read() - before;
        assert_eq!((did.ntts, did.key_switches, did.key_bytes), ((3 + 2) * (7 + 3), 1, bytes as u64));
        let before = context.counters().read();
        let rotations = e.rotate_many(&a, &[1, 2, 3]).unwrap();
        let did = context.counters().read() - before;
        assert_eq!((did.ntts, did.key_switches), (3 * 10 + 3 * 2 * 10, 3));
        assert!(bench.decrypt(&rotated) == bench.decrypt(&rotations[0]));
    }
}
