//! The control interface: HTTP/1.1 and HTTP/2 on the port of the protocol, selected in the TLS
//! handshake (ALPN), for peers with a verified certificate. It holds no thread and no lock: it asks
//! the driver for what it shows.

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

use crate::accept::authentication::AuthenticatedConnection;
use crate::jobs::event::Event;
use crate::shared::{CONTROL_POOL, OPERATOR_POOL, Shared};
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

const MAX_HEAD_BYTES: usize = 64 << 10;
/// Largest body of a request, in bytes.
pub const MAX_BODY_BYTES: usize = 64 << 10;
/// Requests that one HTTP/2 connection may have open.
const MAX_STREAMS: u32 = 16;
/// Time for answers under way when the server stops, and for sending a refusal.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) struct HttpPeer {
    pub(crate) connection: AuthenticatedConnection,
    pub(crate) address: SocketAddr,
}

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

    /// Serves a connection until one of its conditions ends it or its client is revoked.
    pub(crate) async fn serve(self, slot: &ConnectionSlot, peer: HttpPeer) {
        let HttpPeer { connection: AuthenticatedConnection { stream, client, serial, role, name }, address } = peer;
        let mut stream = GracefulStream::new(stream);
        let mut rules = self.shared.rules.clone();
        let revoked = rules.borrow().revocation_reason(client, &serial);
        if let Some(reason) = revoked {
            let detail = format!("{role} {name} ({client}) at {address}: {reason}");
            self.shared.count_refusal("of the control interface, revoked", Some(address.ip()), detail);
            return turn_away(&mut stream, "403 Forbidden", reason).await;
        }
        let peer = Peer { client, role };
        if let Err(full) = slot.authenticate(if peer.is_operator() { OPERATOR_POOL } else { CONTROL_POOL }, client.0) {
            let reason = no_room(full);
            let detail = format!("{role} {name} ({client}) at {address}: {reason}");
            self.shared.count_refusal("of the control interface, without a place", Some(address.ip()), detail);
            return turn_away(&mut stream, "503 Service Unavailable", reason).await;
        }
        self.shared.tell(Event::HttpConnected);
        tracing::debug!(%address, %client, %name, %role, "control connection");
        let conditions = EndConditions { idle: self.shared.config.control_idle, stop: self.stop, slot };
        tokio::select! {
            () = exchange(self.router, stream, peer, Arc::new(Keepalive::new()), conditions) => {}
            // A revoked client gets no further answer.
            _ = rules.wait_for(|rules| rules.revocation_reason(client, &serial).is_some()) => {}
        }
    }
}

pub(crate) fn no_room(full: Full) -> &'static str {
    match full {
        Full::Pool => "all places of the control interface are taken; try again later",
        Full::Peer => "you have as many connections of the control interface as one client may; close some",
        Full::Evicted => "this connection gave way to newer ones; connect again",
    }
}

pub(crate) struct EndConditions<'a> {
    pub(crate) idle: Duration,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) slot: &'a ConnectionSlot,
}

/// Answers requests until the connection closes or a condition ends it.
pub(crate) async fn exchange(
    router: axum::Router,
    stream: GracefulStream,
    peer: Peer,
    keepalive: Arc<Keepalive>,
    conditions: EndConditions<'_>,
) {
    let EndConditions { idle, mut stop, slot } = conditions;
    let is_http_2 = stream.is_http_2();
    let beating = keepalive.clone();
    let (admission, id) = (slot.admission().clone(), slot.id());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        beating.beat();
        let busy = admission.begin_request(id);
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(beating.clone());
        let (router, keepalive) = (router.clone(), beating.clone());
        async move {
            let Ok(answer) = router.oneshot(request.map(Body::new)).await;
            Ok::<_, Infallible>(answer.map(|body| KeepaliveBody::new(body, keepalive, busy)))
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    // hyper may read as much again into a buffer that is not full: half the limit keeps within it.
    builder.http1().max_buf_size(MAX_HEAD_BYTES / 2);
    builder.http2().max_concurrent_streams(MAX_STREAMS).max_header_list_size(MAX_HEAD_BYTES as u32);
    let builder = if is_http_2 { builder.http2_only() } else { builder.http1_only() };
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        result = connection.as_mut() => {
            if let Err(e) = result {
                tracing::debug!("control connection broke off: {e}");
            }
            return;
        }
        () = keepalive.wait_until_idle(idle) => return,
        _ = stop.wait_for(|stop| *stop) => {}
        () = slot.wait_for_eviction() => {}
    }
    connection.as_mut().graceful_shutdown();
    // Gives up on what is not sent within `FAREWELL`.
    let _ = timeout(FAREWELL, connection).await;
}

/// Sends the reason for a refusal, over HTTP/1.1 only.
pub(crate) async fn turn_away(stream: &mut GracefulStream, status: &str, reason: &str) {
    if !stream.is_http_2() {
        // A failure means that the peer is gone.
        let _ = timeout(FAREWELL, write_refusal(stream, status, reason)).await;
    }
}

async fn write_refusal(stream: &mut GracefulStream, status: &str, reason: &str) -> std::io::Result<()> {
    let body = serde_json::json!({ "error": reason }).to_string();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close");
    stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    stream.shutdown().await
}
