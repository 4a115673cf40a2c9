//! `tacit lab run` from the command line: small real campaigns that are interrupted, fail, and continue.
mod common;
#[path = "../../../crates/app/cli/tests/server/mod.rs"]
mod server;

use common::{bad, good, tacit_lab, text};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a command over links; false, with a note on standard error, where the machine does not allow links.
fn run_or_skip(test: &str, dir: &Path, args: &[&str]) -> bool {
    let output = tacit_lab(dir, args);
    let message = text(&output.stderr);
    if message.contains("is not possible here") {
        eprintln!("SKIPPED {test}: {message}");
        return false;
    }
    assert!(output.status.success(), "{message}");
    true
}

/// Writes `NAME.toml`: quick settings, then `body`.
fn experiment(dir: &Path, name: &str, body: &str) -> String {
    let file = format!("{name}.toml");
    let head = format!(
        "name = \"{name}\"\ncool_down_s = 0.0\nidle_s = 0.5\ninterval_s = 0.05\nmeasure_s = 0.5\nsources = []\n\
         device = \"generic-x86-server\"\n"
    );
    std::fs::write(dir.join(&file), head + body).unwrap();
    file
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The processor seconds of a party.
fn cpu_s(run: &Value, party: &str) -> f64 {
    number(&run["parties"][party]["user_s"]) + number(&run["parties"][party]["system_s"])
}

const PING_PONG: &str = r#"
[[workloads]]
name = "ping-pong"
client = "tacit lab workload ping-pong --server {server}:{port} --transport {transport} --keys {keys} --messages 50 --size 1000"
server = "tacit lab workload serve --listen {server}:{port} --clients 1 --transport {transport} --keys {keys}"
ready = "listening"
"#;

#[test]
fn a_campaign_over_loopback_needs_no_root() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let file = experiment(dir, "loop", &format!("repetitions = 2\nwarm_up = 1\nlinks = [\"none\"]\n{PING_PONG}"));
    let output_text = good(dir, &["run", &file, "-o", "a", "--json"]);
    let last: Value = serde_json::from_str(output_text.lines().last().unwrap()).unwrap();
    assert_eq!((&last["done"], &last["left"], output_text.lines().count()), (&2.into(), &0.into(), 3));
    let runs = lines(&dir.join("a/runs.jsonl"));
    assert_eq!(runs.len(), 2);
    for (i, run) in runs.iter().enumerate() {
        assert_eq!((run["repetition"].as_u64(), &run["failure"]), (Some(i as u64), &Value::Null));
        assert_eq!(run["cell"]["link"], "none");
        let results = &run["results"];
        assert_eq!(number(&results["sent_bytes"]), 50_000.0);
        assert!(
            number(&results["latency_s"]) > 0.0 && number(&results["latency.p50_s"]) < number(&results["latency_s"])
        );
        assert_eq!(number(&results["server.received_bytes"]), 50_000.0);
        for party in ["client", "server"] {
            assert_eq!(run["energy"][party]["provenance"], "modelled");
            assert!(number(&run["energy"][party]["gross_j"]) > 0.0 && cpu_s(run, party) > 0.0);
        }
        assert!(number(&run["parties"]["server"]["rss_bytes"]) > 1e5 && number(&results["peak_rss_bytes"]) > 1e5);
        let record =
            tacit_meter::record_file::read_record(&dir.join("a").join(run["record"].as_str().unwrap())).unwrap();
        assert!(record.incomplete.is_none() && record.samples.len() >= 2);
        assert_eq!(record.header.labels["workload"], "ping-pong");
        assert!(record.marks.iter().any(|m| m.phase == "run"));
    }
    assert_eq!(lines(&dir.join("a/idle.jsonl")).len(), 2);
    let loaded = tacit_experiments::campaign::load(&dir.join("a")).unwrap();
    assert!(loaded.campaign.spec.contains("seed = ") && loaded.campaign.machine.contains_key("kernel"));

    let lines_again = good(dir, &["run", &file, "-o", "a", "--json"]);
    assert_eq!(lines_again.lines().count(), 1);
    bad(
        dir,
        &["run", &file, "-o", "a", "--repetitions", "3"],
        &["another experiment", "`repetitions` is 2 there and 3 here"],
    );

    // In another folder the runs are taken over, and only the third is measured.
    let more_lines = good(dir, &["run", &file, "-o", "b", "--repetitions", "3", "--from", "a", "--json"]);
    assert_eq!(more_lines.lines().count(), 2, "{more_lines}");
    assert_eq!(lines(&dir.join("b/runs.jsonl"))[..2], runs[..]);
    bad(dir, &["run", &file, "-o", "c", "--from", "a", "--interval", "0.5"], &["cannot be taken over", "interval_s"]);
    bad(dir, &["compare", "a", "nothing"], &["holds no campaign"]);
}

