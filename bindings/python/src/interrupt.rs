//! Native calls that Ctrl-C ends.
//!
//! Python runs its signal handlers only between its own instructions, so a long native call would
//! delay them. The work therefore runs on a thread of its own, without the interpreter; meanwhile
//! the calling thread checks for signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use tacit_graph::Watch;

use crate::error::{TacitError, to_python};

/// How often the calling thread checks for signals.
const POLL: Duration = Duration::from_millis(50);

/// Runs `work` without holding the interpreter. At a signal whose handler raises (Ctrl-C), calls
/// `stop` and returns the exception at once. The work's thread ends when it notices, and its result
/// is dropped.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    stop: impl FnOnce(),
    work: impl FnOnce() -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    watched(py, stop, |_| Ok(()), work)
}

/// As [`interruptible`], and calls `look` at each check for signals and after the work has ended.
/// An exception in `look` interrupts the work as a signal does.
pub fn watched<T: Send + 'static>(
    py: Python<'_>,
    stop: impl FnOnce(),
    mut look: impl FnMut(Python<'_>) -> PyResult<()>,
    work: impl FnOnce() -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = mpsc::sync_channel(1);
    // After an interruption the receiver is gone, and sending fails.
    thread::Builder::new().name("tacit-call".into()).spawn(move || drop(sender.send(work()))).map_err(to_python)?;
    loop {
        let (received, returned_receiver) = py.detach(move || (receiver.recv_timeout(POLL), receiver));
        receiver = returned_receiver;
        match received {
            Ok(result) => return result.and_then(|result| look(py).map(|()| result)),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals().and_then(|()| look(py)) {
                    stop();
                    return Err(raised);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let text = "a native call panicked, see its message on standard error; that is a defect of tacit";
                return Err(TacitError::new_err(text));
            }
        }
    }
}

/// As [`interruptible`], for work that ends soon by itself.
pub fn brief<T: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> PyResult<T> + Send + 'static) -> PyResult<T> {
    interruptible(py, || {}, work)
}

/// Whether a call was interrupted.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns a watch that ends the work that holds it.
    pub fn watch(&self) -> Watch {
        let stop = self.clone();
        Watch::new(move |_| !stop.is_set())
    }
}
