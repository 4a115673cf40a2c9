use super::*;
use crate::campaign::IdlePower;
use crate::experiment::checked::tests::parse as experiment;
use crate::tests::assert_refused;

const TEXT: &str = r#"
name = "runner"
repetitions = 3
cool_down_s = 0.0
idle_s = 1.0
links = ["none"]
[[workloads]]
name = "a"
client = "tacit x"
[[workloads]]
name = "b"
client = "tacit x"
"#;

fn run_of(experiment: &Experiment, job: &Job) -> Run {
    Run { cell: plan::labels(experiment, job.cell), repetition: job.repetition, duration_s: 1.0, ..Run::default() }
}

fn idle_of(when: &str, mean_w: f64) -> Idle {
    let power = IdlePower { mean_w, sd_w: 0.1, n: 10, mean_sd_w: 0.02 };
    Idle { when: when.into(), record: String::new(), duration_s: 1.0, power: [("rapl".to_owned(), power)].into() }
}

/// Simulates a session: `act` decides the n-th run. Returns the outcome and the events.
fn play(
    experiment: &Experiment,
    dir: &Path,
    stop: &AtomicBool,
    mut act: impl FnMut(usize, Run) -> Result<StepResult, LabError>,
) -> (Result<Outcome, LabError>, Vec<String>) {
    let mut folder = Folder::open(dir).unwrap();
    begin(&mut folder, dir, experiment, &BTreeMap::new()).unwrap();
    let runs = campaign::load(dir).unwrap().runs;
    let jobs = plan::remaining(experiment, &runs);
    let (mut events, mut n) = (vec![], 0);
    let mut conduct = |step: Step<'_>| match step {
        Step::Idle(when, _) => Ok(StepResult::Idle(idle_of(when, if when == "before" { 5.0 } else { 5.2 }))),
        Step::Job(job) => {
            n += 1;
            act(n, run_of(experiment, job))
        }
    };
    let mut tell = |event: Event<'_>| {
        events.push(match event {
            Event::Run { cell, repetition, .. } => format!("run {} {repetition}", cell["workload"]),
            Event::Over { run, .. } => format!("over {}", run.failure.as_deref().unwrap_or("well")),
            Event::Idle(when) => format!("idle {when}"),
            Event::Note(note) => note,
            Event::Begin { .. } => "begin".into(),
        });
    };
    (drive(experiment, &jobs, &mut folder, stop, &mut conduct, &mut tell), events)
}

fn well(_: usize, run: Run) -> Result<StepResult, LabError> {
    Ok(StepResult::Run(Box::new(run)))
}

#[test]
fn runs_a_whole_campaign() {
    let (e, dir) = (experiment(TEXT).with_seed(1), tempfile::tempdir().unwrap());
    let (outcome, events) = play(&e, dir.path(), &AtomicBool::new(false), well);
    assert_eq!(outcome.unwrap(), Outcome { done: 6, ..Outcome::default() });
    assert_eq!((events[0].as_str(), events[13].as_str()), ("idle before", "idle after"));
    assert!(events[14].contains("drift +0.200 W is more than its noise"), "{}", events[14]);
    assert_eq!(campaign::load(dir.path()).unwrap().runs.len(), 6);
    let idle = std::fs::read_to_string(dir.path().join("idle.jsonl")).unwrap();
    assert_eq!(idle.lines().count(), 2);
}

