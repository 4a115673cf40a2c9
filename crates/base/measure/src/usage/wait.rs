//! Waiting for a process without losing its resource use.
use crate::MeasureError;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Waits until a child process has ended, without reaping it: its `/proc` entry stays, with all its
/// processor time.
///
/// # Errors
/// [`MeasureError::Io`] if the process is no child of this process.
pub fn wait_until_ended(pid: u32) -> Result<(), MeasureError> {
    let name = format!("process {pid}");
    let id = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| MeasureError::Malformed { what: name.clone(), detail: "is no process id".into() })?;
    loop {
        match waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(MeasureError::io(name)(error.into())),
        }
    }
}
