//! Compares the counting allocator with a model that adds up sizes.
use proptest::prelude::*;
use std::hint::black_box;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tacit_arith::heap::{Account, Counting, MAX_ACCOUNTS};

#[global_allocator]
static HEAP: Counting = Counting;

const MIB: usize = 1 << 20;
/// Bytes that a thread itself may allocate, or free of others' allocations.
const NOISE: u64 = 64 << 10;

/// Runs one test of this process at a time, because one of them takes all accounts.
fn lock_accounts() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Peak of `work`, which runs in a thread with its own account.
fn peak_of(work: impl FnOnce() + Send) -> u64 {
    let account = Account::open().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            account.enter();
            work();
        });
    });
    account.peak().unwrap_or(0)
}

fn is_near(peak: u64, bytes: usize) -> bool {
    peak.abs_diff(bytes as u64) < NOISE
}

#[test]
fn peak_is_the_most_held_at_one_time() {
    let _alone = lock_accounts();
    let peak = peak_of(|| {
        drop(black_box(vec![1u8; 3 * MIB]));
        black_box((vec![0u8; MIB], vec![2u8; MIB]));
    });
    assert!(is_near(peak, 3 * MIB), "{peak}");
    let grown = peak_of(|| {
        let mut values = vec![1u8; MIB];
        values.reserve_exact(MIB);
        values.shrink_to(MIB);
        black_box(&values);
        drop(black_box(vec![1u8; MIB / 2]));
    });
    assert!(is_near(grown, 2 * MIB), "{grown}");
}

#[test]
fn threads_of_a_job_are_counted_together_and_others_not() {
    let _alone = lock_accounts();
    let account = Arc::new(Account::open().unwrap());
    let work = |joins: bool| {
        let account = account.clone();
        move || {
            if joins {
                account.enter();
            }
            black_box(vec![1u8; MIB])
        }
    };
    let blocks: Vec<Vec<u8>> =
        [true, true, false].map(|joins| thread::spawn(work(joins)).join().unwrap()).into_iter().collect();
    let peak = account.peak().unwrap();
    assert!(is_near(peak, 2 * MIB), "{peak} for {} vectors", blocks.len());
}

#[test]
fn accounts_begin_at_zero_and_are_limited() {
    let _alone = lock_accounts();
    drop(black_box(vec![1u8; MIB]));
    let first = Account::open().unwrap();
    assert_eq!(first.peak(), None);
    let further: Vec<Account> = std::iter::from_fn(Account::open).collect();
    assert_eq!(further.len(), MAX_ACCOUNTS - 1);
    drop(further);
    assert!(Account::open().is_some());
}

/// Applies one step to a block.
fn step(block: &mut Vec<u8>, action: u8, size: usize) {
    match action {
        // In place, by `realloc`.
        3 => {
            block.clear();
            block.shrink_to(size);
            block.reserve_exact(size);
        }
        // Frees the old block before it allocates the new one.
        _ => {
            *block = Vec::new();
            *block = match action {
                0 => Vec::new(),
                1 => vec![0; size],
                _ => vec![1; size],
            };
        }
    }
}

#[test]
fn visits_end_when_dropped() {
    let _alone = lock_accounts();
    let (outer, inner) = (Account::open().unwrap(), Account::open().unwrap());
    let (visit, earlier_block) = (outer.visit(), black_box(vec![1u8; MIB]));
    let visit_block = {
        let _visit = inner.visit();
        black_box(vec![1u8; 3 * MIB])
    };
    let later_block = black_box(vec![1u8; MIB]);
    drop(visit);
    let large_block = black_box(vec![1u8; 8 * MIB]);
    let [outer, inner] = [outer, inner].map(|account| account.peak().unwrap());
    assert!(is_near(outer, 2 * MIB) && is_near(inner, 3 * MIB), "{outer} {inner}");
    drop((earlier_block, visit_block, later_block, large_block));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The peak equals that of a sum of sizes, while blocks are allocated, grown, shrunk and freed.
    #[test]
    fn peak_matches_a_model(steps in prop::collection::vec((0..4u8, 0..8usize, 1..512usize), 1..60)) {
        let _alone = lock_accounts();
        let (mut sizes, mut live, mut highest) = ([0usize; 8], 0, 0);
        for &(action, which, kib) in &steps {
            let new = if action == 0 { 0 } else { kib << 10 };
            live = live + new - std::mem::replace(&mut sizes[which], new);
            highest = highest.max(live);
        }
        let peak = peak_of(move || {
            let mut blocks: [Vec<u8>; 8] = Default::default();
            for (action, which, kib) in steps {
                step(&mut blocks[which], action, kib << 10);
                black_box(&blocks);
            }
        });
        prop_assert!(is_near(peak, highest), "{} for {}", peak, highest);
    }
}
