//! The native half of the Python package `tacit`: converts arguments and errors, nothing more. `python/tacit`
//! is the other half.
#![forbid(unsafe_code)]

mod bench;
mod client;
mod dealer;
mod error;
mod files;
mod interrupt;
mod lowered;
mod model;
mod server;

use pyo3::prelude::*;

/// The module `tacit._tacit`.
#[pymodule]
mod _tacit {
    #[pymodule_export]
    use crate::bench::{bench_client, bench_judge, bench_local, machine};
    #[pymodule_export]
    use crate::client::{Client, Notice, notify};
    #[pymodule_export]
    use crate::dealer::Dealer;
    #[pymodule_export]
    use crate::error::TacitError;
    #[pymodule_export]
    use crate::lowered::{Lowered, backends_json};
    #[pymodule_export]
    use crate::model::{Model, normalise};
    #[pymodule_export]
    use crate::server::{Server, make_keys};
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
