//! The server: accepts clients, a thread each; what one of them does wrong ends its own session only.
use crate::catalog::Served;
use crate::measure::Marks;
use crate::pool::Pool;
use crate::session::serve_connection;
use crate::{Catalog, Engine, ModelInfo, ServeError};
use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tacit_net::{Rate, ServerTls};
use tacit_store::Store;

/// Connections that may be greeting at the same time. They take no client's place: whoever has no certificate cannot lock clients out
/// for longer than a greeting may take.
const GREETING: usize = 64;

/// How a server behaves.
#[derive(Clone)]
pub struct ServerConfig {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// TLS identity. `None` serves plain TCP, without encryption and without knowing who the client is: tests only.
    pub tls: Option<ServerTls>,
    /// Most bit/s that each connection's answers leave at; `None` as fast as the link takes them.
    pub pace: Option<Rate>,
    /// Folder of stored material; without one, clients cannot prepare ahead of a connection.
    pub store: Option<PathBuf>,
    /// Threads of each session's arithmetic.
    pub threads: usize,
    /// Connections served at the same time.
    pub max_connections: usize,
    /// How long a client may take to introduce itself.
    pub greeting_timeout: Duration,
    /// How long a client may make no progress inside a phase.
    pub stall_timeout: Duration,
    /// How long a client may be silent between requests.
    pub idle_timeout: Duration,
    /// Materials that one client may have in memory.
    pub memory_per_client: usize,
    /// Materials that one client may have on disk.
    pub stored_per_client: usize,
}

impl ServerConfig {
    /// Defaults for an address: one thread a session, 64 connections, 10 s to introduce, 2 min stall, 10 min idle, 4
    /// materials in memory and 256 on disk for each client.
    #[must_use]
    pub fn new(listen: SocketAddr, tls: Option<ServerTls>) -> Self {
        Self {
            listen,
            tls,
            pace: None,
            store: None,
            threads: 1,
            max_connections: 64,
            greeting_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(600),
            memory_per_client: 4,
            stored_per_client: 256,
        }
    }
}

/// What all sessions share.
pub(crate) struct Shared<E: Engine> {
    pub(crate) engine: E,
    pub(crate) config: ServerConfig,
    pub(crate) store: Option<Store>,
    pub(crate) pool: Pool<E>,
    catalog: Catalog<E>,
    stop: AtomicBool,
    served: AtomicU64,
    pub(crate) marks: Marks,
    /// Open connections by number, with what ends them.
    live: Mutex<HashMap<u64, Live>>,
    emptied: Condvar,
}

/// An open connection.
struct Live {
    /// Ends it from any thread.
    stream: TcpStream,
    /// Nothing runs: the client may ask, or not.
    idle: bool,
    /// The client is known and has a place.
    admitted: bool,
}

