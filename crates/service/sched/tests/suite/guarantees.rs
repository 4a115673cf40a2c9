//! Guarantees of policies and reservations: no job starves, and no batch takes the whole machine.

use crate::support::driver::Driver;
use crate::support::{Setup, header, machine, model, phase};
use tacit_sched::replay::Header;
use tacit_sched::{Action, BoundTo, ClientId, Event, JobPhase, ModelId, Request, RequestId, Span, Start, Time, Work};

fn plain(policy: &str) -> Header {
    header(&Setup::new(policy, false))
}

fn request(id: u64, model: u32, inputs: u32) -> Event {
    Event::Request(Request::plain(RequestId(id), ClientId::numbered(id), ModelId(model), inputs))
}

/// Runs the driver until `until`, finishing every job after exactly its estimate.
fn run(driver: &mut Driver, until: Time, mut arrivals: Vec<(Time, Event)>) {
    arrivals.reverse();
    loop {
        let end = driver.next_end();
        let arrival = arrivals.last().map(|a| a.0);
        let next = end.map(|e| e.0).into_iter().chain(arrival).min().filter(|t| *t <= until);
        let Some(next) = next else { break };
        driver.advance(next.since(driver.now));
        match end {
            Some((time, job)) if time == next => driver.finish(job, 100),
            _ => {
                if let Some((_, event)) = arrivals.pop() {
                    driver.tell(event);
                }
            }
        }
    }
    driver.advance(until.since(driver.now));
}

fn started(driver: &Driver, request: u64, phase: JobPhase) -> Option<Time> {
    driver.actions.iter().find_map(|(time, action)| match action {
        Action::Start(Start { phase: this, work: Work::Request(input), .. })
            if *this == phase && input.request == RequestId(request) =>
        {
            Some(*time)
        }
        _ => None,
    })
}

/// Plays short requests that keep one core busy, and one long request.
fn flood(policy: &str) -> Driver {
    let mut header = plain(policy);
    header.config.capacity.cores = 1;
    let mut driver = Driver::new(header);
    let mut arrivals: Vec<(Time, Event)> =
        (0..400).map(|i| (Time::from_secs(1.4 * i as f64), request(i + 1, 0, 1))).collect();
    arrivals.insert(3, (Time::from_secs(4.0), request(9999, 2, 1)));
    run(&mut driver, Time::from_secs(550.0), arrivals);
    driver
}

#[test]
fn ageing_bounds_the_wait_of_a_long_job() {
    // T_pre of 20 s against jobs of 0.5 and 1 s, beta = 0.5: overtaken for at most (20 - 0.5) / 0.5 = 39 s,
    // plus what was queued then.
    let bound = Time::from_secs(4.0 + 39.0 + 10.0);
    let start = started(&flood("priority:0.5"), 9999, JobPhase::Pre).expect("started");
    assert!(start <= bound, "{start} is later than {bound}");
    let driver = flood("adaptive");
    assert!(started(&driver, 9999, JobPhase::Pre).is_some(), "adaptive starves the long job");
    // Without ageing the long job starves: the test tells the difference.
    assert_eq!(started(&flood("srt"), 9999, JobPhase::Pre), None);
    assert_eq!(started(&flood("priority:0"), 9999, JobPhase::Pre), None);
}

#[test]
fn a_job_that_lacks_memory_starts_within_one_turn() {
    for policy in ["fcfs", "priority", "srt", "adaptive"] {
        let mut header = plain(policy);
        header.config.capacity = machine(8, 100, 1000);
        // Small jobs of 30 bytes keep three quarters of the memory busy; the large T_on needs 90.
        header.models = vec![
            model("small", BoundTo::Client, phase(2.0, 30), phase(2.0, 30)),
            model("large", BoundTo::Client, phase(1.0, 30), phase(1.0, 90)),
        ];
        let mut driver = Driver::new(header);
        let mut arrivals: Vec<(Time, Event)> =
            (0..300).map(|i| (Time::from_secs(i as f64), request(i + 1, 0, 1))).collect();
        arrivals.insert(11, (Time::from_secs(10.5), request(9999, 1, 1)));
        run(&mut driver, Time::from_secs(300.0), arrivals);
        let pre = driver.report(9999).expect("done").pre.finished.unwrap();
        let on = started(&driver, 9999, JobPhase::On).expect("started");
        // The wait is at most the longest job that ran when the job was first overtaken, and one turn more.
        assert!(on.since(pre) <= Span::from_secs(4.0), "{policy}: waited {}", on.since(pre));
    }
}

