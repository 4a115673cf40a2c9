//! Ending connections from outside, and what runs on them.
use std::net::{Shutdown, TcpStream};
use tacit_backends::seam::Stop;

/// Ends one connection.
pub(crate) struct Closer {
    stream: TcpStream,
    stop: Stop,
}

impl Closer {
    /// Of a connection over `stream`, whose phases `stop` ends.
    pub(crate) fn new(stream: TcpStream, stop: Stop) -> Self {
        Self { stream, stop }
    }

    /// A phase that waits for its peer ends at once, one that computes before its next layer.
    pub(crate) fn close(&self) {
        self.stop.raise();
        // Closed already is as good.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
