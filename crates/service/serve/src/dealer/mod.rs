//! The dealer as a server: a thread for each connection, since they are few and short. On disk are
//! only the numbers of materials and the digests of random matrices. Unauthenticated connections
//! have slots of their own.
//!
//! Every peer needs a certificate of the CA. Only a certificate with the role of a server may
//! register models and order material, and both halves of a material never go to one certificate
//! (`tacit_backends::dealer`).
mod ending;
mod numbers;
mod sending;

use crate::ServeError;
use crate::accept::identity::client_label;
use crate::accept::refusal_reasons::BROKEN;
use crate::ops::signals::StopSignals;
use crate::ops::state::schema::state_error;
use crate::server::listen_error;
use ending::Ending;
use numbers::Numbers;
use sending::send_in_pieces;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use tacit_admission::{
    Accepting, Admission, ConnectionSlot, Full, Incoming, Limits, PoolLimits, Refusal, RefusalReason, ThreadedListener,
    handshake_slots,
};
use tacit_backends::dealer::{Dealings, Party};
use tacit_backends::seam::Seal;
use tacit_backends::{BackendError, Registry};
use tacit_client::dealer::wire::{ASK, Answer, Ask, BYTES, MAX_BYTES, MAX_PART, MAX_PUBLIC, answer};
use tacit_net::{Channel, Hello, NetError, ServerTls, TcpTransport, Transport, handshake};
use tacit_store::keys::fingerprint;
use tacit_store::{Role, common_name};

/// Configuration of a dealer.
#[derive(Clone)]
pub struct DealerConfig {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// TLS identity, and the CA that signs clients and servers.
    pub tls: ServerTls,
    /// File of the numbers of materials.
    pub numbers: PathBuf,
    /// Most connections of clients at a time, and as many of servers.
    pub max_connections: usize,
    /// Most connections of unauthenticated peers, at least 1, as far as open files allow. When all
    /// are taken, the oldest of the address that holds most is evicted.
    pub max_handshakes: usize,
    /// Most connections at a time of one certificate.
    pub max_per_party: usize,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// How long a peer may make no progress.
    pub stall_timeout: Duration,
    /// How long a connection may wait between requests.
    pub idle_timeout: Duration,
}

impl DealerConfig {
    /// Default of `request_timeout`: 4 hours, in which 4 Mbit/s carry 7 GB.
    pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

    /// The defaults.
    #[must_use]
    pub fn new(listen: SocketAddr, tls: ServerTls, numbers: PathBuf) -> Self {
        Self {
            listen,
            tls,
            numbers,
            max_connections: 256,
            max_handshakes: 512,
            max_per_party: 64,
            request_timeout: Self::REQUEST_TIMEOUT,
            stall_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(600),
        }
    }
}

/// A listening dealer.
pub struct DealerServer {
    listener: ThreadedListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    config: DealerConfig,
    dealings: Dealings,
    numbers: Numbers,
    admission: Admission,
    ending: Ending,
}

/// Stops a dealer.
#[derive(Clone)]
pub struct DealerHandle {
    address: SocketAddr,
    shared: Weak<Shared>,
}

impl DealerHandle {
    /// Refuses orders from now on, but for at most `grace` lets requests end and clients fetch what
    /// was dealt for them in the last 30 s.
    pub fn stop(&self, grace: Duration) {
        let Some(shared) = self.shared.upgrade() else { return };
        shared.ending.stop(grace);
        // A connection wakes the accepting thread. If connecting fails, no thread is waiting.
        let _ = TcpStream::connect_timeout(&self.address, HANDSHAKE);
    }
}

/// Poll interval while the dealer stops, until it is done.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// [`DealerHandle::stop`] wakes the listener, so the interval may be long.
const IDLE_POLL: Duration = Duration::from_secs(3600);
/// How long a peer may send nothing after its connection is accepted.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Pools of connections: one for clients, one for servers, so that clients cannot exhaust the
/// servers' slots.
const CLIENT_POOL: usize = 0;
const SERVER_POOL: usize = 1;
const FILES: u64 = 2;
const OTHER_FILES: u64 = 64;

