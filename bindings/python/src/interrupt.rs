//! Native calls that Ctrl-C ends.
//!
//! Python runs its signal handlers between its own instructions only, so a long native call would be deaf to
//! them. The work therefore runs on a thread of its own, which holds nothing of the interpreter's, and the
//! calling thread looks for signals meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use tacit_graph::Watch;

use crate::error::{TacitError, to_python};

/// How often signals are looked for.
const POLL: Duration = Duration::from_millis(50);

/// Does `work` without holding the interpreter. At a signal whose handler raises (Ctrl-C), `stop` is called
/// and the exception returned at once; the work's thread ends when it notices, and its result is dropped.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    stop: impl FnOnce(),
    work: impl FnOnce() -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    watched(py, stop, |_| Ok(()), work)
}

/// As [`interruptible`], with a `look` at the work whenever signals are looked for, and when it has ended; if
/// that raises, it is as with a signal whose handler does.
pub fn watched<T: Send + 'static>(
    py: Python<'_>,
    stop: impl FnOnce(),
    mut look: impl FnMut(Python<'_>) -> PyResult<()>,
    work: impl FnOnce() -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = mpsc::sync_channel(1);
    // Nobody receives after an interruption.
    let call = move || drop(sender.send(work()));
    thread::Builder::new().name("tacit-call".into()).spawn(call).map_err(to_python)?;
    loop {
        let (received, back) = py.detach(move || (receiver.recv_timeout(POLL), receiver));
        receiver = back;
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
    /// Tells the work to end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the work should end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// A watch that ends the work it is given to.
    pub fn watch(&self) -> Watch {
        let stop = self.clone();
        Watch::new(move |_| !stop.is_set())
    }
}
