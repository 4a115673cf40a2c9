//! Reuse of other campaigns' runs of the same cells: parts of an experiment may have been measured
//! in other sessions or in parallel.
use super::checked::{Experiment, Link, Workload};
use super::plan::{self, Cell, Job};
use super::spec::ExperimentSpec;
use crate::LabError;
use crate::campaign::{self, Folder, Run};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

/// Facts about the machine that must be equal.
const SAME_FACTS: [&str; 4] = ["architecture", "cores", "cpu", "tacit"];

/// Takes over every successful run of the campaign in `source_dir` of a cell of `experiment`, with its
/// record. The cell and all settings that affect a measurement must be equal. Runs get the cell's
/// next free repetitions, even beyond the required number; no run is taken twice. Adds the runs to
/// `done` and returns their number.
pub(super) fn take_over(
    experiment: &Experiment,
    machine: &BTreeMap<String, String>,
    folder: &mut Folder,
    done: &mut Vec<Run>,
    source_dir: &Path,
) -> Result<usize, LabError> {
    let loaded = campaign::load(source_dir)?;
    let source_experiment =
        Experiment::new(ExperimentSpec::from_toml(&source_dir.display().to_string(), &loaded.campaign.spec)?)?;
    let mut differences = common(source_experiment.spec()).differences(&common(experiment.spec()));
    for fact in SAME_FACTS {
        let (a, b) = (loaded.campaign.machine.get(fact), machine.get(fact));
        if a != b {
            differences.push(format!(
                "`{fact}` of the machine is {} there and {} here",
                format_fact(a),
                format_fact(b)
            ));
        }
    }
    if !differences.is_empty() {
        let detail = format!("its runs cannot be taken over: {}", differences.join("; "));
        return Err(LabError::spec(source_dir.display().to_string(), detail));
    }
    let cells: BTreeMap<campaign::Cell, Cell> =
        plan::cells(experiment).into_iter().map(|cell| (plan::labels(experiment, cell), cell)).collect();
    let cell_pairs: BTreeMap<campaign::Cell, Cell> = plan::cells(&source_experiment)
        .into_iter()
        .filter_map(|their| {
            let labels = plan::labels(&source_experiment, their);
            let our = *cells.get(&labels)?;
            alike(&source_experiment, their, experiment, our).then_some((labels, our))
        })
        .collect();
    let mut taken_count = 0;
    for run in loaded.runs.into_iter().filter(|run| run.failure.is_none()) {
        let Some(&cell) = cell_pairs.get(&run.cell) else { continue };
        let of_cell = done.iter().filter(|done_run| done_run.cell == run.cell && done_run.failure.is_none());
        if of_cell.clone().any(|done_run| identity_of(done_run) == identity_of(&run)) {
            continue;
        }
        let repetitions: BTreeSet<u32> = of_cell.map(|done_run| done_run.repetition).collect();
        let repetition = (0..).find(|n| !repetitions.contains(n)).expect("a cell has fewer runs than numbers");
        let job = Job { cell, repetition, warm_up: false };
        let record = record(&run, source_dir, folder.path(), &plan::file_stem(experiment, &job))?;
        let run = Run { repetition, record, ..run };
        folder.append(&run)?;
        done.push(run);
        taken_count += 1;
    }
    Ok(taken_count)
}

fn format_fact(value: Option<&String>) -> String {
    value.map_or("unknown".into(), |v| format!("{v:?}"))
}

/// A specification without the lists of cells, the numbers of runs and the order.
fn common(spec: &ExperimentSpec) -> ExperimentSpec {
    ExperimentSpec {
        repetitions: 1,
        warm_up: 0,
        randomise: true,
        seed: None,
        cool_down_s: 0.0,
        idle_s: 0.0,
        timeout_s: 0.0,
        fewer: vec![],
        transports: vec![],
        paces: vec![],
        links: vec![],
        workloads: vec![],
        ..spec.clone()
    }
}

fn part(experiment: &Experiment, cell: Cell) -> (&Link, &Workload) {
    (&experiment.links()[cell.link], &experiment.workloads()[cell.workload])
}

/// Whether cells of one name are equal, ignoring estimates.
fn alike(source_experiment: &Experiment, source_cell: Cell, experiment: &Experiment, own_cell: Cell) -> bool {
    let ((link, workload), (own_link, own_workload)) =
        (part(source_experiment, source_cell), part(experiment, own_cell));
    let (takes, moves_bytes, round_trips) = (own_workload.takes, own_workload.moves_bytes, own_workload.round_trips);
    link == own_link && Workload { takes, moves_bytes, round_trips, ..workload.clone() } == *own_workload
}

/// Returns the run without repetition and record: what identifies a measurement.
fn identity_of(run: &Run) -> Run {
    Run { repetition: 0, record: String::new(), ..run.clone() }
}