#[test]
fn a_campaign_over_links_and_transports() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let body = format!(
        "repetitions = 1\nlinks = [{{ name = \"slow\", rate = \"20mbit\", rtt = \"10ms\" }}]\ntransports = [\"plain\", \"tls\", \
         \"wireguard\"]\n{PING_PONG}"
    );
    let file = experiment(dir, "links", &body);
    if !run_or_skip("a_campaign_over_links_and_transports", dir, &["run", &file, "-o", "l"]) {
        return;
    }
    let runs = lines(&dir.join("l/runs.jsonl"));
    let mut transports: Vec<&str> = runs.iter().map(|r| r["cell"]["transport"].as_str().unwrap()).collect();
    transports.sort_unstable();
    assert_eq!(transports, ["plain", "tls", "wireguard"]);
    let mut whole_ticks = 0;
    for run in &runs {
        let (link, results) = (&run["link"], &run["results"]);
        assert_eq!(number(&link["target_up_bps"]), 20e6);
        // A reader on a busy machine counts waiting bytes as just received.
        assert!(number(&link["rtt_s"]) >= 0.01 && number(&link["up_bps"]) < 60e6, "{link}");
        // 50 round trips of 10 ms at least.
        assert!(number(&results["latency_s"]) >= 0.5, "{results}");
        // Tunnelled bytes count where they leave the host, and only there.
        let (wire, payload) =
            (&results["client_wire_bytes"], number(&results["sent_bytes"]) + number(&results["received_bytes"]));
        assert!(number(wire) > payload && number(wire) < 1.7 * payload, "{results}");
        assert_eq!(run["cell"]["link"], "slow");
        // A tunnel's process is in one of the three.
        for party in ["client", "server"] {
            let ticks = cpu_s(run, party) * 100.0;
            assert!(ticks > 0.0);
            whole_ticks += usize::from((ticks - ticks.round()).abs() < 1e-6);
        }
    }
    // One time in ten thousand, a time is a whole number of ticks by chance.
    assert!(whole_ticks < 2 * runs.len(), "all processor times are whole ticks of 10 ms");
}

#[test]
fn an_interrupted_campaign_is_continued() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    // A run ends when it can take a word from the pipe, or when the file `free` exists.
    let waits = format!("cd {} && until [ -e free ] || rm word 2>/dev/null; do sleep 0.02; done", dir.display());
    let workload = format!("[[workloads]]\nname = \"slow\"\nclient = \"sh -c '{waits}'\"\n");
    let file = experiment(dir, "slow", &format!("repetitions = 3\nlinks = [\"none\"]\n{workload}"));
    for (signal, message) in [("-INT", "stopped with"), ("-KILL", "")] {
        let before = lines(&dir.join("s/runs.jsonl")).len();
        // A word for the first run of this session; the next run cannot end.
        std::fs::write(dir.join("word"), "").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacit-lab"));
        command.current_dir(dir).args(["lab", "run", &file, "-o", "s"]).stderr(Stdio::piped());
        let scratch = tempfile::tempdir().unwrap();
        command.env("TMPDIR", scratch.path());
        let child = command.spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while lines_so_far(&dir.join("s/runs.jsonl")) <= before && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
        assert_eq!(lines(&dir.join("s/runs.jsonl")).len(), before + 1, "the run in progress does not count");
        let entry_count = || std::fs::read_dir(scratch.path()).unwrap().count();
        assert!(soon(|| entry_count() == 0), "{signal}: the run's folder is left");
    }
    // Tells the surviving program of the killed run to end.
    std::fs::write(dir.join("free"), "").unwrap();
    good(dir, &["run", &file, "-o", "s"]);
    let mut repetitions: Vec<u64> =
        lines(&dir.join("s/runs.jsonl")).iter().map(|r| r["repetition"].as_u64().unwrap()).collect();
    repetitions.sort_unstable();
    assert_eq!(repetitions, [0, 1, 2], "each once");
}

