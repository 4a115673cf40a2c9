//! One client asks for hundreds of inputs at once (the flood). The cost to other clients is the number of
//! the flood's jobs that start while they wait, which does not depend on the speed of a machine.

use crate::support::driver::Driver;
use crate::support::{Setup, header, machine, request};
use std::collections::BTreeMap;
use tacit_sched::{Action, InputReport, ModelId, Span, Start, Time, Work};

/// Inputs of the flood.
const FLOOD: u64 = 500;
const CORES: u32 = 2;
const MODEL: ModelId = ModelId(1);
/// Number of other clients, and the inputs that each requests, one after the other.
const OTHERS: u64 = 3;
const EACH: u64 = 5;
/// Request ids of other clients start here; those of the flood are smaller.
const FIRST: u64 = 10_000;

/// A run of the flood under one policy.
struct FloodRun {
    driver: Driver,
    /// When each input of the other clients was requested, by request id.
    arrivals: BTreeMap<u64, Time>,
}

/// Runs a flood, then clients that each request their next input when they have the last answer. Every job
/// takes its estimate.
fn play(policy: &str, others: u64) -> FloodRun {
    let mut header = header(&Setup::new(policy, false));
    header.config.capacity = machine(CORES, 1 << 20, 1 << 20);
    header.config.max_queued = 1000;
    let mut driver = Driver::new(header);
    let mut arrivals = BTreeMap::new();
    (0..FLOOD).for_each(|i| driver.tell(request(i, 1, MODEL)));
    for client in 0..others {
        ask(&mut driver, &mut arrivals, FIRST * (client + 1));
    }
    while let Some((end, job)) = driver.next_end() {
        driver.advance(end.since(driver.now));
        let reports_before = driver.monitor.reports.len();
        driver.finish(job, 100);
        let ended: Vec<u64> = driver.monitor.reports[reports_before..].iter().map(|r| r.input.request.0).collect();
        for id in ended.into_iter().filter(|id| *id >= FIRST && id % FIRST + 1 < EACH) {
            ask(&mut driver, &mut arrivals, id + 1);
        }
    }
    FloodRun { driver, arrivals }
}

fn ask(driver: &mut Driver, arrivals: &mut BTreeMap<u64, Time>, id: u64) {
    arrivals.insert(id, driver.now);
    driver.tell(request(id, 1 + id / FIRST, MODEL));
}

impl FloodRun {
    fn report(&self, id: u64) -> &InputReport {
        self.driver.report(id).expect("every input ends")
    }

    /// Counts the flood's jobs that start between arrival and end of each input of the other clients.
    fn passed_by(&self) -> Vec<usize> {
        let is_of_flood = |action: &Action| matches!(action, Action::Start(Start { work: Work::Request(input), .. }) if input.request.0 < FLOOD);
        let count_passes = |(&id, &arrival): (&u64, &Time)| {
            let until = self.report(id).ended;
            let actions = self.driver.actions.iter().filter(|(time, _)| *time >= arrival && *time < until);
            actions.filter(|(_, action)| is_of_flood(action)).count()
        };
        self.arrivals.iter().map(count_passes).collect()
    }
}

#[test]
fn a_flood_queues_behind_itself() {
    // At most one job of the flood per core starts before an input of another client.
    for policy in ["adaptive+fair", "priority+fair"] {
        let run = play(policy, OTHERS);
        let passed = run.passed_by();
        assert_eq!(passed.len() as u64, OTHERS * EACH);
        assert!(passed.iter().all(|n| *n <= CORES as usize), "{policy}: {passed:?}");
    }
    // With `fcfs`, a client's finished work counts against it: some jobs of the flood pass, never all.
    let passed = play("fcfs+fair", OTHERS).passed_by();
    assert!(passed.iter().all(|n| *n <= 8), "{passed:?}");
    // Without fairness each client's first input waits for the whole flood: the test tells the difference.
    for policy in ["adaptive", "fcfs"] {
        let passed = play(policy, OTHERS).passed_by();
        assert_eq!(passed.iter().filter(|n| **n as u64 == 2 * FLOOD).count() as u64, OTHERS, "{policy}: {passed:?}");
    }
}

#[test]
fn an_occasional_client_finds_room_in_a_flood() {
    for policy in ["adaptive+fair", "priority+fair", "fcfs+fair"] {
        let run = play(policy, 1);
        for (&id, &arrival) in run.arrivals.iter().skip(1) {
            let report = run.report(id);
            assert_eq!(report.pre.started, Some(arrival), "{policy}: it starts when it comes");
            assert_eq!(report.on.started, report.pre.finished, "{policy}: and goes on at once");
        }
        // The first input arrived when the flood had all cores, so it starts after a job of the flood ends.
        let first = run.report(FIRST);
        let running = run.driver.actions.iter().filter(|(time, _)| *time == Time::ZERO).count();
        assert!(running as u32 >= CORES, "{policy}");
        assert!(first.pre.started > Some(first.arrived), "{policy}");
        // Room is reserved for a while after the last answer; then the flood uses all cores.
        let last = run.arrivals.keys().max().map(|&id| run.report(id).ended).expect("it has asked");
        let count_starts = |from: Time, until: Time| {
            let reports = run.driver.monitor.reports.iter().filter(|r| r.input.request.0 < FLOOD);
            let mut starts: Vec<Time> = reports.flat_map(|r| [r.pre.started, r.on.started]).flatten().collect();
            starts.retain(|start| *start >= from && *start < until);
            starts.len()
        };
        let window = Span::from_secs(8.0);
        let (while_kept, when_free) =
            (count_starts(last, last + window), count_starts(last + window + window, last + window + window + window));
        assert!(while_kept > 0, "{policy}: {while_kept} jobs of the flood in 8 s, then {when_free}");
        assert!(when_free > while_kept * 3 / 2, "{policy}: {while_kept} jobs of the flood in 8 s, then {when_free}");
    }
}
