//! Who somebody is that connects: TLS with certificates of both sides.
use crate::ServeError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tacit_ids::ClientId;
use tacit_net::NetError;
use tacit_net::tls::{HTTP_1, HTTP_2, handshake_failed};
use tacit_store::{Role, Serial, common_name, keys};
use tokio::net::TcpStream;
use tokio::time::timeout_at;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, rustls};

/// What was attempted where the system refuses to watch a socket.
pub(crate) const WATCHING: &str = "watching a connection";

/// Somebody who has proved a certificate, and what is said to it.
pub(crate) struct Known {
    pub(crate) stream: TlsStream<TcpStream>,
    /// Whose key, and which certificate for it.
    pub(crate) who: (ClientId, Serial),
    pub(crate) role: Role,
    /// What the certificate calls its holder, for people.
    pub(crate) name: Arc<str>,
}

impl Known {
    /// Whether it speaks HTTP.
    ///
    /// # Errors
    /// A helper, which has nothing to ask there, does.
    pub(crate) fn speaks_http(&self) -> Result<bool, ServeError> {
        match (self.stream.get_ref().1.alpn_protocol(), self.role) {
            (Some(HTTP_1 | HTTP_2), Role::Helper { .. }) => {
                let what = "a helper's certificate is good for making material, and not for HTTP";
                Err(NetError::Tls(what.into()).into())
            }
            (protocol, _) => Ok(matches!(protocol, Some(HTTP_1 | HTTP_2))),
        }
    }
}

/// TLS, until `end`. Until the peer has proved its certificate, it gets TLS's own messages and no other byte.
pub(crate) async fn authenticate(
    tls: Arc<rustls::ServerConfig>,
    (stream, address): (TcpStream, SocketAddr),
    end: Instant,
) -> Result<Known, ServeError> {
    // Whoever says nothing costs nothing else, and is told nothing. (That a socket is readable is not always
    // true at its first look.)
    let first = timeout_at(end.into(), stream.peek(&mut [0])).await.map_err(|_| stalled("the TLS handshake"))?;
    first.map_err(ServeError::system(WATCHING))?;
    stream.set_nodelay(true).map_err(ServeError::system(WATCHING))?;
    let accepted = timeout_at(end.into(), TlsAcceptor::from(tls).accept(stream)).await;
    let stream = accepted.map_err(|_| stalled("the TLS handshake"))?;
    let stream = stream.map_err(|e| handshake_failed(&format!("tcp {address}"), &e))?;
    let session = stream.get_ref().1;
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.ok_or_else(|| NetError::Tls("the client has no certificate".into()))?;
    let client = keys::fingerprint(certificate);
    let who = client.zip(Serial::of(certificate));
    let who = who.ok_or_else(|| NetError::Tls("the client's certificate cannot be read".into()))?;
    let role = Role::of(certificate);
    let name = common_name(certificate).unwrap_or_default().into();
    Ok(Known { stream, who, role, name })
}

pub(crate) fn stalled(what: &str) -> ServeError {
    let (doing, detail) = (format!("waiting for {what}"), "the time for it is over".to_owned());
    NetError::Stalled { doing, detail }.into()
}
