//! Arrivals: requests, notices, and material found at start-up.

use super::Scheduler;
use super::state::{Group, GroupId, Lifecycle, Stage};
use crate::config::BoundTo;
use crate::ids::{ClientId, DeadlineClass, JobPhase, MaterialId, ModelId, NoticeId};
use crate::message::{Action, AdvanceNotice, Cause, NoticeProblem, Outcome, Rejected, Request, Source};
use crate::policy::Policy;
use crate::pool::PoolKey;
use crate::profile::batch_bucket;
use crate::queue::InputKey;
use std::collections::BTreeSet;

impl<P: Policy> Scheduler<P> {
    /// Checks that requests and notices share.
    fn check_arrival(&self, model: ModelId, inputs: u32) -> Result<(), Rejected> {
        if self.lifecycle != Lifecycle::Open {
            return Err(Rejected::ShuttingDown);
        }
        if self.catalog.find(model).is_none() {
            return Err(Rejected::UnknownModel(model));
        }
        if inputs == 0 || inputs > self.limits.max_inputs {
            return Err(Rejected::BadBatch { inputs, limit: self.limits.max_inputs });
        }
        self.check_fits(model, batch_bucket(inputs))
    }

    fn check_quota(&self, client: ClientId, asked: u32) -> Result<(), Rejected> {
        let queued = self.work.unfinished(client);
        let limit = self.limits.max_queued;
        if queued.saturating_add(asked) > limit {
            return Err(Rejected::TooManyQueued { queued, asked, limit });
        }
        Ok(())
    }

    pub(super) fn request(&mut self, request: Request) -> Result<(), Rejected> {
        self.check_arrival(request.model, request.inputs)?;
        let id = GroupId::Request(request.id);
        if self.work.group(id).is_some() {
            return Err(Rejected::DuplicateRequest(request.id));
        }
        let claim = request.notice.map(|notice| (notice, self.claimable(notice, &request)));
        let announced = match claim {
            Some((_, Ok(announced))) => announced,
            _ => 0,
        };
        self.check_quota(request.client, request.inputs.saturating_sub(announced))?;
        let now = self.clock.now();
        let group = Group {
            deadline: request.deadline,
            ends: request.timeout.map(|timeout| now + timeout),
            ..self.new_group(request.client, request.model, request.inputs)
        };
        self.open_group(id, group);
        let work = self.catalog.work(request.model);
        self.load.observe(now, request.inputs, work);
        if let Some(pool) = self.pool_for(request.model, request.client) {
            let t_pre = self.catalog.length(request.model, JobPhase::Pre);
            self.stock.arrival(pool, now, request.inputs, t_pre);
        }
        let claimed = match claim {
            Some((notice, Ok(_))) => self.claim(notice, id, request.inputs),
            Some((notice, Err(why))) => {
                self.out.push(Action::NoticeIgnored { request: request.id, notice, why });
                0
            }
            None => 0,
        };
        for index in claimed..request.inputs {
            let key = self.work.add_input(id, index, work, Source::Own, now);
            if !self.serve_from_pool(key) {
                self.enqueue(key);
            }
        }
        Ok(())
    }

    pub(super) fn notice(&mut self, notice: AdvanceNotice) -> Result<(), Rejected> {
        self.check_arrival(notice.model, notice.inputs)?;
        let id = GroupId::Notice(notice.id);
        if self.work.group(id).is_some() {
            return Err(Rejected::DuplicateNotice(notice.id));
        }
        self.check_quota(notice.client, notice.inputs)?;
        self.notices.forget(notice.id);
        let now = self.clock.now();
        let group = Group {
            ends: Some(now + self.limits.notice_ttl),
            ..self.new_group(notice.client, notice.model, notice.inputs)
        };
        self.open_group(id, group);
        let work = self.catalog.work(notice.model);
        for index in 0..notice.inputs {
            let key = self.work.add_input(id, index, work, Source::Notice, now);
            self.enqueue(key);
        }
        Ok(())
    }

