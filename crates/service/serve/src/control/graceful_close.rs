//! Closes a connection so that the last answer arrives. An operating system that closes a socket
//! with unread bytes resets it, and the reset discards answers that the peer has not read yet. A
//! client refused in the middle of a large body would see a broken connection and no reason (RFC
//! 9112, section 9.6).
use crate::accept::counted::Counted;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tacit_net::tls::HTTP_2;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;

/// How long a peer has to stop sending after the last answer.
const LINGER: Duration = Duration::from_secs(5);

/// A stream whose shutdown waits up to [`LINGER`] for the peer's end and discards what arrives
/// meanwhile.
pub(crate) struct GracefulStream {
    stream: TlsStream<Counted>,
    /// Runs from this side's shutdown on.
    patience: Option<Pin<Box<Sleep>>>,
}

impl GracefulStream {
    pub(crate) fn new(stream: TlsStream<Counted>) -> Self {
        Self { stream, patience: None }
    }

    pub(crate) fn is_http_2(&self) -> bool {
        self.stream.get_ref().1.alpn_protocol() == Some(HTTP_2)
    }
}

impl AsyncRead for GracefulStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for GracefulStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, patience } = &mut *self;
        if patience.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        }
        let patience = patience.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut unread = [0; 4096];
        while patience.as_mut().poll(cx).is_pending() {
            let mut unread = ReadBuf::new(&mut unread);
            // Reads below TLS: bytes that are discarded need no decryption.
            let result = ready!(Pin::new(&mut *stream.get_mut().0).poll_read(cx, &mut unread));
            if result.is_err() || unread.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}
