//! The monotonic clock of a host, and its offset to that of another host.
//!
//! Two hosts' monotonic clocks have nothing in common, so one asks the other for its time (`ping N` / `pong N T_NS`, see
//! [`mark`](crate::mark)) and notes its own before and after. The other clock was read somewhere in between: its offset is known up
//! to half the round-trip time, and that of the fastest exchange best (as in NTP). [`Offset`] states both; [`ClockMap`] removes the
//! drift between an estimate before a measurement and one after it.
use crate::MeterError;
use crate::mark::LineReader;
use rustix::time::{ClockId, clock_gettime};
use std::io::{Read, Write};
use std::time::Duration;

/// `CLOCK_MONOTONIC` in nanoseconds: the same in every process of one host, without relation to that of another host.
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

/// Processor time of all threads of a process of our process namespace, also of those that have ended, in nanoseconds; `None` if there
/// is no such process. That of a zombie stays until it is reaped. A running thread counts up to the scheduler's last tick.
pub(crate) fn process_cpu_ns(pid: u32) -> Option<u64> {
    let pid = i32::try_from(pid).ok().filter(|&pid| pid > 0)?;
    let time =
        nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(pid)).and_then(nix::time::ClockId::now).ok()?;
    u64::try_from(Duration::from(time).as_nanos()).ok()
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.max(0) as u64)
}

/// Offset of another host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// Their clock minus ours, nanoseconds.
    pub offset_ns: i128,
    /// The true offset lies within +- this, nanoseconds: half the round-trip time, whatever the delays each way are.
    pub bound_ns: u64,
    /// Our clock when it was found, nanoseconds.
    pub at_ns: u64,
}

impl Offset {
    /// From one exchange: our clock when we asked, theirs when they answered, ours when the answer came. `None` if time ran backwards.
    #[must_use]
    pub fn from_exchange(sent_ns: u64, theirs_ns: u64, received_ns: u64) -> Option<Self> {
        let round_trip = received_ns.checked_sub(sent_ns)?;
        let at_ns = sent_ns + round_trip / 2;
        Some(Self { offset_ns: i128::from(theirs_ns) - i128::from(at_ns), bound_ns: round_trip.div_ceil(2), at_ns })
    }

    /// Our clock at the time when theirs shows `theirs_ns`.
    #[must_use]
    pub fn to_ours(&self, theirs_ns: u64) -> u64 {
        clamp(i128::from(theirs_ns) - self.offset_ns)
    }

    /// Their clock at the time when ours shows `ours_ns`.
    #[must_use]
    pub fn to_theirs(&self, ours_ns: u64) -> u64 {
        clamp(i128::from(ours_ns) + self.offset_ns)
    }
}

fn clamp(ns: i128) -> u64 {
    u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
}

/// Finds the offset of the clock at the other end of a stream by `count` exchanges, of which the fastest counts. The other end must
/// run [`respond`] or a mark listener. Set a read timeout on the stream if the other end may be silent.
///
/// # Errors
/// [`MeterError::Io`] if the stream fails; [`MeterError::Malformed`] for an answer that is none, or `count` 0.
pub fn measure(stream: &mut (impl Read + Write), count: u32) -> Result<Offset, MeterError> {
    let malformed = |detail: String| MeterError::Malformed { what: "clock exchange".into(), detail };
    let mut best: Option<Offset> = None;
    for number in 0..count {
        let sent = monotonic_ns();
        stream.write_all(format!("ping {number}\n").as_bytes()).map_err(MeterError::io("clock exchange"))?;
        let line = LineReader::default().read(stream).map_err(MeterError::io("clock exchange"))?;
        let received = monotonic_ns();
        let line = line.ok_or_else(|| malformed("the other host hung up".into()))?;
        let theirs = parse_pong(&line, number).ok_or_else(|| malformed("the answer to a ping is no pong".into()))?;
        let found = Offset::from_exchange(sent, theirs, received);
        best = best.into_iter().chain(found).min_by_key(|o| o.bound_ns);
    }
    best.ok_or_else(|| malformed("no exchange took place".into()))
}

fn parse_pong(line: &[u8], number: u32) -> Option<u64> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    (fields.next()? == "pong" && fields.next()?.parse::<u32>().ok()? == number).then_some(())?;
    fields.next()?.parse().ok()
}

/// Answers [`measure`] at the other end of a stream until that hangs up.
///
/// # Errors
/// [`MeterError::Io`] if the stream fails; [`MeterError::Malformed`] for a line that is no ping.
pub fn respond(stream: &mut (impl Read + Write)) -> Result<(), MeterError> {
    let mut lines = LineReader::default();
    while let Some(line) = lines.read(stream).map_err(MeterError::io("clock exchange"))? {
        let now = monotonic_ns();
        let number = std::str::from_utf8(&line).ok().and_then(|l| l.strip_prefix("ping ")?.trim().parse::<u32>().ok());
        let Some(number) = number else {
            return Err(MeterError::Malformed { what: "clock exchange".into(), detail: "expected `ping N`".into() });
        };
        stream.write_all(format!("pong {number} {now}\n").as_bytes()).map_err(MeterError::io("clock exchange"))?;
    }
    Ok(())
}

/// Another host's clock over a whole measurement: the offset moves linearly from one estimate to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockMap {
    before: Offset,
    after: Offset,
}

