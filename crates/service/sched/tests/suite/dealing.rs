//! Dealings: T_pre whose material a third party makes. Dealings have a capacity of their own: they take no
//! core, and no job that needs a core waits for them.

use crate::support::driver::Driver;
use crate::support::{self, Setup, header, request};
use tacit_sched::{Event, JobPhase, MaterialId, ModelId, Rejected, Resources, Span, Start, Work};

const BOUND: ModelId = ModelId(1);
const LARGE: ModelId = ModelId(2);
const CLEAR: ModelId = ModelId(3);
const DEALT: ModelId = ModelId(4);
const DEALT_BOUND: ModelId = ModelId(5);

fn driver(policy: &str, pool: bool, capacity: Resources) -> Driver {
    let mut header = header(&Setup::new(policy, pool));
    header.config.capacity = capacity;
    header.config.max_queued = 100;
    Driver::new(header)
}

fn machine(cores: u32, memory: u64, dealings: u32) -> Resources {
    Resources { dealings, ..support::machine(cores, memory, 1000) }
}

fn ask(d: &mut Driver, id: u64, model: ModelId) -> Result<(), Rejected> {
    d.send(request(id, id, model))
}

/// Requests whose jobs run in this phase.
fn running(d: &Driver, phase: JobPhase) -> Vec<u64> {
    let request_of = |start: &Start| match start.work {
        Work::Request(input) if start.phase == phase => Some(input.request.0),
        _ => None,
    };
    d.monitor.running.values().filter_map(|(start, _)| request_of(start)).collect()
}

/// Ends the job that runs for a request.
fn end(d: &mut Driver, request: u64) {
    let jobs = d.jobs_with(|start| matches!(start.work, Work::Request(input) if input.request.0 == request));
    d.finish(jobs[0], 100);
}

#[test]
fn a_dealing_takes_no_core() {
    let mut d = driver("fcfs", false, machine(1, 1000, 2));
    ask(&mut d, 0, CLEAR).unwrap();
    (1..5).for_each(|id| ask(&mut d, id, DEALT_BOUND).unwrap());
    assert_eq!((running(&d, JobPhase::On), running(&d, JobPhase::Pre)), (vec![0], vec![1, 2]));
    assert_eq!(d.sched.used(), Resources { cores: 1, memory: 6 + 2 * 30, disk: 20, dealings: 2 });
    // The online phase of dealt material takes a core as any other does.
    end(&mut d, 1);
    assert_eq!((running(&d, JobPhase::On), running(&d, JobPhase::Pre)), (vec![0], vec![2, 3]));
    end(&mut d, 0);
    assert_eq!(running(&d, JobPhase::On), [1]);
    d.wind_down();
}

#[test]
fn dealings_need_a_dealer_and_no_core() {
    let mut d = driver("adaptive", false, machine(0, 1000, 1));
    ask(&mut d, 1, CLEAR).unwrap();
    ask(&mut d, 2, DEALT).unwrap();
    assert_eq!((running(&d, JobPhase::On), running(&d, JobPhase::Pre)), (vec![], vec![2]));
    d.wind_down();
    let mut d = driver("adaptive", false, machine(4, 1000, 0));
    let refused = ask(&mut d, 1, DEALT).unwrap_err();
    assert!(matches!(refused, Rejected::NeverFits { need: Resources { cores: 0, dealings: 1, .. }, .. }), "{refused}");
    assert!(refused.to_string().contains("1 dealings"), "{refused}");
    ask(&mut d, 2, BOUND).unwrap();
    d.wind_down();
}

#[test]
fn dealings_do_not_change_the_order_on_cores() {
    // The order of jobs on the core, with and without dealings that start meanwhile. A reservation for the
    // long job would make the short one wait.
    let order = |dealings: bool| {
        let mut d = driver("priority:0.1", false, machine(1, 1000, 2));
        ask(&mut d, 0, CLEAR).unwrap();
        ask(&mut d, 1, LARGE).unwrap();
        if dealings {
            ask(&mut d, 10, DEALT_BOUND).unwrap();
            assert_eq!(running(&d, JobPhase::Pre), [10]);
        }
        ask(&mut d, 2, CLEAR).unwrap();
        let mut started = Vec::new();
        for request in [0, 2] {
            end(&mut d, request);
            started.push((running(&d, JobPhase::Pre), running(&d, JobPhase::On)));
        }
        started.iter_mut().for_each(|(pre, _)| pre.retain(|id| *id != 10));
        d.wind_down();
        started
    };
    assert_eq!(order(false), [(vec![], vec![2]), (vec![1], vec![])]);
    assert_eq!(order(true), order(false));
}

