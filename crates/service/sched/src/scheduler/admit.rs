//! Arrivals: requests, notices, and material found at start-up.

use super::Scheduler;
use super::state::{Group, Lifecycle, Places, Stage};
use crate::config::BoundTo;
use crate::ids::{ClientId, DeadlineClass, JobPhase, MaterialId, ModelId, NoticeId, Owner};
use crate::message::{Action, AdvanceNotice, Cause, NoticeProblem, Outcome, Rejected, Request, Source};
use crate::policy::Policy;
use crate::pool::PoolKey;
use crate::profile::batch_bucket;
use crate::queue::InputKey;
use crate::time::Span;
use std::collections::BTreeSet;
use std::ops::Range;

impl<P: Policy> Scheduler<P> {
    /// Checks that requests and notices share.
    fn check_arrival(&self, model: ModelId, inputs: u32) -> Result<(), Rejected> {
        self.check_model(model)?;
        if inputs == 0 || inputs > self.limits.max_inputs {
            return Err(Rejected::BadBatch { inputs, limit: self.limits.max_inputs });
        }
        self.check_fits(model, batch_bucket(inputs))
    }

    pub(super) fn check_open(&self) -> Result<(), Rejected> {
        if self.lifecycle == Lifecycle::Open { Ok(()) } else { Err(Rejected::ShuttingDown) }
    }

    pub(super) fn check_model(&self, model: ModelId) -> Result<(), Rejected> {
        self.check_open()?;
        if !self.catalog.serves(model) {
            return Err(Rejected::UnknownModel(model));
        }
        Ok(())
    }

    /// Refuses named material that is not kept for this client and model, is named twice, or
    /// exceeds the inputs.
    fn check_materials(&self, request: &Request) -> Result<(), Rejected> {
        let mut seen = BTreeSet::new();
        for (index, &material) in request.materials.iter().enumerate() {
            let is_kept = self.stock.is_kept(request.client, request.model, material);
            if !is_kept || !seen.insert(material) || index >= request.inputs as usize {
                return Err(Rejected::BadMaterial(material));
            }
        }
        Ok(())
    }

    fn check_quota(&self, client: ClientId, asked: u32) -> Result<(), Rejected> {
        let queued = self.work.unfinished(client);
        let limit = self.limits.max_queued;
        if queued.saturating_add(asked) > limit {
            return Err(Rejected::TooManyQueued { queued, asked, limit });
        }
        Ok(())
    }

    /// Gives the inputs of a request kept, announced or pooled material, and queues the others.
    pub(super) fn handle_request(&mut self, request: Request) -> Result<(), Rejected> {
        self.check_arrival(request.model, request.inputs)?;
        let id = Owner::Request(request.id);
        if self.work.group(id).is_some() {
            return Err(Rejected::DuplicateRequest(request.id));
        }
        self.check_materials(&request)?;
        let claim = request.notice.map(|notice| (notice, self.count_claimable(notice, &request)));
        let announced = match claim {
            Some((_, Ok(announced))) => announced,
            _ => 0,
        };
        self.check_quota(request.client, request.inputs.saturating_sub(announced))?;
        let now = self.clock.now();
        let group = Group {
            deadline: request.deadline,
            ends: request.timeout.map(|timeout| now + timeout),
            lanes: request.lanes,
            ..self.new_group(request.client, request.model, request.inputs)
        };
        self.open_group(id, group);
        let work = self.catalog.work(request.model);
        self.load.observe(now, request.inputs, work);
        if let Some(pool) = self.pool_for(request.model, request.client) {
            let t_pre = self.catalog.length(request.model, JobPhase::Pre);
            self.stock.arrival(pool, now, request.inputs - request.materials.len() as u32, t_pre);
        }
        let mut served = self.hand_out(&request, id);
        match claim {
            Some((notice, Ok(_))) => served = self.claim(notice, id, served..request.inputs),
            Some((notice, Err(why))) => {
                self.out.push(Action::NoticeIgnored { request: request.id, notice, why });
            }
            None => {}
        }
        for index in served..request.inputs {
            let key = self.work.add_input(id, index, work, Source::Own, now);
            if !self.catalog.has_pre(request.model) {
                self.has_material(key, None);
            } else if !self.serve_from_pool(key) {
                self.enqueue(key);
            }
        }
        Ok(())
    }

    /// Gives kept material to the first inputs; returns their number.
    fn hand_out(&mut self, request: &Request, id: Owner) -> u32 {
        let length = self.catalog.length(request.model, JobPhase::On);
        let mut served = 0;
        for &material in &request.materials {
            let key = self.work.add_input(id, served, length, Source::Kept, self.clock.now());
            self.stock.pull(material);
            self.has_material(key, Some(material));
            served += 1;
        }
        served
    }

    pub(super) fn handle_notice(&mut self, notice: AdvanceNotice) -> Result<(), Rejected> {
        self.check_arrival(notice.model, notice.inputs)?;
        let id = Owner::Notice(notice.id);
        if self.work.group(id).is_some() {
            return Err(Rejected::DuplicateNotice(notice.id));
        }
        self.check_quota(notice.client, notice.inputs)?;
        self.notices.forget(notice.id);
        let now = self.clock.now();
        let life = notice.expected.unwrap_or(Span::ZERO) + notice.ttl.unwrap_or(self.limits.notice_ttl);
        let group = Group {
            ends: (!notice.keep).then(|| now + life),
            lanes: notice.lanes,
            keeps: notice.keep,
            ..self.new_group(notice.client, notice.model, notice.inputs)
        };
        self.open_group(id, group);
        let work = self.catalog.work(notice.model);
        for index in 0..notice.inputs {
            let key = self.work.add_input(id, index, work, Source::Notice, now);
            if self.catalog.has_pre(notice.model) {
                self.enqueue(key);
            } else {
                self.has_material(key, None);
            }
        }
        if notice.keep && !self.catalog.has_pre(notice.model) {
            for key in self.work.live_inputs(id) {
                self.leave_notice(key);
            }
        }
        Ok(())
    }

