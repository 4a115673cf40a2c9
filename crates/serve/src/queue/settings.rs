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
        wakeup.into_iter().chain(self.due.first().map(|(until, _)| *until)).chain(self.pool_alarm()).min()
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

    /// The machine has so many cores and bytes of memory for jobs now.
    pub(crate) fn set_machine(&mut self, cores: u32, memory: u64) {
        let before = self.scheduler.capacity();
        let now = Resources { cores, memory, ..before };
        // What differs by little would have everything looked at again, every second.
        if now.cores != before.cores || memory.abs_diff(before.memory) > memory / 64 {
            self.handle_or_ignore(Event::Capacity(now));
        }
    }

    /// Other processes may have taken memory, but a job that may run at all is not refused for that: there is
    /// enough for it alone.
    pub(super) fn make_room(&mut self, need: u64) {
        let (have, need) = (self.scheduler.capacity(), need.min(self.job_memory));
        if have.memory < need {
            self.handle_or_ignore(Event::Capacity(Resources { memory: need, ..have }));
        }
    }

    /// What the largest job of a model that is in use is expected to hold.
    pub(crate) fn largest_job(&self) -> u64 {
        self.models.values().map(|model| self.memory_of(*model)).max().unwrap_or(0)
    }

    /// What the larger phase of a model is expected to hold.
    pub(super) fn memory_of(&self, model: ModelId) -> u64 {
        let phases = [JobPhase::Pre, JobPhase::On].into_iter();
        let estimates = phases.filter_map(|phase| self.scheduler.profile().estimate(model, phase, 1, self.threads));
        estimates.map(|estimate| estimate.memory).max().unwrap_or(0)
    }
}
