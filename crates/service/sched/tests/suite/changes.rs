//! The decisions of `docs/notes/scheduler.md` on changes while requests run: connections,
//! clients, jobs that are stopped, kept material, models, policies. One test each.

use crate::support::driver::Driver;
use crate::support::{Setup, announce, header, machine, model, models, phase};
use tacit_sched::{
    AdvanceNotice, BoundTo, Cause, ClientId, Event, JobPhase, MaterialId, ModelId, ModelSpec, NoticeId, NoticeProblem,
    Outcome, Owner, Rejected, Request, RequestId, Shutdown, Source, Span, Time, Usage, Work,
};

const UNBOUND: ModelId = ModelId(0);
const BOUND: ModelId = ModelId(1);
const CLEAR: ModelId = ModelId(3);

fn driver(pool: bool) -> Driver {
    Driver::new(header(&Setup::new("fcfs", pool)))
}

fn me() -> ClientId {
    ClientId::numbered(1)
}

fn plain(id: u64, model: ModelId, inputs: u32) -> Request {
    Request::plain(RequestId(id), me(), model, inputs)
}

fn notice(model: ModelId, inputs: u32) -> AdvanceNotice {
    announce(NoticeId(1), me(), model, inputs)
}

fn request(d: &mut Driver, request: Request) {
    d.tell(Event::Request(request));
}

/// This client's kept material of the bound model.
fn kept(d: &Driver) -> Vec<MaterialId> {
    d.sched.kept(me(), BOUND).collect()
}

fn keep(d: &mut Driver, inputs: u32) -> Vec<MaterialId> {
    d.tell(Event::Notice(AdvanceNotice { keep: true, ..notice(BOUND, inputs) }));
    d.finish_all();
    kept(d)
}

#[test]
fn a_group_runs_at_most_one_job_a_lane() {
    let mut d = driver(false);
    request(&mut d, Request { lanes: Some(1), ..plain(5, BOUND, 3) });
    assert_eq!((d.monitor.running.len(), d.sched.queued_jobs()), (1, 0));
    d.tell(Event::Lanes { of: Owner::Request(RequestId(5)), lanes: 3 });
    assert_eq!(d.monitor.running.len(), 3);
    // With fewer lanes than running jobs, no job stops and none starts.
    d.tell(Event::Lanes { of: Owner::Request(RequestId(5)), lanes: 1 });
    assert_eq!((d.monitor.running.len(), d.stops()), (3, 0));
    d.finish(d.running(JobPhase::Pre)[0], 100);
    assert_eq!(d.monitor.running.len(), 2);
    d.finish_all();
    assert_eq!(d.outcomes(), [Outcome::Done; 3]);
    let lanes_of = |owner| Event::Lanes { of: owner, lanes: 1 };
    assert_eq!(d.send(lanes_of(Owner::Request(RequestId(5)))), Err(Rejected::UnknownRequest(RequestId(5))));
    assert_eq!(d.send(lanes_of(Owner::Notice(NoticeId(7)))), Err(Rejected::UnknownNotice(NoticeId(7))));
}

#[test]
fn a_group_without_lanes_delays_no_other() {
    let mut d = driver(false);
    // On one core, a T_on of 70 bytes waits for a lane: it has no place in the queue and no reservation.
    request(&mut d, plain(5, ModelId(2), 1));
    d.finish_all_pre();
    assert_eq!(d.running(JobPhase::On).len(), 1);
    request(&mut d, Request { lanes: Some(0), ..plain(6, ModelId(2), 1) });
    request(&mut d, plain(7, BOUND, 1));
    assert_eq!((d.sched.queued_jobs(), d.running(JobPhase::Pre).len()), (0, 1));
    assert_eq!(d.sched.counts().pre, 1);
    d.tell(Event::Lanes { of: Owner::Request(RequestId(6)), lanes: 1 });
    d.finish_all();
    assert_eq!(d.outcomes(), [Outcome::Done; 3]);
}

