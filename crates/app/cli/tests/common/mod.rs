//! Runs the program.
use crate::server;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Models of the repository.
pub const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../models");

pub fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacit"));
    command.current_dir(dir).args(args);
    command
}

pub fn tacit(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().unwrap()
}

/// Runs a command that must succeed; returns its standard output.
#[track_caller]
pub fn good(dir: &Path, args: &[&str]) -> String {
    let output = tacit(dir, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "tacit {args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command with `--json` that must succeed; returns the value of each line.
#[track_caller]
pub fn json_lines(dir: &Path, args: &[&str]) -> Vec<Value> {
    parse_lines(&good(dir, &[args, &["--json"]].concat()))
}

pub fn parse_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a command with `--json` that must succeed; returns the value of its output.
#[track_caller]
pub fn json(dir: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&good(dir, &[args, &["--json"]].concat())).unwrap()
}

/// Runs a command that must fail without a panic; returns its standard output and standard error.
#[track_caller]
pub fn run_failing(dir: &Path, args: &[&str]) -> (String, String) {
    let output = tacit(dir, args);
    let [stdout, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(!output.status.success(), "tacit {args:?}: {stdout} {error}");
    assert!(!error.contains("panicked"), "tacit {args:?}: {stdout} {error}");
    (stdout, error)
}

/// Runs a command that must fail; its standard error must contain these parts.
#[track_caller]
pub fn assert_fails(dir: &Path, args: &[&str], parts: &[&str]) {
    let (_, error) = run_failing(dir, args);
    for part in parts {
        assert!(error.contains(part), "tacit {args:?}: {part} is not in {error}");
    }
}

#[track_caller]
pub fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// A new folder, deleted when dropped.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Makes a folder with keys, the imported digits model and two samples.
    pub fn with_digits() -> Self {
        let dir = Self::new();
        assert_contains(&import_digits(&dir, &[]), &["agreement"]);
        good(&dir, &["keys", "init", "keys"]);
        let array = tacit_graph::npy::read(&fs::read(samples()).unwrap()).unwrap();
        fs::write(dir.join("two.npy"), tacit_graph::npy::write(&[2, 1, 8, 8], &array.data[..128])).unwrap();
        dir
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.path()
    }
}

pub fn samples() -> String {
    format!("{MODELS}/digits_samples.npy")
}

/// Imports the digits network with samples as `digits.tacit`; returns the report.
pub fn import_digits(dir: &Path, options: &[&str]) -> String {
    let (onnx, samples) = (format!("{MODELS}/digits.onnx"), samples());
    let import = ["model", "import", &onnx, "--calibrate", &samples, "-o", "digits.tacit"];
    good(dir, &[&import[..], options].concat())
}

/// A running program, killed when dropped.
pub struct Program {
    pub child: Child,
    pub address: String,
    dir: PathBuf,
}

impl Program {
    /// Starts a program that listens.
    pub fn start(dir: &Path, args: &[&str]) -> Self {
        server::ensure();
        let listening = ["--listen", "127.0.0.1:0", "--json"];
        let mut child = command(dir, args).args(listening).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        Self { child, address: line["listening"].as_str().unwrap().to_owned(), dir: dir.to_owned() }
    }

    /// Starts a server of the digits model.
    pub fn serve(dir: &Path) -> Self {
        Self::start(dir, &["serve", "digits.tacit", "--material", "srv"])
    }

    /// Adds the server's address to the arguments of a command.
    pub fn with_address<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        [args, &["--server", &self.address]].concat()
    }

    #[track_caller]
    pub fn good(&self, args: &[&str]) -> String {
        good(&self.dir, &self.with_address(args))
    }

    #[track_caller]
    pub fn json_lines(&self, args: &[&str]) -> Vec<Value> {
        json_lines(&self.dir, &self.with_address(args))
    }

    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        json(&self.dir, &self.with_address(args))
    }

    #[track_caller]
    pub fn run_failing(&self, args: &[&str]) -> (String, String) {
        run_failing(&self.dir, &self.with_address(args))
    }

    #[track_caller]
    pub fn assert_fails(&self, args: &[&str], parts: &[&str]) {
        let (_, error) = self.run_failing(args);
        for part in parts {
            assert!(error.contains(part), "tacit {args:?}: {part} is not in {error}");
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
