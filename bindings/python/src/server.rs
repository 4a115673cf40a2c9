//! The class `tacit._tacit.Server`, which runs a server on threads of this process; and key making.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pyo3::prelude::*;
use tacit_backends::Registry;
use tacit_serve::{Catalog, ServerConfig, ServerHandle};
use tacit_store::keys;

use crate::dealer::{Pinned, pin};
use crate::error::{TacitError, to_python};
use crate::interrupt::brief;
use crate::lowered::Lowered;
use crate::{files, parse_listen, stop_thread};

/// A running server.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct Server {
    address: SocketAddr,
    handle: ServerHandle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[pymethods]
impl Server {
    /// Serves models by name, each with one or several back ends, on `listen`, with the server keys in the
    /// folder `keys`. Material is sealed with the key that `seal` names. Back ends that show the server the
    /// input need `allow_clear`; with `accept_clock` the machine's clock is taken for right.
    #[staticmethod]
    #[pyo3(signature = (models, listen, keys, store, seal, dealer, threads, allow_clear, accept_clock))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python function")]
    fn start(
        py: Python<'_>,
        models: Vec<(String, Vec<Py<Lowered>>)>,
        listen: &str,
        keys: PathBuf,
        store: Option<PathBuf>,
        seal: Option<String>,
        dealer: Pinned,
        threads: usize,
        allow_clear: bool,
        accept_clock: bool,
    ) -> PyResult<Self> {
        let listen = parse_listen(listen)?;
        let tls = keys::load_server(&keys).map_err(to_python)?;
        let mut catalog = Catalog::new(allow_clear);
        let registry = Registry::standard();
        for (name, offers) in &models {
            for lowered in offers.iter().map(Py::get) {
                let backend = registry.get(lowered.backend_id()).map_err(to_python)?;
                catalog.offer(name, &**backend, lowered.get().clone()).map_err(to_python)?;
            }
        }
        let server = brief(py, move || {
            let seal = files::key(seal.as_deref())?;
            let mut config = ServerConfig { store, seal, threads, accept_clock, ..ServerConfig::new(listen, tls) };
            if let Some(dealer) = pin(&dealer)? {
                let identity = keys::load_client(&keys, keys::ORDERS).map_err(to_python)?;
                config.resources = tacit_client::resources(Some(dealer), &identity, None).map_err(to_python)?;
            }
            tacit_serve::Server::bind(catalog, config).map_err(to_python)
        })?;
        let (address, handle) = (server.address(), server.handle());
        let thread =
            thread::Builder::new().name("tacit-server".into()).spawn(move || server.run()).map_err(to_python)?;
        Ok(Self { address, handle, thread: Mutex::new(Some(thread)) })
    }

    /// `host:port` it listens on.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }

    /// Connections open now.
    #[getter]
    fn connections(&self) -> usize {
        self.handle.connections()
    }

    /// Inferences served since the start.
    #[getter]
    fn served(&self) -> u64 {
        self.handle.served()
    }

    /// Ends the server: running requests get `grace_s` seconds. A second call does nothing.
    fn stop(&self, py: Python<'_>, grace_s: f64) -> PyResult<()> {
        let grace = Duration::try_from_secs_f64(grace_s).map_err(to_python)?;
        let handle = self.handle.clone();
        stop_thread(py, &self.thread, "server", move || handle.shutdown(grace))
    }
}

/// The fingerprint by which a server knows the client with this certificate (DER).
#[pyfunction]
pub fn client_fingerprint(certificate: &[u8]) -> PyResult<String> {
    let fingerprint = keys::fingerprint(certificate).ok_or_else(|| TacitError::new_err("this is no certificate"))?;
    Ok(fingerprint.to_string())
}

/// Makes a CA, a server certificate and client certificates in a new folder.
#[pyfunction]
pub fn make_keys(py: Python<'_>, folder: PathBuf, hosts: Vec<String>, clients: Vec<String>) -> PyResult<()> {
    brief(py, move || keys::init(&folder, &hosts, &clients).map_err(to_python))
}
