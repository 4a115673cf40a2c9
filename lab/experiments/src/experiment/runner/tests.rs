use super::*;
use crate::campaign::IdlePower;

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

fn experiment(text: &str) -> Experiment {
    Experiment::new(ExperimentSpec::from_toml("runner", text).unwrap()).unwrap()
}

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
    mut act: impl FnMut(usize, Run) -> Result<Stepped, LabError>,
) -> (Result<Outcome, LabError>, Vec<String>) {
    let mut folder = Folder::open(dir).unwrap();
    if !campaign::is_there(dir) {
        folder.begin(&header(experiment, BTreeMap::new()).unwrap()).unwrap();
    }
    let runs = campaign::load(dir).unwrap().runs;
    let jobs = plan::remaining(experiment, &runs);
    let (mut events, mut n) = (vec![], 0);
    let mut conduct = |step: Step<'_>| match step {
        Step::Idle(when, _) => Ok(Stepped::Idle(idle_of(when, if when == "before" { 5.0 } else { 5.2 }))),
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
    let outcome = drive(experiment, &jobs, &mut folder, stop, &mut conduct, &mut tell);
    (outcome, events)
}

fn well(_: usize, run: Run) -> Result<Stepped, LabError> {
    Ok(Stepped::Run(Box::new(run)))
}

#[test]
fn a_whole_campaign() {
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
fn interrupted_and_resumed_it_is_the_same_campaign() {
    let (e, dir) = (experiment(TEXT).with_seed(1), tempfile::tempdir().unwrap());
    let stop = AtomicBool::new(false);
    let (outcome, _) = play(&e, dir.path(), &stop, |n, run| {
        if n < 4 {
            return well(n, run);
        }
        stop.store(true, Ordering::Relaxed);
        Ok(Stepped::Stopped)
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
fn failures_go_on_and_are_repeated_and_too_many_end_it() {
    let (e, dir) = (experiment(TEXT).with_seed(2), tempfile::tempdir().unwrap());
    let broken = |run: Run| Ok(Stepped::Run(Box::new(Run { failure: Some("no".into()), ..run })));
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
fn a_full_disk_ends_it_and_keeps_what_is_there() {
    let (e, dir) = (experiment(TEXT).with_seed(1), tempfile::tempdir().unwrap());
    let full = || LabError::Io { path: "records/x".into(), source: std::io::ErrorKind::StorageFull.into() };
    let (outcome, _) =
        play(&e, dir.path(), &AtomicBool::new(false), |n, run| if n == 3 { Err(full()) } else { well(n, run) });
    assert!(outcome.unwrap_err().to_string().contains("records/x"));
    assert_eq!(campaign::load(dir.path()).unwrap().runs.len(), 2);
}

#[test]
fn another_experiment_is_refused_with_the_difference() {
    let dir = tempfile::tempdir().unwrap();
    let e = experiment(TEXT).with_seed(1);
    Folder::open(dir.path()).unwrap().begin(&header(&e, BTreeMap::new()).unwrap()).unwrap();
    let error = resume(&experiment(&TEXT.replace("= 3", "= 4")), dir.path()).unwrap_err().to_string();
    assert!(error.contains("`repetitions` is 3 there and 4 here"), "{error}");
    let seeded = experiment(&format!("seed = 77\n{TEXT}"));
    let error = resume(&seeded, dir.path()).unwrap_err().to_string();
    assert!(error.contains("`seed` is 0 there and 77 here"), "{error}");
}

#[test]
fn programs_are_looked_for_first() {
    check_programs(&experiment(TEXT)).unwrap();
    let missing = TEXT.replacen("tacit x", "no-such-program-here x", 1);
    let error = check_programs(&experiment(&missing)).unwrap_err().to_string();
    assert!(error.contains("workloads[0].client: there is no program `no-such-program-here`"), "{error}");
    check_programs(&experiment(&TEXT.replace("tacit x", "sh -c true"))).unwrap();
    assert!(check_programs(&experiment(&TEXT.replace("tacit x", "./relative"))).is_err());
}
