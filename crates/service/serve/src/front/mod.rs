//! The front of a cluster: directs clients of the CA to the server that answers them, and gives
//! servers the list of clients to admit. Both sides of its HTTP connections have certificates. No
//! input, answer, key or material passes the front.
//!
//! ```text
//!   client --- POST /v1/place ---> front <--- POST /v1/nodes/NAME/renew --- node (an operator's certificate)
//! ```
//!
//! [`node_registry`] holds the state, [`placement_service`] adds the clock and the waiting,
//! [`routes`] lists the requests.
mod counts;
mod node_registry;
mod placement;
mod placement_service;
mod report;
mod routes;

use crate::ServeError;
use crate::accept::authentication::authenticate;
use crate::accept::identity::CertificateIdentity;
use crate::control::answer::Peer;
use crate::control::graceful_close::GracefulStream;
use crate::control::keepalive::Keepalive;
use crate::control::{EndConditions, exchange, no_room, turn_away};
use crate::ops::signals::StopSignals;
use crate::server::{listen, listen_error};
use counts::Counts;
use node_registry::NodeRegistry;
use placement_service::PlacementService;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tacit_admission::{Admission, ConnectionSlot, Limits, PoolLimits, Refusal, handshake_slots};
use tacit_ids::ClientId;
use tacit_net::{NetError, ServerTls};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};
use tokio_rustls::rustls;

/// Pools of connections: one for clients, one for operators, so that clients cannot exhaust the
/// operators' slots.
const CLIENT_POOL: usize = 0;
const OPERATOR_POOL: usize = 1;
/// Connections of authenticated peers, by pool: nodes use the operators' pool.
const POOLS: [PoolLimits; 2] =
    [PoolLimits { connections: 4096, per_peer: 16 }, PoolLimits { connections: 4096, per_peer: 2048 }];
/// Beyond that, the oldest handshake of the address that has most is evicted, so that
/// unauthenticated peers cannot block others.
const MAX_HANDSHAKES: usize = 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Open files reserved for authenticated peers and everything else.
const OTHER_FILES: u64 = 512;
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// How often the front checks whether a log line is due.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long accepting pauses when the system is out of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Configuration of a front.
#[derive(Clone)]
pub struct FrontConfig {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// TLS identity, and the CA that signs clients and operators.
    pub tls: ServerTls,
    /// How long a node may serve after asking for its lease.
    pub lease: Duration,
    /// Answers of one client in a day (UTC), over all nodes; `None` for no limit.
    pub queries_per_day: Option<u64>,
    /// Folder for the counts of `queries_per_day`; without one, a restarted front begins at 0.
    pub state: Option<PathBuf>,
    /// Nodes that a client with a large key set (`ckks`) may be sent to, at least 1.
    pub key_copies: usize,
    /// Clients that are refused.
    pub banned: BTreeSet<ClientId>,
    /// Accepts a clock that is far from the last use of `state`.
    pub accept_clock: bool,
    /// Name in the nodes' certificates, where it differs from their addresses; passed on to
    /// clients.
    pub server_name: Option<String>,
}

struct Shared {
    tls: Arc<rustls::ServerConfig>,
    admission: Admission,
    router: axum::Router,
    stop: watch::Receiver<bool>,
}

/// A listening front.
pub struct Front {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    stopper: watch::Sender<bool>,
}

