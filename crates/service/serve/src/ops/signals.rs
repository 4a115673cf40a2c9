//! The signals that end a program.
use crate::ServeError;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Catches the signals; needs a runtime.
    pub(crate) fn catch() -> Result<Self, ServeError> {
        Ok(Self {
            interrupt: catch_signal(SignalKind::interrupt())?,
            terminate: catch_signal(SignalKind::terminate())?,
        })
    }

    /// Calls `stop` with the time that running jobs still have: `grace` at the first signal, zero
    /// at the second.
    pub(crate) async fn stop_on_arrival(mut self, grace: Duration, stop: impl Fn(Duration)) {
        for grace in [grace, Duration::ZERO] {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            match grace.as_secs() {
                0 => tracing::warn!("stopping now: running jobs are cut off"),
                s => tracing::warn!("stopping: running jobs have {s} s to finish; a second signal cuts them off"),
            }
            stop(grace);
        }
    }
}

fn catch_signal(kind: SignalKind) -> Result<Signal, ServeError> {
    signal(kind).map_err(ServeError::system("catching signals"))
}
