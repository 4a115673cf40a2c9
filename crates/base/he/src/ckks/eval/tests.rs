//! Linear transforms and polynomials against plain computation, with their keys and counts.

use super::super::tests::{Bench, diagonal_scale, spec, worst};
use super::super::{Complex, Encoder, KeyId, KeyKind, Scale};
use super::*;
use crate::HeError;
use std::collections::BTreeMap;

fn plain_transform(diagonals: &BTreeMap<i64, Vec<Complex>>, v: &[Complex]) -> Vec<Complex> {
    let n = v.len() as i64;
    let entry = |i: i64| {
        let term = |(&d, values): (&i64, &Vec<Complex>)| values[i as usize] * v[(i + d).rem_euclid(n) as usize];
        diagonals.iter().map(term).fold(Complex::default(), |sum, x| sum + x)
    };
    (0..n).map(entry).collect()
}

/// A transform with baby steps below `2^log`.
fn with_babies(encoder: &Encoder, spec: &TransformSpec<'_>, log: u32) -> Result<LinearTransform, HeError> {
    let offsets = spec.diagonals.keys().copied();
    let plan = TransformPlan::with_babies(encoder.slots(), spec.level, spec.method, offsets, log)?;
    LinearTransform::with_plan(encoder, spec, plan)
}

/// Methods, bytes of stored diagonals, and log2 of baby steps (`None`: as many as are best).
fn ways(log: u32) -> impl Iterator<Item = (Method, usize, Option<u32>)> {
    let usual = [
        (Method::Flat, 0),
        (Method::Flat, 1 << 20),
        (Method::Hoisted, 0),
        (Method::Paired, 0),
        (Method::Chained, 1 << 16),
        (Method::Powers, 0),
    ];
    let split = [(Method::Flat, log), (Method::Paired, log + 1), (Method::Chained, log + 1), (Method::Powers, log)];
    let usual = usual.into_iter().map(|(method, cache_bytes)| (method, cache_bytes, None));
    usual.chain(split.into_iter().map(|(method, log)| (method, 0, Some(log))))
}

/// Most keys of a transform of 64 slots.
fn most_keys(method: Method, diagonals: usize) -> usize {
    match method {
        Method::Chained => 3,
        Method::Paired => 4,
        Method::Powers => 11,
        Method::Flat | Method::Hoisted => 2 * diagonals,
    }
}

