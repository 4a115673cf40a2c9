//! The decisions of `docs/notes/scheduler.md` on changes while requests run: connections,
//! clients, jobs that are stopped, kept material, models, policies. One test each.

use crate::support::driver::Driver;
use crate::support::{Setup, announce, header, model, models, phase};
use tacit_sched::{
    Action, AdvanceNotice, BoundTo, Cause, ClientId, Event, JobId, JobPhase, MaterialId, ModelId, ModelSpec, NoticeId,
    NoticeProblem, Outcome, Owner, Rejected, Request, RequestId, Resources, Shutdown, Source, Span, Time, Usage, Work,
};

const UNBOUND: ModelId = ModelId(0);
const BOUND: ModelId = ModelId(1);
const CLEAR: ModelId = ModelId(3);

fn driver(pool: bool) -> Driver {
    Driver::new(header(&Setup { policy: "fcfs".parse().unwrap(), pool, moldable: false, batch_share: 1.0 }))
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
    d.send(Event::Request(request)).unwrap();
}

/// Running jobs of a phase, the oldest first.
fn running(d: &Driver, phase: JobPhase) -> Vec<JobId> {
    d.monitor.running.iter().filter(|(_, (start, _))| start.phase == phase).map(|(job, _)| *job).collect()
}

fn finish_all(d: &mut Driver) {
    while let Some(&job) = d.monitor.running.keys().next() {
        d.finish(job, 100);
    }
}

/// This client's kept material of the bound model.
fn kept(d: &Driver) -> Vec<MaterialId> {
    d.sched.kept(me(), BOUND).collect()
}

fn keep(d: &mut Driver, inputs: u32) -> Vec<MaterialId> {
    d.send(Event::Notice(AdvanceNotice { keep: true, ..notice(BOUND, inputs) })).unwrap();
    finish_all(d);
    kept(d)
}

fn outcomes(d: &Driver) -> Vec<Outcome> {
    d.monitor.reports.iter().map(|r| r.outcome).collect()
}

fn count(d: &Driver, what: impl Fn(&Action) -> bool) -> usize {
    d.actions.iter().filter(|(_, action)| what(action)).count()
}

fn burns(d: &Driver) -> usize {
    count(d, |a| matches!(a, Action::Burn { .. }))
}

fn stops(d: &Driver) -> usize {
    count(d, |a| matches!(a, Action::Stop { .. }))
}

fn ended(d: &Driver) -> Vec<NoticeProblem> {
    let why = |action: &Action| match action {
        Action::NoticeEnded { why, .. } => Some(*why),
        _ => None,
    };
    d.actions.iter().filter_map(|(_, action)| why(action)).collect()
}

fn ignored(d: &Driver) -> Vec<NoticeProblem> {
    let why = |action: &Action| match action {
        Action::NoticeIgnored { why, .. } => Some(*why),
        _ => None,
    };
    d.actions.iter().filter_map(|(_, action)| why(action)).collect()
}

#[test]
fn a_group_runs_no_more_jobs_than_it_has_lanes() {
    let mut d = driver(false);
    request(&mut d, Request { lanes: Some(1), ..plain(5, BOUND, 3) });
    assert_eq!((d.monitor.running.len(), d.sched.queued_jobs()), (1, 0));
    d.send(Event::Lanes { of: Owner::Request(RequestId(5)), lanes: 3 }).unwrap();
    assert_eq!(d.monitor.running.len(), 3);
    // With fewer lanes than running jobs, no job stops and none starts.
    d.send(Event::Lanes { of: Owner::Request(RequestId(5)), lanes: 1 }).unwrap();
    assert_eq!((d.monitor.running.len(), stops(&d)), (3, 0));
    let first = running(&d, JobPhase::Pre)[0];
    d.finish(first, 100);
    assert_eq!(d.monitor.running.len(), 2);
    finish_all(&mut d);
    assert_eq!(outcomes(&d), vec![Outcome::Done; 3]);
    let lanes_of = |owner| Event::Lanes { of: owner, lanes: 1 };
    assert_eq!(d.send(lanes_of(Owner::Request(RequestId(5)))), Err(Rejected::UnknownRequest(RequestId(5))));
    assert_eq!(d.send(lanes_of(Owner::Notice(NoticeId(7)))), Err(Rejected::UnknownNotice(NoticeId(7))));
}

