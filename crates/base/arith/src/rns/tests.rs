//! Tests of bases of one to three primes, against integers and against the single transform.

use super::*;
use crate::LatticeError;
use crate::cpu::Cpu;
use crate::modulus::Modulus;
use crate::ntt::MAX_ACCUMULATED;
use proptest::prelude::*;

const P: [u64; 3] = [1_125_899_906_826_241, 40_961, 65_537];
const N: usize = 64;

fn basis(primes: usize) -> RnsBasis {
    RnsBasis::new(N, &P[..primes]).unwrap()
}

fn residues(v: u128) -> [u64; 3] {
    P.map(|p| (v % u128::from(p)) as u64)
}

#[test]
fn rejects_impossible_bases() {
    assert_eq!(RnsBasis::new(N, &[]).err(), Some(LatticeError::NoPrimes));
    assert_eq!(RnsBasis::new(N, &[P[1], P[0], P[1]]).err(), Some(LatticeError::Repeated { value: P[1] }));
    assert_eq!(RnsBasis::new(N, &[P[0], 15]).err(), Some(LatticeError::Modulus { value: 15 }));
    assert_eq!(RnsBasis::new(8192, &P[1..]).err(), Some(LatticeError::NoRoot { value: P[1], order: 16_384 }));
    let basis3 = basis(3);
    assert_eq!((basis3.degree(), basis3.levels(), basis3.modulus(2).value()), (N, 3, P[2]));
}

proptest! {
    #[test]
    fn lift_and_rescale_agree_with_integers(v: u128) {
        let basis3 = basis(3);
        let product = |level: usize| P[..level].iter().map(|&p| u128::from(p)).product::<u128>();
        let [a, b, c] = residues(v % product(3));
        prop_assert_eq!(basis3.lift::<1>().apply([a]), u128::from(a));
        prop_assert_eq!(basis3.lift::<2>().apply([a, b]), v % product(3) % product(2));
        prop_assert_eq!(basis3.lift::<3>().apply([a, b, c]), v % product(3));
        for level in 2..=3 {
            let (q, last) = (product(level), u128::from(P[level - 1]));
            let rounded = (v % q + last / 2) / last;
            let x = residues(v % q);
            for i in 0..level - 1 {
                let actual = basis3.rescale(level, i).apply(x[i], x[level - 1]);
                prop_assert_eq!(actual, residues(rounded)[i], "level {} residue {}", level, i);
            }
        }
    }

    #[test]
    fn polynomials_rescale_every_coefficient(values in prop::collection::vec(any::<u64>(), N)) {
        let basis3 = basis(3);
        let words = P.iter().flat_map(|p| values.iter().map(move |v| v % p)).collect();
        let mut poly = RnsPoly::<Coeff>::new(&basis3, words);
        poly.rescale(&basis3);
        prop_assert_eq!(poly.level(), 2);
        let divided = |v: &u64| (u128::from(*v) + u128::from(P[2] / 2)) / u128::from(P[2]);
        for (i, p) in P[..2].iter().enumerate() {
            let expected: Vec<u64> = values.iter().map(|v| divided(v) as u64 % p).collect();
            prop_assert_eq!(poly.residue(i), expected);
        }
    }
}

#[test]
fn representations_round_trip_and_products_are_residue_wise() {
    let basis2 = basis(2);
    let signed: Vec<i64> = (0..N as i64).map(|i| (i - 32) * 5000).collect();
    let poly = RnsPoly::from_signed(&basis2, 2, &signed);
    assert_eq!(poly.residue(1)[0], (-160_000i64).rem_euclid(40_961) as u64);
    let transformed = poly.clone().into_ntt(&basis2);
    assert!(transformed.clone().into_coeff(&basis2) == poly);
    let mut squared = transformed.clone();
    squared.mul_assign(&transformed, &basis2);
    for i in 0..2 {
        let mut expected = poly.residue(i).to_vec();
        basis2.table(i).forward(&mut expected);
        let factor = expected.clone();
        basis2.table(i).mul_assign(&mut expected, &factor);
        assert_eq!(squared.residue(i), expected);
    }
    // An operand may have a higher level.
    let mut low = RnsPoly::from_signed(&basis2, 1, &signed).into_ntt(&basis2);
    low.mul_assign(&transformed, &basis2);
    assert_eq!(low.residue(0), squared.residue(0));
    low.sub_assign(&squared, &basis2);
    assert_eq!((low.level(), low.residue(0)), (1, &[0; N][..]));
}

