//! Sockets without threads: accepting, TLS, the opening hello, and waiting for requests.
use crate::accept::authentication::{WATCHING, authenticate, late_error, stalled_error};
use crate::accept::counted::Counted;
use crate::accept::identity::CertificateIdentity;
use crate::accept::refusal_reasons::BROKEN;
use crate::control::{Control, HttpPeer};
use crate::jobs::event::{Decision, Event, TurnedAway};
use crate::jobs::gate::WITHDRAWN;
use crate::models::catalog::Offered;
use crate::session::worker::{self, Connection};
use crate::shared::Shared;
use crate::{Catalog, ServeError};
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_admission::{ConnectionId, ConnectionSlot, HandshakeDeadline, RefusalReason};
use tacit_client::wire::{MAX_REQUEST_BYTES, REPLY, REQUEST, Reply, Request, send};
use tacit_net::{
    Channel, Hello, MAX_HELLO_BYTES, NetError, PacedTransport, Phase, Tag, TcpTransport, TlsTransport, Transport,
};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until, timeout_at};
use tokio_rustls::server::TlsStream;

/// How long accepting pauses after the system failed to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A timeout longer than any wait for a turn.
const ONE_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const STOPPING: &str = "the server is being stopped; connect again when it runs";
const TOO_LATE: RefusalReason = "of clients that came too late";
const GAVE_WAY: &str =
    "all places are taken, and an idle connection of yours gave way to another client's; connect again";
const IDLE_TOO_LONG: &str = "nothing was asked for too long (see `tacit serve --idle`); connect again";

const TIME_IS_OVER: &str = "the time for it is over";

pub(crate) async fn accept(shared: Arc<Shared>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let control = Control::new(shared.clone(), stop.clone());
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                // For example out of memory: connections that close free resources.
                shared.count_refusal("that could not be accepted", None, format!("accepting a connection: {e}"));
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = get_slot(&shared, address, &mut stop).await else { return };
        // Waits for the driver: new connections must not crowd out requests.
        if shared.ask(|reply| Event::Accepted { reply }).await.is_none() {
            return;
        }
        let (guard, stop) =
            (ConnectionGuard { shared: shared.clone(), number: slot.id(), slot: Some(slot) }, stop.clone());
        tokio::spawn(serve_connection(guard, stream, address, control.clone(), stop));
    }
}

/// Waits until a handshake slot is free; `None` if the server stops. Meanwhile, other connections
/// wait in the system's accept queue.
async fn get_slot(shared: &Shared, address: SocketAddr, stop: &mut watch::Receiver<bool>) -> Option<ConnectionSlot> {
    loop {
        let retry_at = match shared.admission.admit(address.ip()) {
            Ok(slot) => return Some(slot),
            Err(retry_at) => retry_at,
        };
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return None,
            () = sleep_until(retry_at.into()) => {}
        }
    }
}

/// Reports a connection's end to the driver when dropped.
struct ConnectionGuard {
    shared: Arc<Shared>,
    number: ConnectionId,
    /// `None` only during `drop`.
    slot: Option<ConnectionSlot>,
}

impl ConnectionGuard {
    fn slot(&self) -> &ConnectionSlot {
        self.slot.as_ref().expect("it is given back when this is dropped, and not before")
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        drop(self.slot.take());
        self.shared.tell(Event::Gone { number: self.number });
    }
}

async fn serve_connection(
    guard: ConnectionGuard,
    stream: TcpStream,
    address: SocketAddr,
    control: Control,
    mut stop: watch::Receiver<bool>,
) {
    let (shared, number) = (&guard.shared, guard.number);
    let greeted = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => return,
        greeted = greet(shared, stream, address, guard.slot().deadline()) => greeted,
        // An evicted connection: admission has counted it.
        () = guard.slot().wait_for_eviction() => return,
    };
    let Greeted { channel, identity, watched, closer } = match greeted {
        Ok(Arrival::Client(greeted)) => *greeted,
        Ok(Arrival::Http(peer)) => return control.serve(guard.slot(), *peer).await,
        Err(e) => {
            let detail = format!("the connection from {address}: {e}");
            return shared.count_refusal(e.handshake_refusal_reason(), Some(address.ip()), detail);
        }
    };
    let client = identity.to_string();
    let mut connection = Connection::new(&identity, channel);
    let closer = connection.closer(closer);
    let admitted = shared.ask(|reply| Event::Greeted { number, identity, closer, reply }).await;
    // No answer means that the driver has ended, so the server stops.
    if let Err(TurnedAway { kind, reason }) = admitted.unwrap_or(Err(TurnedAway { kind: TOO_LATE, reason: STOPPING })) {
        shared.count_refusal(kind, Some(address.ip()), format!("client {client} at {address}: {reason}"));
        close_with_farewell(connection, Some(Reply::Refused { reason: reason.into(), again_s: None })).await;
        return;
    }
    tracing::info!(%address, %client, "client connected");
    let result = match send(&mut connection.channel, REPLY, &Reply::Welcome) {
        Ok(()) => serve(&guard, connection, watched, &mut stop).await,
        Err(e) => Err(e.into()),
    };
    match result {
        Ok(()) => tracing::info!(%address, %client, "client done"),
        Err(e @ ServeError::Panicked) => tracing::error!(%address, %client, "{e}"),
        Err(e) => {
            tracing::info!(%address, %client, "connection ended: {e}");
            shared.count_refusal(
                BROKEN,
                Some(address.ip()),
                format!("the connection of client {client} at {address}: {e}"),
            );
        }
    }
}

