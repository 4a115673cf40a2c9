//! The decisions of `docs/notes/scheduler.md`, one test each.

use crate::support::driver::Driver;
use crate::support::{Setup, announce, header, machine};
use tacit_sched::{
    Cause, ClientId, Event, JobId, JobPhase, MaterialId, ModelId, NoticeId, NoticeProblem, Outcome, Owner, Rejected,
    Request, RequestId, Shutdown, Source, Span, Usage,
};

const BOUND: ModelId = ModelId(1);

fn driver(pool: bool) -> Driver {
    Driver::new(header(&Setup::new("fcfs", pool)))
}

fn notice(client: u64, model: ModelId, inputs: u32) -> Event {
    Event::Notice(announce(NoticeId(1), ClientId::numbered(client), model, inputs))
}

fn request(id: u64, client: u64, model: ModelId, inputs: u32, announced: bool) -> Event {
    Event::Request(Request {
        notice: announced.then_some(NoticeId(1)),
        timeout: Some(Span::from_secs(100.0)),
        ..Request::plain(RequestId(id), ClientId::numbered(client), model, inputs)
    })
}

#[test]
fn a_request_claims_its_notice_in_every_stage() {
    for finished in [false, true] {
        let mut d = driver(false);
        d.tell(notice(1, BOUND, 2));
        assert_eq!(d.sched.counts().running_pre, 2);
        if finished {
            d.finish_all();
            assert_eq!(d.sched.counts().transit, 2);
        }
        d.tell(request(5, 1, BOUND, 2, true));
        assert_eq!(d.sched.counts().waiting, if finished { 0 } else { 2 });
        d.finish_all();
        assert_eq!((d.pres(), d.outcomes()), (2, vec![Outcome::Done; 2]));
        assert!(d.monitor.reports.iter().all(|r| r.source == Source::Notice));
        assert!(d.ignored().is_empty());
    }
}

#[test]
fn notices_of_other_clients_and_models_are_ignored() {
    for (client, model, why) in [(2, BOUND, NoticeProblem::OtherClient), (1, ModelId(0), NoticeProblem::OtherModel)] {
        let mut d = driver(false);
        d.tell(notice(1, BOUND, 1));
        d.tell(request(5, client, model, 1, true));
        assert_eq!(d.ignored(), [why]);
        d.finish_all();
        assert_eq!((d.pres(), d.outcomes()), (2, vec![Outcome::Done]));
        // The notice is still valid for its own client.
        d.tell(request(6, 1, BOUND, 1, true));
        d.finish_all();
        assert_eq!(d.pres(), 2);
    }
}

#[test]
fn a_request_may_have_more_or_fewer_inputs_than_its_notice() {
    let mut d = driver(false);
    d.tell(notice(1, BOUND, 1));
    d.tell(request(5, 1, BOUND, 3, true));
    d.finish_all();
    assert_eq!((d.pres(), d.outcomes().len(), d.burns()), (3, 3, 0));

    let mut d = driver(false);
    d.tell(notice(1, BOUND, 3));
    d.finish(d.oldest(), 100);
    d.tell(request(5, 1, BOUND, 1, true));
    // The finished T_pre is used. The others are stopped, and their partial material has no name.
    assert_eq!(d.sched.counts().running_on, 1);
    assert_eq!((d.monitor.running.len(), d.stops(), d.burns()), (1, 2, 0));
    assert_eq!(d.sched.used().disk, 10);
}

#[test]
fn a_notice_serves_one_request() {
    let mut d = driver(false);
    d.tell(notice(1, BOUND, 1));
    d.tell(request(5, 1, BOUND, 1, true));
    d.tell(request(6, 1, BOUND, 1, true));
    assert_eq!(d.ignored(), [NoticeProblem::Used]);
    d.finish_all();
    assert_eq!((d.pres(), d.outcomes()), (2, vec![Outcome::Done; 2]));
}

