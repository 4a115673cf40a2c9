//! Slots are decoded as they were encoded, for every number of slots.

use super::*;
use crate::ckks::tests::{flat_spec, worst};
use crate::ckks::{Parameters, Segment};

fn context(log_degree: u32) -> Arc<Context> {
    let spec = flat_spec(log_degree, 50, Segment { count: 2, bits: 45 }, 50, 1);
    Arc::new(Context::new(&Parameters::insecure_for_tests(&spec).unwrap()).unwrap())
}

fn values(n: usize) -> Vec<Complex> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..n).map(|_| Complex::new(next(), next())).collect()
}

/// The error of transform and rounding together, at a scale where the transform's would show.
#[test]
fn slots_round_trip() {
    for (log_degree, scale) in [(7, 58), (13, 58)] {
        let context = context(log_degree);
        for log_slots in [1, 2, 5, log_degree - 1] {
            let encoder = Encoder::new(&context, 1 << log_slots).unwrap();
            let slots = values(1 << log_slots);
            for level in 2..=3 {
                let plaintext = encoder.encode(&slots, level, Scale::power_of_two(scale)).unwrap();
                let decoded = encoder.decode(&plaintext).unwrap();
                let worst = worst(&decoded, &slots);
                assert!(worst < 2f64.powi(-45), "2^{log_degree}, 2^{log_slots} slots: 2^{}", worst.log2());
            }
        }
    }
}

/// Known answer: the polynomial with slots 1 is 1, with slots i it is `X^(N/2)`.
#[test]
fn constants_have_known_coefficients() {
    let context = context(6);
    let encoder = Encoder::new(&context, 32).unwrap();
    let constant_one = encoder.coefficients(&[Complex::from(1.0); 32], Scale::power_of_two(20)).unwrap();
    assert!(constant_one[0] == 1 << 20 && constant_one[1..].iter().all(|&c| c == 0));
    let i = encoder.coefficients(&[Complex::new(0.0, 1.0); 32], Scale::power_of_two(20)).unwrap();
    assert!(i[32] == 1 << 20 && i.iter().enumerate().all(|(k, &c)| k == 32 || c == 0));
}

#[test]
fn rejects_values_that_do_not_fit() {
    let context = context(6);
    for slots in [0, 1, 3, 64] {
        assert_eq!(Encoder::new(&context, slots).err(), Some(HeError::Slots { slots, max: 32 }));
    }
    let encoder = Encoder::new(&context, 4).unwrap();
    let scale = Scale::power_of_two(40);
    let too_many = encoder.encode(&values(5), 1, scale).err();
    assert_eq!(too_many, Some(HeError::TooManyValues { values: 5, slots: 4 }));
    for bad in [2f64.powi(26), f64::NAN, f64::INFINITY] {
        assert!(matches!(encoder.encode(&[bad.into()], 1, scale).err(), Some(HeError::TooLarge { .. })), "{bad}");
    }
    assert!(matches!(encoder.encode(&values(4), 4, scale).err(), Some(HeError::Level { need: 4, have: 3, .. })));
    assert!(matches!(encoder.encode_real(&[1.0], 0).err(), Some(HeError::Level { need: 0, .. })));
    let foreign = Encoder::new(&context, 8).unwrap().encode(&values(8), 1, scale).unwrap();
    assert!(matches!(encoder.decode(&foreign).err(), Some(HeError::SlotCount { left: 4, right: 8, .. })));
}

/// Values larger than the two lowest primes.
#[test]
fn decodes_values_larger_than_the_lowest_primes() {
    let context = context(6);
    let encoder = Encoder::new(&context, 32).unwrap();
    let large = [Complex::from(-3.0), Complex::new(0.0, 1.5)];
    let scale = Scale::power_of_two(58);
    let first = context.parameters().modulus_log2(1, 0);
    assert!(first < 58.0 && context.parameters().levels() > 1);
    assert!(matches!(encoder.encode(&large, 1, scale).err(), Some(HeError::TooLarge { .. })));
    let plaintext = encoder.encode(&large, context.parameters().levels(), scale).unwrap();
    let mut grown = plaintext.clone();
    // Times 2^40: 2^98 and more, read at the same scale.
    grown.poly.scale_assign(&context, |k| context.modulus(plaintext.poly.shape(), k).reduce(1 << 40));
    let decoded = encoder.decode(&grown).unwrap();
    let expected = |v: Complex| Complex::new(v.re * 2f64.powi(40), v.im * 2f64.powi(40));
    assert!(large.iter().zip(decoded.iter()).all(|(&v, decoded)| (expected(v) - *decoded).abs() < 2f64.powi(-8)));
}
