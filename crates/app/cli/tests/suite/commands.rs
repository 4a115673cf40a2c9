//! The commands: keys, import, serve, prepare, infer and bench, and the messages for wrong calls.
use crate::common::{
    Folder, MODELS, Program, assert_contains, assert_fails, command, good, json, json_lines, parse_lines,
};
use crate::server;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// Returns the classes of the two samples by the lowered model's reference.
fn reference(dir: &Path) -> Vec<usize> {
    let bytes = fs::read(dir.join("digits.cheetah.lowered")).unwrap();
    let registry = tacit_backends::Registry::standard();
    let model = tacit_backends::lowered::read(&bytes).unwrap().load(&**registry.get("cheetah").unwrap()).unwrap();
    let two = tacit_graph::npy::read(&fs::read(dir.join("two.npy")).unwrap()).unwrap();
    let class = |x: &[f32]| {
        let y = model.reference(x).unwrap();
        (0..y.len()).max_by(|&i, &j| y[i].total_cmp(&y[j])).unwrap()
    };
    two.data.chunks(64).map(class).collect()
}

/// Imports the digits network with another content under the same name.
fn import_other_digits(dir: &Path) {
    good(dir, &["model", "import", &format!("{MODELS}/digits.onnx"), "--range", "0,16", "-o", "digits.tacit"]);
}

#[test]
fn a_model_is_checked_on_data() {
    let dir = &Folder::with_digits();
    let labels: Vec<f32> = reference(dir).iter().map(|&c| c as f32).collect();
    fs::write(dir.join("labels.npy"), tacit_graph::npy::write(&[2], &labels)).unwrap();
    let check = ["model", "check", "digits.tacit", "--data", "two.npy", "--labels", "labels.npy"];
    let report = json(dir, &check);
    assert_eq!((report["inputs"].as_u64(), report["overflowed"].as_u64()), (Some(2), Some(0)), "{report}");
    assert_eq!((report["agreement"].as_f64(), report["accuracy"]["lowered"].as_f64()), (Some(1.0), Some(1.0)));
    let limited = [&check[..], &["--limit", "1", "--agreement", "0.9"]].concat();
    assert_contains(&good(dir, &limited), &["1 compared", "overflow     none"]);
    let run = [&check[..], &["--limit", "1", "--run", "1"]].concat();
    let report = json(dir, &run);
    let [off, error] = ["off", "error"].map(|key| report["run"][key].as_f64().unwrap());
    assert!(error > 0.0, "{report}");
    assert!(report["run"]["stated"].as_f64().is_none_or(|stated| off <= stated), "{report}");
    assert_contains(&good(dir, &run), &["off by", "(root mean square)", "stated"]);
    fs::write(dir.join("one.npy"), tacit_graph::npy::write(&[1], &labels[..1])).unwrap();
    for (labels, reason) in [("two.npy", "whole numbers"), ("one.npy", "1 labels for 2 inputs")] {
        assert_fails(dir, &["model", "check", "digits.tacit", "--data", "two.npy", "--labels", labels], &[reason]);
    }
}

#[test]
fn keys_import_serve_prepare_and_infer() {
    let dir = &Folder::with_digits();
    let server = Program::serve(dir);
    assert_contains(&server.good(&["material", "list"]), &["no such material"]);
    server.good(&["prepare", "--count", "3"]);
    assert_eq!(json_lines(dir, &["material", "--server", &server.address, "list"]).len(), 3);
    let classes = |answers: &[Value]| -> Vec<usize> {
        answers.iter().map(|answer| answer["class"].as_u64().unwrap() as usize).collect()
    };
    let infer = ["infer", "two.npy"];
    assert_eq!(classes(&server.json_lines(&infer)), reference(dir));
    assert_eq!(server.json_lines(&["material", "list"]).len(), 1);
    server.assert_fails(
        &["infer", "two.npy", "--material", "srv"],
        &["srv holds the server's halves", "a folder of its own"],
    );
    assert_contains(&server.good(&["material", "discard", "--all"]), &["destroyed 1 of 1"]);
    let answers = server.json_lines(&infer);
    assert_eq!(classes(&answers), reference(dir));
    assert_contains(&format!("{answers:?}"), &["\"setup\"", "\"offline\""]);

    let labels = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"];
    fs::write(dir.join("labels"), labels.map(|label| format!("{label}\n")).concat()).unwrap();
    let image = image::GrayImage::from_pixel(20, 30, image::Luma([9]));
    image.save(dir.join("dot.png")).unwrap();
    // Pixels of this model are 0 to 16 without scaling; 9 is outside its accepted range.
    server.assert_fails(&["infer", "dot.png"], &["dot.png", "accepts"]);
    let text = server.good(&["infer", "two.npy", "--labels", "labels", "--top", "1"]);
    assert!(labels.iter().any(|label| text.contains(label)));
    server.assert_fails(&["infer", "two.npy", "--model", "cats"], &["no model `cats`; there are: digits"]);
}

