//! Bootstraps in small rings.

use super::super::eval::{Evaluator, Method};
use super::super::tests::Bench;
use super::super::{Complex, KeyGroup, KeySet, NamedSet, ParametersSpec, SPARSE_WEIGHT, Segment};
use super::{BootstrapSpec, Bootstrapper};
use crate::HeError;
use std::collections::BTreeMap;

fn spec(log_degree: u32, arcsine: bool) -> ParametersSpec {
    let levels = if arcsine { 13 } else { 11 };
    ParametersSpec {
        log_degree,
        base_bits: 50,
        segments: vec![Segment { count: 3, bits: 42 }, Segment { count: levels, bits: 50 }],
        special_bits: 50,
        groups: vec![KeyGroup { up_to_level: 4, alpha: 2 }, KeyGroup { up_to_level: levels + 4, alpha: 4 }],
        encapsulated: true,
    }
}

fn bootstrap_spec(slots: usize, arcsine: bool, method: Method) -> BootstrapSpec {
    let cache_bytes = 1 << 20;
    BootstrapSpec { slots, slot_to_coeff: 2, coeff_to_slot: 3, message_ratio_bits: 8, arcsine, method, cache_bytes }
}

fn bootstrap_slots(bench: &mut Bench, boot: &Bootstrapper, keys: &KeySet, x: &[Complex]) -> Vec<Complex> {
    let a = bench.encrypt(x, boot.level_in());
    bench.decrypt(&boot.bootstrap(&Evaluator::new(&bench.context, keys), &a).unwrap())
}

/// Worst error and root mean square over the slots, and the estimate of the latter.
fn errors(bench: &mut Bench, boot: &Bootstrapper) -> [f64; 3] {
    let keys = bench.keys(&boot.keys());
    assert_eq!(keys.len(), boot.keys().len());
    let slots = boot.spec().slots;
    let x = bench.real_values(slots);
    let a = bench.encrypt(&x, boot.level_in());
    let context = bench.context.clone();
    let before = context.counters().read();
    let fresh = boot.bootstrap(&Evaluator::new(&context, &keys), &a).unwrap();
    let did = context.counters().read() - before;
    let transforms = boot.plans().map(|plan| plan.switches()).sum::<usize>();
    let others = boot.switches().into_iter().map(|(_, count)| count).sum::<usize>();
    assert_eq!(did.key_switches, (transforms + others) as u64);
    assert_eq!(fresh.level(), boot.level_out());
    assert!(fresh.scale().agrees(context.parameters().scale(boot.level_out())));
    let actual = bench.decrypt(&fresh);
    let differences: Vec<f64> = actual.iter().zip(&x).map(|(a, b)| (*a - *b).abs()).collect();
    let mean = differences.iter().map(|d| d * d).sum::<f64>() / slots as f64;
    let estimate = fresh.estimate().slot_deviation(slots, fresh.scale().to_f64());
    [differences.into_iter().fold(0.0, tacit_floats::larger), mean.sqrt(), estimate]
}

/// The same wave in the clear and encrypted.
#[test]
fn large_slots_follow_the_wave() {
    for arcsine in [false, true] {
        let mut bench = Bench::new(&spec(9, arcsine), 5);
        let boot = Bootstrapper::new(&bench.context.clone(), &bootstrap_spec(256, arcsine, Method::Hoisted)).unwrap();
        let keys = bench.keys(&boot.keys());
        let values: Vec<f64> = (0..256).map(|i| f64::from(i) * 1.25 - 160.0).collect();
        let x: Vec<Complex> = values.iter().map(|&v| Complex::from(v)).collect();
        let actual = bootstrap_slots(&mut bench, &boot, &keys, &x);
        let shifts = actual.iter().zip(&values).map(|(actual, &v)| (actual.re - boot.slot_after(v)).abs());
        let shift = shifts.fold(0.0, tacit_floats::larger);
        assert!(shift < 0.05, "off by {shift}");
        // Terms of higher order add to the estimated one.
        let error = [0.5, -1.0].map(|v| (boot.slot_after(v) - v).abs()).into_iter().fold(0.0, tacit_floats::larger);
        assert!(error <= 1.25 * boot.approximation(), "{error}, {} estimated", boot.approximation());
        assert!((boot.slot_after(250.0) - boot.slot_after(-6.0)).abs() < 1e-9 && boot.slot_after(1e9).abs() < 100.0);
    }
}

