//! The sending end, in the measured program: never waits for the listener and never stops the
//! program.
use super::{ENV_MARKS, ENV_PARTY, Edge, MarkLine, name, socket};
use crate::MeasureError;
use crate::clock::{self, Offset, monotonic_ns};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

/// Time limit of a connection to another host, and of each exchange of clocks.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Exchanges at the connection and at each renewal of the offset.
const EXCHANGES: u32 = 8;
/// Age of the offset of another host's clock at which the next phase renews it: 50 ppm of drift are
/// 1.5 ms by then.
const RENEW_NS: u64 = 30_000_000_000;

/// Sends marks to the listener in the environment. Threads can share it.
pub struct MarkSender {
    line: Mutex<Wire>,
}

struct Wire {
    /// `None` after a failure; later marks are dropped silently.
    stream: Option<UnixStream>,
    /// Absent on one host, where both clocks are the same.
    offset: Option<Offset>,
}

impl MarkSender {
    /// Connects to the listener in `TACIT_MARKS`, as the party in `TACIT_PARTY` (else `party`).
    /// `None` if the variable is not set.
    ///
    /// # Errors
    /// [`MeasureError`] if the variable is set without a listener at that address, or if the
    /// party's name is invalid. The program should report the error and continue.
    pub fn from_env(party: &str) -> Result<Option<Self>, MeasureError> {
        let Some(address) = std::env::var_os(ENV_MARKS).filter(|a| !a.is_empty()) else { return Ok(None) };
        let party = std::env::var(ENV_PARTY).unwrap_or_else(|_| party.to_owned());
        Self::connect(&address.to_string_lossy(), &party).map(Some)
    }

    /// Connects to a listener: the path of a Unix socket, or `tcp:HOST:PORT`. Compares a TCP
    /// listener's clock with this host's at once.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn connect(address: &str, party: &str) -> Result<Self, MeasureError> {
        let source = || format!("{ENV_MARKS}={address}");
        let party =
            name(party).map_err(|detail| MeasureError::Malformed { what: format!("{ENV_PARTY}={party:?}"), detail })?;
        let mut wire = match address.strip_prefix("tcp:") {
            Some(address) => Wire::tcp(address, &source)?,
            None => {
                let stream = UnixStream::connect(address).map_err(MeasureError::io(source()))?;
                Wire { stream: Some(stream), offset: None }
            }
        };
        wire.set_nonblocking(true)
            .and_then(|()| wire.write(&MarkLine::Party(party)))
            .map_err(MeasureError::io(source()))?;
        Ok(Self { line: Mutex::new(wire) })
    }

    /// Marks the begin of a phase, now. With a listener on another host it first compares clocks, at most
    /// every 30 seconds: call it before taking the phase's own start time.
    ///
    /// # Errors
    /// The first failed delivery of a mark; the connection is then closed and later marks are
    /// dropped silently.
    pub fn begin(&self, phase: &str) -> Result<(), MeasureError> {
        self.send(Edge::Begin, phase, BTreeMap::new())
    }

    /// Marks the end of a phase, now, with the program's figures.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn end(&self, phase: &str, figures: &[(&str, f64)]) -> Result<(), MeasureError> {
        let figures = figures.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
        self.send(Edge::End, phase, figures)
    }

    /// Adds a remark to the record.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn note(&self, text: &str) -> Result<(), MeasureError> {
        // The protocol allows no other characters.
        let clean: String = text.chars().filter(|c| c.is_ascii() && !c.is_control()).take(900).collect();
        self.with_wire(|wire| wire.write(&MarkLine::Note(clean)))
    }

    fn send(&self, edge: Edge, phase: &str, figures: BTreeMap<String, f64>) -> Result<(), MeasureError> {
        let now_ns = monotonic_ns();
        let mut line = MarkLine::Mark { edge, phase: phase.to_owned(), t_ns: Some(now_ns), figures };
        // After a line that the listener would refuse, the connection stays usable.
        if let Err(detail) = MarkLine::parse(line.to_string().as_bytes()) {
            return Err(MeasureError::Malformed { what: format!("mark of phase {phase:?}"), detail });
        }
        self.with_wire(|wire| {
            let mut now_ns = now_ns;
            if edge == Edge::Begin && wire.offset.is_some_and(|o| now_ns.saturating_sub(o.at_ns) > RENEW_NS) {
                wire.renew()?;
                now_ns = monotonic_ns();
            }
            let t_ns = Some(wire.offset.map_or(now_ns, |offset| offset.to_theirs(now_ns)));
            if let MarkLine::Mark { t_ns: time, .. } = &mut line {
                *time = t_ns;
            }
            wire.write(&line)
        })
    }

    fn with_wire(&self, act: impl FnOnce(&mut Wire) -> io::Result<()>) -> Result<(), MeasureError> {
        let Ok(mut wire) = self.line.lock() else { return Ok(()) };
        act(&mut wire).map_err(|error| {
            wire.stream = None;
            MeasureError::io("connection for phase marks")(error)
        })
    }
}

impl Wire {
    fn tcp(address: &str, source: &impl Fn() -> String) -> Result<Self, MeasureError> {
        let address = address
            .to_socket_addrs()
            .map_err(MeasureError::io(source()))?
            .next()
            .ok_or_else(|| MeasureError::Malformed { what: source(), detail: "the host has no address".into() })?;
        let stream = TcpStream::connect_timeout(&address, EXCHANGE_TIMEOUT).map_err(MeasureError::io(source()))?;
        let limits = stream
            .set_read_timeout(Some(EXCHANGE_TIMEOUT))
            .and_then(|()| stream.set_write_timeout(Some(EXCHANGE_TIMEOUT)));
        let stream = limits.and_then(|()| socket(stream)).map_err(MeasureError::io(source()))?;
        let offset = clock::measure_offset(&mut &stream, EXCHANGES)?;
        Ok(Self { stream: Some(stream), offset: Some(offset) })
    }

    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.stream.as_ref().map_or(Ok(()), |stream| stream.set_nonblocking(on))
    }

    /// Writes a line in one piece or fails: a listener that does not read must not block the
    /// program.
    fn write(&mut self, line: &MarkLine) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let text = line.to_string();
        let written = stream.write(text.as_bytes())?;
        if written == text.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn renew(&mut self) -> io::Result<()> {
        self.set_nonblocking(false)?;
        if let Some(stream) = &self.stream {
            self.offset = Some(clock::measure_offset(&mut &*stream, EXCHANGES).map_err(io::Error::other)?);
        }
        self.set_nonblocking(true)
    }
}
