//! TLS 1.3 with mutual authentication under a private CA.
//!
//! Only TLS 1.3, without resumption or tickets: every connection authenticates both certificates.
use crate::tls_error::NO_TIME;
use crate::transport::Transport;
use crate::{NetError, TcpTransport};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, ClientConnection, Connection, RootCertStore};
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The ALPN protocol that both parties name; a peer that names none or another is refused.
pub const ALPN: &[u8] = b"tacit/2";
/// The ALPN protocol of HTTP/2, which a server may accept beside [`ALPN`] (see
/// [`ServerTls::with_http`]).
pub const HTTP_2: &[u8] = b"h2";
/// As [`HTTP_2`], for HTTP/1.1.
pub const HTTP_1: &[u8] = b"http/1.1";

/// A server's TLS identity and the CA whose clients it accepts.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
    authority: CertificateDer<'static>,
}

/// A client's TLS identity and the CA whose servers it accepts.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    certificate: CertificateDer<'static>,
}

struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: RootCertStore,
}

impl Identity {
    fn from_pem(chain: &[u8], key: &[u8], ca: &[u8]) -> Result<Self, NetError> {
        let roots = roots(ca)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| NetError::Tls(format!("private key: {e}")))?;
        Ok(Self { chain: certificates(chain, "certificate")?, key, roots })
    }
}

fn roots(ca: &[u8]) -> Result<RootCertStore, NetError> {
    let mut roots = RootCertStore::empty();
    for root in certificates(ca, "CA certificate")? {
        roots.add(root).map_err(|e| NetError::Tls(format!("CA certificate: {e}")))?;
    }
    Ok(roots)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, NetError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let parsed = parsed.map_err(|e| NetError::Tls(format!("{what}: {e}")))?;
    if parsed.is_empty() {
        return Err(NetError::Tls(format!("{what}: no certificate in the PEM text")));
    }
    Ok(parsed)
}

/// The time by which certificates are judged. rustls's own clock panics before 1970.
#[derive(Debug)]
struct SystemClock;

impl TimeProvider for SystemClock {
    fn current_time(&self) -> Option<UnixTime> {
        SystemTime::now().duration_since(UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
    }
}

/// Returns the first certificate (DER) of a PEM text.
///
/// # Errors
/// [`NetError::Tls`] if there is none.
pub fn first_certificate(pem: &[u8]) -> Result<Vec<u8>, NetError> {
    Ok(certificates(pem, "certificate")?[0].to_vec())
}

fn error_for(what: &'static str) -> impl Fn(rustls::Error) -> NetError {
    move |e| NetError::Tls(format!("{what}: {e}"))
}

impl ServerTls {
    /// An identity from PEM texts: certificate chain, private key, and the CA that signs clients.
    ///
    /// # Errors
    /// [`NetError::Tls`] naming the text that is unusable.
    pub fn from_pem(chain: &[u8], key: &[u8], client_ca: &[u8]) -> Result<Self, NetError> {
        let identity = Identity::from_pem(chain, key, client_ca)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificate = identity.chain[0].clone();
        let authority = certificates(client_ca, "CA certificate")?.swap_remove(0);
        let verifier = WebPkiClientVerifier::builder_with_provider(identity.roots.into(), provider.clone())
            .build()
            .map_err(|e| NetError::Tls(format!("client CA: {e}")))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(error_for("protocol version"))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(identity.chain, identity.key)
            .map_err(error_for("server certificate"))?;
        config.send_tls13_tickets = 0;
        config.time_provider = Arc::new(SystemClock);
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { config: config.into(), certificate, authority })
    }

    /// The server's own certificate (DER).
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        self.certificate.as_ref()
    }

    /// The certificate of the CA that signs clients (DER): the first if there are several.
    #[must_use]
    pub fn authority(&self) -> &[u8] {
        self.authority.as_ref()
    }

    /// Runs the handshake with a client, and verifies its certificate.
    ///
    /// # Errors
    /// [`NetError::Tls`] if the peer is not a TLS 1.3 client that speaks [`ALPN`], with a
    /// certificate of our CA; [`NetError::Stalled`] if it makes no progress.
    pub fn accept(&self, tcp: TcpTransport) -> Result<TlsTransport, NetError> {
        let session = ServerConnection::new(self.config.clone()).map_err(error_for("server session"))?;
        TlsTransport::handshake(session.into(), tcp, ALPN)
    }

    /// The configuration for asynchronous TLS: the same identity and CA, for clients that speak
    /// [`ALPN`] or HTTP. [`TlsTransport::from_session`] turns sessions of [`ALPN`] into transports.
    #[must_use]
    pub fn with_http(&self) -> Arc<ServerConfig> {
        let mut config = (*self.config).clone();
        config.alpn_protocols = [ALPN, HTTP_2, HTTP_1].map(Vec::from).into();
        config.into()
    }

    /// As [`with_http`](Self::with_http), for clients that speak [`ALPN`] only.
    #[must_use]
    pub fn without_http(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }
}

