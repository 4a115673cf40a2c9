//! Authentication of a peer that connects: TLS with certificates of both sides.
use crate::ServeError;
use crate::accept::counted::Counted;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
use tacit_admission::HandshakeDeadline;
use tacit_ids::ClientId;
use tacit_net::NetError;
use tacit_net::tls::{HTTP_1, HTTP_2, handshake_failed};
use tacit_store::{Role, Serial, common_name, keys};
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout_at};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, rustls};

pub(crate) const WATCHING: &str = "watching a connection";
const HANDSHAKE: &str = "the TLS handshake";

pub(crate) struct AuthenticatedConnection {
    pub(crate) stream: TlsStream<Counted>,
    /// The key's owner.
    pub(crate) client: ClientId,
    pub(crate) serial: Serial,
    pub(crate) role: Role,
    /// The holder's name in the certificate, for people.
    pub(crate) name: Arc<str>,
}

impl AuthenticatedConnection {
    /// Helpers may not speak HTTP.
    pub(crate) fn speaks_http(&self) -> Result<bool, ServeError> {
        match (self.stream.get_ref().1.alpn_protocol(), self.role) {
            (Some(HTTP_1 | HTTP_2), Role::Helper { .. }) => {
                let message = "a helper's certificate is good for making material, and not for HTTP";
                Err(NetError::Tls(message.into()).into())
            }
            (protocol, _) => Ok(matches!(protocol, Some(HTTP_1 | HTTP_2))),
        }
    }
}

/// Performs the TLS handshake within the deadline. Until the peer has proved its certificate, it
/// gets TLS's own messages and no other byte.
pub(crate) async fn authenticate(
    tls: Arc<rustls::ServerConfig>,
    stream: TcpStream,
    address: SocketAddr,
    deadline: &mut HandshakeDeadline,
) -> Result<AuthenticatedConnection, ServeError> {
    // A peer that sends nothing costs no TLS state and gets no byte. (`peek`, because a fresh
    // socket may be reported readable without a byte.)
    let first = timeout_at(deadline.end().into(), stream.peek(&mut [0])).await;
    first.map_err(|_| late_error(HANDSHAKE, deadline))?.map_err(ServeError::system(WATCHING))?;
    stream.set_nodelay(true).map_err(ServeError::system(WATCHING))?;
    let stream = shake_hands(tls, stream, address, deadline).await?;
    let session = stream.get_ref().1;
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.ok_or_else(|| NetError::Tls("the client has no certificate".into()))?;
    let client_and_serial = keys::fingerprint(certificate).zip(Serial::from_certificate(certificate));
    let (client, serial) =
        client_and_serial.ok_or_else(|| NetError::Tls("the client's certificate cannot be read".into()))?;
    let role = Role::from_certificate(certificate);
    let name = common_name(certificate).unwrap_or_default().into();
    Ok(AuthenticatedConnection { stream, client, serial, role, name })
}

/// Performs the TLS handshake; each byte moves the deadline.
async fn shake_hands(
    tls: Arc<rustls::ServerConfig>,
    stream: TcpStream,
    address: SocketAddr,
    deadline: &mut HandshakeDeadline,
) -> Result<TlsStream<Counted>, ServeError> {
    let mut accepting = TlsAcceptor::from(tls).accept(Counted::new(stream));
    let mut timer = pin!(sleep_until(deadline.end().into()));
    let mut last_received = 0;
    let accepted = poll_fn(|cx| {
        if let Poll::Ready(accepted) = Pin::new(&mut accepting).poll(cx) {
            return Poll::Ready(Some(accepted));
        }
        let received = accepting.get_ref().map_or(last_received, Counted::received);
        if received > last_received {
            last_received = received;
            deadline.extend(Instant::now());
            timer.as_mut().reset(deadline.end().into());
        }
        timer.as_mut().poll(cx).map(|()| None)
    });
    let accepted = accepted.await.ok_or_else(|| late_error(HANDSHAKE, deadline))?;
    Ok(accepted.map_err(|e| handshake_failed(&format!("tcp {address}"), &e))?)
}

pub(crate) fn late_error(awaited: &str, deadline: &HandshakeDeadline) -> ServeError {
    stalled_error(awaited, deadline.expiry_message())
}

pub(crate) fn stalled_error(awaited: &str, detail: String) -> ServeError {
    NetError::Stalled { doing: format!("waiting for {awaited}"), detail }.into()
}