#[test]
fn sums_fold_before_they_overflow_and_take_lower_levels() {
    let basis2 = basis(2);
    let words = P[..2].iter().flat_map(|p| [p - 1; N]).collect();
    let full = RnsPoly::<Ntt>::new(&basis2, words);
    let low = RnsPoly::<Ntt>::new(&basis2, vec![P[0] - 1; N]);
    let mut sum = Accumulator::new(&basis2, 2);
    for _ in 0..3 {
        sum.add_products(&basis2, 2, &[(&full, &full); 3000]);
    }
    sum.add_products(&basis2, 1, &[(&low, &low); MAX_ACCUMULATED]);
    let total = sum.take(&basis2);
    assert_eq!(total.residue(0), [9000 + MAX_ACCUMULATED as u64; N]);
    assert_eq!(total.residue(1), [9000; N]);
    assert!(sum.take(&basis2) == RnsPoly::new(&basis2, vec![0; 2 * N]));
}

#[test]
#[should_panic(expected = "the first prime cannot be dropped")]
fn level_one_cannot_be_rescaled() {
    let basis1 = basis(1);
    RnsPoly::<Coeff>::new(&basis1, vec![0; N]).rescale(&basis1);
}

/// Primes of 50, 16, 17, 30, 42 and 50 bits.
const MORE_PRIMES: [u64; 6] = [P[0], P[1], P[2], 1_073_692_673, 4_398_052_147_201, 1_125_899_906_629_633];

