//! Lanes: a client's connections that can run jobs. A group without a lane has no place in the
//! queues, so no other job waits for it.

use super::Scheduler;
use super::state::Stage;
use crate::config::BoundTo;
use crate::ids::Owner;
use crate::message::{Cause, NoticeProblem, Outcome, Rejected};
use crate::policy::Policy;

impl<P: Policy> Scheduler<P> {
    pub(super) fn check_live(&self, owner: Owner) -> Result<(), Rejected> {
        match owner {
            _ if self.work.group(owner).is_some() => Ok(()),
            Owner::Request(request) => Err(Rejected::UnknownRequest(request)),
            Owner::Notice(notice) => Err(Rejected::UnknownNotice(notice)),
        }
    }

    pub(super) fn set_lanes(&mut self, owner: Owner, lanes: u32) -> Result<(), Rejected> {
        self.check_live(owner)?;
        self.work.set_lanes(owner, lanes);
        self.keep_to_lanes(owner);
        self.unpark(owner);
        Ok(())
    }

    pub(super) fn keep_to_lanes(&mut self, id: Owner) {
        for key in self.work.beyond_lanes(id) {
            self.park(key);
        }
    }

    /// The client of a notice disconnected: jobs that need the client stop and wait for its return.
    pub(super) fn suspend(&mut self, notice: Owner) {
        let Some(group) = self.work.group(notice) else { return };
        let model = group.model;
        if self.catalog.is_removed(model) {
            // No job of this notice starts again.
            return self.end_group(notice, Outcome::Cancelled(Cause::ModelGone), NoticeProblem::ModelGone);
        }
        self.work.set_lanes(notice, 0);
        self.keep_to_lanes(notice);
        if self.catalog.binding(model) == BoundTo::Unbound {
            return;
        }
        for key in self.work.live_inputs(notice) {
            if let Stage::RunPre(job) = self.work.input(key).stage {
                self.stop_job(job);
                self.work.edit(key, |input| {
                    input.stage = Stage::WaitPre;
                    input.pre = Default::default();
                });
                self.enqueue(key);
            }
        }
    }
}
