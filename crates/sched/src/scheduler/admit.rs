//! Arrivals: requests, notices, and material found at start-up.

use super::state::{Group, GroupId, Lifecycle, Stage};
use super::{LOAD_WINDOW, NOTICES_REMEMBERED, Scheduler};
use crate::config::Binding;
use crate::ids::{ClientId, DeadlineClass, MaterialId, ModelId, NoticeId, Phase};
use crate::message::{Action, AdvanceNotice, NoticeProblem, Rejected, Request, Source};
use crate::policy::Policy;
use crate::pool::PoolKey;
use crate::profile::batch_bucket;
use crate::queue::InputKey;
use crate::time::Span;
use std::collections::BTreeSet;

impl<P: Policy> Scheduler<P> {
    /// Checks that requests and notices share.
    fn check_arrival(&self, model: ModelId, inputs: u32) -> Result<(), Rejected> {
        if self.lifecycle != Lifecycle::Open {
            return Err(Rejected::ShuttingDown);
        }
        if model.0 as usize >= self.models.len() {
            return Err(Rejected::UnknownModel(model));
        }
        if inputs == 0 || inputs > self.config.max_inputs {
            return Err(Rejected::BadBatch { inputs, limit: self.config.max_inputs });
        }
        self.check_fits(model, batch_bucket(inputs))
    }

    fn check_quota(&self, client: ClientId, asked: u32) -> Result<(), Rejected> {
        let queued = self.clients.get(&client).map_or(0, |c| c.unfinished);
        let limit = self.config.max_queued;
        if queued.saturating_add(asked) > limit {
            return Err(Rejected::TooManyQueued { queued, asked, limit });
        }
        Ok(())
    }

    pub(super) fn request(&mut self, request: Request) -> Result<(), Rejected> {
        self.check_arrival(request.model, request.inputs)?;
        let id = GroupId::Request(request.id);
        if self.groups.contains_key(&id) {
            return Err(Rejected::DuplicateRequest(request.id));
        }
        let claim = request.notice.map(|notice| (notice, self.claimable(notice, &request)));
        let announced = match claim {
            Some((notice, Ok(()))) => self.groups[&GroupId::Notice(notice)].live.len() as u32,
            _ => 0,
        };
        self.check_quota(request.client, request.inputs.saturating_sub(announced))?;
        let ends = request.timeout.map(|timeout| self.now + timeout);
        self.open_group(id, request.client, request.model, request.inputs, request.deadline, ends);
        self.observe_arrival(request.model, request.client, request.inputs);
        let claimed = match claim {
            Some((notice, Ok(()))) => self.claim(notice, id, request.inputs),
            Some((notice, Err(why))) => {
                self.out.push_back(Action::NoticeIgnored { request: request.id, notice, why });
                0
            }
            None => 0,
        };
        let work = self.length(request.model, Phase::Pre) + self.length(request.model, Phase::On);
        for index in claimed..request.inputs {
            let key = self.new_input(id, index, work, Source::Own);
            self.count_client(request.client, work);
            if !self.serve_from_pool(key) {
                self.enqueue(key);
            }
        }
        Ok(())
    }

    pub(super) fn notice(&mut self, notice: AdvanceNotice) -> Result<(), Rejected> {
        self.check_arrival(notice.model, notice.inputs)?;
        let id = GroupId::Notice(notice.id);
        if self.groups.contains_key(&id) {
            return Err(Rejected::DuplicateNotice(notice.id));
        }
        self.check_quota(notice.client, notice.inputs)?;
        self.ended.remove(&notice.id);
        let ends = Some(self.now + self.config.notice_ttl);
        self.open_group(id, notice.client, notice.model, notice.inputs, DeadlineClass::Normal, ends);
        let work = self.length(notice.model, Phase::Pre) + self.length(notice.model, Phase::On);
        for index in 0..notice.inputs {
            let key = self.new_input(id, index, work, Source::Notice);
            self.count_client(notice.client, work);
            self.enqueue(key);
        }
        Ok(())
    }

    fn open_group(
        &mut self,
        id: GroupId,
        client: ClientId,
        model: ModelId,
        inputs: u32,
        deadline: DeadlineClass,
        ends: Option<crate::time::Time>,
    ) {
        let group = Group {
            client,
            model,
            batch: batch_bucket(inputs),
            deadline,
            arrived: self.now,
            live: BTreeSet::new(),
            parked: BTreeSet::new(),
            active: 0,
            threads: 0,
            ends,
        };
        self.groups.insert(id, group);
        self.clients.entry(client).or_default().groups.insert(id);
        if let Some(time) = ends {
            self.timers.insert((time, id));
        }
    }