    /// A group that arrives now, without inputs and without a timer.
    fn new_group(&self, client: ClientId, model: ModelId, inputs: u32) -> Group {
        Group {
            client,
            model,
            batch: batch_bucket(inputs),
            deadline: DeadlineClass::Normal,
            arrived: self.clock.now(),
            live: BTreeSet::new(),
            parked: BTreeSet::new(),
            places: Places::default(),
            ends: None,
            lanes: None,
            keeps: false,
            kept: false,
        }
    }

    fn open_group(&mut self, id: Owner, group: Group) {
        if let Some(time) = group.ends {
            self.clock.set_timer(time, id);
        }
        self.work.open_group(id, group);
    }

    /// The number of inputs that the request can take from this notice, or why it can take none.
    fn count_claimable(&self, notice: NoticeId, request: &Request) -> Result<u32, NoticeProblem> {
        match self.work.group(Owner::Notice(notice)) {
            None => Err(self.notices.problem(notice)),
            Some(group) if group.client != request.client => Err(NoticeProblem::OtherClient),
            Some(group) if group.model != request.model => Err(NoticeProblem::OtherModel),
            Some(group) if group.keeps => Err(NoticeProblem::Keeps),
            Some(group) => Ok(group.live.len() as u32),
        }
    }

    /// Moves a notice's inputs to the request, the furthest advanced first, to the indices
    /// `indices`; releases the surplus. Returns the first index that is still free.
    fn claim(&mut self, notice: NoticeId, request: Owner, indices: Range<u32>) -> u32 {
        let notice_owner = Owner::Notice(notice);
        let mut announced = self.work.live_inputs(notice_owner);
        announced.sort_by_key(|&key| match self.work.input(key).stage {
            Stage::Held(_) => 0,
            Stage::RunPre(_) => 1,
            _ => 2,
        });
        let surplus = announced.split_off(announced.len().min(indices.len()));
        let mut next = indices.start;
        for key in announced {
            self.move_to_request(key, request, next);
            next += 1;
        }
        let surplus_count = surplus.len();
        for key in surplus {
            self.finish_input(key, Outcome::Cancelled(Cause::Client));
        }
        self.close_group(notice_owner);
        self.notices.remember(notice, NoticeProblem::Used);
        if surplus_count > 0 {
            self.out.push(Action::NoticeEnded { notice, why: NoticeProblem::Surplus });
        }
        next
    }

    fn move_to_request(&mut self, key: InputKey, request: Owner, index: u32) {
        let stage = self.work.input(key).stage;
        if stage == Stage::WaitPre {
            self.dequeue(key);
        }
        let running = match stage {
            Stage::RunPre(job) => self.machine.job(job).map(|job| job.holds.cores),
            _ => None,
        };
        self.work.move_to(key, request, index, running);
        self.keep_to_lanes(request);
        match stage {
            Stage::Held(material) => self.has_material(key, material),
            Stage::RunPre(job) => self.swap_for_stock(key, job),
            Stage::WaitPre if self.serve_from_pool(key) => {}
            Stage::WaitPre => self.enqueue(key),
            _ => {}
        }
    }

    /// Takes over material of an earlier run: into a pool, or kept for its client.
    pub(super) fn handle_material_found(
        &mut self,
        material: MaterialId,
        model: ModelId,
        client: Option<ClientId>,
    ) -> Result<(), Rejected> {
        self.check_model(model)?;
        let bound = self.catalog.binding(model) == BoundTo::Client;
        let fits_model = self.catalog.has_pre(model) && bound == client.is_some();
        // After this run's first material, a name no longer shows which run made unbound material.
        let is_late = !bound && self.stock.has_made();
        let pool = match client {
            Some(client) => self.pool_for(model, client),
            None => self.stock.has_pools().then_some(PoolKey { model, client }),
        };
        // Only an input that holds the material remembers its name: the number of names is
        // unbounded.
        let is_kept = client.is_some() && pool.is_none();
        if !fits_model || is_late || !self.is_new_material(material, is_kept) {
            return Err(Rejected::BadMaterial(material));
        }
        let disk = self.catalog.disk(model);
        if (client.is_none() && pool.is_none()) || self.machine.free().disk < disk {
            self.out.push(Action::Burn { material });
            return Ok(());
        }
        self.stock.add_found(material, model);
        self.machine.hold_disk(disk);
        if let Some(pool) = pool {
            self.shelve(pool, material);
        } else if let Some(client) = client {
            self.stock.keep(client, material);
        }
        Ok(())
    }

    /// Returns whether material is new. Remembers its name unless the material is kept.
    fn is_new_material(&mut self, material: MaterialId, is_kept: bool) -> bool {
        if is_kept { !self.stock.knows(material) } else { self.stock.note_found(material) }
    }

    /// Inputs of other models used this model's stock. No effect without a pool.
    pub(super) fn handle_demand(&mut self, model: ModelId, inputs: u32) -> Result<(), Rejected> {
        self.check_model(model)?;
        if let Some(pool) = self.pool_of_all(model) {
            let t_pre = self.catalog.length(model, JobPhase::Pre);
            self.stock.arrival(pool, self.clock.now(), inputs, t_pre);
            self.out.stir();
        }
        Ok(())
    }

    pub(super) fn handle_material_gone(&mut self, material: MaterialId) -> Result<(), Rejected> {
        if !self.stock.pull(material) {
            return Err(Rejected::UnknownMaterial(material));
        }
        self.consume(material);
        Ok(())
    }
}
