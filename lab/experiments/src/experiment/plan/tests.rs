use super::super::checked::tests::parse;
use super::*;

const TEXT: &str = r#"
name = "plan"
repetitions = 4
cool_down_s = 0.5
idle_s = 10.0
measure_s = 2.0
links = ["lan", "pm24-3.89", "none"]
transports = ["plain", "tls"]
[[workloads]]
name = "a"
client = "x {transport}"
takes_s = 2.0
moves_bytes = 389000
[[workloads]]
name = "b"
client = "y {transport} {seconds}"
"#;

fn experiment(extra: &str) -> Experiment {
    parse(&format!("{extra}\n{TEXT}"))
}

fn run_of(experiment: &Experiment, job: &Job, failure: Option<&str>) -> Run {
    let (cell, failure) = (labels(experiment, job.cell), failure.map(str::to_owned));
    Run { cell, repetition: job.repetition, failure, duration_s: 1.0, ..Run::default() }
}

#[test]
fn each_repetition_has_every_cell_once() {
    let e = experiment("seed = 1");
    let jobs = remaining(&e, &[]);
    assert_eq!(jobs.len(), 4 * 3 * 2 * 2);
    for (repetition, block) in jobs.chunks(12).enumerate() {
        assert!(block.iter().all(|j| j.repetition == repetition as u32 && !j.warm_up));
        let mut cells_of_block: Vec<Cell> = block.iter().map(|j| j.cell).collect();
        cells_of_block.sort();
        assert_eq!(cells_of_block, cells(&e));
    }
}

#[test]
fn seed_determines_the_order() {
    let order = |extra: &str| remaining(&experiment(extra), &[]);
    assert_eq!(order("seed = 1"), order("seed = 1"));
    assert_ne!(order("seed = 1"), order("seed = 2"));
    let jobs = order("seed = 1");
    let block = |i: usize| jobs[12 * i..12 * (i + 1)].iter().map(|j| j.cell).collect::<Vec<_>>();
    assert_ne!(block(0), block(1), "each repetition has an order of its own");
    let fixed = order("randomise = false");
    assert!(fixed.chunks(12).all(|b| b.iter().map(|j| j.cell).collect::<Vec<_>>() == cells(&experiment(""))));
}

#[test]
fn only_failed_and_missing_runs_remain() {
    let e = experiment("seed = 7");
    let jobs = remaining(&e, &[]);
    let mut done: Vec<Run> = jobs[..20].iter().map(|j| run_of(&e, j, None)).collect();
    done[3] = run_of(&e, &jobs[3], Some("timed out"));
    let expected: Vec<Job> = std::iter::once(jobs[3]).chain(jobs[20..].iter().copied()).collect();
    assert_eq!(remaining(&e, &done), expected);
    let all_runs: Vec<Run> = jobs.iter().map(|j| run_of(&e, j, None)).collect();
    assert!(remaining(&e, &all_runs).is_empty());
}

