//! The class `tacit._tacit.Client`: a connection with an open model.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use serde_json::{Value, json};
use tacit_serve::{Answer, ClientConfig, Lobby, PhaseReport, Prepared, ServeError};
use tacit_store::keys;

use crate::error::{TacitError, to_python};
use crate::{Engine, engine};

type Inner = tacit_serve::Client<Engine>;

/// A client of one model on one server.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct Client {
    inner: Mutex<Option<Inner>>,
    spec: String,
    digest: String,
}

impl Client {
    /// Works on the connection without holding the interpreter. A protocol that failed half way ends the connection.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Inner) -> Result<T, ServeError> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let mut guard = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let client = guard.as_mut().ok_or_else(|| TacitError::new_err("this client is closed"))?;
            let result = work(client);
            if matches!(&result, Err(e) if ends_connection(e)) {
                *guard = None;
            }
            result.map_err(to_python)
        })
    }
}

/// Errors after which both parties are out of step.
fn ends_connection(error: &ServeError) -> bool {
    matches!(error, ServeError::Net(_) | ServeError::Engine(_) | ServeError::Unexpected { .. })
}

#[pymethods]
impl Client {
    /// Connects and opens a model; the only one on offer if `model` is none.
    #[staticmethod]
    #[pyo3(signature = (address, keys, identity, server_name, model, store, threads, timeout_s))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python function")]
    fn connect(
        py: Python<'_>,
        address: String,
        keys: PathBuf,
        identity: &str,
        server_name: Option<String>,
        model: Option<String>,
        store: Option<PathBuf>,
        threads: usize,
        timeout_s: f64,
    ) -> PyResult<Self> {
        let identity = keys::load_client(&keys, identity).map_err(to_python)?;
        let stall_timeout = Duration::try_from_secs_f64(timeout_s).map_err(to_python)?;
        let config =
            ClientConfig { server_name, store, threads, stall_timeout, ..ClientConfig::new(&address, Some(identity)) };
        py.detach(|| {
            let mut lobby = Lobby::connect(engine(), config).map_err(to_python)?;
            let name = match model {
                Some(name) => name,
                None => only_model(&mut lobby)?,
            };
            let client = lobby.open(&name).map_err(to_python)?;
            let public = client.public();
            let spec = serde_json::to_string(public.graph.spec()).map_err(to_python)?;
            let digest = public.digest.iter().map(|b| format!("{b:02x}")).collect();
            Ok(Self { inner: Mutex::new(Some(client)), spec, digest })
        })
    }

    /// BLAKE3 of the model's public section, hexadecimal.
    #[getter]
    fn digest(&self) -> String {
        self.digest.clone()
    }

    /// The public specification as JSON.
    fn spec_json(&self) -> String {
        self.spec.clone()
    }

    /// Makes keys and base OTs unless this connection has them; the phase's figures as JSON, or none.
    fn setup(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let report = self.with(py, Inner::setup)?;
        Ok(report.map(|r| phase(&r).to_string()))
    }

    /// Makes and stores material for one input; its facts as JSON.
    fn prepare(&self, py: Python<'_>) -> PyResult<String> {
        let made = self.with(py, Inner::prepare)?;
        Ok(prepared(&made).to_string())
    }

    /// Number of stored materials that are ready at both parties.
    fn ready(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |c| Ok(c.stored()?.len()))
    }

    /// Answers one flat input; the answer and its cost as JSON.
    fn infer(&self, py: Python<'_>, input: PyReadonlyArray1<'_, f32>) -> PyResult<String> {
        let input = input.as_slice()?.to_vec();
        let got = self.with(py, move |c| c.infer(&input))?;
        Ok(answer(&got).to_string())
    }

    /// Says goodbye; a second call does nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let client = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
            // A peer that is gone already needs no goodbye.
            let _ = client.map(Inner::close);
        });
    }
}

fn only_model(lobby: &mut Lobby<Engine>) -> PyResult<String> {
    let models = lobby.models().map_err(to_python)?;
    match models.as_slice() {
        [one] => Ok(one.name.clone()),
        many => {
            let names: Vec<_> = many.iter().map(|m| m.name.as_str()).collect();
            Err(TacitError::new_err(format!("the server offers several models, choose one: {}", names.join(", "))))
        }
    }
}

fn phase(report: &PhaseReport) -> Value {
    json!({ "client": report.client, "server": report.server })
}

fn prepared(made: &Prepared) -> Value {
    json!({
        "id": made.id.to_string(),
        "offline": phase(&made.offline),
        "material_bytes": { "client": made.bytes[0], "server": made.bytes[1] },
    })
}

fn answer(got: &Answer) -> Value {
    json!({
        "values": got.values,
        "integers": got.integers,
        "class": got.class,
        "online": phase(&got.online),
        "setup": got.setup.as_ref().map(phase),
        "prepared": got.prepared.as_ref().map(prepared),
    })
}
