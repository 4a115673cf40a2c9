//! Messages and handshakes that are waited for without a thread, and channels that leave none behind.
use super::common::{A, B, Ca, assert_error, assert_stalled, refuse, sockets, tcp, wire};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;
use tacit_net::*;

/// Identities of both parties under one CA.
fn identities() -> (ClientTls, ServerTls) {
    let ca = Ca::new("ours");
    (ca.client(&ca), ca.server(&ca))
}

/// Runs the server's handshake outside `TlsTransport`, which then takes the session over.
fn accepted(server: &ServerTls, mut stream: TcpStream) -> Result<TlsTransport, NetError> {
    let mut session = rustls::ServerConnection::new(server.with_http()).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut stream).map_err(|e| tls::handshake_failed("tcp", &e))?;
    }
    TlsTransport::from_session(session, tcp(stream))
}

/// Connects a client's TLS stream to a server's channel.
fn connected() -> (TlsTransport, Channel) {
    let (client, server) = identities();
    let (own_socket, peer_socket) = sockets();
    let connecting = thread::spawn(move || client.connect(tcp(own_socket), "localhost").unwrap());
    let accepted = accepted(&server, peer_socket).unwrap();
    (connecting.join().unwrap(), Channel::new(Box::new(accepted)))
}

/// Polls until a message is complete: loopback delivers soon, but not at once.
fn look(channel: &mut Channel, tag: Tag, max: usize) -> Result<Vec<u8>, NetError> {
    loop {
        match channel.try_recv(tag, max)? {
            Some(message) => return Ok(message),
            None => thread::yield_now(),
        }
    }
}

#[test]
fn try_recv_returns_a_trickled_message_whole() {
    let (mut raw, mut channel) = connected();
    let bytes = wire(&[(A, b"slow"), (B, b"second"), (A, b"third")]);
    let (head, tail) = bytes.split_at(HEADER_BYTES + 4);
    assert_eq!(channel.try_recv(A, 10).unwrap(), None);
    assert!(!channel.has_partial());
    for byte in &head[..head.len() - 1] {
        raw.write_all(&[*byte]).unwrap();
        assert_eq!(channel.try_recv(A, 10).unwrap(), None);
    }
    raw.write_all(&head[head.len() - 1..]).unwrap();
    assert_eq!(look(&mut channel, A, 10).unwrap(), b"slow");
    assert!(!channel.has_partial());
    // Waiting and looking take turns: frame numbers and counters are the channel's.
    raw.write_all(tail).unwrap();
    assert_eq!(channel.recv_max(B, 10).unwrap(), b"second");
    // It was read ahead.
    assert_eq!(channel.try_recv(A, 10).unwrap().unwrap(), b"third");
    assert_eq!(channel.total_traffic().received, bytes.len() as u64);
    drop(raw);
    assert_eq!(look(&mut channel, A, 10), Err(NetError::Closed { tag: A }));
    assert!(matches!(channel.try_recv(A, 10), Err(NetError::Failed { .. })));
}

#[test]
fn try_recv_reports_faults_as_early_as_recv() {
    let good = wire(&[(A, b"a message")]);
    let header = &good[..HEADER_BYTES];
    let with_byte = |position: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[position] = byte;
        bytes
    };
    type Named = fn(&NetError) -> bool;
    let cases: [(Vec<u8>, usize, Named); 7] = [
        (wire(&[(B, b"a message")])[..HEADER_BYTES].to_vec(), 100, |e| matches!(e, NetError::UnexpectedTag { .. })),
        (header.to_vec(), 8, |e| matches!(e, NetError::TooLong { max: 8, got: 9, .. })),
        (with_byte(4, 0x7f), 100, |e| matches!(e, NetError::FrameTooLong { .. })),
        (with_byte(5, 0x80), 100, |e| matches!(e, NetError::Malformed { .. })),
        (wire(&[(A, &vec![0; MAX_FRAME_BYTES + 1])])[..HEADER_BYTES].to_vec(), MAX_FRAME_BYTES, |e| {
            matches!(e, NetError::TooLong { .. })
        }),
        (with_byte(12, 0), 100, |e| matches!(e, NetError::Checksum { frame: 0, .. })),
        (good[..15].to_vec(), 100, |e| matches!(e, NetError::Truncated { got: 15, expected: 19, .. })),
    ];
    for (bytes, max, named) in cases {
        let (own_socket, peer_socket) = sockets();
        let mut channel = Channel::new(Box::new(tcp(peer_socket)));
        { &own_socket }.write_all(&bytes).unwrap();
        drop(own_socket);
        let error = look(&mut channel, A, max).unwrap_err();
        assert!(named(&error), "{error}");
    }
}

