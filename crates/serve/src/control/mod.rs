//! The control interface: HTTP/1.1 and HTTP/2 on the port of the protocol, told apart in the TLS handshake
//! (ALPN), for those who have proved a certificate. It holds no thread and no lock: what it shows it asks the
//! driver for.

pub(crate) mod answer;
pub(crate) mod body;
mod events;
pub(crate) mod graceful_close;
mod inputs;
pub(crate) mod keepalive;
mod policy;
mod routes;
mod state;

pub use inputs::{NoticeBody, read_notice};
pub use policy::read_policy;

use crate::authentication::AuthenticatedConnection;
use crate::event::Event;
use crate::shared::{CONTROL, OPERATORS, Shared};
use answer::Peer;
use axum::body::Body;
use graceful_close::GracefulStream;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use keepalive::{Keepalive, KeepaliveBody};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tacit_admission::{ConnectionSlot, Full};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::ServiceExt;

/// Largest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Largest body of a request, in bytes.
pub const MAX_BODY_BYTES: usize = 64 << 10;
/// Requests that one HTTP/2 connection may have open.
const MAX_STREAMS: u32 = 16;
/// How long answers have that are under way when the server stops, and how long a refusal has.
const FAREWELL: Duration = Duration::from_secs(1);

/// Somebody known who speaks HTTP.
pub(crate) struct Visitor {
    pub(crate) known: AuthenticatedConnection,
    pub(crate) address: SocketAddr,
}

/// What answers requests, for all connections.
#[derive(Clone)]
pub(crate) struct Control {
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
    router: axum::Router,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>, stop: watch::Receiver<bool>) -> Self {
        let router = routes::router(shared.clone(), stop.clone());
        Self { shared, stop, router }
    }

    /// A connection until it closes, says nothing for too long, or the server stops.
    pub(crate) async fn serve(self, slot: &ConnectionSlot, visitor: Visitor) {
        let Visitor { known: AuthenticatedConnection { stream, who: (client, serial), role, name }, address } = visitor;
        let mut stream = GracefulStream::new(stream);
        let mut rules = self.shared.rules.clone();
        let revoked = rules.borrow().revokes(client, &serial);
        if let Some(reason) = revoked {
            let detail = format!("{role} {name} ({client}) at {address}: {reason}");
            self.shared.refused("of the control interface, revoked", Some(address.ip()), detail);
            return turn_away(&mut stream, "403 Forbidden", reason).await;
        }
        let peer = Peer { client, role };
        if let Err(full) = slot.authenticate(if peer.is_operator() { OPERATORS } else { CONTROL }, client.0) {
            let reason = no_room(full);
            let detail = format!("{role} {name} ({client}) at {address}: {reason}");
            self.shared.refused("of the control interface, without a place", Some(address.ip()), detail);
            return turn_away(&mut stream, "503 Service Unavailable", reason).await;
        }
        // A driver that is gone needs no news.
        let _ = self.shared.events.send(Event::Visited);
        tracing::debug!(%address, %client, %name, %role, "control connection");
        let until = Until { idle: self.shared.config.control_idle, stop: self.stop, slot };
        tokio::select! {
            () = exchange(self.router, stream, peer, Arc::new(Keepalive::new()), until) => {}
            // Nothing is said to it any more.
            _ = rules.wait_for(|rules| rules.revokes(client, &serial).is_some()) => {}
        }
    }
}

/// What somebody known is told that finds no place.
pub(crate) fn no_room(full: Full) -> &'static str {
    match full {
        Full::Pool => "all places of the control interface are taken; try again later",
        Full::Peer => "you have as many connections of the control interface as one client may; close some",
        Full::Evicted => "this connection gave way to newer ones; connect again",
    }
}

/// How long a connection may be silent, and what ends it before.
pub(crate) struct Until<'a> {
    pub(crate) idle: Duration,
    pub(crate) stop: watch::Receiver<bool>,
    /// Evicted, it ends.
    pub(crate) slot: &'a ConnectionSlot,
}

/// Requests of a connection and their answers, until it closes, says nothing for too long, or is to stop.
pub(crate) async fn exchange(
    router: axum::Router,
    stream: GracefulStream,
    peer: Peer,
    keepalive: Arc<Keepalive>,
    until: Until<'_>,
) {
    let Until { idle, mut stop, slot } = until;
    let is_http_2 = stream.is_http_2();
    let beating = keepalive.clone();
    let (admission, id) = (slot.admission().clone(), slot.id());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        beating.beat();
        let busy = admission.busy(id);
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(beating.clone());
        let (router, keepalive) = (router.clone(), beating.clone());
        async move {
            let Ok(answer) = router.oneshot(request.map(Body::new)).await;
            Ok::<_, Infallible>(answer.map(|body| KeepaliveBody::new(body, keepalive, busy)))
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    // A buffer that is not full is filled by as much again.
    builder.http1().max_buf_size(MAX_HEAD_BYTES / 2);
    builder.http2().max_concurrent_streams(MAX_STREAMS).max_header_list_size(MAX_HEAD_BYTES as u32);
    let builder = if is_http_2 { builder.http2_only() } else { builder.http1_only() };
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = connection.as_mut() => {
            if let Err(e) = ended {
                tracing::debug!("control connection broke off: {e}");
            }
            return;
        }
        () = keepalive.rests(idle) => return,
        _ = stop.wait_for(|stop| *stop) => {}
        () = slot.evicted() => {}
    }
    connection.as_mut().graceful_shutdown();
    // What is not said by then is not said.
    let _ = timeout(FAREWELL, connection).await;
}

/// Says why a connection is not served, where that can be said at once.
pub(crate) async fn turn_away(stream: &mut GracefulStream, status: &str, reason: &str) {
    if !stream.is_http_2() {
        // Somebody who is gone needs no words.
        let _ = timeout(FAREWELL, say(stream, status, reason)).await;
    }
}

/// Says why it is not served, in HTTP/1.1.
async fn say(stream: &mut GracefulStream, status: &str, reason: &str) -> std::io::Result<()> {
    let body = serde_json::json!({ "error": reason }).to_string();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close");
    stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    stream.shutdown().await
}