/// All methods, caches, strides, negative offsets and repeating diagonals: the value, the
/// deviation, and exactly the stated keys.
#[test]
fn transforms_match_the_plain_ones() {
    let level = 4;
    let mut squares: BTreeMap<bool, Vec<f64>> = BTreeMap::new();
    let strides = (-8..8).map(|d| 4 * d).collect::<Vec<i64>>();
    let diagonal_sets = [vec![0], vec![3], vec![-7, -3, 0, 1, 2, 5, 30], strides];
    for (run, offsets) in diagonal_sets.iter().enumerate() {
        let (mut bench, context) = Bench::with_context(&spec(9), run as u8 + 1);
        let encoder = Encoder::new(&context, 64).unwrap();
        let mut diagonals: BTreeMap<i64, Vec<Complex>> = offsets.iter().map(|&d| (d, bench.values(64))).collect();
        // A diagonal that repeats lives in a subring.
        let first = diagonals.values_mut().next().unwrap();
        (8..64).for_each(|i| first[i] = first[i % 8]);
        let x = bench.values(64);
        let expected = plain_transform(&diagonals, &x);
        let a = bench.encrypt(&x, level);
        for (method, cache_bytes, log_babies) in ways(run as u32) {
            let parameters = context.parameters();
            let scale = diagonal_scale(parameters, level);
            let spec = TransformSpec { diagonals: &diagonals, level, scale, method, cache_bytes };
            let transform_with = |log| with_babies(&encoder, &spec, log);
            let transform = log_babies.map_or_else(|| LinearTransform::new(&encoder, &spec), transform_with).unwrap();
            assert!(log_babies.is_none_or(|log| transform.plan().log_babies() == log));
            assert!(transform.memory_bytes() <= cache_bytes + 8 * 128 * offsets.len());
            let needs = transform.plan().keys(&context);
            assert!(needs.len() <= most_keys(method, offsets.len()), "{method:?}: {needs:?}");
            let keys = bench.keys(&needs);
            let e = Evaluator::new(&context, &keys);
            let before = context.counters().read();
            let result = e.transform(&a, &transform).unwrap();
            let did = context.counters().read() - before;
            let work = transform.plan().work(context.parameters().alpha(level));
            assert_eq!(did.key_switches, work.key_switches as u64);
            let total_ntts = (work.ntts + work.diagonal_ntts) as u64;
            assert!(did.ntts == total_ntts || (cache_bytes > 0 && (work.ntts as u64..total_ntts).contains(&did.ntts)));
            assert!(result.scale().agrees(parameters.scale(level - 1)) && result.level() == level - 1);
            let ratio = bench.ratio(&result, &expected);
            squares.entry(method.is_chained()).or_default().push(ratio * ratio);
            assert!(worst(&bench.decrypt(&result), &expected) < 1e-6);
            // Without any one of its keys, the transform is refused.
            if let Some(missing) = needs.first() {
                let keys = bench.keys(&needs[1..]);
                assert!(matches!(keys.check(&needs), Err(HeError::MissingKey { .. })), "{missing:?}");
                assert!(matches!(
                    Evaluator::new(&context, &keys).transform(&a, &transform),
                    Err(HeError::MissingKey { .. })
                ));
            }
        }
    }
    for (is_chained, squares) in squares {
        let mean = (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
        assert!((0.5..=1.5).contains(&mean), "chained {is_chained}: {mean:.2} times the estimate");
    }
}

/// A 7 x 7 window in rows of 16, from four blocks of 128: two thirds of the keys.
#[test]
fn blocks_share_their_keys() {
    let mut bench = Bench::new(&spec(10), 6);
    let (context, level) = (bench.context.clone(), 3);
    let encoder = Encoder::new(&context, 512).unwrap();
    let window = |i: i64| 16 * (i / 7 - 3) + i % 7 - 3;
    let offsets = (0..4).flat_map(|block| (0..49).map(move |i| 128 * block + window(i)));
    let diagonals: BTreeMap<i64, Vec<Complex>> = offsets.map(|d| (d, bench.values(512))).collect();
    let x = bench.values(512);
    let expected = plain_transform(&diagonals, &x);
    let a = bench.encrypt(&x, level);
    let scale = diagonal_scale(context.parameters(), level);
    let mut run = |method| {
        let spec = TransformSpec { diagonals: &diagonals, level, scale, method, cache_bytes: 0 };
        let transform = LinearTransform::new(&encoder, &spec).unwrap();
        let keys = bench.keys(&transform.plan().keys(&context));
        let before = context.counters().read();
        let result = Evaluator::new(&context, &keys).transform(&a, &transform).unwrap();
        assert!(worst(&bench.decrypt(&result), &expected) < 1e-5);
        assert!(transform.plan().switches() >= keys.len());
        (keys.len(), (context.counters().read() - before).key_switches)
    };
    let [flat, hoisted, chained] = [Method::Flat, Method::Hoisted, Method::Chained].map(&mut run);
    assert!(3 * hoisted.0 <= 2 * flat.0 && hoisted.1 <= flat.1 + 16 && chained.0 <= 3, "{flat:?} {hoisted:?}");
}

/// On any number of threads: no more than stated, not much fewer, and the result of one thread.
#[test]
fn transforms_hold_as_many_buffers_as_stated() {
    let level = 7;
    let methods = [Method::Flat, Method::Hoisted, Method::Paired, Method::Chained];
    for (method, threads) in methods.into_iter().flat_map(|method| [(method, 2), (method, 16)]) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (mut bench, context) = Bench::with_context(&spec(13), 31);
        let encoder = Encoder::new(&context, 128).unwrap();
        let diagonals: BTreeMap<i64, Vec<Complex>> = (0..64).map(|d| (d, bench.values(128))).collect();
        let spec =
            TransformSpec { diagonals: &diagonals, level, scale: Scale::power_of_two(40), method, cache_bytes: 0 };
        let transform = LinearTransform::new(&encoder, &spec).unwrap();
        let x = bench.values(128);
        let a = bench.encrypt(&x, level);
        let keys = bench.keys(&transform.plan().keys(&context));
        let before = context.spares().count();
        let result = pool.install(|| Evaluator::new(&context, &keys).transform(&a, &transform).unwrap());
        // Buffers are made a page at a time, and each thread has a few of its own.
        let (allocated, stated) = (context.spares().count(), transform.plan().held_limbs(&context, 0));
        assert!(allocated > before, "{method:?}: {allocated}");
        assert!(allocated <= stated + 28 + 4 * threads, "{method:?}, {threads} threads: {allocated}, {stated} stated");
        assert!(2 * stated <= 3 * allocated, "{method:?}, {threads} threads: {allocated}, {stated} stated");
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let same = alone.install(|| Evaluator::new(&context, &keys).transform(&a, &transform).unwrap());
        assert_eq!(result.to_bytes(&context), same.to_bytes(&context), "{method:?}");
    }
}