impl ClientTls {
    /// An identity from PEM texts: certificate chain, private key, and the CA that signs servers.
    ///
    /// # Errors
    /// [`NetError::Tls`] naming the text that is unusable.
    pub fn from_pem(chain: &[u8], key: &[u8], server_ca: &[u8]) -> Result<Self, NetError> {
        let identity = Identity::from_pem(chain, key, server_ca)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificate = identity.chain[0].clone();
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(error_for("protocol version"))?
            .with_root_certificates(identity.roots)
            .with_client_auth_cert(identity.chain, identity.key)
            .map_err(error_for("client certificate"))?;
        config.resumption = Resumption::disabled();
        config.time_provider = Arc::new(SystemClock);
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { config: config.into(), certificate })
    }

    /// The same identity, for HTTP.
    #[must_use]
    pub fn for_http(&self) -> Self {
        let mut config = (*self.config).clone();
        config.alpn_protocols = vec![HTTP_1.to_vec()];
        Self { config: config.into(), certificate: self.certificate.clone() }
    }

    /// The client's own certificate (DER): the server's [`TlsTransport::peer_certificate`].
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        self.certificate.as_ref()
    }

    /// Runs the handshake with the server called `name` (a DNS name or IP address in its certificate),
    /// and verifies its certificate.
    ///
    /// In TLS 1.3 the server verifies the client's certificate after the client's handshake ends,
    /// so a refusal shows at the first read.
    ///
    /// # Errors
    /// [`NetError::Tls`] if the server's certificate is not of our CA or not for `name`;
    /// [`NetError::Stalled`] if the server makes no progress.
    pub fn connect(&self, tcp: TcpTransport, name: &str) -> Result<TlsTransport, NetError> {
        let name = server_name(name)?;
        let session = ClientConnection::new(self.config.clone(), name).map_err(error_for("client session"))?;
        TlsTransport::handshake(session.into(), tcp, &self.config.alpn_protocols[0])
    }
}

/// Checks that `name` is a DNS name or an IP address, as a server's certificate needs.
///
/// # Errors
/// [`NetError::Tls`] if `name` is neither.
pub fn check_host(name: &str) -> Result<(), NetError> {
    server_name(name).map(drop)
}

fn server_name(name: &str) -> Result<ServerName<'static>, NetError> {
    ServerName::try_from(name.to_owned())
        .map_err(|e| NetError::Tls(format!("`{name}` is neither a DNS name nor an IP address: {e}")))
}

/// Whether a server may use a certificate, given its chain and the CA as PEM texts. Checks nothing else
/// about its validity.
///
/// # Errors
/// [`NetError::Tls`] naming the text that is unusable.
pub fn is_for_servers(chain: &[u8], ca: &[u8]) -> Result<bool, NetError> {
    let (chain, roots) = (certificates(chain, "certificate")?, roots(ca)?);
    let server_certificate = ParsedCertificate::try_from(&chain[0]).map_err(error_for("server certificate"))?;
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let now = SystemClock.current_time().ok_or_else(|| NetError::Tls(NO_TIME.into()))?;
    let judged = verify_server_cert_signed_by_trust_anchor(&server_certificate, &roots, &chain[1..], now, algorithms);
    use CertificateError::{InvalidPurpose, InvalidPurposeContext};
    Ok(!matches!(judged, Err(rustls::Error::InvalidCertificate(InvalidPurpose | InvalidPurposeContext { .. }))))
}

/// An authenticated, encrypted connection over TCP.
pub struct TlsTransport {
    session: Connection,
    tcp: TcpTransport,
}