#[test]
fn who_has_no_lane_keeps_nobody_waiting() {
    let mut d = driver(false);
    // On one core, a T_on of 70 bytes waits for a lane: it has no place in the queue and no reservation.
    request(&mut d, plain(5, ModelId(2), 1));
    finish_all_pre(&mut d);
    assert_eq!(running(&d, JobPhase::On).len(), 1);
    request(&mut d, Request { lanes: Some(0), ..plain(6, ModelId(2), 1) });
    request(&mut d, plain(7, BOUND, 1));
    assert_eq!((d.sched.queued_jobs(), running(&d, JobPhase::Pre).len()), (0, 1));
    assert_eq!(d.sched.counts().pre, 1, "it waits all the same");
    d.send(Event::Lanes { of: Owner::Request(RequestId(6)), lanes: 1 }).unwrap();
    finish_all(&mut d);
    assert_eq!(outcomes(&d), vec![Outcome::Done; 3]);
}

fn finish_all_pre(d: &mut Driver) {
    while let Some(&job) = running(d, JobPhase::Pre).first() {
        d.finish(job, 100);
    }
}

#[test]
fn a_stopped_job_holds_what_it_holds_until_it_has_stopped() {
    for how in 0..3 {
        let mut d = driver(false);
        d.slow_stops = true;
        d.send(Event::Capacity(Resources { cores: 1, memory: 100, disk: 200, dealings: 0 })).unwrap();
        request(&mut d, plain(5, BOUND, 1));
        request(&mut d, plain(6, BOUND, 1));
        let job = running(&d, JobPhase::Pre)[0];
        d.send(Event::Cancel { request: RequestId(5) }).unwrap();
        // The input has ended but its job still runs, so jobs that wait for the core still wait.
        assert_eq!(outcomes(&d), vec![Outcome::Cancelled(Cause::Client)]);
        assert_eq!(d.sched.used(), Resources { cores: 1, memory: 20, disk: 10, dealings: 0 });
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
        assert_eq!((running(&d, JobPhase::Pre).len(), d.sched.used().disk), (1, 10));
        assert_eq!(d.send(Event::JobStopped { job }), Err(Rejected::JobNotStopping(job)));
        let next_job = running(&d, JobPhase::Pre)[0];
        assert_eq!(d.send(Event::JobStopped { job: next_job }), Err(Rejected::JobNotStopping(next_job)));
    }
}

#[test]
fn the_material_of_a_stopped_t_on_is_burnt_at_once() {
    let mut d = driver(false);
    d.slow_stops = true;
    request(&mut d, plain(5, BOUND, 1));
    finish_all_pre(&mut d);
    d.send(Event::Cancel { request: RequestId(5) }).unwrap();
    assert_eq!((burns(&d), d.sched.used()), (1, Resources { cores: 1, memory: 30, disk: 0, dealings: 0 }));
}

#[test]
fn shutdown_now_waits_for_the_last_job_to_stop() {
    let mut d = driver(false);
    d.slow_stops = true;
    request(&mut d, plain(5, BOUND, 2));
    let jobs = running(&d, JobPhase::Pre);
    d.send(Event::Shutdown(Shutdown::Now)).unwrap();
    assert_eq!((outcomes(&d), d.sched.stopped()), (vec![Outcome::Cancelled(Cause::Shutdown); 2], false));
    d.send(Event::JobStopped { job: jobs[0] }).unwrap();
    assert!(!d.sched.stopped());
    d.send(Event::JobStopped { job: jobs[1] }).unwrap();
    assert!(d.sched.stopped());
    assert!(d.monitor.is_stopped());
}

