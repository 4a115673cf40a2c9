//! Ends of jobs.

use super::Scheduler;
use super::machine::{Job, Task};
use super::state::{Lifecycle, Stage};
use crate::ids::{JobId, JobPhase, MaterialId, Owner};
use crate::message::{Action, Cause, NoticeProblem, Outcome, Rejected, Usage};
use crate::policy::Policy;
use crate::pool::PoolKey;
use crate::queue::InputKey;

impl<P: Policy> Scheduler<P> {
    fn take_job(&mut self, id: JobId) -> Result<Job, Rejected> {
        let job = self.machine.take(id).ok_or(Rejected::JobNotRunning(id))?;
        self.detach(id, &job);
        Ok(job)
    }

    /// The job has ended or is to stop.
    fn detach(&mut self, id: JobId, job: &Job) {
        match job.task {
            Task::Pre(key) | Task::On(key, _) => self.work.vacate(key, job.holds.cores),
            Task::Refill(pool) => {
                self.stock.refill_ends(pool, id, job.holds);
                if self.catalog.is_removed(pool.model) {
                    self.stock.remove_pool(pool);
                }
            }
        }
        self.out.stir();
    }

    pub(super) fn handle_job_finished(
        &mut self,
        id: JobId,
        usage: Usage,
        made_material: Option<MaterialId>,
    ) -> Result<(), Rejected> {
        if self.remove_stopped(id) {
            return if made_material.is_some() { Err(Rejected::JobNotRunning(id)) } else { Ok(()) };
        }
        let task = self.machine.job(id).ok_or(Rejected::JobNotRunning(id))?.task;
        let now = self.clock.now();
        match (task, made_material) {
            (Task::Pre(owner), Some(material)) => {
                self.register_material(id, usage, material)?;
                self.work.edit(owner, |input| input.pre.finished = Some(now));
                self.finish_pre(owner, material);
            }
            (Task::Refill(pool), Some(material)) => {
                self.register_material(id, usage, material)?;
                if self.catalog.is_removed(pool.model) {
                    self.burn(material);
                } else {
                    self.shelve(pool, material);
                }
            }
            (Task::On(owner, material), None) => {
                self.finish_job(id, usage)?;
                if let Some(material) = material {
                    self.consume(material);
                }
                self.work.edit(owner, |input| input.on.finished = Some(now));
                self.remove_input(owner, Outcome::Done);
            }
            (task, _) => return Err(Rejected::MaterialMismatch { job: id, phase: task.phase() }),
        }
        Ok(())
    }

    /// The material is for T_on or kept, and burnt if the model is gone.
    fn finish_pre(&mut self, owner: InputKey, material: MaterialId) {
        let id = self.work.input(owner).group;
        let group = self.work.group_of(owner);
        if self.catalog.is_removed(group.model) {
            self.end_without_model(owner, Some(material));
        } else if group.keeps {
            self.stock.keep(group.client, material);
            self.work.set_kept(id);
            self.leave_notice(owner);
        } else {
            self.has_material(owner, Some(material));
            self.unpark(id);
        }
    }

    /// Refused without any change if the name is taken.
    fn register_material(&mut self, id: JobId, usage: Usage, material: MaterialId) -> Result<(), Rejected> {
        if self.stock.knows(material) {
            return Err(Rejected::BadMaterial(material));
        }
        let job = self.finish_job(id, usage)?;
        self.stock.add_made(material, job.model);
        self.machine.hold_disk(job.holds.disk);
        Ok(())
    }

    fn finish_job(&mut self, id: JobId, usage: Usage) -> Result<Job, Rejected> {
        let job = self.take_job(id)?;
        let client = match job.task {
            Task::Pre(owner) | Task::On(owner, _) => Some(self.work.group_of(owner).client),
            Task::Refill(pool) => pool.client,
        };
        if self.catalog.learn(&job, client, usage) {
            self.refresh_model(job.model);
        }
        Ok(job)
    }

    /// False if no such job was stopping.
    fn remove_stopped(&mut self, id: JobId) -> bool {
        let was_stopping = self.machine.remove_stopped(id);
        if was_stopping {
            self.out.stir();
        }
        was_stopping
    }

    pub(super) fn handle_job_stopped(&mut self, id: JobId) -> Result<(), Rejected> {
        if self.remove_stopped(id) { Ok(()) } else { Err(Rejected::JobNotStopping(id)) }
    }