#[test]
fn bootstraps_return_slots_at_a_high_level() {
    for (slots, arcsine, method) in [
        (256, false, Method::Hoisted),
        (256, true, Method::Hoisted),
        (256, true, Method::Paired),
        (256, true, Method::Chained),
        (32, true, Method::Hoisted),
    ] {
        let mut bench = Bench::new(&spec(9, arcsine), 5);
        let boot = Bootstrapper::new(&bench.context.clone(), &bootstrap_spec(slots, arcsine, method)).unwrap();
        let [worst, mean, estimate] = errors(&mut bench, &boot);
        assert!(worst < boot.approximation() + 4.0 * boot.noise(), "{worst}");
        assert!((0.5..1.5).contains(&(mean / estimate)), "{mean} where {estimate} was estimated");
    }
}

/// Probability that a coefficient wraps `q_0` at least `range` times, in either direction: that 33
/// uniform numbers of [-1/2, 1/2] sum to at least `range - 1/2` in size, by convolving 64-point
/// discretisations.
fn failure(range: u32) -> f64 {
    const PLACES: usize = 64;
    let terms = SPARSE_WEIGHT + 1;
    let mut sums = vec![1.0];
    for _ in 0..terms {
        let at = |i: usize| sums[(i + 1).saturating_sub(PLACES)..(i + 1).min(sums.len())].iter().sum::<f64>();
        sums = (0..sums.len() + PLACES - 1).map(|i| at(i) / PLACES as f64).collect();
    }
    let middle = (sums.len() - 1) as f64 / 2.0;
    let bound = (f64::from(range) - 0.5) * PLACES as f64;
    sums.iter().enumerate().filter(|(i, _)| (*i as f64 - middle).abs() >= bound).map(|(_, p)| p).sum()
}

/// With ranges of 4 and 5 instead of 16, up to four deviations.
#[test]
fn failures_are_as_frequent_as_stated() {
    for (range, runs) in [(4, 8), (5, 16)] {
        let p = failure(range);
        let mut failed = 0;
        let (mut bench, context) = Bench::with_context(&spec(9, false), 8);
        let spec = bootstrap_spec(256, false, Method::Hoisted);
        let boot = Bootstrapper::with_range(&context, &spec, range).unwrap();
        let keys = bench.keys(&boot.keys());
        for _ in 0..runs {
            let x = bench.real_values(256);
            let slots = bootstrap_slots(&mut bench, &boot, &keys, &x);
            failed += slots.iter().zip(&x).filter(|(actual, expected)| (**actual - **expected).abs() > 0.05).count();
        }
        let expected = p * f64::from(runs) * 256.0;
        println!("range {range}: {failed} slots of {} failed, {expected:.1} expected", runs * 256);
        assert!((failed as f64 - expected).abs() < 4.0 * expected.sqrt(), "{failed} failed, {expected:.1} expected");
    }
    // The same sum at the range in use is as stated, as far as 64 places can tell.
    let boot = Bootstrapper::new(&Bench::new(&spec(9, false), 8).context, &bootstrap_spec(256, false, Method::Hoisted));
    let stated = boot.unwrap().failure_log2() - 9.0;
    assert!((failure(16).log2() - stated).abs() < 1.0, "2^{} where 2^{stated} is stated", failure(16).log2());
}

/// Worst error and root mean square over all slots of `runs` bootstraps of a set, `per_key` with
/// the same keys. Prints the number of slots by their bits of precision.
fn histogram(name: &str, spec: &BootstrapSpec, runs: usize, per_key: usize, seed: u8) -> [f64; 2] {
    let set = NamedSet::find(name).unwrap().spec();
    let (mut bits, mut worst, mut squares) = (BTreeMap::<i32, usize>::new(), 0.0f64, 0.0);
    for client in 0..runs / per_key {
        let (mut bench, context) = Bench::with_context(&set, seed + client as u8);
        let boot = Bootstrapper::new(&context, spec).unwrap();
        let keys = bench.keys(&boot.keys());
        for _ in 0..per_key {
            let x = bench.real_values(spec.slots);
            for (actual, expected) in bootstrap_slots(&mut bench, &boot, &keys, &x).iter().zip(&x) {
                let error = (*actual - *expected).abs();
                *bits.entry(-error.log2().ceil() as i32).or_default() += 1;
                (worst, squares) = (worst.max(error), squares + error * error);
            }
        }
    }
    let mean = (squares / (runs * spec.slots) as f64).sqrt();
    println!("set {name}, {runs} runs: rms 2^{:.2}, worst 2^{:.2}, slots by bits: {bits:?}", mean.log2(), worst.log2());
    [worst, mean]
}