fn limits(config: &DealerConfig) -> Limits {
    let pool = PoolLimits { connections: config.max_connections, per_peer: config.max_per_party };
    let other_files = FILES * config.max_connections as u64 + OTHER_FILES;
    let handshakes = handshake_slots(config.max_handshakes, FILES, other_files);
    Limits { handshakes, handshake_timeout: HANDSHAKE, pools: vec![pool; 2] }
}

impl DealerServer {
    /// Listens, with a fresh secret.
    ///
    /// # Errors
    /// The address or the file is in use or unusable; or the system gives no randomness.
    pub fn bind(registry: Registry, config: DealerConfig) -> Result<Self, ServeError> {
        let (numbers, first) = Numbers::open(&config.numbers)?;
        let dealings = Dealings::fresh(registry, first)?;
        let hidden = numbers.hidden();
        dealings.remember(hidden.map_err(state_error(&config.numbers))?);
        let admission = Admission::new(limits(&config));
        let listener = ThreadedListener::bind(config.listen, admission.clone(), "tacit-dealer");
        let listener = listener.map_err(listen_error(config.listen))?;
        let address = listener.address().map_err(listen_error(config.listen))?;
        let shared = Shared { admission, config, dealings, numbers, ending: Ending::default() };
        Ok(Self { listener, address, shared: Arc::new(shared) })
    }

    /// The address that the dealer listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle that stops the dealer.
    #[must_use]
    pub fn handle(&self) -> DealerHandle {
        DealerHandle { address: self.address, shared: Arc::downgrade(&self.shared) }
    }

    /// Stops the dealer on SIGINT and SIGTERM with `grace` ([`DealerHandle::stop`]); a second
    /// signal ends the grace.
    ///
    /// # Errors
    /// The signals cannot be caught, or their thread cannot be started.
    pub fn stop_on_signals(&self, grace: Duration) -> Result<(), ServeError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(ServeError::system("catching signals"))?;
        let signals = {
            let _inside = runtime.enter();
            StopSignals::catch()?
        };
        let handle = self.handle();
        let thread = thread::Builder::new().name("tacit-signals".into());
        let spawned =
            thread.spawn(move || runtime.block_on(signals.stop_on_arrival(grace, |grace| handle.stop(grace))));
        spawned.map(drop).map_err(ServeError::system("starting a thread"))
    }

    /// Serves until stopped.
    pub fn run(self) {
        let (shared, looking) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        self.listener.run(|| looking.accepting(), move |incoming| serve(&shared, incoming));
    }
}

impl Shared {
    fn accepting(&self) -> Accepting {
        match (self.ending.is_over(Instant::now()), self.ending.is_stopping()) {
            (true, _) => Accepting::Over,
            (false, true) => Accepting::GoOn(POLL_INTERVAL),
            // [`DealerHandle::stop`] wakes the listener by connecting.
            (false, false) => Accepting::GoOn(IDLE_POLL),
        }
    }

    fn count_refusal(&self, kind: RefusalReason, address: SocketAddr, detail: String) {
        self.admission.count_refusal(Refusal { kind, from: Some(address.ip()), detail });
    }
}

fn serve(shared: &Shared, incoming: Incoming) {
    let Incoming { stream, from: address, slot } = incoming;
    let peer = match authenticate(shared, stream, &slot) {
        Ok(peer) => peer,
        // The eviction has counted this connection already.
        Err(_) if slot.is_evicted() => return,
        Err(error) => {
            return shared.count_refusal(error.handshake_refusal_reason(), address, format!("{address}: {error}"));
        }
    };
    let peer_name = format!("{} at {address}", peer.label);
    match answer_requests(shared, peer, &slot) {
        Err(error) if !slot.is_evicted() => shared.count_refusal(BROKEN, address, format!("{peer_name}: {error}")),
        // A peer that closes between two requests is no error.
        _ => {}
    }
}

struct AuthenticatedPeer {
    channel: Channel,
    party: Party,
    role: Role,
    /// The peer's name and fingerprint, for messages.
    label: String,
}

