//! Links: fault counters are exact, programs live and die with their link, and the host's network
//! is unchanged.
mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tacit_experiments::link::{CONGESTION_CONTROL, Counters, Link, Side};

/// Sets up a link from JSON.
fn link(test: &str, json: &str) -> Option<Link> {
    common::link_or_skip(test, &serde_json::from_str(json).unwrap())
}

/// A TCP connection over the link: the ends of client and server.
fn connect(link: &Link) -> (TcpStream, TcpStream) {
    let address = link.address(Side::Server);
    let listener = link.within(Side::Server, move || TcpListener::bind((address, 0))).unwrap().unwrap();
    let server_address = listener.local_addr().unwrap();
    let client = link.within(Side::Client, move || TcpStream::connect(server_address)).unwrap().unwrap();
    (client, listener.accept().unwrap().0)
}

fn bind(link: &Link, side: Side) -> UdpSocket {
    let address = link.address(side);
    let socket = link.within(side, move || UdpSocket::bind((address, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    socket
}

/// Packets on the way or in the server's socket at once; the socket drops packets beyond about 200.
const UNDER_WAY: u64 = 50;

/// Sends numbered packets from client to server over a fresh link; returns those that arrive, in order.
fn exchange(link: &Link, count: u32) -> Vec<Vec<u8>> {
    let (client, server) = (bind(link, Side::Client), bind(link, Side::Server));
    client.connect(server.local_addr().unwrap()).unwrap();
    let (end, received) = (Instant::now() + Duration::from_secs(60), AtomicU64::new(0));
    let in_time = || assert!(Instant::now() < end, "{:?} and {received:?} received", link.counters());
    let is_over = |received: u64| {
        let up = link.counters().up;
        // A link without emulator counts nothing and loses nothing.
        let (dealt, due) = (up.delivered + up.lost, u64::from(count) + up.replayed);
        if dealt == 0 { received == u64::from(count) } else { dealt == due && received == up.delivered }
    };
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut arrived, mut buffer) = (Vec::new(), [0; 2048]);
            while !is_over(arrived.len() as u64) {
                in_time();
                if let Ok(len) = server.recv(&mut buffer) {
                    arrived.push(buffer[..len].to_vec());
                    received.store(arrived.len() as u64, Ordering::Relaxed);
                }
            }
            arrived
        });
        for number in 0..count {
            let mut packet = [0xab; 200];
            packet[..4].copy_from_slice(&number.to_le_bytes());
            client.send(&packet).unwrap();
            let under_way = || {
                let up = link.counters().up;
                (u64::from(number + 1) + up.replayed).saturating_sub(up.lost + received.load(Ordering::Relaxed))
            };
            while number % 20 == 19 && under_way() > UNDER_WAY {
                in_time();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        receiver.join().unwrap()
    })
}

fn number(packet: &[u8]) -> u32 {
    u32::from_le_bytes(packet[..4].try_into().unwrap())
}

#[test]
fn losses_are_counted_and_the_rest_arrives_in_order_despite_jitter() {
    let json = r#"{"rtt": "20ms", "jitter": "20ms", "loss": 0.1}"#;
    let Some(link) = link("losses_are_counted", json) else { return };
    let arrived = exchange(&link, 2000);
    let Counters { up, down } = link.counters();
    assert_eq!((arrived.len() as u64, up.lost + up.delivered), (up.delivered, 2000));
    // Ten standard deviations.
    assert!((up.lost as f64 - 200.0).abs() < 135.0, "{} of 2000 lost", up.lost);
    assert_eq!((down.delivered, down.lost, up.corrupted, up.replayed, up.overflowed), (0, 0, 0, 0, 0));
    assert!(arrived.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])));
    assert_eq!(up.bytes, up.delivered * (200 + 28));
}

