//! Starts and stops a server.
use crate::accept::access::Rules;
use crate::accept::edge;
use crate::config::MAX_POOLED;
use crate::jobs::driver::{Driver, DriverParts};
use crate::jobs::event::Event;
use crate::jobs::gate::{Gate, burn_revoked};
use crate::jobs::warm;
use crate::models::source::{AskReload, Reloaded, Source};
use crate::ops::metrics::Metrics;
use crate::ops::monitor;
use crate::ops::published::Published;
use crate::ops::record::Record;
use crate::ops::reload;
use crate::ops::signals::StopSignals;
use crate::ops::state::{Retention, State};
use crate::ops::traces::Traces;
use crate::session::spools::Spools;
use crate::shared::{self, ServingTls, Shared};
use crate::{Catalog, ServeError, ServerConfig};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tacit_admission::Admission;
use tacit_client::MAX_THREADS;
use tacit_client::measure::Marks;
use tacit_net::NetError;
use tacit_store::{Party, Store};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::sync::{oneshot, watch};

/// Threads that run the asynchronous code of connections.
const EDGE_THREADS: usize = 2;
/// Blocking threads beyond one per client and one per dealing, for connections that close.
const SPARE_WORKERS: usize = 8;
/// How long an idle blocking thread waits for another job.
const KEEP_WORKER: Duration = Duration::from_secs(2);
/// How long [`ServerHandle::shutdown`] waits beyond the grace.
const BEYOND_GRACE: Duration = Duration::from_secs(10);

/// Most connections in a handshake. Each takes a file descriptor and, once the peer has sent
/// something, another one and the state of the handshake.
const MAX_HANDSHAKE_SLOTS: usize = 1024;
const MIN_HANDSHAKE_SLOTS: u64 = 16;
/// File descriptors of a handshake slot.
const HANDSHAKE_FILES: u64 = 2;
/// File descriptors of a client with a job.
const CLIENT_FILES: u64 = 3;
const OTHER_FILES: u64 = 64;

/// Handshake slots beside `clients` clients and `single_file_uses` uses of one descriptor each (control
/// connections, halves in pools), if the process may open `limit` files.
fn handshake_slots(clients: usize, single_file_uses: usize, limit: Option<u64>) -> Result<usize, ServeError> {
    let besides = (single_file_uses as u64).saturating_add(OTHER_FILES + HANDSHAKE_FILES * MIN_HANDSHAKE_SLOTS);
    let needed = CLIENT_FILES.saturating_mul(clients as u64).saturating_add(besides);
    match limit {
        _ if clients == 0 => {
            Err(ServeError::Usage("a server for 0 clients at a time serves nobody: allow at least 1".into()))
        }
        None => Ok(MAX_HANDSHAKE_SLOTS),
        Some(limit) if limit >= needed => {
            let slots = MIN_HANDSHAKE_SLOTS + (limit - needed) / HANDSHAKE_FILES;
            Ok(MAX_HANDSHAKE_SLOTS.min(slots as usize))
        }
        Some(limit) => Err(ServeError::Usage(format!(
            "{clients} clients at a time may need {needed} open files, and this process may have {limit}: raise that (ulimit -n), or \
             allow at most {} clients",
            limit.saturating_sub(besides) / CLIENT_FILES
        ))),
    }
}

/// With a shorter queue, a flood of connections would crowd out clients.
const BACKLOG: u32 = 1024;

pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted server need not wait until the system has forgotten the last one's connections.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Names the address and the option in an error of listening.
pub(crate) fn listen_error(address: SocketAddr) -> impl Fn(io::Error) -> NetError {
    move |e| NetError::cannot_listen(address, "--listen", &e)
}

/// Checks the clock, then removes what has expired from the store.
fn settle(store: &Store, config: &ServerConfig) -> Result<(), ServeError> {
    if config.accept_clock {
        store.accept_clock()?;
    }
    store.check_clock()?;
    store.expire(config.expire)?;
    store.expire_uploads(config.expire)?;
    Ok(())
}

fn check(catalog: &Catalog, config: &ServerConfig) -> Result<(), ServeError> {
    if catalog.list().is_empty() {
        return Err(ServeError::Usage("a server needs at least one model".into()));
    }
    if !(1..=MAX_THREADS).contains(&config.threads) {
        return Err(ServeError::Usage(format!("threads of a job: {} is not from 1 to {MAX_THREADS}", config.threads)));
    }
    Ok(())
}

/// Limits the memory of all jobs to what this process may have, less what it holds.
fn keep_within_limits(config: &mut ServerConfig) {
    let job_memory = monitor::job_memory(config.job_memory);
    if job_memory < config.job_memory {
        config.job_memory = job_memory;
        tracing::info!("jobs may take {} MiB of memory together: what this process may have", job_memory >> 20);
    }
}

