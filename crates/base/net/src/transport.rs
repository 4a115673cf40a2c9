//! The interface between the channel and the transports that carry its bytes.
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// A blocking duplex byte stream to one peer.
///
/// A read without data for the stall timeout ends with [`io::ErrorKind::TimedOut`]; a read at the
/// peer's end of the stream returns 0. A write may queue, and never waits for the peer to read
/// before [`QUEUE_BYTES`](crate::QUEUE_BYTES) are queued.
pub trait Transport: Read + Write + Send {
    /// Describes the peer, for messages: `tcp 127.0.0.1:4000`.
    fn peer(&self) -> String;

    /// Sets how long a read or write may make no progress.
    ///
    /// # Errors
    /// The operating system refuses the option of the socket.
    fn set_stall_timeout(&mut self, timeout: Duration) -> io::Result<()>;

    /// Sets when reads fail with [`io::ErrorKind::TimedOut`] even if bytes trickle in. Writes and
    /// [`settle`](Self::settle) fail likewise, where they can wait. `None` means never.
    fn set_deadline(&mut self, deadline: Option<Instant>);

    /// Reads without waiting: [`io::ErrorKind::WouldBlock`] if no bytes are available.
    ///
    /// # Errors
    /// As a read; [`io::ErrorKind::Unsupported`] for transports that can only wait (the default).
    fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let _ = buf;
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{} cannot be read without waiting", self.peer())))
    }

    /// Waits until all written bytes have left this process, and then holds no thread.
    ///
    /// # Errors
    /// As a write; [`io::ErrorKind::TimedOut`] if the peer reads nothing for the stall timeout, or
    /// not everything by the deadline.
    fn settle(&mut self) -> io::Result<()> {
        self.flush()
    }
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn peer(&self) -> String {
        (**self).peer()
    }

    fn set_stall_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        (**self).set_stall_timeout(timeout)
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        (**self).set_deadline(deadline);
    }

    fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (**self).try_read(buf)
    }

    fn settle(&mut self) -> io::Result<()> {
        (**self).settle()
    }
}

pub(crate) const DEFAULT_STALL: Duration = Duration::from_secs(600);

/// The error of a read or write that made no progress in time.
pub(crate) fn timed_out(waited: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no progress for {:.1} s", waited.as_secs_f64()))
}

/// How long a read or write may wait: the stall timeout, limited by the deadline. An error if the
/// deadline has passed.
pub(crate) fn allowed_wait(stall: Duration, deadline: Option<Instant>) -> io::Result<Duration> {
    let Some(deadline) = deadline else {
        return Ok(stall);
    };
    match deadline.checked_duration_since(Instant::now()) {
        Some(left) if !left.is_zero() => Ok(stall.min(left)),
        _ => Err(io::Error::new(io::ErrorKind::TimedOut, "the deadline for this step is over")),
    }
}
