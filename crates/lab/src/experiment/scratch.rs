//! The folder of one run (its keys, its socket, the programs' working folder): gone when the run is over, and
//! gone if we are killed.
//!
//! Nothing of ours runs after a `SIGKILL`. So a shell, the keeper, waits for the end of a pipe that we hold,
//! as the first process of a link's side does. Then it kills the programs that run on this host (those on a
//! link go with their namespace) and removes the folder.
use crate::LabError;
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Each line that it reads names all process groups there are now; its argument is the folder. A dying
/// program may still write there.
const KEEPER: &str = "trap '' HUP INT TERM; groups=; while read -r now; do groups=$now; done; \
    for group in $groups; do kill -s KILL -- \"-$group\"; done; rm -rf -- \"$1\" || { sleep 1; rm -rf -- \"$1\"; }";

/// The folder; only its owner may look into it.
pub struct Scratch {
    dir: Option<TempDir>,
    keeper: Child,
    wards: Wards,
}

impl Scratch {
    /// Makes the folder and starts its keeper.
    ///
    /// # Errors
    /// [`LabError::Io`] if the folder cannot be made, [`LabError::Failed`] if there is no shell.
    pub fn new() -> Result<Self, LabError> {
        let made = tempfile::Builder::new().prefix("tacit-run-").permissions(Permissions::from_mode(0o700)).tempdir();
        let dir = made.map_err(LabError::io(std::env::temp_dir()))?;
        let failed = |detail: String| LabError::Failed { step: "starting the keeper of a run's folder".into(), detail };
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "tacit-keeper"])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .map_err(|e| failed(e.to_string()))?;
        let pipe = keeper.stdin.take().ok_or_else(|| failed("it has no pipe".into()))?;
        let wards = Wards(Arc::new(Mutex::new((pipe, BTreeSet::new()))));
        Ok(Self { dir: Some(dir), keeper, wards })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.as_ref().map_or(Path::new("/"), TempDir::path)
    }

    /// For the programs of the run.
    #[must_use]
    pub fn wards(&self) -> &Wards {
        &self.wards
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

/// The process groups that the keeper kills if we are gone.
#[derive(Clone)]
pub struct Wards(Arc<Mutex<(ChildStdin, BTreeSet<u32>)>>);

impl Wards {
    /// Adds a group, for as long as the result lives.
    #[must_use]
    pub fn add(&self, group: u32) -> Ward {
        self.change(|groups| groups.insert(group));
        Ward { wards: self.clone(), group }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<u32>) -> bool) {
        let Ok(mut held) = self.0.lock() else { return };
        let (pipe, groups) = &mut *held;
        change(groups);
        let all: Vec<String> = groups.iter().map(ToString::to_string).collect();
        // Without its keeper a run is as good, as long as nobody kills us.
        _ = pipe.write_all(format!("{}\n", all.join(" ")).as_bytes());
    }
}

/// A program that the keeper knows of.
pub struct Ward {
    wards: Wards,
    group: u32,
}

impl Drop for Ward {
    fn drop(&mut self) {
        self.wards.change(|groups| groups.remove(&self.group));
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

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").process_group(0).spawn().unwrap()
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
    fn when_the_pipe_ends_programs_and_folder_go_and_those_that_had_ended_are_left_alone() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("key"), "secret").unwrap();
        let (mut ours, mut other) = (sleeper(), sleeper());
        let ward = scratch.wards().add(ours.id());
        drop(scratch.wards().add(other.id()));
        // What the kernel does when we are killed: the pipe is closed.
        let other_pipe = Command::new("true").stdin(Stdio::piped()).spawn().unwrap().stdin.take().unwrap();
        drop(std::mem::replace(&mut scratch.wards.0.lock().unwrap().0, other_pipe));
        assert!(soon(|| !path.exists()), "the folder is removed");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ours.wait().unwrap()), Some(9));
        assert!(other.try_wait().unwrap().is_none(), "it was no ward any more");
        other.kill().unwrap();
        other.wait().unwrap();
        drop(ward);
    }
}
