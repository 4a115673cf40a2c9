//! The built-in programs that experiments run: bulk transfer and ping-pong, over any transport.
//!
//! A server answers one request per connection. The data is seeded and random, made before the
//! clock starts ([VPN24] section III: from memory, so that no disk is measured); the receiver
//! compares every byte. A run ends when the receiver has confirmed all data.
//!
//! The request is 56 bytes:
//! `magic [8] | op u64 | bytes u64 | seconds u64 | messages u64 | size u64 | seed u64`, little endian; the
//! answer one byte, 1 for ready.
mod bulk;

use crate::LabError;
use crate::transport::TransportKind;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};
use tacit_measure::mark::MarkSender;
use tacit_net::{NetError, PacedTransport, Rate, Transport};

const MAGIC: &[u8; 8] = b"tacitwl2";
const REQUEST_BYTES: usize = 56;
/// Most bytes of one bulk transfer.
pub const MAX_BYTES: u64 = 1 << 40;
/// Longest time limit of a bulk transfer, seconds.
pub const MAX_SECONDS: u64 = 24 * 3600;
/// Most messages of one ping-pong: each leaves a latency of 8 bytes in memory.
pub const MAX_MESSAGES: u64 = 1_000_000;
/// Largest message of a ping-pong, bytes.
pub const MAX_SIZE: u64 = 16 << 20;

/// Size of a bulk transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulk {
    /// Most bytes, 1 to [`MAX_BYTES`].
    pub bytes: u64,
    /// Seconds after which the sender stops, 1 to [`MAX_SECONDS`]; `None`: only after all bytes.
    pub seconds: Option<u64>,
}

impl Bulk {
    /// Exactly `bytes` bytes.
    #[must_use]
    pub fn with_bytes(bytes: u64) -> Self {
        Self { bytes, seconds: None }
    }
}

/// The client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// The client sends.
    BulkSend(Bulk),
    /// The client receives.
    BulkReceive(Bulk),
    /// The client sends a message, the server sends it back, and so on.
    PingPong {
        /// 1 to [`MAX_MESSAGES`].
        messages: u64,
        /// Bytes of a message, 1 to [`MAX_SIZE`].
        size: u64,
    },
}

impl Workload {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::BulkSend(_) => "bulk-send",
            Self::BulkReceive(_) => "bulk-receive",
            Self::PingPong { .. } => "ping-pong",
        }
    }

    fn check(&self) -> Result<(), LabError> {
        match *self {
            Self::BulkSend(bulk) | Self::BulkReceive(bulk) => {
                self.check_within("bytes", bulk.bytes, MAX_BYTES)?;
                self.check_within("seconds", bulk.seconds.unwrap_or(1), MAX_SECONDS)
            }
            Self::PingPong { messages, size } => {
                self.check_within("messages", messages, MAX_MESSAGES)?;
                self.check_within("size", size, MAX_SIZE)
            }
        }
    }

    fn check_within(&self, name: &str, value: u64, max: u64) -> Result<(), LabError> {
        let detail = format!("{name} must be 1 to {max}, not {value}");
        if (1..=max).contains(&value) { Ok(()) } else { Err(LabError::spec(self.name(), detail)) }
    }

    fn encode(&self, seed: u64) -> [u8; REQUEST_BYTES] {
        let words = match *self {
            Self::BulkSend(Bulk { bytes, seconds }) => [1, bytes, seconds.unwrap_or(0), 0, 0, seed],
            Self::BulkReceive(Bulk { bytes, seconds }) => [2, bytes, seconds.unwrap_or(0), 0, 0, seed],
            Self::PingPong { messages, size } => [3, 0, 0, messages, size, seed],
        };
        let mut request = [0u8; REQUEST_BYTES];
        request[..8].copy_from_slice(MAGIC);
        for (place, word) in request[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&u64::to_le_bytes(word));
        }
        request
    }

    fn decode(request: &[u8; REQUEST_BYTES]) -> Result<(Self, u64), LabError> {
        if !request.starts_with(MAGIC) {
            return Err(bad_request("the peer is no tacit workload, or the bytes were changed on the way"));
        }
        let [op, bytes, seconds, messages, size, seed] = words(&request[8..]);
        let bulk = Bulk { bytes, seconds: (seconds > 0).then_some(seconds) };
        let workload = match op {
            1 => Self::BulkSend(bulk),
            2 => Self::BulkReceive(bulk),
            3 => Self::PingPong { messages, size },
            number => return Err(bad_request(format!("there is no workload number {number}"))),
        };
        workload.check()?;
        Ok((workload, seed))
    }
}

fn bad_request(detail: impl std::fmt::Display) -> LabError {
    LabError::failed("reading a workload request")(detail)
}

/// Little-endian words; missing bytes read as 0.
fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut values = [0u64; N];
    for (word, piece) in values.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(piece.try_into().unwrap_or_default());
    }
    values
}

