//! Running the program.
use std::path::Path;
use std::process::{Command, Output};

/// Models of the repository.
pub const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../models");

/// What the program says to these arguments.
pub fn tacit(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tacit")).current_dir(dir).args(args).output().unwrap()
}

/// Runs a command that must succeed; returns its standard output.
pub fn good(dir: &Path, args: &[&str]) -> String {
    let output = tacit(dir, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "tacit {args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}
