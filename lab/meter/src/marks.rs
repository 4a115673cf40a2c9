//! The receiving end of marks. Input is not trusted: lengths, names, numbers of clients and notes
//! are limited.
use crate::MeterError;
use crate::sampler::Handle;
use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tacit_measure::clock::monotonic_ns;
use tacit_measure::mark::{MarkLine, read_line, socket};

const MAX_CLIENTS: usize = 64;
/// In the record, of one connection.
const MAX_NOTES: usize = 100;
/// How far in the future a mark may lie: clock offset between hosts, nanoseconds.
const FUTURE_NS: u64 = 1_000_000_000;

/// How long a closing listener still reads from all programs together.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Collects marks for a sampler until `close`.
pub struct MarkListener {
    bound: BoundAddress,
    closing: Arc<AtomicBool>,
    clients: Arc<Mutex<Vec<Client>>>,
    thread: Option<JoinHandle<()>>,
}

enum BoundAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// A connected program: its stream, for the shutdown, and its thread.
struct Client {
    stream: UnixStream,
    thread: JoinHandle<()>,
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn accept(&self) -> std::io::Result<UnixStream> {
        match self {
            Self::Unix(listener) => listener.accept().map(|(stream, _)| stream),
            Self::Tcp(listener) => socket(listener.accept()?.0),
        }
    }

    fn set_nonblocking(&self) -> bool {
        match self {
            Self::Unix(listener) => listener.set_nonblocking(true).is_ok(),
            Self::Tcp(listener) => listener.set_nonblocking(true).is_ok(),
        }
    }
}

impl MarkListener {
    /// Listens on a Unix socket that it creates; pass its path to programs as `TACIT_MARKS`.
    /// Removes the socket at the end.
    ///
    /// # Errors
    /// [`MeterError::io`] if the socket cannot be created: the folder is missing, the path is taken
    /// or longer than 107 bytes.
    pub fn unix(path: &Path, sampler: &Handle) -> Result<Self, MeterError> {
        let listener = UnixListener::bind(path).map_err(MeterError::io(path))?;
        Self::start(BoundAddress::Unix(path.to_owned()), Listener::Unix(listener), sampler)
    }

    /// As [`unix`](Self::unix), on an already bound socket, in whose queue programs may wait.
    ///
    /// # Errors
    /// [`MeterError::io`] if the thread cannot be started.
    pub fn from_unix(listener: UnixListener, path: &Path, sampler: &Handle) -> Result<Self, MeterError> {
        Self::start(BoundAddress::Unix(path.to_owned()), Listener::Unix(listener), sampler)
    }

    /// Listens on a TCP address for programs on other hosts (`TACIT_MARKS=tcp:HOST:PORT`). Every
    /// host that can reach the address can write marks: use it only in your own network.
    ///
    /// # Errors
    /// [`MeterError::io`] if the address cannot be bound.
    pub fn tcp(address: impl ToSocketAddrs, sampler: &Handle) -> Result<Self, MeterError> {
        let listener = TcpListener::bind(address).map_err(MeterError::io("TCP listener for marks"))?;
        let bound = listener.local_addr().map_err(MeterError::io("TCP listener for marks"))?;
        Self::start(BoundAddress::Tcp(bound), Listener::Tcp(listener), sampler)
    }

    fn start(bound: BoundAddress, listener: Listener, sampler: &Handle) -> Result<Self, MeterError> {
        let (closing, clients) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Client>>>::default());
        let (sampler, flag, list) = (sampler.clone(), closing.clone(), clients.clone());
        let thread = std::thread::Builder::new()
            .name("tacit-marks".into())
            .spawn(move || accept_all(&listener, &sampler, &flag, &list))
            .map_err(MeterError::io("mark listener"))?;
        Ok(Self { bound, closing, clients, thread: Some(thread) })
    }

    /// The value of `TACIT_MARKS` for programs. For a TCP listener on all addresses, replace
    /// `0.0.0.0` by the host's name.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.bound {
            BoundAddress::Unix(path) => path.display().to_string(),
            BoundAddress::Tcp(address) => format!("tcp:{address}"),
        }
    }

    /// Reads everything written so far and disconnects. Call before stopping the sampler.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.closing.store(true, Ordering::SeqCst);
        // A connection to itself wakes the thread, after all earlier connections.
        let woken = match &self.bound {
            BoundAddress::Unix(path) => UnixStream::connect(path).is_ok(),
            BoundAddress::Tcp(address) => {
                TcpStream::connect_timeout(&reachable(*address), Duration::from_secs(1)).is_ok()
            }
        };
        if woken {
            let _ = thread.join();
        }
        let clients = self.clients.lock().map(|mut c| std::mem::take(&mut *c)).unwrap_or_default();
        let until = Instant::now() + CLOSE_TIMEOUT;
        for client in clients {
            // Data in the socket's buffer can still be read.
            let _ = client.stream.shutdown(Shutdown::Read);
            // Over TCP a program that never stops writing is still readable.
            while !client.thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if let BoundAddress::Unix(path) = &self.bound
            && path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket())
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for MarkListener {
    fn drop(&mut self) {
        self.end();
    }
}

