//! A full check of the scheduler's own bookkeeping, for tests and for a server's debug command.

use super::Scheduler;
use super::machine::Task;
use super::same::check_equal;
use super::state::{Input, Stage};
use crate::policy::Policy;
use crate::queue::InputKey;
use crate::resources::Resources;
use std::collections::BTreeSet;

impl<P: Policy> Scheduler<P> {
    /// Recomputes every counter from the records and compares. The cost grows with the number of
    /// live records.
    ///
    /// # Errors
    /// A sentence that names the wrong counter. Any error is a bug.
    pub fn audit(&self) -> Result<(), String> {
        self.machine.audit(self.stock.live_models().map(|model| self.catalog.disk(model)).sum())?;
        if let Some(holder) = self.machine.holder() {
            let waits = self.work.find(holder).is_some_and(Input::waits);
            check_equal("reservation holder waits", waits, true)?;
        }
        self.work.audit(|key, input| self.threads_of(key, input))?;
        self.audit_stock()?;
        self.audit_queues()?;
        let timers = self.work.groups().filter_map(|(id, g)| Some((g.ends?, id)));
        check_equal("timers", &timers.collect::<BTreeSet<_>>(), self.clock.timers())
    }

    /// Threads of the input's running job. An error if the job works for another input.
    fn threads_of(&self, key: InputKey, input: &Input) -> Result<Option<u32>, String> {
        let (Stage::RunPre(job) | Stage::RunOn(job)) = input.stage else { return Ok(None) };
        let job = self.machine.job(job).ok_or("an input runs a job that is gone")?;
        check_equal("owner of a job", job.task.input(), Some(key))?;
        Ok(Some(job.holds.cores))
    }

    fn audit_stock(&self) -> Result<(), String> {
        let waiting = self.work.inputs().filter_map(|(_, input)| match input.stage {
            Stage::Held(material) | Stage::WaitOn(material) => material,
            _ => None,
        });
        let consumed = self.machine.jobs().filter_map(|job| job.task.material());
        let refills = self.machine.jobs().filter(|job| matches!(job.task, Task::Refill(_)));
        let mut refilling = Resources::default();
        refills.for_each(|job| refilling.add(&job.holds));
        self.stock.audit(waiting.chain(consumed), refilling)
    }

    fn audit_queues(&self) -> Result<(), String> {
        let queued = self.work.inputs().filter(|(_, input)| input.slot.is_some()).count();
        check_equal("queued jobs", queued, self.queues.len())?;
        let in_classes: usize = self.queues.all_classes().map(|c| self.queues.class_len(c)).sum();
        check_equal("jobs in classes", in_classes, queued)?;
        for class in self.queues.all_classes() {
            for key in self.queues.jobs(class) {
                let slot = self.work.find(key).and_then(|i| i.slot);
                check_equal("class of a queued job", slot.map(|s| s.class), Some(class))?;
            }
        }
        Ok(())
    }
}