#[test]
fn resume_runs_what_is_left() {
    let (e, dir) = (experiment(TEXT).with_seed(1), tempfile::tempdir().unwrap());
    let stop = AtomicBool::new(false);
    let (outcome, _) = play(&e, dir.path(), &stop, |n, run| {
        if n < 4 {
            return well(n, run);
        }
        stop.store(true, Ordering::Relaxed);
        Ok(StepResult::Stopped)
    });
    assert_eq!(outcome.unwrap(), Outcome { done: 3, left: 3, stopped: true, ..Outcome::default() });
    // The folder's seed decides the order of the remaining runs; a new seed has no effect.
    let (resumed, done) = resume(&experiment(TEXT), dir.path()).unwrap();
    assert_eq!((resumed.spec().seed, done.len()), (e.spec().seed, 3));
    let (outcome, events) = play(&resumed, dir.path(), &AtomicBool::new(false), well);
    assert_eq!(outcome.unwrap(), Outcome { done: 3, ..Outcome::default() });
    assert_eq!(events.iter().filter(|t| t.starts_with("run ")).count(), 3);
    assert!(plan::remaining(&resumed, &campaign::load(dir.path()).unwrap().runs).is_empty());
    let idle = std::fs::read_to_string(dir.path().join("idle.jsonl")).unwrap();
    assert_eq!(idle.lines().count(), 3, "before, before, after");
}

#[test]
fn failed_runs_are_repeated_and_many_end_the_campaign() {
    let (e, dir) = (experiment(TEXT).with_seed(2), tempfile::tempdir().unwrap());
    let broken = |run: Run| Ok(StepResult::Run(Box::new(Run { failure: Some("no".into()), ..run })));
    let (outcome, events) =
        play(&e, dir.path(), &AtomicBool::new(false), |n, run| if n % 2 == 0 { broken(run) } else { well(n, run) });
    assert_eq!(outcome.unwrap(), Outcome { done: 3, failed: 3, left: 3, ..Outcome::default() });
    assert!(events.contains(&"over no".to_owned()));
    let (outcome, _) = play(&e, dir.path(), &AtomicBool::new(false), well);
    assert_eq!(outcome.unwrap().done, 3, "only the failed ones");

    let (e, dir) = (experiment(&TEXT.replace("= 3", "= 9")).with_seed(2), tempfile::tempdir().unwrap());
    let (outcome, _) = play(&e, dir.path(), &AtomicBool::new(false), |_, run| broken(run));
    assert_eq!(outcome.unwrap(), Outcome { failed: 5, left: 18, given_up: true, ..Outcome::default() });
}

#[test]
fn full_disk_ends_the_campaign_and_keeps_runs() {
    let (e, dir) = (experiment(TEXT).with_seed(1), tempfile::tempdir().unwrap());
    let full = || LabError::Io { path: "records/x".into(), source: std::io::ErrorKind::StorageFull.into() };
    let (outcome, _) =
        play(&e, dir.path(), &AtomicBool::new(false), |n, run| if n == 3 { Err(full()) } else { well(n, run) });
    assert_refused(outcome, &["records/x"]);
    assert_eq!(campaign::load(dir.path()).unwrap().runs.len(), 2);
}

#[test]
fn refuses_another_experiment_with_the_difference() {
    let dir = tempfile::tempdir().unwrap();
    let e = experiment(TEXT).with_seed(1);
    begin(&mut Folder::open(dir.path()).unwrap(), dir.path(), &e, &BTreeMap::new()).unwrap();
    let changed = experiment(&TEXT.replace("= 3", "= 4"));
    assert_refused(resume(&changed, dir.path()), &["`repetitions` is 3 there and 4 here"]);
    let seeded = experiment(&format!("seed = 77\n{TEXT}"));
    assert_refused(resume(&seeded, dir.path()), &["`seed` is 0 there and 77 here"]);
}

#[test]
fn missing_programs_are_named() {
    check_programs(&experiment(TEXT)).unwrap();
    let missing = TEXT.replacen("tacit x", "no-such-program-here x", 1);
    let words = "workloads[0].client: there is no program `no-such-program-here`";
    assert_refused(check_programs(&experiment(&missing)), &[words]);
    check_programs(&experiment(&TEXT.replace("tacit x", "sh -c true"))).unwrap();
    assert!(check_programs(&experiment(&TEXT.replace("tacit x", "./relative"))).is_err());
}