#[test]
fn certificates_are_renewed_and_reloaded_with_the_models() {
    let dir = &Folder::with_digits();
    good(dir, &["keys", "add-client", "keys", "ops", "--operator", "--days", "3"]);
    let server = Program::serve(dir);
    let days = |certificate: &Value| {
        let [valid_from, valid_until] = ["valid_from", "valid_until"].map(|key| certificate[key].as_u64().unwrap());
        (valid_until - valid_from) / 86_400
    };
    let before = json(dir, &["keys", "show", "keys", "ops"])["certificates"][0].clone();
    assert!(before["purpose"] == "operator", "{before}");
    assert!(days(&before) == 3, "{before}");
    let renewed = json(dir, &["keys", "renew", "keys", "ops", "--days", "9"]);
    let after = &renewed["certificates"][0];
    assert!(days(after) == 9, "{after}");
    assert!(after["fingerprint"] == before["fingerprint"], "{after}");
    let listing = good(dir, &["keys", "show", "keys"]);
    let names: Vec<&str> = listing.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["ca", "server", "client", "ops"], "{listing}");
    assert_contains(&listing, &["UTC", "localhost"]);
    assert!(!listing.contains("note:"), "{listing}");
    assert_fails(dir, &["keys", "renew", "keys", "ops", "--days", "0"], &["1..=3650"]);
    assert_fails(dir, &["keys", "renew", "keys", "nobody"], &["nobody.pem"]);
    // A reload reports to its operator what has changed; the model file has another content now.
    server.assert_fails(&["reload"], &["operator"]);
    let reload = ["reload", "--client", "ops"];
    assert_eq!(server.good(&reload), "certificates read; as before: digits=cheetah\n");
    import_other_digits(dir);
    let reloaded = server.json(&reload);
    assert_eq!(reloaded["models"]["replaced"][0], "digits=cheetah", "{reloaded}");
    let infer = ["infer", "two.npy"];
    assert_eq!(server.json_lines(&infer).len(), 2);
    // The answer contains the name of the input; the log does as well, if logging is on.
    let output = command(dir, &server.with_address(&infer)).args(["--json"]).env("TACIT_LOG", "info").output();
    let [stdout, log] = output.map(|o| [o.stdout, o.stderr].map(|text| String::from_utf8(text).unwrap())).unwrap();
    for answer in parse_lines(&stdout) {
        let input = format!("input={}", answer["id"].as_str().unwrap());
        assert_eq!(log.matches(&input).count(), 2, "offline and online: {log}");
    }
    fs::write(dir.join("digits.tacit"), "half a file").unwrap();
    server.assert_fails(&reload, &["422", "stay as they were", "digits.tacit"]);
    assert_eq!(server.json_lines(&infer).len(), 2);
}