/// Round-trip times of single messages, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub mean_s: f64,
    /// Shortest.
    pub min_s: f64,
    /// Median (nearest rank).
    pub p50_s: f64,
    /// 95th percentile (nearest rank).
    pub p95_s: f64,
    /// Longest.
    pub max_s: f64,
}

impl Latency {
    /// Figures of these round-trip times; `None` without any.
    #[must_use]
    pub fn from_times(times: &mut [f64]) -> Option<Self> {
        times.sort_by(tacit_floats::rising);
        let mean_s = times.iter().sum::<f64>() / times.len() as f64;
        Some(Self {
            mean_s,
            min_s: *times.first()?,
            p50_s: rank(times, 0.5)?,
            p95_s: rank(times, 0.95)?,
            max_s: *times.last()?,
        })
    }
}

fn rank(times: &[f64], p: f64) -> Option<f64> {
    times.get(((times.len() as f64 * p).ceil() as usize).max(1) - 1).copied()
}

/// One party's results of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// `client` or `server`.
    pub party: String,
    /// [`Workload::name`].
    pub workload: String,
    /// The transport.
    pub transport: TransportKind,
    /// Seconds from the first byte of the workload to the receiver's confirmation.
    pub seconds: f64,
    /// Bytes of the workload sent by this party.
    pub sent_bytes: u64,
    /// Bytes of the workload received by this party.
    pub received_bytes: u64,
    /// Bits of the workload per second, both directions together.
    pub goodput_bps: f64,
    /// Round trips of a ping-pong, or blocks of 64 KiB of a bulk transfer (their headers of 8 bytes
    /// are in no other figure).
    pub messages: u64,
    /// Of a ping-pong, at the client only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// User CPU seconds of this process during the run.
    pub user_s: f64,
    /// Kernel CPU seconds of this process during the run.
    pub system_s: f64,
    /// Largest resident set of this process up to the end, bytes.
    pub peak_rss_bytes: u64,
}

/// A party's options.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Layers of the connection, for the record.
    pub transport: TransportKind,
    /// Largest sending rate of this party, bit/s.
    pub pace: Option<Rate>,
    /// Longest time without progress by the peer.
    pub stall: Duration,
    /// Where to mark the begin and end of the measured part, the phase `run`.
    pub marks: Option<&'a MarkSender>,
}

/// CPU time of this process: user and kernel seconds, and its peak memory in bytes.
fn usage() -> Result<(f64, f64, u64), LabError> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(LabError::failed("asking for CPU time"))?;
    let peak = tacit_measure::usage::high_water_bytes(Path::new("/proc/self")).unwrap_or(0);
    Ok((seconds(usage.user_time()), seconds(usage.system_time()), peak))
}

fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6
}

fn step_error(step: &str) -> impl Fn(io::Error) -> LabError + '_ {
    move |e| LabError::Net(NetError::from_io(step, &e))
}

fn send(transport: &mut dyn Transport, bytes: &[u8], step: &str) -> Result<(), LabError> {
    transport.write_all(bytes).and_then(|()| transport.flush()).map_err(step_error(step))
}

/// Requests a workload from the server at the other end of `transport`, and runs it.
///
/// # Errors
/// [`LabError::Spec`] for sizes out of range, [`LabError::Net`] if the connection fails,
/// [`LabError::Failed`] if wrong bytes arrived.
pub fn run_client(
    transport: Box<dyn Transport>,
    workload: Workload,
    seed: u64,
    options: Options<'_>,
) -> Result<Outcome, LabError> {
    workload.check()?;
    let mut transport = prepare(transport, options)?;
    let work = Work::new("client", workload, seed);
    send(transport.as_mut(), &workload.encode(seed), "asking for a workload")?;
    let mut ready = [0u8];
    transport.read_exact(&mut ready).map_err(step_error("waiting for the server to be ready"))?;
    if ready != [1] {
        let detail = "the server's answer is not `ready`: bytes arrived changed, or it is no tacit workload";
        return Err(LabError::failed(workload.name())(detail));
    }
    work.measure(transport, options)
}

/// Runs the workload that the client at the other end of `transport` requests.
///
/// # Errors
/// As [`run_client`].
pub fn run_server(transport: Box<dyn Transport>, options: Options<'_>) -> Result<Outcome, LabError> {
    let mut transport = prepare(transport, options)?;
    let mut request = [0u8; REQUEST_BYTES];
    transport.read_exact(&mut request).map_err(step_error("waiting for a request"))?;
    let (workload, seed) = Workload::decode(&request)?;
    let work = Work::new("server", workload, seed);
    send(transport.as_mut(), &[1], "saying that all is ready")?;
    work.measure(transport, options)
}

fn prepare(mut transport: Box<dyn Transport>, options: Options<'_>) -> Result<Box<dyn Transport>, LabError> {
    transport.set_stall_timeout(options.stall).map_err(step_error("setting the stall timeout"))?;
    Ok(match options.pace {
        Some(rate) => Box::new(PacedTransport::new(transport, rate)),
        None => transport,
    })
}

