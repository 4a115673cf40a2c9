//! Pools of ready material: refills on idle cores, and handing stock to inputs.

use super::Scheduler;
use super::state::{Job, Lifecycle, Stage};
use crate::config::Binding;
use crate::ids::{JobId, MaterialId, ModelId, Phase};
use crate::message::{Action, Source, Start};
use crate::policy::{Policy, ThreadOption};
use crate::pool::{PoolKey, Pools};
use crate::queue::InputKey;
use crate::resources::Resources;
use crate::time::Span;

/// Pools tried when the first one's refill does not fit.
const REFILL_TRIES: usize = 8;

impl<P: Policy> Scheduler<P> {
    /// Gives every unbound model its smallest target at once.
    pub(super) fn seed_pools(&mut self) {
        let unbound: Vec<ModelId> = (0..self.models.len() as u32)
            .map(ModelId)
            .filter(|m| self.models[m.0 as usize].binding == Binding::Unbound)
            .collect();
        let now = self.now;
        if let Some(pools) = &mut self.pools {
            for model in unbound {
                pools.arrival(PoolKey { model, client: None }, now, 0, Span::ZERO);
            }
        }
    }

    /// Adds ready material to a pool, or gives it to the oldest input that waits for one.
    pub(super) fn shelve(&mut self, pool: PoolKey, material: MaterialId) {
        if let Some(heir) = self.needy.get(&pool).and_then(|set| set.first().copied()) {
            self.dequeue(heir);
            self.edit(heir, |input| input.source = Source::Pool);
            let group = self.inputs[&heir].group;
            self.has_material(heir, material);
            self.unpark(group);
            return;
        }
        match &mut self.pools {
            Some(pools) => pools.change(pool, |p| {
                p.stock.insert(material);
            }),
            None => self.burn(material),
        }
        self.dirty = true;
    }

    /// Serves a new input in `WaitPre` (in no queue) from stock or from a running refill.
    pub(super) fn serve_from_pool(&mut self, key: InputKey) -> bool {
        let group = &self.groups[&self.inputs[&key].group];
        let Some(pool) = self.pool_key(group.model, group.client) else {
            return false;
        };
        let Some(pools) = &mut self.pools else {
            return false;
        };
        if let Some(material) = pools.take(pool) {
            self.edit(key, |input| input.source = Source::Pool);
            self.has_material(key, material);
            self.dirty = true;
            return true;
        }
        let Some(job) = pools.get(&pool).and_then(|p| p.refills.first().copied()) else {
            return false;
        };
        self.adopt(job, key, pool);
        true
    }

    /// An input whose own T_pre still runs takes ready stock; its job goes on as a refill.
    pub(super) fn swap_for_stock(&mut self, key: InputKey, job: JobId) {
        let group = self.inputs[&key].group;
        let Some(pool) = self.pool_key(self.groups[&group].model, self.groups[&group].client) else { return };
        let Some(material) = self.pools.as_mut().and_then(|pools| pools.take(pool)) else { return };
        self.disown(job, key, pool);
        self.edit(key, |input| {
            input.source = Source::Pool;
            input.pre = Default::default();
        });
        self.has_material(key, material);
    }

    /// Turns an input's running T_pre into a refill.
    pub(super) fn disown(&mut self, job: JobId, key: InputKey, pool: PoolKey) {
        let threads = self.jobs.get(&job).map_or(0, |j| j.holds.cores);
        let group = self.inputs[&key].group;
        self.edit_group(group, |group| {
            group.active -= 1;
            group.threads -= threads;
        });
        self.make_refill(job, pool);
    }

