//! A dealer on a thread of this process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pyo3::prelude::*;
use tacit_backends::Registry;
use tacit_ids::ClientId;
use tacit_serve::{DealerConfig, DealerHandle, DealerServer};
use tacit_store::keys;

use crate::error::to_python;
use crate::interrupt::brief;
use crate::{parse_listen, stop_thread};

/// A dealer's address and the fingerprint of its certificate.
pub type Pinned = Option<(String, String)>;

/// Parses the fingerprint in `pinned`.
pub fn pin(pinned: &Pinned) -> PyResult<Option<(&str, ClientId)>> {
    let parsed = pinned.as_ref().map(|(address, pin)| Ok((address.as_str(), pin.parse().map_err(to_python)?)));
    parsed.transpose()
}

/// A running dealer.
#[pyclass(frozen, module = "tacit._tacit")]
pub struct Dealer {
    address: SocketAddr,
    pin: ClientId,
    handle: DealerHandle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[pymethods]
impl Dealer {
    /// Deals on `listen`, with the keys in the folder `keys`, which is made if `make_keys` asks for it, and
    /// its numbers in the file `numbers`.
    #[staticmethod]
    #[pyo3(signature = (listen, keys, numbers, make_keys))]
    fn start(py: Python<'_>, listen: &str, keys: PathBuf, numbers: PathBuf, make_keys: bool) -> PyResult<Self> {
        let listen = parse_listen(listen)?;
        let (dealer, pin) = brief(py, move || {
            if make_keys {
                keys::init(&keys, &[], &["client".into()]).map_err(to_python)?;
                keys::add_dealer(&keys, &[]).map_err(to_python)?;
            }
            let config = DealerConfig::new(listen, keys::load_dealer(&keys).map_err(to_python)?, numbers);
            let dealer = DealerServer::bind(Registry::standard(), config).map_err(to_python)?;
            Ok::<_, PyErr>((dealer, keys::dealer_pin(&keys).map_err(to_python)?))
        })?;
        let (address, handle) = (dealer.address(), dealer.handle());
        let thread = thread::Builder::new().name("tacit-dealer".into()).spawn(move || dealer.run());
        Ok(Self { address, pin, handle, thread: Mutex::new(Some(thread.map_err(to_python)?)) })
    }

    /// `host:port` it listens on.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }

    /// Fingerprint of its certificate.
    #[getter]
    fn pin(&self) -> String {
        self.pin.to_string()
    }

    /// Ends the dealer. A second call does nothing.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.handle.clone();
        stop_thread(py, &self.thread, "dealer", move || handle.stop(Duration::ZERO))
    }
}
