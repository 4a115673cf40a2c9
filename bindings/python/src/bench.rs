//! The parts of a benchmark: the client's runs, their comparison with the model's reference, and
//! the float model run in this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use serde_json::json;
use tacit_backends::Registry;
use tacit_client::ClientConfig;
use tacit_client::bench::{self, ClientRun};
use tacit_graph::Units;
use tacit_measure::clock::process_cpu_s;
use tacit_measure::usage::high_water_bytes;
use tacit_store::keys;

use crate::dealer::{Pinned, pin};
use crate::error::to_python;
use crate::interrupt::brief;
use crate::lowered::Lowered;
use crate::model::Model;

/// Runs the client's side `runs` times, each with a connection and setup of its own; JSON of each run.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python function")]
pub fn bench_client(
    py: Python<'_>,
    address: String,
    keys: PathBuf,
    model: &str,
    backend: &str,
    input: PyReadonlyArray1<'_, f32>,
    threads: usize,
    runs: usize,
    dealer: Pinned,
) -> PyResult<Vec<String>> {
    let identity = keys::load_client(&keys, "client").map_err(to_python)?;
    let store = Some(keys.with_file_name("client-material"));
    let resources = tacit_client::resources(pin(&dealer)?, &identity, None).map_err(to_python)?;
    let config = ClientConfig { threads, store, resources, ..ClientConfig::new(&address, identity) };
    let input = input.as_slice()?.to_vec();
    let (model, backend) = (model.to_owned(), backend.to_owned());
    brief(py, move || {
        let registry = Registry::standard();
        let report = bench::client_runs(&registry, &config, &model, Some(&backend), Units::Normalised, &input, runs)
            .map_err(to_python)?;
        report.iter().map(|run| serde_json::to_string(run).map_err(to_python)).collect()
    })
}

/// Compares a client's run with the back end's reference on the same input; JSON in the form of
/// `tacit bench`.
#[pyfunction]
pub fn bench_judge(py: Python<'_>, lowered: &Lowered, run: &str, input: PyReadonlyArray1<'_, f32>) -> PyResult<String> {
    let run: ClientRun = serde_json::from_str(run).map_err(to_python)?;
    let (input, model) = (input.as_slice()?.to_vec(), Arc::clone(lowered.get()));
    brief(py, move || {
        let judged = bench::judge(&run, &*model, &input).map_err(to_python)?;
        serde_json::to_string(&judged).map_err(to_python)
    })
}

/// Runs the float model in this process; JSON of wall seconds, processor seconds and the peak of memory so
/// far.
#[pyfunction]
pub fn bench_local(py: Python<'_>, model: &Model, input: PyReadonlyArray1<'_, f32>) -> PyResult<String> {
    let (input, model) = (input.as_slice()?.to_vec(), Arc::clone(model.get()));
    brief(py, move || {
        let (start, cpu_s) = (Instant::now(), process_cpu_s());
        model.run(&input).map_err(to_python)?;
        let (wall_s, cpu_s) = (start.elapsed().as_secs_f64(), process_cpu_s() - cpu_s);
        let peak_rss_bytes = high_water_bytes(Path::new("/proc/self")).unwrap_or(0);
        Ok(json!({"wall_s": wall_s, "cpu_s": cpu_s, "peak_rss_bytes": peak_rss_bytes}).to_string())
    })
}

/// Processor and core count of this machine.
#[pyfunction]
pub fn machine() -> String {
    bench::machine()
}
