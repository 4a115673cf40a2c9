//! Ready material: all live material, the part in pools or kept, and the inputs that wait for some.

use super::same::check_equal;
use crate::config::{BoundTo, PoolConfig};
use crate::ids::{ClientId, JobId, MaterialId, ModelId};
use crate::pool::{PoolKey, Pools};
use crate::queue::InputKey;
use crate::resources::Resources;
use crate::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Pools tried when the first one's refill does not fit.
const REFILL_TRIES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Held by an input, or in use.
    Input,
    Pool(PoolKey),
    /// Kept for this client until a request names the material.
    Kept(ClientId),
}

#[derive(Clone, Copy, Debug)]
struct Live {
    model: ModelId,
    place: Place,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Stock {
    materials: BTreeMap<MaterialId, Live>,
    kept: BTreeMap<(ClientId, ModelId), BTreeSet<MaterialId>>,
    /// Number of kept materials, by model.
    kept_of: BTreeMap<ModelId, u64>,
    /// Every found material of an earlier run, so that none is accepted twice.
    found: BTreeSet<MaterialId>,
    /// Whether this run has made material, so start-up is over.
    made: bool,
    pools: Pools,
    has_pools: bool,
    /// Requests' inputs with queued T_pre, by the pool that could serve them.
    needy: BTreeMap<PoolKey, BTreeSet<InputKey>>,
}

impl Stock {
    pub fn new(pool: Option<PoolConfig>) -> Self {
        Self { has_pools: pool.is_some(), pools: Pools::new(pool.unwrap_or_default(), Time::ZERO), ..Self::default() }
    }

    pub fn pool_for(&self, model: ModelId, binding: BoundTo, client: ClientId) -> Option<PoolKey> {
        match binding {
            _ if !self.has_pools => None,
            BoundTo::Unbound => Some(PoolKey { model, client: None }),
            BoundTo::Client if self.pools.config.per_client => Some(PoolKey { model, client: Some(client) }),
            BoundTo::Client => None,
        }
    }

    pub fn add_made(&mut self, material: MaterialId, model: ModelId) {
        self.made = true;
        self.materials.insert(material, Live { model, place: Place::Input });
    }

    pub fn has_made(&self) -> bool {
        self.made
    }

    /// Material of an earlier run was found; false if the name is known.
    pub fn note_found(&mut self, material: MaterialId) -> bool {
        !self.knows(material) && self.found.insert(material)
    }

    pub fn has_pools(&self) -> bool {
        self.has_pools
    }

    pub fn add_found(&mut self, material: MaterialId, model: ModelId) {
        self.materials.insert(material, Live { model, place: Place::Input });
    }

    /// Whether the name is taken, as far as known.
    pub fn knows(&self, material: MaterialId) -> bool {
        self.materials.contains_key(&material) || self.found.contains(&material)
    }

    /// Removes consumed or burnt material and returns its model.
    pub fn forget(&mut self, material: MaterialId) -> ModelId {
        self.materials.remove(&material).expect("only live material is used up, and once").model
    }

    fn set_place(&mut self, material: MaterialId, place: Place) {
        self.materials.get_mut(&material).expect("only live material is moved").place = place;
    }

    pub fn keep(&mut self, client: ClientId, material: MaterialId) {
        self.set_place(material, Place::Kept(client));
        let model = self.materials[&material].model;
        self.kept.entry((client, model)).or_default().insert(material);
        *self.kept_of.entry(model).or_default() += 1;
    }

    pub fn kept_materials(&self, client: ClientId, model: ModelId) -> impl Iterator<Item = MaterialId> {
        self.kept.get(&(client, model)).into_iter().flatten().copied()
    }

    pub fn is_kept(&self, client: ClientId, model: ModelId, material: MaterialId) -> bool {
        self.kept.get(&(client, model)).is_some_and(|kept| kept.contains(&material))
    }

    pub fn keepers(&self) -> impl Iterator<Item = (ClientId, ModelId)> {
        self.kept.keys().copied()
    }

