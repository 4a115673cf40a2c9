//! The monotonic clock of a host, and its offset to that of another host.
//!
//! Two hosts' monotonic clocks are unrelated, so one host asks the other for its time (`ping N` /
//! `pong N T_NS`, see [`mark`](crate::mark)) and reads its own clock before and after. The other
//! clock was read in between: its offset is known up to half the round-trip time, best from the
//! fastest exchange (as in NTP). [`Offset`] states both.
use crate::MeasureError;
use crate::mark::read_line;
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufReader, Read, Write};

/// `CLOCK_MONOTONIC` in nanoseconds: the same in every process of one host.
#[must_use]
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds since 1970 (UTC).
#[must_use]
pub fn unix_ns() -> u64 {
    nanoseconds(ClockId::Realtime)
}

/// Processor time of the calling thread, in seconds.
#[must_use]
pub fn thread_cpu_s() -> f64 {
    nanoseconds(ClockId::ThreadCPUTime) as f64 * 1e-9
}

/// Processor time of this process, all threads together, in seconds.
#[must_use]
pub fn process_cpu_s() -> f64 {
    nanoseconds(ClockId::ProcessCPUTime) as f64 * 1e-9
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.max(0) as u64)
}

/// Offset of another host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// The other host's clock minus this host's, nanoseconds.
    pub offset_ns: i128,
    /// Largest error of `offset_ns` in either direction, nanoseconds: half the round-trip time,
    /// whatever the delay of each way.
    pub bound_ns: u64,
    /// This host's clock at the measurement, nanoseconds.
    pub at_ns: u64,
}

impl Offset {
    /// The offset from one exchange: our clock at the question, theirs at the answer, ours at its
    /// arrival. `None` if time ran backwards.
    #[must_use]
    pub fn from_exchange(sent_ns: u64, theirs_ns: u64, received_ns: u64) -> Option<Self> {
        let round_trip = received_ns.checked_sub(sent_ns)?;
        let at_ns = sent_ns + round_trip / 2;
        Some(Self { offset_ns: i128::from(theirs_ns) - i128::from(at_ns), bound_ns: round_trip.div_ceil(2), at_ns })
    }

    /// Converts a time of our clock to theirs.
    #[must_use]
    pub fn to_theirs(&self, ours_ns: u64) -> u64 {
        u64::try_from((i128::from(ours_ns) + self.offset_ns).max(0)).unwrap_or(u64::MAX)
    }
}

/// Measures the offset of the clock at the other end of a stream from the fastest of `count`
/// exchanges. The other end must be a mark listener. Set a read timeout on the stream if the other
/// end may be silent.
///
/// # Errors
/// [`MeasureError::Io`] if the stream fails; [`MeasureError::Malformed`] for an invalid answer, or
/// `count` 0.
pub fn measure_offset(stream: &mut (impl Read + Write), count: u32) -> Result<Offset, MeasureError> {
    let mut best: Option<Offset> = None;
    for number in 0..count {
        let sent_ns = monotonic_ns();
        stream.write_all(format!("ping {number}\n").as_bytes()).map_err(MeasureError::io("clock exchange"))?;
        let line = read_line(&mut BufReader::new(&mut *stream)).map_err(MeasureError::io("clock exchange"))?;
        let received = monotonic_ns();
        let line = line.ok_or_else(|| malformed("the other host hung up".into()))?;
        let peer_ns = parse_pong(&line, number).ok_or_else(|| malformed("the answer to a ping is no pong".into()))?;
        let offset = Offset::from_exchange(sent_ns, peer_ns, received);
        best = best.into_iter().chain(offset).min_by_key(|o| o.bound_ns);
    }
    best.ok_or_else(|| malformed("no exchange took place".into()))
}

fn malformed(detail: String) -> MeasureError {
    MeasureError::Malformed { what: "clock exchange".into(), detail }
}

fn parse_pong(line: &[u8], number: u32) -> Option<u64> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    (fields.next()? == "pong" && fields.next()?.parse::<u32>().ok()? == number).then_some(())?;
    fields.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::{TcpListener, TcpStream};

    /// A clock with value `offset` at our time 0.
    fn peer_clock(own_ns: u64, offset: i128) -> u64 {
        (i128::from(own_ns) + offset) as u64
    }

    #[test]
    fn offset_is_within_its_bound_for_unequal_delays() {
        for (up, down) in [(1_000, 1_000), (0, 80_000_000), (80_000_000, 0), (5_000_000, 35_000_000)] {
            for offset in [-7_000_000_000_i128, 0, 123_456_789] {
                let sent = 10_000_000_000;
                let answer = peer_clock(sent + up, offset);
                let exchange = Offset::from_exchange(sent, answer, sent + up + down).unwrap();
                let error = (exchange.offset_ns - offset).unsigned_abs();
                assert!(error <= u128::from(exchange.bound_ns), "{up} {down} {offset}: {exchange:?}");
                assert_eq!(exchange.bound_ns, (up + down) / 2);
                let mark = exchange.to_theirs(11_000_000_000);
                assert_eq!(u128::from(mark.abs_diff(peer_clock(11_000_000_000, offset))), error);
            }
        }
        assert_eq!(Offset::from_exchange(5, 0, 4), None);
    }

    #[test]
    fn two_threads_of_one_host_find_no_offset() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let responder = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for ping in lines.map_while(Result::ok) {
                let number = ping.strip_prefix("ping ").unwrap();
                stream.write_all(format!("pong {number} {}\n", monotonic_ns()).as_bytes()).unwrap();
            }
        });
        let mut stream = TcpStream::connect(address).unwrap();
        let offset = measure_offset(&mut stream, 16).unwrap();
        assert!(offset.offset_ns.unsigned_abs() <= u128::from(offset.bound_ns), "{offset:?}");
        assert!(offset.bound_ns < 1_000_000_000, "{offset:?}");
        assert!(measure_offset(&mut stream, 0).is_err());
        drop(stream);
        responder.join().unwrap();
    }

    #[test]
    fn measure_rejects_malformed_answers() {
        struct Fixed(&'static [u8]);
        impl Read for Fixed {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(buffer)
            }
        }
        impl Write for Fixed {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        for nonsense in [&b""[..], b"pong 1 5\n", b"pong 0\n", b"pong 0 x\n", b"\xff\xff\n", &[b'a'; 5000]] {
            assert!(measure_offset(&mut Fixed(nonsense), 1).is_err(), "{nonsense:?}");
        }
    }
}