/// Eight cores and 100 bytes of memory: a T_on of 90 bytes waits while a bound job of 40 bytes runs; stock of
/// a small model is wanted.
fn blocked_with_pool() -> Driver {
    let mut header = header(&Setup::new("fcfs", true));
    header.config.capacity = machine(8, 100, 1000);
    if let Some(pool) = &mut header.config.pool {
        (pool.per_client, pool.min_stock) = (false, 0);
    }
    header.models = vec![
        model("small", BoundTo::Unbound, phase(5.0, 10), phase(1.0, 10)),
        model("large", BoundTo::Client, phase(1.0, 5), phase(1.0, 90)),
        model("long", BoundTo::Client, phase(60.0, 20), phase(1.0, 20)),
    ];
    let mut driver = Driver::new(header);
    // The last request of the small model leaves its pool empty and its target above zero.
    let arrivals =
        vec![(Time::ZERO, request(1, 2, 1)), (Time::ZERO, request(2, 1, 1)), (Time::from_secs(2.0), request(3, 0, 1))];
    run(&mut driver, Time::from_secs(30.0), arrivals);
    driver
}

#[test]
fn refills_leave_room_for_a_job_that_waits_for_memory() {
    let driver = blocked_with_pool();
    assert_eq!(started(&driver, 2, JobPhase::On), None);
    let refill = driver.actions.iter().find_map(|(time, action)| match action {
        Action::Start(s) if s.work == Work::Pool => Some((*time, s.memory)),
        _ => None,
    });
    let (time, memory) = refill.expect("a refill runs while request 2 waits");
    assert!(time >= Time::from_secs(1.0), "{time}");
    assert!(memory <= 10, "{time}");
    let refill_count = driver.count(|a| matches!(a, Action::Start(s) if s.work == Work::Pool));
    assert!(refill_count <= 4, "one at a time: two would not leave 90 bytes");
    let mut driver = driver;
    run(&mut driver, Time::from_secs(70.0), Vec::new());
    let on = started(&driver, 2, JobPhase::On).expect("started");
    assert!(on <= Time::from_secs(65.0), "once the long T_pre has ended, at most one refill later: {on}");
}

#[test]
fn a_large_batch_leaves_room_for_small_requests() {
    let wait = |share: f64| {
        let mut header = plain("fcfs");
        header.config.batch_share = share;
        header.config.max_inputs = 64;
        header.config.max_queued = 64;
        let mut driver = Driver::new(header);
        let arrivals = vec![(Time::ZERO, request(1, 0, 64)), (Time::from_secs(0.5), request(2, 0, 1))];
        run(&mut driver, Time::from_secs(100.0), arrivals);
        assert_eq!(driver.monitor.outcomes.len(), 65);
        driver.report(2).unwrap().ended.since(Time::from_secs(0.5))
    };
    assert_eq!(wait(0.5), Span::from_secs(1.5));
    assert!(wait(1.0) > Span::from_secs(10.0));
}

#[test]
fn jobs_that_can_never_fit_are_refused_with_what_they_need() {
    let mut header = plain("fcfs");
    header.config.capacity.memory = 50;
    let mut driver = Driver::new(header);
    let refused = driver.send(request(1, 2, 1)).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("70 bytes of memory"), "{text}");
    assert!(text.contains("50 bytes of memory"), "{text}");
    // A machine that shrinks later rejects requests that it had accepted.
    let mut driver = Driver::new(plain("fcfs"));
    driver.tell(request(1, 2, 1));
    driver.tell(Event::Capacity(machine(4, 60, 200)));
    driver.finish(driver.oldest(), 100);
    assert_ne!(driver.count(|a| matches!(a, Action::Reject { request: RequestId(1), .. })), 0);
    assert_eq!(driver.sched.used().disk, 0);
}

#[test]
fn fair_share_protects_the_others_from_a_flood() {
    let wait = |policy: &str| {
        let mut header = plain(policy);
        header.config.max_queued = 1000;
        let mut driver = Driver::new(header);
        let heavy = |i: u64| Event::Request(Request::plain(RequestId(i + 10), ClientId::numbered(7), ModelId(0), 8));
        let mut arrivals: Vec<(Time, Event)> = (0..20).map(|i| (Time::ZERO, heavy(i))).collect();
        arrivals.push((Time::from_secs(1.0), request(1, 0, 1)));
        run(&mut driver, Time::from_secs(300.0), arrivals);
        driver.report(1).unwrap().ended.since(Time::from_secs(1.0))
    };
    assert!(wait("fcfs") > Span::from_secs(30.0));
    assert!(wait("fcfs+fair") < Span::from_secs(10.0), "{}", wait("fcfs+fair"));
}