#[test]
fn expiry_burns_bound_material_and_pools_unbound() {
    let mut d = driver(false);
    d.tell(notice(1, BOUND, 1));
    d.finish_all();
    d.advance(Span::from_secs(31.0));
    assert_eq!((d.burns(), d.sched.used().disk), (1, 0));
    d.tell(request(5, 1, BOUND, 1, true));
    assert_eq!(d.ignored(), [NoticeProblem::Expired]);

    let mut d = driver(true);
    d.finish_all();
    let stock_before = d.sched.stock();
    d.tell(notice(1, ModelId(0), 1));
    d.finish_all();
    d.advance(Span::from_secs(31.0));
    assert_eq!((d.burns(), d.sched.stock()), (0, stock_before + 1));
}

#[test]
fn t_pre_is_retried_and_t_on_is_not() {
    let fail = |d: &mut Driver| {
        d.tell(Event::JobFailed { job: d.oldest() });
    };
    let mut d = driver(false);
    d.tell(notice(1, BOUND, 1));
    fail(&mut d);
    fail(&mut d);
    assert!(d.monitor.running.is_empty());
    d.tell(request(5, 1, BOUND, 1, true));
    assert_eq!(d.ignored(), [NoticeProblem::Failed]);
    // T_pre may be tried again, T_on never: its material is burnt and the input fails.
    fail(&mut d);
    d.finish(d.oldest(), 100);
    fail(&mut d);
    assert_eq!(d.outcomes(), [Outcome::Failed]);
    assert_eq!(d.sched.used().disk, 0);
}

/// Brings one input into a stage: T_pre queued, running; T_on queued, running.
fn stage(d: &mut Driver, stage: usize) {
    let hog = |d: &mut Driver, id| d.tell(request(id, 9, ModelId(0), 4, false));
    if stage == 0 {
        hog(d, 90);
    }
    d.tell(request(5, 1, BOUND, 1, false));
    if stage >= 2 {
        let job = d.oldest();
        if stage == 2 {
            // Three requests fill the other cores, and an earlier job takes the core that becomes free.
            d.tell(Event::Capacity(machine(0, 100, 200)));
        }
        d.finish(job, 100);
    }
    let counts = d.sched.counts();
    let stages = [counts.pre, counts.running_pre, counts.ready, counts.running_on];
    assert!(stages[stage] >= 1, "stage {stage}: {counts:?}");
}

#[test]
fn every_end_releases_everything_in_every_stage() {
    type End = (fn(&mut Driver), Outcome);
    let ends: [End; 4] = [
        (|d| d.advance(Span::from_secs(101.0)), Outcome::TimedOut),
        (|d| d.tell(Event::ClientGone { client: ClientId::numbered(1) }), Outcome::Cancelled(Cause::ClientGone)),
        (|d| d.tell(Event::Cancel { request: RequestId(5) }), Outcome::Cancelled(Cause::Client)),
        (|d| d.tell(Event::Shutdown(Shutdown::Now)), Outcome::Cancelled(Cause::Shutdown)),
    ];
    for index in 0..4 {
        for (end, outcome) in ends {
            let mut d = driver(false);
            stage(&mut d, index);
            end(&mut d);
            let report = d.monitor.reports.iter().find(|r| r.client == ClientId::numbered(1)).unwrap();
            assert_eq!(report.outcome, outcome, "stage {index}");
            let still_runs = d.monitor.running.values().any(|(s, _)| s.client == Some(ClientId::numbered(1)));
            assert!(!still_runs, "stage {index}: its job still runs");
            d.sched.audit().unwrap();
            if d.monitor.running.is_empty() {
                assert_eq!(d.sched.used().disk, 0, "stage {index}: material left");
            }
        }
    }
}

#[test]
fn drain_finishes_accepted_requests_only() {
    let mut d = driver(false);
    d.tell(request(5, 1, BOUND, 2, false));
    d.tell(notice(2, BOUND, 1));
    d.tell(Event::Shutdown(Shutdown::Drain));
    assert_eq!(d.send(request(6, 3, BOUND, 1, false)), Err(Rejected::ShuttingDown));
    d.finish_all();
    assert_eq!(d.outcomes(), [Outcome::Done; 2]);
    assert!(d.sched.is_stopped());
    assert_eq!(d.send(Event::Tick), Err(Rejected::ShuttingDown));
    assert_eq!(d.sched.poll_action(d.now), None);
}

