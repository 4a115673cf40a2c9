//! Choice of the next job by [SS26] Algorithm 1, lines 14 to 37, as printed.
//!
//! Each pass starts every T_pre that fits, by score; then the first T_on by score if it fits, and no
//! other T_on if it does not. Nothing is reserved: a T_on that needs much memory can wait for as long
//! as T_pre take what becomes free.

use super::Scheduler;
use super::dispatch::{Pick, Verdict};
use crate::ids::JobPhase;
use crate::policy::{ClassFacts, Policy, ThreadOption};
use crate::queue::InputKey;

impl<P: Policy> Scheduler<P> {
    /// Chooses the next job. `exclusive`: no T_on starts while one of its model and batch runs.
    pub(super) fn pick_by_phase(&self, exclusive: bool) -> Pick {
        // A reservation is left over from a policy before this one.
        if let Some(holder) = self.machine.holder() {
            return Pick::Unreserve(holder);
        }
        let mut options = Vec::new();
        for phase in [JobPhase::Pre, JobPhase::On] {
            for (_, key, class) in self.queues.heads() {
                let facts = &self.queues.class(class).facts;
                if facts.phase != phase {
                    continue;
                }
                let verdict = self.assess(facts, key, &mut options);
                if let Some(pick) = self.pick_from_verdict(&verdict, key, facts, &options, exclusive) {
                    return pick;
                }
                if phase == JobPhase::On {
                    return Pick::Nothing;
                }
            }
        }
        self.next_refill().map_or(Pick::Nothing, |(pool, option)| Pick::Refill(pool, option))
    }

    /// Returns what to do about a head with this verdict; `None` if the head has to wait.
    fn pick_from_verdict(
        &self,
        verdict: &Verdict,
        key: InputKey,
        facts: &ClassFacts,
        options: &[ThreadOption],
        exclusive: bool,
    ) -> Option<Pick> {
        match verdict {
            Verdict::Fits if exclusive && self.runs_same_online(facts) => None,
            Verdict::Fits => self.choose(facts, key, options).map(|option| Pick::Start(key, option)),
            _ => self.pick_for_misfit(verdict, key, facts),
        }
    }

    /// Whether the job is a T_on and one of the same model and batch size runs.
    fn runs_same_online(&self, facts: &ClassFacts) -> bool {
        facts.phase == JobPhase::On
            && self
                .machine
                .jobs()
                .any(|job| (job.task.phase(), job.model, job.batch) == (JobPhase::On, facts.model, facts.batch))
    }
}
