//! The front of a cluster: tells clients of the CA which server answers them, and servers whom to admit. HTTP
//! with certificates of both sides; no input, answer, key or material passes it.
//!
//! ```text
//!   client --- POST /v1/place ---> front <--- POST /v1/nodes/NAME/renew --- node (an operator's certificate)
//! ```
//!
//! [`node_registry`] holds what the front knows and has promised, [`placement_service`] adds the clock and
//! the waiting, [`routes`] lists what can be asked.
mod counts;
mod node_registry;
mod placement;
mod placement_service;
mod report;
mod routes;

use crate::ServeError;
use crate::authentication::authenticate;
use crate::control::answer::Peer;
use crate::control::graceful_close::GracefulStream;
use crate::control::keepalive::Keepalive;
use crate::control::{Until, exchange, no_room, turn_away};
use crate::identity::CertificateIdentity;
use crate::kinds::{LATE, NO_HANDSHAKE, NO_ROOM, STRANGE};
use crate::server::listen;
use crate::signals::Ends;
use counts::Counts;
use node_registry::NodeRegistry;
use placement_service::PlacementService;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tacit_admission::{Admission, ConnectionSlot, Kind, Limits, PoolLimits, Turned, handshake_slots};
use tacit_ids::ClientId;
use tacit_net::{NetError, ServerTls};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};
use tokio_rustls::rustls;

/// Pools of connections: clients', and operators', whom clients keep out of nothing.
const CLIENTS: usize = 0;
const OPERATORS: usize = 1;
/// Connections of those who are known, by pool: an operator's are its nodes'.
const POOLS: [PoolLimits; 2] =
    [PoolLimits { connections: 4096, per_peer: 16 }, PoolLimits { connections: 4096, per_peer: 2048 }];
/// Handshakes under way; beyond that the oldest of the address that has most is evicted, so that strangers
/// keep nobody out.
const MAX_HANDSHAKES: usize = 1024;
/// How long a connection may say nothing from when it is accepted.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Open files for known peers that must be left beside handshakes, and for all else.
const OTHER_FILES: u64 = 512;
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(120);
/// How often it is looked whether the log is due.
const LOOK: Duration = Duration::from_secs(1);
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
    /// Folder where these are counted; without one, a front that is started anew begins at 0.
    pub state: Option<PathBuf>,
    /// Nodes that a client with a large key set (`ckks`) may be sent to, at least 1.
    pub key_copies: usize,
    /// Clients that are sent nowhere.
    pub banned: BTreeSet<ClientId>,
    /// Whether the clock is taken for right where it stands far from when that folder was last used.
    pub accept_clock: bool,
    /// Name in the nodes' certificates, where it is not that of their addresses; clients are told.
    pub server_name: Option<String>,
}

/// What all connections use.
struct Shared {
    tls: Arc<rustls::ServerConfig>,
    admission: Admission,
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

impl Front {
    /// Listens. Nobody is placed for a lease from now on: nodes of an earlier front may still serve.
    ///
    /// # Errors
    /// The address is taken; threads cannot be started; the folder of counts is none of a front's, or was
    /// last used at quite another time than the clock shows.
    pub fn bind(config: FrontConfig) -> Result<Self, ServeError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServeError::system("starting the front"))?;
        let failed = |e| NetError::listening(config.listen, "--listen", &e);
        let listener = runtime.block_on(async { listen(config.listen) }).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let registry = NodeRegistry::new(config.lease, config.queries_per_day, config.key_copies.max(1));
        let service = open_service(registry, &config)?;
        let (stopper, stop) = watch::channel(false);
        let shared = Shared {
            tls: config.tls.with_http(),
            admission: Admission::new(Limits {
                handshakes: handshake_slots(MAX_HANDSHAKES, 1, OTHER_FILES),
                handshake_timeout: HANDSHAKE,
                pools: POOLS.to_vec(),
            }),
            router: routes::router(service, config.server_name),
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

/// The service of a registry, with what an earlier front has counted.
fn open_service(registry: NodeRegistry, config: &FrontConfig) -> Result<PlacementService, ServeError> {
    let banned = config.banned.clone();
    match (&config.state, config.queries_per_day) {
        (Some(folder), Some(_)) => {
            let (counts, kept) = Counts::open(folder, config.accept_clock)?;
            Ok(PlacementService::new(registry.with_counts(kept), banned).counting_in(counts))
        }
        (None, Some(_)) => {
            tracing::warn!("without a folder (--state) the answers of the day are counted anew with each start");
            Ok(PlacementService::new(registry, banned))
        }
        (_, None) => Ok(PlacementService::new(registry, banned)),
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let mut stop = shared.stop.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            () = due(&shared.admission) => {
                shared.admission.sum_up();
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let slot = admitted(&shared.admission, address).await;
                let shared = shared.clone();
                tokio::spawn(async move {
                    if let Err(e) = connection(&shared, &slot, (stream, address)).await {
                        let detail = format!("the connection from {address}: {e}");
                        shared.admission.refused(Turned { kind: kind(&e), from: Some(address.ip()), detail });
                    }
                });
            }
            Err(e) => {
                // Connections that close make room.
                let detail = format!("accepting a connection: {e}");
                shared.admission.refused(Turned { kind: "that could not be accepted", from: None, detail });
                sleep(PAUSE).await;
            }
        }
    }
    shared.admission.close();
}

/// Waits until the log is due. What is counted meanwhile is looked at when the next connection comes, or in
/// a second.
async fn due(admission: &Admission) {
    loop {
        match admission.alarm() {
            Some(at) => return sleep_until(at.into()).await,
            None => sleep(LOOK).await,
        }
    }
}

/// A handshake slot, as soon as there is one.
async fn admitted(admission: &Admission, from: SocketAddr) -> ConnectionSlot {
    loop {
        match admission.admit(from.ip()) {
            Ok(slot) => return slot,
            Err(at) => sleep_until(at.into()).await,
        }
    }
}

/// What became of a connection, for the log.
fn kind(error: &ServeError) -> Kind {
    match error {
        ServeError::Net(NetError::Stalled { .. }) => LATE,
        ServeError::Net(NetError::Tls(_)) => NO_HANDSHAKE,
        ServeError::NotGranted(_) => NO_ROOM,
        _ => STRANGE,
    }
}

/// A connection from its first byte to its end.
async fn connection(
    shared: &Shared,
    slot: &ConnectionSlot,
    (stream, address): (TcpStream, SocketAddr),
) -> Result<(), ServeError> {
    let mut deadline = slot.deadline();
    let known = tokio::select! {
        biased;
        known = authenticate(shared.tls.clone(), (stream, address), &mut deadline) => known?,
        () = slot.evicted() => return Ok(()),
    };
    if !known.speaks_http()? {
        return Err(NetError::Tls("a front is spoken to in HTTP".into()).into());
    }
    let peer = Peer { client: known.who.0, role: known.role };
    let mut stream = GracefulStream::new(known.stream);
    if let Err(full) = slot.authenticate(if peer.is_operator() { OPERATORS } else { CLIENTS }, peer.client.0) {
        let reason = no_room(full);
        turn_away(&mut stream, "503 Service Unavailable", reason).await;
        let who = CertificateIdentity::of(known.who, known.role, known.name);
        return Err(ServeError::NotGranted(format!("{} {who}: {reason}", peer.role)));
    }
    let until = Until { idle: IDLE, stop: shared.stop.clone(), slot };
    exchange(shared.router.clone(), stream, peer, Arc::new(Keepalive::new()), until).await;
    Ok(())
}
