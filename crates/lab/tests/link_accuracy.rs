//! Links do what they are asked for: goodput within 5 %, idle round-trip time within 0.3 ms + 2 %. Timing gates here, as it is what the
//! emulator is for. A measurement while the machine had other things to do proves nothing, and a miss then does not count.
use nix::sys::resource::{UsageWho, getrusage};
use std::time::{Duration, Instant};
use tacit_lab::LabError;
use tacit_lab::link::accuracy::Row;

/// Measurements on a machine at rest that may miss the bounds.
const TRIES: usize = 4;
/// Measurements in all.
const MOST: usize = 10;
/// A machine is at rest if others use less than this fraction of its cores.
const RESTLESS: f64 = 0.25;
/// The kernel's tick, seconds.
const TICK_S: f64 = 0.01;

/// Every rate and every round-trip time that is bounded; all combinations are in the table of `tacit lab link --accuracy`.
const CASES: [(&str, &str); 4] = [("4mbit", "0.6ms"), ("20mbit", "10ms"), ("100mbit", "40ms"), ("20mbit", "80ms")];

/// Seconds that all cores together were busy or taken away by a hypervisor, and seconds in all.
fn cores() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line.split_ascii_whitespace().skip(1).take(8).filter_map(|t| t.parse().ok()).collect();
    let total: f64 = ticks.iter().sum();
    ((total - ticks.iter().skip(3).take(2).sum::<f64>()) * TICK_S, total * TICK_S)
}

/// Processor time of this process, seconds.
fn own() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    [usage.user_time(), usage.system_time()].iter().map(|t| t.tv_sec() as f64 + t.tv_usec() as f64 * 1e-6).sum()
}

/// Runs `f`; beside its result, the fraction of the cores that others used meanwhile.
fn watched<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let (before, ours) = (cores(), own());
    let result = f();
    let (after, ours) = (cores(), own() - ours);
    (result, (after.0 - before.0 - ours) / (after.1 - before.1).max(TICK_S))
}

#[test]
fn rates_and_round_trips_hold_their_bounds() {
    let start = Instant::now();
    // What is tested should not wait for others. May be refused; for this thread and those that it starts.
    let _ = rustix::process::setpriority_process(None, -15);
    for (rate, rtt) in CASES {
        let (mut failures, mut disturbed) = (Vec::new(), Vec::new());
        while failures.len() < TRIES && failures.len() + disturbed.len() < MOST {
            let (row, others) = watched(|| Row::measure(rate, rtt, Duration::from_millis(1500)));
            let row = match row {
                Err(LabError::Unavailable { reason, remedy, .. }) => {
                    eprintln!("SKIPPED rates_and_round_trips_hold_their_bounds: {reason}; {remedy}");
                    return;
                }
                other => other.unwrap(),
            };
            eprintln!("{rate} {rtt}: {:?} {:?}; others used {others:.2} of the cores", row.figures, row.emulator);
            assert!(row.emulator.delivered > 0 && row.emulator.overflowed == 0);
            let misses = row.misses();
            match (misses.is_empty(), others < RESTLESS) {
                (true, _) => break,
                (false, true) => failures.push(misses),
                (false, false) => disturbed.push((misses, others)),
            }
        }
        assert!(failures.len() < TRIES, "{rate} {rtt} missed its bounds {TRIES} times: {failures:?}");
        if failures.len() + disturbed.len() == MOST {
            eprintln!("SKIPPED {rate} {rtt}: this machine is too busy to judge a link's timing: {disturbed:?}");
        }
    }
    eprintln!("took {:?}", start.elapsed());
}