#[test]
fn a_client_that_is_disconnected_keeps_its_notices_and_loses_its_requests() {
    let mut d = driver(false);
    request(&mut d, plain(5, BOUND, 1));
    d.send(Event::Notice(notice(BOUND, 3))).unwrap();
    let first = d.monitor.running.iter().find(|(_, (s, _))| s.work == Work::Notice(NoticeId(1))).map(|(job, _)| *job);
    d.finish(first.unwrap(), 100);
    // One input's material is held and two T_pre run. Three repetitions would reveal counted failures.
    for _ in 0..3 {
        d.send(Event::ClientGone { client: me() }).unwrap();
        assert!(d.monitor.running.is_empty());
        assert_eq!((d.sched.counts().transit, d.sched.counts().pre, d.sched.queued_jobs()), (1, 2, 0));
        d.send(Event::Lanes { of: Owner::Notice(NoticeId(1)), lanes: 2 }).unwrap();
        assert_eq!(running(&d, JobPhase::Pre).len(), 2);
    }
    assert_eq!((outcomes(&d), ended(&d)), (vec![Outcome::Cancelled(Cause::ClientGone)], vec![]));
    request(&mut d, Request { notice: Some(NoticeId(1)), ..plain(6, BOUND, 3) });
    finish_all(&mut d);
    assert_eq!(outcomes(&d)[1..], vec![Outcome::Done; 3]);
    // A client that does not return: the notice lives until its time to live.
    d.send(Event::Notice(notice(BOUND, 1))).unwrap();
    finish_all(&mut d);
    d.send(Event::ClientGone { client: me() }).unwrap();
    assert_eq!(d.sched.counts().transit, 1);
    d.advance(Span::from_secs(31.0));
    assert_eq!((ended(&d), d.sched.used().disk), (vec![NoticeProblem::Expired], 0));
    assert_eq!(d.send(Event::ClientGone { client: me() }), Err(Rejected::UnknownClient(me())));
}

#[test]
fn what_a_client_takes_no_part_in_goes_on_without_it() {
    let mut d = driver(false);
    d.send(Event::Notice(notice(UNBOUND, 5))).unwrap();
    d.send(Event::ClientGone { client: me() }).unwrap();
    assert_eq!((running(&d, JobPhase::Pre).len(), stops(&d)), (4, 0));
    finish_all(&mut d);
    assert_eq!((d.sched.counts().transit, d.sched.counts().pre), (4, 1), "but nothing more starts");
}

#[test]
fn stock_of_a_client_stays_and_is_not_made_while_it_is_away() {
    let mut d = driver(true);
    let refills = |d: &Driver| {
        let refills = d.monitor.running.iter().filter(|(_, (s, _))| s.work == Work::Pool && s.model == BOUND);
        refills.map(|(job, _)| *job).collect::<Vec<JobId>>()
    };
    request(&mut d, plain(5, BOUND, 4));
    while refills(&d).is_empty() {
        let job = *d.monitor.running.keys().next().expect("its pool wants some in the end");
        d.finish(job, 100);
    }
    d.finish(refills(&d)[0], 100);
    assert!(!refills(&d).is_empty(), "one is not enough");
    let stock = d.sched.stock();
    d.send(Event::ClientGone { client: me() }).unwrap();
    finish_all(&mut d);
    assert!(d.sched.stock() >= stock);
    assert!(refills(&d).is_empty());
    request(&mut d, plain(6, BOUND, 1));
    finish_all(&mut d);
    assert_eq!(d.monitor.reports.last().map(|r| (r.outcome, r.source)), Some((Outcome::Done, Source::Pool)));
}

#[test]
fn a_revoked_client_leaves_nothing() {
    let mut d = driver(false);
    keep(&mut d, 2);
    d.send(Event::Notice(notice(BOUND, 1))).unwrap();
    request(&mut d, plain(5, BOUND, 1));
    d.send(Event::ClientRevoked { client: me() }).unwrap();
    assert_eq!((kept(&d).len(), burns(&d), d.monitor.running.len(), d.sched.used().disk), (0, 2, 0, 0));
    assert_eq!(outcomes(&d), vec![Outcome::Cancelled(Cause::ClientGone)]);
    assert_eq!(ended(&d), vec![NoticeProblem::Kept, NoticeProblem::ClientGone]);
    assert_eq!(d.send(Event::ClientRevoked { client: me() }), Err(Rejected::UnknownClient(me())));
}

