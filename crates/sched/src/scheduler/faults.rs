//! Ends that nobody planned: timeouts, expiry, cancels, departures, a changed machine, shutdown.

use super::Scheduler;
use super::state::{GroupId, Lifecycle, Stage};
use crate::ids::{ClientId, JobId, RequestId};
use crate::message::{Action, Cause, NoticeProblem, Outcome, Rejected, Shutdown};
use crate::policy::Policy;
use crate::pool::PoolKey;
use crate::queue::InputKey;
use crate::resources::Resources;

impl<P: Policy> Scheduler<P> {
    /// Ends every input of a group.
    fn end_group(&mut self, id: GroupId, outcome: Outcome, problem: NoticeProblem) {
        // Parked inputs first, so that none is queued only to be taken out again.
        let keys: Vec<InputKey> = match self.groups.get_mut(&id) {
            Some(group) => {
                group.parked.clear();
                group.live.iter().rev().copied().collect()
            }
            None => return,
        };
        for key in keys {
            self.finish_input(key, outcome);
        }
        if let GroupId::Notice(notice) = id {
            self.remember_notice(notice, problem);
            self.out.push_back(Action::NoticeEnded { notice, why: problem });
        }
    }

    /// A timer fired: a request's timeout or a notice's expiry.
    pub(super) fn group_ends(&mut self, id: GroupId) {
        self.end_group(id, Outcome::TimedOut, NoticeProblem::Expired);
    }

    pub(super) fn cancel(&mut self, request: RequestId) -> Result<(), Rejected> {
        let id = GroupId::Request(request);
        if !self.groups.contains_key(&id) {
            return Err(Rejected::UnknownRequest(request));
        }
        self.end_group(id, Outcome::Cancelled(Cause::Client), NoticeProblem::ClientGone);
        Ok(())
    }

    pub(super) fn client_gone(&mut self, client: ClientId) -> Result<(), Rejected> {
        let groups: Vec<GroupId> = match self.clients.get(&client) {
            Some(record) => record.groups.iter().copied().collect(),
            None => Vec::new(),
        };
        let pools = self.pools.as_ref().map_or_else(Vec::new, |pools| pools.of_client(client));
        if groups.is_empty() && pools.is_empty() {
            return Err(Rejected::UnknownClient(client));
        }
        for id in groups {
            self.end_group(id, Outcome::Cancelled(Cause::ClientGone), NoticeProblem::ClientGone);
        }
        // What was bound to this client, and what its ended inputs returned, is of no use to others.
        for key in self.pools.as_ref().map_or_else(Vec::new, |pools| pools.of_client(client)) {
            self.drop_pool(key);
        }
        Ok(())
    }

    /// Forgets a pool: stops its refills and burns its stock.
    fn drop_pool(&mut self, key: PoolKey) {
        self.stop_refills(key);
        let Some(pools) = &mut self.pools else { return };
        for material in pools.remove(key) {
            self.burn(material);
        }
    }

    fn stop_refills(&mut self, key: PoolKey) {
        let Some(pool) = self.pools.as_ref().and_then(|pools| pools.get(&key)) else { return };
        let refills: Vec<JobId> = pool.refills.iter().copied().collect();
        for job in refills {
            self.stop_job(job);
        }
    }

    pub(super) fn set_capacity(&mut self, capacity: Resources) -> Result<(), Rejected> {
        self.capacity = capacity;
        // The room that was promised was computed for another machine.
        self.reservation = None;
        for job in self.jobs.values_mut() {
            job.overtook = false;
        }
        self.refresh_all();
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for id in groups {
            self.unpark(id);
        }
        Ok(())
    }

    /// A queued job can never run: its whole request (or notice) ends, except that running inputs go on if they can.
    pub(super) fn reject_unfit(&mut self, key: InputKey, reason: Rejected) {
        let id = self.inputs[&key].group;
        let outcome = Outcome::Cancelled(Cause::CannotFit);
        if let GroupId::Request(request) = id {
            self.out.push_back(Action::Reject { request, reason });
        }
        self.end_group(id, outcome, NoticeProblem::Failed);
    }

    pub(super) fn shutdown(&mut self, how: Shutdown) -> Result<(), Rejected> {
        if self.lifecycle != Lifecycle::Open && how == Shutdown::Drain {
            return Err(Rejected::ShuttingDown);
        }
        self.lifecycle = Lifecycle::Draining;
        // Stock stays on disk, for inputs that still wait and for the next start; nothing is made for it any more.
        for key in self.pools.as_ref().map_or_else(Vec::new, |pools| pools.keys()) {
            self.stop_refills(key);
        }
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for id in groups {
            if how == Shutdown::Now || matches!(id, GroupId::Notice(_)) {
                self.end_group(id, Outcome::Cancelled(Cause::Shutdown), NoticeProblem::Shutdown);
            }
        }
        if how == Shutdown::Now {
            debug_assert!(self.jobs.is_empty() && self.inputs.is_empty());
            self.lifecycle = Lifecycle::Stopped;
            self.out.push_back(Action::Stopped);
        }
        Ok(())
    }

    /// Whether an input is in a queue and not started.
    pub(super) fn waits(&self, key: InputKey) -> bool {
        self.inputs.get(&key).is_some_and(|i| matches!(i.stage, Stage::WaitPre | Stage::WaitOn(_)))
    }
}
