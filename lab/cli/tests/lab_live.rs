//! `tacit lab run ss26-live` from the command line: real servers and clients on a tiny network.
mod common;
#[path = "../../../crates/app/cli/tests/server/mod.rs"]
mod server;

use common::text;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

fn args<'a>(extra: &[&'a str]) -> Vec<&'a str> {
    let small = "run ss26-live --nets tiny-mlp --requests 6 --workloads light --lead 0.2 --json";
    small.split(' ').chain(extra.iter().copied()).collect()
}

fn good(dir: &Path, extra: &[&str]) -> Vec<Value> {
    server::ensure();
    common::good(dir, &args(extra)).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn bad(dir: &Path, extra: &[&str], words: &[&str]) {
    server::ensure();
    common::bad(dir, &args(extra), words);
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The times at which the requests of a timeline arrived, in their order.
fn read_arrivals(run: &Value) -> Vec<f64> {
    let mut inputs: Vec<&Value> = run["inputs"].as_array().unwrap().iter().collect();
    inputs.sort_by_key(|input| input["request"].as_u64());
    inputs.into_iter().map(|input| number(&input["arrived"])).collect()
}

/// Checks a cell; returns its planned arrivals.
fn check(dir: &Path, i: usize, run: &Value) -> Value {
    let results = &run["results"];
    assert_eq!(run["failure"], Value::Null);
    assert_eq!((number(&results["requests"]), number(&results["answered"])), (6.0, 6.0));
    assert_eq!(number(&results["net.tiny-mlp.answered"]), 6.0, "the server's own count");
    let is_announced = run["cell"]["notices"] == "25 %";
    assert_eq!(number(&results["announced"]) > 0.0, is_announced, "{run}");
    assert!(number(&results["delay_s"]) > number(&results["waiting_s"]));
    assert!(number(&results["makespan_s"]) > 0.0);
    assert!(number(&run["parties"]["server"]["user_s"]) >= 0.0);
    assert!(number(&results["slots.delay_s"]) > 0.0);
    let cell = read(&dir.join(format!("cells/c{i:03}.json")));
    assert_eq!(cell["cell"], run["cell"]);
    assert!(cell["server"].as_array().unwrap().iter().all(|input| input["pre"].is_object() && input["on"].is_object()));
    let planned: Vec<f64> = cell["arrivals"].as_array().unwrap().iter().map(|a| number(&a["at_s"])).collect();
    let timelines = read(&dir.join(format!("timelines/c{i:03}.json")));
    let [live, simulated, slots] = &timelines.as_array().unwrap()[..] else { panic!("{timelines}") };
    let jobs = live["jobs"].as_array().unwrap().len();
    assert_eq!((jobs, simulated["cores"].as_u64(), slots["cores"].as_u64()), (12, Some(2), Some(8)));
    for simulated in [simulated, slots] {
        let arrival_times = read_arrivals(simulated);
        assert!(arrival_times.iter().zip(&planned).all(|(a, b)| (a - b).abs() < 1e-6), "{arrival_times:?} {planned:?}");
        assert_eq!(arrival_times.len(), 6);
        assert!(simulated["policy"].as_str().unwrap().contains("simulated"));
    }
    let asked_times = cell["clients"].as_array().unwrap().iter().map(|client| number(&client["asked_s"]));
    assert!(asked_times.zip(&planned).all(|(asked_s, planned)| asked_s >= *planned));
    cell["arrivals"].clone()
}

#[test]
fn policies_answer_the_same_requests_live_and_simulated() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let lines = good(dir, &["--policies", "sequential,fcfs", "-o", "a"]);
    let (summary, runs) = lines.split_last().unwrap();
    assert_eq!(runs.len(), 4);
    for (key, count) in [("done", 4), ("left", 0), ("failed", 0)] {
        assert_eq!(summary[key], count);
    }
    let arrivals: Vec<Value> = runs.iter().enumerate().map(|(i, run)| check(&dir.join("a"), i, run)).collect();
    assert_eq!(arrivals[0], arrivals[1], "the same for every policy");
    assert_eq!(arrivals[2], arrivals[3]);
    assert_ne!(arrivals[0], arrivals[2], "some are announced");
    let cells = summary["cells"].as_array().unwrap();
    assert!((number(&cells[0]["speed_up"]) - 1.0).abs() < 1e-9);
    assert!(cells[1]["delta_d_s"].is_null());
    assert!(cells[3]["delta_d_s"].is_number());
    assert!(cells[1]["speed_up"].is_number());

    // Finished cells do not run again.
    let lines_again = good(dir, &["--policies", "sequential,fcfs", "-o", "a"]);
    assert_eq!((lines_again.len(), &lines_again[0]["cells"]), (1, &summary["cells"]));
    bad(dir, &["--policies", "sequential", "-o", "a"], &["another experiment", "`policies` is"]);
    // Only the missing cell runs.
    let lines = std::fs::read_to_string(dir.join("a/runs.jsonl")).unwrap();
    let kept_lines: String =
        lines.lines().enumerate().filter(|(i, _)| *i != 2).map(|(_, line)| format!("{line}\n")).collect();
    std::fs::write(dir.join("a/runs.jsonl"), kept_lines).unwrap();
    let lines_again = good(dir, &["--policies", "sequential,fcfs", "-o", "a"]);
    assert_eq!((lines_again.len(), &lines_again[0]["cell"], &lines_again[1]["done"]), (2, &runs[2]["cell"], &4.into()));
    assert_eq!(lines_again[1]["cells"][0], summary["cells"][0]);
    let loaded = tacit_experiments::campaign::load(&dir.join("a")).unwrap();
    assert_eq!((loaded.campaign.experiment.as_str(), loaded.runs.len()), ("ss26-live", 4));
}

#[test]
fn a_dealer_deals_to_server_and_clients() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    for backend in ["dealt", "fss"] {
        let lines = good(dir, &["--policies", "fcfs", "--backend", backend, "-o", backend]);
        let (summary, runs) = lines.split_last().unwrap();
        assert_eq!((runs.len(), &summary["left"], &summary["failed"]), (2, &0.into(), &0.into()));
        for (i, run) in runs.iter().enumerate() {
            check(&dir.join(backend), i, run);
            assert!(number(&run["parties"]["dealer"]["user_s"]) >= 0.0, "{run}");
            assert!(number(&run["results"]["dealer.core_use"]) >= 0.0, "{run}");
        }
        let header = read(&dir.join(backend).join("campaign.json"));
        assert!(header["spec"].as_str().unwrap().contains(&format!("backend = \"{backend}\"")), "{header}");
    }
}