#[test]
fn material_is_selected_by_digest_age_and_use() {
    let dir = &Folder::with_digits();
    let mut server = Program::serve(dir);
    server.good(&["prepare", "--count", "3"]);
    let listed = |args: &[&str]| json_lines(dir, &[&["material", "list"], args].concat());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let online = server.json_lines(&["material", "list"]);
    let (id, model) = (text(&online[0]["id"]), text(&online[0]["model"]));
    assert!(online.iter().all(|line| line["state"] == "ready" && line["model"] == model.as_str()));
    // Each folder is checked on its own, without a server.
    for folder in ["material", "srv"] {
        let offline = listed(&["--offline", "--material", folder]);
        assert_eq!(offline.len(), 3);
        let client = text(&offline[0]["client"]);
        for (option, value, count) in
            [("--digest", &client[..8], 3), ("--digest", "00000000000000", 0), ("--older-than", "1d", 0)]
        {
            let selected = listed(&["--offline", "--material", folder, option, value]);
            assert_eq!(selected.len(), count, "{folder} {option} {value}");
        }
    }
    assert_fails(dir, &["material", "list", "--offline", "--material", "none"], &["no folder of material"]);
    assert!(!dir.join("none").exists());
    for (which, destroyed) in [
        (&[id.as_str()][..], "destroyed 1 of 1"),
        (&[id.as_str()], "destroyed 0 of 1"),
        (&["--orphans"], "destroyed 0 of 0"),
        (&["--digest", &model[..12], "--older-than", "1h"], "destroyed 0 of 0"),
    ] {
        let discard = [&["material", "discard"], which].concat();
        assert_contains(&server.good(&discard), &[destroyed]);
    }
    server.assert_fails(&["material", "discard"], &["--orphans"]);
    assert_fails(dir, &["material", "discard", "--digest", "xyz"], &["hexadecimal"]);
    // The model is imported again: material of the old model is useless, and is listed as such.
    drop(server);
    import_other_digits(dir);
    server = Program::serve(dir);
    let remaining = server.json_lines(&["material", "list"]);
    assert!(remaining.len() == 2, "{remaining:?}");
    assert!(remaining.iter().all(|line| line["state"] == "model gone"), "{remaining:?}");
    assert_contains(&server.good(&["material", "discard", "--orphans"]), &["destroyed 2 of 2"]);
    assert!(listed(&["--offline", "--material", "srv"]).is_empty());
    assert!(listed(&["--offline"]).is_empty());
}

#[test]
fn a_refused_ca_leaves_no_files() {
    let dir = &Folder::new();
    for (args, reason) in [
        (&["--host", "server:7878"][..], "`server:7878` cannot be in a certificate"),
        (&["--client", "a", "--client", "a"], "`a` is named twice"),
    ] {
        assert_fails(dir, &[&["keys", "init", "keys"], args].concat(), &[reason]);
    }
    assert!(!dir.join("keys").exists());
    good(dir, &["keys", "init", "keys"]);
    for ending in ["pem", "key"] {
        fs::copy(dir.join(format!("keys/client.{ending}")), dir.join(format!("keys/server.{ending}"))).unwrap();
    }
    server::ensure();
    assert_fails(dir, &["serve", "none.tacit"], &["keys/server.pem is not a server's certificate"]);
}