/// Sends a farewell and closes a connection, in a blocking thread: both may wait for the peer.
async fn close_with_farewell(mut connection: Connection, last: Option<Reply>) {
    let closing = spawn_blocking(move || {
        if let Some(last) = last {
            // Fails if the peer has left; that is harmless here.
            let _ = send(&mut connection.channel, REPLY, &last);
        }
        drop(connection);
    });
    if closing.await.is_err() {
        tracing::error!("closing a connection panicked");
    }
}

struct Greeted {
    channel: Channel,
    identity: CertificateIdentity,
    watched: TcpStream,
    closer: std::net::TcpStream,
}

enum Arrival {
    Client(Box<Greeted>),
    Http(Box<HttpPeer>),
}

async fn greet(
    shared: &Shared,
    stream: TcpStream,
    address: SocketAddr,
    mut deadline: HandshakeDeadline,
) -> Result<Arrival, ServeError> {
    let peer = authenticate(shared.tls(), stream, address, &mut deadline).await?;
    if peer.speaks_http()? {
        return Ok(Arrival::Http(HttpPeer { connection: peer, address }.into()));
    }
    let identity = CertificateIdentity::new(peer.client, peer.serial, peer.role, peer.name);
    introduce(shared, peer.stream, identity, deadline).await.map(|greeted| Arrival::Client(greeted.into()))
}

async fn introduce(
    shared: &Shared,
    stream: TlsStream<Counted>,
    identity: CertificateIdentity,
    deadline: HandshakeDeadline,
) -> Result<Greeted, ServeError> {
    let (stream, session) = stream.into_inner();
    let stream = stream.into_inner().into_std().map_err(ServeError::system(WATCHING))?;
    let copy = stream.try_clone().map_err(ServeError::system(WATCHING))?;
    let transport = TlsTransport::from_session(session, TcpTransport::new(stream)?)?;
    let watched = watch(copy)?;
    let closer = transport.closer()?;
    let transport: Box<dyn Transport> = match shared.config.pace {
        Some(rate) => Box::new(PacedTransport::new(transport, rate)),
        None => Box::new(transport),
    };
    let mut channel = Channel::new(transport);
    channel.set_stall_timeout(shared.config.stall_timeout)?;
    let hello = Hello::without_model();
    channel.send(Tag::HELLO, &hello.to_bytes())?;
    channel.flush()?;
    let end = MessageDeadline::Moves(deadline);
    let waiting = ExpectedMessage { tag: Tag::HELLO, max: MAX_HELLO_BYTES, end };
    hello.check(&waiting.receive(&mut channel, &watched).await?)?;
    Ok(Greeted { channel, identity, watched, closer })
}

/// Watches a connection's socket for arriving bytes. No handle of the socket may block meanwhile.
fn watch(copy: std::net::TcpStream) -> Result<TcpStream, ServeError> {
    copy.set_nonblocking(true).and_then(|()| TcpStream::from_std(copy)).map_err(ServeError::system(WATCHING))
}

/// Ends watching; the socket blocks again.
fn unwatch(watched: TcpStream) -> Result<std::net::TcpStream, ServeError> {
    let copy = watched.into_std().map_err(ServeError::system(WATCHING))?;
    copy.set_nonblocking(false).map_err(ServeError::system(WATCHING))?;
    Ok(copy)
}

async fn readable(watched: &TcpStream, end: Instant, late: impl FnOnce() -> ServeError) -> Result<(), ServeError> {
    let ready = timeout_at(end.into(), watched.readable()).await.map_err(|_| late())?;
    ready.map_err(ServeError::system(WATCHING))
}

