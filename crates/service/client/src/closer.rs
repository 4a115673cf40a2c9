//! Ending a connection from another thread.
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use tacit_backends::seam::Stop;

/// Ends a connection from another thread. A call that waits on the connection fails at once; a call
/// that computes fails before its next layer.
pub struct Closer {
    stream: TcpStream,
    closed: AtomicBool,
    pub(crate) stop: Stop,
}

impl Closer {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, closed: AtomicBool::new(false), stop: Stop::default() }
    }

    /// Ends the connection. Its client is unusable afterwards.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.stop.raise();
        self.cut();
    }

    /// Ends the connection for a fault of this party.
    pub(crate) fn cut(&self) {
        // An error means that the peer has ended the connection already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Whether the server has sent data, or ended the connection, while no request is under way.
    #[must_use]
    pub fn has_input(&self) -> bool {
        // All copies of a socket share its mode; no other thread uses the socket now.
        let seen = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let back = self.stream.set_nonblocking(false);
        back.is_err() || !matches!(&seen, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Whether `close` has ended the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}
