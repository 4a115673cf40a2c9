//! What is seen of the scheduler from outside, and what can be changed of it.
use super::Queue;
use crate::estimates::{class_name, phase_name};
use crate::snapshot::ProfileRow;
use std::time::{Duration, Instant};
use tacit_client::wire::Device;
use tacit_sched::policy::{Policy, PolicySpec};
use tacit_sched::{Counts, Event, JobPhase, ModelId, Resources};

impl Queue {
    /// When to poll again though nothing happens.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        let wakeup = self.scheduler.next_wakeup();
        let wakeup = wakeup.map(|at| self.epoch + Duration::from_nanos(at.0) + Duration::from_millis(1));
        wakeup.into_iter().chain(self.due.first().map(|(until, _)| *until)).min()
    }

    /// Inputs by state. Stock that waits for idle times waits for nothing else.
    pub(crate) fn counts(&self) -> Counts {
        let counts = self.scheduler.counts();
        Counts { pre: counts.pre.saturating_sub(self.offers.len()), ..counts }
    }

    pub(crate) fn used(&self) -> Resources {
        self.scheduler.used()
    }

    pub(crate) fn capacity(&self) -> Resources {
        self.scheduler.capacity()
    }

    /// What phases of models on offer took against what was expected, where a job of them has ended.
    pub(crate) fn profile(&self) -> Vec<ProfileRow> {
        let row = |(&(_, device), &model): (&([u8; 32], Device), &ModelId), phase| {
            let told = self.scheduler.profile().error(model, phase)?;
            let kind = &self.kinds[model.0 as usize];
            Some(ProfileRow {
                model: kind.name.to_string(),
                backend: kind.backend,
                phase: phase_name(phase),
                device: class_name(device),
                jobs: told.jobs,
                expected_s: told.expected.secs(),
                measured_s: told.actual.secs(),
                error_median: told.median,
                error_p95: told.p95,
            })
        };
        let phases = |entry| [JobPhase::Pre, JobPhase::On].into_iter().filter_map(move |phase| row(entry, phase));
        let mut rows: Vec<ProfileRow> = self.models.iter().flat_map(phases).collect();
        // Not by plan, which says nothing to who reads it.
        rows.sort_by(|a, b| (&a.model, a.backend, a.phase, &a.device).cmp(&(&b.model, b.backend, b.phase, &b.device)));
        rows
    }

    /// Jobs start by this policy from now on.
    pub(crate) fn set_policy(&mut self, policy: PolicySpec) {
        self.policy = policy.name();
        self.scheduler.set_policy(policy);
    }

    pub(crate) fn policy(&self) -> String {
        self.policy.clone()
    }

    /// The machine has so many cores for jobs now.
    pub(crate) fn set_cores(&mut self, cores: u32) {
        let capacity = self.scheduler.capacity();
        if capacity.cores != cores {
            self.note(Event::Capacity(Resources { cores, ..capacity }));
        }
    }
}
