//! TLS 1.3 with mutual authentication: who gets in, who does not, bulk in both directions.
use super::common::{A, Ca, assert_error, refuse, sockets, tcp};
use rcgen::CertificateParams;
use std::io::{Read, Write};
use std::thread;
use tacit_net::*;

type Connected = (Result<TlsTransport, NetError>, Result<TlsTransport, NetError>);

fn connect(client: &ClientTls, server: ServerTls, name: &str) -> Connected {
    let (c, s) = sockets();
    let accepting = thread::spawn(move || server.accept(tcp(s)));
    (client.connect(tcp(c), name), accepting.join().unwrap())
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
        assert_error(channel.recv(A, 1), &["rejects our certificate", alert]);
    }
}

#[test]
fn certificates_out_of_their_time_are_named_on_both_sides() {
    let ca = Ca::new("ours");
    let dated = |first_year: i32, last_year: i32| {
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(first_year, 1, 1), rcgen::date_time_ymd(last_year, 1, 1));
        ca.sign(params)
    };
    for ((first_year, last_year), at_judge) in [((2900, 2999), "not valid yet"), ((1990, 1999), "has expired")] {
        let (cert, key) = dated(first_year, last_year);
        let client = ClientTls::from_pem(cert.as_bytes(), key.as_bytes(), ca.pem().as_bytes()).unwrap();
        let (client, server) = connect(&client, ca.server(&ca), "localhost");
        assert_error(server, &[at_judge, "clock"]);
        let received = Channel::new(Box::new(client.unwrap())).recv(A, 1);
        assert_error(received, &["rejects our certificate", "clock"]);
        let (cert, key) = dated(first_year, last_year);
        let server = ServerTls::from_pem(cert.as_bytes(), key.as_bytes(), ca.pem().as_bytes()).unwrap();
        assert_error(connect(&ca.client(&ca), server, "localhost").0, &[at_judge, "127.0.0.1:"]);
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
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let session = ca.session(version, |config| config.with_no_client_auth());
        let (mut stream, error) = refuse(ca.server(&ca), session);
        assert!(stream.read(&mut [0]).is_err(), "{version:?}");
        let why = if version.version == rustls::ProtocolVersion::TLSv1_2 { "incompatible" } else { "no certificates" };
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn non_tls_peers_and_unusable_keys_are_named() {
    let ca = Ca::new("ours");
    let (mut c, s) = sockets();
    let server = ca.server(&ca);
    let accepting = thread::spawn(move || server.accept(tcp(s)).map(drop));
    c.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(matches!(accepting.join().unwrap(), Err(NetError::Tls(_))));
    let (c, s) = sockets();
    drop(c);
    assert_error(ca.server(&ca).accept(tcp(s)), &["closed"]);

    let ((cert, key), pem) = (ca.issue("localhost"), ca.pem());
    let (cert, key, pem) = (cert.as_str(), key.as_str(), pem.as_str());
    for (cert, key, ca, named) in
        [(cert, key, "", "CA certificate"), ("nonsense", key, pem, "certificate"), (cert, cert, pem, "private key")]
    {
        assert_error(ServerTls::from_pem(cert.as_bytes(), key.as_bytes(), ca.as_bytes()), &[named]);
    }
}
