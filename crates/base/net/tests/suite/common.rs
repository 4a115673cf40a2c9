//! Tags, bytes, connections and certificates for the other tests.
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::WantsClientCert;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, StreamOwned, SupportedProtocolVersion};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tacit_net::*;

pub const A: Tag = Tag::new(0xf001, "first");
pub const B: Tag = Tag::new(0xf002, "second");

/// The bytes a channel puts on the wire for the given messages.
pub fn wire(messages: &[(Tag, &[u8])]) -> Vec<u8> {
    let (a, mut raw) = MemTransport::pair();
    let mut channel = Channel::new(Box::new(a));
    for (tag, message) in messages {
        channel.send(*tag, message).unwrap();
    }
    drop(channel);
    let mut bytes = Vec::new();
    raw.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Both ends of a loopback connection, the connecting one first.
pub fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A transport with a stall timeout of 20 s.
pub fn tcp(stream: TcpStream) -> TcpTransport {
    let mut tcp = TcpTransport::new(stream).unwrap();
    tcp.set_stall_timeout(Duration::from_secs(20)).unwrap();
    tcp
}

/// A channel with the default timeouts.
pub fn channel(stream: TcpStream) -> Channel {
    Channel::new(Box::new(TcpTransport::new(stream).unwrap()))
}

#[track_caller]
pub fn assert_stalled<T: std::fmt::Debug>(result: Result<T, NetError>) {
    assert!(matches!(result, Err(NetError::Stalled { .. })), "{result:?}");
}

/// Asserts that a result is an error whose text has all of `parts`.
#[track_caller]
pub fn assert_error<T, E: ToString>(result: Result<T, E>, parts: &[&str]) {
    let text = result.err().expect("an error").to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text} without one of {parts:?}");
}

pub struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key, PEM.
    pub fn issue(&self, name: &str) -> (String, String) {
        self.sign(CertificateParams::new(vec![name.into()]).unwrap())
    }

    pub fn sign(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    pub fn server(&self, client_ca: &Self) -> ServerTls {
        let (cert, key) = self.issue("localhost");
        ServerTls::from_pem(cert.as_bytes(), key.as_bytes(), client_ca.pem().as_bytes()).unwrap()
    }

    pub fn client(&self, server_ca: &Self) -> ClientTls {
        let (cert, key) = self.issue("somebody");
        ClientTls::from_pem(cert.as_bytes(), key.as_bytes(), server_ca.pem().as_bytes()).unwrap()
    }

    /// A session with `localhost` that is not configured by [`ClientTls`].
    pub fn session(
        &self,
        version: &'static SupportedProtocolVersion,
        configure: impl FnOnce(ConfigBuilder<ClientConfig, WantsClientCert>) -> ClientConfig,
    ) -> ClientConnection {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let config = configure(config.with_root_certificates(roots));
        ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
    }
}

/// The client's end of a connection that the server refuses, and the server's error.
pub fn refuse(server: ServerTls, session: ClientConnection) -> (StreamOwned<ClientConnection, TcpStream>, String) {
    let (own_socket, peer_socket) = sockets();
    own_socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    own_socket.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let accepting = thread::spawn(move || server.accept(tcp(peer_socket)).map(drop));
    let mut stream = StreamOwned::new(session, own_socket);
    let _ = stream.write_all(b"hello");
    (stream, accepting.join().unwrap().unwrap_err().to_string())
}