/// Reads what has arrived. `Ok(None)` (too little) clears the readiness; bytes that arrive
/// meanwhile set it again.
fn try_read<T>(watched: &TcpStream, read: impl FnOnce() -> Result<Option<T>, NetError>) -> Result<Option<T>, NetError> {
    let mut result = Ok(None);
    let _ = watched.try_io(Interest::READABLE, || {
        result = read();
        match result {
            Ok(None) => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    });
    result
}

struct ExpectedMessage {
    tag: Tag,
    max: usize,
    end: MessageDeadline,
}

enum MessageDeadline {
    /// Until the hello of a peer has arrived.
    Moves(HandshakeDeadline),
    /// Until a request has arrived; the `Duration` replaces the time once the first bytes have
    /// arrived.
    Idle(Instant, Option<Duration>),
}

impl MessageDeadline {
    fn end_time(&self) -> Instant {
        match self {
            Self::Moves(deadline) => deadline.end(),
            Self::Idle(end, _) => *end,
        }
    }

    fn late_error(&self, awaited: &str) -> ServeError {
        match self {
            Self::Moves(deadline) => late_error(awaited, deadline),
            Self::Idle(..) => stalled_error(awaited, TIME_IS_OVER.into()),
        }
    }

    /// Adjusts the deadline: bytes have arrived, and the message is incomplete.
    fn extend(&mut self, has_begun: bool) {
        match self {
            Self::Moves(deadline) => deadline.extend(Instant::now()),
            Self::Idle(end, begun) => {
                if let Some(timeout) = begun.take_if(|_| has_begun) {
                    *end = Instant::now() + timeout;
                }
            }
        }
    }
}

impl ExpectedMessage {
    async fn receive(mut self, channel: &mut Channel, watched: &TcpStream) -> Result<Vec<u8>, ServeError> {
        // A message that was read together with an earlier one does not make the socket readable.
        if let Some(message) = channel.try_recv(self.tag, self.max)? {
            return Ok(message);
        }
        loop {
            self.end.extend(channel.has_partial());
            readable(watched, self.end.end_time(), || self.end.late_error(self.tag.name())).await?;
            if let Some(message) = try_read(watched, || channel.try_recv(self.tag, self.max))? {
                return Ok(message);
            }
        }
    }
}

/// Serves requests until the client leaves or the server stops, then closes the connection.
async fn serve(
    guard: &ConnectionGuard,
    mut connection: Connection,
    mut watched: TcpStream,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), ServeError> {
    let (shared, number) = (&guard.shared, guard.number);
    let mut catalog = shared.catalog.clone();
    let goodbye = |reason: &str| Some(Reply::Goodbye { reason: reason.into() });
    let (last, result) = loop {
        let offered = connection.offered().cloned();
        let request = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break (goodbye(STOPPING), Ok(())),
            () = wait_until_withdrawn(&mut catalog, offered) => break (goodbye(WITHDRAWN), Ok(())),
            () = guard.slot().wait_for_eviction() => break (goodbye(GAVE_WAY), Ok(())),
            request = next_request(shared, &mut connection.channel, &watched) => request,
        };
        let request = match request {
            Ok(None | Some(Request::Bye)) => break (None, Ok(())),
            Ok(Some(request)) => request,
            Err(e @ ServeError::Net(NetError::Stalled { .. })) => break (goodbye(IDLE_TOO_LONG), Err(e)),
            Err(e) => break (None, Err(e)),
        };
        let _busy = guard.slot().begin_request();
        // A client sends nothing behind a phase request; it may behind others.
        let is_phase = request.is_phase();
        let (reply, decision) = oneshot::channel();
        // If the driver has ended, the request is dropped, and `decision` fails.
        shared.tell(Event::Requested { number, request, open: connection.open(), reply });
        let waited = wait(shared, connection, watched, is_phase, decision).await?;
        (connection, watched) = (waited.connection, waited.watched);
        let decision = match waited.decision {
            Ok(None | Some(Decision::Close)) => break (goodbye(STOPPING), Ok(())),
            // Refused because the model was withdrawn: all later requests would be refused, too.
            Ok(Some(Decision::Refuse(_))) if is_withdrawn(shared, &connection) => break (goodbye(WITHDRAWN), Ok(())),
            Ok(Some(decision)) => decision,
            Err(e) => break (None, Err(e)),
        };
        let (returned, result) = work(guard, connection, watched, decision).await?;
        connection = returned;
        watched = match result {
            Ok(watched) => watched,
            Err(e) => break (worker::farewell(&e).and_then(goodbye), Err(e)),
        };
    };
    close_with_farewell(connection, last).await;
    result
}

