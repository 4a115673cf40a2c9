//! The priced lower bound on delays.
//!
//! Let every job pay for the shares of the cores and of the memory that it holds, at two prices that change with time. Shares never add up
//! to more than 1, so all jobs together pay at most the integral of both prices, and
//!
//! `sum of delays >= sum over jobs of min over all ways to run it (delay + what it pays) - integral of the prices`
//!
//! for **any** prices that are not negative: on the right every job chooses for itself, as if it were alone. It is the dual of the
//! linear relaxation in which a job may be split over several starts. Prices are constant over buckets of time; they climb along the
//! subgradient (what is held in a bucket beyond the machine makes it dearer), on finer and finer buckets. How well they are
//! chosen decides how much is proven, never whether it is true.
//!
//! What a job pays is linear in its start, but for bends where its start or its end meets a bucket's edge. So the least over a bucket is at an
//! edge or a bend and is found exactly. Three things are rounded, all downwards: an arrival and the end of a T_pre to the start of their bucket, and
//! starts after the last bucket to its start. Hence the last evaluation, on buckets much finer than those that the prices change on.

use super::bounds::{Class, Job, Way, least};

/// Buckets at first; halved with each level.
const COARSE: usize = 192;
/// Rounds of climbing, by level.
const ROUNDS: [usize; 6] = [40, 40, 30, 20, 12, 8];
/// Parts of the finest bucket in the last evaluation.
const FINE: usize = 8;

/// Equal buckets of time from `from` on. The one called `last` has no end; there the prices are zero.
#[derive(Clone, Copy)]
struct Grid {
    from: f64,
    width: f64,
    last: usize,
}

impl Grid {
    fn at(&self, k: usize) -> f64 {
        self.from + self.width * k as f64
    }

    fn bucket(&self, t: f64) -> usize {
        (((t - self.from) / self.width).max(0.0) as usize).min(self.last)
    }
}

/// What all cores and all memory cost per second, by bucket.
#[derive(Clone)]
struct Prices {
    grid: Grid,
    cores: Vec<f64>,
    memory: Vec<f64>,
}

impl Prices {
    fn zero(grid: Grid) -> Prices {
        Prices { grid, cores: vec![0.0; grid.last + 1], memory: vec![0.0; grid.last + 1] }
    }

    /// The same prices on buckets of a `parts`-th of the width.
    fn split(&self, parts: usize) -> Prices {
        let grid = Grid { width: self.grid.width / parts as f64, last: self.grid.last * parts, ..self.grid };
        let spread = |of: &Vec<f64>| {
            let inner = of[..self.grid.last].iter().flat_map(|&p| std::iter::repeat_n(p, parts));
            inner.chain([0.0]).collect()
        };
        Prices { grid, cores: spread(&self.cores), memory: spread(&self.memory) }
    }

    fn total(&self) -> f64 {
        (self.cores.iter().sum::<f64>() + self.memory.iter().sum::<f64>()) * self.grid.width
    }
}

/// What one way to run a phase pays, for starts at a bucket's edge and at the bend inside it.
struct Toll {
    secs: f64,
    /// Whole buckets that it takes, and how far after a bucket's start the bend lies: there its end meets an edge.
    whole: usize,
    bend: f64,
    at_edge: Vec<f64>,
    at_bend: Vec<f64>,
}

impl Toll {
    fn new(way: &Way, prices: &Prices) -> Toll {
        let grid = prices.grid;
        let rate: Vec<f64> =
            prices.cores.iter().zip(&prices.memory).map(|(c, m)| way.cores * c + way.memory * m).collect();
        let mut sum = 0.0;
        let before = |r: &f64| {
            sum += r * grid.width;
            sum - r * grid.width
        };
        let until: Vec<f64> = rate.iter().map(before).collect();
        let whole = (way.secs / grid.width) as usize;
        let rest = way.secs - whole as f64 * grid.width;
        let bend = grid.width - rest;
        // The last bucket goes on for ever.
        let ends = |after: usize| (after.min(grid.last)..grid.last).chain(std::iter::repeat(grid.last));
        let starts = || until.iter().zip(&rate);
        let at_edge = starts().zip(ends(whole)).map(|((paid, _), end)| until[end] + rest * rate[end] - paid);
        let at_bend = starts().zip(ends(whole + 1)).map(|((paid, rate), end)| until[end] - paid - bend * rate);
        Toll { secs: way.secs, whole, bend, at_edge: at_edge.collect(), at_bend: at_bend.collect() }
    }