/// Random bytes from a seed: not secret, only incompressible and the same at both parties.
fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

#[derive(Default)]
struct Check {
    received: u64,
    wrong: u64,
    first: u64,
}

impl Check {
    fn compare(&mut self, received: &[u8], expected: &[u8]) {
        if received != expected {
            let first = received.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0) as u64;
            if self.wrong == 0 {
                self.first = self.received + first;
            }
            self.wrong += received.iter().zip(expected).filter(|(a, b)| a != b).count() as u64;
        }
        self.received += received.len() as u64;
    }

    fn verdict(&self, direction: &str, total: u64) -> Result<(), LabError> {
        if self.wrong == 0 && self.received == total {
            return Ok(());
        }
        let detail = if self.wrong == 0 {
            format!("{} bytes arrived of {total}", self.received)
        } else {
            format!(
                "{} of {total} bytes arrived changed, the first at offset {}: this transport does not notice changes",
                self.wrong, self.first
            )
        };
        Err(LabError::failed(direction)(detail))
    }
}

/// Bytes sent, bytes received, messages.
type Counts = (u64, u64, u64);

/// A workload with its data, after both parties have agreed.
struct Work {
    party: &'static str,
    workload: Workload,
    load: Load,
}

enum Load {
    Bulk(bulk::Data),
    Message(Vec<u8>),
}

impl Work {
    fn new(party: &'static str, workload: Workload, seed: u64) -> Self {
        let load = match workload {
            Workload::BulkSend(_) | Workload::BulkReceive(_) => Load::Bulk(bulk::Data::new(seed)),
            Workload::PingPong { size, .. } => Load::Message(random(seed, size as usize)),
        };
        Self { party, workload, load }
    }

    fn measure(mut self, mut transport: Box<dyn Transport>, options: Options<'_>) -> Result<Outcome, LabError> {
        // A failed mark is a gap in the record, which the sampler reports.
        let _ = options.marks.map(|marks| marks.begin("run"));
        let before = usage()?;
        let start = Instant::now();
        let mut times = Vec::new();
        let (sent_bytes, received_bytes, messages) = self.run(transport.as_mut(), &mut times)?;
        let seconds = start.elapsed().as_secs_f64();
        let after = usage()?;
        let figures = [("sent_bytes", sent_bytes as f64), ("received_bytes", received_bytes as f64)];
        let _ = options.marks.map(|marks| marks.end("run", &figures));
        Ok(Outcome {
            party: self.party.into(),
            workload: self.workload.name().into(),
            transport: options.transport,
            seconds,
            sent_bytes,
            received_bytes,
            goodput_bps: (sent_bytes + received_bytes) as f64 * 8.0 / seconds,
            messages,
            latency: Latency::from_times(&mut times),
            user_s: after.0 - before.0,
            system_s: after.1 - before.1,
            peak_rss_bytes: after.2,
        })
    }

    fn run(&mut self, transport: &mut dyn Transport, times: &mut Vec<f64>) -> Result<Counts, LabError> {
        let (name, is_client) = (self.workload.name(), self.party == "client");
        match (self.workload, &mut self.load) {
            (Workload::PingPong { messages, .. }, Load::Message(message)) => {
                if is_client {
                    *times = ping(transport, messages, message)?;
                } else {
                    pong(transport, messages, message)?;
                }
                let bytes = messages * message.len() as u64;
                Ok((bytes, bytes, messages))
            }
            (Workload::BulkSend(bulk), Load::Bulk(data)) if is_client => data.send(transport, name, bulk),
            (Workload::BulkReceive(bulk), Load::Bulk(data)) if !is_client => data.send(transport, name, bulk),
            (Workload::BulkSend(bulk) | Workload::BulkReceive(bulk), Load::Bulk(data)) => {
                data.receive(transport, name, bulk.bytes)
            }
            _ => unreachable!("a load is made for its workload"),
        }
    }
}

fn ping(transport: &mut dyn Transport, messages: u64, message: &[u8]) -> Result<Vec<f64>, LabError> {
    let mut echo = vec![0u8; message.len()];
    let mut times = Vec::with_capacity(messages as usize);
    let mut check = Check::default();
    for _ in 0..messages {
        let start = Instant::now();
        send(transport, message, "sending a message")?;
        transport.read_exact(&mut echo).map_err(step_error("waiting for the echo"))?;
        times.push(start.elapsed().as_secs_f64());
        check.compare(&echo, message);
    }
    check.verdict("ping-pong", messages * message.len() as u64)?;
    Ok(times)
}

fn pong(transport: &mut dyn Transport, messages: u64, message: &mut [u8]) -> Result<(), LabError> {
    for _ in 0..messages {
        transport.read_exact(message).map_err(step_error("waiting for a message"))?;
        send(transport, message, "sending the echo")?;
    }
    Ok(())
}
