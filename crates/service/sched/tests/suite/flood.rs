//! One client asks for hundreds of inputs at once. What that costs others is counted in jobs of the flood
//! that start while they wait: no time of a machine is in it.

use crate::support::driver::Driver;
use crate::support::{Setup, header, request};
use std::collections::BTreeMap;
use tacit_sched::{Action, InputReport, ModelId, RequestId, Resources, Span, Start, Time, Work};

/// Inputs of the flood.
const FLOOD: u64 = 500;
const CORES: u32 = 2;
const MODEL: ModelId = ModelId(1);
/// Others, and what each asks, one after the other.
const OTHERS: u64 = 3;
const EACH: u64 = 5;
/// Its requests are named from here on, those of the flood before.
const FIRST: u64 = 10_000;

/// What a policy made of it.
struct Seen {
    driver: Driver,
    /// When each input of the others was asked for.
    asked: BTreeMap<u64, Time>,
}

/// The flood comes first; each of the others asks for its next input when it has its answer. Every job takes
/// its estimate.
fn play(policy: &str, others: u64) -> Seen {
    let mut header = header(&Setup { policy: policy.parse().unwrap(), pool: false, moldable: false, batch_share: 1.0 });
    header.config.capacity = Resources { cores: CORES, memory: 1 << 20, disk: 1 << 20, dealings: 0 };
    header.config.max_queued = 1000;
    let mut driver = Driver::new(header);
    let mut asked = BTreeMap::new();
    (0..FLOOD).for_each(|i| driver.send(request(i, 1, MODEL)).unwrap());
    for other in 0..others {
        ask(&mut driver, &mut asked, FIRST * (other + 1));
    }
    while let Some((job, at)) = driver
        .monitor
        .running
        .iter()
        .map(|(job, (s, from))| (*job, *from + s.estimate))
        .min_by_key(|(job, at)| (*at, *job))
    {
        driver.advance(at.since(driver.now));
        let before = driver.monitor.reports.len();
        driver.finish(job, 100);
        let ended: Vec<u64> = driver.monitor.reports[before..].iter().map(|r| r.input.request.0).collect();
        for id in ended.into_iter().filter(|id| *id >= FIRST && id % FIRST + 1 < EACH) {
            ask(&mut driver, &mut asked, id + 1);
        }
    }
    Seen { driver, asked }
}

fn ask(driver: &mut Driver, asked: &mut BTreeMap<u64, Time>, id: u64) {
    asked.insert(id, driver.now);
    driver.send(request(id, 1 + id / FIRST, MODEL)).unwrap();
}

impl Seen {
    fn report(&self, id: u64) -> &InputReport {
        self.driver.monitor.reports.iter().find(|r| r.input.request == RequestId(id)).expect("every input ends")
    }

    /// For each input of the others: jobs of the flood that start between its arrival and its end.
    fn passed_by(&self) -> Vec<usize> {
        let of_flood = |action: &Action| matches!(action, Action::Start(Start { work: Work::Request(input), .. }) if input.request.0 < FLOOD);
        let one = |(&id, &from): (&u64, &Time)| {
            let until = self.report(id).ended;
            let actions = self.driver.actions.iter().filter(|(at, _)| *at >= from && *at < until);
            actions.filter(|(_, action)| of_flood(action)).count()
        };
        self.asked.iter().map(one).collect()
    }
}

#[test]
fn a_flood_queues_behind_itself() {
    // A job of the flood is let pass on each core that is free when it comes, and none after that.
    for policy in ["adaptive+fair", "priority+fair"] {
        let seen = play(policy, OTHERS);
        let passed = seen.passed_by();
        assert_eq!(passed.len() as u64, OTHERS * EACH);
        assert!(passed.iter().all(|n| *n <= CORES as usize), "{policy}: {passed:?}");
    }
    // By arrival, what others have done counts against them in the same way: some pass, never the flood.
    let passed = play("fcfs+fair", OTHERS).passed_by();
    assert!(passed.iter().all(|n| *n <= 8), "{passed:?}");
    // Without it the first input of each waits for all of the flood: the test can tell the difference.
    for policy in ["adaptive", "fcfs"] {
        let passed = play(policy, OTHERS).passed_by();
        assert_eq!(passed.iter().filter(|n| **n as u64 == 2 * FLOOD).count() as u64, OTHERS, "{policy}: {passed:?}");
    }
}

#[test]
fn who_asks_now_and_then_finds_room_in_a_flood() {
    for policy in ["adaptive+fair", "priority+fair", "fcfs+fair"] {
        let seen = play(policy, 1);
        for (&id, &asked) in seen.asked.iter().skip(1) {
            let report = seen.report(id);
            assert_eq!(report.pre.started, Some(asked), "{policy}: it starts when it comes");
            assert_eq!(report.on.started, report.pre.finished, "{policy}: and goes on at once");
        }
        // Its first one came when the flood had all cores: one job of that ends before it starts.
        let first = seen.report(FIRST);
        let running = seen.driver.actions.iter().filter(|(at, _)| *at == Time::ZERO).count();
        assert!(running as u32 >= CORES, "{policy}");
        assert!(first.pre.started > Some(first.arrived), "{policy}");
        // Room is kept for a while, and then the flood has it: one job of each core starts or runs at a time.
        let last = seen.asked.keys().max().map(|&id| seen.report(id).ended).expect("it has asked");
        let on_two = |from: Time, until: Time| {
            let reports = seen.driver.monitor.reports.iter().filter(|r| r.input.request.0 < FLOOD);
            let mut starts: Vec<Time> = reports.flat_map(|r| [r.pre.started, r.on.started]).flatten().collect();
            starts.retain(|at| *at >= from && *at < until);
            starts.len()
        };
        let window = Span::from_secs(8.0);
        let (kept, free) =
            (on_two(last, last + window), on_two(last + window + window, last + window + window + window));
        assert!(kept > 0, "{policy}: {kept} jobs of the flood in 8 s, then {free}");
        assert!(free > kept * 3 / 2, "{policy}: {kept} jobs of the flood in 8 s, then {free}");
    }
}
