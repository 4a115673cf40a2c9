//! The end that collects marks. What comes in is not trusted: lengths, names, numbers of clients and notes
//! are limited.
use super::{MarkLine, read_line, socket};
use crate::MeterError;
use crate::clock::monotonic_ns;
use crate::sampler::Handle;
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Programs that may be connected at once.
const MAX_CLIENTS: usize = 64;
/// Notes that one connection may leave in the record.
const MAX_NOTES: usize = 100;
/// A mark may lie this far in the future: clock offset between hosts, nanoseconds.
const FUTURE_NS: u64 = 1_000_000_000;

/// How long all programs together are still read from when the listener closes.
const FAREWELL: Duration = Duration::from_secs(2);

/// Collects marks for a sampler until it is closed.
pub struct MarkListener {
    door: Door,
    closing: Arc<AtomicBool>,
    clients: Arc<Mutex<Vec<Client>>>,
    thread: Option<JoinHandle<()>>,
}

/// Where programs come in.
enum Door {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// A connected program: its stream, to hang up, and its thread.
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
    /// Listens on a Unix socket that it makes; give its path to programs as `TACIT_MARKS`. The socket is
    /// removed at the end.
    ///
    /// # Errors
    /// [`MeterError::Io`] if the socket cannot be made: the folder is missing, the path is taken or longer
    /// than 107 bytes.
    pub fn unix(path: &Path, sampler: &Handle) -> Result<Self, MeterError> {
        let listener = UnixListener::bind(path).map_err(MeterError::io(path))?;
        Self::start(Door::Unix(path.to_owned()), Listener::Unix(listener), sampler)
    }

    /// As [`unix`](Self::unix), on a socket that is bound already: programs that started before the sampler
    /// wait in its queue.
    ///
    /// # Errors
    /// [`MeterError::Io`] if the thread cannot be started.
    pub fn from_unix(listener: UnixListener, path: &Path, sampler: &Handle) -> Result<Self, MeterError> {
        Self::start(Door::Unix(path.to_owned()), Listener::Unix(listener), sampler)
    }

    /// Listens on a TCP address for programs on other hosts (`TACIT_MARKS=tcp:HOST:PORT`). Anyone who can
    /// reach it can write marks into the record: use it in a network of your own only.
    ///
    /// # Errors
    /// [`MeterError::Io`] if the address cannot be bound.
    pub fn tcp(address: impl ToSocketAddrs, sampler: &Handle) -> Result<Self, MeterError> {
        let listener = TcpListener::bind(address).map_err(MeterError::io("TCP listener for marks"))?;
        let bound = listener.local_addr().map_err(MeterError::io("TCP listener for marks"))?;
        Self::start(Door::Tcp(bound), Listener::Tcp(listener), sampler)
    }

    fn start(door: Door, listener: Listener, sampler: &Handle) -> Result<Self, MeterError> {
        let (closing, clients) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Client>>>::default());
        let (sampler, flag, list) = (sampler.clone(), closing.clone(), clients.clone());
        let thread = std::thread::Builder::new()
            .name("tacit-marks".into())
            .spawn(move || accept_all(&listener, &sampler, &flag, &list))
            .map_err(MeterError::io("mark listener"))?;
        Ok(Self { door, closing, clients, thread: Some(thread) })
    }

    /// What programs find in `TACIT_MARKS`. A TCP listener on all addresses says so (`0.0.0.0`): put the
    /// host's name there.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.door {
            Door::Unix(path) => path.display().to_string(),
            Door::Tcp(address) => format!("tcp:{address}"),
        }
    }

    /// Takes in everything that was written so far and hangs up. Call it before the sampler is stopped.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.closing.store(true, Ordering::SeqCst);
        // A connection of our own wakes the thread, after all that came before it.
        let woken = match &self.door {
            Door::Unix(path) => UnixStream::connect(path).is_ok(),
            Door::Tcp(address) => TcpStream::connect_timeout(&reachable(*address), Duration::from_secs(1)).is_ok(),
        };
        if woken {
            let _ = thread.join();
        }
        let clients = self.clients.lock().map(|mut c| std::mem::take(&mut *c)).unwrap_or_default();
        let until = Instant::now() + FAREWELL;
        for client in clients {
            // What is in the socket's buffer can still be read.
            let _ = client.stream.shutdown(Shutdown::Read);
            // Over TCP, one that never stops writing is still heard; it must not keep us.
            while !client.thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if let Door::Unix(path) = &self.door
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

/// "All addresses" is no address to connect to.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let local: std::net::IpAddr =
            if address.is_ipv4() { std::net::Ipv4Addr::LOCALHOST.into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
        address.set_ip(local);
    }
    address
}

fn accept_all(listener: &Listener, sampler: &Handle, closing: &AtomicBool, clients: &Mutex<Vec<Client>>) {
    let (mut refused, mut draining) = (false, false);
    loop {
        let accepted = listener.accept();
        if closing.load(Ordering::SeqCst) && !draining {
            // Whoever connected before the end is still let in; after that there is nobody to wait for.
            draining = listener.set_nonblocking();
            if !draining {
                return;
            }
        }
        let stream = match accepted {
            Ok(stream) => stream,
            Err(_) if draining => return,
            Err(error) => {
                // Out of file handles: they may come back. Without a pause this would spin.
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

/// A thread for one program.
fn serve(stream: UnixStream, sampler: &Handle) -> Option<Client> {
    let sampler = sampler.clone();
    let builder = std::thread::Builder::new().name("tacit-marks-client".into());
    let (mut reader, writer) = (stream.try_clone().ok()?, stream.try_clone().ok()?);
    writer.set_write_timeout(Some(Duration::from_secs(1))).ok()?;
    let thread = builder.spawn(move || listen(&mut reader, writer, &sampler)).ok()?;
    Some(Client { stream, thread })
}

/// Takes in one program's lines until it hangs up or sends a line without end.
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