    /// A refill that runs becomes the T_pre of an input.
    pub(super) fn adopt(&mut self, id: JobId, key: InputKey, pool: PoolKey) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.owner = Some(key);
        job.refill = None;
        let (holds, started) = (job.holds, job.started);
        if let Some(pools) = &mut self.pools {
            pools.refill_cores -= holds.cores;
            pools.refill_memory -= holds.memory;
            pools.change(pool, |p| p.refills.remove(&id));
        }
        self.edit(key, |input| {
            input.source = Source::Pool;
            input.stage = Stage::RunPre(id);
            input.pre.started = Some(started);
            input.pre.threads = holds.cores;
        });
        let group = self.inputs[&key].group;
        self.edit_group(group, |group| {
            group.active += 1;
            group.threads += holds.cores;
        });
        self.dirty = true;
    }

    /// A T_pre that runs without an input becomes a refill.
    fn make_refill(&mut self, id: JobId, pool: PoolKey) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.owner = None;
        job.refill = Some(pool);
        let holds = job.holds;
        if let Some(pools) = &mut self.pools {
            pools.refill_cores += holds.cores;
            pools.refill_memory += holds.memory;
            pools.change(pool, |p| p.refills.insert(id));
        }
    }

    /// The refill to start when no queued job can start.
    pub(super) fn next_refill(&self) -> Option<(PoolKey, ThreadOption)> {
        let pools = self.pools.as_ref().filter(|_| self.lifecycle == Lifecycle::Open)?;
        let mut wanting = pools.wanting().take(REFILL_TRIES);
        wanting.find_map(|key| self.refill_option(pools, key).map(|option| (key, option)))
    }

    /// Starts a refill on idle cores.
    pub(super) fn start_refill(&mut self, pool: PoolKey, option: ThreadOption) {
        let material = self.new_material(pool.model);
        let job = Job {
            phase: Phase::Pre,
            model: pool.model,
            batch: 1,
            owner: None,
            refill: None,
            material,
            holds: Resources { cores: option.threads, memory: option.memory, disk: 0 },
            started: self.now,
            estimate: option.time,
            overtook: false,
        };
        let id = self.launch(job);
        self.make_refill(id, pool);
        self.out.push_back(Action::Start(Start {
            job: id,
            phase: Phase::Pre,
            model: pool.model,
            input: None,
            client: pool.client,
            threads: option.threads,
            memory: option.memory,
            material,
            estimate: option.time,
        }));
    }

    /// How a refill of this pool would run, if its shares of the machine allow one more.
    fn refill_option(&self, pools: &Pools, key: PoolKey) -> Option<ThreadOption> {
        let share = |part: f64, of: u64| (of as f64 * part) as u64;
        let option = *self.options(key.model, Phase::Pre, 1).first()?;
        let disk = self.disk(key.model);
        let need = Resources { cores: option.threads, memory: option.memory, disk };
        let spare = (1.5 - self.recent_load()).clamp(0.0, 1.0);
        let cores = share(pools.config.core_share * spare, u64::from(self.capacity.cores));
        let fits = need.fits(&self.free())
            && u64::from(pools.refill_cores + option.threads) <= cores
            && pools.refill_memory + option.memory <= share(pools.config.memory_share, self.capacity.memory)
            && self.used.disk + disk <= share(pools.config.disk_share, self.capacity.disk)
            && self.reservation.is_none_or(|r| self.may_overtake(&r, &need, &option));
        fits.then_some(option)
    }

    /// Burns stock until `disk` bytes are free; false (and nothing burnt) where all stock would not be enough.
    pub(super) fn evict(&mut self, disk: u64) -> bool {
        let Some(pools) = &self.pools else {
            return false;
        };
        let held = |key: &PoolKey| pools.get(key).map_or(0, |p| p.stock.len() as u64 * self.disk(key.model));
        let stocked: u64 = pools.keys().iter().map(held).sum();
        if self.free().disk + stocked < disk {
            return false;
        }
        while self.free().disk < disk {
            let Some(pools) = &mut self.pools else {
                return false;
            };
            let Some(material) = pools.richest().and_then(|key| pools.take(key)) else {
                return false;
            };
            self.burn(material);
        }
        true
    }
}