#[test]
fn corrupted_packets_pass_every_checksum() {
    let Some(link) = link("corrupted_packets", r#"{"rtt": "2ms", "corrupt": 0.2}"#) else { return };
    let arrived = exchange(&link, 1000);
    let up = link.counters().up;
    // All packets arrive, and exactly the corrupted ones differ. The kernel drops wrong checksums.
    assert_eq!((arrived.len(), up.lost), (1000, 0));
    let mut changed = 0;
    for (expected, packet) in arrived.iter().enumerate() {
        let mut sent = [0xab; 200];
        sent[..4].copy_from_slice(&(expected as u32).to_le_bytes());
        let differences = sent.iter().zip(packet).filter(|(a, b)| a != b).count();
        assert_eq!(packet.len(), 200);
        assert!(differences <= 1, "packet {expected} differs in {differences} bytes");
        changed += differences as u64;
    }
    assert_eq!(changed, up.corrupted);
    assert!((100..300).contains(&changed), "{changed} of 1000 changed");
}

#[test]
fn corruption_reaches_a_tcp_stream() {
    let Some(link) = link("corruption_reaches_a_tcp_stream", r#"{"rtt": "2ms", "corrupt": 0.05}"#) else { return };
    let (mut client, mut server) = connect(&link);
    let writer = std::thread::spawn(move || client.write_all(&vec![7; 1 << 20]));
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(received.len(), 1 << 20);
    let wrong_bytes = received.iter().filter(|&&byte| byte != 7).count() as u64;
    let corrupted = link.counters().up.corrupted;
    // A corrupted packet that was sent again by TCP arrives unchanged, hence at most.
    assert!(wrong_bytes > 5, "{wrong_bytes}");
    assert!(wrong_bytes <= corrupted, "{wrong_bytes} bytes wrong, {corrupted} packets corrupted");
}

#[test]
fn replayed_packets_come_again_later() {
    let Some(link) = link("replayed_packets", r#"{"rtt": "2ms", "duplicate": 0.1}"#) else { return };
    let arrived = exchange(&link, 1000);
    let up = link.counters().up;
    assert!((50..200).contains(&up.replayed), "{} of 1000 replayed", up.replayed);
    assert_eq!((arrived.len() as u64, up.delivered), (1000 + up.replayed, 1000 + up.replayed));
    let mut packets_seen = std::collections::BTreeSet::new();
    let duplicates: Vec<usize> = (0..arrived.len()).filter(|&i| !packets_seen.insert(arrived[i].clone())).collect();
    assert_eq!(duplicates.len() as u64, up.replayed);
    // Other packets arrive between a packet and its replay.
    assert!(duplicates.iter().any(|&i| i > 0 && number(&arrived[i - 1]) > number(&arrived[i]) + 10));
}

#[test]
fn a_link_that_only_limits_the_rate_needs_no_emulator() {
    let Some(link) = link("a_link_that_only_limits", r#"{"rate": "50mbit"}"#) else { return };
    let figures = link.measure(Duration::from_millis(500)).unwrap();
    assert_eq!(link.counters(), Counters::default());
    for figure in [figures.up_bps, figures.down_bps, figures.rtt_s] {
        assert!(figure > 0.0, "{figures:?}");
    }
}

#[test]
fn programs_see_only_the_link() {
    let Some(link) = link("a_program_inside", r#"{"rtt": "1ms"}"#) else { return };
    let script = "ls /sys/class/net >/dev/null; ip -brief address; ip route get 198.18.0.2; echo $GREETING; cat";
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("GREETING", "hello").stdin(Stdio::null()).stdout(Stdio::piped());
    let output = link.spawn(Side::Client, &mut command).unwrap().wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("hello"), "{text}");
    let interfaces: Vec<&str> = text.lines().filter(|line| line.contains("UNKNOWN") || line.contains("UP")).collect();
    assert_eq!(interfaces.len(), 2, "{text}");
    assert!(text.contains("127.0.0.1"), "{text}");
    assert!(text.contains("198.18.0.1/30"), "{text}");
    assert!(!text.contains("eth0"), "{text}");
    // The command can be used again, as with `Command::spawn`.
    assert_eq!(command.get_args().last().unwrap(), script);
    assert!(link.spawn(Side::Client, &mut command).unwrap().wait().unwrap().success());
    let error = link.spawn(Side::Server, &mut Command::new("/no/such/program")).unwrap_err().to_string();
    assert!(error.contains("/no/such/program"), "{error}");
}

#[test]
fn connections_use_the_stated_congestion_control() {
    let Some(link) = link("connections_use", r#"{"rtt": "1ms"}"#) else { return };
    let (client, server) = connect(&link);
    for socket in [client, server] {
        assert_eq!(rustix::net::sockopt::tcp_congestion(&socket).unwrap(), CONGESTION_CONTROL);
    }
}

#[test]
fn dropping_a_link_ends_its_programs_and_their_children() {
    let Some(link) = link("dropping_a_link", r#"{"rtt": "1ms"}"#) else { return };
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' TERM INT HUP; setsid sleep 1000 & echo started; wait"]).stdout(Stdio::piped());
    let mut child = link.spawn(Side::Server, &mut command).unwrap();
    let mut line = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"started\n");
    drop(link);
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    // The pipe is closed only once the grandchild is gone as well.
    let mut remaining = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut remaining).unwrap();
    assert!(remaining.is_empty());
}

#[test]
fn panics_inside_are_reported() {
    let Some(link) = link("a_panic_inside", r#"{"rtt": "1ms"}"#) else { return };
    let error = link.within(Side::Client, || panic!("as asked for")).map(|()| 0).unwrap_err().to_string();
    assert!(error.contains("as asked for"), "{error}");
    assert_eq!(link.within(Side::Client, || 5).unwrap(), 5);
}

#[test]
fn two_links_do_not_disturb_each_other_or_the_host() {
    // Other processes of the host may add interfaces at the same time.
    let link_count = || std::fs::read_to_string("/proc/net/dev").unwrap().matches("link0:").count();
    let before = link_count();
    let Some(first) = link("two_links", r#"{"rtt": "1ms"}"#) else { return };
    let second = link("two_links", "{}").unwrap();
    assert_eq!((exchange(&first, 50).len(), exchange(&second, 50).len()), (50, 50));
    assert_eq!(link_count(), before);
}