#[test]
fn a_notice_that_keeps_stocks_its_client_and_nobody_else() {
    let mut d = driver(false);
    d.send(Event::Notice(AdvanceNotice { keep: true, ..notice(BOUND, 2) })).unwrap();
    assert_eq!(d.sched.next_wakeup(), None, "it has no time to live");
    request(&mut d, Request { notice: Some(NoticeId(1)), ..plain(5, BOUND, 1) });
    assert_eq!(ignored(&d), vec![NoticeProblem::Keeps]);
    finish_all(&mut d);
    assert_eq!((ended(&d), outcomes(&d)), (vec![NoticeProblem::Kept], vec![Outcome::Done]));
    assert_eq!((kept(&d).len(), d.sched.used().disk, d.sched.counts()), (2, 20, Default::default()));
    request(&mut d, Request { notice: Some(NoticeId(1)), ..plain(6, BOUND, 1) });
    assert_eq!(ignored(&d)[1..], vec![NoticeProblem::Kept]);
    // A disconnected client keeps its material.
    d.send(Event::ClientGone { client: me() }).unwrap();
    assert_eq!(kept(&d).len(), 2);
}

#[test]
fn kept_material_serves_the_first_inputs_and_a_notice_the_next() {
    let mut d = driver(false);
    let names = keep(&mut d, 2);
    d.send(Event::Notice(AdvanceNotice { id: NoticeId(2), ..notice(BOUND, 1) })).unwrap();
    finish_all(&mut d);
    let claim = Request { materials: names.clone(), notice: Some(NoticeId(2)), ..plain(5, BOUND, 4) };
    request(&mut d, claim);
    assert_eq!(d.sched.counts().ready + d.sched.counts().running_on, 3);
    finish_all(&mut d);
    let mut sources: Vec<(u32, Source)> = d.monitor.reports.iter().map(|r| (r.input.index, r.source)).collect();
    sources.sort_by_key(|(index, _)| *index);
    assert_eq!(sources, vec![(0, Source::Kept), (1, Source::Kept), (2, Source::Notice), (3, Source::Own)]);
    assert_eq!((kept(&d), d.sched.used().disk), (vec![], 0));
}

#[test]
fn a_request_may_name_only_what_is_kept_for_it() {
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
    assert_eq!(kept(&d), names, "nothing has changed");
    d.sched.audit().unwrap();
}

#[test]
fn kept_material_that_its_input_did_not_use_is_burnt() {
    for pool in [false, true] {
        let mut d = driver(pool);
        let names = keep(&mut d, 2);
        let burns_before = burns(&d);
        request(&mut d, Request { materials: names, lanes: Some(1), ..plain(5, BOUND, 2) });
        d.send(Event::Cancel { request: RequestId(5) }).unwrap();
        assert_eq!(
            (burns(&d) - burns_before, kept(&d).len()),
            (2, 0),
            "its client knows the names: no pool may have it"
        );
    }
}

#[test]
fn what_most_is_kept_for_gives_way_to_a_request_that_lacks_disk() {
    let mut d = driver(false);
    let other_client = ClientId::numbered(2);
    d.send(Event::MaterialFound { material: MaterialId([9; 16]), model: BOUND, client: Some(other_client) }).unwrap();
    keep(&mut d, 2);
    d.send(Event::Capacity(Resources { cores: 4, memory: 100, disk: 30, dealings: 0 })).unwrap();
    // A request gets the disk of burnt kept material; a notice waits.
    request(&mut d, plain(5, BOUND, 1));
    d.send(Event::Notice(notice(BOUND, 1))).unwrap();
    assert_eq!((burns(&d), kept(&d).len(), d.sched.kept(other_client, BOUND).count()), (1, 1, 1));
    assert_eq!((running(&d, JobPhase::Pre).len(), d.sched.counts().pre), (1, 1));
    finish_all(&mut d);
    assert_eq!(outcomes(&d), vec![Outcome::Done]);
}