/// Replaces "all addresses" by an address that clients can connect to.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

fn accept_all(listener: &Listener, sampler: &Handle, closing: &AtomicBool, clients: &Mutex<Vec<Client>>) {
    let (mut refused, mut draining) = (false, false);
    loop {
        let accepted = listener.accept();
        if closing.load(Ordering::SeqCst) && !draining {
            // Accepts programs that connected before the end; after that there is no wait.
            draining = listener.set_nonblocking();
            if !draining {
                return;
            }
        }
        let stream = match accepted {
            Ok(stream) => stream,
            Err(_) if draining => return,
            Err(error) => {
                // Out of file handles, perhaps for a short time.
                sampler.note(format!("a program could not connect for marks: {error}"));
                std::thread::sleep(Duration::from_millis(500));
                continue;
            }
        };
        let Ok(mut list) = clients.lock() else { return };
        list.retain(|client| !client.thread.is_finished());
        if list.len() < MAX_CLIENTS {
            list.extend(serve(stream, sampler));
        } else if !std::mem::replace(&mut refused, true) {
            sampler.note(format!(
                "more than {MAX_CLIENTS} programs at once want to write marks; those beyond are refused"
            ));
        }
    }
}

fn serve(stream: UnixStream, sampler: &Handle) -> Option<Client> {
    let sampler = sampler.clone();
    let builder = std::thread::Builder::new().name("tacit-marks-client".into());
    let (mut reader, writer) = (stream.try_clone().ok()?, stream.try_clone().ok()?);
    writer.set_write_timeout(Some(Duration::from_secs(1))).ok()?;
    let thread = builder.spawn(move || listen(&mut reader, writer, &sampler)).ok()?;
    Some(Client { stream, thread })
}

/// Reads one program's lines until it disconnects or sends an overlong line.
fn listen(reader: &mut impl Read, mut writer: impl Write, sampler: &Handle) {
    let mut reader = BufReader::new(reader);
    let (mut party, mut notes, mut complained) = ("program".to_owned(), 0, false);
    loop {
        let line = match read_line(&mut reader) {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return sampler.note(format!("{party}: {error}; this program's marks are ignored from here on"));
            }
            Err(_) => return,
        };
        let now = monotonic_ns();
        match MarkLine::parse(&line) {
            Ok(MarkLine::Party(name)) => party = name,
            Ok(MarkLine::Mark { edge, phase, t_ns, figures }) => {
                let credible = sampler.started_ns()..=now.saturating_add(FUTURE_NS);
                let t_ns = t_ns.filter(|t| credible.contains(t)).unwrap_or(now);
                sampler.mark_at(&party, &phase, edge, figures, t_ns);
            }
            Ok(MarkLine::Note(text)) if notes < MAX_NOTES => {
                notes += 1;
                sampler.note(format!("{party}: {text}"));
            }
            Ok(MarkLine::Note(_)) => {}
            Ok(MarkLine::Ping(number)) => {
                if writer.write_all(format!("pong {number} {now}\n").as_bytes()).is_err() {
                    return;
                }
            }
            Err(_) if line.iter().all(u8::is_ascii_whitespace) => {}
            Err(error) => {
                if !std::mem::replace(&mut complained, true) {
                    sampler.note(format!("{party}: a mark was ignored: {error}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
