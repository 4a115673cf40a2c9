//! What handlers share: the way to the driver, and the last that it said.
use super::MAX_BODY_BYTES;
use super::answer::Refusal;
use crate::event::Event;
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};

/// Streams of events at the same time.
const STREAMS: usize = 32;
/// How old a snapshot may be that is shown: many who ask at once cost the driver one.
const FRESH: Duration = Duration::from_millis(100);

/// What handlers use.
pub(super) struct State {
    pub(super) shared: Arc<Shared>,
    pub(super) stop: watch::Receiver<bool>,
    latest: Mutex<Option<(Instant, Arc<Snapshot>)>>,
    streams: Arc<Semaphore>,
}

impl State {
    pub(super) fn new(shared: Arc<Shared>, stop: watch::Receiver<bool>) -> Self {
        Self { shared, stop, latest: Mutex::new(None), streams: Arc::new(Semaphore::new(STREAMS)) }
    }

    /// The server as it is; `None` if it has ended.
    pub(super) async fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let mut latest = self.latest.lock().await;
        if let Some((at, snapshot)) = &*latest
            && at.elapsed() < FRESH
        {
            return Some(snapshot.clone());
        }
        let mut snapshot = self.shared.ask(|reply| Event::Snapshot { reply }).await?;
        snapshot.certificates = self.shared.tls.borrow().certificates();
        let snapshot = Arc::new(snapshot);
        *latest = Some((Instant::now(), snapshot.clone()));
        Some(snapshot)
    }

    pub(super) async fn now(&self) -> Result<Arc<Snapshot>, Refusal> {
        self.snapshot().await.ok_or_else(Refusal::stopping)
    }

    /// Bytes and time of a request's body.
    pub(super) fn limits(&self) -> (usize, Duration) {
        (MAX_BODY_BYTES, self.shared.config.greeting_timeout)
    }

    /// What is shown next is asked for anew.
    pub(super) async fn forget(&self) {
        *self.latest.lock().await = None;
    }

    /// A place for somebody who watches.
    pub(super) fn watcher(&self) -> Option<OwnedSemaphorePermit> {
        self.streams.clone().try_acquire_owned().ok()
    }
}
