//! Views of the scheduler's state, and changes of its settings.
use super::Queue;
use crate::jobs::estimates::{class_name, phase_name};
use crate::ops::snapshot::ProfileRow;
use std::time::{Duration, Instant};
use tacit_client::wire::Device;
use tacit_sched::policy::{Policy, PolicySpec};
use tacit_sched::{Counts, Event, JobPhase, ModelId, Resources};

impl Queue {
    pub(crate) fn alarm(&self) -> Option<Instant> {
        let wakeup = self.scheduler.next_wakeup();
        let wakeup = wakeup.map(|time| self.epoch + Duration::from_nanos(time.0) + Duration::from_millis(1));
        wakeup
            .into_iter()
            .chain(self.inputs.handover_deadlines.first().map(|(deadline, _)| *deadline))
            .chain(self.pool_alarm())
            .min()
    }

    /// Inputs by state, without stock that waits for an idle server.
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

    /// Actual against expected durations of models on offer, for phases that have run.
    pub(crate) fn profile(&self) -> Vec<ProfileRow> {
        let mut rows: Vec<ProfileRow> = Vec::new();
        for (&(_, device), &model) in &self.models.ids {
            let phases = [JobPhase::Pre, JobPhase::On].into_iter();
            rows.extend(phases.filter_map(|phase| self.profile_row(device, model, phase)));
        }
        // Sorted by name: plans mean nothing to readers.
        rows.sort_by(|a, b| (&a.model, a.backend, a.phase, &a.device).cmp(&(&b.model, b.backend, b.phase, &b.device)));
        rows
    }

    /// Actual against expected durations of one phase of a model; `None` if it has not run.
    fn profile_row(&self, device: Device, model: ModelId, phase: JobPhase) -> Option<ProfileRow> {
        let accuracy = self.scheduler.profile().error(model, phase)?;
        let kind = &self.models.by_id[model.0 as usize];
        Some(ProfileRow {
            model: kind.name.to_string(),
            backend: kind.backend,
            phase: phase_name(phase),
            device: class_name(device),
            jobs: accuracy.jobs,
            expected_s: accuracy.expected.secs(),
            measured_s: accuracy.actual.secs(),
            error_median: accuracy.median,
            error_p95: accuracy.p95,
        })
    }

    pub(crate) fn set_policy(&mut self, policy: PolicySpec) {
        self.policy = policy.name();
        self.scheduler.set_policy(policy);
    }

    pub(crate) fn policy(&self) -> String {
        self.policy.clone()
    }

    pub(crate) fn set_machine(&mut self, cores: u32, memory: u64) {
        let current = self.scheduler.capacity();
        let updated = Resources { cores, memory, ..current };
        // A small change is ignored: it would make the scheduler check all inputs every second.
        if updated.cores != current.cores || memory.abs_diff(current.memory) > memory / 64 {
            self.handle_or_ignore(Event::Capacity(updated));
        }
    }

    /// Raises the memory to `need` if other processes have taken it: every permitted job can run
    /// alone.
    pub(super) fn make_room(&mut self, need: u64) {
        let (have, need) = (self.scheduler.capacity(), need.min(self.settings.job_memory));
        if have.memory < need {
            self.handle_or_ignore(Event::Capacity(Resources { memory: need, ..have }));
        }
    }

    pub(crate) fn largest_job(&self) -> u64 {
        self.models.ids.values().map(|model| self.memory_of(*model)).max().unwrap_or(0)
    }

    pub(super) fn memory_of(&self, model: ModelId) -> u64 {
        let phases = [JobPhase::Pre, JobPhase::On].into_iter();
        let estimates =
            phases.filter_map(|phase| self.scheduler.profile().estimate(model, phase, 1, self.settings.threads));
        estimates.map(|estimate| estimate.memory).max().unwrap_or(0)
    }
}