#[test]
fn a_stopping_job_holds_its_resources() {
    for how in 0..3 {
        let mut d = driver(false);
        d.slow_stops = true;
        d.tell(Event::Capacity(machine(1, 100, 200)));
        request(&mut d, plain(5, BOUND, 1));
        request(&mut d, plain(6, BOUND, 1));
        let job = d.running(JobPhase::Pre)[0];
        d.tell(Event::Cancel { request: RequestId(5) });
        // The input has ended but its job still runs, so jobs that wait for the core still wait.
        assert_eq!(d.outcomes(), [Outcome::Cancelled(Cause::Client)]);
        assert_eq!(d.sched.used(), machine(1, 20, 10));
        assert!(d.monitor.running.is_empty());
        assert!(d.sched.job_input(job).is_none());
        let usage = Usage { time: Span::from_secs(1.0), peak_memory: 1 };
        let material = Some(MaterialId([7; 16]));
        match how {
            0 => assert_eq!(d.send(Event::JobStopped { job }), Ok(())),
            1 => assert_eq!(d.send(Event::JobFailed { job }), Ok(())),
            // The caller destroys material that the stopping job made.
            _ => assert_eq!(d.send(Event::JobFinished { job, usage, material }), Err(Rejected::JobNotRunning(job))),
        }
        assert_eq!((d.running(JobPhase::Pre).len(), d.sched.used().disk), (1, 10));
        assert_eq!(d.send(Event::JobStopped { job }), Err(Rejected::JobNotStopping(job)));
        let next_job = d.running(JobPhase::Pre)[0];
        assert_eq!(d.send(Event::JobStopped { job: next_job }), Err(Rejected::JobNotStopping(next_job)));
    }
}

#[test]
fn a_stopping_t_on_burns_its_material_at_once() {
    let mut d = driver(false);
    d.slow_stops = true;
    request(&mut d, plain(5, BOUND, 1));
    d.finish_all_pre();
    d.tell(Event::Cancel { request: RequestId(5) });
    assert_eq!((d.burns(), d.sched.used()), (1, machine(1, 30, 0)));
}

#[test]
fn shutdown_now_waits_for_the_last_job_to_stop() {
    let mut d = driver(false);
    d.slow_stops = true;
    request(&mut d, plain(5, BOUND, 2));
    let jobs = d.running(JobPhase::Pre);
    d.tell(Event::Shutdown(Shutdown::Now));
    assert_eq!((d.outcomes(), d.sched.is_stopped()), (vec![Outcome::Cancelled(Cause::Shutdown); 2], false));
    d.tell(Event::JobStopped { job: jobs[0] });
    assert!(!d.sched.is_stopped());
    d.tell(Event::JobStopped { job: jobs[1] });
    assert!(d.sched.is_stopped());
    assert!(d.monitor.is_stopped());
}

#[test]
fn a_disconnected_client_keeps_notices_and_loses_requests() {
    let mut d = driver(false);
    request(&mut d, plain(5, BOUND, 1));
    d.tell(Event::Notice(notice(BOUND, 3)));
    d.finish(d.jobs_with(|s| s.work == Work::Notice(NoticeId(1)))[0], 100);
    // One input's material is held and two T_pre run. Three repetitions would reveal counted failures.
    for _ in 0..3 {
        d.tell(Event::ClientGone { client: me() });
        assert!(d.monitor.running.is_empty());
        assert_eq!((d.sched.counts().transit, d.sched.counts().pre, d.sched.queued_jobs()), (1, 2, 0));
        d.tell(Event::Lanes { of: Owner::Notice(NoticeId(1)), lanes: 2 });
        assert_eq!(d.running(JobPhase::Pre).len(), 2);
    }
    assert_eq!((d.outcomes(), d.notice_ends()), (vec![Outcome::Cancelled(Cause::ClientGone)], vec![]));
    request(&mut d, Request { notice: Some(NoticeId(1)), ..plain(6, BOUND, 3) });
    d.finish_all();
    assert_eq!(d.outcomes()[1..], vec![Outcome::Done; 3]);
    // A client that does not return: the notice lives until its time to live.
    d.tell(Event::Notice(notice(BOUND, 1)));
    d.finish_all();
    d.tell(Event::ClientGone { client: me() });
    assert_eq!(d.sched.counts().transit, 1);
    d.advance(Span::from_secs(31.0));
    assert_eq!((d.notice_ends(), d.sched.used().disk), (vec![NoticeProblem::Expired], 0));
    assert_eq!(d.send(Event::ClientGone { client: me() }), Err(Rejected::UnknownClient(me())));
}

#[test]
fn unbound_t_pre_continues_without_its_client() {
    let mut d = driver(false);
    d.tell(Event::Notice(notice(UNBOUND, 5)));
    d.tell(Event::ClientGone { client: me() });
    assert_eq!((d.running(JobPhase::Pre).len(), d.stops()), (4, 0));
    d.finish_all();
    assert_eq!((d.sched.counts().transit, d.sched.counts().pre), (4, 1));
}