fn soon(condition: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    condition()
}

#[test]
fn a_kill_leaves_neither_keys_nor_programs() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let body = "repetitions = 1\nlinks = [\"none\"]\n[[workloads]]\nname = \"endless\"\n\
        client = \"sh -c 'echo $$ > {campaign}/pid; test -e {keys}/client.key; sleep 1000'\"\n";
    let file = experiment(dir, "endless", body);
    std::fs::create_dir(dir.join("tmp")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacit-lab"));
    command
        .current_dir(dir)
        .args(["lab", "run", &file, "-o", "e"])
        .env("TMPDIR", dir.join("tmp"))
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let program = || std::fs::read_to_string(dir.join("e/pid")).unwrap_or_default().trim().to_owned();
    assert!(soon(|| !program().is_empty()));
    assert_eq!(std::fs::read_dir(dir.join("tmp")).unwrap().count(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(soon(|| std::fs::read_dir(dir.join("tmp")).unwrap().count() == 0), "the folder with the keys is left");
    let stat = format!("/proc/{}/stat", program());
    // A host whose first process reaps slowly still shows the program as a zombie.
    let has_ended = || std::fs::read_to_string(&stat).map_or(true, |s| s.contains(") Z "));
    assert!(soon(has_ended), "the program is left");
}

/// Reads as [`lines`] does, from a file that may still grow.
fn lines_so_far(path: &Path) -> usize {
    std::fs::read(path).unwrap_or_default().iter().filter(|b| **b == b'\n').count()
}

#[test]
fn failed_commands_are_reported_and_repeated() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let body = r#"
repetitions = 1
timeout_s = 6.0
links = ["none"]
[[workloads]]
name = "fine"
client = "sh -c 'echo \"{\\\"answer\\\": 42}\"'"
[[workloads]]
name = "broken"
client = "sh -c 'test -e {campaign}/fixed || (echo out of order >&2; exit 3)'"
[[workloads]]
name = "endless"
client = "sh -c 'test -e {campaign}/fixed || sleep 1000'"
[[workloads]]
name = "serverless"
client = "true"
server = "sh -c 'echo up; test -e {campaign}/fixed && sleep 1000; echo no model >&2; exit 7'"
ready = "ready"
"#;
    let file = experiment(dir, "fails", &body.replace("echo up;", "test -e {campaign}/fixed && echo ready;"));
    bad(dir, &["run", &file, "-o", "f"], &["3 runs failed"]);
    let runs = lines(&dir.join("f/runs.jsonl"));
    let run_of = |name: &str| runs.iter().find(|r| r["cell"]["workload"] == name).unwrap();
    assert_eq!(run_of("fine")["failure"], Value::Null);
    assert_eq!(number(&run_of("fine")["results"]["answer"]), 42.0);
    assert_eq!(run_of("broken")["failure"], "the client ended with exit status 3: out of order");
    assert_eq!(run_of("endless")["failure"], "the client did not end within 6 s");
    assert_eq!(run_of("serverless")["failure"], "the server ended with exit status 7: no model before it was ready");
    std::fs::write(dir.join("f/fixed"), "").unwrap();
    good(dir, &["run", &file, "-o", "f"]);
    let loaded = tacit_experiments::campaign::load(&dir.join("f")).unwrap();
    assert!(loaded.runs.len() == 4 && loaded.runs.iter().all(|r| r.failure.is_none()));
}

#[test]
fn private_inference_is_an_experiment() {
    server::ensure();
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let run = ["run", "pm24-inference", "--quick", "--repetitions", "1", "--links", "none", "-o", "i"];
    good(dir, &run);
    let runs = lines(&dir.join("i/runs.jsonl"));
    // The bounds are runs of the same network that are not private.
    let run_of =
        |name: &str| runs.iter().find(|run| run["cell"]["workload"] == name).unwrap_or_else(|| panic!("{runs:?}"));
    assert_eq!(runs.len(), 3);
    let private = run_of("inference");
    for bound in ["clear", "local"] {
        let server_s = cpu_s(run_of(bound), "client");
        assert!(server_s < cpu_s(private, "client"), "{bound}: {server_s} s");
    }
    let results = &private["results"];
    for phase in ["setup", "offline", "online"] {
        assert!(number(&results[format!("phases.{phase}.wall_s")]) > 0.0, "{results}");
    }
    assert!(number(&results["latency_s"]) > number(&results["phases.offline.wall_s"]));
    // A thread that has ended by now did the server's work.
    let phases = ["setup", "offline", "online"].map(|p| number(&results[format!("phases.{p}.server.cpu_s")]));
    let (server_s, phases_s) = (cpu_s(private, "server"), phases.iter().sum::<f64>());
    assert!(server_s > 0.9 * phases_s && phases_s > 0.0, "{server_s} s measured, {phases_s} s told by the server");
    good(dir, &run);
    let other_model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/digits.onnx");
    bad(dir, &[&run[..], &["--model", other_model]].concat(), &["another model or input"]);
}

/// The study with the approaches that differ in this test.
const STUDY: [&str; 7] =
    ["run", "pm24-study", "--quick", "--approaches", "cheetah,sci-he,dealt,clear,local", "-o", "s"];

fn of_study<'a>(runs: &'a [Value], link: &str, approach: &str) -> &'a Value {
    let workload = format!("digits+{approach}");
    let matching_run = runs.iter().find(|r| r["cell"]["workload"] == workload.as_str() && r["cell"]["link"] == link);
    matching_run.unwrap_or_else(|| panic!("{workload} over {link}: {runs:?}"))
}