/// The error for a failed handshake with `peer`.
#[must_use]
pub fn handshake_failed(peer: &str, e: &io::Error) -> NetError {
    let doing = format!("TLS handshake with {peer}");
    match (NetError::from_io(doing, e), e.kind()) {
        (NetError::Tls(text), _) => NetError::Tls(format!("handshake with {peer}: {text}")),
        (_, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => NetError::Tls(format!(
            "{peer} closed the connection during the handshake: is a tacit server there, has it room, and does the \
             link carry the 2 kB of a handshake within two minutes?"
        )),
        (other, _) => other,
    }
}

impl TlsTransport {
    fn handshake(session: Connection, tcp: TcpTransport, protocol: &[u8]) -> Result<Self, NetError> {
        let peer = tcp.peer();
        let mut transport = Self { session, tcp };
        while transport.session.is_handshaking() {
            let step = transport
                .write_out()
                .and_then(|()| if transport.session.is_handshaking() { transport.read_in().map(drop) } else { Ok(()) });
            if let Err(e) = step {
                // Sends the alert that tells the peer the reason.
                let _ = transport.write_out();
                return Err(handshake_failed(&peer, &e));
            }
        }
        transport.write_out().map_err(|e| handshake_failed(&peer, &e))?;
        transport.require_protocol(protocol)
    }

    /// Takes over a client's session after another library ran the handshake and verified the
    /// certificate.
    ///
    /// # Errors
    /// [`NetError::Tls`] if the handshake is not complete, or the client does not name [`ALPN`].
    pub fn from_session(session: ServerConnection, tcp: TcpTransport) -> Result<Self, NetError> {
        if session.is_handshaking() {
            return Err(NetError::Tls(format!("the handshake with {} is not over", tcp.peer())));
        }
        Self { session: session.into(), tcp }.require_protocol(ALPN)
    }

    /// Refuses a peer that named no protocol; TLS itself refuses one that names another.
    fn require_protocol(self, protocol: &[u8]) -> Result<Self, NetError> {
        if self.session.alpn_protocol() == Some(protocol) {
            return Ok(self);
        }
        let (peer, protocol) = (self.tcp.peer(), String::from_utf8_lossy(protocol));
        Err(NetError::Tls(format!("{peer} does not say that it speaks {protocol} (ALPN)")))
    }

    /// As [`TcpTransport::closer`].
    ///
    /// # Errors
    /// [`NetError::Io`] if the socket cannot be duplicated.
    pub fn closer(&self) -> Result<TcpStream, NetError> {
        self.tcp.closer()
    }

    /// The peer's own certificate (DER): its identity.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.session.peer_certificates()?.first().map(|c| c.as_ref())
    }

    fn write_out(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.tcp)?;
        }
        Ok(())
    }

    /// Reads once from the socket into the session; false at the end of the stream.
    fn read_in(&mut self) -> io::Result<bool> {
        let n = self.session.read_tls(&mut self.tcp)?;
        self.take_in(n)?;
        // Sends key updates and alerts.
        self.write_out()?;
        Ok(n > 0)
    }

    fn take_in(&mut self, n: usize) -> io::Result<()> {
        let state = self.session.process_new_packets();
        state.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        if n == 0 && self.session.is_handshaking() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Reads decrypted bytes; calls `read_more` while there are none.
    fn read_plain(&mut self, buf: &mut [u8], read_more: fn(&mut Self) -> io::Result<()>) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => read_more(self)?,
                // The peer closed without close_notify: the channel reports what was cut off.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
        }
    }

    /// As [`read_in`](Self::read_in), but neither waits nor sends: TLS messages leave with the next
    /// write.
    fn try_read_in(&mut self) -> io::Result<()> {
        let n = self.session.read_tls(&mut WithoutWaiting(&mut self.tcp))?;
        self.take_in(n)
    }
}

/// Reads of a transport that do not wait.
struct WithoutWaiting<'a>(&'a mut TcpTransport);

impl Read for WithoutWaiting<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buf)
    }
}

impl Read for TlsTransport {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_plain(buf, |tls| tls.read_in().map(drop))
    }
}

impl Write for TlsTransport {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.session.writer().write(buf)?;
        self.write_out()?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_out()?;
        self.tcp.flush()
    }
}

impl Transport for TlsTransport {
    fn peer(&self) -> String {
        self.tcp.peer().replacen("tcp", "tls", 1)
    }

    fn set_stall_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.tcp.set_stall_timeout(timeout)
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.tcp.set_deadline(deadline);
    }

    fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_plain(buf, Self::try_read_in)
    }

    fn settle(&mut self) -> io::Result<()> {
        self.write_out()?;
        self.tcp.settle()
    }
}

impl Drop for TlsTransport {
    fn drop(&mut self) {
        self.session.send_close_notify();
        // A failure means that the peer is gone already.
        let _ = self.write_out();
    }
}
