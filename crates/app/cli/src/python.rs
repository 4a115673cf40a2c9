//! Finds a Python that has the modules of tacit's Python parts.
use anyhow::bail;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Exits with 0 if all named modules can be imported; prints those that cannot.
const PROBE: &str = "\
import importlib, sys
missing = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        missing.append(f'{name} cannot be imported ({error})')
print('; '.join(missing))
sys.exit(bool(missing))";

const INTERPRETER: &str = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };

/// Runs a Python that does not import from the current folder, which may belong to anyone.
pub fn isolated(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg("-P");
    command
}

/// Finds the first interpreter with these modules, which `extra` of a clone installs. The error
/// says what each interpreter lacks.
pub fn find(modules: &[&str], extra: &str) -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe().ok();
    let cwd = std::env::current_dir().ok();
    let mut lacking = String::new();
    for python in candidates(std::env::var_os("TACIT_PYTHON"), exe.as_deref(), cwd.as_deref()) {
        match probe(&python, modules) {
            Ok(()) => return Ok(python),
            Err(reason) => lacking.push_str(&format!("\n  {}: {reason}", python.display())),
        }
    }
    bail!(
        "this needs Python 3.11 or newer with {}; tried:{lacking}\n\
         In a clone of the repository: make python, or pip install '{extra}' into a Python of yours. TACIT_PYTHON chooses the interpreter.",
        modules.join(" and ")
    );
}

/// Returns `TACIT_PYTHON` alone if set; else the `.venv` of the repository around the binary or the
/// current folder, then the system's Python. A `.venv` must be ours: the binary may lie in a folder
/// that others can write to, and this process may run as root.
fn candidates(chosen: Option<OsString>, exe: Option<&Path>, cwd: Option<&Path>) -> Vec<PathBuf> {
    if let Some(chosen) = chosen.filter(|c| !c.is_empty()) {
        return vec![chosen.into()];
    }
    let around = exe.into_iter().flat_map(|e| e.ancestors().skip(1));
    let own_interpreters = around.chain(cwd).map(|p| p.join(".venv")).filter(|p| is_ours(p));
    let mut interpreters: Vec<PathBuf> = Vec::new();
    for python in own_interpreters.map(|p| p.join(INTERPRETER)).filter(|p| p.is_file()) {
        if !interpreters.contains(&python) {
            interpreters.push(python);
        }
    }
    interpreters.push("python3".into());
    interpreters
}

/// Whether a folder or link (not the link's target) belongs to this user or to root, and is not
/// writable by everyone.
fn is_ours(folder: &Path) -> bool {
    let me = rustix::process::geteuid().as_raw();
    folder
        .symlink_metadata()
        .is_ok_and(|m| (m.uid() == me || m.uid() == 0) && (m.is_symlink() || m.mode() & 0o002 == 0))
}

fn probe(python: &Path, modules: &[&str]) -> Result<(), String> {
    let output =
        isolated(python).args(["-c", PROBE]).args(modules).stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let message = if output.stdout.trim_ascii().is_empty() { output.stderr } else { output.stdout };
    let message = String::from_utf8_lossy(&message);
    Err(message.trim().lines().next_back().unwrap_or("failed without a message").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_only_a_chosen_interpreter() {
        let cwd = Path::new("/");
        assert_eq!(candidates(Some("/opt/py".into()), None, Some(cwd)), [PathBuf::from("/opt/py")]);
        assert_eq!(candidates(Some("".into()), None, None), [PathBuf::from("python3")]);
    }

    /// Makes a `.venv` with an interpreter; returns the interpreter.
    fn make_venv(root: &Path) -> PathBuf {
        let python = root.join(".venv").join(INTERPRETER);
        std::fs::create_dir_all(python.parent().expect("it has one")).expect("made");
        std::fs::write(&python, "").expect("written");
        python
    }

    #[test]
    fn tries_the_venv_beside_the_binary_before_the_systems_python() {
        let root = tempfile::tempdir().expect("a folder");
        let python = make_venv(root.path());
        let exe = root.path().join("target/release/tacit");
        assert_eq!(candidates(None, Some(&exe), Some(root.path())), [python, "python3".into()]);
    }

    #[test]
    fn skips_a_venv_that_others_may_write_to() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().expect("a folder");
        let (python, venv) = (make_venv(root.path()), root.path().join(".venv"));
        let mode = |mode| std::fs::set_permissions(&venv, std::fs::Permissions::from_mode(mode)).expect("changed");
        mode(0o755);
        let exe = root.path().join("bin/tacit");
        assert_eq!(candidates(None, None, Some(root.path())), [python, "python3".into()]);
        mode(0o777);
        assert_eq!(candidates(None, None, Some(root.path())), [PathBuf::from("python3")]);
        assert_eq!(candidates(None, Some(&exe), None), [PathBuf::from("python3")]);
        mode(0o755);
        if std::os::unix::fs::chown(&venv, Some(65_534), None).is_ok() {
            assert_eq!(candidates(None, None, Some(root.path())), [PathBuf::from("python3")]);
        } else {
            eprintln!("SKIPPED the part with another owner: only root may give folders away");
        }
    }

    #[test]
    fn explains_a_missing_interpreter() {
        let reason = probe(Path::new("/nonexistent/python"), &["tacit"]).expect_err("there is none");
        assert!(reason.to_lowercase().contains("no such file"), "{reason}");
    }
}
