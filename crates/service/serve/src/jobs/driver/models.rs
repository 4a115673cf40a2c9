//! Models that are added and withdrawn while the server runs.
use super::Driver;
use crate::ServeError;
use crate::jobs::gate::{WITHDRAWN, burn_matching};
use crate::models::catalog::{Catalog, Changes, Offered, Succession};
use crate::ops::state::{Learned, Row};
use std::collections::BTreeSet;
use std::sync::Arc;
use tacit_admission::ConnectionId;
use tokio::task::spawn_blocking;

impl Driver {
    /// Models on offer whose durations are unknown.
    pub(super) fn cold_models(&self) -> Vec<Arc<Offered>> {
        self.gate.catalog().offered_models().filter(|offered| self.queue.is_cold(offered)).cloned().collect()
    }

    pub(super) fn take_warm_up(&mut self, learned: Vec<Learned>) {
        for row in learned {
            self.queue.expect(row.clone());
            self.record.keep(Row::Learned(row));
        }
    }

    /// Running jobs continue with their model. The edge ends idle connections whose open model is
    /// withdrawn.
    pub(super) fn set_models(&mut self, catalog: Catalog) -> Changes {
        let Succession { catalog, changes, removed } = catalog.replace(&self.gate.catalog());
        let catalog = Arc::new(catalog);
        self.record.offer(&catalog);
        self.gate.set_catalog(Arc::clone(&catalog));
        // Waiting requests for withdrawn models must not enter the queue again.
        let waiting = self.work.waiting.iter().copied().filter(|number| self.is_gone(*number, &catalog));
        for number in waiting.collect::<Vec<ConnectionId>>() {
            if let Some(ask) = self.end_job(number) {
                self.refuse_job(number, ask, ServeError::NotGranted(WITHDRAWN.into()));
            }
        }
        let (plans, kept_plans) = (removed.iter().map(|o| o.plan).collect::<BTreeSet<_>>(), catalog.plans());
        self.queue.withdraw(&plans.difference(&kept_plans).copied().collect());
        self.open_pools();
        // A withdrawn model may return unchanged, a replaced one does not: only the latter's
        // material is burnt.
        let replaced: BTreeSet<_> = removed
            .iter()
            .filter(|o| catalog.find(o).is_some() && !kept_plans.contains(&o.plan))
            .flat_map(|o| o.identities())
            .collect();
        if let Some(store) = self.store.clone().filter(|_| !replaced.is_empty()) {
            spawn_blocking(move || {
                let burnt =
                    burn_matching(&store, |entry| replaced.contains(&(entry.binding.model, entry.binding.plan)));
                match burnt {
                    Ok(burnt) => tracing::info!("{burnt} stored materials of models that were replaced are destroyed"),
                    Err(e) => tracing::error!("material of models that were replaced cannot be destroyed: {e}"),
                }
            });
        }
        let Changes { added, replaced, withdrawn, kept } = &changes;
        let (added, replaced, withdrawn) = (added.join(" "), replaced.join(" "), withdrawn.join(" "));
        tracing::info!(%added, %replaced, %withdrawn, kept = kept.len(), "the models on offer were looked at again");
        changes
    }

    /// Whether the model that a job has open is no longer on offer.
    fn is_gone(&self, number: ConnectionId, catalog: &Catalog) -> bool {
        let open = self.work.jobs.get(&number).and_then(|job| job.open());
        open.is_some_and(|open| !catalog.is_offered(&open.origin.offered))
    }
}
