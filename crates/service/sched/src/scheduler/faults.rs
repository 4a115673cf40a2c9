//! Ends outside the normal course: timeouts, expiry, cancels, departures, a changed machine,
//! shutdown.

use super::Scheduler;
use super::state::Lifecycle;
use crate::ids::{ClientId, JobId, NoticeId, Owner, RequestId};
use crate::message::{Action, Cause, NoticeProblem, Outcome, Rejected, Shutdown};
use crate::policy::Policy;
use crate::pool::PoolKey;
use crate::queue::InputKey;
use crate::resources::Resources;

impl<P: Policy> Scheduler<P> {
    /// Ends a request or notice. Its inputs that have not ended get `outcome`; a notice ends for
    /// `problem`.
    pub(super) fn end_group(&mut self, id: Owner, outcome: Outcome, problem: NoticeProblem) {
        let Some(keys) = self.work.clear_out(id) else { return };
        for key in keys {
            self.finish_input(key, outcome);
        }
        if let Owner::Notice(notice) = id {
            self.notices.remember(notice, problem);
            self.out.push(Action::NoticeEnded { notice, why: problem });
        }
    }

    pub(super) fn expire_group(&mut self, id: Owner) {
        self.end_group(id, Outcome::TimedOut, NoticeProblem::Expired);
    }

    pub(super) fn cancel(&mut self, request: RequestId) -> Result<(), Rejected> {
        let id = Owner::Request(request);
        self.check_live(id)?;
        self.end_group(id, Outcome::Cancelled(Cause::Client), NoticeProblem::ClientGone);
        Ok(())
    }

    /// Checks that the client has a request, a notice, a pool or kept material.
    fn check_client(&self, client: ClientId) -> Result<(), Rejected> {
        let is_known = !self.work.groups_of_client(client).is_empty()
            || !self.stock.pools_of(client).is_empty()
            || self.stock.keepers().any(|(keeper, _)| keeper == client);
        if is_known { Ok(()) } else { Err(Rejected::UnknownClient(client)) }
    }

    /// Ends a notice that its client has withdrawn.
    pub(super) fn withdraw(&mut self, notice: NoticeId) -> Result<(), Rejected> {
        let id = Owner::Notice(notice);
        self.check_live(id)?;
        self.end_group(id, Outcome::Cancelled(Cause::Client), NoticeProblem::Withdrawn);
        Ok(())
    }

    /// Ends the client's requests; its notices and stock wait for its return.
    pub(super) fn handle_client_gone(&mut self, client: ClientId) -> Result<(), Rejected> {
        self.check_client(client)?;
        for id in self.work.groups_of_client(client) {
            match id {
                Owner::Request(_) => {
                    self.end_group(id, Outcome::Cancelled(Cause::ClientGone), NoticeProblem::ClientGone);
                }
                Owner::Notice(_) => self.suspend(id),
            }
        }
        // Refills for this client need its connection: running ones stop, and none starts before
        // its next request.
        for pool in self.stock.pools_of(client) {
            self.stop_refills(pool);
            self.stock.pause(pool);
        }
        Ok(())
    }

    /// Ends the client's requests and notices, and burns its stock.
    pub(super) fn handle_client_revoked(&mut self, client: ClientId) -> Result<(), Rejected> {
        self.check_client(client)?;
        for id in self.work.groups_of_client(client) {
            self.end_group(id, Outcome::Cancelled(Cause::ClientGone), NoticeProblem::ClientGone);
        }
        for pool in self.stock.pools_of(client) {
            self.drop_pool(pool);
        }
        self.burn_kept(|keeper, _| keeper == client);
        Ok(())
    }

    fn drop_pool(&mut self, pool: PoolKey) {
        self.stop_refills(pool);
        for material in self.stock.remove_pool(pool) {
            self.burn(material);
        }
    }

    fn stop_refills(&mut self, pool: PoolKey) {
        let refills: Vec<JobId> = self.stock.refills(pool).collect();
        for job in refills {
            self.stop_job(job);
        }
    }

    /// Changes the machine's resources, and queues the parked inputs that now have room.
    pub(super) fn set_capacity(&mut self, capacity: Resources) -> Result<(), Rejected> {
        self.machine.set_capacity(capacity);
        self.refresh_all();
        for id in self.work.group_ids() {
            self.unpark(id);
        }
        Ok(())
    }

    /// Ends the request or notice of a queued job that no capacity fits.
    pub(super) fn reject_unfit(&mut self, key: InputKey, reason: Rejected) {
        let id = self.work.input(key).group;
        let outcome = Outcome::Cancelled(Cause::CannotFit);
        if let Owner::Request(request) = id {
            self.out.push(Action::Reject { request, reason });
        }
        self.end_group(id, outcome, NoticeProblem::Failed);
    }

    /// Ends notices and refills, and with [`Shutdown::Now`] also requests.
    pub(super) fn shutdown(&mut self, how: Shutdown) -> Result<(), Rejected> {
        if self.lifecycle != Lifecycle::Open && how == Shutdown::Drain {
            return Err(Rejected::ShuttingDown);
        }
        self.lifecycle = Lifecycle::Draining;
        // Stock stays on disk, for waiting inputs and for the next start; refills stop.
        for pool in self.stock.pools() {
            self.stop_refills(pool);
        }
        for id in self.work.group_ids() {
            if how == Shutdown::Now || matches!(id, Owner::Notice(_)) {
                self.end_group(id, Outcome::Cancelled(Cause::Shutdown), NoticeProblem::Shutdown);
            }
        }
        Ok(())
    }
}