#[test]
fn warm_up_precedes_first_remaining_run_of_each_cell() {
    let e = experiment("seed = 7\nwarm_up = 2");
    let jobs = remaining(&e, &[]);
    assert_eq!(jobs.len(), 12 * (4 + 2));
    for cell in cells(&e) {
        let warm_ups: Vec<bool> = jobs.iter().filter(|j| j.cell == cell).map(|j| j.warm_up).collect();
        assert_eq!(warm_ups, [true, true, false, false, false, false]);
    }
    let measured: Vec<&Job> = jobs.iter().filter(|j| !j.warm_up).collect();
    let done: Vec<Run> = measured[..47].iter().map(|j| run_of(&e, j, None)).collect();
    let remaining_jobs = remaining(&e, &done);
    assert_eq!(remaining_jobs.iter().map(|j| j.warm_up).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn labels_and_files() {
    let e = experiment("");
    let cell = Cell { link: 1, transport: 1, workload: 0, pace: 0 };
    let expected = [("link", "pm24-3.89"), ("transport", "tls"), ("workload", "a")];
    assert!(labels(&e, cell).iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(expected));
    assert_eq!(file_stem(&e, &Job { cell, repetition: 3, warm_up: false }), "c006-r03");
    let text = TEXT.replace("{transport}", "{transport} {pace}");
    let paced = parse(&format!("paces = [\"none\", \"5mbit\"]\n{text}"));
    assert_eq!(labels(&paced, Cell { pace: 1, ..cell })["pace"], "5mbit");
    let jobs = remaining(&paced, &[]);
    let stems: BTreeSet<String> = jobs.iter().map(|j| file_stem(&paced, j)).collect();
    assert_eq!(stems.len(), jobs.len(), "no two share a file");
}

#[test]
fn measured_durations_replace_estimates() {
    let e = experiment("");
    let seconds = |link, workload| estimate(&e, Cell { link, transport: 0, workload, pace: 0 }).as_secs_f64();
    let around = 0.3 + 0.5;
    // 389 kB at 3.89 Mbit/s: 0.8 s.
    assert!((seconds(1, 0) - (around + 2.0 + 2.0 + 0.8)).abs() < 1e-6);
    assert!((seconds(2, 0) - (around + 2.0)).abs() < 1e-6, "loopback is not measured and endless");
    assert!((seconds(2, 1) - (around + 10.0)).abs() < 1e-6, "{{seconds}}");
    let jobs = remaining(&e, &[]);
    let sum: f64 = jobs.iter().map(|j| estimate(&e, j.cell).as_secs_f64()).sum();
    assert!((total(&e, &jobs).as_secs_f64() - sum - 20.0).abs() < 1e-6);
    let mut clock = Clock::default();
    let cell = Cell { link: 2, transport: 0, workload: 0, pace: 0 };
    clock.record(cell, Duration::from_secs(4));
    clock.record(cell, Duration::from_secs(8));
    let left_s = clock.remaining_time(&e, &jobs).as_secs_f64();
    assert!((left_s - (sum + 4.0 * (6.0 - around - 2.0))).abs() < 1e-6, "four runs of that cell, 6 s each");
}

#[test]
fn long_runs_are_repeated_less() {
    let fewer = "fewer = [{ above_s = 2.5, repetitions = 3 }, { above_s = 9.0, repetitions = 0 }]\nwarm_up = 1";
    let e = experiment(fewer);
    let runs = |link, workload| {
        let cell = Cell { link, transport: 0, workload, pace: 0 };
        remaining(&e, &[]).iter().filter(|j| j.cell == cell && !j.warm_up).count()
    };
    // 2 s; 2.8 s with the bytes at 3.89 Mbit/s; 10 s.
    assert_eq!([runs(2, 0), runs(1, 0), runs(2, 1)], [4, 3, 0]);
    assert!(remaining(&e, &[]).iter().all(|j| j.cell.workload == 0), "no warm-up of what does not run");
    let done: Vec<Run> = remaining(&e, &[]).iter().filter(|j| !j.warm_up).map(|j| run_of(&e, j, None)).collect();
    assert!(remaining(&e, &done).is_empty());
    let waits = TEXT.replace("moves_bytes = 389000", "round_trips = 1000.0");
    let e = parse(&waits);
    let seconds = |link| length(&e, Cell { link, transport: 0, workload: 0, pace: 0 }).as_secs_f64();
    assert!((seconds(0) - 2.6).abs() < 1e-6, "0.6 ms each, none on loopback");
    assert!((seconds(2) - 2.0).abs() < 1e-6, "0.6 ms each, none on loopback");
}

#[test]
fn loopback_needs_no_root() {
    assert!(needs_root(&experiment("")));
    let text = TEXT.replace("\"lan\", \"pm24-3.89\", ", "");
    assert!(!needs_root(&parse(&text)));
}
