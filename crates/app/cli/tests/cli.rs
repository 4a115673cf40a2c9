//! The binary from the command line: keys, import, serve, prepare, infer and bench, and the
//! messages for wrong calls.
mod common;
mod server;

use common::{MODELS, good, tacit};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Runs a command that must fail; returns its standard error.
fn run_failing(dir: &Path, args: &[&str]) -> String {
    let output = tacit(dir, args);
    assert!(!output.status.success(), "tacit {args:?} should fail");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!error.contains("panicked"), "{error}");
    error
}

/// A running `tacit serve` of the digits model; killed with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(dir: &Path) -> Self {
        server::ensure();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacit"));
        command.current_dir(dir).args(["serve", "digits.tacit", "--listen", "127.0.0.1:0", "--material", "srv"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").unwrap().split(' ').next().unwrap().to_owned();
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Fills a folder with keys, the imported digits model and two samples.
fn make_fixture(dir: &Path) {
    let onnx = format!("{MODELS}/digits.onnx");
    let samples = format!("{MODELS}/digits_samples.npy");
    let report = good(dir, &["model", "import", &onnx, "--calibrate", &samples, "-o", "digits.tacit"]);
    assert!(report.contains("agreement"), "{report}");
    good(dir, &["keys", "init", "keys"]);
    let array = tacit_graph::npy::read(&std::fs::read(&samples).unwrap()).unwrap();
    let two = tacit_graph::npy::write(&[2, 1, 8, 8], &array.data[..128]);
    std::fs::write(dir.join("two.npy"), two).unwrap();
}

/// Returns the classes of the two samples by the lowered model's reference.
fn reference(dir: &Path) -> Vec<usize> {
    let bytes = std::fs::read(dir.join("digits.cheetah.lowered")).unwrap();
    let registry = tacit_backends::Registry::standard();
    let model = tacit_backends::lowered::read(&bytes).unwrap().load(&**registry.get("cheetah").unwrap()).unwrap();
    let two = tacit_graph::npy::read(&std::fs::read(dir.join("two.npy")).unwrap()).unwrap();
    let class = |x: &[f32]| {
        let y = model.reference(x).unwrap();
        (0..y.len()).max_by(|&i, &j| y[i].total_cmp(&y[j])).unwrap()
    };
    two.data.chunks(64).map(class).collect()
}

#[test]
fn a_model_is_checked_on_data() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    make_fixture(dir);
    let labels: Vec<f32> = reference(dir).iter().map(|&c| c as f32).collect();
    std::fs::write(dir.join("labels.npy"), tacit_graph::npy::write(&[2], &labels)).unwrap();
    let check = ["model", "check", "digits.tacit", "--data", "two.npy", "--labels", "labels.npy"];
    let report: serde_json::Value = serde_json::from_str(&good(dir, &[&check[..], &["--json"]].concat())).unwrap();
    assert_eq!((report["inputs"].as_u64(), report["overflowed"].as_u64()), (Some(2), Some(0)), "{report}");
    assert_eq!((report["agreement"].as_f64(), report["accuracy"]["lowered"].as_f64()), (Some(1.0), Some(1.0)));
    let text = good(dir, &[&check[..], &["--limit", "1", "--agreement", "0.9"]].concat());
    assert!(text.contains("1 compared"), "{text}");
    assert!(text.contains("overflow     none"), "{text}");
    let run = [&check[..], &["--limit", "1", "--run", "1", "--json"]].concat();
    let report: serde_json::Value = serde_json::from_str(&good(dir, &run)).unwrap();
    let [off, error] = ["off", "error"].map(|key| report["run"][key].as_f64().unwrap());
    assert!(error > 0.0, "{report}");
    assert!(report["run"]["stated"].as_f64().is_none_or(|stated| off <= stated), "{report}");
    let text = good(dir, &run[..run.len() - 1]);
    assert!(text.contains("off by"), "{text}");
    assert!(text.contains("(root mean square)"), "{text}");
    assert!(text.contains("stated"), "{text}");
    let error = run_failing(dir, &["model", "check", "digits.tacit", "--data", "two.npy", "--labels", "two.npy"]);
    assert!(error.contains("whole numbers"), "{error}");
    std::fs::write(dir.join("one.npy"), tacit_graph::npy::write(&[1], &labels[..1])).unwrap();
    let error = run_failing(dir, &["model", "check", "digits.tacit", "--data", "two.npy", "--labels", "one.npy"]);
    assert!(error.contains("1 labels for 2 inputs"), "{error}");
}

#[test]
fn keys_import_serve_prepare_and_infer() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    make_fixture(dir);
    let server = Server::start(dir);
    let address = server.address.as_str();
    assert!(good(dir, &["material", "list", "--server", address]).contains("no such material"));
    good(dir, &["prepare", "--server", address, "--count", "3"]);
    assert_eq!(good(dir, &["material", "--server", address, "list", "--json"]).lines().count(), 3);
    let classes = |text: &str| -> Vec<usize> {
        let line = |l: &str| serde_json::from_str::<serde_json::Value>(l).unwrap()["class"].as_u64().unwrap() as usize;
        text.lines().map(line).collect()
    };
    let infer = ["infer", "two.npy", "--server", address, "--json"];
    assert_eq!(classes(&good(dir, &infer)), reference(dir));
    assert_eq!(good(dir, &["material", "list", "--server", address, "--json"]).lines().count(), 1, "two were used");
    let error = run_failing(dir, &["infer", "two.npy", "--server", address, "--material", "srv"]);
    assert!(error.contains("srv holds the server's halves"), "{error}");
    assert!(error.contains("a folder of its own"), "{error}");
    assert!(good(dir, &["material", "discard", "--server", address, "--all"]).contains("destroyed 1 of 1"));
    let text = good(dir, &infer);
    assert_eq!(classes(&text), reference(dir));
    assert!(text.contains("\"setup\""));
    assert!(text.contains("\"offline\""));

    std::fs::write(dir.join("labels"), "null\neins\nzwei\ndrei\nvier\nfünf\nsechs\nsieben\nacht\nneun\n").unwrap();
    let image = image::GrayImage::from_pixel(20, 30, image::Luma([9]));
    image.save(dir.join("dot.png")).unwrap();
    // Pixels of this model are 0 to 16 without scaling; 9 is outside its accepted range.
    let error = run_failing(dir, &["infer", "dot.png", "--server", address]);
    assert!(error.contains("dot.png"), "{error}");
    assert!(error.contains("accepts"), "{error}");
    let text = good(dir, &["infer", "two.npy", "--server", address, "--labels", "labels", "--top", "1"]);
    assert!(
        ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
            .iter()
            .any(|l| text.contains(l))
    );
    let error = run_failing(dir, &["infer", "two.npy", "--server", address, "--model", "cats"]);
    assert!(error.contains("no model `cats`; there are: digits"), "{error}");
}

