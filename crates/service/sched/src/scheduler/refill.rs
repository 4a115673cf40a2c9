//! Pools of ready material: refills on idle cores, and allocation of stock to inputs.

use super::Scheduler;
use super::machine::Task;
use super::state::{Lifecycle, Stage};
use crate::ids::{JobId, JobPhase, MaterialId};
use crate::message::{Source, Work};
use crate::policy::{Policy, ThreadOption};
use crate::pool::PoolKey;
use crate::queue::InputKey;
use crate::resources::Resources;

impl<P: Policy> Scheduler<P> {
    /// Adds ready material to a pool, or gives it to the oldest input that waits for one.
    pub(super) fn shelve(&mut self, pool: PoolKey, material: MaterialId) {
        let Some(heir) = self.stock.oldest_needy(pool) else {
            self.stock.shelve(pool, material);
            self.out.stir();
            return;
        };
        self.dequeue(heir);
        self.work.edit(heir, |input| input.source = Source::Pool);
        let group = self.work.input(heir).group;
        self.has_material(heir, Some(material));
        self.unpark(group);
    }

    /// Serves a new input, in no queue yet, from stock or a running refill.
    pub(super) fn serve_from_pool(&mut self, key: InputKey) -> bool {
        let Some(pool) = self.pool_of(key) else { return false };
        if let Some(material) = self.stock.take(pool) {
            self.work.edit(key, |input| input.source = Source::Pool);
            self.has_material(key, Some(material));
            self.out.stir();
            return true;
        }
        let refill = self.stock.refills(pool).next();
        if let Some(job) = refill {
            self.adopt(job, key, pool);
        }
        refill.is_some()
    }

    /// Gives ready stock to an input whose own T_pre still runs; the job continues as a refill.
    pub(super) fn swap_for_stock(&mut self, key: InputKey, job: JobId) {
        let Some(pool) = self.pool_of(key) else { return };
        let Some(material) = self.stock.take(pool) else { return };
        self.disown(job, key, pool);
        self.work.edit(key, |input| {
            input.source = Source::Pool;
            input.pre = Default::default();
        });
        self.has_material(key, Some(material));
    }

    pub(super) fn disown(&mut self, job: JobId, key: InputKey, pool: PoolKey) {
        let (holds, ..) = self.machine.reassign(job, Task::Refill(pool));
        self.work.vacate(key, holds.cores);
        self.stock.refill_begins(pool, job, holds);
    }

    pub(super) fn adopt(&mut self, job: JobId, key: InputKey, pool: PoolKey) {
        let (holds, threads, started) = self.machine.reassign(job, Task::Pre(key));
        self.stock.refill_ends(pool, job, holds);
        self.work.edit(key, |input| {
            input.source = Source::Pool;
            input.stage = Stage::RunPre(job);
            input.pre.started = Some(started);
            input.pre.threads = threads;
        });
        self.work.occupy(key, holds.cores);
        self.keep_to_lanes(self.work.input(key).group);
        self.out.stir();
    }

    /// The refill to start when no queued job can start.
    pub(super) fn next_refill(&self) -> Option<(PoolKey, ThreadOption)> {
        if self.lifecycle != Lifecycle::Open {
            return None;
        }
        self.stock.wanting().find_map(|pool| self.refill_option(pool).map(|option| (pool, option)))
    }

    /// The way to run a refill of this pool, if the refills' shares of the machine allow one more.
    fn refill_option(&self, pool: PoolKey) -> Option<ThreadOption> {
        let (have, now) = (self.machine.capacity(), self.clock.now());
        let option = *self.catalog.options(pool.model, JobPhase::Pre, 1, have.cores).first()?;
        let need = self.refill_needs(pool, option);
        let idle = (1.5 - self.load.per_core(now, have.cores)).clamp(0.0, 1.0);
        let pooled = self.stock.pooled_disk(|model| self.catalog.disk(model));
        let fits = need.fits(&self.machine.free())
            && self.stock.allows_refill(&need, idle, &have, &self.machine.used(), pooled)
            && self.machine.may_overtake(None, &need, option.time, now);
        fits.then_some(option)
    }

    fn refill_needs(&self, pool: PoolKey, option: ThreadOption) -> Resources {
        option.holds(self.catalog.deals(pool.model, JobPhase::Pre), self.catalog.disk(pool.model))
    }

    pub(super) fn start_refill(&mut self, pool: PoolKey, option: ThreadOption) {
        let holds = self.refill_needs(pool, option);
        let job = self.machine.launch(Task::Refill(pool), pool.model, 1, holds, option, self.clock.now());
        self.stock.refill_begins(pool, job, holds);
        self.order_start(job, Work::Pool, pool.client);
    }

    /// Free disk if all stock and all kept material were burnt.
    pub(super) fn disk_without_stock(&self) -> u64 {
        let stocked = self.stock.idle_disk(|model| self.catalog.disk(model));
        self.machine.capacity().disk.saturating_sub(self.machine.used().disk - stocked)
    }

    /// Burns stock until `disk` bytes are free; the caller has checked that this is possible.
    pub(super) fn evict(&mut self, disk: u64) {
        while self.machine.free().disk < disk {
            let material = self.stock.take_spare().expect("stock was counted before it is burnt");
            self.burn(material);
        }
    }
}
