//! The decisions of `docs/notes/scheduler.md`, one test each.

use crate::support::driver::Driver;
use crate::support::{Setup, announce, header};
use tacit_sched::{
    Action, Cause, ClientId, Event, JobId, JobPhase, MaterialId, ModelId, NoticeId, NoticeProblem, Outcome, Owner,
    Rejected, Request, RequestId, Resources, Shutdown, Source, Span, Usage,
};

const BOUND: ModelId = ModelId(1);

fn driver(pool: bool) -> Driver {
    Driver::new(header(&Setup { policy: "fcfs".parse().unwrap(), pool, moldable: false, batch_share: 1.0 }))
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

/// T_pre jobs started so far.
fn pres(driver: &Driver) -> usize {
    driver.actions.iter().filter(|(_, a)| matches!(a, Action::Start(s) if s.phase == JobPhase::Pre)).count()
}

fn burns(driver: &Driver) -> usize {
    driver.actions.iter().filter(|(_, a)| matches!(a, Action::Burn { .. })).count()
}

fn stops(driver: &Driver) -> usize {
    driver.actions.iter().filter(|(_, a)| matches!(a, Action::Stop { .. })).count()
}

fn finish_all(driver: &mut Driver) {
    while let Some(&job) = driver.monitor.running.keys().next() {
        driver.finish(job, 100);
    }
}

fn running(driver: &Driver, phase: JobPhase) -> Vec<JobId> {
    driver.monitor.running.iter().filter(|(_, (start, _))| start.phase == phase).map(|(job, _)| *job).collect()
}

fn ignored(driver: &Driver) -> Option<NoticeProblem> {
    driver.actions.iter().find_map(|(_, a)| match a {
        Action::NoticeIgnored { why, .. } => Some(*why),
        _ => None,
    })
}

fn outcomes(driver: &Driver) -> Vec<Outcome> {
    driver.monitor.reports.iter().map(|r| r.outcome).collect()
}

#[test]
fn a_notice_is_claimed_in_every_stage_and_never_costs_a_second_t_pre() {
    for finished in [false, true] {
        let mut d = driver(false);
        d.send(notice(1, BOUND, 2)).unwrap();
        assert_eq!(d.sched.counts().running_pre, 2);
        if finished {
            finish_all(&mut d);
            assert_eq!(d.sched.counts().transit, 2);
        }
        d.send(request(5, 1, BOUND, 2, true)).unwrap();
        assert_eq!(d.sched.counts().waiting, if finished { 0 } else { 2 });
        finish_all(&mut d);
        assert_eq!((pres(&d), outcomes(&d)), (2, vec![Outcome::Done; 2]));
        assert!(d.monitor.reports.iter().all(|r| r.source == Source::Notice));
        assert_eq!(ignored(&d), None);
    }
}

#[test]
fn somebody_elses_notice_or_another_model_does_not_count_and_says_so() {
    for (client, model, why) in [(2, BOUND, NoticeProblem::OtherClient), (1, ModelId(0), NoticeProblem::OtherModel)] {
        let mut d = driver(false);
        d.send(notice(1, BOUND, 1)).unwrap();
        d.send(request(5, client, model, 1, true)).unwrap();
        assert_eq!(ignored(&d), Some(why));
        finish_all(&mut d);
        assert_eq!((pres(&d), outcomes(&d)), (2, vec![Outcome::Done]));
        // The notice is still valid for its own client.
        d.send(request(6, 1, BOUND, 1, true)).unwrap();
        finish_all(&mut d);
        assert_eq!(pres(&d), 2);
    }
}

#[test]
fn more_inputs_than_announced_get_their_own_and_fewer_release_the_rest() {
    let mut d = driver(false);
    d.send(notice(1, BOUND, 1)).unwrap();
    d.send(request(5, 1, BOUND, 3, true)).unwrap();
    finish_all(&mut d);
    assert_eq!((pres(&d), outcomes(&d).len(), burns(&d)), (3, 3, 0));

    let mut d = driver(false);
    d.send(notice(1, BOUND, 3)).unwrap();
    let first = *d.monitor.running.keys().next().unwrap();
    d.finish(first, 100);
    d.send(request(5, 1, BOUND, 1, true)).unwrap();
    // The finished T_pre is used. The others are stopped, and their partial material has no name.
    assert_eq!(d.sched.counts().running_on, 1);
    assert_eq!((d.monitor.running.len(), stops(&d), burns(&d)), (1, 2, 0));
    assert_eq!(d.sched.used().disk, 10);
}

#[test]
fn the_second_request_on_one_notice_is_one_without_notice() {
    let mut d = driver(false);
    d.send(notice(1, BOUND, 1)).unwrap();
    d.send(request(5, 1, BOUND, 1, true)).unwrap();
    d.send(request(6, 1, BOUND, 1, true)).unwrap();
    assert_eq!(ignored(&d), Some(NoticeProblem::Used));
    finish_all(&mut d);
    assert_eq!((pres(&d), outcomes(&d)), (2, vec![Outcome::Done; 2]));
}

#[test]
fn an_expired_notice_is_burnt_where_bound_and_pooled_where_not() {
    let mut d = driver(false);
    d.send(notice(1, BOUND, 1)).unwrap();
    finish_all(&mut d);
    d.advance(Span::from_secs(31.0));
    assert_eq!((burns(&d), d.sched.used().disk), (1, 0));
    d.send(request(5, 1, BOUND, 1, true)).unwrap();
    assert_eq!(ignored(&d), Some(NoticeProblem::Expired));

    let mut d = driver(true);
    finish_all(&mut d);
    let stock_before = d.sched.stock();
    d.send(notice(1, ModelId(0), 1)).unwrap();
    finish_all(&mut d);
    d.advance(Span::from_secs(31.0));
    assert_eq!((burns(&d), d.sched.stock()), (0, stock_before + 1));
}

#[test]
fn a_failed_notice_ends_and_a_waiting_request_tries_again_itself() {
    let fail = |d: &mut Driver| {
        let job = *d.monitor.running.keys().next().unwrap();
        d.send(Event::JobFailed { job }).unwrap();
    };
    let mut d = driver(false);
    d.send(notice(1, BOUND, 1)).unwrap();
    fail(&mut d);
    fail(&mut d);
    assert!(d.monitor.running.is_empty(), "two attempts, then the notice is given up");
    d.send(request(5, 1, BOUND, 1, true)).unwrap();
    assert_eq!(ignored(&d), Some(NoticeProblem::Failed));
    // T_pre may be tried again, T_on never: its material is burnt and the input fails.
    fail(&mut d);
    let pre = *d.monitor.running.keys().next().unwrap();
    d.finish(pre, 100);
    fail(&mut d);
    assert_eq!(outcomes(&d), vec![Outcome::Failed]);
    assert_eq!(d.sched.used().disk, 0);
}

/// Brings one input into a stage: T_pre queued, running; T_on queued, running.
fn stage(d: &mut Driver, stage: usize) {
    let hog = |d: &mut Driver, id| d.send(request(id, 9, ModelId(0), 4, false)).unwrap();
    if stage == 0 {
        hog(d, 90);
    }
    d.send(request(5, 1, BOUND, 1, false)).unwrap();
    if stage >= 2 {
        let job = *d.monitor.running.keys().next().unwrap();
        if stage == 2 {
            // Three requests fill the other cores, and an earlier job takes the core that becomes free.
            d.send(Event::Capacity(tacit_sched::Resources { cores: 0, memory: 100, disk: 200, dealings: 0 })).unwrap();
        }
        d.finish(job, 100);
    }
    let counts = d.sched.counts();
    let stages = [counts.pre, counts.running_pre, counts.ready, counts.running_on];
    assert!(stages[stage] >= 1, "stage {stage}: {counts:?}");
}

#[test]
fn timeout_departure_cancel_and_shutdown_release_everything_in_every_stage() {
    type End = (fn(&mut Driver), Outcome);
    let ends: [End; 4] = [
        (|d| d.advance(Span::from_secs(101.0)), Outcome::TimedOut),
        (
            |d| d.send(Event::ClientGone { client: ClientId::numbered(1) }).unwrap(),
            Outcome::Cancelled(Cause::ClientGone),
        ),
        (|d| d.send(Event::Cancel { request: RequestId(5) }).unwrap(), Outcome::Cancelled(Cause::Client)),
        (|d| d.send(Event::Shutdown(Shutdown::Now)).unwrap(), Outcome::Cancelled(Cause::Shutdown)),
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
fn drain_finishes_what_was_accepted_and_nothing_else() {
    let mut d = driver(false);
    d.send(request(5, 1, BOUND, 2, false)).unwrap();
    d.send(notice(2, BOUND, 1)).unwrap();
    d.send(Event::Shutdown(Shutdown::Drain)).unwrap();
    assert_eq!(d.send(request(6, 3, BOUND, 1, false)), Err(Rejected::ShuttingDown));
    finish_all(&mut d);
    assert_eq!(outcomes(&d), vec![Outcome::Done; 2]);
    assert!(d.sched.stopped());
    assert_eq!(d.send(Event::Tick), Err(Rejected::ShuttingDown));
    assert_eq!(d.sched.poll_action(d.now), None);
}

#[test]
fn stock_serves_a_request_at_once_and_is_made_again() {
    let mut d = driver(true);
    // The pools of both unbound models get one material before any request.
    finish_all(&mut d);
    assert_eq!(d.sched.stock(), 2);
    d.send(request(5, 1, ModelId(0), 1, false)).unwrap();
    assert_eq!(d.sched.counts().running_on, 1);
    finish_all(&mut d);
    let report = &d.monitor.reports[0];
    assert_eq!((report.outcome, report.source), (Outcome::Done, Source::Pool));
    assert!(d.sched.stock() >= 2, "refilled");
}

#[test]
fn material_exists_under_the_name_that_its_job_ended_with() {
    let mut d = driver(false);
    d.send(request(5, 1, BOUND, 2, false)).unwrap();
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
    d.send(end(jobs[0], Some(name))).unwrap();
    let (on, start) = d.monitor.running.iter().map(|(job, (start, _))| (*job, start.clone())).next_back().unwrap();
    assert_eq!((start.phase, start.material), (JobPhase::On, Some(name)));
    // The name of live material is refused for new material, and a T_on cannot make any.
    assert_eq!(d.send(end(jobs[1], Some(name))), Err(Rejected::BadMaterial(name)));
    assert_eq!(d.send(end(on, Some(name))), Err(Rejected::MaterialMismatch { job: on, phase: JobPhase::On }));
    d.sched.audit().unwrap();
    finish_all(&mut d);
    assert_eq!(outcomes(&d), vec![Outcome::Done; 2]);
}

#[test]
fn found_material_is_taken_over_once_and_only_before_this_run_makes_its_own() {
    let mut d = driver(true);
    let found_event = |byte| Event::MaterialFound { material: MaterialId([byte; 16]), model: ModelId(0), client: None };
    let bad = |byte| Err(Rejected::BadMaterial(MaterialId([byte; 16])));
    // The pool gives out the material that was found first, whatever its name.
    d.send(found_event(9)).unwrap();
    d.send(found_event(3)).unwrap();
    assert_eq!(d.send(found_event(9)), bad(9));
    d.send(request(5, 1, ModelId(0), 1, false)).unwrap();
    let used_material = d.monitor.running.values().find_map(|(start, _)| start.material);
    assert_eq!(used_material, Some(MaterialId([9; 16])));
    let pre = d.monitor.running.iter().find(|(_, (start, _))| start.phase == JobPhase::Pre).map(|(job, _)| *job);
    d.finish(pre.expect("the large model's pool is refilled"), 100);
    assert_eq!(d.send(found_event(4)), bad(4));
}

#[test]
fn a_job_that_did_not_start_is_queued_as_if_it_had_never_left() {
    let mut d = driver(false);
    d.send(Event::Capacity(Resources { cores: 1, memory: 100, disk: 200, dealings: 0 })).unwrap();
    d.send(request(5, 1, BOUND, 1, false)).unwrap();
    let pre = running(&d, JobPhase::Pre)[0];
    d.finish(pre, 100);
    d.send(request(6, 2, BOUND, 1, false)).unwrap();
    let owner = Owner::Request(RequestId(5));
    for _ in 0..3 {
        let job = running(&d, JobPhase::On)[0];
        d.send(Event::Lanes { of: owner, lanes: 0 }).unwrap();
        d.send(Event::JobNotStarted { job }).unwrap();
        // The other input may use the core meanwhile; nothing is burnt, and no attempt counts as failed.
        assert_eq!((running(&d, JobPhase::Pre).len(), running(&d, JobPhase::On).len()), (1, 0));
        assert_eq!(d.send(Event::JobNotStarted { job }), Err(Rejected::JobNotRunning(job)));
        let job = running(&d, JobPhase::Pre)[0];
        d.send(Event::Lanes { of: owner, lanes: 1 }).unwrap();
        d.send(Event::JobNotStarted { job }).unwrap();
    }
    assert_eq!((burns(&d), outcomes(&d)), (0, vec![]));
    let job = running(&d, JobPhase::On)[0];
    d.finish(job, 100);
    assert_eq!(outcomes(&d), vec![Outcome::Done]);
}