#[test]
fn certificates_are_shown_renewed_and_read_again_with_the_models() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    make_fixture(dir);
    good(dir, &["keys", "add-client", "keys", "ops", "--operator", "--days", "3"]);
    let server = Server::start(dir);
    let address = server.address.as_str();
    let show = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&good(dir, &[&["keys", "show", "keys", "--json"], args].concat())).unwrap()
    };
    let days = |certificate: &serde_json::Value| {
        let [valid_from, valid_until] = ["valid_from", "valid_until"].map(|key| certificate[key].as_u64().unwrap());
        (valid_until - valid_from) / 86_400
    };
    let before = show(&["ops"])["certificates"][0].clone();
    assert!(before["purpose"] == "operator", "{before}");
    assert!(days(&before) == 3, "{before}");
    let renewed = good(dir, &["keys", "renew", "keys", "ops", "--days", "9", "--json"]);
    let renewed: serde_json::Value = serde_json::from_str(&renewed).unwrap();
    let after = &renewed["certificates"][0];
    assert!(days(after) == 9, "{after}");
    assert!(after["fingerprint"] == before["fingerprint"], "{after}");
    let listing = good(dir, &["keys", "show", "keys"]);
    let names: Vec<&str> = listing.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["ca", "server", "client", "ops"], "{listing}");
    assert!(listing.contains("UTC"), "{listing}");
    assert!(listing.contains("localhost"), "{listing}");
    assert!(!listing.contains("note:"), "{listing}");
    assert!(run_failing(dir, &["keys", "renew", "keys", "ops", "--days", "0"]).contains("1..=3650"));
    assert!(run_failing(dir, &["keys", "renew", "keys", "nobody"]).contains("nobody.pem"));
    // A reload reports to its operator what has changed; the model file has another content now.
    assert!(run_failing(dir, &["reload", "--server", address]).contains("operator"));
    let reload = ["reload", "--server", address, "--client", "ops"];
    assert_eq!(good(dir, &reload), "certificates read; as before: digits=cheetah\n");
    let onnx = format!("{MODELS}/digits.onnx");
    good(dir, &["model", "import", &onnx, "--range", "0,16", "-o", "digits.tacit"]);
    let reloaded: serde_json::Value = serde_json::from_str(&good(dir, &[&reload[..], &["--json"]].concat())).unwrap();
    assert_eq!(reloaded["models"]["replaced"][0], "digits=cheetah", "{reloaded}");
    assert_eq!(good(dir, &["infer", "two.npy", "--server", address, "--json"]).lines().count(), 2);
    // The answer contains the name of the input; the log does as well, if logging is on.
    let infer = ["infer", "two.npy", "--server", address, "--json"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_tacit")).current_dir(dir).args(infer).env("TACIT_LOG", "info").output();
    let [stdout, log] = output.map(|o| [o.stdout, o.stderr].map(|text| String::from_utf8(text).unwrap())).unwrap();
    for line in stdout.lines() {
        let id = serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
        assert_eq!(log.matches(&format!("input={id}")).count(), 2, "offline and online: {log}");
    }
    std::fs::write(dir.join("digits.tacit"), "half a file").unwrap();
    let error = run_failing(dir, &reload);
    assert!(error.contains("422"), "{error}");
    assert!(error.contains("stay as they were"), "{error}");
    assert!(error.contains("digits.tacit"), "{error}");
    assert_eq!(good(dir, &["infer", "two.npy", "--server", address, "--json"]).lines().count(), 2);
}

