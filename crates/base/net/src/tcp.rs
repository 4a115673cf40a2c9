//! TCP with a queue behind the kernel's send buffer.
use crate::deadline::MovingDeadline;
use crate::queue::{ByteQueue, POLL_INTERVAL};
use crate::transport::{DEFAULT_STALL, Transport, allowed_wait, timed_out};
use crate::{Channel, NetError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Largest piece handed to the writer thread at once, in bytes.
const CHUNK_BYTES: usize = 256 << 10;
/// How long a dropped transport waits for its last bytes to leave.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// A TCP connection. The kernel takes writes while its buffer has room; a thread queues and writes the
/// rest, so both parties may write far more than the socket buffers hold before either reads.
pub struct TcpTransport {
    stream: TcpStream,
    queue: Arc<ByteQueue>,
    writer: Option<JoinHandle<()>>,
    peer: String,
    stall: Duration,
    read_timeout: Duration,
    deadline: Option<Instant>,
    /// The deadline, if reads move it.
    moving: Option<MovingDeadline>,
}

impl TcpTransport {
    /// Wraps a connected stream: switches Nagle's delay off and sets timeouts.
    ///
    /// # Errors
    /// [`NetError::Io`] if the socket is unusable.
    pub fn new(stream: TcpStream) -> Result<Self, NetError> {
        let peer = stream.peer_addr().map_or_else(|_| "tcp (unknown)".into(), |a| format!("tcp {a}"));
        let mut transport = Self {
            stream,
            queue: Arc::new(ByteQueue::default()),
            writer: None,
            peer,
            stall: DEFAULT_STALL,
            read_timeout: Duration::ZERO,
            deadline: None,
            moving: None,
        };
        let prepared = transport
            .stream
            .set_nonblocking(false)
            .and_then(|()| transport.stream.set_nodelay(true))
            .and_then(|()| transport.set_stall_timeout(DEFAULT_STALL));
        prepared.map_err(|e| NetError::from_io(format!("preparing {}", transport.peer), &e))?;
        Ok(transport)
    }

    /// Connects to the first address of `target`, `host:port`, that answers; `timeout` covers
    /// everything, name look-up included.
    ///
    /// # Errors
    /// [`NetError::Address`]; [`NetError::Io`] or [`NetError::Stalled`] naming the address.
    pub fn connect(target: impl std::fmt::Display, timeout: Duration) -> Result<Self, NetError> {
        let (target, end) = (target.to_string(), Instant::now() + timeout);
        split_address(&target)?;
        let doing = format!("connecting to {target}");
        let addresses = look_up(target, timeout).map_err(|e| NetError::from_io(doing.clone(), &e))?;
        let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for (i, address) in addresses.iter().enumerate() {
            // An address that never answers uses only its part of the time.
            let timeout_per_address = end.saturating_duration_since(Instant::now()) / (addresses.len() - i) as u32;
            match TcpStream::connect_timeout(address, timeout_per_address.max(Duration::from_millis(1))) {
                Ok(stream) => return Self::new(stream),
                Err(e) if e.kind() == io::ErrorKind::TimedOut => last_error = no_answer(timeout),
                Err(e) => last_error = e,
            }
        }
        Err(NetError::from_io(doing, &last_error))
    }

    /// A handle by which another thread can end the connection: its reads and writes then fail.
    ///
    /// # Errors
    /// [`NetError::Io`] if the socket cannot be duplicated.
    pub fn closer(&self) -> Result<TcpStream, NetError> {
        self.stream.try_clone().map_err(|e| NetError::from_io(format!("duplicating {}", self.peer), &e))
    }

    /// As [`Transport::set_deadline`], but received bytes move the deadline.
    pub fn set_moving_deadline(&mut self, deadline: MovingDeadline) {
        (self.deadline, self.moving) = (Some(deadline.end), Some(deadline));
    }

    fn advance_deadline(&mut self) {
        if let Some(moving) = &mut self.moving {
            moving.advance(Instant::now());
            self.deadline = Some(moving.end);
        }
    }

    fn start_writer(&mut self) -> io::Result<()> {
        if self.writer.is_some() {
            return Ok(());
        }
        let (queue, mut stream) = (self.queue.clone(), self.stream.try_clone()?);
        let writer = thread::Builder::new().name("tacit-writer".into()).spawn(move || {
            // Ends when the transport is dropped, not after an idle hour.
            loop {
                match queue.pop(Duration::from_secs(3600)) {
                    Ok(Some(chunk)) => match stream.write_all(&chunk) {
                        Ok(()) => queue.return_chunk(chunk),
                        Err(e) => return queue.fail(&e),
                    },
                    Ok(None) => return,
                    Err(_) => {}
                }
            }
        })?;
        self.writer = Some(writer);
        Ok(())
    }

    /// Queues a chunk. Checks meanwhile whether the peer is still there, so that its last message
    /// is read before the timeout.
    fn push(&self, chunk: Vec<u8>, wait: Duration) -> io::Result<()> {
        let end = Instant::now() + wait;
        while !self.queue.has_room(POLL_INTERVAL.min(end.saturating_duration_since(Instant::now()))) {
            self.still_there()?;
            if Instant::now() >= end {
                return Err(timed_out(wait));
            }
        }
        self.queue.push(chunk, Duration::ZERO)
    }

    /// An error if the peer has closed its half: the peer then reads nothing of the queue.
    fn still_there(&self) -> io::Result<()> {
        let mut polled = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        poll(&mut polled, Some(&Timespec::default()))?;
        if !polled[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            return Ok(());
        }
        let error =
            io::Error::new(io::ErrorKind::ConnectionAborted, "the peer closed the connection and reads no more");
        self.queue.fail(&error);
        // Ends a write in which the writer thread may be blocked.
        let _ = self.stream.shutdown(Shutdown::Write);
        Err(error)
    }

    /// Frees chunks that the writer has written, in the thread that allocated them.
    fn free_spent(&self) {
        if self.writer.is_some() {
            drop(self.queue.take_spent());
        }
    }
}

/// Splits `HOST:PORT`; an IPv6 address has brackets there, which the result omits.
///
/// # Errors
/// [`NetError::Address`] with the fault.
pub fn split_address(text: &str) -> Result<(&str, u16), NetError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(after_bracket) => {
            let (host, after) =
                after_bracket.split_once(']').ok_or_else(|| bad_address(text, "the closing bracket is missing"))?;
            (host, after.strip_prefix(':').ok_or_else(|| bad_address(text, "the port is missing"))?)
        }
        None => text.rsplit_once(':').ok_or_else(|| bad_address(text, "the port is missing"))?,
    };
    if host.is_empty() {
        return Err(bad_address(text, "the host is missing"));
    }
    if host.contains(':') && !text.starts_with('[') {
        return Err(bad_address(text, "an IPv6 address needs brackets"));
    }
    match port.parse() {
        Ok(0) | Err(_) => Err(bad_address(text, "the port must be a number from 1 to 65535")),
        Ok(port) => Ok((host, port)),
    }
}