impl Front {
    /// Listens. Places no client for the length of a lease, because nodes of an earlier front may
    /// still serve.
    ///
    /// # Errors
    /// The address is taken; the runtime cannot be started; another program made the folder of
    /// counts, or the folder was last used far from the time that the clock shows.
    pub fn bind(config: FrontConfig) -> Result<Self, ServeError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServeError::system("starting the front"))?;
        let listener = runtime.block_on(async { listen(config.listen) }).map_err(listen_error(config.listen))?;
        let address = listener.local_addr().map_err(listen_error(config.listen))?;
        let registry = NodeRegistry::new(config.lease, config.queries_per_day, config.key_copies.max(1));
        let service = open_service(registry, &config)?;
        let (stopper, stop) = watch::channel(false);
        let shared = Shared {
            tls: config.tls.with_http(),
            admission: Admission::new(Limits {
                handshakes: handshake_slots(MAX_HANDSHAKES, 1, OTHER_FILES),
                handshake_timeout: HANDSHAKE_TIMEOUT,
                pools: POOLS.to_vec(),
            }),
            router: routes::router(service, config.server_name),
            stop,
        };
        Ok(Self { runtime, listener, address, shared: Arc::new(shared), stopper })
    }

    /// The address that the front listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the front on SIGINT or SIGTERM. Nodes stop when their leases end, unless another front
    /// starts.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub fn stop_on_signals(&self) -> Result<(), ServeError> {
        let _runtime = self.runtime.enter();
        let (signals, stopper) = (StopSignals::catch()?, self.stopper.clone());
        self.runtime.spawn(signals.stop_on_arrival(Duration::ZERO, move |_| {
            // Sending fails only if the front has ended.
            let _ = stopper.send(true);
        }));
        Ok(())
    }

    /// Serves until stopped. One thread is enough: a request is a table look-up.
    pub fn run(self) {
        self.runtime.block_on(accept(self.shared, self.listener));
        // Answers under way get a second to leave.
        self.runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

fn open_service(registry: NodeRegistry, config: &FrontConfig) -> Result<PlacementService, ServeError> {
    let banned = config.banned.clone();
    match (&config.state, config.queries_per_day) {
        (Some(folder), Some(_)) => {
            let (counts, stored) = Counts::open(folder, config.accept_clock)?;
            Ok(PlacementService::new(registry.with_counts(stored), banned).with_counts(counts))
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
                let slot = wait_for_slot(&shared.admission, address).await;
                let shared = shared.clone();
                tokio::spawn(async move {
                    if let Err(e) = serve_connection(&shared, &slot, stream, address).await {
                        let detail = format!("the connection from {address}: {e}");
                        shared.admission.count_refusal(Refusal {
                            kind: e.handshake_refusal_reason(),
                            from: Some(address.ip()),
                            detail,
                        });
                    }
                });
            }
            Err(e) => {
                // Closing connections free resources.
                let detail = format!("accepting a connection: {e}");
                shared.admission.count_refusal(Refusal { kind: "that could not be accepted", from: None, detail });
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    shared.admission.close();
}

/// Waits until a log line is due. Refusals counted meanwhile are noticed within [`POLL_INTERVAL`].
async fn due(admission: &Admission) {
    loop {
        match admission.alarm() {
            Some(time) => return sleep_until(time.into()).await,
            None => sleep(POLL_INTERVAL).await,
        }
    }
}

async fn wait_for_slot(admission: &Admission, address: SocketAddr) -> ConnectionSlot {
    loop {
        match admission.admit(address.ip()) {
            Ok(slot) => return slot,
            Err(retry_at) => sleep_until(retry_at.into()).await,
        }
    }
}

async fn serve_connection(
    shared: &Shared,
    slot: &ConnectionSlot,
    stream: TcpStream,
    address: SocketAddr,
) -> Result<(), ServeError> {
    let mut deadline = slot.deadline();
    let authenticated = tokio::select! {
        biased;
        authenticated = authenticate(shared.tls.clone(), stream, address, &mut deadline) => authenticated?,
        () = slot.wait_for_eviction() => return Ok(()),
    };
    if !authenticated.speaks_http()? {
        return Err(NetError::Tls("a front is spoken to in HTTP".into()).into());
    }
    let peer = Peer { client: authenticated.client, role: authenticated.role };
    let mut stream = GracefulStream::new(authenticated.stream);
    if let Err(full) = slot.authenticate(if peer.is_operator() { OPERATOR_POOL } else { CLIENT_POOL }, peer.client.0) {
        let reason = no_room(full);
        turn_away(&mut stream, "503 Service Unavailable", reason).await;
        let identity = CertificateIdentity::new(
            authenticated.client,
            authenticated.serial,
            authenticated.role,
            authenticated.name,
        );
        return Err(ServeError::NotGranted(format!("{} {identity}: {reason}", peer.role)));
    }
    let conditions = EndConditions { idle: IDLE_TIMEOUT, stop: shared.stop.clone(), slot };
    exchange(shared.router.clone(), stream, peer, Arc::new(Keepalive::new()), conditions).await;
    Ok(())
}