    pub(super) fn handle_job_failed(&mut self, id: JobId) -> Result<(), Rejected> {
        if self.remove_stopped(id) {
            return Ok(());
        }
        let job = self.take_job(id)?;
        match job.task {
            Task::Pre(owner) => self.retry_or_fail_pre(owner),
            Task::Refill(pool) => self.stock.pause(pool),
            Task::On(owner, material) => {
                if let Some(material) = material {
                    self.burn(material);
                }
                self.remove_input(owner, Outcome::Failed);
            }
        }
        Ok(())
    }

    /// The job's input returns to its queue with its former age.
    pub(super) fn handle_job_not_started(&mut self, id: JobId) -> Result<(), Rejected> {
        if self.remove_stopped(id) {
            return Ok(());
        }
        let job = self.take_job(id)?;
        let (owner, stage) = match job.task {
            Task::Pre(owner) => (owner, Stage::WaitPre),
            Task::On(owner, material) => (owner, Stage::WaitOn(material)),
            Task::Refill(pool) => {
                self.stock.pause(pool);
                return Ok(());
            }
        };
        self.work.edit(owner, |input| {
            let stamp = if job.task.phase() == JobPhase::Pre { &mut input.pre } else { &mut input.on };
            *stamp = Default::default();
            input.stage = stage;
        });
        let id = self.work.input(owner).group;
        if self.catalog.is_removed(job.model) {
            self.end_without_model(owner, job.task.material());
        } else {
            self.enqueue(owner);
            self.unpark(id);
        }
        Ok(())
    }

    /// Ends an input whose model is removed, and burns its material.
    fn end_without_model(&mut self, owner: InputKey, material: Option<MaterialId>) {
        let id = self.work.input(owner).group;
        if let Some(material) = material {
            self.burn(material);
        }
        self.remove_input(owner, Outcome::Cancelled(Cause::ModelGone));
        self.report_notice_end(id, NoticeProblem::ModelGone);
    }

    /// An input of a request fails in the end; one of a notice is dropped.
    fn retry_or_fail_pre(&mut self, owner: InputKey) {
        self.work.edit(owner, |input| {
            input.stage = Stage::WaitPre;
            input.failures += 1;
            input.pre = Default::default();
        });
        let input = self.work.input(owner);
        let (group, tried_enough) = (input.group, input.failures >= self.limits.pre_attempts);
        let (outcome, problem) = if tried_enough {
            (Outcome::Failed, NoticeProblem::Failed)
        } else if self.catalog.is_removed(self.work.group_of(owner).model) {
            (Outcome::Cancelled(Cause::ModelGone), NoticeProblem::ModelGone)
        } else {
            self.enqueue(owner);
            self.unpark(group);
            return;
        };
        let kept = self.work.group_of(owner).kept;
        self.remove_input(owner, outcome);
        self.report_notice_end(group, if kept { NoticeProblem::Kept } else { problem });
    }

    /// Ends an input of a notice that needs nothing more: its material is kept, or none was needed.
    pub(super) fn leave_notice(&mut self, key: InputKey) {
        let id = self.work.input(key).group;
        self.remove_input(key, Outcome::Done);
        self.report_notice_end(id, NoticeProblem::Kept);
    }

    pub(super) fn report_notice_end(&mut self, id: Owner, why: NoticeProblem) {
        if let Owner::Notice(notice) = id
            && self.work.group(id).is_none()
        {
            self.notices.remember(notice, why);
            self.out.push(Action::NoticeEnded { notice, why });
        }
    }

    /// The job holds its resources until it has stopped. The material of a T_on is burnt.
    pub(super) fn stop_job(&mut self, id: JobId) {
        let job = self.machine.stop(id).expect("inputs and pools name only jobs that run");
        self.detach(id, &job);
        self.out.push(Action::Stop { job: id });
        if let Some(material) = job.task.material() {
            self.burn(material);
        }
    }

    /// The input of a running T_pre no longer needs it: another input or the pool takes the job
    /// over, or it stops.
    pub(super) fn orphan(&mut self, id: JobId, owner: InputKey) {
        match self.pool_of(owner) {
            Some(pool) if self.hand_over(id, owner, pool) => {}
            _ => self.stop_job(id),
        }
    }

    /// Gives a running T_pre to the oldest input that waits for one, else to a pool below its
    /// target.
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
