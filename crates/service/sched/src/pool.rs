//! Stock of ready material: the size of each pool, and the order of refills.

use crate::config::PoolConfig;
use crate::ids::{ClientId, JobId, MaterialId, ModelId};
use crate::resources::Resources;
use crate::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Key of a pool: a model, or one client of a model whose material is bound to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolKey {
    pub model: ModelId,
    pub client: Option<ClientId>,
}

/// Stock for `inputs` expected inputs: that number plus two standard deviations (Poisson).
pub(crate) fn stock_for(inputs: f64) -> u32 {
    (inputs + 2.0 * inputs.sqrt()).ceil() as u32
}

/// Events per second, as an exponentially decaying average without bias at the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArrivalRate {
    last: Time,
    mass: f64,
}

impl ArrivalRate {
    /// Adds `amount` events at `now`; `window` is the time constant of the average.
    pub fn add(&mut self, now: Time, amount: f64, window: Span) {
        self.mass = self.mass * self.decay(now, window) + amount;
        self.last = now;
    }

    fn decay(&self, now: Time, window: Span) -> f64 {
        (-now.since(self.last).secs() / window.secs()).exp()
    }

    /// The rate since `origin`, the start of the observation. Assumes at least one tenth of the
    /// window as observed.
    pub fn per_second(&self, now: Time, origin: Time, window: Span) -> f64 {
        let observed = (now.since(origin).secs() / window.secs()).max(0.1);
        self.mass * self.decay(now, window) / (window.secs() * (1.0 - (-observed).exp()))
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    /// Ready materials, the oldest first; the oldest is used first.
    pub stock: VecDeque<MaterialId>,
    pub refills: BTreeSet<JobId>,
    rate: ArrivalRate,
    target: u32,
    /// Whether refills pause until the next arrival, because one failed.
    paused: bool,
    /// Stock and running refills, in millionths of the target. The lowest is refilled first.
    coverage_ppm: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    pub config: PoolConfig,
    origin: Time,
    pools: BTreeMap<PoolKey, Pool>,
    /// Pools below target, the least covered first.
    wanting: BTreeSet<(u64, PoolKey)>,
    /// Resources that running refills hold.
    pub refilling: Resources,
}

impl Pools {
    pub fn new(config: PoolConfig, origin: Time) -> Self {
        Self { config, origin, ..Self::default() }
    }

    pub fn get(&self, key: &PoolKey) -> Option<&Pool> {
        self.pools.get(key)
    }

    pub fn stock_total(&self) -> usize {
        self.pools.values().map(|p| p.stock.len()).sum()
    }

    /// Materials in stock and materials of running refills.
    pub fn len(&self) -> usize {
        self.pools.values().map(|p| p.stock.len() + p.refills.len()).sum()
    }

    /// Changes a pool and its place in the order of refills.
    pub fn change<R>(&mut self, key: PoolKey, change: impl FnOnce(&mut Pool) -> R) -> R {
        let pool = self.pools.entry(key).or_default();
        self.wanting.remove(&(pool.coverage_ppm, key));
        let result = change(pool);
        let count = pool.stock.len() + pool.refills.len();
        pool.coverage_ppm = (count as u64 * 1_000_000) / u64::from(pool.target.max(1));
        if count < pool.target as usize && !pool.paused {
            self.wanting.insert((pool.coverage_ppm, key));
        }
        result
    }

    /// Records that `inputs` arrived at this pool; `t_pre` is the duration of one refill.
    pub fn arrival(&mut self, key: PoolKey, now: Time, inputs: u32, t_pre: Span) {
        let PoolConfig { rate_window: window, cover, horizon, .. } = self.config;
        let origin = self.origin;
        let floor = if key.client.is_none() { self.config.min_stock } else { 0 };
        self.change(key, |pool| {
            if inputs > 0 {
                pool.rate.add(now, f64::from(inputs), window);
                pool.paused = false;
            }
            let covered_time = t_pre.max(horizon);
            pool.target = floor.max(stock_for(pool.rate.per_second(now, origin, window) * covered_time.secs() * cover));
        });
    }

    pub fn pause(&mut self, key: PoolKey) {
        self.change(key, |pool| pool.paused = true);
    }

    pub fn take(&mut self, key: PoolKey) -> Option<MaterialId> {
        self.pools.get(&key)?.stock.front()?;
        self.change(key, |pool| pool.stock.pop_front())
    }

    /// Pools below target, the least covered first.
    pub fn wanting(&self) -> impl Iterator<Item = PoolKey> + '_ {
        self.wanting.iter().map(|&(_, key)| key)
    }

    pub fn wants(&self, key: &PoolKey) -> bool {
        self.pools.get(key).is_some_and(|p| self.wanting.contains(&(p.coverage_ppm, *key)))
    }

    /// The best covered pool that is not empty.
    pub fn richest(&self) -> Option<PoolKey> {
        let stocked = self.pools.iter().filter(|(_, p)| !p.stock.is_empty());
        stocked.max_by_key(|(key, p)| (p.coverage_ppm, **key)).map(|(key, _)| *key)
    }

    pub fn remove_material(&mut self, key: PoolKey, material: MaterialId) {
        self.change(key, |pool| pool.stock.retain(|&stocked| stocked != material));
    }

    /// Removes a pool and returns its stock. Running refills of the pool end without a pool.
    pub fn remove(&mut self, key: PoolKey) -> VecDeque<MaterialId> {
        if !self.pools.contains_key(&key) {
            return VecDeque::new();
        }
        let stock = self.change(key, |pool| {
            pool.target = 0;
            std::mem::take(&mut pool.stock)
        });
        if self.pools.get(&key).is_some_and(|pool| pool.refills.is_empty()) {
            self.pools.remove(&key);
        }
        stock
    }

    pub fn iter(&self) -> impl Iterator<Item = (PoolKey, &Pool)> {
        self.pools.iter().map(|(&key, pool)| (key, pool))
    }

    pub fn keys(&self) -> impl Iterator<Item = PoolKey> {
        self.pools.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PoolKey = PoolKey { model: ModelId(0), client: None };

    #[test]
    fn the_rate_estimate_is_unbiased_from_the_start_and_forgets() {
        let window = Span::from_secs(600.0);
        let mut rate = ArrivalRate::default();
        for i in 1..=200u64 {
            rate.add(Time::from_secs(i as f64 * 2.0), 1.0, window);
        }
        let now = rate.per_second(Time::from_secs(400.0), Time::ZERO, window);
        assert!((now - 0.5).abs() < 0.02, "{now}");
        let later = rate.per_second(Time::from_secs(4000.0), Time::ZERO, window);
        assert!(later < 0.01, "{later}");
    }

    #[test]
    fn the_target_covers_arrivals_during_one_refill() {
        let mut pools = Pools::new(PoolConfig::default(), Time::ZERO);
        for i in 1..=100u64 {
            pools.arrival(KEY, Time::from_secs(i as f64 * 10.0), 1, Span::from_secs(100.0));
        }
        // 0.1 per second x 100 s = 10 on average, plus two standard deviations.
        let target = pools.get(&KEY).unwrap().target;
        assert!((15..=18).contains(&target), "{target}");
        assert!(pools.wants(&KEY));
        pools.change(KEY, |p| p.stock.extend((0..u64::from(target)).map(MaterialId::numbered)));
        assert!(!pools.wants(&KEY));
        assert_eq!(pools.take(KEY), Some(MaterialId::numbered(0)));
        assert!(pools.wants(&KEY));
        pools.pause(KEY);
        assert!(!pools.wants(&KEY));
    }
}