#[test]
fn the_study_predicts_long_cells() {
    server::ensure();
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    // Less than `cheetah` and `sci-he` take at 3.89 Mbit/s.
    let args_left: Vec<&str> =
        STUDY.iter().copied().chain(["--at-most", "1.1s", "--links", "none,pm24-3.89"]).collect();
    if !run_or_skip("the_study_runs_its_cells", dir, &args_left) {
        return;
    }
    let runs = lines(&dir.join("s/runs.jsonl"));
    let study: Value = serde_json::from_slice(&std::fs::read(dir.join("s/study.json")).unwrap()).unwrap();
    let cells = study["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 10);
    for approach in ["cheetah", "sci-he", "dealt", "clear", "local"] {
        let run = of_study(&runs, "none", approach);
        assert!(run["failure"].is_null() && number(&run["results"]["latency_s"]) > 0.0, "{run}");
    }
    let dealt = of_study(&runs, "none", "dealt");
    assert!(cpu_s(dealt, "dealer") > 0.0 && number(&dealt["energy"]["dealer"]["gross_j"]) > 0.0, "{dealt}");
    let cheetah = |link: &str| cells.iter().find(|c| c["approach"] == "cheetah" && c["link"] == link).unwrap();
    assert_eq!(number(&cheetah("none")["repetitions"]), 1.0);
    // The setup alone moves 0.9 MB.
    assert_eq!(number(&cheetah("pm24-3.89")["repetitions"]), 0.0, "{cells:?}");
    assert!(number(&cheetah("pm24-3.89")["phases"]["setup"]["wall_s"]) > 0.5);
    assert!(runs.iter().all(|r| r["cell"]["workload"] != "digits+cheetah" || r["cell"]["link"] == "none"));
    assert_eq!(study["boards"].as_array().unwrap().len(), 3 * cells.len());
    // A finished study does not run again, and the folder refuses another study.
    good(dir, &args_left);
    assert_eq!(lines(&dir.join("s/runs.jsonl")).len(), runs.len());
    bad(
        dir,
        &["run", "pm24-study", "--quick", "--approaches", "cheetah", "-o", "s"],
        &["other networks or approaches"],
    );
    // Every cell of this smaller study is in the finished one.
    let part = ["run", "pm24-study", "--quick", "--approaches", "clear,local", "--links", "none", "-o", "part"];
    let output_text = good(dir, &[&part[..], &["--from", "s", "--json"]].concat());
    assert_eq!(output_text.lines().count(), 1, "{output_text}");
    assert_eq!(lines(&dir.join("part/runs.jsonl")).len(), 2);
    let model = dir.join("part/inputs/digits.npy");
    std::fs::write(&model, "another").unwrap();
    bad(dir, &[&part[..], &["--from", "s"]].concat(), &["another network or input"]);
}

#[test]
fn the_study_paces_the_sender() {
    server::ensure();
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let args_of_cell = ["run", "pm24-study", "--quick", "--approaches", "cheetah", "--links", "pm24-95.6", "-o", "p"];
    let planned = |extra: &[&str]| good(dir, &[&args_of_cell[..7], &["--dry-run"], extra].concat());
    assert!(planned(&[]).contains("4mbit") && !planned(&["--no-pacing"]).contains("4mbit"));
    if !run_or_skip("the_study_paces_the_sender", dir, &args_of_cell) {
        return;
    }
    let runs = lines(&dir.join("p/pacing/runs.jsonl"));
    let mut paces: Vec<&str> = runs.iter().map(|r| r["cell"]["pace"].as_str().unwrap()).collect();
    paces.sort_unstable();
    assert_eq!(paces, ["20mbit", "4mbit", "none"]);
    let took = |pace: &str| {
        number(&runs.iter().find(|r| r["cell"]["pace"] == pace).unwrap()["results"]["phases.setup.wall_s"])
    };
    // The bytes of one way over the rate, without the burst, on any machine.
    assert!(took("4mbit") > 0.4, "{}", took("4mbit"));
}

#[test]
fn built_in_experiments_are_listed_shown_and_planned() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let list = good(dir, &["run", "--list"]);
    for name in ["pm24-bandwidth", "pm24-inference", "pm24-timeseries", "vpn24-transport", "idle", "pacing"] {
        assert!(list.contains(name) && list.contains("pm24-study"), "{list}");
        let spec_text = good(dir, &["run", name, "--show"]);
        std::fs::write(dir.join("shown.toml"), &spec_text).unwrap();
        assert_eq!(good(dir, &["run", "shown.toml", "--show"]), spec_text);
    }
    let plan = good(dir, &["run", "pm24-bandwidth", "--links", "lan,lte", "--repetitions", "2", "--dry-run"]);
    assert!(plan.contains("lan, plain, upload") && plan.contains("lte") && plan.contains("18 runs"), "{plan}");
    assert!(!dir.join("inputs").exists());
    let study = ["run", "pm24-study", "--nets", "digits", "--approaches", "cheetah,local", "--dry-run"];
    let plan = good(dir, &study);
    for text in ["pm24-941, plain, digits+cheetah", "wan-40ms, plain, digits+local", "4mbit", "about"] {
        assert!(plan.contains(text), "{text}: {plan}");
    }
    // The error for an unknown name lists all names.
    let listed: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(listed.len() >= 8, "{list}");
    bad(dir, &["run", "pm24", "--dry-run"], &listed);
    bad(dir, &["run", "pm24-study", "--approaches", "gazelle", "--dry-run"], &["sci-he-12"]);
}

#[test]
fn rejects_invalid_experiments_before_any_run() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    for (line, message) in [
        ("repeat = 3", "unknown field `repeat`"),
        ("repetitions = 0", "repetitions: 0 must be a number from 1"),
        ("transports = [\"wireguard\"]", "needs a link"),
    ] {
        let file = experiment(dir, "wrong", &format!("{line}\nlinks = [\"none\"]\n{PING_PONG}"));
        bad(dir, &["run", &file, "-o", "w"], &[message]);
    }
    for (args, message) in [
        (&["pm24"][..], "built in: pm24-bandwidth"),
        (&["none.toml"], "none.toml"),
        (&["idle", "--links", "moon"], "no link preset `moon`"),
        (&["idle", "--model", "m.onnx"], "runs no model"),
        (&["pm24-bandwidth", "--workloads", "x"], "it has upload"),
        (&["idle", "--device", "abacus"], "abacus"),
    ] {
        bad(dir, &[&["run"][..], args, &["-o", "w"]].concat(), &[message]);
    }
    assert!(!dir.join("w/campaign.json").exists());
}
