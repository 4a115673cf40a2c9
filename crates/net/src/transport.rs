//! The seam between the channel and what carries its bytes.
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// A blocking duplex byte stream to one peer.
///
/// A read that gets nothing for the stall timeout ends with [`io::ErrorKind::TimedOut`]; a read at the peer's
/// end of the stream returns 0. A write may queue, and never waits for the peer to read before
/// [`QUEUE_BYTES`](crate::QUEUE_BYTES) are queued.
pub trait Transport: Read + Write + Send {
    /// Who is at the other end, for messages: `tcp 127.0.0.1:4000`.
    fn peer(&self) -> String;

    /// How long a read or write may make no progress.
    ///
    /// # Errors
    /// What the operating system says about the socket.
    fn set_stall_timeout(&mut self, timeout: Duration) -> io::Result<()>;

    /// A point in time after which reads fail with [`io::ErrorKind::TimedOut`] whatever trickles in, and
    /// writes and [`settle`](Self::settle) whatever the peer takes, where they can wait; `None` lifts it.
    fn set_deadline(&mut self, deadline: Option<Instant>);

    /// As a read, but without waiting: [`io::ErrorKind::WouldBlock`] where nothing has come.
    ///
    /// # Errors
    /// As a read; [`io::ErrorKind::Unsupported`] for transports that can only wait (the default).
    fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let _ = buf;
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{} cannot be read without waiting", self.peer())))
    }

    /// Waits until everything that was written has left this process, and holds no thread afterwards.
    ///
    /// # Errors
    /// As a write; [`io::ErrorKind::TimedOut`] if the peer takes nothing for the stall timeout, or not
    /// everything until the deadline.
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

/// Stall timeout of a transport that nobody configured.
pub(crate) const DEFAULT_STALL: Duration = Duration::from_secs(600);

/// The error of a read or write that made no progress in time.
pub(crate) fn timed_out(waited: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no progress for {:.1} s", waited.as_secs_f64()))
}

/// What a read or a write may wait: the stall timeout, cut short by the deadline. An error if the deadline is
/// over.
pub(crate) fn allowed_wait(stall: Duration, deadline: Option<Instant>) -> io::Result<Duration> {
    let Some(deadline) = deadline else {
        return Ok(stall);
    };
    match deadline.checked_duration_since(Instant::now()) {
        Some(left) if !left.is_zero() => Ok(stall.min(left)),
        _ => Err(io::Error::new(io::ErrorKind::TimedOut, "the deadline for this step is over")),
    }
}