#[test]
fn a_disconnected_client_keeps_its_stock_without_refills() {
    let mut d = driver(true);
    request(&mut d, plain(5, BOUND, 4));
    while d.refills(BOUND).is_empty() {
        d.finish(d.oldest(), 100);
    }
    d.finish(d.refills(BOUND)[0], 100);
    assert!(!d.refills(BOUND).is_empty());
    let stock = d.sched.stock();
    d.tell(Event::ClientGone { client: me() });
    d.finish_all();
    assert!(d.sched.stock() >= stock);
    assert!(d.refills(BOUND).is_empty());
    request(&mut d, plain(6, BOUND, 1));
    d.finish_all();
    assert_eq!(d.monitor.reports.last().map(|r| (r.outcome, r.source)), Some((Outcome::Done, Source::Pool)));
}

#[test]
fn revocation_ends_and_burns_everything() {
    let mut d = driver(false);
    keep(&mut d, 2);
    d.tell(Event::Notice(notice(BOUND, 1)));
    request(&mut d, plain(5, BOUND, 1));
    d.tell(Event::ClientRevoked { client: me() });
    assert_eq!((kept(&d).len(), d.burns(), d.monitor.running.len(), d.sched.used().disk), (0, 2, 0, 0));
    assert_eq!(d.outcomes(), [Outcome::Cancelled(Cause::ClientGone)]);
    assert_eq!(d.notice_ends(), [NoticeProblem::Kept, NoticeProblem::ClientGone]);
    assert_eq!(d.send(Event::ClientRevoked { client: me() }), Err(Rejected::UnknownClient(me())));
}

#[test]
fn a_keeping_notice_makes_kept_material() {
    let mut d = driver(false);
    d.tell(Event::Notice(AdvanceNotice { keep: true, ..notice(BOUND, 2) }));
    assert_eq!(d.sched.next_wakeup(), None);
    request(&mut d, Request { notice: Some(NoticeId(1)), ..plain(5, BOUND, 1) });
    assert_eq!(d.ignored(), [NoticeProblem::Keeps]);
    d.finish_all();
    assert_eq!((d.notice_ends(), d.outcomes()), (vec![NoticeProblem::Kept], vec![Outcome::Done]));
    assert_eq!((kept(&d).len(), d.sched.used().disk, d.sched.counts()), (2, 20, Default::default()));
    request(&mut d, Request { notice: Some(NoticeId(1)), ..plain(6, BOUND, 1) });
    assert_eq!(d.ignored()[1..], vec![NoticeProblem::Kept]);
    // A disconnected client keeps its material.
    d.tell(Event::ClientGone { client: me() });
    assert_eq!(kept(&d).len(), 2);
}

#[test]
fn kept_material_serves_inputs_before_a_notice() {
    let mut d = driver(false);
    let names = keep(&mut d, 2);
    d.tell(Event::Notice(AdvanceNotice { id: NoticeId(2), ..notice(BOUND, 1) }));
    d.finish_all();
    let claim = Request { materials: names.clone(), notice: Some(NoticeId(2)), ..plain(5, BOUND, 4) };
    request(&mut d, claim);
    assert_eq!(d.sched.counts().ready + d.sched.counts().running_on, 3);
    d.finish_all();
    let mut sources: Vec<(u32, Source)> = d.monitor.reports.iter().map(|r| (r.input.index, r.source)).collect();
    sources.sort_by_key(|(index, _)| *index);
    assert_eq!(sources, vec![(0, Source::Kept), (1, Source::Kept), (2, Source::Notice), (3, Source::Own)]);
    assert_eq!((kept(&d), d.sched.used().disk), (vec![], 0));
}

#[test]
fn rejects_material_that_is_not_kept_for_the_request() {
    let mut d = driver(false);
    let names = keep(&mut d, 2);
    let bad = |name| Err(Rejected::BadMaterial(name));
    let foreign = MaterialId([9; 16]);
    let mut with = |materials: Vec<MaterialId>, change: fn(&mut Request)| {
        let mut request = Request { materials, ..plain(5, BOUND, 2) };
        change(&mut request);
        d.send(Event::Request(request))
    };
    assert_eq!(with(vec![names[0], foreign], |_| {}), bad(foreign));
    assert_eq!(with(vec![names[0], names[0]], |_| {}), bad(names[0]));
    assert_eq!(with(names.clone(), |r| r.inputs = 1), bad(names[1]));
    assert_eq!(with(names.clone(), |r| r.client = ClientId::numbered(2)), bad(names[0]));
    assert_eq!(with(names.clone(), |r| r.model = UNBOUND), bad(names[0]));
    assert_eq!(kept(&d), names);
    d.sched.audit().unwrap();
}

