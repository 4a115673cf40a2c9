//! The node registry with a clock, a lock and stored counts.
use super::counts::Counts;
use super::node_registry::{Granted, NodeRegistry, Refused, Ticket};
use super::report::Report;
use crate::jobs::quota::{Clock, day_of};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tacit_ids::ClientId;
use tokio::sync::Notify;
use tokio::time::timeout_at;

pub(super) struct PlacementService {
    registry: Mutex<NodeRegistry>,
    counts: Option<Mutex<Counts>>,
    clock: Mutex<Clock>,
    banned: BTreeSet<ClientId>,
    /// Start of placing: until then a node of an earlier front may still hold a lease.
    opens_at: Instant,
    /// Notifies waiting clients of a change at a node.
    changed: Notify,
}

impl PlacementService {
    /// Makes a service that places no client for the length of a lease.
    pub(super) fn new(registry: NodeRegistry, banned: BTreeSet<ClientId>) -> Self {
        let (opens_at, registry) = (Instant::now() + registry.lease, Mutex::new(registry));
        Self { opens_at, registry, counts: None, clock: Mutex::new(Clock::new()), banned, changed: Notify::new() }
    }

    pub(super) fn with_counts(self, counts: Counts) -> Self {
        Self { counts: Some(Mutex::new(counts)), ..self }
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, NodeRegistry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> i64 {
        // A panic under the lock leaves no half-made change.
        self.clock.lock().unwrap_or_else(PoisonError::into_inner).now()
    }

    pub(super) fn join(&self, name: &str, address: &str) -> Result<u64, Refused> {
        self.registry().join(name, address, Instant::now())
    }

    pub(super) fn renew(&self, name: &str, run: u64, report: Report) -> Result<Granted, Refused> {
        let granted = {
            let (now, mut registry) = (self.now(), self.registry());
            let granted = registry.renew(name, run, report, Instant::now(), day_of(now));
            self.keep_counts(&mut registry, now);
            granted
        };
        self.changed.notify_waiters();
        granted
    }

    /// Writes new counts. After a failure nodes go on, and the next lease tries again.
    fn keep_counts(&self, registry: &mut NodeRegistry, now: i64) {
        let Some(counts) = &self.counts else { return };
        // A panicking statement leaves the database unchanged.
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = counts.note_clock(now) {
            tracing::error!("what the clock shows would not outlive this front: {e}");
        }
        let (day, unkept) = registry.unkept_counts();
        if unkept.is_empty() {
            return;
        }
        match counts.keep(day, &unkept) {
            Ok(()) => registry.mark_counts_kept(),
            Err(e) => tracing::error!("answers of {} clients would not outlive this front: {e}", unkept.len()),
        }
    }

    pub(super) fn leave(&self, name: &str, run: u64) {
        self.registry().leave(name, run, Instant::now());
    }

    pub(super) fn end(&self, name: &str, run: u64) {
        self.registry().end(name, run, Instant::now());
        self.changed.notify_waiters();
    }

    /// Returns a ticket once its node admits the client; waits up to `patience` for that.
    pub(super) async fn place(&self, client: ClientId, model: &str, patience: Duration) -> Result<Ticket, Refused> {
        if self.banned.contains(&client) {
            return Err(Refused { reason: "this client is not admitted".into(), retry_after: None });
        }
        let end = Instant::now() + patience;
        if self.opens_at > Instant::now() {
            tokio::time::sleep_until(self.opens_at.min(end).into()).await;
            let early = self.opens_at.saturating_duration_since(Instant::now());
            if !early.is_zero() {
                return Err(Refused::for_now("the front has just been started", early));
            }
        }
        loop {
            // Registers for notifications before the look at the registry, so that no change is
            // missed.
            let changed = self.changed.notified();
            let (ticket, lease) = {
                let (day, mut registry) = (day_of(self.now()), self.registry());
                // The client's node may be gone since the last round: then this places it at
                // another.
                let ticket = registry.place(client, model, Instant::now(), day)?;
                if registry.is_admitted(&ticket) {
                    return Ok(ticket);
                }
                (ticket, registry.lease)
            };
            // No notification reports the end of a lease, so look once a second.
            let look = end.min(Instant::now() + Duration::from_secs(1));
            if timeout_at(look.into(), changed).await.is_err() && Instant::now() >= end {
                return Err(Refused::for_now(format!("{} has not admitted the client yet", ticket.node), lease));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const ALICE: ClientId = ClientId([1; 32]);
    const LEASE: Duration = Duration::from_millis(400);
    const SHORT: Duration = Duration::from_millis(50);

    fn report(admitted: u64) -> Report {
        Report { models: BTreeMap::from([("net".into(), vec!["cheetah".into()])]), admitted, ..Report::default() }
    }

    fn in_time(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    #[test]
    fn place_waits_no_longer_than_its_patience() {
        in_time(async {
            let service = PlacementService::new(NodeRegistry::new(LEASE, None, 2), BTreeSet::new());
            let run = service.join("silent", "nowhere:1").unwrap();
            service.renew("silent", run, report(0)).unwrap();
            let refused = service.place(ALICE, "net", SHORT).await.unwrap_err();
            assert!(refused.reason.contains("just been started"), "{refused:?}");
            // Nodes of an earlier front may still serve, so no client is placed yet.
            assert!(service.registry().nodes["silent"].clients.is_empty());
            tokio::time::sleep(LEASE).await;
            let run = service.join("silent", "nowhere:1").unwrap();
            service.renew("silent", run, report(0)).unwrap();
            let refused = service.place(ALICE, "net", SHORT).await.unwrap_err();
            assert!(refused.reason.contains("has not admitted"), "{refused:?}");
            assert!(refused.retry_after == Some(LEASE), "{refused:?}");
            // A waiting client gets its ticket once the node admits it.
            let waits = service.place(ALICE, "net", LEASE);
            let admits = async {
                let granted = service.renew("silent", run, report(0)).unwrap();
                service.renew("silent", run, report(granted.version)).unwrap();
            };
            let (ticket, ()) = tokio::join!(waits, admits);
            assert_eq!(ticket.unwrap().node, "silent");
        });
    }

    #[test]
    fn banned_client_is_refused() {
        in_time(async {
            let service = PlacementService::new(NodeRegistry::new(Duration::ZERO, None, 2), BTreeSet::from([ALICE]));
            let refused = service.place(ALICE, "net", SHORT).await.unwrap_err();
            assert!(refused.reason.contains("not admitted"));
            assert!(refused.retry_after.is_none());
        });
    }
}
