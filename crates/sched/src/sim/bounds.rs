//! Lower bounds on the mean input delay that no scheduler can beat.
//!
//! The strongest of the three is the **priced** one. Let every job pay `price(t)` per second for the share of the machine that it holds.
//! Shares never add up to more than 1, so all jobs together pay at most the integral of the price, and
//!
//! `sum of delays >= sum over jobs of min over all ways to run it (delay + what it pays) - integral of the price`
//!
//! for **any** price that is not negative: on the right every job chooses for itself, as if it were alone. (It is the dual of the
//! linear relaxation.) With the price zero it is the time of a job alone; with a good price it knows that
//! threads for one are taken from another. The share may be that of the cores or that of the memory.

use super::workload::Arrival;
use crate::config::{Config, ModelSpec, PhaseSpec};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a scheduler may have done before a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// T_pre of announced requests, from their notice on.
    Notices,
    /// T_pre of any request, from time zero on.
    Pool,
    /// T_pre of any request, before time zero (a pool that starts full).
    FullPool,
}

/// The bounds, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Mean time of an input alone on the machine, on the thread counts that make it fastest.
    pub alone: f64,
    /// Mean delay of preemptive shortest remaining work on one machine of speed P.
    pub fluid: f64,
    /// The best found with a price on cores or on memory.
    pub priced: f64,
}

impl Bounds {
    /// The largest one.
    pub fn best(&self) -> f64 {
        self.alone.max(self.fluid).max(self.priced)
    }

    /// Bounds for these requests. `fluid` leaves T_pre out where any of it may be done before the request comes; `alone` counts the rest
    /// of it, `priced` also what it pays. All are optimistic, so the bounds hold.
    pub fn of(arrivals: &[Arrival], models: &[ModelSpec], config: &Config, ahead: Ahead) -> Bounds {
        let jobs: Vec<Job> = arrivals.iter().flat_map(|a| Job::of(a, models, config, ahead)).collect();
        let n = jobs.len().max(1) as f64;
        let cores = f64::from(config.capacity.cores.max(1));
        let work: Vec<(f64, f64)> = jobs.iter().map(|j| (j.arrived, j.work() * cores)).collect();
        Bounds {
            alone: jobs.iter().map(Job::alone).sum::<f64>() / n,
            fluid: shortest_remaining_work(&work, cores),
            priced: best_price(&jobs) / n,
        }
    }
}

/// One way to run a phase: its time in seconds and its shares of the machine.
#[derive(Clone, Copy, Debug)]
struct Way {
    secs: f64,
    cores: f64,
    memory: f64,
}

/// An input: when it came, how long before that its T_pre may start, and the ways to run each phase that counts.
#[derive(Clone, Debug)]
struct Job {
    arrived: f64,
    lead: f64,
    pre: Vec<Way>,
    on: Vec<Way>,
}

impl Job {
    fn of(arrival: &Arrival, models: &[ModelSpec], config: &Config, ahead: Ahead) -> Vec<Job> {
        let model = &models[arrival.model as usize];
        let ways = |phase: &PhaseSpec, threads: &[u32]| -> Vec<Way> {
            let way = |&t: &u32| Way {
                secs: phase.first.time.secs() * phase.speedup.factor(t),
                cores: f64::from(t) / f64::from(config.capacity.cores.max(1)),
                memory: phase.first.memory as f64 / config.capacity.memory.max(1) as f64,
            };
            threads.iter().map(way).collect()
        };
        let lead = match ahead {
            Ahead::Notices => arrival.lead.map_or(0.0, |lead| lead.secs().min(arrival.at.secs())),
            Ahead::Pool | Ahead::FullPool => arrival.at.secs(),
        };
        let pre = if ahead == Ahead::FullPool { Vec::new() } else { ways(&model.pre, &config.pre_threads) };
        let job = Job { arrived: arrival.at.secs(), lead, pre, on: ways(&model.on, &config.on_threads) };
        vec![job; arrival.inputs as usize]
    }

    fn alone(&self) -> f64 {
        (least_or_zero(&self.pre, |w| w.secs) - self.lead).max(0.0) + least(&self.on, |w| w.secs)
    }

    /// The least share of the machine, times seconds, that it takes after its arrival.
    fn work(&self) -> f64 {
        let work = |w: &Way| w.secs * w.cores;
        least(&self.on, work) + if self.lead > 0.0 { 0.0 } else { least_or_zero(&self.pre, work) }
    }

