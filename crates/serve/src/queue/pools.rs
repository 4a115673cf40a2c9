//! Pools of material that a dealer deals ahead of time, for no client in particular. To the scheduler a pool
//! is a model of its own, whose T_pre is the dealing; a T_pre of a model that such material is for takes one
//! out when it starts. Only names are here: the driver has the halves.
use super::{Effect, Kind, Queue};
use crate::catalog::Offered;
use crate::estimates;
use crate::snapshot::PoolRow;
use crate::state::{self, Learned};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_ids::MaterialId;
use tacit_sched::{Event, JobId, JobPhase, ModelId, Owner, Span, Start, Time, Usage};

/// The pools.
pub(super) struct Pools {
    /// Whether there are any.
    on: bool,
    /// How long a half is kept.
    ttl: Span,
    /// By digest of the plan.
    pools: HashMap<[u8; 32], Pool>,
    /// Dealings under way, by what the scheduler calls their model.
    dealing: HashMap<JobId, ModelId>,
}

struct Pool {
    offered: Arc<Offered>,
    /// What the scheduler calls the dealings.
    model: ModelId,
    /// The oldest first, and since when they are there.
    stock: VecDeque<(Time, MaterialId)>,
    /// Nobody has come for long: nothing is dealt until somebody does.
    asleep: bool,
}

impl Pools {
    pub(super) fn new(on: bool, ttl: Duration) -> Self {
        let ttl = Span::from_secs(ttl.as_secs_f64());
        Self { on, ttl, pools: HashMap::new(), dealing: HashMap::new() }
    }

    /// When the next half is too old.
    fn next_end(&self) -> Option<Time> {
        self.pools.values().filter_map(|pool| Some(pool.stock.front()?.0 + self.ttl)).min()
    }

    fn of_model(&mut self, model: ModelId) -> Option<&mut Pool> {
        self.pools.values_mut().find(|pool| pool.model == model)
    }
}

impl Queue {
    /// Opens a pool for a model whose material is dealt, if there is none and there are to be any.
    pub(crate) fn open_pool(&mut self, offered: &Arc<Offered>) {
        let Some(order) = offered.model.order().filter(|_| self.pools.on) else { return };
        if self.pools.pools.contains_key(&offered.plan) {
            return;
        }
        let spec = estimates::dealing(offered, order.server_bytes, &self.known, self.threads, self.job_memory);
        let model = ModelId(self.kinds.len() as u32);
        // It is being stopped, and needs no stock.
        if self.handle(Event::ModelAdded(spec)).is_err() {
            return;
        }
        let (name, backend) = (offered.name.as_str().into(), offered.backend);
        let (plan, of_one, batch) = (offered.plan, offered.of_one().plan, offered.batch());
        self.kinds.push(Kind { name, backend, plan, of_one, batch, device: estimates::HERE, dealt: true });
        let pool = Pool { offered: Arc::clone(offered), model, stock: VecDeque::new(), asleep: false };
        self.pools.pools.insert(plan, pool);
    }

    /// These plans, and those of their batches, are served no longer.
    pub(super) fn close_pools(&mut self, plans: &BTreeSet<[u8; 32]>) {
        let gone = self.pools.pools.extract_if(|_, pool| plans.contains(&pool.offered.of_one().plan));
        let gone: Vec<ModelId> = gone.map(|(_, pool)| pool.model).collect();
        gone.into_iter().for_each(|model| self.handle_or_ignore(Event::ModelRemoved { model }));
    }

    /// The scheduler starts a dealing.
    pub(super) fn deal(&mut self, start: &Start) {
        let (job, model) = (start.job, start.model);
        match self.pools.of_model(model) {
            Some(pool) if !pool.asleep => {
                let offered = Arc::clone(&pool.offered);
                self.pools.dealing.insert(job, model);
                self.effects.push(Effect::Deal { job, offered });
            }
            // It tries again when somebody has asked.
            _ => self.handle_or_ignore(Event::JobFailed { job }),
        }
    }

