//! The native half of the Python package `tacit`: converts arguments and errors, nothing more. `python/tacit` is the other half.
#![forbid(unsafe_code)]

mod error;
mod model;

use pyo3::prelude::*;

/// The module `tacit._tacit`.
#[pymodule]
mod _tacit {
    #[pymodule_export]
    use crate::error::TacitError;
    #[pymodule_export]
    use crate::model::Model;
}