#[test]
fn bound_material_is_found_at_any_time_and_kept_and_can_be_gone() {
    let mut d = driver(false);
    let found_event =
        |byte| Event::MaterialFound { material: MaterialId([byte; 16]), model: BOUND, client: Some(me()) };
    keep(&mut d, 1);
    d.send(found_event(9)).unwrap();
    assert_eq!((kept(&d).len(), d.sched.used().disk), (2, 20));
    assert_eq!(d.send(found_event(9)), Err(Rejected::BadMaterial(MaterialId([9; 16]))));
    d.send(Event::MaterialGone { material: MaterialId([9; 16]) }).unwrap();
    assert_eq!((kept(&d).len(), d.sched.used().disk, burns(&d)), (1, 10, 0));
    let lose = |d: &mut Driver, material| d.send(Event::MaterialGone { material });
    let unknown = |material| Err(Rejected::UnknownMaterial(material));
    assert_eq!(lose(&mut d, MaterialId([9; 16])), unknown(MaterialId([9; 16])));
    // Material that belongs to an input cannot be removed either.
    let name = kept(&d)[0];
    request(&mut d, Request { materials: vec![name], ..plain(5, BOUND, 1) });
    assert_eq!(lose(&mut d, name), unknown(name));
    // Material removed from a pool is made again.
    let mut d = driver(true);
    finish_all(&mut d);
    let (stock, pres) = (d.sched.stock(), running(&d, JobPhase::Pre).len());
    let pooled = d.monitor.live()[0];
    lose(&mut d, pooled).unwrap();
    assert_eq!((d.sched.stock(), running(&d, JobPhase::Pre).len()), (stock - 1, pres + 1));
}

#[test]
fn a_notice_lives_from_when_its_request_is_expected() {
    let mut d = driver(false);
    let (expected, ttl) = (Some(Span::from_secs(50.0)), Some(Span::from_secs(5.0)));
    d.send(Event::Notice(AdvanceNotice { expected, ttl, ..notice(BOUND, 1) })).unwrap();
    assert_eq!(d.sched.next_wakeup(), Some(Time::from_secs(55.0)));
    d.send(Event::Notice(AdvanceNotice { expected, id: NoticeId(2), ..notice(BOUND, 1) })).unwrap();
    d.advance(Span::from_secs(56.0));
    assert_eq!((ended(&d), d.sched.next_wakeup()), (vec![NoticeProblem::Expired], Some(Time::from_secs(80.0))));
}

#[test]
fn a_model_without_t_pre_goes_straight_to_t_on() {
    let mut d = driver(true);
    d.send(Event::Notice(notice(CLEAR, 1))).unwrap();
    request(&mut d, Request { notice: Some(NoticeId(1)), ..plain(5, CLEAR, 2) });
    let jobs = d.monitor.running.values().filter(|(s, _)| s.model == CLEAR);
    assert!(jobs.clone().all(|(s, _)| s.phase == JobPhase::On && s.material.is_none()));
    assert!(jobs.count() == 2);
    finish_all(&mut d);
    let report = &d.monitor.reports[0];
    assert_eq!((outcomes(&d), report.pre), (vec![Outcome::Done; 2], Default::default()));
    // A model without T_pre has no material to keep or to find.
    d.send(Event::Notice(AdvanceNotice { keep: true, id: NoticeId(2), ..notice(CLEAR, 2) })).unwrap();
    assert_eq!(ended(&d), vec![NoticeProblem::Kept]);
    let found = Event::MaterialFound { material: MaterialId([9; 16]), model: CLEAR, client: Some(me()) };
    assert_eq!(d.send(found), Err(Rejected::BadMaterial(MaterialId([9; 16]))));
}

#[test]
fn a_model_that_is_removed_starts_nothing_more() {
    let mut d = driver(false);
    keep(&mut d, 1);
    // Two T_on run, then two T_pre; other jobs are queued.
    request(&mut d, plain(5, BOUND, 2));
    finish_all_pre(&mut d);
    d.send(Event::Notice(notice(BOUND, 3))).unwrap();
    request(&mut d, plain(6, BOUND, 1));
    assert_eq!((running(&d, JobPhase::On).len(), running(&d, JobPhase::Pre).len()), (2, 2));
    d.send(Event::ModelRemoved { model: BOUND }).unwrap();
    assert_eq!(
        (outcomes(&d), burns(&d)),
        (vec![Outcome::Cancelled(Cause::ModelGone)], 1),
        "what waited, what was kept"
    );
    assert_eq!((d.monitor.running.len(), stops(&d)), (4, 0));
    assert_eq!(d.send(Event::Request(plain(7, BOUND, 1))), Err(Rejected::UnknownModel(BOUND)));
    assert_eq!(d.send(Event::ModelRemoved { model: BOUND }), Err(Rejected::UnknownModel(BOUND)));
    finish_all(&mut d);
    assert_eq!(outcomes(&d)[1..], vec![Outcome::Done; 2]);
    assert_eq!((ended(&d), d.sched.used().disk), (vec![NoticeProblem::Kept, NoticeProblem::ModelGone], 0));
    d.sched.audit().unwrap();
}

