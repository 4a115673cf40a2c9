//! The end of a connection, from another thread.
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use tacit_backends::seam::Stop;

/// Ends a connection from another thread: a call that waits on it fails at once, one that computes before its
/// next layer.
pub struct Closer {
    stream: TcpStream,
    closed: AtomicBool,
    pub(crate) stop: Stop,
}

impl Closer {
    /// Of the connection of a socket.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, closed: AtomicBool::new(false), stop: Stop::default() }
    }

    /// Ends the connection. The client of it is useless afterwards.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.stop.raise();
        self.cut();
    }

    /// Ends the connection for a fault of this end's.
    pub(crate) fn cut(&self) {
        // One that the peer has ended is as good.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Whether something has come from the server that nobody waits for, its end included. For connections on
    /// which nothing is under way.
    #[must_use]
    pub fn hears_something(&self) -> bool {
        // The socket's mode is everybody's who has a copy of it: nobody else uses it now.
        let seen = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let back = self.stream.set_nonblocking(false);
        back.is_err() || !matches!(&seen, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Whether this ended the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}
