//! Waiting for a measured process without losing its resource use.
use crate::MeterError;
use crate::sampler::Handle;
use std::process::{Child, ExitStatus};
use tacit_measure::usage::wait_until_ended;
use wait4::Wait4;

/// Waits for a child, takes a last sample of it while it is a zombie, reaps it, and reports the
/// kernel's totals for its whole life. The standard library does not notice the reaping: do not use
/// `child` afterwards.
///
/// # Errors
/// [`MeterError::io`] if the wait fails.
pub fn wait_sampled(sampler: &Handle, child: &mut Child) -> Result<ExitStatus, MeterError> {
    wait_until_ended(child.id())?;
    sampler.sample_now();
    let end = child.wait4().map_err(MeterError::io(format!("process {}", child.id())))?;
    sampler.ended(child.id(), end.rusage.utime, end.rusage.stime);
    Ok(end.status)
}