#[test]
fn material_is_listed_and_destroyed_by_digest_age_and_use() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    make_fixture(dir);
    let mut server = Server::start(dir);
    good(dir, &["prepare", "--server", &server.address, "--count", "3"]);
    let listed = |args: &[&str]| -> Vec<serde_json::Value> {
        let text = good(dir, &[&["material", "list", "--json"], args].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let online = listed(&["--server", &server.address]);
    let (id, model) = (text(&online[0]["id"]), text(&online[0]["model"]));
    assert!(online.iter().all(|line| line["state"] == "ready" && line["model"] == model.as_str()));
    // Each folder is checked on its own, without a server.
    for folder in ["material", "srv"] {
        let offline = listed(&["--offline", "--material", folder]);
        assert_eq!(offline.len(), 3);
        let client = text(&offline[0]["client"]);
        assert_eq!(listed(&["--offline", "--material", folder, "--digest", &client[..8]]).len(), 3);
        assert_eq!(listed(&["--offline", "--material", folder, "--digest", "00000000000000"]).len(), 0);
        assert_eq!(listed(&["--offline", "--material", folder, "--older-than", "1d"]).len(), 0);
    }
    assert!(
        run_failing(dir, &["material", "list", "--offline", "--material", "none"]).contains("no folder of material")
    );
    assert!(!dir.join("none").exists());
    let server_address = server.address.clone();
    let discard = |args: &[&str]| good(dir, &[&["material", "discard", "--server", &server_address], args].concat());
    assert!(discard(&[&id]).contains("destroyed 1 of 1"));
    assert!(discard(&[&id]).contains("destroyed 0 of 1"));
    assert!(discard(&["--orphans"]).contains("destroyed 0 of 0"));
    assert!(discard(&["--digest", &model[..12], "--older-than", "1h"]).contains("destroyed 0 of 0"));
    assert!(run_failing(dir, &["material", "discard", "--server", &server_address]).contains("--orphans"));
    assert!(run_failing(dir, &["material", "discard", "--digest", "xyz"]).contains("hexadecimal"));
    // The model is imported again: material of the old model is useless, and is listed as such.
    drop(server);
    let onnx = format!("{MODELS}/digits.onnx");
    good(dir, &["model", "import", &onnx, "--range", "0,16", "-o", "digits.tacit"]);
    server = Server::start(dir);
    let remaining = listed(&["--server", &server.address]);
    assert!(remaining.len() == 2, "{remaining:?}");
    assert!(remaining.iter().all(|line| line["state"] == "model gone"), "{remaining:?}");
    assert!(good(dir, &["material", "discard", "--orphans", "--server", &server.address]).contains("destroyed 2 of 2"));
    assert!(listed(&["--offline", "--material", "srv"]).is_empty());
    assert!(listed(&["--offline"]).is_empty());
}

#[test]
fn half_a_ca_is_never_left() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(
        run_failing(dir, &["keys", "init", "keys", "--host", "server:7878"])
            .contains("`server:7878` cannot be in a certificate")
    );
    assert!(
        run_failing(dir, &["keys", "init", "keys", "--client", "a", "--client", "a"]).contains("`a` is named twice")
    );
    assert!(!dir.join("keys").exists());
    good(dir, &["keys", "init", "keys"]);
    for ending in ["pem", "key"] {
        std::fs::copy(dir.join(format!("keys/client.{ending}")), dir.join(format!("keys/server.{ending}"))).unwrap();
    }
    server::ensure();
    let error = run_failing(dir, &["serve", "none.tacit"]);
    assert!(error.contains("keys/server.pem is not a server's certificate"), "{error}");
}

