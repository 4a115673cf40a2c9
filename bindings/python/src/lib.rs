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

use pyo3::prelude::pymodule;

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

/// Formats bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
