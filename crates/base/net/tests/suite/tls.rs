//! TLS 1.3 with mutual authentication: who gets in, who does not, bulk in both directions.
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tacit_net::*;

const A: Tag = Tag::new(0xf001, "first");

struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key, PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(vec![name.into()]).unwrap().signed_by(&key, &self.0).unwrap();
        (cert.pem(), key.serialize_pem())
    }

    fn server(&self, client_ca: &Self) -> ServerTls {
        let (cert, key) = self.issue("localhost");
        ServerTls::from_pem(cert.as_bytes(), key.as_bytes(), client_ca.pem().as_bytes()).unwrap()
    }

    fn client(&self, server_ca: &Self) -> ClientTls {
        let (cert, key) = self.issue("somebody");
        ClientTls::from_pem(cert.as_bytes(), key.as_bytes(), server_ca.pem().as_bytes()).unwrap()
    }
}

fn sockets() -> (TcpTransport, TcpTransport) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let make = |s| {
        let mut t = TcpTransport::new(s).unwrap();
        t.set_stall_timeout(Duration::from_secs(20)).unwrap();
        t
    };
    (make(client), make(listener.accept().unwrap().0))
}

type Connected = (Result<TlsTransport, NetError>, Result<TlsTransport, NetError>);

fn connect(client: &ClientTls, server: ServerTls, name: &str) -> Connected {
    let (c, s) = sockets();
    let accepting = thread::spawn(move || server.accept(s));
    (client.connect(c, name), accepting.join().unwrap())
}

#[test]
fn bulk_both_ways_before_either_reads_and_identities_are_known() {
    let ca = Ca::new("ours");
    let (client, server) = connect(&ca.client(&ca), ca.server(&ca), "localhost");
    let (client, server) = (client.unwrap(), server.unwrap());
    assert!(client.peer_certificate().unwrap() != server.peer_certificate().unwrap());
    assert!(server.peer().starts_with("tls 127.0.0.1:"));
    let (mut client, mut server) = (Channel::new(Box::new(client)), Channel::new(Box::new(server)));
    const BYTES: usize = 32 << 20;
    let peer = thread::spawn(move || {
        server.send(A, &vec![9; BYTES]).unwrap();
        assert!(server.recv(A, BYTES).unwrap().iter().all(|&x| x == 7));
    });
    client.send(A, &vec![7; BYTES]).unwrap();
    assert!(client.recv(A, BYTES).unwrap().iter().all(|&x| x == 9));
    peer.join().unwrap();
    assert_eq!(client.recv(A, 1), Err(NetError::Closed { tag: A }));
}

#[test]
fn a_client_of_another_ca_is_refused_on_both_sides() {
    let ca = Ca::new("ours");
    for (stranger, alert) in [(Ca::new("theirs"), "UnknownCA"), (Ca::new("ours"), "DecryptError")] {
        let (client, server) = connect(&stranger.client(&ca), ca.server(&ca), "localhost");
        assert!(matches!(server.err(), Some(NetError::Tls(_))));
        let mut channel = Channel::new(Box::new(client.unwrap()));
        let error = channel.recv(A, 1).unwrap_err();
        assert!(error.to_string().contains("rejects our certificate") && error.to_string().contains(alert), "{error}");
    }
}

#[test]
fn certificates_out_of_their_time_are_named_on_both_sides() {
    let ca = Ca::new("ours");
    let dated = |first_year: i32, last_year: i32| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(first_year, 1, 1), rcgen::date_time_ymd(last_year, 1, 1));
        (params.signed_by(&key, &ca.0).unwrap().pem(), key.serialize_pem())
    };
    for ((first_year, last_year), at_judge) in [((2900, 2999), "not valid yet"), ((1990, 1999), "has expired")] {
        let (cert, key) = dated(first_year, last_year);
        let client = ClientTls::from_pem(cert.as_bytes(), key.as_bytes(), ca.pem().as_bytes()).unwrap();
        let (client, server) = connect(&client, ca.server(&ca), "localhost");
        let error = server.err().unwrap().to_string();
        assert!(error.contains(at_judge) && error.contains("clock"), "{error}");
        let error = Channel::new(Box::new(client.unwrap())).recv(A, 1).unwrap_err().to_string();
        assert!(error.contains("rejects our certificate") && error.contains("clock"), "{error}");
        let (cert, key) = dated(first_year, last_year);
        let server = ServerTls::from_pem(cert.as_bytes(), key.as_bytes(), ca.pem().as_bytes()).unwrap();
        let error = connect(&ca.client(&ca), server, "localhost").0.err().unwrap().to_string();
        assert!(error.contains(at_judge) && error.contains("127.0.0.1:"), "{error}");
    }
}

#[test]
fn a_server_of_another_ca_or_name_is_refused() {
    let (ca, stranger) = (Ca::new("ours"), Ca::new("theirs"));
    let (client, server) = connect(&ca.client(&ca), stranger.server(&ca), "localhost");
    assert!(matches!(client.err(), Some(NetError::Tls(text)) if text.contains("not signed by our CA")));
    assert!(server.is_err());
    let (client, _) = connect(&ca.client(&ca), ca.server(&ca), "elsewhere.example");
    assert!(matches!(client.err(), Some(NetError::Tls(text)) if text.contains("for other names")));
    let (client, _) = connect(&ca.client(&ca), ca.server(&ca), "not a name");
    assert!(matches!(client.err(), Some(NetError::Tls(text)) if text.contains("DNS name")));
}

#[test]
fn clients_without_certificate_or_with_tls_1_2_are_refused() {
    let ca = Ca::new("ours");
    let mut roots = rustls::RootCertStore::empty();
    let der = rustls::pki_types::pem::PemObject::from_pem_slice(ca.pem().as_bytes()).unwrap();
    roots.add(der).unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        let session = rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let (c, s) = sockets();
        let server = ca.server(&ca);
        let accepting = thread::spawn(move || server.accept(s).map(|_| ()));
        let mut stream = rustls::StreamOwned::new(session, c);
        let _ = stream.write_all(b"hello");
        assert!(stream.read(&mut [0]).is_err(), "{version:?}");
        let error = accepting.join().unwrap().unwrap_err().to_string();
        let why = if version.version == rustls::ProtocolVersion::TLSv1_2 { "incompatible" } else { "no certificates" };
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn what_is_not_tls_and_unusable_keys_are_named() {
    let ca = Ca::new("ours");
    let (mut c, s) = sockets();
    let server = ca.server(&ca);
    let accepting = thread::spawn(move || server.accept(s).map(|_| ()));
    c.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(matches!(accepting.join().unwrap(), Err(NetError::Tls(_))));
    let (c, s) = sockets();
    drop(c);
    let error = ca.server(&ca).accept(s).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");

    let (cert, key) = ca.issue("localhost");
    let pem = ca.pem();
    let make = |c: &str, k: &str, ca: &str| ServerTls::from_pem(c.as_bytes(), k.as_bytes(), ca.as_bytes()).map(|_| ());
    assert!(make(&cert, &key, "").unwrap_err().to_string().contains("CA certificate"));
    assert!(make("nonsense", &key, &pem).unwrap_err().to_string().contains("certificate"));
    assert!(make(&cert, &cert, &pem).unwrap_err().to_string().contains("private key"));
}
