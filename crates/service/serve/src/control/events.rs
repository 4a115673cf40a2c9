//! Server-sent events: a snapshot each second.
use super::state::State;
use axum::body::{Body, Bytes};
use http_body::Frame;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

const EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// Longest life of one stream; a client that wants more opens another.
const MAX_STREAM_TIME: Duration = Duration::from_secs(3600);

/// A body whose pieces another task produces.
struct Pieces(Receiver<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(ready!(self.0.poll_recv(cx)).map(|piece| Ok(Frame::data(piece))))
    }
}

/// A stream of snapshots, produced only as fast as the client reads. Ends when the server ends or
/// the client stops reading.
pub(super) fn stream(state: Arc<State>, place: OwnedSemaphorePermit) -> Body {
    let (sender, receiver) = channel(1);
    tokio::spawn(async move {
        // The stream reports no errors: it just ends.
        let _ = timeout(MAX_STREAM_TIME, produce(&state, &sender)).await;
        drop(place);
    });
    Body::new(Pieces(receiver))
}

async fn produce(state: &State, sender: &Sender<Bytes>) {
    let mut stop = state.stop.clone();
    while let Some(snapshot) = state.snapshot().await {
        let json = serde_json::to_string(&*snapshot).expect("plain data is always encoded");
        if sender.send(format!("retry: 2000\ndata: {json}\n\n").into()).await.is_err() {
            return;
        }
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = sender.closed() => return,
            () = sleep(EVENT_INTERVAL) => {}
        }
    }
}