#[test]
fn stock_serves_a_request_at_once_and_is_refilled() {
    let mut d = driver(true);
    // The pools of both unbound models get one material before any request.
    d.finish_all();
    assert_eq!(d.sched.stock(), 2);
    d.tell(request(5, 1, ModelId(0), 1, false));
    assert_eq!(d.sched.counts().running_on, 1);
    d.finish_all();
    let report = &d.monitor.reports[0];
    assert_eq!((report.outcome, report.source), (Outcome::Done, Source::Pool));
    assert!(d.sched.stock() >= 2, "refilled");
}

#[test]
fn material_gets_its_name_at_the_end_of_its_job() {
    let mut d = driver(false);
    d.tell(request(5, 1, BOUND, 2, false));
    let jobs: Vec<JobId> = d.monitor.running.keys().copied().collect();
    let end = |job, material| {
        let usage = Usage { time: Span::from_secs(3.0), peak_memory: 20 };
        Event::JobFinished { job, usage, material }
    };
    // An end without a name is refused: the job continues and holds its disk.
    let refused = Rejected::MaterialMismatch { job: jobs[0], phase: JobPhase::Pre };
    assert_eq!(d.send(end(jobs[0], None)), Err(refused));
    assert_eq!((d.sched.counts().running_pre, d.sched.used().disk), (2, 20));
    let name = MaterialId([0xA5; 16]);
    d.tell(end(jobs[0], Some(name)));
    let (on, start) = d.monitor.running.iter().map(|(job, (start, _))| (*job, start.clone())).next_back().unwrap();
    assert_eq!((start.phase, start.material), (JobPhase::On, Some(name)));
    // The name of live material is refused for new material, and a T_on cannot make any.
    assert_eq!(d.send(end(jobs[1], Some(name))), Err(Rejected::BadMaterial(name)));
    assert_eq!(d.send(end(on, Some(name))), Err(Rejected::MaterialMismatch { job: on, phase: JobPhase::On }));
    d.sched.audit().unwrap();
    d.finish_all();
    assert_eq!(d.outcomes(), [Outcome::Done; 2]);
}

#[test]
fn unbound_material_is_found_once_and_before_own_material() {
    let mut d = driver(true);
    let found_event = |byte| Event::MaterialFound { material: MaterialId([byte; 16]), model: ModelId(0), client: None };
    let bad = |byte| Err(Rejected::BadMaterial(MaterialId([byte; 16])));
    // The pool gives out the material that was found first, whatever its name.
    d.tell(found_event(9));
    d.tell(found_event(3));
    assert_eq!(d.send(found_event(9)), bad(9));
    d.tell(request(5, 1, ModelId(0), 1, false));
    let used_material = d.monitor.running.values().find_map(|(start, _)| start.material);
    assert_eq!(used_material, Some(MaterialId([9; 16])));
    d.finish(d.running(JobPhase::Pre)[0], 100);
    assert_eq!(d.send(found_event(4)), bad(4));
}

#[test]
fn a_job_that_did_not_start_is_requeued_with_its_age() {
    let mut d = driver(false);
    d.tell(Event::Capacity(machine(1, 100, 200)));
    d.tell(request(5, 1, BOUND, 1, false));
    d.finish(d.running(JobPhase::Pre)[0], 100);
    d.tell(request(6, 2, BOUND, 1, false));
    let owner = Owner::Request(RequestId(5));
    for _ in 0..3 {
        let job = d.running(JobPhase::On)[0];
        d.tell(Event::Lanes { of: owner, lanes: 0 });
        d.tell(Event::JobNotStarted { job });
        // The other input may use the core meanwhile; nothing is burnt, and no attempt counts as failed.
        assert_eq!((d.running(JobPhase::Pre).len(), d.running(JobPhase::On).len()), (1, 0));
        assert_eq!(d.send(Event::JobNotStarted { job }), Err(Rejected::JobNotRunning(job)));
        let job = d.running(JobPhase::Pre)[0];
        d.tell(Event::Lanes { of: owner, lanes: 1 });
        d.tell(Event::JobNotStarted { job });
    }
    assert_eq!((d.burns(), d.outcomes()), (0, vec![]));
    d.finish(d.running(JobPhase::On)[0], 100);
    assert_eq!(d.outcomes(), [Outcome::Done]);
}
