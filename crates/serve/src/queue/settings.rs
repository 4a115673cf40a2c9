//! What is seen of the scheduler from outside, and what can be changed of it.
use super::Queue;
use std::time::{Duration, Instant};
use tacit_sched::policy::{Policy, PolicySpec};
use tacit_sched::{Counts, Event, Resources};

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