impl ClockMap {
    /// From an estimate before a measurement and one after it.
    #[must_use]
    pub fn new(before: Offset, after: Offset) -> Self {
        Self { before, after }
    }

    /// Our clock at the time when theirs shows `theirs_ns`; beyond the two estimates the drift is taken to go on.
    #[must_use]
    pub fn to_ours(&self, theirs_ns: u64) -> u64 {
        let span = i128::from(self.after.at_ns) - i128::from(self.before.at_ns);
        let drift = self.after.offset_ns - self.before.offset_ns;
        if span <= 0 {
            return self.after.to_ours(theirs_ns);
        }
        // theirs = ours + offset(ours), with offset linear in ours, solved for ours.
        let since = i128::from(theirs_ns) - i128::from(self.before.to_theirs(self.before.at_ns));
        let ours = since as f64 * (span as f64 / (span + drift).max(1) as f64);
        clamp(i128::from(self.before.at_ns) + ours.round() as i128)
    }

    /// Largest error of [`to_ours`](Self::to_ours) between the estimates, nanoseconds, if the drift is constant.
    #[must_use]
    pub fn bound_ns(&self) -> u64 {
        self.before.bound_ns.max(self.after.bound_ns)
    }

    /// How much faster their clock runs than ours, in parts per million.
    #[must_use]
    pub fn drift_ppm(&self) -> f64 {
        let span = self.after.at_ns.saturating_sub(self.before.at_ns);
        if span == 0 { 0.0 } else { (self.after.offset_ns - self.before.offset_ns) as f64 / span as f64 * 1e6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// A clock that runs `ppm` faster than ours and shows `offset` at our time 0.
    fn theirs(ours: u64, offset: i128, ppm: f64) -> u64 {
        (i128::from(ours) + offset + (ours as f64 * ppm * 1e-6).round() as i128) as u64
    }

    #[test]
    fn the_offset_is_within_its_bound_however_unequal_the_delays_are() {
        for (up, down) in [(1_000, 1_000), (0, 80_000_000), (80_000_000, 0), (5_000_000, 35_000_000)] {
            for offset in [-7_000_000_000_i128, 0, 123_456_789] {
                let sent = 10_000_000_000;
                let answer = theirs(sent + up, offset, 0.0);
                let found = Offset::from_exchange(sent, answer, sent + up + down).unwrap();
                let error = (found.offset_ns - offset).unsigned_abs();
                assert!(error <= u128::from(found.bound_ns), "{up} {down} {offset}: {found:?}");
                assert_eq!(found.bound_ns, (up + down) / 2);
                let mark = theirs(11_000_000_000, offset, 0.0);
                assert_eq!(u128::from(found.to_ours(mark).abs_diff(11_000_000_000)), error);
                assert_eq!(found.to_theirs(found.to_ours(mark)), mark);
            }
        }
        assert_eq!(Offset::from_exchange(5, 0, 4), None);
    }

    #[test]
    fn drift_between_two_estimates_is_removed() {
        for (offset, ppm) in [(3_000_000_000_i128, 50.0), (-4_000_000_000, -200.0), (0, 0.0)] {
            let estimate = |at: u64, up: u64, down: u64| {
                Offset::from_exchange(at, theirs(at + up, offset, ppm), at + up + down).unwrap()
            };
            let (begin, end) = (100_000_000_000, 700_000_000_000);
            let map = ClockMap::new(estimate(begin, 200_000, 300_000), estimate(end, 300_000, 200_000));
            assert!((map.drift_ppm() - ppm).abs() < 0.5, "{} {ppm}", map.drift_ppm());
            for ours in [begin, 250_000_000_000, 400_000_000_000, end] {
                let error = map.to_ours(theirs(ours, offset, ppm)).abs_diff(ours);
                assert!(error <= map.bound_ns() + 1000, "{error} ns at {ours}, bound {}", map.bound_ns());
            }
            // One estimate alone would be wrong by the drift.
            let alone = estimate(begin, 200_000, 300_000).to_ours(theirs(end, offset, ppm)).abs_diff(end);
            assert!(ppm == 0.0 || alone > 10 * map.bound_ns(), "{alone}");
        }
    }

    #[test]
    fn two_threads_of_one_host_find_no_offset() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let responder = std::thread::spawn(move || respond(&mut listener.accept().unwrap().0));
        let mut stream = TcpStream::connect(address).unwrap();
        let offset = measure(&mut stream, 16).unwrap();
        assert!(offset.offset_ns.unsigned_abs() <= u128::from(offset.bound_ns), "{offset:?}");
        assert!(offset.bound_ns < 1_000_000_000, "{offset:?}");
        assert!(measure(&mut stream, 0).is_err());
        drop(stream);
        responder.join().unwrap().unwrap();
    }

    #[test]
    fn a_responder_that_talks_nonsense_is_an_error() {
        struct Fixed(&'static [u8]);
        impl Read for Fixed {
            fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(to)
            }
        }
        impl Write for Fixed {
            fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
                Ok(from.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        for nonsense in [&b""[..], b"pong 1 5\n", b"pong 0\n", b"pong 0 x\n", b"\xff\xff\n", &[b'a'; 5000]] {
            assert!(measure(&mut Fixed(nonsense), 1).is_err(), "{nonsense:?}");
        }
        assert!(respond(&mut Fixed(b"pang 1\n")).is_err());
    }
}