/// Opens the state that earlier runs have left and this run continues.
fn open_state(config: &ServerConfig, rules: &Rules) -> Result<State, ServeError> {
    let Some(dir) = &config.store else {
        match rules.have_quotas() {
            true => tracing::warn!(
                "without a folder (--material) no records are kept, and quotas begin anew with each start"
            ),
            false => tracing::info!("without a folder (--material) no records are kept: no audit, no learned times"),
        }
        return Ok(State::nowhere());
    };
    match State::open(dir, Retention { days: config.audit_days, bytes: config.audit_bytes }) {
        // Quotas must hold. A server without quotas runs even if its records cannot be written.
        Err(e) if !rules.have_quotas() => {
            tracing::error!("no records are kept: {e}");
            Ok(State::nowhere())
        }
        result => result,
    }
}

/// A server that listens; [`run`](Server::run) serves.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    driver: Driver,
    events: UnboundedReceiver<Event>,
    source: Option<Box<dyn Source>>,
    reload_requests: Receiver<AskReload>,
    stop: watch::Receiver<bool>,
    published: Arc<Published>,
}

/// A handle that stops or reloads a running server from any thread.
#[derive(Clone)]
pub struct ServerHandle {
    shared: Weak<Shared>,
    events: UnboundedSender<Event>,
    published: Arc<Published>,
}

impl Server {
    /// Binds the address and opens the material store.
    ///
    /// # Errors
    /// If the address is taken, the store is unusable, the catalog is empty, or threads cannot be
    /// started.
    pub fn bind(catalog: Catalog, mut config: ServerConfig) -> Result<Self, ServeError> {
        check(&catalog, &config)?;
        keep_within_limits(&mut config);
        // There are control connections of clients, and as many of operators.
        let single_file_uses = 2 * config.max_control + if config.has_pools() { MAX_POOLED } else { 0 };
        let slots = handshake_slots(config.max_connections, single_file_uses, getrlimit(Resource::Nofile).current)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(EDGE_THREADS)
            .max_blocking_threads(config.max_connections + config.dealings + SPARE_WORKERS)
            .thread_keep_alive(KEEP_WORKER)
            .thread_name("tacit-serve")
            .enable_all()
            .build()
            .map_err(ServeError::system("starting the server's threads"))?;
        let listener = runtime.block_on(async { listen(config.listen) }).map_err(listen_error(config.listen))?;
        let address = listener.local_addr().map_err(listen_error(config.listen))?;
        let store = config.store.as_deref();
        let store = store.map(|dir| Store::open(dir, Party::Server, config.seal.clone())).transpose()?.map(Arc::new);
        if let Some(store) = &store {
            settle(store, &config)?;
            config.resources.spools = Some(Arc::new(Spools(Arc::clone(store))));
        }
        let (sender, events) = unbounded_channel();
        let (stopper, stop) = watch::channel(false);
        let published = Arc::new(Published::default());
        let metrics = Arc::new(Metrics::new());
        let rules = reload::read_rules(config.access.as_deref(), &catalog)?;
        if let Some(store) = &store {
            burn_revoked(store, |client| rules.rule_for(client).revoked)?;
        }
        let State { keeper, usage, learned, quotas } = open_state(&config, &rules)?;
        let traces = config.traces.clone().map_or_else(|| Ok(Traces::default()), Traces::start)?;
        let record = Record::new(&catalog, metrics.clone(), keeper, traces);
        let (rules_sender, rules) = watch::channel(Arc::new(rules));
        let (catalog_sender, catalog) = watch::channel(Arc::new(catalog));
        let gate = Gate::new(rules_sender, catalog_sender, quotas);
        let observer = sender.clone();
        let admission = Admission::with_observer(shared::limits(&config, slots), move |kind| {
            // Fails only if the driver has ended.
            let _ = observer.send(Event::Refused { kind });
        });
        let parts = DriverParts {
            store: store.clone(),
            admission: admission.clone(),
            gate,
            record,
            learned,
            published: published.clone(),
            events: sender.clone(),
            stop: stopper,
        };
        let driver = Driver::new(&config, parts)?;
        let tls = watch::Sender::new(ServingTls::new(&config.tls, config.max_control));
        let marks = Marks::from_env("server");
        let (reloads, reload_requests) = channel(reload::MAX_WAITING_RELOADS);
        let shared =
            Shared { config, catalog, store, marks, rules, usage, tls, admission, reloads, metrics, events: sender };
        let shared = Arc::new(shared);
        Ok(Self { runtime, listener, address, shared, driver, events, source: None, reload_requests, stop, published })
    }