#[test]
fn settled_channel_has_sent_everything_and_can_be_used() {
    const BYTES: usize = 24 << 20;
    let (raw, mut channel) = connected();
    let reading = thread::spawn(move || {
        let mut channel = Channel::new(Box::new(raw));
        let mut sum = 0u64;
        for _ in 0..2 {
            sum += channel.recv(A, BYTES).unwrap().iter().map(|&b| u64::from(b)).sum::<u64>();
        }
        sum
    });
    for _ in 0..2 {
        channel.send(A, &vec![1; BYTES]).unwrap();
        channel.settle().unwrap();
    }
    channel.settle().unwrap();
    assert_eq!(reading.join().unwrap(), 2 * BYTES as u64);
}

#[test]
fn settle_stalls_if_the_peer_reads_nothing() {
    let (own_socket, peer_socket) = sockets();
    let mut channel = Channel::new(Box::new(tcp(peer_socket)));
    channel.set_stall_timeout(Duration::from_millis(200)).unwrap();
    // The queue has room for it. Either call may notice first that the peer does not read.
    assert_stalled(channel.send(A, &vec![0; 64 << 20]).and_then(|()| channel.settle()));
    drop(own_socket);
}

#[test]
fn try_recv_is_unsupported_in_memory() {
    let (mut channel, _peer) = mem_pair();
    let error = channel.try_recv(A, 10).unwrap_err();
    assert!(matches!(error, NetError::Io { kind: std::io::ErrorKind::Unsupported, .. }), "{error}");
}

#[test]
fn accepts_only_complete_sessions_with_our_alpn() {
    let (client, server) = identities();
    let unfinished = rustls::ServerConnection::new(server.with_http()).unwrap();
    let unfinished = TlsTransport::from_session(unfinished, tcp(sockets().1));
    assert!(matches!(unfinished.err(), Some(NetError::Tls(text)) if text.contains("not over")));
    let (own_socket, peer_socket) = sockets();
    let connecting = thread::spawn(move || client.for_http().connect(tcp(own_socket), "localhost").map(drop));
    assert_error(accepted(&server, peer_socket), &["does not say that it speaks tacit/2"]);
    connecting.join().unwrap().unwrap();
    for (opening, why) in [(&b"GET / HTTP/1.1\r\n\r\n"[..], "TLS"), (&b""[..], "closed")] {
        let (own_socket, peer_socket) = sockets();
        { &own_socket }.write_all(opening).unwrap();
        drop(own_socket);
        assert_error(accepted(&server, peer_socket), &[why]);
    }
}

#[test]
fn clients_without_our_alpn_are_refused() {
    let ca = Ca::new("ours");
    let (chain, key) = ca.issue("localhost");
    for (spoken, why) in [(vec![], "ALPN"), (vec![b"h2".to_vec()], "any known protocol")] {
        let session = ca.session(&rustls::version::TLS13, |config| {
            let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            let mut config = config.with_client_auth_cert(chain, key).unwrap();
            config.alpn_protocols = spoken;
            config
        });
        let (_, error) = refuse(ca.server(&ca), session);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn splits_addresses_and_names_their_faults() {
    for (text, host, port) in
        [("a.example:7878", "a.example", 7878), ("[::1]:1", "::1", 1), ("127.0.0.1:65535", "127.0.0.1", 65535)]
    {
        assert_eq!(split_address(text).unwrap(), (host, port));
    }
    for (text, problem) in [
        ("a.example", "the port is missing"),
        ("[::1]", "the port is missing"),
        ("[::1", "bracket"),
        ("::1:7878", "needs brackets"),
        (":7878", "the host is missing"),
        ("a.example:", "from 1 to 65535"),
        ("a.example:0", "from 1 to 65535"),
        ("a.example:65536", "from 1 to 65535"),
        ("a.example:http", "from 1 to 65535"),
    ] {
        assert_error(split_address(text), &[problem, text, "server.example:7878"]);
    }
    assert_error(TcpTransport::connect("localhost", Duration::from_secs(5)), &["the port is missing"]);
}

#[test]
fn connection_errors_are_plain() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = TcpTransport::connect(free, Duration::from_secs(5)).err().unwrap().to_string();
    assert_eq!(error, format!("connecting to {free}: Connection refused"));
    let error = TcpTransport::connect("no-such-host.invalid:1", Duration::from_secs(60)).err().unwrap().to_string();
    assert!(error.contains("no-such-host.invalid:1") && !error.contains("Uncategorized"), "{error}");
}
