//! The front of a cluster: tells clients of the CA which server answers them, and servers whom to admit. HTTP
//! with certificates of both sides; no input, answer, key or material passes it.
//!
//! ```text
//!   client --- POST /v1/place ---> front <--- POST /v1/nodes/NAME/renew --- node (an operator's certificate)
//! ```
//!
//! [`book`] has what it knows and promises, [`desk`] the clock and the waiting, [`routes`] what can be asked.
mod book;
mod desk;
mod placement;
mod report;
mod routes;

use crate::ServeError;
use crate::control::answer::Peer;
use crate::control::linger::Lingering;
use crate::control::places::Places;
use crate::control::pulse::Pulse;
use crate::control::{Until, exchange, turn_away};
use crate::greetings::{Greetings, Number};
use crate::known::authenticate;
use crate::server::listen;
use crate::signals::Ends;
use book::Book;
use desk::Desk;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tacit_ids::ClientId;
use tacit_net::{NetError, ServerTls};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, sleep_until};
use tokio_rustls::rustls;

/// Connections of those who are known.
const MOST_CONNECTIONS: usize = 4096;
/// Of one of them.
const MOST_OF_ONE: usize = 16;
/// Connections of one operator: its nodes'.
const MOST_OF_OPERATOR: usize = 2048;
/// Handshakes under way; beyond that the oldest gives way, so that strangers keep nobody out.
const MOST_GREETINGS: usize = 128;
const GREETING: Duration = Duration::from_secs(5);
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(120);
/// How long accepting pauses when the system has nothing left to accept with.
const PAUSE: Duration = Duration::from_millis(100);

/// How a front behaves.
#[derive(Clone)]
pub struct FrontConfig {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// TLS identity, and the CA whose clients and operators are answered.
    pub tls: ServerTls,
    /// How long a node may serve after it asked for its lease.
    pub lease: Duration,
    /// Answers of one client in a day (UTC), over all nodes; `None` as many as it likes.
    pub queries_per_day: Option<u64>,
    /// Nodes that a client with a large key set (`ckks`) may be sent to, at least 1.
    pub key_copies: usize,
    /// Clients that are sent nowhere.
    pub banned: BTreeSet<ClientId>,
    /// Name in the nodes' certificates, where it is not that of their addresses; clients are told.
    pub server_name: Option<String>,
}

/// What all connections use.
struct Shared {
    tls: Arc<rustls::ServerConfig>,
    greetings: Mutex<Greetings<oneshot::Sender<()>>>,
    clients: Mutex<Places>,
    operators: Mutex<Places>,
    router: axum::Router,
    stop: watch::Receiver<bool>,
}

/// A front that listens.
pub struct Front {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    stopper: watch::Sender<bool>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Front {
    /// Listens. Nobody is placed for a lease from now on: nodes of an earlier front may still serve.
    ///
    /// # Errors
    /// The address is taken; threads cannot be started.
    pub fn bind(config: FrontConfig) -> Result<Self, ServeError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServeError::system("starting the front"))?;
        let failed = |e| NetError::from_io(format!("listening on {}", config.listen), &e);
        let listener = runtime.block_on(async { listen(config.listen) }).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let book = Book::new(config.lease, config.queries_per_day, config.key_copies.max(1));
        let desk = Desk::new(book, config.banned);
        let (stopper, stop) = watch::channel(false);
        let shared = Shared {
            tls: config.tls.with_http(),
            greetings: Mutex::new(Greetings::new(MOST_GREETINGS)),
            clients: Mutex::new(Places::new(MOST_CONNECTIONS, MOST_OF_ONE)),
            operators: Mutex::new(Places::new(MOST_CONNECTIONS, MOST_OF_OPERATOR)),
            router: routes::router(desk, config.server_name),
            stop,
        };
        Ok(Self { runtime, listener, address, shared: Arc::new(shared), stopper })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it on SIGINT or SIGTERM; nodes end with their leases, if no other front comes.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub fn stop_on_signals(&self) -> Result<(), ServeError> {
        let _runtime = self.runtime.enter();
        let (ends, stopper) = (Ends::catch()?, self.stopper.clone());
        self.runtime.spawn(ends.heed(Duration::ZERO, move |_| {
            // A front that has ended hears nothing.
            let _ = stopper.send(true);
        }));
        Ok(())
    }

    /// Answers until it is stopped. One thread does: a request is a look into a table.
    pub fn run(self) {
        self.runtime.block_on(accept(self.shared, self.listener));
        // Answers under way are said.
        self.runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let mut stop = shared.stop.clone();
    for number in 0.. {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let ticket = enter(&shared, number, address).await;
                let shared = shared.clone();
                tokio::spawn(async move {
                    if let Err(e) = connection(&shared, number, (stream, address), ticket).await {
                        tracing::debug!("the connection from {address}: {e}");
                    }
                });
            }
            Err(e) => {
                // Connections that close make room.
                tracing::error!("accepting a connection: {e}");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Waits for a place among those who greet. What comes back ends with an error when the greeting has to give
/// way.
async fn enter(shared: &Shared, number: Number, from: SocketAddr) -> oneshot::Receiver<()> {
    loop {
        let now = Instant::now();
        let room = locked(&shared.greetings).make_room(now);
        match room {
            // Whoever gave way is gone with what ended it.
            Ok(_) => {
                let (end, ticket) = oneshot::channel();
                locked(&shared.greetings).enter(number, from.ip(), now, end);
                return ticket;
            }
            Err(at) => sleep_until(at.into()).await,
        }
    }
}

/// A connection from its first byte to its end.
async fn connection(
    shared: &Shared,
    number: Number,
    (stream, address): (TcpStream, SocketAddr),
    ticket: oneshot::Receiver<()>,
) -> Result<(), ServeError> {
    let known = tokio::select! {
        biased;
        known = authenticate(shared.tls.clone(), (stream, address), Instant::now() + GREETING) => known,
        _ = ticket => return Ok(()),
    };
    locked(&shared.greetings).leave(number);
    let known = known?;
    if !known.speaks_http()? {
        return Err(NetError::Tls("a front is spoken to in HTTP".into()).into());
    }
    let peer = Peer { client: known.who.0, role: known.role };
    let mut stream = Lingering::new(known.stream);
    let places = if peer.is_operator() { &shared.operators } else { &shared.clients };
    let entered = locked(places).enter(number, peer.client);
    if let Err(reason) = entered {
        turn_away(&mut stream, "503 Service Unavailable", reason).await;
        return Ok(());
    }
    let _left = Left { places, number };
    let until = Until { idle: IDLE, stop: shared.stop.clone() };
    exchange(shared.router.clone(), stream, peer, Arc::new(Pulse::new()), until).await;
    Ok(())
}

/// Gives a place back.
struct Left<'a> {
    places: &'a Mutex<Places>,
    number: Number,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        locked(self.places).leave(self.number);
    }
}