    /// At the right edge of a bucket.
    fn at_right(&self, k: usize) -> f64 {
        self.at_edge.get(k + 1).copied().unwrap_or(f64::INFINITY)
    }

    /// The least for a start in the bucket, both edges included.
    fn least(&self, k: usize) -> f64 {
        self.at_edge[k].min(self.at_bend[k]).min(self.at_right(k))
    }

    /// The end and the payment of T_on for a start in the bucket; where it is least.
    fn end(&self, k: usize, grid: Grid) -> [(f64, f64); 2] {
        let (edge, bend) = (grid.at(k), grid.at(k) + self.bend);
        [(edge + self.secs + self.at_edge[k], edge), (bend + self.secs + self.at_bend[k], bend)]
    }

    /// The payment of T_pre for a start in the bucket, and what follows it; where it is least. Up to the bend its end lies a bucket earlier
    /// than after it.
    fn chain(&self, k: usize, grid: Grid, on: &Onward) -> [(f64, f64); 3] {
        let edge = grid.at(k);
        let (early, late) = (on.from(k + self.whole), on.from(k + self.whole + 1));
        let bend = (self.at_bend[k] + early, edge + self.bend);
        [(self.at_edge[k] + early, edge), bend, (self.at_right(k) + late, edge + grid.width)]
    }
}

fn lowest<const N: usize>(costs: [(f64, f64); N]) -> (f64, f64) {
    costs.into_iter().fold((f64::INFINITY, 0.0), |best, cost| if cost.0 < best.0 { cost } else { best })
}

/// The least cost of starts from each bucket on, and the bucket that has it.
struct Onward {
    cost: Vec<f64>,
    bucket: Vec<u32>,
}

impl Onward {
    fn new(mut cost: Vec<f64>) -> Onward {
        let mut bucket = vec![0; cost.len()];
        let (mut least, mut at) = (f64::INFINITY, 0);
        for (k, (cost, bucket)) in cost.iter_mut().zip(&mut bucket).enumerate().rev() {
            if *cost <= least {
                (least, at) = (*cost, k as u32);
            }
            (*cost, *bucket) = (least, at);
        }
        Onward { cost, bucket }
    }

    fn from(&self, k: usize) -> f64 {
        self.cost[k.min(self.cost.len() - 1)]
    }
}

/// What a job makes of its end and what it pays, and its phases' starts and ways.
struct Choice<'a> {
    cost: f64,
    held: Vec<(f64, &'a Way)>,
}

/// What the jobs of a class do at given prices.
struct Choices<'a> {
    class: &'a Class,
    grid: Grid,
    /// By way of T_on; then their ends and payments.
    tolls_on: Vec<Toll>,
    on: Onward,
    /// By way of T_pre; then the same and the payment of T_pre.
    tolls: Vec<Toll>,
    both: Vec<Onward>,
}

