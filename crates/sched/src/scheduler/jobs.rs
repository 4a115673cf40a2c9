//! Jobs that end.

use super::Scheduler;
use super::machine::{Job, Task};
use super::state::{GroupId, Lifecycle, Stage};
use crate::ids::{JobId, MaterialId};
use crate::message::{Action, NoticeProblem, Outcome, Rejected, Usage};
use crate::policy::Policy;
use crate::pool::PoolKey;
use crate::queue::InputKey;

impl<P: Policy> Scheduler<P> {
    /// Takes a job off the machine and gives back what it holds.
    fn take_job(&mut self, id: JobId) -> Result<Job, Rejected> {
        let job = self.machine.take(id).ok_or(Rejected::JobNotRunning(id))?;
        match job.task {
            Task::Pre(key) | Task::On(key, _) => self.work.vacate(key, job.holds.cores),
            Task::Refill(pool) => self.stock.refill_ends(pool, id, job.holds),
        }
        self.out.stir();
        Ok(job)
    }

    pub(super) fn job_finished(&mut self, id: JobId, usage: Usage, made: Option<MaterialId>) -> Result<(), Rejected> {
        let task = self.machine.job(id).ok_or(Rejected::JobNotRunning(id))?.task;
        let now = self.clock.now();
        match (task, made) {
            (Task::Pre(owner), Some(material)) => {
                self.made(id, usage, material)?;
                self.work.edit(owner, |input| input.pre.finished = Some(now));
                let group = self.work.input(owner).group;
                self.has_material(owner, material);
                self.unpark(group);
            }
            (Task::Refill(pool), Some(material)) => {
                self.made(id, usage, material)?;
                self.shelve(pool, material);
            }
            (Task::On(owner, material), None) => {
                self.ended_well(id, usage)?;
                self.consume(material);
                self.work.edit(owner, |input| input.on.finished = Some(now));
                self.remove_input(owner, Outcome::Done);
            }
            (task, _) => return Err(Rejected::MaterialMismatch { job: id, phase: task.phase() }),
        }
        Ok(())
    }

    /// A T_pre ended well: what it made lives from now on. Refused, and nothing changed, if the name is
    /// taken.
    fn made(&mut self, id: JobId, usage: Usage, material: MaterialId) -> Result<(), Rejected> {
        if self.stock.knows(material) {
            return Err(Rejected::BadMaterial(material));
        }
        let job = self.ended_well(id, usage)?;
        self.stock.add_made(material, job.model);
        self.machine.hold_disk(job.holds.disk);
        Ok(())
    }

    /// Takes a job off the machine and learns from it.
    fn ended_well(&mut self, id: JobId, usage: Usage) -> Result<Job, Rejected> {
        let job = self.take_job(id)?;
        if self.catalog.learn(&job, usage) {
            self.refresh_model(job.model);
        }
        Ok(job)
    }

    pub(super) fn job_failed(&mut self, id: JobId) -> Result<(), Rejected> {
        let job = self.take_job(id)?;
        match job.task {
            Task::Pre(owner) => self.pre_failed(owner),
            Task::Refill(pool) => self.stock.pause(pool),
            Task::On(owner, material) => {
                self.burn(material);
                self.remove_input(owner, Outcome::Failed);
            }
        }
        Ok(())
    }

    /// Tries again, or gives up: a request's input fails, a notice's is dropped.
    fn pre_failed(&mut self, owner: InputKey) {
        self.work.edit(owner, |input| {
            input.stage = Stage::WaitPre;
            input.failures += 1;
            input.pre = Default::default();
        });
        let input = self.work.input(owner);
        let group = input.group;
        if input.failures < self.limits.pre_attempts {
            self.enqueue(owner);
            self.unpark(group);
            return;
        }
        self.remove_input(owner, Outcome::Failed);
        if let GroupId::Notice(notice) = group
            && self.work.group(group).is_none()
        {
            self.notices.remember(notice, NoticeProblem::Failed);
            self.out.push(Action::NoticeEnded { notice, why: NoticeProblem::Failed });
        }
    }

    /// Stops a running job. What a T_pre made so far has no name here; the material of a T_on is burnt.
    pub(super) fn stop_job(&mut self, id: JobId) {
        let job = self.take_job(id).expect("inputs and pools name only jobs that run");
        self.out.push(Action::Stop { job: id });
        if let Some(material) = job.task.material() {
            self.burn(material);
        }
    }

    /// The input that a running T_pre was for needs it no more: another input, the pool, or nobody takes it
    /// over.
    pub(super) fn orphan(&mut self, id: JobId, owner: InputKey) {
        match self.pool_of(owner) {
            Some(pool) if self.hand_over(id, owner, pool) => {}
            _ => self.stop_job(id),
        }
    }

    /// Gives a running T_pre to the oldest input that waits for one, else to the pool if it wants it.
    fn hand_over(&mut self, id: JobId, owner: InputKey, pool: PoolKey) -> bool {
        let heir = self.stock.oldest_needy(pool);
        if heir.is_none() && !(self.stock.wants(pool) && self.lifecycle == Lifecycle::Open) {
            return false;
        }
        self.disown(id, owner, pool);
        if let Some(heir) = heir {
            self.dequeue(heir);
            self.adopt(id, heir, pool);
        }
        true
    }
}
