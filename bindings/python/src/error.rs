//! Every error of the Rust side becomes `tacit.TacitError` with its message and the messages of its causes.

use std::error::Error;

use pyo3::PyErr;
use pyo3::exceptions::PyException;

pyo3::create_exception!(tacit, TacitError, PyException, "What went wrong inside tacit, and where.");

/// The Python exception for a Rust error: its message, then those of its causes unless already quoted.
pub fn to_python(error: impl Error) -> PyErr {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    TacitError::new_err(message)
}