impl Choices<'_> {
    fn new<'a>(class: &'a Class, prices: &Prices) -> Choices<'a> {
        let grid = prices.grid;
        let tolls = |ways: &[Way]| ways.iter().map(|w| Toll::new(w, prices)).collect::<Vec<_>>();
        let (tolls_on, tolls) = (tolls(&class.on), tolls(&class.pre));
        let mut ends = vec![f64::INFINITY; grid.last + 1];
        for toll in &tolls_on {
            ends.iter_mut().enumerate().for_each(|(k, end)| *end = end.min(lowest(toll.end(k, grid)).0));
        }
        let on = Onward::new(ends);
        let chain = |toll: &Toll| Onward::new((0..=grid.last).map(|k| lowest(toll.chain(k, grid, &on)).0).collect());
        let both = tolls.iter().map(chain).collect();
        Choices { class, grid, tolls_on, on, tolls, both }
    }

    /// T_on at its best, from a bucket on: its start and its way.
    fn start_on(&self, k: usize) -> (f64, &Way) {
        let bucket = self.on.bucket[k] as usize;
        let ends =
            self.tolls_on.iter().zip(&self.class.on).map(|(toll, way)| (lowest(toll.end(bucket, self.grid)), way));
        let best = ends.min_by(|a, b| a.0.0.total_cmp(&b.0.0));
        best.map_or((0.0, &self.class.on[0]), |((_, start), way)| (start, way))
    }

    /// The best of a job that needs no T_pre.
    fn stocked(&self, job: &Job) -> Choice<'_> {
        let now = self.grid.bucket(job.arrived);
        Choice { cost: self.on.cost[now], held: vec![self.start_on(now)] }
    }

    /// The best of a job that does.
    fn of(&self, job: &Job) -> Choice<'_> {
        let now = self.grid.bucket(job.arrived);
        let (mut least, mut pre) = (f64::INFINITY, (0.0, &self.class.pre[0]));
        for ((toll, both), way) in self.tolls.iter().zip(&self.both).zip(&self.class.pre) {
            let latest = self.grid.bucket(job.arrived - toll.secs.min(job.lead));
            if both.cost[latest] < least {
                let (cost, start) = lowest(toll.chain(both.bucket[latest] as usize, self.grid, &self.on));
                (least, pre) = (cost, (start, way));
            }
            if toll.secs <= job.lead {
                // T_pre ends before the request comes: T_on starts from then on.
                let ahead = self.grid.bucket(job.arrived - job.lead)..=latest;
                let (pay, k) =
                    ahead.map(|k| (toll.least(k), k)).fold((f64::INFINITY, 0), |a, b| if b.0 < a.0 { b } else { a });
                if pay + self.on.cost[now] < least {
                    (least, pre) = (pay + self.on.cost[now], (self.grid.at(k), way));
                }
            }
        }
        let ready = self.grid.bucket((pre.0 + pre.1.secs).max(job.arrived));
        Choice { cost: least, held: vec![pre, self.start_on(ready)] }
    }
}

/// Seconds of the whole machine that jobs hold, by bucket.
struct Held {
    grid: Grid,
    /// In the buckets where a job starts and ends; then what begins and ends to be held for whole buckets.
    partly: Vec<f64>,
    steps: Vec<f64>,
}

impl Held {
    fn new(grid: Grid) -> Held {
        Held { grid, partly: vec![0.0; grid.last + 1], steps: vec![0.0; grid.last + 2] }
    }

    fn add(&mut self, start: f64, secs: f64, share: f64) {
        let (first, last) = (self.grid.bucket(start), self.grid.bucket(start + secs));
        if first == last {
            self.partly[first] += share * secs;
        } else {
            self.partly[first] += share * (self.grid.at(first + 1) - start);
            self.partly[last] += share * (start + secs - self.grid.at(last));
            self.steps[first + 1] += share;
            self.steps[last] -= share;
        }
    }

    /// What is held beyond the machine: the subgradient of the bound in the price.
    fn excess(&self) -> Vec<f64> {
        let (mut whole, width) = (0.0, self.grid.width);
        let inner = self.partly.iter().zip(&self.steps).take(self.grid.last).map(|(partly, step)| {
            whole += step;
            partly + (whole - 1.0) * width
        });
        inner.collect()
    }
}

/// The sum of delays that these prices prove, and what is held beyond the machine (cores, memory).
fn prove(classes: &[Class], prices: &Prices) -> (f64, [Vec<f64>; 2]) {
    let (mut sum, mut cores, mut memory) = (-prices.total(), Held::new(prices.grid), Held::new(prices.grid));
    for class in classes {
        let choices = Choices::new(class, prices);
        let mut chosen: Vec<_> = class.jobs.iter().map(|job| (job, choices.of(job))).collect();
        // Whoever gains most takes the stock.
        let gain = |job: &Job, with: &Choice<'_>| with.cost - choices.on.cost[prices.grid.bucket(job.arrived)];
        if class.stock > 0 {
            chosen.sort_by(|a, b| gain(b.0, &b.1).total_cmp(&gain(a.0, &a.1)));
        }
        for (job, with) in chosen.iter_mut().take(class.stock) {
            *with = choices.stocked(job);
        }
        for (job, choice) in &chosen {
            sum += choice.cost - job.arrived;
            for &(start, way) in &choice.held {
                cores.add(start, way.secs, way.cores);
                memory.add(start, way.secs, way.memory);
            }
        }
    }
    (sum, [cores.excess(), memory.excess()])
}

