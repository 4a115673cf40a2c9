//! `tacit lab link` from the command line: output, signals that it passes on, and clean-up after it ends.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn link(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacit-lab"));
    command.args(["lab", "link"]).args(args);
    command
}

/// Runs the command; returns `None`, with a note on standard error, where the machine does not allow links.
fn output(test: &str, args: &[&str]) -> Option<Output> {
    let output = link(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("is not possible here") {
        eprintln!("SKIPPED {test}: {errors}");
        return None;
    }
    Some(output)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_exit_status_and_the_addresses_are_passed_on() {
    let script = "echo $TACIT_LINK_CLIENT $TACIT_LINK_SERVER; exit 7";
    let args = ["--rtt", "1ms", "--no-measure", "--", "sh", "-c", script];
    let Some(output) = output("the_exit_status", &args) else { return };
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "198.18.0.1 198.18.0.2\n");
}

#[test]
fn the_measurement_is_one_line_of_json_when_asked_for() {
    let args = ["--up", "8mbit", "--down", "30mbit", "--rtt", "5ms", "--effort", "2s", "--json"];
    let Some(output) = output("the_measurement", &args) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["link"], "up 8mbit, down 30mbit, rtt 5ms");
    assert_eq!((line["target_up_bps"].as_f64(), line["target_down_bps"].as_f64()), (Some(8e6), Some(30e6)));
    assert_eq!(line["congestion_control"], "cubic");
    // Bounds that hold on a busy machine; the crate `tacit-experiments` tests accuracy.
    let achieved = line["up_bps"].as_f64().unwrap();
    assert!((1e6..20e6).contains(&achieved), "{line}");
    assert!(line["rtt_s"].as_f64().unwrap() >= 0.005, "{line}");
    assert!(line["loaded_rtt_s"].as_f64().unwrap() >= 0.005, "{line}");
}

#[test]
fn a_server_is_started_on_its_side_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server");
    let server = format!("ip -brief address > {0}.new; mv {0}.new {0}; exec sleep 1000", file.display());
    let wait = format!("until [ -e {0} ]; do sleep 0.02; done; cat {0}", file.display());
    let start = Instant::now();
    let args = ["--rtt", "1ms", "--no-measure", "--server", &server, "--", "sh", "-c", &wait];
    let Some(output) = output("a_server_is_started", &args) else { return };
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("198.18.0.2/30"), "{output:?}");
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_server_that_ends_early_is_an_error() {
    let args = ["--rtt", "1ms", "--no-measure", "--server", "exit 3", "--server-port", "9", "--", "true"];
    let Some(output) = output("a_server_that_ends_early", &args) else { return };
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("exit status: 3"), "{errors}");
    assert!(errors.contains("port 9"), "{errors}");
}

#[test]
fn the_presets_are_listed_with_their_sources() {
    let output = link(&["--list"]).output().unwrap();
    let list = text(&output.stdout);
    for expected in
        ["lan ", "wifi ", "lte ", "3g ", "nb-iot ", "cheetah-wan ", "352mbit, rtt 40ms", "[PM24]", "[Chee22]"]
    {
        assert!(list.contains(expected), "{expected:?} is not in\n{list}");
    }
}

#[test]
fn rejects_invalid_options() {
    for (args, expected) in [
        (&["--rate", "0mbit", "--", "true"][..], "above 0"),
        (&["--rate", "fast", "--", "true"], "3.89mbit"),
        (&["--preset", "moon", "--", "true"], "known: lan"),
        (&["--rtt", "40", "--", "true"], "unit is missing"),
        (&["--loss", "2", "--", "true"], "fraction"),
        (&["--effort", "long", "--", "true"], "effort"),
        (&["--no-measure"], "nothing to do"),
    ] {
        let output = link(args).output().unwrap();
        let errors = text(&output.stderr);
        assert!(!output.status.success(), "{args:?}: {errors}");
        assert!(errors.contains(expected), "{args:?}: {errors}");
    }
    let args = ["--rtt", "1ms", "--no-measure", "--", "/no/such/program"];
    let Some(output) = output("nonsense_is_refused", &args) else { return };
    assert!(text(&output.stderr).contains("/no/such/program"), "{output:?}");
}

/// `/proc/PID` of every process with `marker` among its arguments, but for `tacit` itself.
fn processes(marker: &str) -> Vec<PathBuf> {
    let folders = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let marked = |path: &PathBuf| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let arguments: Vec<_> = line.split(|&byte| byte == 0).collect();
        !arguments[0].ends_with(b"tacit-lab") && arguments.contains(&marker.as_bytes())
    };
    folders.filter(marked).collect()
}

fn namespace(process: &Path) -> Option<PathBuf> {
    std::fs::read_link(process.join("ns/net")).ok()
}

/// Every network namespace that any thread is in. (The kernel gives a namespace the number of one that is
/// gone, so a number may come back for a while.)
fn namespaces() -> BTreeSet<PathBuf> {
    let list = |path: &Path| {
        std::fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>()
    };
    list(Path::new("/proc"))
        .iter()
        .flat_map(|process| list(&process.join("task")))
        .filter_map(|task| namespace(&task))
        .collect()
}

/// Lists the host's interfaces with names of the lab; other processes may add theirs at the same time.
fn interfaces() -> BTreeSet<std::ffi::OsString> {
    let names = std::fs::read_dir("/sys/class/net").unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| ["link0", "wg-tacit", "tacit-probe"].iter().any(|own_name| name == *own_name)).collect()
}

/// Returns a number of seconds to sleep that marks the processes of this test run alone.
fn marker(number: u32) -> String {
    format!("{number}.{:010}", std::process::id())
}

fn until(condition: &str, mut is_done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_done() {
        assert!(Instant::now() < end, "waited in vain until {condition}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a sleeper under `tacit lab link`, with a grandchild in a session of its own that ignores polite
/// signals; returns the namespaces of both sides as well.
fn sleeper(test: &str, marker: &str) -> Option<(Child, BTreeSet<PathBuf>)> {
    // Prints the note where the machine does not allow links.
    output(test, &["--rtt", "1ms", "--no-measure", "--", "true"])?;
    let script = format!("trap '' TERM INT HUP; setsid sleep {marker} & sleep {marker} & wait; sleep {marker}");
    let args = ["--rate", "10mbit", "--rtt", "4ms", "--no-measure", "--server", &script, "--", "sh", "-c", &script];
    let child = link(&args).stderr(Stdio::null()).spawn().unwrap();
    until("all four sleepers run", || processes(marker).len() == 4);
    Some((child, processes(marker).iter().filter_map(|process| namespace(process)).collect()))
}

fn nothing_is_left(marker: &str, before: &BTreeSet<std::ffi::OsString>, namespaces_of_link: &BTreeSet<PathBuf>) {
    until("no sleeper is left", || processes(marker).is_empty());
    until("no namespace is left", || namespaces().is_disjoint(namespaces_of_link));
    assert_eq!(&interfaces(), before);
}

#[test]
fn nothing_is_left_after_a_kill() {
    let (marker, before) = (&marker(1000), interfaces());
    let Some((mut child, namespaces_of_link)) = sleeper("nothing_is_left_after_a_kill", marker) else { return };
    assert_eq!(namespaces_of_link.len(), 2, "one namespace for each side");
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(marker, &before, &namespaces_of_link);
}

#[test]
fn an_interrupt_ends_everything_within_seconds() {
    let (marker, before) = (&marker(2000), interfaces());
    let Some((mut child, namespaces_of_link)) = sleeper("an_interrupt_ends_everything", marker) else { return };
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    nothing_is_left(marker, &before, &namespaces_of_link);
}
