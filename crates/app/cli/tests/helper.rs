//! A device, its helper and a server as three programs over loopback.
mod common;
mod server;

use common::{MODELS, good, tacit};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Runs a command that must fail; returns its standard output and standard error.
fn bad(dir: &Path, args: &[&str]) -> [String; 2] {
    let output = tacit(dir, args);
    let [stdout, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(!output.status.success(), "tacit {args:?}: {stdout} {error}");
    assert!(!error.contains("panicked"), "tacit {args:?}: {stdout} {error}");
    [stdout, error]
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A running program and its address.
struct Program(Child, String);

impl Program {
    fn start(dir: &Path, args: &[&str]) -> Self {
        server::ensure();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacit"));
        let listening = ["--listen", "127.0.0.1:0", "--json"];
        let mut child = command.current_dir(dir).args(args).args(listening).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        Self(child, line["listening"].as_str().unwrap().to_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder with keys, a model and its server; `gateway` is the helper of `client`.
struct Fixture {
    dir: TempDir,
    server: Program,
    /// Fingerprint of the helper.
    print: String,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (onnx, samples) = (format!("{MODELS}/digits.onnx"), format!("{MODELS}/digits_samples.npy"));
        good(dir.path(), &["model", "import", &onnx, "--calibrate", &samples, "-o", "digits.tacit"]);
        good(dir.path(), &["keys", "init", "keys"]);
        let add = ["keys", "add-helper", "keys", "gateway", "--of", "client", "--host", "127.0.0.1", "--json"];
        let made: Value = serde_json::from_str(&good(dir.path(), &add)).unwrap();
        let array = tacit_graph::npy::read(&fs::read(&samples).unwrap()).unwrap();
        fs::write(dir.path().join("two.npy"), tacit_graph::npy::write(&[2, 1, 8, 8], &array.data[..128])).unwrap();
        fs::write(dir.path().join("access.toml"), "").unwrap();
        let serve = ["serve", "digits.tacit", "--material", "srv", "--access", "access.toml", "--no-warm-up"];
        let server = Program::start(dir.path(), &serve);
        Self { dir, server, print: made["fingerprint"].as_str().unwrap().to_owned() }
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Adds the server's address to the arguments of a command.
    fn with_server<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        [args, &["--server", &self.server.1, "--json"]].concat()
    }

    fn helper(&self) -> Program {
        let args = ["helper", "--server", &self.server.1, "--client", "gateway", "--folder", "home"];
        Program::start(self.dir(), &args)
    }

    /// Orders material from a helper and fetches it; returns the output lines.
    fn prepare(&self, helper: &Program, extra: &[&str]) -> Vec<Value> {
        let args = [&["prepare", "--helper", &helper.1], extra].concat();
        lines(&good(self.dir(), &self.with_server(&args)))
    }

    /// Lists the files of sealed material at the helper.
    fn sealed_files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.dir().join("home")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "sealed")).collect()
    }

    /// Lists the server's halves, as its operator sees them.
    fn at_server(&self) -> Vec<Value> {
        lines(&good(self.dir(), &["material", "list", "--offline", "--material", "srv", "--json"]))
    }

    /// Answers two inputs with stored material, or with new material if none is stored. Returns the
    /// classes, and the number of offline phases.
    fn infer(&self) -> (Vec<u64>, usize) {
        let answers = lines(&good(self.dir(), &self.with_server(&["infer", "two.npy", "--batch", "1"])));
        let classes = answers.iter().map(|answer| answer["class"].as_u64().unwrap()).collect();
        (classes, answers.iter().filter(|answer| answer["phases"].get("offline").is_some()).count())
    }
}

fn wait_until(condition: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("never: {condition}");
}

#[test]
fn a_helper_makes_the_material_and_may_do_nothing_else() {
    let home = Fixture::new();
    let (answer_alone, offline) = home.infer();
    assert_eq!(offline, 2, "nothing is stored yet");
    let helper = home.helper();
    let report = home.prepare(&helper, &["--count", "2"]);
    let prepared: Vec<&Value> = report.iter().filter(|line| line.get("sealed_bytes").is_some()).collect();
    assert_eq!((prepared.len(), home.sealed_files().len()), (2, 0), "what was delivered is deleted: {report:?}");
    assert!(
        prepared.iter().all(|prepared| prepared["sealed_bytes"].as_u64() > prepared["bytes"].as_u64()),
        "{report:?}"
    );
    // The server's ledger has the owner and the maker of each half.
    let halves = home.at_server();
    assert!(halves.len() == 2, "{halves:?}");
    assert!(halves.iter().all(|half| half["maker"] == home.print.as_str()), "{halves:?}");
    assert!(halves.iter().all(|half| half["client"] != home.print.as_str()), "{halves:?}");
    assert_eq!(home.infer(), (answer_alone, 0), "the same answers, without an offline phase");
    for refused in [&["infer", "two.npy"][..], &["material", "list"], &["prepare"]] {
        let [_, error] =
            bad(home.dir(), &home.with_server(&[refused, &["--client", "gateway", "--material", "other"]].concat()));
        assert!(error.contains("helper"), "{refused:?}: {error}");
    }
    good(home.dir(), &["keys", "add-client", "keys", "bob"]);
    let order = ["prepare", "--helper", &helper.1, "--client", "bob", "--material", "bobs"];
    let [_, error] = bad(home.dir(), &home.with_server(&order));
    assert!(error.contains("not of a helper of this client"), "{error}");
    // A helper that listens is not accepted as a server.
    let [_, error] = bad(home.dir(), &["infer", "two.npy", "--server", &helper.1]);
    assert!(error.contains("helper"), "{error}");
}

#[test]
fn what_is_changed_on_the_way_is_refused_and_what_dies_is_ordered_anew() {
    let home = Fixture::new();
    let helper = home.helper();
    let output = home.prepare(&helper, &["--later"]);
    assert_eq!(output.last().unwrap()["ordered"], 1, "{output:?}");
    wait_until("it is made", || home.sealed_files().len() == 1);
    let path = home.sealed_files().remove(0);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let fetch = ["prepare", "--helper", &helper.1, "--fetch"];
    let [output, error] = bad(home.dir(), &home.with_server(&fetch));
    assert!(error.contains("not what this helper was ordered to make"), "{output} {error}");
    assert!(output.contains("\"lost\":1"), "{output} {error}");
    assert!(home.sealed_files().is_empty());
    // The server's half is deleted when the device connects next; no part of the material is used.
    assert_eq!(home.infer().1, 2);
    assert!(home.at_server().is_empty());

    let output = home.prepare(&helper, &["--later", "--count", "40"]);
    assert_eq!(output.last().unwrap()["ordered"], 40);
    let prepared_count = output.iter().filter(|line| line.get("sealed_bytes").is_some()).count();
    drop(helper);
    let helper = home.helper();
    let fetch = ["prepare", "--helper", &helper.1, "--fetch"];
    let [output, _] = bad(home.dir(), &home.with_server(&fetch));
    let output = lines(&output);
    let (delivered, lost) = (output.len() - 1, output.last().unwrap()["lost"].as_u64().unwrap() as usize);
    assert!(lost > 0, "{prepared_count} {delivered} {lost}");
    assert!(prepared_count + delivered + lost == 40, "{prepared_count} {delivered} {lost}");
    home.prepare(&helper, &["--count", "2"]);
    assert_eq!(home.infer().1, 0);
    let listed = lines(&good(home.dir(), &home.with_server(&["material", "list"])));
    assert_eq!(
        listed.len(),
        prepared_count + delivered,
        "what came before it died is there, and no half without its other"
    );
    assert!(listed.iter().all(|material| material["state"] == "ready"), "{listed:?}");
}

#[test]
fn a_revoked_helper_is_cut_off_and_what_it_made_is_burnt() {
    let home = Fixture::new();
    let helper = home.helper();
    home.prepare(&helper, &["--count", "2"]);
    let own_lines = lines(&good(home.dir(), &home.with_server(&["prepare"])));
    assert_eq!((home.at_server().len(), own_lines.iter().filter(|line| line.get("id").is_some()).count()), (3, 1));
    fs::write(home.dir().join("access.toml"), format!("[client.{}]\nrevoked = true\n", home.print)).unwrap();
    let hang_up = Command::new("kill").args(["-HUP", &home.server.0.id().to_string()]).status().unwrap();
    assert!(hang_up.success());
    wait_until("its material is burnt", || home.at_server().len() == 1);
    // The helper may first find its old connection closed, and then connects again.
    let order = ["prepare", "--helper", &helper.1];
    let are_revoked = [0; 2].map(|_| bad(home.dir(), &home.with_server(&order))[1].contains("revoked"));
    assert!(are_revoked[1], "the owner is told why");
    let listed = lines(&good(home.dir(), &home.with_server(&["material", "list"])));
    assert!(listed.len() == 1, "the owner's own stays: {listed:?}");
    assert!(listed[0]["state"] == "ready", "the owner's own stays: {listed:?}");
    assert_eq!(home.infer().1, 1, "and the owner is served as before");
}
