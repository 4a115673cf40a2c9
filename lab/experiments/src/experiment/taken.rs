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
const SAME: [&str; 4] = ["architecture", "cores", "cpu", "tacit"];

/// Takes over every successful run of the campaign in `from` of a cell of `experiment`, with its
/// record. The cell's link, transport, workload and pace must be equal, and so must all other
/// settings that affect a measurement. Runs get the cell's next free repetitions, even beyond the
/// required number; runs taken before are not taken again. Adds the runs to `done` and returns
/// their number.
///
/// # Errors
/// [`LabError::Spec`] for a campaign of another experiment or machine, or a record outside its folder;
/// [`LabError::Io`].
pub(super) fn take_over(
    experiment: &Experiment,
    machine: &BTreeMap<String, String>,
    folder: &mut Folder,
    done: &mut Vec<Run>,
    from: &Path,
) -> Result<usize, LabError> {
    let loaded = campaign::load(from)?;
    let there = Experiment::new(ExperimentSpec::from_toml(&from.display().to_string(), &loaded.campaign.spec)?)?;
    let mut differences = common(there.spec()).differences(&common(experiment.spec()));
    for fact in SAME {
        let (a, b) = (loaded.campaign.machine.get(fact), machine.get(fact));
        if a != b {
            differences.push(format!("`{fact}` of the machine is {} there and {} here", shown(a), shown(b)));
        }
    }
    if !differences.is_empty() {
        let detail = format!("its runs cannot be taken over: {}", differences.join("; "));
        return Err(LabError::Spec { what: from.display().to_string(), detail });
    }
    let cells: BTreeMap<campaign::Cell, Cell> =
        plan::cells(experiment).into_iter().map(|cell| (plan::labels(experiment, cell), cell)).collect();
    let theirs = plan::cells(&there).into_iter().map(|cell| (plan::labels(&there, cell), cell));
    let same: BTreeMap<campaign::Cell, Cell> = theirs
        .filter_map(|(labels, their)| {
            let our = *cells.get(&labels)?;
            alike(&there, their, experiment, our).then_some((labels, our))
        })
        .collect();
    let mut taken = 0;
    for run in loaded.runs.into_iter().filter(|run| run.failure.is_none()) {
        let Some(&cell) = same.get(&run.cell) else { continue };
        let of_cell = done.iter().filter(|there| there.cell == run.cell && there.failure.is_none());
        if of_cell.clone().any(|there| measured(there) == measured(&run)) {
            continue;
        }
        let used: BTreeSet<u32> = of_cell.map(|there| there.repetition).collect();
        let repetition = (0..).find(|n| !used.contains(n)).expect("a cell has fewer runs than numbers");
        let job = Job { cell, repetition, warm_up: false };
        let record = record(&run, from, folder.path(), &plan::file_stem(experiment, &job))?;
        let run = Run { repetition, record, ..run };
        folder.append(&run)?;
        done.push(run);
        taken += 1;
    }
    Ok(taken)
}

