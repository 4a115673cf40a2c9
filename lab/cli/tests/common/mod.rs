//! Runs `tacit lab`.
use std::path::Path;
use std::process::{Command, Output};

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn tacit_lab(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacit-lab"));
    command.current_dir(dir).env_remove("TACIT_MARKS").arg("lab").args(args).output().unwrap()
}

/// The standard output of a run that succeeds.
pub fn good(dir: &Path, args: &[&str]) -> String {
    let output = tacit_lab(dir, args);
    assert!(output.status.success(), "tacit lab {args:?}: {}", text(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that a run fails, and that its error has all `words`.
#[track_caller]
pub fn bad(dir: &Path, args: &[&str], words: &[&str]) {
    let output = tacit_lab(dir, args);
    assert!(!output.status.success(), "tacit lab {args:?}: {output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!error.contains("panicked"), "{error}");
    for word in words {
        assert!(error.contains(word), "tacit lab {args:?}: {word:?} is not in: {error}");
    }
}