    fn count_client(&mut self, client: ClientId, work: Span) {
        if let Some(record) = self.clients.get_mut(&client) {
            record.unfinished += 1;
            record.backlog += work;
        }
    }

    fn observe_arrival(&mut self, model: ModelId, client: ClientId, inputs: u32) {
        let pre = self.length(model, Phase::Pre);
        let work = (pre + self.length(model, Phase::On)).secs() * f64::from(inputs);
        self.load.add(self.now, work, LOAD_WINDOW);
        self.arrivals.add(self.now, f64::from(inputs), LOAD_WINDOW);
        let now = self.now;
        if let Some(key) = self.pool_key(model, client)
            && let Some(pools) = &mut self.pools
        {
            pools.arrival(key, now, inputs, pre);
        }
    }

    /// Whether this notice helps this request.
    fn claimable(&self, notice: NoticeId, request: &Request) -> Result<(), NoticeProblem> {
        match self.groups.get(&GroupId::Notice(notice)) {
            None => Err(self.ended.get(&notice).copied().unwrap_or(NoticeProblem::Unknown)),
            Some(group) if group.client != request.client => Err(NoticeProblem::OtherClient),
            Some(group) if group.model != request.model => Err(NoticeProblem::OtherModel),
            Some(_) => Ok(()),
        }
    }

    /// Moves a notice's inputs to the request, the furthest advanced first; releases the surplus. Returns how many moved.
    fn claim(&mut self, notice: NoticeId, request: GroupId, wanted: u32) -> u32 {
        let from = GroupId::Notice(notice);
        let mut announced: Vec<InputKey> = self.groups[&from].live.iter().copied().collect();
        announced.sort_by_key(|key| match self.inputs[key].stage {
            Stage::Held(_) => 0,
            Stage::RunPre(_) => 1,
            _ => 2,
        });
        let surplus = announced.split_off(announced.len().min(wanted as usize));
        for (index, &key) in announced.iter().enumerate() {
            self.move_to_request(key, from, request, index as u32);
        }
        let surplus_count = surplus.len();
        for key in surplus {
            self.finish_input(key, crate::message::Outcome::Cancelled(crate::message::Cause::Client));
        }
        self.close_group(from, None);
        self.remember_notice(notice, NoticeProblem::Used);
        if surplus_count > 0 {
            self.out.push_back(Action::NoticeEnded { notice, why: NoticeProblem::Surplus });
        }
        announced.len() as u32
    }

    fn move_to_request(&mut self, key: InputKey, from: GroupId, request: GroupId, index: u32) {
        let stage = self.inputs[&key].stage;
        if stage == Stage::WaitPre {
            self.dequeue(key);
        }
        let threads = match stage {
            Stage::RunPre(job) => self.jobs[&job].holds.cores,
            _ => 0,
        };
        let running = u32::from(matches!(stage, Stage::RunPre(_)));
        self.edit_group(from, |notice| {
            notice.live.remove(&key);
            notice.active -= running;
            notice.threads -= threads;
        });
        self.edit_group(request, |group| {
            group.live.insert(key);
            group.active += running;
            group.threads += threads;
        });
        self.edit(key, |input| {
            input.group = request;
            input.index = index;
        });
        match stage {
            Stage::Held(material) => self.has_material(key, material),
            Stage::RunPre(job) => self.swap_for_stock(key, job),
            Stage::WaitPre if self.serve_from_pool(key) => {}
            Stage::WaitPre => self.enqueue(key),
            _ => {}
        }
    }

    /// Keeps the end of a notice for requests that name it later.
    pub(super) fn remember_notice(&mut self, notice: NoticeId, why: NoticeProblem) {
        if self.ended.insert(notice, why).is_none() {
            self.ended_order.push_back(notice);
        }
        while self.ended_order.len() > NOTICES_REMEMBERED {
            if let Some(oldest) = self.ended_order.pop_front() {
                self.ended.remove(&oldest);
            }
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
        let Some(spec) = self.models.get(model.0 as usize) else {
            return Err(Rejected::UnknownModel(model));
        };
        let bound = spec.binding == Binding::Client;
        // An id that this run may have given out itself cannot come from an earlier one.
        if bound != client.is_some() || material.0 >= self.config.first_material.0 || !self.found.insert(material) {
            return Err(Rejected::BadMaterial(material));
        }
        let room = self.free().disk >= self.disk(model);
        if self.pools.is_none() || !room {
            self.out.push_back(Action::Burn { material });
            return Ok(());
        }
        self.materials.insert(material, model);
        self.used.disk += self.disk(model);
        self.shelve(PoolKey { model, client }, material);
        Ok(())
    }
}