fn record(run: &Run, source_dir: &Path, target_dir: &Path, stem: &str) -> Result<String, LabError> {
    if run.record.is_empty() {
        return Ok(String::new());
    }
    let inside: Vec<Component> = Path::new(&run.record).components().collect();
    if !matches!(inside[..], [Component::Normal(folder), Component::Normal(_)] if folder == "records") {
        let detail = format!("the record {:?} of a run is outside `records`", run.record);
        return Err(LabError::spec(source_dir.display().to_string(), detail));
    }
    let (source, name) = (source_dir.join(&run.record), format!("records/{stem}.jsonl"));
    let mut text = campaign::open(&source).map_err(LabError::io(&source))?;
    let target = target_dir.join(&name);
    let copied = campaign::create(&target).and_then(|mut file| {
        std::io::copy(&mut text, &mut file)?;
        file.sync_all()
    });
    copied.map_err(LabError::io(&target))?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::Campaign;
    use crate::experiment::checked::tests::parse as experiment;
    use crate::tests::assert_refused;
    use std::fs;
    use std::slice::from_ref;

    const TEXT: &str = r#"
name = "parts"
repetitions = 2
links = ["none"]
[[workloads]]
name = "a"
client = "tacit a"
[[workloads]]
name = "b"
client = "tacit b"
"#;

    fn machine(cpu: &str) -> BTreeMap<String, String> {
        [("cpu".to_owned(), cpu.to_owned()), ("load_1min".to_owned(), format!("{:?}", fastrand::u32(..)))].into()
    }

    fn run(workload: &str, repetition: u32, duration_s: f64) -> Run {
        let label = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let cell = [("link", "none"), ("transport", "plain"), ("workload", workload)].map(label).into();
        Run { cell, repetition, duration_s, ..Run::default() }
    }

    /// A folder with a campaign and these runs.
    fn folder(dir: &Path, text: &str, runs: &[Run]) -> Folder {
        let mut folder = Folder::open(dir).unwrap();
        let spec = experiment(text).spec().to_toml().unwrap();
        let campaign = Campaign::new("parts".into(), String::new(), spec, machine("x"));
        folder.begin(&campaign).unwrap();
        runs.iter().for_each(|run| folder.append(run).unwrap());
        folder
    }

    /// Takes over the runs of a folder with `text` and `runs` into an empty one for [`TEXT`] on
    /// machine "x".
    fn take_runs(text: &str, runs: &[Run]) -> Result<Vec<Run>, LabError> {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        drop(folder(source.path(), text, runs));
        let (mut target_folder, mut done) = (folder(target.path(), TEXT, &[]), vec![]);
        let number = take_over(&experiment(TEXT), &machine("x"), &mut target_folder, &mut done, source.path())?;
        assert_eq!((number, &campaign::load(target.path()).unwrap().runs), (done.len(), &done));
        Ok(done)
    }

    #[test]
    fn runs_of_the_same_cells_come_with_their_records_once() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // More repetitions, in another order, of one workload.
        let text =
            TEXT.replacen("= 2", "= 5\nseed = 9", 1).replace("[[workloads]]\nname = \"b\"\nclient = \"tacit b\"\n", "");
        let failed = Run { failure: Some("no".into()), ..run("a", 1, 3.0) };
        let kept_run = Run { record: "records/c000-r00.jsonl".into(), ..run("a", 0, 1.0) };
        drop(folder(source.path(), &text, &[kept_run, failed, run("a", 2, 2.0)]));
        fs::write(source.path().join("records/c000-r00.jsonl"), "{}\n").unwrap();
        let own_run = run("a", 0, 0.5);
        let (mut target_folder, mut done) = (folder(target.path(), TEXT, from_ref(&own_run)), vec![own_run.clone()]);
        let mut take = |target_folder: &mut Folder| {
            take_over(&experiment(TEXT), &machine("x"), target_folder, &mut done, source.path()).unwrap()
        };
        assert_eq!((take(&mut target_folder), take(&mut target_folder)), (2, 0));
        let runs_there = campaign::load(target.path()).unwrap().runs;
        let with_record = Run { record: "records/c000-r01.jsonl".into(), ..run("a", 1, 1.0) };
        assert_eq!(runs_there, [own_run, with_record, run("a", 2, 2.0)]);
        assert_eq!(
            (&runs_there, fs::read(target.path().join("records/c000-r01.jsonl")).unwrap()),
            (&done, b"{}\n".to_vec())
        );
        // All runs of the first workload exist, none of the second.
        assert_eq!(plan::remaining(&experiment(TEXT), &done).len(), 2);
    }

    #[test]
    fn changed_cells_are_not_taken() {
        let runs = [run("a", 0, 1.0), run("b", 0, 2.0)];
        let changed = TEXT.replace("tacit b", "tacit b --fast");
        assert_eq!(take_runs(&changed, &runs).unwrap(), [run("a", 0, 1.0)]);
        // Changed estimates of a cell have no effect.
        let expected = TEXT.replace("tacit b\"", "tacit b\"\ntakes_s = 5.0");
        assert_eq!(take_runs(&expected, &runs).unwrap(), runs);
    }

    #[test]
    fn refuses_other_experiments_machines_and_places() {
        let runs = [run("a", 0, 1.0)];
        for (changed, reason) in
            [("device = \"none-such\"", "`device`"), ("interval_s = 0.5", "`interval_s` is 0.5 there and 1.0 here")]
        {
            let taken = take_runs(&format!("{changed}\n{TEXT}"), &runs);
            assert_refused(taken, &["cannot be taken over", reason]);
        }
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        drop(folder(source.path(), TEXT, &runs));
        let (mut target_folder, mut done) = (folder(target.path(), TEXT, &[]), vec![]);
        let taken = take_over(&experiment(TEXT), &machine("y"), &mut target_folder, &mut done, source.path());
        assert_refused(taken, &["`cpu` of the machine is \"x\" there and \"y\" here"]);
        for outside in ["../secret", "/etc/passwd", "records/../../secret", "secret"] {
            let outer_run = Run { record: outside.into(), ..run("a", 0, 1.0) };
            assert_refused(take_runs(TEXT, &[outer_run]), &["outside `records`"]);
        }
    }
}