    /// A group that arrives now, without inputs, without an end of its own.
    fn new_group(&self, client: ClientId, model: ModelId, inputs: u32) -> Group {
        Group {
            client,
            model,
            batch: batch_bucket(inputs),
            deadline: DeadlineClass::Normal,
            arrived: self.clock.now(),
            live: BTreeSet::new(),
            parked: BTreeSet::new(),
            active: 0,
            threads: 0,
            ends: None,
        }
    }

    fn open_group(&mut self, id: GroupId, group: Group) {
        if let Some(time) = group.ends {
            self.clock.set_timer(time, id);
        }
        self.work.open_group(id, group);
    }

    /// How many inputs this notice has ready for this request, or why it does not help.
    fn claimable(&self, notice: NoticeId, request: &Request) -> Result<u32, NoticeProblem> {
        match self.work.group(GroupId::Notice(notice)) {
            None => Err(self.notices.problem(notice)),
            Some(group) if group.client != request.client => Err(NoticeProblem::OtherClient),
            Some(group) if group.model != request.model => Err(NoticeProblem::OtherModel),
            Some(group) => Ok(group.live.len() as u32),
        }
    }

    /// Moves a notice's inputs to the request, the furthest advanced first; releases the surplus. Returns how
    /// many moved.
    fn claim(&mut self, notice: NoticeId, request: GroupId, wanted: u32) -> u32 {
        let from = GroupId::Notice(notice);
        let mut announced = self.work.live_inputs(from);
        announced.sort_by_key(|&key| match self.work.input(key).stage {
            Stage::Held(_) => 0,
            Stage::RunPre(_) => 1,
            _ => 2,
        });
        let surplus = announced.split_off(announced.len().min(wanted as usize));
        for (index, &key) in announced.iter().enumerate() {
            self.move_to_request(key, request, index as u32);
        }
        let surplus_count = surplus.len();
        for key in surplus {
            self.finish_input(key, Outcome::Cancelled(Cause::Client));
        }
        self.close_group(from);
        self.notices.remember(notice, NoticeProblem::Used);
        if surplus_count > 0 {
            self.out.push(Action::NoticeEnded { notice, why: NoticeProblem::Surplus });
        }
        announced.len() as u32
    }

    fn move_to_request(&mut self, key: InputKey, request: GroupId, index: u32) {
        let stage = self.work.input(key).stage;
        if stage == Stage::WaitPre {
            self.dequeue(key);
        }
        let running = match stage {
            Stage::RunPre(job) => self.machine.job(job).map(|job| job.holds.cores),
            _ => None,
        };
        self.work.move_to(key, request, index, running);
        match stage {
            Stage::Held(material) => self.has_material(key, material),
            Stage::RunPre(job) => self.swap_for_stock(key, job),
            Stage::WaitPre if self.serve_from_pool(key) => {}
            Stage::WaitPre => self.enqueue(key),
            _ => {}
        }
    }

    pub(super) fn material_found(
        &mut self,
        material: MaterialId,
        model: ModelId,
        client: Option<ClientId>,
    ) -> Result<(), Rejected> {
        if self.lifecycle != Lifecycle::Open {
            return Err(Rejected::ShuttingDown);
        }
        if self.catalog.find(model).is_none() {
            return Err(Rejected::UnknownModel(model));
        }
        let bound = self.catalog.binding(model) == BoundTo::Client;
        if bound != client.is_some() || !self.stock.note_found(material) {
            return Err(Rejected::BadMaterial(material));
        }
        let disk = self.catalog.disk(model);
        if !self.stock.has_pools() || self.machine.free().disk < disk {
            self.out.push(Action::Burn { material });
            return Ok(());
        }
        self.stock.add_found(material, model);
        self.machine.hold_disk(disk);
        self.shelve(PoolKey { model, client }, material);
        Ok(())
    }
}
