//! Derived keys against direct keys, and against the errors and sizes stated for them.

use super::super::super::eval::Evaluator;
use super::super::super::tests::{Bench, prg, spec};
use super::super::super::{Complex, KeyFile, KeyForm, KeyMaker, NamedSet, Origin, Parameters, SecretKey};
use super::*;

const LEVEL: usize = 3;
const ALPHA: usize = 2;

fn galois(bench: &Bench, k: i64, level: usize) -> KeyId {
    KeyId::for_level(&bench.context, KeyKind::Galois(bench.context.rotation_element(k)), level)
}

/// Deviation of the error of a key, over its digits.
fn measure_deviation(bench: &Bench, key: &SwitchKey) -> f64 {
    let (context, gadget) = (&*bench.context, Gadget::plain(key.level(), key.alpha()));
    let KeyKind::Galois(element) = key.id().kind else { panic!("a rotation key") };
    let image = bench.secret.s().automorphism(context, inverse_element(context, element));
    let error = |j: usize| {
        let [mut b, mut a] = key.pair(context, j).unwrap();
        a.mul_assign(&image, context);
        b.add_assign(&a, context);
        let mut message = identity(context, gadget, j)[1].clone();
        message.mul_assign(bench.secret.s(), context);
        b.sub_assign(&message, context);
        let b = b.into_coeff(context);
        // The error is small, so the first prime holds it, and all others must agree.
        let centred = |k: usize| b.limb(k).iter().map(move |&x| context.modulus(gadget.shape, k).centred(x));
        assert!((1..gadget.shape.limbs()).all(|k| centred(k).eq(centred(0))), "an error is one integer");
        centred(0).map(|x| (x as f64).powi(2)).sum::<f64>()
    };
    let digits = gadget.len();
    ((0..digits).map(error).sum::<f64>() / (digits * context.degree()) as f64).sqrt()
}

/// Keys of one to five steps, at the masters' level and below. Special primes hide the error of a
/// key.
#[test]
fn derived_keys_rotate_as_exactly_as_direct_ones() {
    let (mut bench, context) = Bench::with_context(&spec(10), 71);
    let masters = Derivation::masters(&context, LEVEL, &[1, 4, 16]);
    let master_set = bench.keys(&masters);
    let x = bench.values(512);
    for level in [LEVEL, 2, 1] {
        let steps: [i64; 5] = [1, 5, 6, 21, 42];
        let needs = steps.map(|k| galois(&bench, k, level));
        let plan = Derivation::new(&context, &needs, &masters).unwrap();
        let before = context.counters().read();
        let derived = plan.run(&context, &master_set).unwrap();
        let did = context.counters().read() - before;
        assert_eq!(did.ntts as usize, plan.transforms(&context));
        assert_eq!((derived.len(), derived.memory_bytes()), (5, plan.memory_bytes(&context)));
        let direct = bench.keys(&needs);
        let a = bench.encrypt(&x, level);
        for (id, k) in needs.into_iter().zip(steps) {
            assert_eq!((derived.origin(id), direct.origin(id)), (Some(Origin::Derived), Some(Origin::Uploaded)));
            let key = derived.get_with(id.kind, level, ALPHA).unwrap();
            let ratio = measure_deviation(&bench, &key) / key.deviation();
            assert!((0.5..1.5).contains(&ratio), "level {level}, rotation by {k}: {ratio:.2} times the estimate");
            assert!(measure_deviation(&bench, &direct.get_with(id.kind, level, ALPHA).unwrap()) < 4.0);
            let expected: Vec<Complex> = (0..512).map(|i| x[(i + k as usize) % 512]).collect();
            for keys in [&derived, &direct] {
                let rotated = Evaluator::new(&context, keys).rotate(&a, k).unwrap();
                let ratio = bench.ratio(&rotated, &expected);
                assert!((0.5..1.5).contains(&ratio), "level {level}, rotation by {k}: {ratio:.2} times the estimate");
            }
        }
    }
}