/// Authenticates a peer, takes a connection slot and exchanges hellos before the slot's deadline.
fn authenticate(shared: &Shared, stream: TcpStream, slot: &ConnectionSlot) -> Result<AuthenticatedPeer, ServeError> {
    let mut tcp = TcpTransport::new(stream)?;
    let deadline = slot.deadline().moving();
    tcp.set_stall_timeout(deadline.step).map_err(|e| NetError::from_io("setting the stall timeout", &e))?;
    tcp.set_moving_deadline(deadline);
    let tls = shared.config.tls.accept(tcp)?;
    let certificate = tls.peer_certificate().ok_or(NetError::Tls("a peer without a certificate".into()))?;
    let key = fingerprint(certificate);
    let key = key.ok_or_else(|| NetError::Tls("a certificate that cannot be read".into()))?;
    let (party, role, name) = (key.0, Role::from_certificate(certificate), common_name(certificate));
    let label = client_label(&name.unwrap_or_default(), key);
    let pool = if role == Role::Server { SERVER_POOL } else { CLIENT_POOL };
    slot.authenticate(pool, party).map_err(|full| {
        let config = &shared.config;
        ServeError::NotGranted(match full {
            Full::Pool => {
                format!("{label}: {} connections are there already (--max-connections)", config.max_connections)
            }
            Full::Peer => format!("{label} has {} connections already", config.max_per_party),
            Full::Evicted => "it gave way to newer connections".into(),
        })
    })?;
    let mut channel = Channel::new(Box::new(tls));
    handshake(&mut channel, &Hello::without_model())?;
    channel.set_deadline(None);
    Ok(AuthenticatedPeer { channel, party, role, label })
}

fn answer_requests(shared: &Shared, peer: AuthenticatedPeer, slot: &ConnectionSlot) -> Result<(), ServeError> {
    let AuthenticatedPeer { mut channel, party, role, .. } = peer;
    loop {
        channel.set_stall_timeout(shared.config.idle_timeout)?;
        let request = match channel.recv_max(ASK, MAX_BYTES) {
            Err(error) if error.is_gone() => return Ok(()),
            message => Ask::from_bytes(&message?)?,
        };
        if shared.ending.is_over(Instant::now()) {
            return Ok(());
        }
        let (_running, _busy) = (shared.ending.begin(), slot.begin_request());
        channel.set_stall_timeout(shared.config.stall_timeout)?;
        channel.set_deadline(Some(Instant::now() + shared.config.request_timeout));
        answer_request(shared, &mut channel, party, role, request)?;
        // Sending the queued answer counts as part of the request, so a slow reader cannot hold a
        // slot beyond the deadline.
        channel.settle()?;
        channel.set_deadline(None);
    }
}

/// Answers one request. Most refusals are answers too and keep the connection open.
fn answer_request(
    shared: &Shared,
    channel: &mut Channel,
    party: Party,
    role: Role,
    ask: Ask,
) -> Result<(), ServeError> {
    let orders = matches!(ask, Ask::Register { .. } | Ask::Deal { .. } | Ask::Ahead { .. } | Ask::Bind { .. });
    if orders && role != Role::Server {
        let reason = "only a server may order material: its certificate is that of `tacit keys add-dealer` (orders)";
        return end_with_refusal(channel, reason.into());
    }
    if orders && shared.ending.is_stopping() {
        return end_with_refusal(channel, "the dealer is stopping, and takes no more orders".into());
    }
    let reply = match ask {
        Ask::Register { backend, public, part } => {
            register(shared, channel, party, &backend, public, part)?.map(|()| Answer::Done)
        }
        Ask::Deal { digest, batch, seal } => return deal(shared, channel, party, digest, batch, Some(seal)),
        Ask::Ahead { digest, batch } => return deal(shared, channel, party, digest, batch, None),
        Ask::Bind { ticket, seal } => shared.dealings.bind(party, &ticket, seal).map(|is_bound| {
            if !is_bound {
                return Answer::Unknown;
            }
            // The client may fetch its half now.
            shared.ending.add_pending(ticket);
            shared.ending.start_fetch_time(&ticket);
            Answer::Done
        }),
        Ask::Fetch { ticket, claim } => match shared.dealings.fetch(party, &ticket, &claim) {
            Ok(fetching) => {
                answer(channel, &Answer::Half { bytes: fetching.bytes() })?;
                return Ok(send_in_pieces(channel, |sink| fetching.half(sink))?);
            }
            Err(error) => Err(error),
        },
        Ask::Taken { ticket } => {
            shared.dealings.burn_received(&ticket);
            shared.ending.remove_pending(&ticket);
            return Ok(());
        }
        Ask::Consent { ticket, claim } => shared.dealings.consent(party, &ticket, &claim).map(|()| Answer::Done),
        Ask::Open { ticket } => shared.dealings.reveal_seed(party, &ticket).map(|seed| {
            shared.ending.remove_pending(&ticket);
            Answer::Opened { seed: seed.0 }
        }),
    };
    Ok(answer(channel, &reply.unwrap_or_else(refusal))?)
}

