//! Every fuzz target on its valid inputs and on seeded mutations of them, on stable Rust. They are the same
//! ones in every run, so half a second each is enough; `TACIT_FUZZ_SECONDS` sets another time. A failing
//! input is written to the temporary folder and named.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tacit_fuzz_targets::{Mutator, TARGETS, Target};

/// Address space that all targets together may ever have reserved: far below what forged lengths ask for. For
/// each core some more, which the allocator sets aside for its thread.
const MAX_ADDRESS_SPACE: u64 = 3 << 30;
const PER_CORE: u64 = 160 << 20;

fn check(target: &Target, data: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(data))).is_err() {
        let path = std::env::temp_dir().join(format!("tacit-fuzz-{}.input", target.name));
        std::fs::write(&path, data).expect("the temporary folder is writable");
        panic!("target {} fails on {} bytes, kept in {}", target.name, data.len(), path.display());
    }
}

/// Most address space this process ever had, in bytes; `None` where the system does not say.
fn peak_address_space() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmPeak:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

fn survives_mutations(target: &Target, time: Duration) {
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{} has no valid inputs", target.name);
    seeds.iter().for_each(|seed| check(target, seed));
    let (mut mutator, end, mut inputs) = (Mutator::new(1), Instant::now() + time, 0u64);
    while Instant::now() < end || inputs < 200 {
        check(target, &mutator.mutate(&seeds));
        inputs += 1;
    }
    println!("fuzz smoke: {:16} {inputs:8} inputs", target.name);
}

#[test]
fn every_target_survives_mutations() {
    let seconds = std::env::var("TACIT_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(0.5);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let Some(target) = TARGETS.get(next.fetch_add(1, Relaxed)) {
                    survives_mutations(target, Duration::from_secs_f64(seconds));
                    done.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), TARGETS.len());
    if let Some(peak) = peak_address_space() {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        assert!(peak < MAX_ADDRESS_SPACE + cores * PER_CORE, "some input made a parser reserve {} MiB", peak >> 20);
    }
}
