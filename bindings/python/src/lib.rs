//! The native half of the Python package `tacit`: converts arguments and errors, nothing more. `python/tacit` is the other half.
#![forbid(unsafe_code)]

mod bench;
mod client;
mod error;
mod model;
mod server;

use pyo3::prelude::*;
use tacit_backends::cheetah::Cheetah;

/// The back end behind the package.
type Engine = Cheetah;

fn engine() -> Engine {
    Cheetah::default()
}

/// The module `tacit._tacit`.
#[pymodule]
mod _tacit {
    #[pymodule_export]
    use crate::bench::{bench_client, bench_judge, machine};
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::error::TacitError;
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::server::{Server, make_keys};
}
