//! Jobs that end.

use super::Scheduler;
use super::state::{GroupId, Job, Lifecycle, Stage};
use crate::ids::{JobId, Phase};
use crate::message::{Action, NoticeProblem, Outcome, Rejected, Usage};
use crate::policy::Policy;
use crate::profile::Sample;
use crate::queue::InputKey;

impl<P: Policy> Scheduler<P> {
    /// Takes a job off the machine and gives back its cores and memory. Its material stays.
    fn take_job(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        self.used.sub(&job.holds);
        if job.overtook
            && let Some(reservation) = &mut self.reservation
        {
            reservation.overtakers.sub(&job.holds);
        }
        if let (Some(key), Some(pools)) = (job.refill, &mut self.pools) {
            pools.refill_cores -= job.holds.cores;
            pools.refill_memory -= job.holds.memory;
            pools.change(key, |pool| pool.refills.remove(&id));
        }
        if let Some(owner) = job.owner
            && let Some(input) = self.inputs.get(&owner)
        {
            let group = input.group;
            self.edit_group(group, |group| {
                group.active -= 1;
                group.threads -= job.holds.cores;
            });
        }
        self.dirty = true;
        Some(job)
    }

    pub(super) fn job_finished(&mut self, id: JobId, usage: Usage) -> Result<(), Rejected> {
        let job = self.take_job(id).ok_or(Rejected::JobNotRunning(id))?;
        let actual = Sample { time: usage.time, memory: usage.peak_memory };
        if self.profile.learn(job.model, job.phase, job.batch, job.holds.cores, actual, job.estimate) {
            self.refresh_model(job.model);
        }
        match (job.phase, job.owner, job.refill) {
            (Phase::Pre, Some(owner), _) => {
                let now = self.now;
                self.edit(owner, |input| input.pre.finished = Some(now));
                let group = self.inputs[&owner].group;
                self.has_material(owner, job.material);
                self.unpark(group);
            }
            (Phase::Pre, None, Some(pool)) => self.shelve(pool, job.material),
            (Phase::Pre, None, None) => self.burn(job.material),
            (Phase::On, Some(owner), _) => {
                let now = self.now;
                self.consume(job.material);
                self.edit(owner, |input| input.on.finished = Some(now));
                self.remove_input(owner, Outcome::Done);
            }
            (Phase::On, None, _) => self.consume(job.material),
        }
        Ok(())
    }

    pub(super) fn job_failed(&mut self, id: JobId) -> Result<(), Rejected> {
        let job = self.take_job(id).ok_or(Rejected::JobNotRunning(id))?;
        self.burn(job.material);
        match (job.phase, job.owner, job.refill) {
            (Phase::Pre, Some(owner), _) => self.pre_failed(owner),
            (Phase::On, Some(owner), _) => self.remove_input(owner, Outcome::Failed),
            (_, None, Some(pool)) => {
                if let Some(pools) = &mut self.pools {
                    pools.pause(pool);
                }
            }
            (_, None, None) => {}
        }
        Ok(())
    }

    /// Tries again, or gives up: a request's input fails, a notice's is dropped.
    fn pre_failed(&mut self, owner: InputKey) {
        self.edit(owner, |input| {
            input.stage = Stage::WaitPre;
            input.failures += 1;
            input.pre = Default::default();
        });
        let input = &self.inputs[&owner];
        let group = input.group;
        if input.failures < self.config.pre_attempts {
            self.enqueue(owner);
            self.unpark(group);
            return;
        }
        self.remove_input(owner, Outcome::Failed);
        if let GroupId::Notice(notice) = group
            && !self.groups.contains_key(&group)
        {
            self.remember_notice(notice, NoticeProblem::Failed);
            self.out.push_back(Action::NoticeEnded { notice, why: NoticeProblem::Failed });
        }
    }

    /// Stops a running job and has its material burnt.
    pub(super) fn stop_job(&mut self, id: JobId) {
        if let Some(job) = self.take_job(id) {
            self.out.push_back(Action::Stop { job: id });
            self.burn(job.material);
        }
    }

    /// The input that a running T_pre was for needs it no more: another input, the pool, or nobody takes it over.
    pub(super) fn orphan(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let Some(owner) = job.owner else { return };
        let group = &self.groups[&self.inputs[&owner].group];
        let pool = self.pool_key(group.model, group.client);
        match pool {
            Some(pool) if self.hand_over(id, owner, pool) => {}
            _ => self.stop_job(id),
        }
    }

    /// Gives a running T_pre to the oldest input that waits for one, else to the pool if it wants it.
    fn hand_over(&mut self, id: JobId, owner: InputKey, pool: crate::pool::PoolKey) -> bool {
        let heir = self.needy.get(&pool).and_then(|set| set.first().copied());
        let wants = self.pools.as_ref().is_some_and(|p| p.wants(&pool));
        if heir.is_none() && !(wants && self.lifecycle == Lifecycle::Open) {
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