/// Climbs from these prices; returns the best ones met and what they prove.
fn climb(classes: &[Class], mut prices: Prices, rounds: usize, mut hope: f64) -> (Prices, f64) {
    let (mut best, mut top, mut stalled) = (prices.clone(), f64::NEG_INFINITY, 0);
    for _ in 0..rounds {
        let (sum, [cores, memory]) = prove(classes, &prices);
        // A step that would reach `hope` more than the best if the bound were linear; less hope after rounds without gain.
        stalled = if sum > top + 0.05 * hope { 0 } else { stalled + 1 };
        if sum > top {
            (top, best) = (sum, prices.clone());
        }
        if stalled == 4 {
            (stalled, hope) = (0, hope * 0.6);
        }
        let falls = |price: f64, excess: f64| price <= 0.0 && excess < 0.0;
        let both = || prices.cores.iter().zip(&cores).chain(prices.memory.iter().zip(&memory));
        let norm: f64 = both().filter(|(p, e)| !falls(**p, **e)).map(|(_, e)| e * e).sum();
        let step = (top + hope - sum) / norm.max(1e-9);
        let pay = |price: &mut Vec<f64>, excess: &[f64]| {
            price.iter_mut().zip(excess).for_each(|(p, e)| *p = (*p + step * e).max(0.0));
        };
        pay(&mut prices.cores, &cores);
        pay(&mut prices.memory, &memory);
    }
    (best, top)
}

/// The best of some simple prices to climb from: none, or one that is constant or falls until the arrivals, or the work that they bring, end.
fn simple(classes: &[Class], grid: Grid, busy: f64) -> (Prices, f64) {
    let n: usize = classes.iter().map(|c| c.jobs.len()).sum();
    let line = |height: f64, fall: f64| -> Vec<f64> {
        let at = |k: usize| (grid.at(k) - grid.from) / busy;
        (0..=grid.last).map(|k| if at(k) < 1.0 { height * (1.0 - fall * at(k)) } else { 0.0 }).collect()
    };
    let none = Prices::zero(grid);
    let mut all = vec![none.clone()];
    for height in (0..12).map(|step| 0.3 * 2f64.powi(step)).take_while(|height| *height <= 2.0 * n as f64) {
        for fall in [0.0, 1.0] {
            all.push(Prices { cores: line(height, fall), ..none.clone() });
            all.push(Prices { memory: line(height, fall), ..none.clone() });
        }
    }
    let proven = all.into_iter().map(|prices| (prove(classes, &prices).0, prices));
    proven.max_by(|a, b| a.0.total_cmp(&b.0)).map_or((none, 0.0), |(sum, prices)| (prices, sum))
}