fn convert(conversion: &Conversion, sources: &[&[u64]], targets: usize) -> Vec<Vec<u64>> {
    let mut results = vec![vec![0; sources[0].len()]; targets];
    conversion.apply(sources, &mut results.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    results
}

fn moduli(primes: &[u64]) -> Vec<Modulus> {
    primes.iter().map(|&p| Modulus::new(p).unwrap()).collect()
}

/// Computes `sum digits[i] * prod_(j < i) primes[j]` mod p, exactly.
fn mixed(primes: &[u64], digits: &[u64], p: u64) -> u64 {
    let m = Modulus::new(p).unwrap();
    let step = |value: u64, (&q, &d): (&u64, &u64)| m.add(m.mul(value, m.reduce(q)), m.reduce(d));
    primes.iter().zip(digits).rev().fold(0, step)
}

proptest! {
    /// Random integers below Q, drawn in mixed radix. Away from the middle, the highest digit
    /// decides whether an integer is below Q/2, and thereby its centred representative.
    #[test]
    fn conversions_are_exact_and_centred(seed: [u64; 6], k in 1usize..=5, n in 1usize..300) {
        let (sources, targets) = (&MORE_PRIMES[..k], &MORE_PRIMES[..]);
        let top = sources[k - 1];
        let digits = |j: usize| -> Vec<u64> {
            let draw = |i: usize| seed[i].wrapping_mul(2 * j as u64 + 1).rotate_left(j as u32) % sources[i];
            // The middle, where either neighbour may result, is left out.
            (0..k).map(draw).map(|d| if k > 1 && d == top / 2 { 0 } else { d }).collect()
        };
        let values: Vec<Vec<u64>> = (0..n).map(digits).collect();
        let from: Vec<Vec<u64>> =
            sources.iter().map(|&p| values.iter().map(|d| mixed(sources, d, p)).collect()).collect();
        let slices: Vec<&[u64]> = from.iter().map(Vec::as_slice).collect();
        let expected = targets.iter().map(|&p| {
            let m = Modulus::new(p).unwrap();
            let product = sources.iter().fold(1, |r, &q| m.mul(r, m.reduce(q)));
            let centred = |v: &Vec<u64>, low| if v[k - 1] > top / 2 { m.sub(low, product) } else { low };
            values.iter().map(|v| centred(v, mixed(sources, v, p))).collect::<Vec<u64>>()
        });
        let expected: Vec<Vec<u64>> = expected.collect();
        for cpu in Cpu::available() {
            let conversion = Conversion::with_cpu(cpu, &moduli(sources), &moduli(targets)).unwrap();
            prop_assert_eq!(convert(&conversion, &slices, targets.len()), expected.clone(), "{:?}", cpu);
        }
    }
}

/// One coefficient more than a task, and the extremes of a residue.
#[test]
fn conversions_cover_every_coefficient() {
    let conversion = Conversion::new(&moduli(&MORE_PRIMES[..1]), &moduli(&MORE_PRIMES[1..])).unwrap();
    let p = MORE_PRIMES[0];
    let values: Vec<u64> = (0..4097).map(|i| [0, 1, p / 2, p / 2 + 1, p - 1, i][i as usize % 6]).collect();
    let results = convert(&conversion, &[&values], 5);
    let source = Modulus::new(p).unwrap();
    for (m, out) in moduli(&MORE_PRIMES[1..]).iter().zip(&results) {
        let expected: Vec<u64> = values.iter().map(|&v| m.reduce_i64(source.centred(v))).collect();
        assert_eq!(out, &expected);
    }
}

/// Residues are the largest, zeros, those of Q/2 rounded down (where either neighbour would be
/// right), and mixed ones.
#[test]
fn conversions_of_many_primes_agree_bit_for_bit() {
    let primes = (1..).map(|k| (1u64 << 50) + 1 - (k << 17)).filter_map(|p| Modulus::new(p).ok());
    let moduli: Vec<Modulus> = primes.take(MAX_SOURCES + 3).collect();
    for count in [6, 7, 8, 13, 14, 15, MAX_SOURCES] {
        let (source_moduli, target_moduli) = (&moduli[3..3 + count], &moduli[..5]);
        let residue = |m: &Modulus, i: u64| match i % 4 {
            0 => m.value() - 1,
            1 => 0,
            // Half of an odd Q, rounded down, is (Q - 1) / 2: -1/2 mod each prime.
            2 => m.value() / 2,
            _ => m.reduce((i + m.value()).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        };
        let x: Vec<Vec<u64>> = source_moduli.iter().map(|m| (0..300).map(|i| residue(m, i)).collect()).collect();
        let x: Vec<&[u64]> = x.iter().map(Vec::as_slice).collect();
        let results = Cpu::available().into_iter().map(|cpu| {
            convert(&Conversion::with_cpu(cpu, source_moduli, target_moduli).unwrap(), &x, target_moduli.len())
        });
        let results: Vec<Vec<Vec<u64>>> = results.collect();
        assert!(results.iter().all(|y| *y == results[0]), "{count} primes");
        // -1 mod every source is -1 mod every target, and targets 3 and 4 are sources as well.
        assert!(target_moduli.iter().zip(&results[0]).all(|(m, y)| y[0] == m.value() - 1 && y[1] == 0));
        assert_eq!(results[0][3..], [x[0].to_vec(), x[1].to_vec()]);
    }
}

#[test]
fn rejects_impossible_conversions() {
    let primes = moduli(&MORE_PRIMES);
    assert_eq!(Conversion::new(&[], &primes).err(), Some(LatticeError::NoPrimes));
    assert_eq!(Conversion::new(&primes, &[]).err(), Some(LatticeError::NoPrimes));
    let twice = [primes[0], primes[1], primes[0]];
    assert_eq!(Conversion::new(&twice, &primes).err(), Some(LatticeError::Repeated { value: P[0] }));
    let too_many: Vec<Modulus> = (3..400).filter_map(|p| Modulus::new(p).ok()).take(65).collect();
    assert_eq!(Conversion::new(&too_many, &primes).err(), Some(LatticeError::Sources { count: 65 }));
}