    /// The least that this job can make of its delay and what it pays.
    fn cheapest(&self, price: &Price, share: fn(&Way) -> f64) -> f64 {
        let on = |start: f64| least(&self.on, |w| w.secs + share(w) * price.over(start, w.secs)) + start - self.arrived;
        // Once it has begun the price never rises. So an earlier T_pre costs no less, and T_on follows it at once or at the arrival. And
        // a start is best as early as possible, or where a phase meets a step of the price: between those the cost is concave in it.
        if self.pre.is_empty() {
            return price.steps().filter(|&at| at > self.arrived).map(on).fold(on(self.arrived), f64::min);
        }
        let both = |way: &Way| {
            let at = |start: f64| share(way) * price.over(start, way.secs) + on(start + way.secs);
            let first = self.arrived - way.secs.min(self.lead);
            let meets = price.steps().flat_map(|step| [step, step - way.secs]).filter(|&start| start > first);
            meets.map(at).fold(at(first), f64::min)
        };
        least(&self.pre, both)
    }
}

fn least(ways: &[Way], cost: impl Fn(&Way) -> f64) -> f64 {
    ways.iter().map(cost).fold(f64::INFINITY, f64::min)
}

/// Zero for a phase that does not count.
fn least_or_zero(ways: &[Way], cost: impl Fn(&Way) -> f64) -> f64 {
    if ways.is_empty() { 0.0 } else { least(ways, cost) }
}

/// A price of the whole machine per second that falls from `top` in equal steps, starting at `from`; zero before and after.
struct Price {
    from: f64,
    width: f64,
    /// Height of each step, and the integral up to its start.
    heights: [f64; STEPS],
    sums: [f64; STEPS],
}

const STEPS: usize = 4;

impl Price {
    /// From `from` to `until`; `fall` is how much of `top` is lost over the steps (0: constant, 1: towards zero).
    fn new(from: f64, until: f64, top: f64, fall: f64) -> Price {
        let width = (until - from).max(1e-9) / STEPS as f64;
        let heights = std::array::from_fn(|k| top * (1.0 - fall * k as f64 / STEPS as f64));
        let mut sum = 0.0;
        let sums = heights.map(|height| {
            sum += height * width;
            sum - height * width
        });
        Price { from, width, heights, sums }
    }

    fn steps(&self) -> impl Iterator<Item = f64> + '_ {
        (1..=STEPS).map(|k| self.from + self.width * k as f64)
    }

    fn until(&self, t: f64) -> f64 {
        let x = ((t - self.from) / self.width).clamp(0.0, STEPS as f64);
        let k = (x as usize).min(STEPS - 1);
        self.sums[k] + (x - k as f64) * self.width * self.heights[k]
    }

    fn over(&self, start: f64, secs: f64) -> f64 {
        self.until(start + secs) - self.until(start)
    }

    fn total(&self) -> f64 {
        self.until(f64::INFINITY)
    }
}

/// The largest sum of delays that some price proves. Every price gives a valid bound, so the search need not be exact: shares of
/// cores or memory, two shapes, a few lengths; the bound is concave in the height, so that one is narrowed down.
fn best_price(jobs: &[Job]) -> f64 {
    let first = jobs.iter().map(|j| j.arrived - j.lead).fold(f64::INFINITY, f64::min);
    let last = jobs.iter().map(|j| j.arrived).fold(first, f64::max);
    let work = |share: fn(&Way) -> f64| -> f64 {
        jobs.iter().map(|j| least_or_zero(&j.pre, |w| w.secs * share(w)) + least(&j.on, |w| w.secs * share(w))).sum()
    };
    let shares: [fn(&Way) -> f64; 2] = [|w| w.cores, |w| w.memory];
    let mut best = 0.0_f64;
    for share in shares {
        let busy = f64::max(last - first, work(share));
        if work(share) < 0.25 * busy {
            continue; // What is mostly free proves little.
        }
        for fall in [0.0, 1.0] {
            for stretch in [0.75, 1.0, 1.5] {
                let value = |log: f64| {
                    let price = Price::new(first, first + busy * stretch, log.exp(), fall);
                    jobs.iter().map(|j| j.cheapest(&price, share)).sum::<f64>() - price.total()
                };
                best = best.max(highest(&value, (jobs.len() as f64).max(2.0).ln()));
            }
        }
    }
    best
}

