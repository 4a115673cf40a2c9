//! Whether a control connection is alive. Only a complete request head and a piece of an answer
//! that the connection polls for count. A peer that sends a request byte by byte, or reads no
//! answer, counts as idle.
use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tacit_admission::Busy;
use tokio::time::sleep;

pub(crate) struct Keepalive {
    start: Instant,
    /// Milliseconds from the start to the last beat.
    last: AtomicU64,
}

impl Keepalive {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    pub(crate) fn beat(&self) {
        self.last.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Completes when there was no beat for `idle`.
    pub(crate) async fn wait_until_idle(&self, idle: Duration) {
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            match (last + idle).checked_sub(self.start.elapsed()) {
                Some(remaining) if remaining > Duration::ZERO => sleep(remaining).await,
                _ => return,
            }
        }
    }
}

/// The body of an answer; each piece that is polled counts as a beat.
pub(crate) struct KeepaliveBody {
    body: Body,
    keepalive: Arc<Keepalive>,
    /// Marks the request as in work until the whole body is sent.
    _busy: Busy,
}

impl KeepaliveBody {
    pub(crate) fn new(body: Body, keepalive: Arc<Keepalive>, busy: Busy) -> Self {
        keepalive.beat();
        Self { body, keepalive, _busy: busy }
    }
}

impl http_body::Body for KeepaliveBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let piece = Pin::new(&mut self.body).poll_frame(cx);
        if piece.is_ready() {
            self.keepalive.beat();
        }
        piece
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