#[test]
fn unused_named_material_is_burnt() {
    for pool in [false, true] {
        let mut d = driver(pool);
        let names = keep(&mut d, 2);
        let burns_before = d.burns();
        request(&mut d, Request { materials: names, lanes: Some(1), ..plain(5, BOUND, 2) });
        d.tell(Event::Cancel { request: RequestId(5) });
        assert_eq!((d.burns() - burns_before, kept(&d).len()), (2, 0));
    }
}

#[test]
fn a_request_evicts_kept_material_of_the_largest_keeper() {
    let mut d = driver(false);
    let other_client = ClientId::numbered(2);
    d.tell(Event::MaterialFound { material: MaterialId([9; 16]), model: BOUND, client: Some(other_client) });
    keep(&mut d, 2);
    d.tell(Event::Capacity(machine(4, 100, 30)));
    // A request gets the disk of burnt kept material; a notice waits.
    request(&mut d, plain(5, BOUND, 1));
    d.tell(Event::Notice(notice(BOUND, 1)));
    assert_eq!((d.burns(), kept(&d).len(), d.sched.kept(other_client, BOUND).count()), (1, 1, 1));
    assert_eq!((d.running(JobPhase::Pre).len(), d.sched.counts().pre), (1, 1));
    d.finish_all();
    assert_eq!(d.outcomes(), [Outcome::Done]);
}

#[test]
fn bound_material_is_found_at_any_time_and_can_be_lost() {
    let mut d = driver(false);
    let found_event =
        |byte| Event::MaterialFound { material: MaterialId([byte; 16]), model: BOUND, client: Some(me()) };
    keep(&mut d, 1);
    d.tell(found_event(9));
    assert_eq!((kept(&d).len(), d.sched.used().disk), (2, 20));
    assert_eq!(d.send(found_event(9)), Err(Rejected::BadMaterial(MaterialId([9; 16]))));
    d.tell(Event::MaterialGone { material: MaterialId([9; 16]) });
    assert_eq!((kept(&d).len(), d.sched.used().disk, d.burns()), (1, 10, 0));
    let lose = |d: &mut Driver, material| d.send(Event::MaterialGone { material });
    let unknown = |material| Err(Rejected::UnknownMaterial(material));
    assert_eq!(lose(&mut d, MaterialId([9; 16])), unknown(MaterialId([9; 16])));
    // Material that belongs to an input cannot be removed either.
    let name = kept(&d)[0];
    request(&mut d, Request { materials: vec![name], ..plain(5, BOUND, 1) });
    assert_eq!(lose(&mut d, name), unknown(name));
    // Material removed from a pool is made again.
    let mut d = driver(true);
    d.finish_all();
    let (stock, pres) = (d.sched.stock(), d.running(JobPhase::Pre).len());
    let pooled = d.monitor.live()[0];
    lose(&mut d, pooled).unwrap();
    assert_eq!((d.sched.stock(), d.running(JobPhase::Pre).len()), (stock - 1, pres + 1));
}

#[test]
fn time_to_live_starts_at_the_expected_arrival() {
    let mut d = driver(false);
    let (expected, ttl) = (Some(Span::from_secs(50.0)), Some(Span::from_secs(5.0)));
    d.tell(Event::Notice(AdvanceNotice { expected, ttl, ..notice(BOUND, 1) }));
    assert_eq!(d.sched.next_wakeup(), Some(Time::from_secs(55.0)));
    d.tell(Event::Notice(AdvanceNotice { expected, id: NoticeId(2), ..notice(BOUND, 1) }));
    d.advance(Span::from_secs(56.0));
    assert_eq!((d.notice_ends(), d.sched.next_wakeup()), (vec![NoticeProblem::Expired], Some(Time::from_secs(80.0))));
}

#[test]
fn a_model_without_t_pre_goes_straight_to_t_on() {
    let mut d = driver(true);
    d.tell(Event::Notice(notice(CLEAR, 1)));
    request(&mut d, Request { notice: Some(NoticeId(1)), ..plain(5, CLEAR, 2) });
    let jobs = d.monitor.running.values().filter(|(s, _)| s.model == CLEAR);
    assert!(jobs.clone().all(|(s, _)| s.phase == JobPhase::On && s.material.is_none()));
    assert!(jobs.count() == 2);
    d.finish_all();
    let report = &d.monitor.reports[0];
    assert_eq!((d.outcomes(), report.pre), (vec![Outcome::Done; 2], Default::default()));
    // A model without T_pre has no material to keep or to find.
    d.tell(Event::Notice(AdvanceNotice { keep: true, id: NoticeId(2), ..notice(CLEAR, 2) }));
    assert_eq!(d.notice_ends(), [NoticeProblem::Kept]);
    let found = Event::MaterialFound { material: MaterialId([9; 16]), model: CLEAR, client: Some(me()) };
    assert_eq!(d.send(found), Err(Rejected::BadMaterial(MaterialId([9; 16]))));
}