#[test]
fn bench_reports_both_parties_and_the_error() {
    server::ensure();
    let dir = tempfile::tempdir().unwrap();
    make_fixture(dir.path());
    good(dir.path(), &["bench", "--model", "digits.tacit", "--input", "two.npy", "-o", "b.json"]);
    let text = std::fs::read(dir.path().join("b.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let run = &report["runs"][0];
    for phase in ["setup", "offline", "online"] {
        let figures = &run["phases"][phase];
        assert!(figures["wall_s"].as_f64().unwrap() > 0.0);
        assert!(figures["rounds"].as_u64().unwrap() > 0);
        for party in ["client", "server"] {
            assert!(figures[party]["sent_bytes"].as_u64().unwrap() > 0);
            assert!(figures[party]["peak_rss_bytes"].as_u64().unwrap() > 0);
            assert!(figures[party]["cpu_s"].as_f64().is_some());
        }
    }
    let output = &run["output"];
    assert_eq!(output["argmax"], output["reference_argmax"]);
    // A stated bound holds and is small enough to distinguish outputs.
    assert!(output["ulp_bound"].as_f64().is_none_or(|bound| output["max_ulp_error"].as_f64().unwrap() <= bound));
    assert!(output["error_bound"].as_f64().is_none_or(|bound| bound < 1e3));
    assert!(run["material_bytes"]["server"].as_u64().unwrap() > 0);
    // The lower bounds need no preparation and few bytes.
    let bounds = &report["lower_bounds"];
    assert_eq!(bounds["clear"]["phases"].as_object().unwrap().keys().collect::<Vec<_>>(), ["online"]);
    assert_eq!(bounds["clear"]["output"]["max_error"].as_f64(), Some(0.0));
    assert!(bounds["local"]["wall_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_server_is_watched() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    make_fixture(dir);
    good(dir, &["keys", "add-client", "keys", "ops", "--operator"]);
    let server = Server::start(dir);
    let server_args = ["--server", server.address.as_str()];
    let ask = |args: &[&str]| good(dir, &[args, &server_args].concat());
    ask(&["infer", "two.npy"]);
    assert_eq!((ask(&["health"]).trim(), ask(&["health", "--live"]).trim()), ("ready", "live"));
    let own_status = ask(&["status"]);
    assert!(own_status.contains("CLIENT"), "{own_status}");
    assert!(!own_status.contains("queues"), "{own_status}");
    let full_status: serde_json::Value = serde_json::from_str(&ask(&["status", "--client", "ops", "--json"])).unwrap();
    assert_eq!(
        (&full_status["models"][0]["name"], full_status["models"][0]["done"].as_u64()),
        (&"digits".into(), Some(2))
    );
    let phases: Vec<&str> =
        full_status["jobs"].as_array().unwrap().iter().map(|j| j["phase"].as_str().unwrap()).collect();
    assert!(phases.contains(&"offline"), "{phases:?}");
    assert!(phases.contains(&"online"), "{phases:?}");
    let once = ask(&["top", "--once", "--client", "ops"]);
    assert!(once.contains("digits"), "{once}");
    assert!(once.contains("online"), "{once}");
    assert!(!once.contains('\u{1b}'), "{once}");
    let error = run_failing(dir, &["status", "--server", "localhost:1"]);
    assert!(error.contains("localhost:1"), "{error}");
    assert!(error.contains("refused"), "{error}");
    good(dir, &["keys", "init", "others"]);
    let error = run_failing(dir, &[&["health", "--keys", "others"], &server_args[..]].concat());
    assert!(error.contains("not signed by our CA"), "{error}");
}

#[test]
fn mistakes_are_explained() {
    server::ensure();
    let dir = tempfile::tempdir().unwrap();
    let dir: PathBuf = dir.path().to_owned();
    std::fs::write(dir.join("not.onnx"), "hello").unwrap();
    std::fs::write(dir.join("not.tacit"), "hello").unwrap();
    assert!(run_failing(&dir, &["model", "import", "not.onnx", "-o", "x.tacit"]).contains("not.onnx"));
    assert!(run_failing(&dir, &["model", "inspect", "not.tacit"]).contains("not a tacit model file"));
    assert!(run_failing(&dir, &["serve", "not.tacit"]).contains("tacit keys init"));
    good(&dir, &["keys", "init", "keys"]);
    assert!(run_failing(&dir, &["keys", "init", "keys"]).contains("add-client"));
    assert!(run_failing(&dir, &["keys", "add-client", "keys", "../evil"]).contains("cannot name a client"));
    assert!(run_failing(&dir, &["serve", "not.tacit"]).contains("not a tacit model file"));
    let error = run_failing(&dir, &["infer", "x.png", "--server", "127.0.0.1:1"]);
    assert!(error.contains("127.0.0.1:1"), "{error}");
    assert!(run_failing(&dir, &["bench", "--model", "not.tacit", "--backend", "magic"]).contains("cheetah"));
}

#[test]
fn a_reader_that_goes_away_is_no_crash() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacit"));
    let output = command.args(["lab", "link", "--list"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Opens a device to which every write fails.
fn dev_full() -> std::fs::File {
    std::fs::File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_no_crash() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    make_fixture(dir);
    let server = Server::start(dir);
    let address = server.address.as_str();
    good(dir, &["prepare", "--server", address]);
    for args in [
        vec!["--help"],
        vec!["infer", "--help"],
        vec!["model", "backends"],
        vec!["model", "inspect", "digits.tacit"],
        vec!["model", "inspect", "digits.tacit", "--json"],
        vec!["keys", "fingerprint", "keys"],
        vec!["material", "--server", address, "--json", "list"],
        vec!["prepare", "--server", address],
        vec!["infer", "two.npy", "--server", address, "--json"],
        vec!["infer", "two.npy", "--server", address],
        vec!["lab", "link", "--list"],
        vec!["lab", "run", "--list"],
        vec!["lab", "measure", "--", "true"],
        vec!["lab", "sensors", "--json"],
        vec!["lab", "sensors"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacit"));
        let output = command.current_dir(dir).args(&args).stdout(dev_full()).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.contains("writing to standard output"), "{args:?}: {error}");
        assert!(!error.contains("panicked"), "{args:?}: {error}");
        // Standard error cannot be written either.
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacit"));
        command.current_dir(dir).args(&args).env("TACIT_LOG", "trace").stdout(dev_full()).stderr(dev_full());
        assert_eq!(command.status().unwrap().code(), Some(1), "{args:?}");
    }
    // The server still answers.
    good(dir, &["infer", "two.npy", "--server", address]);
}

#[test]
fn notes_that_nobody_reads_are_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let onnx = format!("{MODELS}/digits.onnx");
    // Warns that there are no samples.
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacit"));
    command.current_dir(dir.path()).args(["model", "import", &onnx, "-o", "digits.tacit"]).env("TACIT_LOG", "trace");
    let output = command.stdout(Stdio::piped()).stderr(dev_full()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_server_that_does_not_answer_is_named_while_it_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    good(dir, &["keys", "init", "keys"]);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let message = run_failing(dir, &["infer", "x.npy", "--server", &address, "--connect-timeout", "3"]);
    assert!(message.contains(&format!("connecting to {address}, for 3 s at most")), "{message}");
    assert!(
        message.contains(&format!("error: cannot reach the server at {address}: it did not answer within 3 s")),
        "{message}"
    );
    let message = run_failing(dir, &["infer", "x.npy", "--server", "127.0.0.1"]);
    assert!(message.contains("the port is missing"), "{message}");
    assert!(message.contains("server.example:7878"), "{message}");
    std::fs::write(dir.join("keys/client.key"), "nonsense").unwrap();
    let message = run_failing(dir, &["infer", "x.npy", "--server", &address]);
    assert!(message.contains("client.key"), "{message}");
    assert!(message.contains("tacit keys init"), "{message}");
    std::fs::remove_file(dir.join("keys/client.key")).unwrap();
    let message = run_failing(dir, &["infer", "x.npy", "--server", &address]);
    assert!(message.contains("keys/client.key"), "{message}");
    assert!(message.contains("tacit keys init"), "{message}");
}

#[test]
fn numbers_out_of_range_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for (args, range) in [
        (&["infer", "x.npy", "--threads", "100000"][..], "1..=1024"),
        (&["infer", "x.npy", "--threads", "0"], "1..=1024"),
        (&["infer", "x.npy", "--top", "0"], "1..=1000000"),
        (&["infer", "x.npy", "--stall", "0"], "1..=86400"),
        (&["infer", "x.npy", "--connect-timeout", "0"], "1..=3600"),
        (&["infer", "x.npy", "--pace", "0"], "from 1bit to 1000gbit"),
        (&["prepare", "--count", "0"], "1..=1000000"),
        (&["bench", "--model", "x.tacit", "--runs", "0"], "1..=100000"),
        (&["bench", "--model", "x.tacit", "--threads", "100000"], "1..=1024"),
        (&["lab", "workload", "ping-pong", "--server", "127.0.0.1:1", "--messages", "0"], "0 is not in"),
        (&["lab", "measure", "--interval", "0", "--", "true"], "0.001"),
    ] {
        let message = run_failing(dir.path(), args);
        assert!(message.contains(range), "{args:?}: {message}");
    }
}

#[test]
fn a_lowering_is_kept_and_a_stale_one_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    make_fixture(dir);
    let inspected = |file: &str| -> serde_json::Value {
        serde_json::from_str(&good(dir, &["model", "inspect", file, "--json"])).unwrap()
    };
    let searched = inspected("digits.cheetah.lowered");
    assert!(good(dir, &["model", "lower", "digits.tacit", "-O", "frac_bits=12"]).contains("digits.cheetah.lowered"));
    let fixed = inspected("digits.cheetah.lowered");
    assert_eq!(fixed["options"]["frac_bits"], "12");
    assert_ne!(fixed["digest"], searched["digest"]);
    assert_eq!(inspected("digits.tacit")["interface"], fixed["interface"]);
    let error = run_failing(dir, &["model", "lower", "digits.tacit", "-O", "frac=12"]);
    assert!(error.contains("frac_bits"), "{error}");
    assert!(error.contains("relu_drop"), "{error}");
    let error = run_failing(dir, &["model", "lower", "digits.tacit", "--backend", "magic"]);
    assert!(error.contains("cheetah"), "{error}");
    assert!(error.contains("clear"), "{error}");
}
