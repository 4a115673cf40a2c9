//! Waiting for a measured process without losing its resource use.
use crate::MeterError;
use crate::sampler::Handle;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::process::{Child, ExitStatus};
use wait4::Wait4;

/// Waits until a child process has ended, without reaping it: its `/proc` entry stays, with all its
/// processor time.
///
/// # Errors
/// [`MeterError::Io`] if the process is no child of this process.
pub fn wait_ended(pid: u32) -> Result<(), MeterError> {
    let name = format!("process {pid}");
    let id = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| MeterError::Malformed { what: name.clone(), detail: "is no process id".into() })?;
    loop {
        match waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(MeterError::io(name)(error.into())),
        }
    }
}

/// Waits for a child, takes a last sample of it while it is a zombie, reaps it, and gives the
/// sampler the kernel's totals for its whole life, to the microsecond. The standard library does
/// not notice the reaping: do not use `child` afterwards.
///
/// # Errors
/// [`MeterError::Io`] if the wait fails.
pub fn wait_sampled(sampler: &Handle, child: &mut Child) -> Result<ExitStatus, MeterError> {
    wait_ended(child.id())?;
    sampler.sample_now();
    let end = child.wait4().map_err(MeterError::io(format!("process {}", child.id())))?;
    sampler.ended(child.id(), end.rusage.utime, end.rusage.stime);
    Ok(end.status)
}
