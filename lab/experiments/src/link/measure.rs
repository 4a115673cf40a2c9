//! Measurement of a link: TCP goodput both ways, and the round-trip time idle and under load.
use super::{Link, Side};
use crate::LabError;
use crate::campaign::LinkFigures;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CONGESTION_CONTROL: &str = "reno";
/// Length of an echo packet's payload, bytes: as in `ping`.
const ECHO_LEN: usize = 56;
/// Bytes that a connection may send before the first answer (RFC 6928).
const INITIAL_WINDOW: f64 = 14_480.0;
/// Bytes of a full packet.
const PACKET_BYTES: f64 = 1500.0;

pub(super) fn measure(link: &Link, effort: Duration) -> Result<LinkFigures, LabError> {
    let spec = link.spec();
    let echo = Echo::open(link).map_err(LabError::failed("opening the echo sockets"))?;
    let step = format!("measuring the link {:?}", spec.name());
    let (idle, up, down) = echo
        .serve(|| -> io::Result<_> {
            let idle = echo.round_trips(effort / 5, Duration::from_millis(2), &AtomicBool::new(false))?;
            Ok((
                idle,
                bulk(link, Side::Client, &echo, effort * 2 / 5)?,
                bulk(link, Side::Server, &echo, effort * 2 / 5)?,
            ))
        })
        .map_err(LabError::failed(&step))?;
    let rtt =
        median(idle).ok_or_else(|| LabError::failed(step)("no echo came back: is everything lost on this link?"))?;
    // If no echo passes the full link, its round trip is at least as long as the wait.
    let loaded = median([up.round_trips, down.round_trips].concat()).unwrap_or(echo.patience.as_secs_f64());
    Ok(LinkFigures {
        target_up_bps: spec.up().map(|rate| rate.bits_per_second() as f64),
        target_down_bps: spec.down().map(|rate| rate.bits_per_second() as f64),
        target_rtt_s: spec.rtt().as_secs_f64(),
        up_bps: up.goodput,
        down_bps: down.goodput,
        rtt_s: rtt,
        loaded_rtt_s: loaded,
    })
}

/// The middle of `values`; `None` without any.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(tacit_floats::rising);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

fn bind(link: &Link, side: Side) -> io::Result<UdpSocket> {
    let address = link.address(side);
    // A socket belongs to the namespace of its creation, independent of its user.
    link.within(side, move || UdpSocket::bind((address, 0))).map_err(io::Error::other)?
}

/// A pair of UDP sockets; the server's socket echoes.
struct Echo {
    client: UdpSocket,
    server: UdpSocket,
    /// Longest wait for an echo.
    patience: Duration,
}

impl Echo {
    fn open(link: &Link) -> io::Result<Self> {
        let (client, server) = (bind(link, Side::Client)?, bind(link, Side::Server)?);
        client.connect(server.local_addr()?)?;
        let patience = 2 * (link.spec().rtt() + link.spec().jitter()) + Duration::from_millis(1500);
        client.set_read_timeout(Some(patience))?;
        server.set_read_timeout(Some(Duration::from_millis(50)))?;
        Ok(Self { client, server, patience })
    }