fn bad_address(text: &str, what: &'static str) -> NetError {
    NetError::Address { given: text.to_owned(), what }
}

fn no_answer(timeout: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {:.1} s", timeout.as_secs_f64()))
}

/// Looks up the addresses of a name. The system's look-up has no timeout, so it gets a thread of
/// its own.
fn look_up(address: String, timeout: Duration) -> io::Result<Vec<SocketAddr>> {
    let (sender, answer) = mpsc::channel();
    thread::Builder::new().name("tacit-look-up".into()).spawn(move || {
        // Sending fails only if the caller has given up.
        let _ = sender.send(address.to_socket_addrs().map(Vec::from_iter));
    })?;
    answer.recv_timeout(timeout).unwrap_or_else(|_| Err(no_answer(timeout)))
}

/// Two connected channels over loopback TCP.
///
/// # Errors
/// [`NetError::Io`] if loopback is not available.
pub fn tcp_pair() -> Result<(Channel, Channel), NetError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(no_loopback)?;
    let client = TcpStream::connect(listener.local_addr().map_err(no_loopback)?).map_err(no_loopback)?;
    let (server, _) = listener.accept().map_err(no_loopback)?;
    Ok((channel(client)?, channel(server)?))
}

fn no_loopback(e: io::Error) -> NetError {
    NetError::from_io("opening a loopback connection", &e)
}

fn channel(stream: TcpStream) -> Result<Channel, NetError> {
    Ok(Channel::new(Box::new(TcpTransport::new(stream)?)))
}

impl Read for TcpTransport {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.free_spent();
        let wait = allowed_wait(self.stall, self.deadline)?;
        if wait != self.read_timeout {
            self.stream.set_read_timeout(Some(wait))?;
            self.read_timeout = wait;
        }
        loop {
            match self.stream.read(buf) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(timed_out(wait));
                }
                Ok(n @ 1..) => {
                    self.advance_deadline();
                    return Ok(n);
                }
                other => return other,
            }
        }
    }
}

impl Write for TcpTransport {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.free_spent();
        let wait = allowed_wait(self.stall, self.deadline)?;
        if self.queue.is_idle()? {
            match send(&self.stream, buf, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) if n > 0 => return Ok(n),
                Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.start_writer()?;
        let n = buf.len().min(CHUNK_BYTES);
        self.push(buf[..n].to_vec(), wait)?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.free_spent();
        self.queue.is_idle().map(|_| ())
    }
}

impl Transport for TcpTransport {
    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn set_stall_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(timeout))?;
        self.stream.set_write_timeout(Some(timeout))?;
        self.read_timeout = timeout;
        self.stall = timeout;
        Ok(())
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        (self.deadline, self.moving) = (deadline, None);
    }

    fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(&self.stream, &mut *buf, RecvFlags::DONTWAIT) {
                Ok((_, n)) => return Ok(n),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn settle(&mut self) -> io::Result<()> {
        let Some(writer) = self.writer.take() else {
            return self.flush();
        };
        let outcome = self.queue.settle(self.stall, self.deadline, || self.still_there());
        drop(self.queue.take_spent());
        if outcome.is_err() {
            // The thread still writes, or has failed and the next write reports it.
            self.writer = Some(writer);
            return outcome;
        }
        self.queue.close();
        self.queue = Arc::new(ByteQueue::default());
        // The thread has nothing left to write and ends at once.
        writer.join().map_err(|_| io::Error::other("the writing thread panicked"))
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        if self.writer.is_some() {
            self.queue.drain(DROP_TIMEOUT);
        }
        self.queue.close();
        // Shutting down both ways wakes a peer or writer thread that still waits. An error means
        // that the socket is closed already.
        let _ = self.stream.shutdown(if self.writer.is_some() { Shutdown::Both } else { Shutdown::Write });
    }
}