    pub fn take_kept(&mut self, client: ClientId, model: ModelId) -> BTreeSet<MaterialId> {
        let kept = self.kept.remove(&(client, model)).unwrap_or_default();
        kept.iter().for_each(|&material| self.set_place(material, Place::Input));
        self.subtract_kept(model, kept.len());
        kept
    }

    fn subtract_kept(&mut self, model: ModelId, removed: usize) {
        if let Some(count) = self.kept_of.get_mut(&model) {
            *count -= removed as u64;
        }
    }

    /// Takes material out of its pool or from the kept material; false if in neither.
    pub fn pull(&mut self, material: MaterialId) -> bool {
        let Some(&Live { model, place }) = self.materials.get(&material) else { return false };
        match place {
            Place::Input => return false,
            Place::Pool(pool) => self.pools.remove_material(pool, material),
            Place::Kept(client) => {
                let kept = self.kept.get_mut(&(client, model)).expect("what is kept is listed");
                kept.remove(&material);
                if kept.is_empty() {
                    self.kept.remove(&(client, model));
                }
                self.subtract_kept(model, 1);
            }
        }
        self.set_place(material, Place::Input);
        true
    }

    pub fn live_models(&self) -> impl Iterator<Item = ModelId> {
        self.materials.values().map(|live| live.model)
    }

    pub fn len(&self) -> usize {
        self.pools.stock_total()
    }

    pub fn shelve(&mut self, pool: PoolKey, material: MaterialId) {
        self.set_place(material, Place::Pool(pool));
        self.pools.change(pool, |p| p.stock.push_back(material));
    }

    pub fn take(&mut self, pool: PoolKey) -> Option<MaterialId> {
        let material = self.pools.take(pool)?;
        self.set_place(material, Place::Input);
        Some(material)
    }

    /// Takes material out of the pool that can best spare it; if all are empty, from the client
    /// with most kept material.
    pub fn take_spare(&mut self) -> Option<MaterialId> {
        if let Some(richest) = self.pools.richest() {
            return self.take(richest);
        }
        let largest = self.kept.iter().max_by_key(|(_, kept)| kept.len());
        let material = *largest?.1.first()?;
        self.pull(material).then_some(material)
    }

    pub fn pooled_disk(&self, disk: impl Fn(ModelId) -> u64) -> u64 {
        self.pools.iter().map(|(key, pool)| pool.stock.len() as u64 * disk(key.model)).sum()
    }

    pub fn idle_disk(&self, disk: impl Fn(ModelId) -> u64) -> u64 {
        let kept = self.kept_of.iter().map(|(&model, count)| count * disk(model));
        let kept: u64 = kept.sum();
        self.pooled_disk(disk) + kept
    }

    /// The input waits for its T_pre, and this pool could serve it.
    pub fn add_needy(&mut self, pool: PoolKey, input: InputKey) {
        self.needy.entry(pool).or_default().insert(input);
    }

    pub fn remove_needy(&mut self, pool: PoolKey, input: InputKey) {
        if let Some(set) = self.needy.get_mut(&pool) {
            set.remove(&input);
            if set.is_empty() {
                self.needy.remove(&pool);
            }
        }
    }

    pub fn oldest_needy(&self, pool: PoolKey) -> Option<InputKey> {
        self.needy.get(&pool)?.first().copied()
    }

    /// Records that `inputs` arrived at this pool; `t_pre` is the duration of one refill.
    pub fn arrival(&mut self, pool: PoolKey, now: Time, inputs: u32, t_pre: Span) {
        self.pools.arrival(pool, now, inputs, t_pre);
    }

    pub fn wants(&self, pool: PoolKey) -> bool {
        self.pools.wants(&pool)
    }

    /// The first pools that want a refill, the least covered first.
    pub fn wanting(&self) -> impl Iterator<Item = PoolKey> + '_ {
        self.pools.wanting().take(REFILL_TRIES)
    }

