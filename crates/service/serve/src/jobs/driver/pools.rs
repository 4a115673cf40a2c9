//! Halves of pooled material. Dealings run beside the service, in threads that may wait for the
//! dealer.
use super::Driver;
use crate::jobs::event::Event;
use crate::models::catalog::Offered;
use crate::session::pooled::{self, Pooled};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tacit_backends::seam::{ConnectionResources, Stop};
use tacit_ids::MaterialId;
use tacit_sched::JobId;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::spawn_blocking;

pub(super) struct Pools {
    halves: HashMap<MaterialId, Pooled>,
    resources: ConnectionResources,
    stop: Stop,
    events: UnboundedSender<Event>,
}

impl Pools {
    pub(super) fn new(resources: &ConnectionResources, events: UnboundedSender<Event>) -> Self {
        let stop = Stop::default();
        Self { halves: HashMap::new(), resources: resources.stopped_by(&stop), stop, events }
    }

    /// Takes a half out, to be used once or dropped.
    pub(super) fn take(&mut self, material: MaterialId) -> Option<Pooled> {
        self.halves.remove(&material)
    }

    /// Stops dealing ahead of time, and drops all halves.
    pub(super) fn close(&mut self) {
        self.stop.raise();
        self.halves.clear();
    }
}

impl Driver {
    pub(super) fn open_pools(&mut self) {
        let catalog = self.gate.catalog();
        catalog.offered_models().for_each(|offered| self.queue.open_pool(offered));
    }

    pub(super) fn deal(&mut self, job: JobId, offered: Arc<Offered>) {
        let Some(store) = self.store.clone().filter(|_| self.ending.stopping.is_none()) else {
            self.queue.finish_dealing(job, None);
            return;
        };
        let (resources, events) = (self.pools.resources.clone(), self.pools.events.clone());
        let dealing = spawn_blocking(move || {
            let result = pooled::deal(&store, &resources, &*offered.model);
            result.inspect_err(|e| tracing::info!(model = %offered.name, backend = %offered.backend, "nothing was dealt ahead of time: {e}"))
        });
        tokio::spawn(async move {
            // A dealing that panicked has been logged and has no result.
            let result = dealing.await.ok().and_then(Result::ok);
            // Fails only if the driver has ended.
            let _ = events.send(Event::Pooled { job, result });
        });
    }

    pub(super) fn take_pooled(&mut self, job: JobId, result: Option<(Pooled, Duration)>) {
        let dealt = result.and_then(|(half, took)| Some((MaterialId::random().ok()?, half, took)));
        match dealt {
            Some((id, half, took)) => {
                if self.queue.finish_dealing(job, Some((id, took))) {
                    self.pools.halves.insert(id, half);
                }
            }
            None => drop(self.queue.finish_dealing(job, None)),
        }
    }
}
