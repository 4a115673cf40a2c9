//! Pools of material that a dealer makes ahead of time, for no client yet. To the scheduler a pool
//! is a separate model whose T_pre is the dealing. A T_pre of the pool's model takes a material out
//! when it starts. The queue holds ids only; the driver holds the halves.
use super::{Effect, Queue, ScheduledModel};
use crate::jobs::estimates;
use crate::models::catalog::Offered;
use crate::ops::snapshot::PoolRow;
use crate::ops::state::{self, Learned};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_ids::MaterialId;
use tacit_sched::{Event, JobId, JobPhase, ModelId, Owner, Span, Start, Time, Usage};

pub(super) struct Pools {
    is_enabled: bool,
    /// How long a half is kept.
    ttl: Span,
    /// Pools by digest of the plan.
    pools: HashMap<[u8; 32], Pool>,
    /// Running dealings, with their pool's model.
    dealing: HashMap<JobId, ModelId>,
}

struct Pool {
    offered: Arc<Offered>,
    /// The scheduler's model of the dealings.
    model: ModelId,
    /// Ready halves and when they became ready, the oldest first.
    stock: VecDeque<(Time, MaterialId)>,
    /// Whether the pool has been unused for long: dealing resumes with the next draw.
    asleep: bool,
}

impl Pools {
    pub(super) fn new(is_enabled: bool, ttl: Duration) -> Self {
        let ttl = Span::from_secs(ttl.as_secs_f64());
        Self { is_enabled, ttl, pools: HashMap::new(), dealing: HashMap::new() }
    }

    fn next_end(&self) -> Option<Time> {
        self.pools.values().filter_map(|pool| Some(pool.stock.front()?.0 + self.ttl)).min()
    }

    fn pool_of_model(&mut self, model: ModelId) -> Option<&mut Pool> {
        self.pools.values_mut().find(|pool| pool.model == model)
    }

    fn row(&self, pool: &Pool) -> PoolRow {
        let bytes = pool.offered.model.order().map_or(0, |order| order.server_bytes);
        PoolRow {
            model: pool.offered.name.clone(),
            backend: pool.offered.backend,
            inputs: pool.offered.batch(),
            ready: pool.stock.len(),
            dealing: self.dealing.values().filter(|model| **model == pool.model).count(),
            bytes: bytes * pool.stock.len() as u64,
        }
    }
}

impl Queue {
    /// Opens a pool for a model whose material is dealt, if the server has pools and the model has
    /// none.
    pub(crate) fn open_pool(&mut self, offered: &Arc<Offered>) {
        let Some(order) = offered.model.order().filter(|_| self.pools.is_enabled) else { return };
        if self.pools.pools.contains_key(&offered.plan) {
            return;
        }
        let spec = estimates::dealing_spec(
            offered,
            order.server_bytes,
            &self.models.learned,
            self.settings.threads,
            self.settings.job_memory,
        );
        let model = ModelId(self.models.by_id.len() as u32);
        // Fails only if the scheduler is being stopped.
        if self.handle(Event::ModelAdded(spec)).is_err() {
            return;
        }
        self.models.by_id.push(ScheduledModel::new(offered, estimates::LOCAL_DEVICE, true));
        let pool = Pool { offered: Arc::clone(offered), model, stock: VecDeque::new(), asleep: false };
        self.pools.pools.insert(offered.plan, pool);
    }

    /// Closes the pools of withdrawn plans and of their batches.
    pub(super) fn close_pools(&mut self, plans: &BTreeSet<[u8; 32]>) {
        let withdrawn = self.pools.pools.extract_if(|_, pool| plans.contains(&pool.offered.single().plan));
        let withdrawn: Vec<ModelId> = withdrawn.map(|(_, pool)| pool.model).collect();
        withdrawn.into_iter().for_each(|model| self.handle_or_ignore(Event::ModelRemoved { model }));
    }

    pub(super) fn deal(&mut self, start: &Start) {
        let (job, model) = (start.job, start.model);
        match self.pools.pool_of_model(model) {
            Some(pool) if !pool.asleep => {
                let offered = Arc::clone(&pool.offered);
                self.pools.dealing.insert(job, model);
                self.effects.push(Effect::Deal { job, offered });
            }
            // The scheduler tries again after the next demand.
            _ => self.handle_or_ignore(Event::JobFailed { job }),
        }
    }