#[test]
fn a_pool_goes_with_its_model_and_comes_with_the_next() {
    let mut d = driver(true);
    d.send(Event::ModelRemoved { model: UNBOUND }).unwrap();
    assert_eq!(stops(&d), 0, "its refill goes on");
    finish_all(&mut d);
    assert_eq!((d.sched.stock(), burns(&d)), (1, 1), "and what it made is burnt");
    d.send(Event::ModelAdded(models().swap_remove(0))).unwrap();
    assert!(d.monitor.running.values().any(|(s, _)| s.model == ModelId(6) && s.work == Work::Pool));
    let spec: ModelSpec = model("new", BoundTo::Client, phase(1.0, 1), phase(1.0, 1));
    d.send(Event::ModelAdded(spec)).unwrap();
    request(&mut d, plain(5, ModelId(7), 1));
    finish_all(&mut d);
    assert_eq!(outcomes(&d), vec![Outcome::Done]);
}

#[test]
fn another_policy_files_everything_anew_with_the_ages_that_it_has() {
    let started = |policies: &[&str]| {
        let mut d = driver(false);
        d.send(Event::Capacity(Resources { cores: 0, memory: 100, disk: 200, dealings: 0 })).unwrap();
        request(&mut d, plain(1, ModelId(2), 1));
        d.advance(Span::from_secs(100.0));
        request(&mut d, plain(2, BOUND, 1));
        request(&mut d, plain(3, UNBOUND, 1));
        for policy in policies {
            d.set_policy(policy.parse().unwrap());
            d.sched.audit().unwrap();
        }
        d.send(Event::Capacity(Resources { cores: 1, memory: 100, disk: 200, dealings: 0 })).unwrap();
        match d.monitor.running.values().next().map(|(start, _)| start.work) {
            Some(Work::Request(input)) => input.request.0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(started(&[]), 1, "the first to come");
    assert_eq!(started(&["srt"]), 3, "the shortest");
    assert_eq!(started(&["srt", "fcfs"]), 1);
    // A job 20 s longer and 100 s older is first where a second of age is worth a second of length.
    assert_eq!(started(&["priority:1"]), 1);
    assert_eq!(started(&["priority:0.1"]), 3);
}

#[test]
fn a_notice_that_is_taken_back_ends_as_if_it_had_expired() {
    // Queued, running and held inputs are all removed, and their material is burnt.
    for ended_jobs in 0..3 {
        let mut d = driver(false);
        d.send(Event::Notice(notice(BOUND, 1))).unwrap();
        if ended_jobs == 1 {
            assert_eq!(running(&d, JobPhase::Pre).len(), 1);
        } else if ended_jobs == 2 {
            finish_all(&mut d);
            assert_eq!(d.sched.counts().transit, 1);
        }
        d.send(Event::Withdraw { notice: NoticeId(1) }).unwrap();
        assert_eq!(ended(&d), vec![NoticeProblem::Withdrawn]);
        let again = d.sched.handle(d.now, Event::Withdraw { notice: NoticeId(1) });
        assert_eq!(again, Err(Rejected::UnknownNotice(NoticeId(1))));
        finish_all(&mut d);
        assert_eq!(d.sched.used(), Resources { cores: 0, memory: 0, disk: 0, dealings: 0 });
        request(&mut d, Request { notice: Some(NoticeId(1)), ..plain(5, BOUND, 1) });
        finish_all(&mut d);
        assert_eq!(outcomes(&d), vec![Outcome::Done], "a request that names it makes its own material");
    }
}