/// The largest sum of delays that some prices were found to prove.
pub(super) fn priced(classes: &[Class]) -> f64 {
    let jobs = || classes.iter().flat_map(|c| c.jobs.iter().map(move |j| (c, j)));
    let Some(first) = jobs().map(|(_, j)| j.arrived - j.lead).reduce(f64::min) else {
        return 0.0;
    };
    let last = jobs().map(|(_, j)| j.arrived).fold(first, f64::max);
    let work = |share: fn(&Way) -> f64| -> f64 {
        let of = |ways: &[Way]| least(ways, |w| w.secs * share(w));
        jobs().map(|(c, _)| of(&c.pre) + of(&c.on)).sum()
    };
    let longest = jobs().map(|(c, j)| c.alone(j)).fold(0.0, f64::max);
    let busy = f64::max(last - first, work(|w| w.cores).max(work(|w| w.memory)));
    let span = 1.25 * busy + longest;
    let (mut prices, mut top) = simple(classes, Grid { from: first, width: span / COARSE as f64, last: COARSE }, busy);
    let mut hope = f64::max(0.3 * top, classes.iter().map(Class::all_alone).sum::<f64>() - top);
    for (level, rounds) in ROUNDS.into_iter().enumerate() {
        if level > 0 {
            prices = prices.split(2);
        }
        let sum;
        (prices, sum) = climb(classes, prices, rounds, hope);
        (top, hope) = (top.max(sum), 0.1 * sum);
    }
    top.max(prove(classes, &prices.split(FINE)).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` inputs at time zero with a T_pre that takes next to nothing.
    fn together(n: usize, on: Vec<Way>) -> [Class; 1] {
        let pre = vec![Way { secs: 1e-9, cores: 0.0, memory: 0.0 }];
        [Class { pre, on, stock: 0, jobs: vec![Job { arrived: 0.0, lead: 0.0 }; n] }]
    }

    #[test]
    fn prices_see_the_queue() {
        // One after the other on the whole machine: delays 1 + 2 + ... + 20 = 210. Alone each would take 1 s.
        let proven = priced(&together(20, vec![Way { secs: 1.0, cores: 1.0, memory: 0.0 }]));
        assert!((0.95 * 210.0..=210.0 + 1e-6).contains(&proven), "{proven}");
        // The same by memory.
        let by_memory = priced(&together(20, vec![Way { secs: 1.0, cores: 0.0, memory: 1.0 }]));
        assert!((by_memory - proven).abs() < 1e-6);
    }

    #[test]
    fn prices_see_that_threads_are_taken_from_others() {
        // One thread of ten for 10 s, or all for 4 s. Alone 4 s; ten at once do best side by side: 10 s each.
        let ways = vec![Way { secs: 10.0, cores: 0.1, memory: 0.0 }, Way { secs: 4.0, cores: 1.0, memory: 0.0 }];
        let proven = priced(&together(10, ways));
        assert!((60.0..=100.0 + 1e-6).contains(&proven), "{proven}");
    }

    #[test]
    fn stock_goes_to_whom_it_helps_most() {
        let way = |secs| vec![Way { secs, cores: 0.01, memory: 0.0 }];
        let job = |arrived| Job { arrived, lead: arrived };
        // From time zero on T_pre takes 10 s: the three come 10, 7 and 2 s too early.
        let jobs = vec![job(3.0), job(0.0), job(8.0)];
        for (stock, waits) in [(0, 19.0), (1, 9.0), (2, 2.0), (3, 0.0), (9, 0.0)] {
            let class = Class { pre: way(10.0), on: way(1.0), stock, jobs: jobs.clone() };
            assert!((class.all_alone() - waits - 3.0).abs() < 1e-9);
            let proven = priced(&[class]);
            assert!(proven <= waits + 3.0 + 1e-9 && proven > 0.95 * (waits + 3.0) - 0.05, "{stock}: {proven}");
        }
    }

    /// What the prices ask from one instant to another, bucket by bucket.
    fn integral(of: &[f64], grid: Grid, from: f64, to: f64) -> f64 {
        let inside = |k: usize| (to.min(grid.at(k + 1)) - from.max(grid.at(k))).max(0.0);
        (0..grid.last).map(|k| of[k] * inside(k)).sum()
    }

    #[test]
    fn no_start_that_is_tried_is_cheaper_than_the_choice() {
        let way = |secs, cores, memory| Way { secs, cores, memory };
        let pre = vec![way(6.0, 0.2, 0.1), way(2.9, 0.6, 0.1)];
        let on = vec![way(5.0, 0.4, 0.3), way(3.3, 1.0, 0.3)];
        let class = Class { pre, on, stock: 0, jobs: Vec::new() };
        let grid = Grid { from: 0.5, width: 0.7, last: 64 };
        let mut rng = crate::sim::Rng::new(5, 0);
        for lead in [0.0, 2.0, 9.0] {
            let mut draw =
                || (0..64).map(|_| if rng.uniform() < 0.5 { 0.0 } else { 20.0 * rng.uniform() }).chain([0.0]).collect();
            let prices = Prices { grid, cores: draw(), memory: draw() };
            let choices = Choices::new(&class, &prices);
            let pays = |way: &Way, start: f64| {
                let over = |of: &[f64]| integral(of, grid, start, start + way.secs);
                way.cores * over(&prices.cores) + way.memory * over(&prices.memory)
            };
            let job = Job { arrived: 10.0, lead };
            let cost = choices.of(&job).cost;
            for pre in &class.pre {
                for start in (0..200).map(|tick| 10.0 - lead + f64::from(tick) * 0.2) {
                    for wait in (0..200).map(|tick| f64::from(tick) * 0.2) {
                        let from = f64::max(10.0, start + pre.secs) + wait;
                        for on in &class.on {
                            let tried = from + on.secs + pays(pre, start) + pays(on, from);
                            assert!(cost <= tried + 1e-9, "lead {lead}: T_pre at {start}, T_on at {from}");
                        }
                    }
                }
            }
            let stocked = choices.stocked(&job).cost;
            assert!(stocked <= cost && stocked >= 10.0 - grid.width + 3.3);
        }
    }
}