#[test]
fn an_interrupt_keeps_finished_cells_only() {
    server::ensure();
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let tmp = dir.join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    // Each cell takes a quarter of an hour.
    let extra = ["--rate", "0.005", "--policies", "fcfs,adaptive", "--notices", "0", "-o", "a"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacit-lab"));
    command.current_dir(dir).env("TMPDIR", &tmp).arg("lab").args(args(&extra));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut messages = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("requests a cell") {
        line.clear();
        assert!(messages.read_line(&mut line).unwrap() > 0);
    }
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    let summary: Value = serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap();
    assert_eq!((&summary["stopped"], &summary["done"], &summary["left"]), (&true.into(), &0.into(), &2.into()));
    assert_eq!(std::fs::read_dir(&tmp).unwrap().count(), 0, "keys are gone");
    assert!(dir.join("a/profile.json").is_file());
    assert!(dir.join("a/profile/server.sqlite").is_file());
    let loaded = tacit_experiments::campaign::load(&dir.join("a")).unwrap();
    assert!(loaded.runs.is_empty(), "{}", loaded.campaign.spec);
    assert!(loaded.campaign.spec.contains("rate = 0.005"), "{}", loaded.campaign.spec);
}

#[test]
fn rejects_invalid_options() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    for (extra, message) in [
        (["--policies", "lifo"], "lifo"),
        (["--notices", "120"], "0 to 100 percent"),
        (["--backend", "abacus"], "abacus"),
        (["--model", "photo.png"], "name digits"),
        (["--model", "nothing.onnx"], "nothing.onnx"),
    ] {
        bad(dir, &[&extra[..], &["-o", "a"]].concat(), &[message]);
        assert!(!dir.join("a/campaign.json").exists(), "{extra:?}");
    }
}