    /// The address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle to stop or reload the server.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        ServerHandle {
            shared: Arc::downgrade(&self.shared),
            events: self.shared.events.clone(),
            published: self.published.clone(),
        }
    }

    /// Stops the server on SIGINT or SIGTERM: jobs have `grace` to end. A second signal ends the
    /// grace.
    ///
    /// # Errors
    /// If the signals cannot be caught.
    pub fn stop_on_signals(&self, grace: Duration) -> Result<(), ServeError> {
        let _runtime = self.runtime.enter();
        let signals = StopSignals::catch()?;
        let events = self.shared.events.clone();
        self.runtime.spawn(signals.stop_on_arrival(grace, move |grace| {
            // Fails only if the driver has ended.
            let _ = events.send(Event::Stop { grace });
        }));
        Ok(())
    }

    /// Sets where a reload gets models and certificates from; without it, a reload reads access
    /// rules alone.
    #[must_use]
    pub fn reloading(mut self, source: impl Source + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Reloads on SIGHUP as [`ServerHandle::reload`] does. A SIGHUP that has arrived since
    /// [`Hangups::catch`] counts.
    pub fn reload_on(&self, Hangups(mut hangups): Hangups) {
        let reloads = self.shared.reloads.clone();
        self.runtime.spawn(async move {
            while hangups.recv().await.is_some() {
                // The answer goes to the log alone.
                if reloads.send(oneshot::channel().0).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Serves until the server is stopped and its connections have ended or were given up.
    pub fn run(self) {
        if !self.shared.config.strict_cores {
            let events = self.shared.events.clone();
            self.runtime.spawn(monitor::watch(move |load| events.send(Event::Load(load)).is_ok(), self.stop.clone()));
        }
        self.runtime.spawn(reload::serve(self.shared.clone(), self.source, self.reload_requests, self.stop.clone()));
        self.runtime.spawn(warm::watch(self.shared.clone(), self.stop.clone()));
        self.runtime.spawn(edge::accept(self.shared, self.listener, self.stop));
        self.runtime.block_on(self.driver.run(self.events));
        // A worker that is still running after its connection was cut is abandoned.
        self.runtime.shutdown_background();
    }
}

/// Receiver of SIGHUP. Once it exists, SIGHUP does not end the process.
pub struct Hangups(Signal);

impl Hangups {
    /// Starts catching SIGHUP. Call this before anything slow.
    ///
    /// # Errors
    /// If the signal cannot be caught.
    pub fn catch() -> Result<Self, ServeError> {
        // A signal that arrives before the server's runtime exists waits for it.
        let runtime =
            Builder::new_current_thread().enable_io().build().map_err(ServeError::system("catching signals"))?;
        let _entered = runtime.enter();
        signal(SignalKind::hangup()).map(Self).map_err(ServeError::system("catching signals"))
    }
}

impl ServerHandle {
    /// Reads the access file again; its rules hold from now on. Revoked clients are disconnected,
    /// and their material and uploads destroyed. Does nothing without such a file or after the
    /// server's end.
    ///
    /// # Errors
    /// [`ServeError::Access`]; the old rules still hold.
    pub fn reload_access(&self) -> Result<(), ServeError> {
        self.shared.upgrade().map_or(Ok(false), |shared| reload::access(&shared)).map(drop)
    }

    /// Reloads access file, certificates and models, and waits until the changes hold: new models
    /// are on offer, removed ones are withdrawn, running jobs continue. Must not be called from
    /// asynchronous code.
    ///
    /// # Errors
    /// [`ServeError::Reload`] says what is wrong. The faulty part stays as it was; all other
    /// changes hold.
    pub fn reload(&self) -> Result<Reloaded, ServeError> {
        let reloads = self.shared.upgrade().map(|shared| shared.reloads.clone()).ok_or_else(stopped)?;
        let (reply, answer) = oneshot::channel();
        reloads.blocking_send(reply).map_err(|_| stopped())?;
        drop(reloads);
        answer.blocking_recv().map_err(|_| stopped())?.map_err(ServeError::Reload)
    }

    /// Stops accepting, ends idle connections, cuts jobs that run longer than `grace`, and waits
    /// for all.
    pub fn shutdown(&self, grace: Duration) {
        if self.events.send(Event::Stop { grace }).is_ok() {
            self.published.wait_end(grace + BEYOND_GRACE);
        }
    }

    /// The number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.published.get().connections
    }

    /// Inputs answered since the start.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.published.get().served
    }
}

fn stopped() -> ServeError {
    ServeError::Reload("the server is being stopped".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_slots_are_what_open_files_allow() {
        for (clients, single_file_uses, limit, slots) in [
            (64, 0, None, Some(MAX_HANDSHAKE_SLOTS)),
            (64, 64, Some(1 << 20), Some(MAX_HANDSHAKE_SLOTS)),
            (64, 0, Some(1024), Some(384)),
            (64, 64, Some(1024), Some(352)),
            (0, 64, None, None),
            (usize::MAX, usize::MAX, Some(1024), None),
        ] {
            assert_eq!(
                handshake_slots(clients, single_file_uses, limit).ok(),
                slots,
                "{clients} clients, {single_file_uses} single"
            );
        }
        let error = handshake_slots(100_000, 0, Some(1024)).unwrap_err().to_string();
        assert!(error.contains("at most 309 clients"), "{error}");
        assert!(handshake_slots(309, 0, Some(1024)).is_ok());
    }
}