#[test]
fn rejects_impossible_transforms() {
    let bench = Bench::new(&spec(9), 9);
    let encoder = Encoder::new(&bench.context, 64).unwrap();
    let none = BTreeMap::new();
    let short = BTreeMap::from([(1, vec![Complex::default(); 63])]);
    let good = BTreeMap::from([(1, vec![Complex::from(1.0); 64])]);
    let compile = |diagonals, level| {
        let spec =
            TransformSpec { diagonals, level, scale: Scale::power_of_two(40), method: Method::Flat, cache_bytes: 0 };
        LinearTransform::new(&encoder, &spec).err()
    };
    assert!(matches!(compile(&none, 4), Some(HeError::Circuit { .. })));
    assert!(matches!(compile(&short, 4), Some(HeError::Circuit { .. })));
    assert!(matches!(compile(&good, 1), Some(HeError::Circuit { .. })));
    assert!(matches!(compile(&good, 9), Some(HeError::Level { need: 9, have: 8, .. })));
    assert!(compile(&good, 4).is_none());
    let babies = |log| TransformPlan::with_babies(64, 4, Method::Hoisted, [1, 5].into_iter(), log);
    assert!(babies(6).is_ok() && matches!(babies(7), Err(HeError::Circuit { .. })));
}

fn coefficients(degree: usize) -> Vec<f64> {
    (0..=degree).map(|i| ((i * i * 5 + 3 * i + 1) % 13) as f64 / 13.0 - 0.45).collect()
}

/// Both bases, every degree up to 31 and one of 63: value, depth, exact scale, deviation.
#[test]
fn polynomials_match_the_plain_ones() {
    let (mut bench, context) = Bench::with_context(&spec(8), 21);
    let top = context.parameters().levels();
    let keys = bench.keys(&relinearisation_needs(&context, top, 1));
    let e = Evaluator::new(&context, &keys);
    let x = bench.real_values(128);
    let a = bench.encrypt(&x, top).with_magnitude(3f64.sqrt().recip());
    let mut squares = Vec::new();
    for basis in [Basis::Power, Basis::Chebyshev] {
        for degree in (1..=31).chain([63]) {
            let p = Polynomial::new(basis, &coefficients(degree)).unwrap();
            assert_eq!(p.depth(), (degree as f64 + 1.0).log2().ceil() as usize);
            let result = e.polynomial(&a, &p).unwrap();
            assert_eq!(result.level(), top - p.depth());
            assert!(result.scale().agrees(context.parameters().scale(result.level())));
            let expected: Vec<Complex> = x.iter().map(|v| Complex::from(p.at(v.re))).collect();
            let actual = bench.decrypt(&result);
            assert!(worst(&actual, &expected) < 1e-6, "{basis:?} {degree}: {}", worst(&actual, &expected));
            squares.push((degree, bench.ratio(&result, &expected).powi(2)));
        }
    }
    // Errors of powers are estimated as independent, which holds less and less as the degree grows.
    for (degrees, max_error) in [(1..=3, 1.5), (4..=63, 3.0)] {
        let ratios: Vec<f64> = squares.iter().filter(|(degree, _)| degrees.contains(degree)).map(|(_, s)| *s).collect();
        let mean = (ratios.iter().sum::<f64>() / ratios.len() as f64).sqrt();
        assert!((0.5..=max_error).contains(&mean), "degrees {degrees:?}: {mean:.2} times the estimate");
    }
}

