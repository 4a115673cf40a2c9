//! Ending connections, and what runs on them, from outside.
use std::net::{Shutdown, TcpStream};
use tacit_backends::seam::Stop;

pub(crate) struct Closer {
    stream: TcpStream,
    stop: Stop,
}

impl Closer {
    pub(crate) fn new(stream: TcpStream, stop: Stop) -> Self {
        Self { stream, stop }
    }

    /// Ends the connection. A phase that waits for its peer ends at once, one that computes before
    /// its next layer.
    pub(crate) fn close(&self) {
        self.stop.raise();
        // Fails only if the stream is closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
