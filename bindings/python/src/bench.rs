//! The two halves of a benchmark: the client's runs, and their judgement by who has the model.

use std::path::PathBuf;

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use tacit_backends::Backend;
use tacit_serve::ClientConfig;
use tacit_serve::bench::{self, ClientRun};
use tacit_store::keys;

use crate::engine;
use crate::error::to_python;
use crate::model::Model;

/// Runs the client's side `runs` times, each with a connection and setup of its own; JSON of each run. The input is the model's
/// integers.
#[pyfunction]
pub fn bench_client(
    py: Python<'_>,
    address: String,
    keys: PathBuf,
    model: &str,
    input: PyReadonlyArray1<'_, i64>,
    threads: usize,
    runs: usize,
) -> PyResult<Vec<String>> {
    let identity = keys::load_client(&keys, "client").map_err(to_python)?;
    let config = ClientConfig { threads, ..ClientConfig::new(&address, Some(identity)) };
    let input = input.as_slice()?.to_vec();
    py.detach(|| {
        let made = bench::client_runs(&engine(), &config, model, &input, runs).map_err(to_python)?;
        made.iter().map(|run| serde_json::to_string(run).map_err(to_python)).collect()
    })
}

/// Compares a client's run with the reference on the same input (integers); JSON in the form of `tacit bench`.
#[pyfunction]
pub fn bench_judge(py: Python<'_>, model: &Model, run: &str, input: PyReadonlyArray1<'_, i64>) -> PyResult<String> {
    let run: ClientRun = serde_json::from_str(run).map_err(to_python)?;
    let input = input.as_slice()?.to_vec();
    py.detach(|| {
        let engine = engine();
        let numerics = engine.numerics(&engine.compile(&model.file.graph).map_err(to_python)?);
        let judged = bench::judge(&run, &model.file, &input, numerics).map_err(to_python)?;
        serde_json::to_string(&judged).map_err(to_python)
    })
}

/// Processor and core count of this machine.
#[pyfunction]
pub fn machine() -> String {
    bench::machine()
}
