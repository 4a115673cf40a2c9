//! The folder of one run (its keys, its socket, the programs' working folder). It is removed after
//! the run, and also if this process is killed.
//!
//! No code of this process runs after a `SIGKILL`. So a shell, the keeper, waits for the end of a
//! pipe from this process, as the first process of a link's side does. Then the keeper kills the
//! programs with the folder's name in their environment, until there are none, and removes the
//! folder. A starting program holds this end of the pipe until it has the name, so none is missed.
use crate::LabError;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const RUN_VARIABLE: &str = "TACIT_RUN";

/// The keeper's script. Arguments: the pattern for environments, and the folder. A dying program
/// may still write there; after some seconds the keeper gives up on a program that cannot be
/// killed.
const KEEPER_SCRIPT: &str = "trap '' HUP INT TERM; read -r _; rounds=0; while [ $rounds -lt 100 ]; do \
    found=$(grep -lsF -- \"$1\" /proc/[0-9]*/environ); [ -n \"$found\" ] || break; \
    for file in $found; do file=${file%/environ}; kill -s KILL -- \"${file#/proc/}\"; done; \
    rounds=$((rounds + 1)); sleep 0.05; done; rm -rf -- \"$2\" || { sleep 1; rm -rf -- \"$2\"; }";

/// The folder; only its owner can read it.
pub struct Scratch {
    dir: Option<TempDir>,
    keeper: Child,
}

impl Scratch {
    /// Creates the folder and starts its keeper.
    ///
    /// # Errors
    /// [`LabError::Io`] if the folder cannot be created, [`LabError::Failed`] if there is no shell.
    pub fn new() -> Result<Self, LabError> {
        let folder = tempfile::Builder::new().prefix("tacit-run-").permissions(Permissions::from_mode(0o700)).tempdir();
        let dir = folder.map_err(LabError::io(std::env::temp_dir()))?;
        let keeper = Command::new("sh")
            .args(["-c", KEEPER_SCRIPT, "tacit-keeper"])
            .arg(format!("{RUN_VARIABLE}={}", dir.path().display()))
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .map_err(LabError::failed("starting the keeper of a run's folder"))?;
        Ok(Self { dir: Some(dir), keeper })
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.as_ref().map_or(Path::new("/"), TempDir::path)
    }

    /// Lets the keeper kill this program and its descendants if this process ends.
    pub fn mark(&self, command: &mut Command) {
        command.env(RUN_VARIABLE, self.path().display().to_string());
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The keeper ends last, because it protects the folder until the removal.
        self.dir = None;
        _ = self.keeper.kill();
        _ = self.keeper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::soon;

    #[test]
    fn folder_is_private_and_removed_on_drop() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("key"), "secret").unwrap();
        let keeper = scratch.keeper.id();
        drop(scratch);
        assert!(!path.exists());
        assert!(!Path::new(&format!("/proc/{keeper}")).exists());
    }

    #[test]
    fn keeper_kills_programs_and_removes_the_folder() {
        let mut scratch = Scratch::new().unwrap();
        let another = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("key"), "secret").unwrap();
        let sleeper = |scratch: &Scratch, script: &str| {
            let mut command = Command::new("sh");
            scratch.mark(&mut command);
            command.args(["-c", script]).process_group(0).stdout(Stdio::piped()).spawn().unwrap()
        };
        // Includes programs in their own sessions.
        let mut own_child = sleeper(&scratch, "setsid sleep 1000 & echo; wait");
        let mut other_child = sleeper(&another, "exec sleep 1000");
        let mut pipe = own_child.stdout.take().unwrap();
        std::io::Read::read_exact(&mut pipe, &mut [0]).unwrap();
        // Simulates the kernel at a kill of this process: the pipe is closed.
        drop(scratch.keeper.stdin.take());
        assert!(soon(|| !path.exists()), "the folder is removed");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&own_child.wait().unwrap()), Some(9));
        assert_eq!(std::io::Read::read(&mut pipe, &mut [0]).unwrap(), 0, "all that had its output have ended");
        assert!(other_child.try_wait().unwrap().is_none(), "it is another run's");
        other_child.kill().unwrap();
        other_child.wait().unwrap();
    }
}
