//! Random event sequences: every constraint of the scheduler, checked from outside and by its own audit.

use crate::support::driver::Driver;
use crate::support::script::{Op, script};
use crate::support::{Setup, header};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tacit_sched::SchedError;
use tacit_sched::replay::{Header, Replay, Told};

/// Cases per policy and feature set; a case has up to 400 steps. `TACIT_SCHED_CASES` raises it for long runs.
fn cases() -> u32 {
    std::env::var("TACIT_SCHED_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(250)
}

/// A machine that a dealer serves too.
fn with_dealings(setup: &Setup) -> Header {
    let mut header = header(setup);
    header.config.capacity.dealings = 2;
    header
}

/// Plays a script. Each failure writes a replay file; the last file is that of the smallest script.
fn play(setup: &Setup, ops: &[Op], name: &str) -> Result<(), TestCaseError> {
    let mut driver = Driver::new(with_dealings(setup));
    driver.slow_stops = true;
    let result = catch_unwind(AssertUnwindSafe(|| {
        for (i, op) in ops.iter().enumerate() {
            driver.play(op);
            if i % 16 == 0 {
                driver.sched.audit().unwrap();
            }
        }
        driver.wind_down();
    }));
    result.map_err(|panic| {
        let why = panic.downcast_ref::<String>().cloned().or(panic.downcast_ref::<&str>().map(|s| s.to_string()));
        let path = std::env::temp_dir().join(format!("tacit-sched-{name}.replay"));
        let mut replay = driver.replay();
        replay.actions.clear();
        let saved = std::fs::write(&path, replay.to_text().unwrap_or_default());
        TestCaseError::fail(format!("{} (replay {}: {saved:?})", why.unwrap_or_default(), path.display()))
    })
}

fn check(policy: &str, pool: bool, moldable: bool, batch_share: f64) {
    let setup = Setup { moldable, batch_share, ..Setup::new(policy, pool) };
    let name = format!("{policy}-{pool}-{moldable}-{batch_share}").replace([':', '+'], "_");
    let mut runner = TestRunner::new(Config { cases: cases(), failure_persistence: None, ..Config::default() });
    match runner.run(&script(400), |ops| play(&setup, &ops, &name)) {
        Ok(()) => {}
        Err(TestError::Fail(why, ops)) => panic!("{setup:?}: after shrinking to {} steps: {why}", ops.len()),
        Err(abort) => panic!("{setup:?}: {abort}"),
    }
}

#[test]
fn fcfs_keeps_every_constraint() {
    check("fcfs", false, false, 1.0);
}

#[test]
fn priority_keeps_every_constraint() {
    check("priority", false, false, 1.0);
    check("priority:0", true, false, 0.5);
}

#[test]
fn ss26_keeps_every_constraint() {
    check("ss26:fcfs", true, false, 1.0);
    check("ss26:priority+exclusive", false, true, 0.5);
}

#[test]
fn sequential_keeps_every_constraint() {
    check("sequential", false, true, 1.0);
}

#[test]
fn shortest_remaining_keeps_every_constraint() {
    check("srt", true, false, 1.0);
}

#[test]
fn adaptive_keeps_every_constraint() {
    check("adaptive", false, true, 1.0);
    check("adaptive", true, true, 0.5);
    check("adaptive+fair", true, true, 0.3);
}

/// Runs the replay file named by `TACIT_SCHED_REPLAY` again, with the monitor watching.
#[test]
fn a_saved_replay_runs_again() {
    let Some(path) = std::env::var_os("TACIT_SCHED_REPLAY") else { return };
    let replay = Replay::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut driver = Driver::new(replay.header);
    driver.slow_stops = true;
    for (time, call) in replay.events {
        driver.advance(time.since(driver.now));
        let refused = match call {
            Told::Event(event) => driver.send(event),
            Told::Policy(policy) => {
                driver.set_policy(policy);
                Ok(())
            }
        };
        let first_shown = driver.actions.len().saturating_sub(8);
        println!("{time} {:?} {refused:?} ... {:?}", driver.events.last(), &driver.actions[first_shown..]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]

    /// A replay read from its file repeats the run, and reports a changed record.
    #[test]
    fn a_replay_file_does_the_same_again(ops in script(100)) {
        let setup = Setup { moldable: true, batch_share: 0.5, ..Setup::new("adaptive+fair", true) };
        let mut driver = Driver::new(with_dealings(&setup));
        driver.slow_stops = true;
        for op in &ops {
            driver.play(op);
        }
        driver.wind_down();
        let recorded = driver.replay();
        let mut read = Replay::parse(&recorded.to_text().unwrap()).unwrap();
        prop_assert_eq!(&read, &recorded);
        prop_assert_eq!(&read.run().unwrap(), &recorded.actions);
        read.actions.pop();
        let differs = matches!(read.run(), Err(SchedError::ReplayDiffers { .. }));
        prop_assert!(differs);
        let cut = recorded.to_text().unwrap().replacen("\"event\"", "\"evnt\"", 1);
        let refused = matches!(Replay::parse(&cut), Err(SchedError::BadFile { line: 2, .. }));
        prop_assert!(refused);
    }
}
