//! The folder of one run (its keys, its socket, the programs' working folder): gone when the run is over, and
//! gone if we are killed.
//!
//! Nothing of ours runs after a `SIGKILL`. So a shell, the keeper, waits for the end of a pipe that we hold,
//! as the first process of a link's side does. Then it kills the programs that bear the folder's name in
//! their environment, until there are none, and removes the folder. A program that is just starting holds our
//! end of the pipe until it bears the name, so none is missed.
use crate::LabError;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// What the environment of a run's programs names its folder by.
const RUN: &str = "TACIT_RUN";

/// Its arguments are what to look for in environments, and the folder. A dying program may still write there,
/// and one that cannot be killed is given up after some seconds.
const KEEPER: &str = "trap '' HUP INT TERM; read -r _; rounds=0; while [ $rounds -lt 100 ]; do \
    found=$(grep -lsF -- \"$1\" /proc/[0-9]*/environ); [ -n \"$found\" ] || break; \
    for file in $found; do file=${file%/environ}; kill -s KILL -- \"${file#/proc/}\"; done; \
    rounds=$((rounds + 1)); sleep 0.05; done; rm -rf -- \"$2\" || { sleep 1; rm -rf -- \"$2\"; }";

/// The folder; only its owner may look into it.
pub struct Scratch {
    dir: Option<TempDir>,
    keeper: Child,
}

impl Scratch {
    /// Makes the folder and starts its keeper.
    ///
    /// # Errors
    /// [`LabError::Io`] if the folder cannot be made, [`LabError::Failed`] if there is no shell.
    pub fn new() -> Result<Self, LabError> {
        let made = tempfile::Builder::new().prefix("tacit-run-").permissions(Permissions::from_mode(0o700)).tempdir();
        let dir = made.map_err(LabError::io(std::env::temp_dir()))?;
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "tacit-keeper"])
            .arg(format!("{RUN}={}", dir.path().display()))
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

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.as_ref().map_or(Path::new("/"), TempDir::path)
    }

    /// Has the keeper kill this program, and all that it starts, if we are gone.
    pub fn mark(&self, command: &mut Command) {
        command.env(RUN, self.path().display().to_string());
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The keeper last: until the folder is gone, somebody has to see to it.
        self.dir = None;
        _ = self.keeper.kill();
        _ = self.keeper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn soon(what: impl Fn() -> bool) -> bool {
        let until = Instant::now() + Duration::from_secs(60);
        while !what() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        what()
    }

    #[test]
    fn only_its_owner_sees_into_the_folder_and_it_goes_with_the_run() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("key"), "secret").unwrap();
        let keeper = scratch.keeper.id();
        drop(scratch);
        assert!(!path.exists() && !Path::new(&format!("/proc/{keeper}")).exists());
    }

    #[test]
    fn when_the_pipe_ends_programs_and_folder_go_and_those_of_others_are_left_alone() {
        let mut scratch = Scratch::new().unwrap();
        let another = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("key"), "secret").unwrap();
        let sleeper = |of: &Scratch, script: &str| {
            let mut command = Command::new("sh");
            of.mark(&mut command);
            command.args(["-c", script]).process_group(0).stdout(Stdio::piped()).spawn().unwrap()
        };
        // Also what a program has started in a session of its own.
        let mut ours = sleeper(&scratch, "setsid sleep 1000 & echo; wait");
        let mut other = sleeper(&another, "exec sleep 1000");
        let mut pipe = ours.stdout.take().unwrap();
        std::io::Read::read_exact(&mut pipe, &mut [0]).unwrap();
        // What the kernel does when we are killed: the pipe is closed.
        drop(scratch.keeper.stdin.take());
        assert!(soon(|| !path.exists()), "the folder is removed");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ours.wait().unwrap()), Some(9));
        assert_eq!(std::io::Read::read(&mut pipe, &mut [0]).unwrap(), 0, "all that had its output have ended");
        assert!(other.try_wait().unwrap().is_none(), "it is another run's");
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