#[test]
fn a_removed_model_starts_no_job() {
    let mut d = driver(false);
    keep(&mut d, 1);
    // Two T_on run, then two T_pre; other jobs are queued.
    request(&mut d, plain(5, BOUND, 2));
    d.finish_all_pre();
    d.tell(Event::Notice(notice(BOUND, 3)));
    request(&mut d, plain(6, BOUND, 1));
    assert_eq!((d.running(JobPhase::On).len(), d.running(JobPhase::Pre).len()), (2, 2));
    d.tell(Event::ModelRemoved { model: BOUND });
    assert_eq!((d.outcomes(), d.burns()), (vec![Outcome::Cancelled(Cause::ModelGone)], 1));
    assert_eq!((d.monitor.running.len(), d.stops()), (4, 0));
    assert_eq!(d.send(Event::Request(plain(7, BOUND, 1))), Err(Rejected::UnknownModel(BOUND)));
    assert_eq!(d.send(Event::ModelRemoved { model: BOUND }), Err(Rejected::UnknownModel(BOUND)));
    d.finish_all();
    assert_eq!(d.outcomes()[1..], vec![Outcome::Done; 2]);
    assert_eq!((d.notice_ends(), d.sched.used().disk), (vec![NoticeProblem::Kept, NoticeProblem::ModelGone], 0));
    d.sched.audit().unwrap();
}

#[test]
fn pools_follow_removed_and_added_models() {
    let mut d = driver(true);
    d.tell(Event::ModelRemoved { model: UNBOUND });
    assert_eq!(d.stops(), 0);
    d.finish_all();
    assert_eq!((d.sched.stock(), d.burns()), (1, 1));
    d.tell(Event::ModelAdded(models().swap_remove(0)));
    assert!(d.monitor.running.values().any(|(s, _)| s.model == ModelId(6) && s.work == Work::Pool));
    let spec: ModelSpec = model("new", BoundTo::Client, phase(1.0, 1), phase(1.0, 1));
    d.tell(Event::ModelAdded(spec));
    request(&mut d, plain(5, ModelId(7), 1));
    d.finish_all();
    assert_eq!(d.outcomes(), [Outcome::Done]);
}

#[test]
fn a_policy_change_requeues_with_present_ages() {
    let started = |policies: &[&str]| {
        let mut d = driver(false);
        d.tell(Event::Capacity(machine(0, 100, 200)));
        request(&mut d, plain(1, ModelId(2), 1));
        d.advance(Span::from_secs(100.0));
        request(&mut d, plain(2, BOUND, 1));
        request(&mut d, plain(3, UNBOUND, 1));
        for policy in policies {
            d.set_policy(policy.parse().unwrap());
            d.sched.audit().unwrap();
        }
        d.tell(Event::Capacity(machine(1, 100, 200)));
        match d.monitor.running.values().next().map(|(start, _)| start.work) {
            Some(Work::Request(input)) => input.request.0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(started(&[]), 1);
    assert_eq!(started(&["srt"]), 3);
    assert_eq!(started(&["srt", "fcfs"]), 1);
    // A job 20 s longer and 100 s older is first where a second of age is worth a second of length.
    assert_eq!(started(&["priority:1"]), 1);
    assert_eq!(started(&["priority:0.1"]), 3);
}

#[test]
fn a_withdrawn_notice_releases_every_stage() {
    // Queued, running and held inputs are all removed, and their material is burnt.
    for ended_jobs in 0..3 {
        let mut d = driver(false);
        d.tell(Event::Notice(notice(BOUND, 1)));
        if ended_jobs == 1 {
            assert_eq!(d.running(JobPhase::Pre).len(), 1);
        } else if ended_jobs == 2 {
            d.finish_all();
            assert_eq!(d.sched.counts().transit, 1);
        }
        d.tell(Event::Withdraw { notice: NoticeId(1) });
        assert_eq!(d.notice_ends(), [NoticeProblem::Withdrawn]);
        let again = d.sched.handle(d.now, Event::Withdraw { notice: NoticeId(1) });
        assert_eq!(again, Err(Rejected::UnknownNotice(NoticeId(1))));
        d.finish_all();
        assert_eq!(d.sched.used(), machine(0, 0, 0));
        request(&mut d, Request { notice: Some(NoticeId(1)), ..plain(5, BOUND, 1) });
        d.finish_all();
        assert_eq!(d.outcomes(), [Outcome::Done]);
    }
}