/// Refuses a request and ends the connection: the bytes that the request announces are not read.
fn end_with_refusal<T>(channel: &mut Channel, reason: String) -> Result<T, ServeError> {
    answer(channel, &Answer::Refused { reason: reason.clone() })?;
    Err(ServeError::NotGranted(reason))
}

/// The answer to a peer about an error: at most 1000 characters.
fn refusal(error: BackendError) -> Answer {
    let message = match error {
        BackendError::Dealer { what: message } => message,
        error => error.to_string(),
    };
    Answer::Refused { reason: message.chars().take(1000).collect() }
}

/// The outer error ends the connection.
fn register(
    shared: &Shared,
    channel: &mut Channel,
    party: Party,
    backend: &str,
    public: u64,
    part: u64,
) -> Result<Result<(), BackendError>, ServeError> {
    if public > MAX_PUBLIC || part > MAX_PART {
        let reason = format!("a model of {public} and {part} bytes: {MAX_PUBLIC} and {MAX_PART} are taken at most");
        return end_with_refusal(channel, reason);
    }
    let public = channel.recv_max(BYTES, public as usize)?;
    let part = zeroize::Zeroizing::new(channel.recv_max(BYTES, part as usize)?);
    let registered = shared.dealings.register(party, backend, &public, &part, |hidden| {
        shared.numbers.hide(hidden).map_err(|error| {
            tracing::error!("{}: {error}", shared.config.numbers.display());
            let message = "the dealer cannot write down what it must remember: its log says more";
            BackendError::Dealer { what: message.into() }
        })
    });
    if registered.is_ok() {
        tracing::info!("a model of {} bytes for {backend} was registered", public.len());
    }
    Ok(registered)
}

fn deal(
    shared: &Shared,
    channel: &mut Channel,
    party: Party,
    digest: [u8; 32],
    batch: u32,
    seal: Option<Seal>,
) -> Result<(), ServeError> {
    if !shared.dealings.knows(party, digest) {
        return Ok(answer(channel, &Answer::Unknown)?);
    }
    let started = match shared.dealings.start(party, digest, batch, seal) {
        Ok(started) => started,
        Err(error) => return Ok(answer(channel, &refusal(error))?),
    };
    if let Err(error) = shared.numbers.cover(started.number) {
        shared.dealings.remove_undelivered(party, started.number);
        tracing::error!("{}: {error}", shared.config.numbers.display());
        let reason = "the dealer cannot write its numbers down, and deals nothing without: its log says more";
        return Ok(answer(channel, &Answer::Refused { reason: reason.into() })?);
    }
    if seal.is_some() {
        shared.ending.add_pending(started.ticket);
    }
    let sent = answer(channel, &Answer::Dealt { ticket: started.ticket, bytes: started.server_bytes() });
    match sent.map_err(Into::into).and_then(|()| send_in_pieces(channel, |sink| started.server_half(sink))) {
        Ok(()) => {
            shared.ending.start_fetch_time(&started.ticket);
            Ok(())
        }
        Err(error) => {
            // The client's half is useless after the server missed its own.
            shared.dealings.remove_undelivered(party, started.number);
            shared.ending.remove_pending(&started.ticket);
            Err(error.into())
        }
    }
}
