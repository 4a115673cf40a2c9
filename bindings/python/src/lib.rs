//! The native half of the Python package `tacit`: converts arguments and errors only. The other
//! half is `python/tacit`.
#![forbid(unsafe_code)]

mod bench;
mod ckks;
mod client;
mod dealer;
mod error;
mod files;
mod interrupt;
mod lowered;
mod model;
mod server;

use error::TacitError;
use pyo3::prelude::{PyResult, Python, pymodule};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The module `tacit._tacit`.
#[pymodule]
mod _tacit {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::bench::{bench_client, bench_judge, bench_local, machine};
    #[pymodule_export]
    use crate::ckks::{
        CkksBootstrapper, CkksCiphertext, CkksContext, CkksKeys, CkksPolynomial, CkksSecret, CkksTransform,
    };
    #[pymodule_export]
    use crate::client::{Client, Notice, notify};
    #[pymodule_export]
    use crate::dealer::Dealer;
    #[pymodule_export]
    use crate::error::{AnswerRefused, TacitError};
    #[pymodule_export]
    use crate::lowered::{Lowered, backends_json, default_backend, lower_bound};
    #[pymodule_export]
    use crate::model::{Model, blank, normalise, refusals};
    #[pymodule_export]
    use crate::server::{Server, client_fingerprint, make_keys};

    /// numpy's interface for native code is looked up now: a lookup that a signal breaks off panics.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.py().import("numpy._core.multiarray")?;
        numpy::PyArray1::<f64>::zeros(module.py(), 0, false);
        Ok(())
    }
}

/// Locks what no panic leaves half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parse_listen(address: &str) -> PyResult<SocketAddr> {
    let parsed: Result<SocketAddr, _> = address.parse();
    parsed.map_err(|e| TacitError::new_err(format!("listen `{address}`: {e} (ADDRESS:PORT is needed)")))
}

/// Has `stop` end a program in this process, and waits for its thread. A second call does nothing.
fn stop_thread(
    py: Python<'_>,
    thread: &Mutex<Option<JoinHandle<()>>>,
    program: &'static str,
    stop: impl FnOnce() + Send + 'static,
) -> PyResult<()> {
    let Some(thread) = lock(thread).take() else { return Ok(()) };
    interrupt::brief(py, move || {
        stop();
        thread.join().map_err(|_| TacitError::new_err(format!("the {program}'s accepting thread panicked")))
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