/// Derived keys are two packed halves in memory; masters are sent, and written to files.
#[test]
fn bytes_are_counted() {
    let (mut bench, context) = Bench::with_context(&spec(8), 72);
    let masters = Derivation::masters(&context, LEVEL, &[1, 8]);
    let needs = [1, 2, 9, 18].map(|k| galois(&bench, k, LEVEL));
    let plan = Derivation::new(&context, &needs, &masters).unwrap();
    // Keys have two digits of five primes, masters five of six: one special prime is the master's
    // own.
    let bytes = |primes: &[u64]| primes.iter().map(|p| 256 / 8 * p.ilog2() as usize + 256 / 8).sum::<usize>();
    let parameters = context.parameters();
    let (special, last) = parameters.special_primes().split_at(2);
    let limbs = bytes(&parameters.primes()[..3]) + bytes(special);
    assert_eq!(plan.memory_bytes(&context), 4 * 2 * 2 * limbs);
    assert_eq!(plan.upload_bytes(&context), 2 * 5 * (16 + limbs + bytes(last)));
    // 10 is a step on the way to 18.
    assert_eq!((plan.steps(), plan.keys().count()), (5, 4));
    let mut derived = plan.run(&context, &bench.keys(&masters)).unwrap();
    assert_eq!(derived.memory_bytes(), plan.memory_bytes(&context));
    let key = derived.get_with(needs[1].kind, LEVEL, ALPHA).unwrap();
    let refused = key.write(&context, &mut Vec::new()).err().unwrap();
    assert!(refused.to_string().contains("write its masters"), "{refused}");
    derived.hold_as(&context, KeyForm::Expanded).unwrap();
    assert_eq!(derived.origin(needs[1]), Some(Origin::Derived));
    let expanded = derived.get_with(needs[1].kind, LEVEL, ALPHA).unwrap();
    assert!((0..2).all(|j| expanded.pair(&context, j).unwrap() == key.pair(&context, j).unwrap()));
    // Masters that are read from a file, one at a time, give keys that rotate.
    let path = std::env::temp_dir().join(format!("tacit-masters-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut maker = KeyMaker::new(&bench.secret, &mut bench.prg);
    KeyFile::write(&path, &context, &[7; 32], &masters, |id| maker.make(id)).unwrap();
    let file = KeyFile::open(&path, &context, &[7; 32]).unwrap();
    std::fs::remove_file(&path).unwrap();
    let from_file = plan.run(&context, &KeySet::paged(&context, file, 0)).unwrap();
    assert_eq!(from_file.memory_bytes(), plan.memory_bytes(&context));
    let x = bench.values(128);
    let a = bench.encrypt(&x, LEVEL);
    let rotated = bench.decrypt(&Evaluator::new(&context, &from_file).rotate(&a, 18).unwrap());
    assert!((0..128).all(|i| (rotated[i] - x[(i + 18) % 128]).abs() < 1e-6));
    // A master is read as it was written.
    let id = masters[0];
    let master = KeyMaker::new(&bench.secret, &mut bench.prg).make(id).unwrap();
    let mut bytes = Vec::new();
    master.write(&context, &mut bytes).unwrap();
    assert_eq!(bytes.len(), SwitchKey::packed_bytes(&context, id));
    let read = SwitchKey::read(&context, id, &bytes).unwrap();
    assert!((0..5).all(|j| read.pair(&context, j).unwrap() == master.pair(&context, j).unwrap()));
}

#[test]
fn rejects_impossible_derivations() {
    let (mut bench, context) = Bench::with_context(&spec(8), 73);
    let masters = Derivation::masters(&context, 2, &[2, 6]);
    let plan = |needs: &[KeyId], masters: &[KeyId]| Derivation::new(&context, needs, masters).err();
    let good = galois(&bench, 4, 2);
    assert!(plan(&[good], &masters).is_none() && plan(&[], &[]).is_none());
    assert!(matches!(plan(&[good], &[]), Some(HeError::MissingKey { level: 2, .. })));
    assert!(matches!(plan(&[galois(&bench, 3, 2)], &masters), Some(HeError::MissingKey { level: 2, .. })));
    assert!(matches!(plan(&[galois(&bench, 4, 3)], &masters), Some(HeError::KeyTooLow { level: 3, have: 2, .. })));
    let short_key = KeyId { alpha: 1, ..good };
    assert!(matches!(plan(&[short_key], &masters), Some(HeError::KeyAlpha { need: 1, have: 2, .. })));
    let relinearise = KeyId::for_level(&context, KeyKind::Relinearise, 2);
    assert!(matches!(plan(&[relinearise], &masters), Some(HeError::MissingKey { .. })));
    // Above level 3 keys have all three special primes.
    let full = Derivation::masters(&context, 4, &[2]);
    let refused = plan(&[galois(&bench, 4, 4)], &full).unwrap();
    assert!(matches!(refused, HeError::Circuit { .. }) && refused.to_string().contains("leave none"), "{refused}");
    assert!(matches!(KeyMaker::new(&bench.secret, &mut bench.prg).make(full[0]), Err(HeError::Circuit { .. })));
    let planned = Derivation::new(&context, &[good], &masters).unwrap();
    let before = context.counters().read();
    let none = planned.run(&context, &KeySet::default()).err();
    assert!(matches!(none, Some(HeError::MissingKey { level: 2, .. })));
    let lower = masters.iter().map(|m| KeyId { level: 1, ..*m }).collect::<Vec<_>>();
    let low = bench.keys(&lower);
    let counted = context.counters().read() - before;
    let refused = planned.run(&context, &low).err();
    assert!(matches!(refused, Some(HeError::KeyTooLow { level: 2, have: 1, .. })));
    assert_eq!(context.counters().read() - before, counted, "refused before anything is computed");
    // Derived keys are limited to their level like others.
    let keys = planned.run(&context, &bench.keys(&masters)).unwrap();
    assert!(matches!(keys.check(&[galois(&bench, 4, 3)]), Err(HeError::KeyTooLow { level: 3, have: 2, .. })));
    let x = bench.values(8);
    let high = bench.encrypt(&x, 3);
    assert!(matches!(Evaluator::new(&context, &keys).rotate(&high, 4), Err(HeError::KeyTooLow { .. })));
}

/// Set A as it would be used: 121 keys at level 5 from eight masters. Prints the cost.
#[test]
#[ignore = "heavy: make test-heavy"]
fn set_a_derives_the_keys_of_a_network() {
    let spec = NamedSet::find("A").unwrap().spec();
    let context = std::sync::Arc::new(Context::new(&Parameters::new(&spec).unwrap()).unwrap());
    let mut prg = prg(74);
    let secret = SecretKey::generate(&context, prg.secret());
    let mut bench = Bench { context: context.clone(), secret, prg };
    let (level, n) = (5, 1 << 15);
    let masters = Derivation::masters(&context, level, &std::array::from_fn::<i64, 8, _>(|i| 1 << (2 * i)));
    // Baby steps of 1, giant steps of 32 in both directions.
    let distances = (1..32).chain((1..=45).flat_map(|k| [32 * k, n - 32 * k]));
    let needs: Vec<KeyId> = distances.map(|k| galois(&bench, k, level)).collect();
    let plan = Derivation::new(&context, &needs, &masters).unwrap();
    let direct: usize = needs.iter().map(|&id| SwitchKey::packed_bytes(&context, id)).sum();
    let (upload, memory) = (plan.upload_bytes(&context), plan.memory_bytes(&context));
    println!("{} keys in {} steps of {} transforms", needs.len(), plan.steps(), plan.transforms(&context));
    println!("{upload} bytes sent where direct keys are {direct}, {memory} in memory");
    assert!(2 * upload < direct && memory < 2 * direct);
    let master_set = bench.keys(&masters);
    let start = std::time::Instant::now();
    let keys = plan.run(&context, &master_set).unwrap();
    println!("derived in {:.1} s", start.elapsed().as_secs_f64());
    let x = bench.values(1 << 15);
    let a = bench.encrypt(&x, level);
    let k = n - 32 * 45;
    let ratio = measure_deviation(&bench, &keys.get(galois(&bench, k, level).kind, level).unwrap());
    println!("error of the last key 2^{:.1}", ratio.log2());
    let rotated = Evaluator::new(&context, &keys).rotate(&a, k).unwrap();
    let expected: Vec<Complex> = (0..n).map(|i| x[((i + k) % n) as usize]).collect();
    let ratio = bench.ratio(&rotated, &expected);
    assert!((0.5..1.5).contains(&ratio), "{ratio:.2} times the estimate");
}
