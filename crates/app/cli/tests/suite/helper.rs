//! A device, its helper and a server as three programs over loopback.
use crate::common::{Folder, Program, assert_contains, assert_fails, good, json, json_lines, parse_lines};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// A folder with keys, a model and its server; `gateway` is the helper of `client`.
struct Fixture {
    dir: Folder,
    server: Program,
    /// Fingerprint of the helper.
    print: String,
}

impl Fixture {
    fn new() -> Self {
        let dir = Folder::with_digits();
        let made = json(&dir, &["keys", "add-helper", "keys", "gateway", "--of", "client", "--host", "127.0.0.1"]);
        fs::write(dir.join("access.toml"), "").unwrap();
        let serve = ["serve", "digits.tacit", "--material", "srv", "--access", "access.toml", "--no-warm-up"];
        let server = Program::start(&dir, &serve);
        Self { dir, server, print: made["fingerprint"].as_str().unwrap().to_owned() }
    }

    /// Runs a command that must fail; returns its standard output and standard error.
    fn fail(&self, args: &[&str]) -> (String, String) {
        self.server.run_failing(&[args, &["--json"]].concat())
    }

    fn helper(&self) -> Program {
        let args = ["helper", "--server", &self.server.address, "--client", "gateway", "--folder", "home"];
        Program::start(&self.dir, &args)
    }

    /// Orders material from a helper and fetches it; returns the output lines.
    fn prepare(&self, helper: &Program, extra: &[&str]) -> Vec<Value> {
        self.server.json_lines(&[&["prepare", "--helper", &helper.address], extra].concat())
    }

    /// Lists the files of sealed material at the helper.
    fn sealed_files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.dir.join("home")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "sealed")).collect()
    }

    /// Lists the server's halves, as its operator sees them.
    fn at_server(&self) -> Vec<Value> {
        json_lines(&self.dir, &["material", "list", "--offline", "--material", "srv"])
    }

    /// Answers two inputs with stored material, or with new material if none is stored. Returns the
    /// classes, and the number of offline phases.
    fn infer(&self) -> (Vec<u64>, usize) {
        let answers = self.server.json_lines(&["infer", "two.npy", "--batch", "1"]);
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
fn a_helper_may_only_make_material() {
    let home = Fixture::new();
    let (answer_alone, offline) = home.infer();
    assert_eq!(offline, 2);
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
    assert_eq!(home.infer(), (answer_alone, 0));
    for refused in [&["infer", "two.npy"][..], &["material", "list"], &["prepare"]] {
        let (_, error) = home.fail(&[refused, &["--client", "gateway", "--material", "other"]].concat());
        assert!(error.contains("helper"), "{refused:?}: {error}");
    }
    good(&home.dir, &["keys", "add-client", "keys", "bob"]);
    let order = ["prepare", "--helper", &helper.address, "--client", "bob", "--material", "bobs"];
    assert_contains(&home.fail(&order).1, &["not of a helper of this client"]);
    // A helper that listens is not accepted as a server.
    assert_fails(&home.dir, &["infer", "two.npy", "--server", &helper.address], &["helper"]);
}

#[test]
fn refuses_changed_material_and_survives_a_killed_helper() {
    let home = Fixture::new();
    let helper = home.helper();
    let output = home.prepare(&helper, &["--later"]);
    assert_eq!(output.last().unwrap()["ordered"], 1, "{output:?}");
    wait_until("the material is made", || home.sealed_files().len() == 1);
    let path = home.sealed_files().remove(0);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (output, error) = home.fail(&["prepare", "--helper", &helper.address, "--fetch"]);
    assert_contains(&error, &["not what this helper was ordered to make"]);
    assert_contains(&output, &["\"lost\":1"]);
    assert!(home.sealed_files().is_empty());
    // The server's half is deleted when the device connects next; no part of the material is used.
    assert_eq!(home.infer().1, 2);
    assert!(home.at_server().is_empty());

    let output = home.prepare(&helper, &["--later", "--count", "40"]);
    assert_eq!(output.last().unwrap()["ordered"], 40);
    let prepared_count = output.iter().filter(|line| line.get("sealed_bytes").is_some()).count();
    drop(helper);
    let helper = home.helper();
    let output = parse_lines(&home.fail(&["prepare", "--helper", &helper.address, "--fetch"]).0);
    let (delivered, lost) = (output.len() - 1, output.last().unwrap()["lost"].as_u64().unwrap() as usize);
    assert!(lost > 0, "{prepared_count} {delivered} {lost}");
    assert!(prepared_count + delivered + lost == 40, "{prepared_count} {delivered} {lost}");
    home.prepare(&helper, &["--count", "2"]);
    assert_eq!(home.infer().1, 0);
    let listed = home.server.json_lines(&["material", "list"]);
    assert_eq!(listed.len(), prepared_count + delivered);
    assert!(listed.iter().all(|material| material["state"] == "ready"), "{listed:?}");
}

#[test]
fn a_revoked_helper_is_refused_and_its_material_burnt() {
    let home = Fixture::new();
    let helper = home.helper();
    home.prepare(&helper, &["--count", "2"]);
    let own_lines = home.server.json_lines(&["prepare"]);
    assert_eq!((home.at_server().len(), own_lines.iter().filter(|line| line.get("id").is_some()).count()), (3, 1));
    fs::write(home.dir.join("access.toml"), format!("[client.{}]\nrevoked = true\n", home.print)).unwrap();
    let hang_up = Command::new("kill").args(["-HUP", &home.server.child.id().to_string()]).status().unwrap();
    assert!(hang_up.success());
    wait_until("its material is burnt", || home.at_server().len() == 1);
    // The helper may first find its old connection closed, and then connects again.
    let order = ["prepare", "--helper", &helper.address];
    let are_revoked = [0; 2].map(|_| home.fail(&order).1.contains("revoked"));
    assert!(are_revoked[1]);
    let listed = home.server.json_lines(&["material", "list"]);
    assert!(listed.len() == 1, "the owner's own stays: {listed:?}");
    assert!(listed[0]["state"] == "ready", "the owner's own stays: {listed:?}");
    assert_eq!(home.infer().1, 1);
}
