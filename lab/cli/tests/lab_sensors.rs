//! `tacit lab sensors` and `tacit lab calibrate` as commands.
use std::process::{Command, Output};

fn tacit(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tacit-lab")).arg("lab").args(args).output().expect("tacit runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_source_is_usable_or_has_reason_and_remedy() {
    let output = tacit(&["sensors", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let entries: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(entries.iter().any(|e| e["name"] == "rapl"), "RAPL is always looked for");
    for entry in &entries {
        if entry["usable"] == true {
            assert!(entry["info"]["rails"].as_array().is_some_and(|rails| !rails.is_empty()), "{entry}");
        } else {
            assert!(entry["reason"].is_string(), "{entry}");
            assert!(entry["remedy"].is_string(), "{entry}");
        }
    }
    let plain = tacit(&["sensors"]);
    assert!(plain.status.success());
    assert!(text(&plain.stdout).contains("rapl"));
}

/// The model follows processor time. If other programs keep all cores busy, the model cannot rise,
/// and the self-test reports it.
#[test]
fn the_model_is_tested_under_load() {
    let output = tacit(&["sensors", "--source", "model:jetson-nano/5w", "--self-test", "--readings", "3"]);
    let stdout = text(&output.stdout);
    if output.status.success() {
        assert!(stdout.contains("self-test passed"), "{stdout}");
        assert!(stdout.contains("base + cpu + network"), "{stdout}");
        assert!(stdout.contains("modelled"), "{stdout}");
    } else {
        assert!(stdout.contains("does not rise under load"), "{stdout}");
        eprintln!("the machine is too busy for the self-test to pass: {stdout}");
    }
}

#[test]
fn a_constant_meter_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("meter.csv");
    std::fs::write(&path, "time_s,watts\n0,3\n1,3\n").expect("a file");
    let source = format!("external:{}", path.display());
    let output = tacit(&["sensors", "--source", &source, "--self-test", "--readings", "3"]);
    assert!(!output.status.success());
    assert!(text(&output.stdout).contains("not usable"), "{}", text(&output.stdout));
    let profile = folder.path().join("board.toml");
    let profile = profile.to_str().expect("a path");
    let output = tacit(&["calibrate", "--name", "board", "-o", profile, "--source", &source]);
    assert!(!output.status.success());
    assert!(!std::path::Path::new(profile).exists());
}

#[test]
fn invalid_calls_are_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("board.toml");
    let path = path.to_str().expect("a path");
    let fails = |args: &[&str], message: &str| {
        let output = tacit(args);
        let output_text = text(&output.stdout) + &text(&output.stderr);
        assert!(!output.status.success(), "{args:?}: {output_text}");
        assert!(output_text.contains(message), "{args:?}: {output_text}");
    };
    fails(&["sensors", "--source", "toaster"], "no such source");
    fails(&["sensors", "--source", "model:toaster"], "raspberry-pi-4b");
    fails(&["calibrate", "--name", "board", "-o", path, "--source", "model:raspberry-pi-4b"], "not measured");
    fails(&["calibrate", "--name", "board", "-o", path, "--source", "toaster"], "no such source");
    std::fs::write(path, "").expect("a file");
    fails(&["calibrate", "--name", "board", "-o", path], "exists already");
}