/// Returns the printed value of a fact.
fn shown(value: Option<&String>) -> String {
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
fn alike(there: &Experiment, their: Cell, experiment: &Experiment, our: Cell) -> bool {
    let ((link, workload), (our_link, ours)) = (part(there, their), part(experiment, our));
    let (takes, moves_bytes, round_trips) = (ours.takes, ours.moves_bytes, ours.round_trips);
    link == our_link && Workload { takes, moves_bytes, round_trips, ..workload.clone() } == *ours
}

/// The part of a run that identifies it.
fn measured(run: &Run) -> Run {
    Run { repetition: 0, record: String::new(), ..run.clone() }
}

/// Copies a run's record under a new name, and returns the name.
fn record(run: &Run, from: &Path, to: &Path, stem: &str) -> Result<String, LabError> {
    if run.record.is_empty() {
        return Ok(String::new());
    }
    let inside: Vec<Component> = Path::new(&run.record).components().collect();
    if !matches!(inside[..], [Component::Normal(folder), Component::Normal(_)] if folder == "records") {
        let detail = format!("the record {:?} of a run is outside `records`", run.record);
        return Err(LabError::Spec { what: from.display().to_string(), detail });
    }
    let (source, name) = (from.join(&run.record), format!("records/{stem}.jsonl"));
    let mut text = campaign::open(&source).map_err(LabError::io(&source))?;
    let target = to.join(&name);
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
    use crate::campaign::{Campaign, VERSION};
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

    fn experiment(text: &str) -> Experiment {
        Experiment::new(ExperimentSpec::from_toml("parts", text).unwrap()).unwrap()
    }

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
        let (description, machine) = (String::new(), machine("x"));
        let campaign =
            Campaign { version: VERSION, experiment: "parts".into(), description, spec, machine, started_unix_s: 1 };
        folder.begin(&campaign).unwrap();
        runs.iter().for_each(|run| folder.append(run).unwrap());
        folder
    }

    /// Takes over the runs of a folder with `text` and `runs` into an empty one for [`TEXT`] on
    /// machine "x".
    fn taken(text: &str, runs: &[Run]) -> Result<Vec<Run>, LabError> {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        drop(folder(from.path(), text, runs));
        let (mut into, mut done) = (folder(to.path(), TEXT, &[]), vec![]);
        let number = take_over(&experiment(TEXT), &machine("x"), &mut into, &mut done, from.path())?;
        assert_eq!((number, &campaign::load(to.path()).unwrap().runs), (done.len(), &done));
        Ok(done)
    }

    #[test]
    fn runs_of_the_same_cells_come_with_their_records_once() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // More repetitions, in another order, of one workload.
        let text =
            TEXT.replacen("= 2", "= 5\nseed = 9", 1).replace("[[workloads]]\nname = \"b\"\nclient = \"tacit b\"\n", "");
        let failed = Run { failure: Some("no".into()), ..run("a", 1, 3.0) };
        let kept = Run { record: "records/c000-r00.jsonl".into(), ..run("a", 0, 1.0) };
        drop(folder(from.path(), &text, &[kept, failed, run("a", 2, 2.0)]));
        fs::write(from.path().join("records/c000-r00.jsonl"), "{}\n").unwrap();
        let own = run("a", 0, 0.5);
        let (mut into, mut done) = (folder(to.path(), TEXT, from_ref(&own)), vec![own.clone()]);
        let mut take =
            |into: &mut Folder| take_over(&experiment(TEXT), &machine("x"), into, &mut done, from.path()).unwrap();
        assert_eq!((take(&mut into), take(&mut into)), (2, 0));
        let there = campaign::load(to.path()).unwrap().runs;
        let with_record = Run { record: "records/c000-r01.jsonl".into(), ..run("a", 1, 1.0) };
        assert_eq!(there, [own, with_record, run("a", 2, 2.0)]);
        assert_eq!((&there, fs::read(to.path().join("records/c000-r01.jsonl")).unwrap()), (&done, b"{}\n".to_vec()));
        // All runs of the first workload exist, none of the second.
        assert_eq!(plan::remaining(&experiment(TEXT), &done).len(), 2);
    }

    #[test]
    fn other_cells_stay_where_they_are() {
        let runs = [run("a", 0, 1.0), run("b", 0, 2.0)];
        let other = TEXT.replace("tacit b", "tacit b --fast");
        assert_eq!(taken(&other, &runs).unwrap(), [run("a", 0, 1.0)]);
        // Changed estimates of a cell have no effect.
        let expected = TEXT.replace("tacit b\"", "tacit b\"\ntakes_s = 5.0");
        assert_eq!(taken(&expected, &runs).unwrap(), runs);
    }

    #[test]
    fn other_experiments_machines_and_places_are_refused() {
        let runs = [run("a", 0, 1.0)];
        for (other, why) in
            [("device = \"none-such\"", "`device`"), ("interval_s = 0.5", "`interval_s` is 0.5 there and 1.0 here")]
        {
            let error = taken(&format!("{other}\n{TEXT}"), &runs).unwrap_err().to_string();
            assert!(error.contains("cannot be taken over"), "{error}");
            assert!(error.contains(why), "{error}");
        }
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        drop(folder(from.path(), TEXT, &runs));
        let (mut into, mut done) = (folder(to.path(), TEXT, &[]), vec![]);
        let error = take_over(&experiment(TEXT), &machine("y"), &mut into, &mut done, from.path()).unwrap_err();
        assert!(error.to_string().contains("`cpu` of the machine is \"x\" there and \"y\" here"), "{error}");
        for outside in ["../secret", "/etc/passwd", "records/../../secret", "secret"] {
            let error = taken(TEXT, &[Run { record: outside.into(), ..run("a", 0, 1.0) }]).unwrap_err().to_string();
            assert!(error.contains("outside `records`"), "{error}");
        }
    }
}