/// Has a worker carry out a decision. Returns the connection, and its socket unless the connection
/// ends. A job that panics ends the connection.
async fn work(
    guard: &ConnectionGuard,
    mut connection: Connection,
    watched: TcpStream,
    decision: Decision,
) -> Result<(Connection, Result<TcpStream, ServeError>), ServeError> {
    let (shared, number) = (guard.shared.clone(), guard.number);
    let copy = match unwatch(watched) {
        Ok(copy) => copy,
        Err(e) => return Ok((connection, Err(e))),
    };
    let job = spawn_blocking(move || {
        let result = worker::run(&shared, number, &mut connection, decision);
        (connection, result)
    });
    let (mut connection, result) = job.await.map_err(|_| ServeError::Panicked)?;
    let watched = result.and_then(|()| watch(copy));
    if watched.is_ok() {
        guard.shared.tell(Event::Finished { number, measured: connection.measured.take() });
    }
    Ok((connection, watched))
}

/// Waits until a model is no longer offered; forever without a model.
async fn wait_until_withdrawn(catalog: &mut watch::Receiver<Arc<Catalog>>, offered: Option<Arc<Offered>>) {
    let Some(offered) = offered else { return pending().await };
    // If the driver has ended, the catalog changes no more.
    if catalog.wait_for(|catalog| !catalog.is_offered(&offered)).await.is_err() {
        pending().await
    }
}

fn is_withdrawn(shared: &Shared, connection: &Connection) -> bool {
    connection.offered().is_some_and(|offered| !shared.catalog.borrow().is_offered(offered))
}

struct WaitResult {
    connection: Connection,
    watched: TcpStream,
    /// `None` if the driver has ended.
    decision: Result<Option<Decision>, ServeError>,
}

/// Waits until the driver has decided or the client leaves. Meanwhile, the client gets signs of
/// life.
async fn wait(
    shared: &Shared,
    mut connection: Connection,
    mut watched: TcpStream,
    is_phase: bool,
    mut answer: oneshot::Receiver<Decision>,
) -> Result<WaitResult, ServeError> {
    loop {
        let decision = tokio::select! {
            biased;
            decision = &mut answer => Ok(decision.ok()),
            departure = wait_until_left(&mut connection.channel, &watched), if is_phase => Err(departure),
            () = sleep(shared.config.sign_of_life), if is_phase => {
                let queued = shared.ask(|reply| Event::Queued { reply }).await.unwrap_or(0);
                let copy = unwatch(watched)?;
                let sent = spawn_blocking(move || {
                    let sent = worker::send_sign_of_life(&mut connection, queued);
                    (connection, sent)
                });
                let (returned, sent) = sent.await.map_err(|_| ServeError::Panicked)?;
                connection = returned;
                watched = watch(copy)?;
                let Err(e) = sent else { continue };
                Err(e)
            }
        };
        return Ok(WaitResult { connection, watched, decision });
    }
}

/// Waits until a client, which has to wait silently, leaves or sends something.
async fn wait_until_left(channel: &mut Channel, watched: &TcpStream) -> ServeError {
    let never = Instant::now() + ONE_YEAR;
    loop {
        if let Err(e) = readable(watched, never, || stalled_error("a client", TIME_IS_OVER.into())).await {
            return e;
        }
        match try_read(watched, || channel.try_recv(REQUEST, MAX_REQUEST_BYTES)) {
            Ok(None) => {}
            Ok(Some(_)) => {
                let detail = "it asks for something before the last answer".to_owned();
                return ServeError::Unexpected { what: "request", detail };
            }
            Err(e) => return e.into(),
        }
    }
}

/// Returns the next request, waiting at most the idle timeout; `None` when the client has left.
async fn next_request(
    shared: &Shared,
    channel: &mut Channel,
    watched: &TcpStream,
) -> Result<Option<Request>, ServeError> {
    channel.set_phase(Phase::Setup);
    let waiting = ExpectedMessage {
        tag: REQUEST,
        max: MAX_REQUEST_BYTES,
        end: MessageDeadline::Idle(Instant::now() + shared.config.idle_timeout, Some(shared.config.stall_timeout)),
    };
    match waiting.receive(channel, watched).await {
        Ok(bytes) => Ok(Some(Request::from_bytes(&bytes)?)),
        // Closing between two requests without `Bye` is harmless.
        Err(ServeError::Net(NetError::Closed { .. })) => Ok(None),
        Err(e) => Err(e),
    }
}