    /// A dealing is over: with a half of this name in so much time, or with nothing. Whether the half is in a
    /// pool now.
    pub(crate) fn dealt(&mut self, job: JobId, made: Option<(MaterialId, Duration)>) -> bool {
        let Some(model) = self.pools.dealing.remove(&job) else { return false };
        let Some((material, took)) = made else {
            self.handle_or_ignore(Event::JobFailed { job });
            return false;
        };
        let time = Span::from_secs(took.as_secs_f64());
        let usage = Usage { time, peak_memory: estimates::DEALING_MEMORY.min(self.job_memory) };
        if self.handle(Event::JobFinished { job, usage, material: Some(material) }).is_err() {
            return false;
        }
        let (now, threads) = (self.now(), self.threads);
        // Without its pool, its model is gone: the scheduler has it burnt.
        let Some(pool) = self.pools.of_model(model) else { return true };
        pool.stock.push_back((now, material));
        let plan = pool.offered.plan;
        if let Some(estimate) = self.scheduler.profile().estimate(model, JobPhase::Pre, 1, threads) {
            let (device, phase) = (state::POOL.into(), state::DEALING);
            let (seconds, memory) = (estimate.time.secs(), estimate.memory);
            self.effects.push(Effect::Learned(Learned { plan, device, phase, threads, seconds, memory }));
        }
        true
    }

    /// An offline phase starts: it takes what has lain longest in its pool, unless nobody waits for it.
    pub(super) fn draw(&mut self, owner: Owner, model: ModelId, phase: JobPhase) -> Option<MaterialId> {
        let kind = &self.kinds[model.0 as usize];
        if phase != JobPhase::Pre || self.offers.is_filling(owner) {
            return None;
        }
        let of = (Arc::clone(&kind.name), kind.backend);
        let pool = self.pools.pools.get_mut(&kind.plan)?;
        pool.asleep = false;
        let (model, drawn) = (pool.model, pool.stock.pop_front().map(|(_, material)| material));
        if let Some(material) = drawn {
            self.handle_or_ignore(Event::MaterialGone { material });
        }
        self.handle_or_ignore(Event::Demand { model, inputs: 1 });
        self.effects.push(Effect::Drawn { of, found: drawn.is_some() });
        drawn
    }

    /// The scheduler has something burnt that is nobody's.
    pub(super) fn dropped(&mut self, material: MaterialId) {
        self.pools.pools.values_mut().for_each(|pool| pool.stock.retain(|(_, other)| *other != material));
        self.effects.push(Effect::Drop { material });
    }

    /// The dealer has lost what it dealt ahead of time.
    pub(crate) fn lose_pools(&mut self) {
        let stock = self.pools.pools.values_mut().flat_map(|pool| pool.stock.drain(..));
        let lost: Vec<MaterialId> = stock.map(|(_, material)| material).collect();
        for material in lost {
            self.handle_or_ignore(Event::MaterialGone { material });
            self.effects.push(Effect::Drop { material });
        }
    }

    /// What nobody has used for so long goes, and none is dealt in its place.
    pub(super) fn expire_pools(&mut self) {
        let (now, ttl, mut ended) = (self.now(), self.pools.ttl, Vec::new());
        for pool in self.pools.pools.values_mut() {
            while pool.stock.front().is_some_and(|(since, _)| *since + ttl <= now) {
                pool.asleep = true;
                ended.extend(pool.stock.pop_front().map(|(_, material)| material));
            }
        }
        for material in ended {
            self.handle_or_ignore(Event::MaterialGone { material });
            self.effects.push(Effect::Drop { material });
        }
    }

    /// When a half of a pool is too old next.
    pub(super) fn pool_alarm(&self) -> Option<Instant> {
        let end = self.pools.next_end()?;
        Some(self.epoch + Duration::from_nanos(end.0) + Duration::from_millis(1))
    }

    /// The pools, by model.
    pub(crate) fn pool_rows(&self) -> Vec<PoolRow> {
        let row = |pool: &Pool| {
            let bytes = pool.offered.model.order().map_or(0, |order| order.server_bytes);
            PoolRow {
                model: pool.offered.name.clone(),
                backend: pool.offered.backend,
                inputs: pool.offered.batch(),
                ready: pool.stock.len(),
                dealing: self.pools.dealing.values().filter(|model| **model == pool.model).count(),
                bytes: bytes * pool.stock.len() as u64,
            }
        };
        let mut rows: Vec<PoolRow> = self.pools.pools.values().map(row).collect();
        rows.sort_by(|a, b| (&a.model, a.backend, a.inputs).cmp(&(&b.model, b.backend, b.inputs)));
        rows
    }
}
