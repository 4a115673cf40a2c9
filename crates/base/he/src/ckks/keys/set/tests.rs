//! Key sets in files: loaded within a budget, and refused if a byte is wrong.

use super::super::super::eval::Evaluator;
use super::super::super::tests::{Bench, spec};
use super::super::file::{DIGEST, ENTRY, FIXED};
use super::*;
use std::path::PathBuf;

const CLIENT: [u8; 32] = [7; 32];

/// A file that is deleted when the test ends.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tacit-keys-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn needs(bench: &Bench) -> Vec<KeyId> {
    let kinds = [1, 2, 3, 5].map(|k| KeyKind::Galois(bench.context.rotation_element(k)));
    kinds.into_iter().chain([KeyKind::Relinearise]).map(|kind| KeyId::for_level(&bench.context, kind, 3)).collect()
}

fn write_key_file(bench: &mut Bench, name: &str) -> TestFile {
    let file = TestFile::new(name);
    let needs = needs(bench);
    let context = bench.context.clone();
    let mut maker = KeyMaker::new(&bench.secret, &mut bench.prg);
    KeyFile::write(&file.0, &context, &CLIENT, &needs, |id| maker.make(id)).unwrap();
    file
}

/// Budgets of 0, of two keys and of all keys.
#[test]
fn budgets_do_not_change_answers() {
    let (mut bench, context) = Bench::with_context(&spec(8), 41);
    let file = write_key_file(&mut bench, "paged");
    let x = bench.values(128);
    let a = bench.encrypt(&x, 3);
    let key_bytes = SwitchKey::packed_bytes(&context, needs(&bench)[0]);
    assert_eq!(
        std::fs::metadata(&file.0).unwrap().len() as usize,
        FIXED + 5 * ENTRY + DIGEST + 5 * (key_bytes + DIGEST)
    );
    let mut answers = Vec::new();
    for budget in [0, 2 * key_bytes, 100 * key_bytes] {
        let opened = KeyFile::open(&file.0, &context, &CLIENT).unwrap();
        let keys = KeySet::paged(&context, opened, budget);
        keys.check(&needs(&bench)).unwrap();
        assert_eq!((keys.len(), keys.memory_bytes()), (5, 0));
        let e = Evaluator::new(&context, &keys);
        let mut sum = e.rescale(&e.mul(&a, &a).unwrap()).unwrap();
        for k in [1, 2, 3, 5, 1, 2] {
            sum = e.add(&e.rotate(&sum, k).unwrap(), &sum).unwrap();
            assert!(keys.memory_bytes() <= budget.min(5 * key_bytes));
        }
        answers.push(sum.to_bytes(&context));
    }
    assert!(answers[0] == answers[1] && answers[1] == answers[2]);
    assert!(matches!(KeyFile::write(&file.0, &context, &CLIENT, &[], |_| unreachable!()), Err(HeError::File { .. })));
}

#[test]
fn writing_replaces_only_part_files() {
    let mut bench = Bench::new(&spec(8), 42);
    let file = TestFile::new("in-the-way");
    let part = TestFile::new("in-the-way.part");
    let (context, needs) = (bench.context.clone(), needs(&bench));
    let mut maker = KeyMaker::new(&bench.secret, &mut bench.prg);
    std::fs::write(&part.0, "taxes").unwrap();
    let refused = KeyFile::write(&file.0, &context, &CLIENT, &needs, |_| unreachable!());
    assert!(refused.unwrap_err().to_string().contains("move it away"));
    assert_eq!((std::fs::read(&part.0).unwrap(), file.0.exists()), (b"taxes".to_vec(), false));
    for left in [&b"TCTCKEYS and what a crash has left"[..], b"TCT", b""] {
        std::fs::write(&part.0, left).unwrap();
        KeyFile::write(&file.0, &context, &CLIENT, &needs, |id| maker.make(id)).unwrap();
        assert!(!part.0.exists());
        std::fs::remove_file(&file.0).unwrap();
    }
}

#[test]
fn makers_share_the_sparse_secret() {
    let (mut bench, context) = Bench::with_context(&spec(8), 44);
    let x = bench.values(128);
    let a = bench.encrypt(&x, 1);
    let mut keys = KeySet::default();
    for kind in [KeyKind::ToSparse, KeyKind::FromSparse] {
        let key = KeyMaker::new(&bench.secret, &mut bench.prg).make(KeyId::for_level(&context, kind, 1)).unwrap();
        keys.insert(key);
    }
    let e = Evaluator::new(&context, &keys);
    let sparse = e.switch_secret(&a, KeyKind::ToSparse).unwrap();
    let dense = e.switch_secret(&sparse, KeyKind::FromSparse).unwrap();
    assert!(bench.decrypt(&dense).iter().zip(&x).all(|(actual, expected)| (*actual - *expected).abs() < 1e-6));
}

/// A cut, a longer file, a flipped bit in each region, swapped keys, another client's keys, other
/// parameters.
#[test]
fn rejects_damaged_and_foreign_files() {
    let (mut bench, context) = Bench::with_context(&spec(6), 42);
    let folder = KeyFile::open(&std::env::temp_dir(), &context, &CLIENT).err().unwrap();
    assert!(matches!(folder, HeError::Format { .. }), "{folder}");
    let file = write_key_file(&mut bench, "damaged");
    let good = std::fs::read(&file.0).unwrap();
    let record = SwitchKey::packed_bytes(&context, needs(&bench)[0]) + DIGEST;
    let body = FIXED + 5 * ENTRY + DIGEST;
    let attempt = |bytes: &[u8]| -> Result<(), HeError> {
        std::fs::write(&file.0, bytes).unwrap();
        let keys = KeySet::paged(&context, KeyFile::open(&file.0, &context, &CLIENT)?, 0);
        keys.ids().into_iter().try_for_each(|id| keys.get_by_id(id).map(|_| ()))
    };
    attempt(&good).unwrap();
    for cut in (0..good.len()).step_by(7).chain([good.len() - 1]) {
        assert!(matches!(attempt(&good[..cut]), Err(HeError::Length { .. })), "cut at {cut}");
    }
    assert!(matches!(attempt(&[&good[..], &[0]].concat()), Err(HeError::Length { .. })));
    for offset in (0..good.len()).step_by(11).chain(0..body) {
        let mut flipped = good.clone();
        flipped[offset] ^= 1 << (offset % 8);
        let refused = attempt(&flipped).err();
        assert!(matches!(refused, Some(HeError::Format { .. } | HeError::Length { .. })), "byte {offset}: {refused:?}");
    }
    let mut swapped = good.clone();
    swapped[body..body + 2 * record].rotate_left(record);
    assert!(matches!(attempt(&swapped), Err(HeError::Format { .. })));
    std::fs::write(&file.0, &good).unwrap();
    let error = KeyFile::open(&file.0, &context, &[8; 32]).err().unwrap();
    assert!(error.to_string().contains("another client"), "{error}");
    let foreign = Bench::new(&spec(7), 43);
    let error = KeyFile::open(&file.0, &foreign.context, &CLIENT).err().unwrap();
    assert!(error.to_string().contains("other parameters"), "{error}");
}