#[test]
fn bench_reports_both_parties_and_the_error() {
    server::ensure();
    let dir = &Folder::with_digits();
    good(dir, &["bench", "--model", "digits.tacit", "--input", "two.npy", "-o", "b.json"]);
    let report: Value = serde_json::from_slice(&fs::read(dir.join("b.json")).unwrap()).unwrap();
    let run = &report["runs"][0];
    for phase in ["setup", "offline", "online"] {
        let figures = &run["phases"][phase];
        assert!(figures["wall_s"].as_f64().unwrap() > 0.0);
        assert!(figures["rounds"].as_u64().unwrap() > 0);
        for party in ["client", "server"] {
            for key in ["sent_bytes", "peak_rss_bytes"] {
                assert!(figures[party][key].as_u64().unwrap() > 0, "{phase} {party} {key}");
            }
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
fn status_health_and_top_show_a_server() {
    let dir = &Folder::with_digits();
    good(dir, &["keys", "add-client", "keys", "ops", "--operator"]);
    let server = Program::serve(dir);
    server.good(&["infer", "two.npy"]);
    assert_eq!((server.good(&["health"]).trim(), server.good(&["health", "--live"]).trim()), ("ready", "live"));
    let own_status = server.good(&["status"]);
    assert_contains(&own_status, &["CLIENT"]);
    assert!(!own_status.contains("queues"), "{own_status}");
    let full_status = server.json(&["status", "--client", "ops"]);
    let model = &full_status["models"][0];
    assert_eq!((model["name"].as_str(), model["done"].as_u64()), (Some("digits"), Some(2)));
    let jobs = full_status["jobs"].as_array().unwrap();
    for phase in ["offline", "online"] {
        assert!(jobs.iter().any(|job| job["phase"] == phase), "{jobs:?}");
    }
    let once = server.good(&["top", "--once", "--client", "ops"]);
    assert_contains(&once, &["digits", "online"]);
    assert!(!once.contains('\u{1b}'), "{once}");
    assert_fails(dir, &["status", "--server", "localhost:1"], &["localhost:1", "refused"]);
    good(dir, &["keys", "init", "others"]);
    server.assert_fails(&["health", "--keys", "others"], &["not signed by our CA"]);
}

#[test]
fn mistakes_are_explained() {
    server::ensure();
    let dir = &Folder::new();
    fs::write(dir.join("not.onnx"), "hello").unwrap();
    fs::write(dir.join("not.tacit"), "hello").unwrap();
    assert_fails(dir, &["serve", "not.tacit"], &["tacit keys init"]);
    good(dir, &["keys", "init", "keys"]);
    for (args, reason) in [
        (&["model", "import", "not.onnx", "-o", "x.tacit"][..], "not.onnx"),
        (&["model", "inspect", "not.tacit"], "not a tacit model file"),
        (&["keys", "init", "keys"], "add-client"),
        (&["keys", "add-client", "keys", "../evil"], "cannot name a client"),
        (&["serve", "not.tacit"], "not a tacit model file"),
        (&["infer", "x.png", "--server", "127.0.0.1:1"], "127.0.0.1:1"),
        (&["bench", "--model", "not.tacit", "--backend", "magic"], "cheetah"),
    ] {
        assert_fails(dir, args, &[reason]);
    }
}

#[test]
fn a_closed_pipe_ends_the_command_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let list = &mut command(Path::new("."), &["lab", "link", "--list"]);
    let output = list.stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Opens a device to which every write fails.
fn dev_full() -> fs::File {
    fs::File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn unwritable_output_is_an_error() {
    let dir = &Folder::with_digits();
    let server = Program::serve(dir);
    let address = server.address.as_str();
    server.good(&["prepare"]);
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
        let output = command(dir, &args).stdout(dev_full()).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.contains("writing to standard output"), "{args:?}: {error}");
        assert!(!error.contains("panicked"), "{args:?}: {error}");
        // Standard error cannot be written either.
        let mut command = command(dir, &args);
        command.env("TACIT_LOG", "trace").stdout(dev_full()).stderr(dev_full());
        assert_eq!(command.status().unwrap().code(), Some(1), "{args:?}");
    }
    // The server still answers.
    server.good(&["infer", "two.npy"]);
}

#[test]
fn unwritable_notes_are_no_error() {
    let onnx = format!("{MODELS}/digits.onnx");
    // Warns that there are no samples.
    let dir = &Folder::new();
    let mut command = command(dir, &["model", "import", &onnx, "-o", "digits.tacit"]);
    let output = command.env("TACIT_LOG", "trace").stdout(Stdio::piped()).stderr(dev_full()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn connection_errors_name_server_and_key() {
    let dir = &Folder::new();
    good(dir, &["keys", "init", "keys"]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connecting = format!("connecting to {address}, for 3 s at most");
    let silent = format!("error: cannot reach the server at {address}: it did not answer within 3 s");
    let infer = ["infer", "x.npy", "--server", &address];
    assert_fails(dir, &[&infer[..], &["--connect-timeout", "3"]].concat(), &[&connecting, &silent]);
    assert_fails(dir, &["infer", "x.npy", "--server", "127.0.0.1"], &["the port is missing", "server.example:7878"]);
    fs::write(dir.join("keys/client.key"), "nonsense").unwrap();
    assert_fails(dir, &infer, &["client.key", "tacit keys init"]);
    fs::remove_file(dir.join("keys/client.key")).unwrap();
    assert_fails(dir, &infer, &["keys/client.key", "tacit keys init"]);
}

#[test]
fn rejects_numbers_out_of_range() {
    let dir = &Folder::new();
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
        assert_fails(dir, args, &[range]);
    }
}

#[test]
fn a_lowering_is_replaced_on_request() {
    let dir = &Folder::with_digits();
    let inspected = |file: &str| json(dir, &["model", "inspect", file]);
    let searched = inspected("digits.cheetah.lowered");
    let lower = ["model", "lower", "digits.tacit", "-O", "frac_bits=12"];
    assert_contains(&good(dir, &lower), &["digits.cheetah.lowered"]);
    let fixed = inspected("digits.cheetah.lowered");
    assert_eq!(fixed["options"]["frac_bits"], "12");
    assert_ne!(fixed["digest"], searched["digest"]);
    assert_eq!(inspected("digits.tacit")["interface"], fixed["interface"]);
    assert_fails(dir, &["model", "lower", "digits.tacit", "-O", "frac=12"], &["frac_bits", "relu_drop"]);
    assert_fails(dir, &["model", "lower", "digits.tacit", "--backend", "magic"], &["cheetah", "clear"]);
}