/// The largest value met while narrowing down the maximum of a function with one peak between -2 and `top`.
fn highest(value: &dyn Fn(f64) -> f64, top: f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_75;
    let (mut low, mut high) = (-2.0, top);
    let (mut a, mut b) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut at_a, mut at_b) = (value(a), value(b));
    let mut best = at_a.max(at_b);
    for _ in 0..8 {
        if at_a > at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - GOLDEN * (high - low);
            at_a = value(a);
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + GOLDEN * (high - low);
            at_b = value(b);
        }
        best = best.max(at_a).max(at_b);
    }
    best
}
/// Mean delay of preemptive shortest remaining work, for jobs (arrival, work) in order of arrival.
fn shortest_remaining_work(jobs: &[(f64, f64)], speed: f64) -> f64 {
    let mut queue: BinaryHeap<Reverse<(Ordered, Ordered)>> = BinaryHeap::new();
    let (mut now, mut total) = (0.0, 0.0);
    let mut next = jobs.iter().peekable();
    loop {
        let until = next.peek().map_or(f64::INFINITY, |j| j.0);
        while let Some(Reverse((Ordered(left), Ordered(arrived)))) = queue.pop() {
            let end = now + left / speed;
            if end > until {
                queue.push(Reverse((Ordered(left - (until - now) * speed), Ordered(arrived))));
                break;
            }
            now = end;
            total += end - arrived;
        }
        let Some(&(at, work)) = next.next() else { break };
        now = at;
        queue.push(Reverse((Ordered(work), Ordered(at))));
    }
    total / jobs.len().max(1) as f64
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Ordered(f64);

impl Eq for Ordered {}
impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` jobs at time zero, one phase each.
    fn together(n: usize, on: Vec<Way>) -> Vec<Job> {
        vec![Job { arrived: 0.0, lead: 0.0, pre: Vec::new(), on }; n]
    }

    #[test]
    fn a_price_sees_the_queue() {
        // One after the other on the whole machine: delays 1 + 2 + ... + 20 = 210. Alone each would take 1 s.
        let jobs = together(20, vec![Way { secs: 1.0, cores: 1.0, memory: 0.0 }]);
        let proven = best_price(&jobs);
        assert!((0.8 * 210.0..=210.0 + 1e-6).contains(&proven), "{proven}");
        // The same by memory.
        let jobs = together(20, vec![Way { secs: 1.0, cores: 0.0, memory: 1.0 }]);
        assert!((best_price(&jobs) - proven).abs() < 1e-6);
    }

    #[test]
    fn a_price_sees_that_threads_are_taken_from_others() {
        // One thread of ten for 10 s, or all for 4 s. Alone 4 s; ten at once do best side by side: 10 s each.
        let ways = vec![Way { secs: 10.0, cores: 0.1, memory: 0.0 }, Way { secs: 4.0, cores: 1.0, memory: 0.0 }];
        let proven = best_price(&together(10, ways));
        assert!((60.0..=100.0 + 1e-6).contains(&proven), "{proven}");
    }

    #[test]
    fn the_cheapest_way_is_no_dearer_than_any_start_that_is_tried() {
        let way = |secs, cores| Way { secs, cores, memory: 0.0 };
        for lead in [0.0, 2.0, 9.0] {
            let job = Job { arrived: 10.0, lead, pre: vec![way(6.0, 0.2), way(3.0, 0.6)], on: vec![way(5.0, 0.4)] };
            for (top, fall) in [(0.5, 0.0), (3.0, 0.0), (8.0, 1.0), (50.0, 1.0)] {
                let price = Price::new(10.0 - lead, 40.0, top, fall);
                let cheapest = job.cheapest(&price, |w| w.cores);
                for pre in &job.pre {
                    for tick in 0..400 {
                        let start = 10.0 - lead + f64::from(tick) * 0.1;
                        let on = f64::max(10.0, start + pre.secs);
                        let pays = pre.cores * price.over(start, pre.secs) + 0.4 * price.over(on, 5.0);
                        assert!(cheapest <= on + 5.0 - 10.0 + pays + 1e-9, "lead {lead}, top {top}, start {start}");
                    }
                }
            }
        }
    }

    #[test]
    fn shortest_remaining_work_preempts() {
        // A long job alone; a short one comes at 1 and goes first: delays 1 and 3 + 1.
        let mean = shortest_remaining_work(&[(0.0, 6.0), (1.0, 2.0)], 2.0);
        assert!((mean - (4.0 + 1.0) / 2.0).abs() < 1e-12, "{mean}");
        // Idle time between jobs does not count.
        assert!((shortest_remaining_work(&[(0.0, 1.0), (10.0, 1.0)], 1.0) - 1.0).abs() < 1e-12);
    }
}