#[test]
fn dealings_do_not_starve_a_job_that_waits_for_memory() {
    let mut d = driver("fcfs", false, machine(2, 100, 3));
    (0..3).for_each(|id| ask(&mut d, id, DEALT_BOUND).unwrap());
    assert_eq!(d.sched.used().memory, 90);
    // The large T_pre needs 40 bytes, and each dealing that ends makes room for the next one.
    ask(&mut d, 50, LARGE).unwrap();
    (10..40).for_each(|id| ask(&mut d, id, DEALT_BOUND).unwrap());
    while !running(&d, JobPhase::Pre).contains(&50) {
        let (end, job) = d.next_end().expect("a job runs");
        d.advance(end.since(d.now));
        d.finish(job, 100);
    }
    let dealt = d.monitor.reports.iter().filter(|report| report.input.request.0 < 50).count();
    assert!(dealt <= 6, "{dealt} inputs were answered before it began");
    d.wind_down();
}

#[test]
fn dealt_pools_are_filled_while_all_cores_are_busy() {
    let mut d = driver("fcfs", true, machine(1, 1000, 2));
    (0..20).for_each(|id| ask(&mut d, id, CLEAR).unwrap());
    // Refills may use three quarters of two dealings. No pool that needs a core is refilled.
    let refills = d.jobs_with(|start| start.work == Work::Pool);
    assert_eq!((&refills, refills.len(), d.sched.used().dealings), (&d.refills(DEALT), 1, 1));
    let job = refills[0];
    d.advance(Span::from_secs(4.0));
    d.finish(job, 100);
    assert_eq!(d.sched.stock(), 1);
    // A request gets the stock at once, and waits only for a core.
    ask(&mut d, 100, DEALT).unwrap();
    assert_eq!((d.sched.counts().ready, d.sched.counts().pre), (20, 0));
    d.wind_down();
}

/// Lets refills run until none starts any more. Returns the most that ran at a time.
fn fill(d: &mut Driver) -> usize {
    let mut max_running = 0;
    loop {
        let refills = d.jobs_with(|start| start.work == Work::Pool);
        let Some(&job) = refills.first() else { return max_running };
        max_running = max_running.max(refills.len());
        d.advance(Span::from_secs(1.0));
        d.finish(job, 100);
    }
}

fn with_pool(limit: impl FnOnce(&mut tacit_sched::PoolConfig)) -> Driver {
    let mut header = header(&Setup::new("fcfs", true));
    // Without cores, only pools of dealt material are filled.
    header.config.capacity = machine(0, 1000, 4);
    limit(header.config.pool.as_mut().unwrap());
    Driver::new(header)
}

/// Takes a material out of the pool for an input of another model.
fn draw(d: &mut Driver) {
    let pooled: MaterialId = d.monitor.live()[0];
    d.tell(Event::MaterialGone { material: pooled });
    d.tell(Event::Demand { model: DEALT, inputs: 1 });
}

#[test]
fn stock_follows_the_demand_of_other_models() {
    let mut d = with_pool(|_| {});
    assert_eq!((fill(&mut d), d.sched.stock()), (1, 1));
    for _ in 0..20 {
        d.advance(Span::from_secs(1.0));
        draw(&mut d);
        fill(&mut d);
    }
    let busy = d.sched.stock();
    assert!(busy >= 4, "one a second and 4 s of dealing: {busy}");
    // After a long pause the target is one.
    d.advance(Span::from_secs(3600.0));
    draw(&mut d);
    while let Some(&material) = d.monitor.live().get(2) {
        d.tell(Event::MaterialGone { material });
        fill(&mut d);
    }
    assert!(d.sched.stock() <= 2, "{}", d.sched.stock());
    assert!(d.send(Event::Demand { model: ModelId(99), inputs: 1 }).is_err());
    d.tell(Event::Demand { model: DEALT_BOUND, inputs: 1 });
    d.wind_down();
}

#[test]
fn pools_hold_no_more_than_their_limits() {
    // Each material takes ten bytes.
    for (max_materials, disk, expected) in [(3, u64::MAX, 3), (u32::MAX, 25, 2), (0, u64::MAX, 0), (u32::MAX, 9, 0)] {
        let mut d = with_pool(|pool| (pool.min_stock, pool.most, pool.disk) = (8, max_materials, disk));
        let at_once = fill(&mut d);
        assert_eq!(d.sched.stock(), expected, "{max_materials} materials, {disk} bytes");
        assert!(at_once <= expected, "what is being made counts: {at_once}");
        d.wind_down();
    }
}