/// Set B as used in practice (some minutes).
#[test]
#[ignore = "heavy: make test-heavy"]
fn set_b_keeps_sixteen_bits() {
    let spec = BootstrapSpec { message_ratio_bits: 10, ..bootstrap_spec(1 << 14, false, Method::Chained) };
    let [worst, mean] = histogram("B", &spec, 20, 5, 60);
    assert!(mean < 2f64.powi(-16) && worst < 2f64.powi(-12), "worst 2^{}, rms 2^{}", worst.log2(), mean.log2());
}

/// Set A as used in practice.
#[test]
#[ignore = "heavy: make test-heavy"]
fn set_a_keeps_twenty_bits() {
    let spec =
        BootstrapSpec { slot_to_coeff: 3, message_ratio_bits: 7, ..bootstrap_spec(1 << 15, true, Method::Chained) };
    let [worst, mean] = histogram("A", &spec, 20, 5, 80);
    assert!(mean < 2f64.powi(-20) && worst < 2f64.powi(-16), "worst 2^{}, rms 2^{}", worst.log2(), mean.log2());
}

#[test]
fn rejects_bad_input_before_anything_runs() {
    let (mut bench, context) = Bench::with_context(&spec(9, false), 6);
    let good = bootstrap_spec(256, false, Method::Hoisted);
    for bad in [
        BootstrapSpec { slot_to_coeff: 0, ..good },
        BootstrapSpec { coeff_to_slot: 9, ..good },
        BootstrapSpec { message_ratio_bits: 7, ..good },
        BootstrapSpec { arcsine: true, slot_to_coeff: 3, ..good },
    ] {
        assert!(matches!(Bootstrapper::new(&context, &bad).err(), Some(HeError::Circuit { .. })), "{bad:?}");
    }
    let boot = Bootstrapper::new(&context, &good).unwrap();
    assert_eq!((boot.level_in(), boot.depth(), boot.level_out()), (3, 11, 4));
    let mut needs = boot.keys();
    let x = bench.values(256);
    let a = bench.encrypt(&x, 3);
    let dropped = needs.pop().unwrap();
    let keys = bench.keys(&needs);
    let before = context.counters().read();
    let refused = boot.bootstrap(&Evaluator::new(&context, &keys), &a).err().unwrap();
    assert!(matches!(refused, HeError::MissingKey { level, .. } if level == dropped.level), "{refused}");
    assert_eq!(context.counters().read(), before);
    let low = a.drop_to(2).unwrap();
    needs.push(dropped);
    let keys = bench.keys(&needs);
    let refused = boot.bootstrap(&Evaluator::new(&context, &keys), &low).err();
    assert!(matches!(refused, Some(HeError::Level { need: 3, have: 2, .. })));
}

/// `Paired` has one key more per part and fewer transforms.
#[test]
fn chained_bootstraps_need_few_keys() {
    let bench = Bench::new(&spec(9, false), 7);
    let high = |method| {
        let boot = Bootstrapper::new(&bench.context, &bootstrap_spec(256, false, method)).unwrap();
        let alpha = |level| bench.context.parameters().alpha(level);
        let ntts = boot.plans().map(|plan| plan.work(alpha(plan.level())).ntts).sum::<usize>();
        (boot.keys().iter().filter(|key| key.level > boot.level_in()).count(), ntts)
    };
    let [hoisted, paired, chained] = [Method::Hoisted, Method::Paired, Method::Chained].map(high);
    assert!(chained.0 <= 5 + 2 * 3 && hoisted.0 > paired.0, "{hoisted:?} and {chained:?}");
    assert!(paired.0 <= chained.0 + 3 && hoisted.1 < paired.1 && paired.1 < chained.1, "{paired:?} and {chained:?}");
}