    /// Whether the refills' shares of the machine allow one more. `idle` is the share of the cores,
    /// from 0 to 1, that refills may count on now; dealings do not depend on it. `pooled` is the
    /// disk of the stock.
    pub fn allows_refill(&self, need: &Resources, idle: f64, have: &Resources, used: &Resources, pooled: u64) -> bool {
        let (config, refilling) = (&self.pools.config, &self.pools.refilling);
        let cores = portion(config.core_share * idle, u64::from(have.cores));
        // At least one: a machine with a single dealing would otherwise have no stock.
        let dealings = portion(config.core_share, u64::from(have.dealings)).max(1);
        (need.cores == 0 || u64::from(refilling.cores + need.cores) <= cores)
            && (need.dealings == 0 || u64::from(refilling.dealings + need.dealings) <= dealings)
            && refilling.memory + need.memory <= portion(config.memory_share, have.memory)
            && used.disk + need.disk <= portion(config.disk_share, have.disk)
            && self.pools.len() < config.most as usize
            && pooled.saturating_add(refilling.disk).saturating_add(need.disk) <= config.disk
    }

    pub fn refill_begins(&mut self, pool: PoolKey, job: JobId, holds: Resources) {
        self.pools.refilling.add(&holds);
        self.pools.change(pool, |p| p.refills.insert(job));
    }

    pub fn refill_ends(&mut self, pool: PoolKey, job: JobId, holds: Resources) {
        self.pools.refilling.sub(&holds);
        self.pools.change(pool, |p| p.refills.remove(&job));
    }

    pub fn pause(&mut self, pool: PoolKey) {
        self.pools.pause(pool);
    }

    /// Running jobs of a pool, the oldest first.
    pub fn refills(&self, pool: PoolKey) -> impl Iterator<Item = JobId> + '_ {
        self.pools.get(&pool).into_iter().flat_map(|p| p.refills.iter().copied())
    }

    pub fn pools(&self) -> Vec<PoolKey> {
        self.pools.keys().collect()
    }

    pub fn pools_of(&self, client: ClientId) -> Vec<PoolKey> {
        self.pools.keys().filter(|key| key.client == Some(client)).collect()
    }

    pub fn pools_of_model(&self, model: ModelId) -> Vec<PoolKey> {
        self.pools.keys().filter(|key| key.model == model).collect()
    }

    pub fn remove_pool(&mut self, pool: PoolKey) -> VecDeque<MaterialId> {
        let stock = self.pools.remove(pool);
        stock.iter().for_each(|&material| self.set_place(material, Place::Input));
        stock
    }

    /// Checks that every live material is exactly one of: `in_use` by an input or a job, in stock, or
    /// kept. Checks the resources of refills.
    pub fn audit(&self, in_use: impl Iterator<Item = MaterialId>, refilling: Resources) -> Result<(), String> {
        let pooled = self.pools.iter().flat_map(|(key, pool)| pool.stock.iter().map(move |&m| (m, Place::Pool(key))));
        let kept = self.kept.iter().flat_map(|(&(client, _), set)| set.iter().map(move |&m| (m, Place::Kept(client))));
        let mut seen = BTreeSet::new();
        for (material, place) in in_use.map(|m| (m, Place::Input)).chain(pooled).chain(kept) {
            if !seen.insert(material) {
                return Err("a material is in two places".into());
            }
            let listed = self.materials.get(&material).map(|live| live.place);
            check_equal("place of a material", Some(place), listed)?;
        }
        check_equal("live material", seen, self.materials.keys().copied().collect())?;
        let mut kept_of: BTreeMap<ModelId, u64> = self.kept_of.keys().map(|&model| (model, 0)).collect();
        for (&(_, model), kept) in &self.kept {
            *kept_of.entry(model).or_default() += kept.len() as u64;
        }
        check_equal("kept by model", &kept_of, &self.kept_of)?;
        check_equal("nothing is kept for nobody", self.kept.values().any(BTreeSet::is_empty), false)?;
        check_equal("pools without a configuration", !self.has_pools && self.pools.keys().next().is_some(), false)?;
        check_equal("what refills hold", refilling, self.pools.refilling)
    }
}

fn portion(share: f64, total: u64) -> u64 {
    (total as f64 * share) as u64
}
