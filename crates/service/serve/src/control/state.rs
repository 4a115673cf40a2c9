//! State that handlers share: access to the driver, and its latest snapshot.
use super::MAX_BODY_BYTES;
use super::answer::Refusal;
use super::body::BodyLimits;
use crate::jobs::event::Event;
use crate::ops::snapshot::Snapshot;
use crate::shared::Shared;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};

/// Most event streams at the same time.
const MAX_STREAMS: usize = 32;
/// Longest time that a snapshot is reused, so that many simultaneous requests cost the driver one.
const MAX_SNAPSHOT_AGE: Duration = Duration::from_millis(100);

pub(super) struct State {
    pub(super) shared: Arc<Shared>,
    pub(super) stop: watch::Receiver<bool>,
    latest: Mutex<Option<(Instant, Arc<Snapshot>)>>,
    streams: Arc<Semaphore>,
}

impl State {
    pub(super) fn new(shared: Arc<Shared>, stop: watch::Receiver<bool>) -> Self {
        Self { shared, stop, latest: Mutex::new(None), streams: Arc::new(Semaphore::new(MAX_STREAMS)) }
    }

    /// Returns a snapshot of the server at most [`MAX_SNAPSHOT_AGE`] old; `None` if the server has ended.
    pub(super) async fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let mut latest = self.latest.lock().await;
        if let Some((taken_at, snapshot)) = &*latest
            && taken_at.elapsed() < MAX_SNAPSHOT_AGE
        {
            return Some(snapshot.clone());
        }
        let mut snapshot = self.shared.ask(|reply| Event::Snapshot { reply }).await?;
        snapshot.certificates = self.shared.tls.borrow().certificates();
        let snapshot = Arc::new(snapshot);
        *latest = Some((Instant::now(), snapshot.clone()));
        Some(snapshot)
    }

    pub(super) async fn require_snapshot(&self) -> Result<Arc<Snapshot>, Refusal> {
        self.snapshot().await.ok_or_else(Refusal::stopping)
    }

    pub(super) fn limits(&self) -> BodyLimits {
        BodyLimits { bytes: MAX_BODY_BYTES, patience: self.shared.config.greeting_timeout }
    }

    /// Drops the latest snapshot: the next one comes from the driver.
    pub(super) async fn forget(&self) {
        *self.latest.lock().await = None;
    }

    /// Takes a permit for an event stream; `None` if all [`MAX_STREAMS`] are taken.
    pub(super) fn try_stream_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.streams.clone().try_acquire_owned().ok()
    }
}
