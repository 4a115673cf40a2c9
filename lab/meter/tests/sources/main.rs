//! Sources by their public names, on trees in memory, recorded files and fake programs.
mod exercised;
mod external;
mod recorded;
mod sysfs;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tacit_meter::MeterError;
use tacit_meter::source::{Detected, MemoryTree, Outcome, Roots, Source, Usage, Value, detect};

/// The use after `seconds`.
fn usage_at(seconds: f64) -> Usage {
    Usage { elapsed: Duration::from_secs_f64(seconds), ..Usage::default() }
}

fn tree<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> (Arc<MemoryTree>, Roots) {
    let tree = Arc::new(MemoryTree::new(files));
    (tree.clone(), Roots::files(tree))
}

fn tree_of(files: &[(String, String)]) -> (Arc<MemoryTree>, Roots) {
    tree(files.iter().map(|(p, t)| (p.as_str(), t.as_str())))
}

/// The files of a hwmon chip.
fn hwmon<const N: usize>(number: u32, name: &str, files: [(&str, &str); N]) -> Vec<(String, String)> {
    let folder = format!("/sys/class/hwmon/hwmon{number}");
    let files = [("name", name)].into_iter().chain(files);
    files.map(|(file, text)| (format!("{folder}/{file}"), text.into())).collect()
}

fn find_source(roots: &Roots, name: &str) -> Detected {
    let detected = detect(roots);
    let names: Vec<String> = detected.iter().map(|d| d.name.clone()).collect();
    detected.into_iter().find(|d| d.name == name).unwrap_or_else(|| panic!("{name} is not among {names:?}"))
}

fn usable(roots: &Roots, name: &str) -> Box<dyn Source> {
    find_source(roots, name).into_source().unwrap()
}

fn refusal(roots: &Roots, name: &str) -> (String, String) {
    match find_source(roots, name).outcome {
        Outcome::Usable(_) => panic!("{name} should not be usable"),
        Outcome::Unusable { reason, remedy } => (reason, remedy),
    }
}

/// Names of the counted rails.
fn counted_rails(source: &dyn Source) -> Vec<&str> {
    source.info().rails.iter().filter(|r| r.counted).map(|r| r.name.as_str()).collect()
}

/// Sum over the counted rails, all of which must have a value.
fn total(source: &mut dyn Source, usage: &Usage) -> f64 {
    let values = source.read(usage).unwrap();
    let rails = source.info().rails.iter().zip(values).filter(|(rail, _)| rail.counted);
    rails
        .map(|(rail, value)| match value {
            Value::Watts(x) | Value::Joules(x) => x,
            Value::Missing => panic!("{} is missing", rail.name),
        })
        .sum()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

fn message<T>(result: Result<T, MeterError>) -> String {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => error.to_string(),
    }
}

/// A file of the shared data; prints a note if it is missing.
fn shared_file(path: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside = [root.join("../shared/data/power"), PathBuf::from("/work/shared/data/power")];
    let file = beside.into_iter().map(|folder| folder.join(path)).find(|file| file.exists());
    if file.is_none() {
        eprintln!("skipped: ../shared/data/power/{path} is not there");
    }
    file
}