    /// Ends a dealing with the id of a half and how long it took, or without. Returns whether the
    /// driver must hold the half.
    pub(crate) fn finish_dealing(&mut self, job: JobId, result: Option<(MaterialId, Duration)>) -> bool {
        let Some(model) = self.pools.dealing.remove(&job) else { return false };
        let Some((material, took)) = result else {
            self.handle_or_ignore(Event::JobFailed { job });
            return false;
        };
        let time = Span::from_secs(took.as_secs_f64());
        let usage = Usage { time, peak_memory: estimates::DEALING_MEMORY.min(self.settings.job_memory) };
        if self.handle(Event::JobFinished { job, usage, material: Some(material) }).is_err() {
            return false;
        }
        let (now, threads) = (self.now(), self.settings.threads);
        // Without a pool, the model was withdrawn: the scheduler will burn the half.
        let Some(pool) = self.pools.pool_of_model(model) else { return true };
        pool.stock.push_back((now, material));
        let plan = pool.offered.plan;
        if let Some(estimate) = self.scheduler.profile().estimate(model, JobPhase::Pre, 1, threads) {
            let (device, phase) = (state::POOL.into(), state::DEALING);
            let (seconds, memory) = (estimate.time.secs(), estimate.memory);
            self.effects.push(Effect::Learned(Learned { plan, device, phase, threads, seconds, memory }));
        }
        true
    }

    /// Takes the oldest half of the pool for an offline phase that starts, unless it refills stock.
    pub(super) fn draw(&mut self, owner: Owner, model: ModelId, phase: JobPhase) -> Option<MaterialId> {
        let kind = &self.models.by_id[model.0 as usize];
        if phase != JobPhase::Pre || self.offers.is_filling(owner) {
            return None;
        }
        let offer = kind.offer();
        let pool = self.pools.pools.get_mut(&kind.plan)?;
        pool.asleep = false;
        let (model, oldest) = (pool.model, pool.stock.pop_front().map(|(_, material)| material));
        if let Some(material) = oldest {
            self.handle_or_ignore(Event::MaterialGone { material });
        }
        self.handle_or_ignore(Event::Demand { model, inputs: 1 });
        self.effects.push(Effect::Drawn { offer, found: oldest.is_some() });
        oldest
    }

    /// Drops a half that the scheduler has burnt and that has no client.
    pub(super) fn drop_half(&mut self, material: MaterialId) {
        self.pools.pools.values_mut().for_each(|pool| pool.stock.retain(|(_, id)| *id != material));
        self.effects.push(Effect::Drop { material });
    }

    /// The dealer has lost what it made ahead of time.
    pub(crate) fn lose_pools(&mut self) {
        let stock = self.pools.pools.values_mut().flat_map(|pool| pool.stock.drain(..));
        let lost: Vec<MaterialId> = stock.map(|(_, material)| material).collect();
        self.drop_stock(lost);
    }

    fn drop_stock(&mut self, halves: Vec<MaterialId>) {
        for material in halves {
            self.handle_or_ignore(Event::MaterialGone { material });
            self.effects.push(Effect::Drop { material });
        }
    }

    /// Drops halves that were unused for too long, and stops dealing for their pools.
    pub(super) fn expire_pools(&mut self) {
        let (now, ttl, mut expired) = (self.now(), self.pools.ttl, Vec::new());
        for pool in self.pools.pools.values_mut() {
            while pool.stock.front().is_some_and(|(ready_at, _)| *ready_at + ttl <= now) {
                pool.asleep = true;
                expired.extend(pool.stock.pop_front().map(|(_, material)| material));
            }
        }
        self.drop_stock(expired);
    }

    pub(super) fn pool_alarm(&self) -> Option<Instant> {
        let end = self.pools.next_end()?;
        Some(self.epoch + Duration::from_nanos(end.0) + Duration::from_millis(1))
    }

    pub(crate) fn pool_rows(&self) -> Vec<PoolRow> {
        let mut rows: Vec<PoolRow> = self.pools.pools.values().map(|pool| self.pools.row(pool)).collect();
        rows.sort_by(|a, b| (&a.model, a.backend, a.inputs).cmp(&(&b.model, b.backend, b.inputs)));
        rows
    }
}