/// All coefficients, or the odd ones alone.
#[test]
fn polynomials_relinearise_as_often_as_stated() {
    const ALL: [usize; 31] =
        [0, 1, 2, 3, 3, 3, 4, 5, 5, 5, 5, 5, 6, 6, 7, 7, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8, 9, 9, 10];
    const ODD: [usize; 16] = [0, 2, 3, 4, 5, 5, 6, 7, 7, 7, 8, 8, 8, 8, 9, 10];
    let (mut bench, context) = Bench::with_context(&spec(8), 24);
    let keys = bench.keys(&relinearisation_needs(&context, 8, 1));
    let e = Evaluator::new(&context, &keys);
    let x = bench.real_values(128);
    let a = bench.encrypt(&x, 8);
    let some = |degree: usize, is_nonzero: fn(usize) -> bool| -> Vec<f64> {
        (0..=degree).map(|i| if is_nonzero(i) { (i as f64 + 3.0).sqrt().recip() } else { 0.0 }).collect()
    };
    for basis in [Basis::Power, Basis::Chebyshev] {
        let cases = ALL.iter().zip(1..).map(|(&count, degree)| (count, some(degree, |_| true)));
        let odd = ODD.iter().zip((1..).step_by(2)).map(|(&count, degree)| (count, some(degree, |i| i % 2 == 1)));
        for (count, coefficients) in cases.chain(odd) {
            let p = Polynomial::new(basis, &coefficients).unwrap();
            let by_level = p.relinearisations();
            assert_eq!(
                (by_level.len(), by_level.iter().sum::<usize>()),
                (p.depth(), count),
                "{basis:?} {coefficients:?}"
            );
            let before = context.counters().read();
            let powers = e.powers(&a, &[&p]).unwrap();
            e.polynomial_at(&powers, &p, 8 - p.depth(), context.parameters().scale(8 - p.depth())).unwrap();
            assert_eq!((context.counters().read() - before).key_switches, count as u64);
        }
    }
    // The wave of bootstraps takes nine; eight baby steps would take eleven.
    let wave = Polynomial::new(Basis::Chebyshev, &coefficients(30)).unwrap();
    assert_eq!(wave.relinearisations(), [1, 2, 2, 3, 1]);
}

/// The second polynomial costs only its own products.
#[test]
fn powers_are_shared_and_products_counted() {
    let (mut bench, context) = Bench::with_context(&spec(8), 22);
    let keys = bench.keys(&relinearisation_needs(&context, 8, 1));
    let e = Evaluator::new(&context, &keys);
    let x = bench.real_values(128);
    let a = bench.encrypt(&x, 8);
    let polynomials = [31, 15].map(|degree| Polynomial::new(Basis::Chebyshev, &coefficients(degree)).unwrap());
    let before = context.counters().read();
    let powers = e.powers(&a, &[&polynomials[0], &polynomials[1]]).unwrap();
    let shared = context.counters().read();
    // T_2, T_3, T_4, T_8 and T_16.
    assert_eq!((shared - before).key_switches, 5);
    for (p, products) in polynomials.iter().zip([5, 3]) {
        let before = context.counters().read();
        let result = e.polynomial_at(&powers, p, 3, context.parameters().scale(3)).unwrap();
        assert_eq!((context.counters().read() - before).key_switches, products, "degree {}", p.degree());
        let expected: Vec<Complex> = x.iter().map(|v| Complex::from(p.at(v.re))).collect();
        assert!(worst(&bench.decrypt(&result), &expected) < 1e-6);
    }
    let identity = Polynomial::new(Basis::Power, &[0.0, 1.0]).unwrap();
    assert!(matches!(e.polynomial_at(&powers, &identity, 3, Scale::ONE).err(), Some(HeError::Circuit { .. })));
    let low = a.drop_to(5).unwrap();
    assert!(matches!(e.polynomial(&low, &polynomials[0]).err(), Some(HeError::Level { need: 6, have: 5, .. })));
    for bad in [vec![1.0], vec![], vec![0.0, f64::NAN]] {
        assert!(matches!(Polynomial::new(Basis::Power, &bad).err(), Some(HeError::Circuit { .. })));
    }
}

/// A composite sign, two stages of `(3 x - x^3) / 2`, and the ReLU made of it.
#[test]
fn composites_and_relu() {
    let (mut bench, context) = Bench::with_context(&spec(8), 23);
    let keys = bench.keys(&[
        KeyId::for_level(&context, KeyKind::Relinearise, 3),
        KeyId::for_level(&context, KeyKind::Relinearise, 8),
    ]);
    let e = Evaluator::new(&context, &keys);
    let x = bench.real_values(128);
    let a = bench.encrypt(&x, 8);
    let stage = Polynomial::new(Basis::Power, &[0.0, 1.5, 0.0, -0.5]).unwrap();
    let sign = [stage.clone(), stage.clone()];
    let relu = e.relu(&a, &sign).unwrap();
    assert_eq!(relu.level(), 8 - 2 - 2 - 1);
    assert!(relu.scale().agrees(context.parameters().scale(3)));
    let expected: Vec<Complex> =
        x.iter().map(|v| Complex::from(v.re * (1.0 + stage.at(stage.at(v.re))) / 2.0)).collect();
    assert!(worst(&bench.decrypt(&relu), &expected) < 1e-6);
}
