//! Turns every error of the Rust side into `tacit.TacitError` with its message and those of its
//! causes. Conditions that are no errors but should be known become warnings.

use std::error::Error;
use std::ffi::CString;

use pyo3::exceptions::{PyException, PyUserWarning};
use pyo3::prelude::*;
use tacit_client::Answer;

pyo3::create_exception!(tacit, TacitError, PyException, "What went wrong inside tacit, and where.");

pyo3::create_exception!(
    tacit,
    AnswerRefused,
    TacitError,
    "The client takes no such answer; its connection is as good as before."
);

/// Makes the Python exception for a Rust error: its message, then those of its causes unless
/// already quoted.
pub fn to_python(error: impl Error) -> PyErr {
    TacitError::new_err(message(error))
}

pub fn refused(error: impl Error) -> PyErr {
    AnswerRefused::new_err(message(error))
}

fn message(error: impl Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    // Text of peers and files is escaped already; this also escapes the rest, because exceptions
    // are printed.
    tacit_foreign::text::lines(&message).into_owned()
}

/// Warns of each input that was too small for the model's steps.
pub fn warn_of_faint(py: Python<'_>, answers: &[Answer]) -> PyResult<()> {
    for faint in answers.iter().filter_map(|answer| answer.faint) {
        let text = CString::new(faint.to_string()).expect("it is a sentence and numbers");
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 2)?;
    }
    Ok(())
}
