//! `tacit lab measure` and `tacit lab mark` as a user runs them.
mod common;
#[path = "../../../crates/app/cli/tests/server/mod.rs"]
mod server;

use common::{bad, good};
use std::path::Path;
use std::process::Command;

const TACIT: &str = env!("CARGO_BIN_EXE_tacit-lab");
const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");

#[test]
fn marked_script_is_measured_with_modelled_energy() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "{TACIT} lab mark begin work && i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done; {TACIT} lab mark end work items=3"
    );
    let model = ["measure", "--source", "model:raspberry-pi-3b", "--idle", "0.5", "--interval", "0.02"];
    let other_args = ["-o", "r.jsonl", "--csv", "r.csv", "--json", "--", "sh", "-c", &script];
    let text = good(dir.path(), &[&model[..], &other_args].concat());
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    let number = |path: &str| result.pointer(path).and_then(|v| v.as_f64()).unwrap_or_else(|| panic!("{path}: {text}"));
    assert!(number("/user_s") + number("/system_s") > 0.05, "{text}");
    assert!(number("/duration_s") > 0.05);
    assert!(number("/peak_rss_bytes") > 100_000.0);
    assert_eq!(result["exit_code"], 0);
    let (name, energy) = result["energy"].as_object().unwrap().iter().next().unwrap();
    assert!(name.starts_with("model:raspberry-pi-3b/"), "{text}");
    assert_eq!(energy["provenance"], "modelled");
    let part = |key: &str| energy[key].as_f64().unwrap();
    assert!((part("gross_j") - part("idle_j") - part("net_j")).abs() < 1e-9);
    assert!(part("gross_j") > 0.0);
    assert!(part("net_sd_j") > 0.0);
    let phase = &result["phases"][0];
    assert_eq!(
        (&phase["phase"], &phase["count"], &phase["figures"]["items"]),
        (&"work".into(), &1.into(), &3.0.into())
    );
    assert!(phase["gross_j"].as_f64().unwrap() > 0.0);
    assert!(phase["gross_j"].as_f64().unwrap() < part("gross_j"));
    let csv = std::fs::read_to_string(dir.path().join("r.csv")).unwrap();
    assert!(csv.starts_with("t_s,power.model:raspberry-pi-3b/"));
    assert!(csv.lines().next().unwrap().ends_with("phase.program"));
    assert!(csv.lines().any(|l| l.ends_with(",work")));
    let record = std::fs::read_to_string(dir.path().join("r.jsonl")).unwrap();
    assert!(record.lines().last().unwrap().contains("\"type\":\"summary\""));
}

#[test]
fn inference_is_cut_into_its_phases() {
    server::ensure();
    let dir = tempfile::tempdir().unwrap();
    let (onnx, samples) = (format!("{MODELS}/digits.onnx"), format!("{MODELS}/digits_samples.npy"));
    let tacit = Path::new(TACIT).with_file_name("tacit");
    let import = ["model", "import", &onnx, "--calibrate", &samples, "-o", "digits.tacit"];
    assert!(Command::new(&tacit).current_dir(dir.path()).args(import).status().unwrap().success());
    let tacit = tacit.to_str().unwrap();
    let text = good(dir.path(), &["measure", "--", tacit, "bench", "--model", "digits.tacit"]);
    for phase in ["client setup", "client offline", "client online", "server setup", "server offline", "server online"]
    {
        let line = text
            .lines()
            .find(|l| l.starts_with(&format!("phase     {phase}:")))
            .unwrap_or_else(|| panic!("{phase}: {text}"));
        assert!(line.contains("sent_bytes"), "{line}");
        assert!(line.contains("rounds"), "{line}");
    }
    assert!(text.contains("CPU       user"));
    assert!(text.contains("memory    peak"));
    assert!(text.contains("no power source") || text.contains("J gross"), "{text}");
}

#[test]
fn invalid_calls_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (args, message) in [
        (&["measure", "--interval", "0", "--", "true"][..], "--interval must be 0.001"),
        (&["measure", "--idle", "nan", "--", "true"], "--idle must be"),
        (&["measure", "--source", "nosuch", "--", "true"], "nosuch"),
        (&["measure", "-o", "missing/r.jsonl", "--", "true"], "missing/r.jsonl"),
        (&["measure", "--", "/nonexistent"], "/nonexistent"),
        (&["measure", "--", "sh", "-c", "exit 7"], "exit status: 7"),
        (&["mark", "begin", "x", "a=1"], "at the end of a phase"),
    ] {
        bad(dir, args, &[message]);
    }
    good(dir, &["mark", "begin", "nobody-measures"]);
}