impl Live {
    fn cut(&self) {
        // Already closed is as good.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl<E: Engine> Shared<E> {
    pub(crate) fn model(&self, name: &str) -> Result<Arc<Served<E>>, ServeError> {
        self.catalog.get(name)
    }

    pub(crate) fn models(&self) -> Vec<ModelInfo> {
        self.catalog.list()
    }

    /// Gives connection `number`, whose client is known now, a place if there is one.
    pub(crate) fn admit(&self, number: u64) -> bool {
        let mut live = self.live();
        let free = live.values().filter(|l| l.admitted).count() < self.config.max_connections;
        match live.get_mut(&number) {
            Some(connection) if free => connection.admitted = true,
            _ => return false,
        }
        true
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// One more inference was served.
    pub(crate) fn count_served(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes whether connection `number` waits for a request: a shutdown need not wait for those that do.
    pub(crate) fn set_idle(&self, number: u64, idle: bool) {
        if let Some(live) = self.live().get_mut(&number) {
            live.idle = idle;
        }
    }

    fn live(&self) -> MutexGuard<'_, HashMap<u64, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listening server.
pub struct Server<E: Engine> {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared<E>>,
}

/// Ends a running server from another thread.
#[derive(Clone)]
pub struct ServerHandle<E: Engine> {
    address: SocketAddr,
    shared: Arc<Shared<E>>,
}

impl<E: Engine> Server<E> {
    /// Binds the address and opens the material store.
    ///
    /// # Errors
    /// The address is taken, the store is unusable, or the catalog is empty.
    pub fn bind(catalog: Catalog<E>, config: ServerConfig) -> Result<Self, ServeError> {
        if catalog.list().is_empty() {
            return Err(ServeError::Usage("a server needs at least one model".into()));
        }
        let name = |e| tacit_net::NetError::from_io(format!("listening on {}", config.listen), &e);
        let listener = TcpListener::bind(config.listen).map_err(name)?;
        let address = listener.local_addr().map_err(name)?;
        let store = config.store.as_deref().map(|dir| Store::open(dir, None)).transpose()?;
        let shared = Shared {
            engine: catalog.engine().clone(),
            pool: Pool::new(config.memory_per_client),
            config,
            store,
            catalog,
            stop: AtomicBool::new(false),
            served: AtomicU64::new(0),
            marks: Marks::from_env("server"),
            live: Mutex::default(),
            emptied: Condvar::new(),
        };
        Ok(Self { listener, address, shared: Arc::new(shared) })
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle to end it.
    #[must_use]
    pub fn handle(&self) -> ServerHandle<E> {
        ServerHandle { address: self.address, shared: self.shared.clone() }
    }

    /// Serves until [`ServerHandle::shutdown`]. Sessions that run then are waited for by the caller of `shutdown`.
    pub fn run(&self) {
        for number in 0u64.. {
            let accepted = self.listener.accept();
            if self.shared.stopping() {
                return;
            }
            match accepted {
                Ok((stream, peer)) => {
                    if let Err(e) = self.start(number, stream) {
                        tracing::warn!(%peer, "connection not served: {e}");
                    }
                }
                Err(e) => {
                    // Out of file descriptors, say: existing sessions go on, and closing ones make room.
                    tracing::error!("accepting a connection: {e}");
                    thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    fn start(&self, number: u64, stream: TcpStream) -> Result<(), std::io::Error> {
        let mut live = self.shared.live();
        if live.values().filter(|l| !l.admitted).count() >= GREETING {
            return Err(std::io::Error::other("too many connections are greeting"));
        }
        live.insert(number, Live { stream: stream.try_clone()?, idle: false, admitted: false });
        drop(live);
        let guard = Registration { shared: self.shared.clone(), number };
        thread::Builder::new().name(format!("tacit-client-{number}")).spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| serve_connection(&guard.shared, stream, number)));
            match result {
                Ok(Ok(())) => tracing::info!(number, "client done"),
                Ok(Err(e)) => tracing::warn!(number, "session ended: {e}"),
                Err(_) => tracing::error!(number, "session panicked: this is a bug in tacit; other sessions go on"),
            }
        })?;
        Ok(())
    }
}

/// Keeps a connection in the list while its thread runs, however that ends.
struct Registration<E: Engine> {
    shared: Arc<Shared<E>>,
    number: u64,
}

impl<E: Engine> Drop for Registration<E> {
    fn drop(&mut self) {
        self.shared.live().remove(&self.number);
        self.shared.emptied.notify_all();
    }
}

impl<E: Engine> ServerHandle<E> {
    /// Stops accepting, ends idle sessions, lets the others finish their request for up to `grace`, then cuts the rest.
    pub fn shutdown(&self, grace: Duration) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; if this fails, the next client does.
        drop(TcpStream::connect_timeout(&self.address, Duration::from_secs(1)));
        self.shared.live().values().filter(|live| live.idle).for_each(Live::cut);
        self.wait_empty(grace);
        self.shared.live().values().for_each(Live::cut);
        self.wait_empty(Duration::from_secs(5));
    }

    /// Connections open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.live().len()
    }

    /// Inferences served since the start.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Relaxed)
    }

    fn wait_empty(&self, timeout: Duration) {
        let end = Instant::now() + timeout;
        let mut live = self.shared.live();
        while !live.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.emptied.wait_timeout(live, left);
            live = waited.map_or_else(|e| e.into_inner().0, |(guard, _)| guard);
        }
    }
}