    /// Runs `f` while the server answers.
    fn serve<T>(&self, f: impl FnOnce() -> T) -> T {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut packet = [0; ECHO_LEN];
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((len, sender)) = self.server.recv_from(&mut packet) {
                        // An unanswered packet counts as lost.
                        _ = self.server.send_to(&packet[..len], sender);
                    }
                }
            });
            let result = f();
            stop.store(true, Ordering::Relaxed);
            result
        })
    }

    /// Round-trip times in seconds: during `time` with pauses of `gap`, 5 at least and 200 at most,
    /// or until `stop`.
    fn round_trips(&self, time: Duration, gap: Duration, stop: &AtomicBool) -> io::Result<Vec<f64>> {
        let start = Instant::now();
        let mut round_trips = Vec::new();
        for number in 0u64..200 {
            if stop.load(Ordering::Relaxed) || (number >= 5 && start.elapsed() > time) {
                break;
            }
            round_trips.extend(self.round_trip(number)?);
            std::thread::sleep(gap);
        }
        Ok(round_trips)
    }

    fn round_trip(&self, number: u64) -> io::Result<Option<f64>> {
        let mut packet = [0; ECHO_LEN];
        packet[..8].copy_from_slice(&number.to_le_bytes());
        let sent_at = Instant::now();
        match self.client.send(&packet) {
            // The queue of the link is full: this packet is lost.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => return Ok(None),
            other => other?,
        };
        while sent_at.elapsed() < self.patience {
            let mut answer = [0; ECHO_LEN];
            match self.client.recv(&mut answer) {
                Ok(_) if answer == packet => return Ok(Some(sent_at.elapsed().as_secs_f64())),
                // A late or damaged answer.
                Ok(_) => (),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

struct Bulk {
    goodput: f64,
    round_trips: Vec<f64>,
}

/// Length of the transfer's warm-up, and of its measured part.
fn windows(link: &Link, side: Side, effort: Duration) -> (Duration, Duration) {
    let (spec, rate) = (link.spec(), side.rate(link.spec()));
    let rtt = spec.rtt().as_secs_f64();
    // Slow start doubles per round trip; cubic needs about as long again after an early exit.
    let bytes_per_s = rate.map_or(1.25e9, |rate| rate.bits_per_second() as f64 / 8.0);
    let doublings = (bytes_per_s * rtt / INITIAL_WINDOW).max(1.0).log2();
    let warm = Duration::from_secs_f64((2.0 + 2.0 * doublings) * rtt).max(effort / 4);
    let measured = Duration::from_secs_f64((20.0 * PACKET_BYTES / bytes_per_s).max(4.0 * rtt)).max(effort * 3 / 4);
    (warm, measured)
}

/// Fills the link from `side` to the other side, and measures goodput and round trips.
fn bulk(link: &Link, side: Side, echo: &Echo, effort: Duration) -> io::Result<Bulk> {
    let (sender, receiver) = connect(link, side)?;
    let (warm, measured) = windows(link, side, effort);
    receiver.set_read_timeout(Some(warm + measured + echo.patience))?;
    let stop = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| fill(&sender, &stop));
        let pings = scope.spawn(|| {
            let start = Instant::now();
            while start.elapsed() < warm && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            echo.round_trips(measured, Duration::from_millis(10), &stop)
        });
        let goodput = drain(&receiver, warm, measured);
        stop.store(true, Ordering::Relaxed);
        // Ends a sender that waits for room, and discards queued data.
        _ = receiver.shutdown(std::net::Shutdown::Both);
        _ = sender.shutdown(std::net::Shutdown::Both);
        let round_trips = pings.join().map_err(|_| io::Error::other("the echo thread panicked"))??;
        Ok(Bulk { goodput: goodput?, round_trips })
    });
    drop((sender, receiver));
    // Lets the link's queues drain before the next measurement.
    std::thread::sleep(link.spec().rtt() + Duration::from_millis(100));
    result
}

/// Connects over TCP; returns the end at `side`, which sends, and the receiving end.
fn connect(link: &Link, side: Side) -> io::Result<(TcpStream, TcpStream)> {
    let own_address = link.address(side);
    let listener = link.within(side.other(), {
        let address = link.address(side.other());
        move || TcpListener::bind((address, 0))
    });
    let listener = listener.map_err(io::Error::other)??;
    let peer_address: SocketAddr = listener.local_addr()?;
    let sender = link.within(side, move || TcpStream::connect_timeout(&peer_address, Duration::from_secs(90)));
    let sender = sender.map_err(io::Error::other)??;
    // Cubic may end its slow start at half the link's rate (HyStart) and needs many seconds for the
    // rest; reno does not. Reno is in every kernel and needs no right.
    rustix::net::sockopt::set_tcp_congestion(&sender, CONGESTION_CONTROL)?;
    let (receiver, peer) = listener.accept()?;
    if peer.ip() != own_address {
        return Err(io::Error::other(format!("a connection from {peer} instead of {own_address}")));
    }
    // Closing then drops unsent data.
    rustix::net::sockopt::set_socket_linger(&sender, Some(Duration::ZERO))?;
    Ok((sender, receiver))
}

fn fill(mut sender: &TcpStream, stop: &AtomicBool) {
    let block = vec![0x5a; 64 << 10];
    // An error ends the transfer; the reading side reports it.
    while !stop.load(Ordering::Relaxed) && sender.write_all(&block).is_ok() {}
}

/// Goodput in bit/s: between the first arrival after `warm` and the first one `measured` later.
fn drain(mut receiver: &TcpStream, warm: Duration, measured: Duration) -> io::Result<f64> {
    let mut buffer = vec![0; 256 << 10];
    let start = Instant::now();
    let mut first: Option<Instant> = None;
    let mut bytes = 0u64;
    loop {
        let len = match receiver.read(&mut buffer) {
            // The kernel does not resume a read with a time limit after a signal.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let now = Instant::now();
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match first {
            None if now - start >= warm => first = Some(now),
            None => (),
            Some(first) => {
                bytes += len as u64;
                if now - first >= measured {
                    return Ok(8.0 * bytes as f64 / (now - first).as_secs_f64());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
