//! Lower bounds on the mean input delay that no scheduler can beat.

use super::price::priced;
use super::workload::Arrival;
use crate::config::{Config, ModelSpec, PhaseSpec};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a scheduler may have done before a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead<'a> {
    /// T_pre of announced requests, from their notice on.
    Notices,
    /// T_pre of any request, from time zero on.
    Pool {
        /// Material that was there at time zero, by model.
        stock: &'a [u32],
    },
}

/// The bounds, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Mean time of an input alone on the machine, on the thread counts that make it fastest.
    pub alone: f64,
    /// Mean delay of preemptive shortest remaining work on one machine of speed P.
    pub fluid: f64,
    /// The best found with prices on cores and memory: `sim/price.rs`.
    pub priced: f64,
}

impl Bounds {
    /// The largest one.
    pub fn best(&self) -> f64 {
        self.alone.max(self.fluid).max(self.priced)
    }

    /// Bounds for these requests. `fluid` leaves T_pre out where any of it may be done before the request comes; `alone` counts the rest
    /// of it, `priced` also what it pays. All are optimistic, so the bounds hold.
    pub fn of(arrivals: &[Arrival], models: &[ModelSpec], config: &Config, ahead: Ahead<'_>) -> Bounds {
        let classes = Class::all(arrivals, models, config, ahead);
        let jobs = || classes.iter().flat_map(|c| c.jobs.iter().map(move |j| (c, j)));
        let n = jobs().count().max(1) as f64;
        let cores = f64::from(config.capacity.cores.max(1));
        let mut work: Vec<(f64, f64)> = jobs().map(|(c, j)| (j.arrived, c.work(j) * cores)).collect();
        work.sort_by(|a, b| a.0.total_cmp(&b.0));
        Bounds {
            alone: classes.iter().map(Class::all_alone).sum::<f64>() / n,
            fluid: shortest_remaining_work(&work, cores),
            priced: priced(&classes) / n,
        }
    }
}

/// One way to run a phase: its time in seconds and its shares of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) secs: f64,
    pub(super) cores: f64,
    pub(super) memory: f64,
}

/// When an input came, and how long before that its T_pre may start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) arrived: f64,
    pub(super) lead: f64,
}

/// The inputs of one model, and the ways to run each phase.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) pre: Vec<Way>,
    pub(super) on: Vec<Way>,
    /// How many of them need no T_pre.
    pub(super) stock: usize,
    pub(super) jobs: Vec<Job>,
}

impl Class {
    fn all(arrivals: &[Arrival], models: &[ModelSpec], config: &Config, ahead: Ahead<'_>) -> Vec<Class> {
        let ways = |phase: &PhaseSpec, threads: &[u32]| -> Vec<Way> {
            let way = |&t: &u32| Way {
                secs: phase.first.time.secs() * phase.speedup.factor(t),
                cores: f64::from(t) / f64::from(config.capacity.cores.max(1)),
                memory: phase.first.memory as f64 / config.capacity.memory.max(1) as f64,
            };
            threads.iter().map(way).collect()
        };
        let class = |(i, model): (usize, &ModelSpec)| Class {
            pre: ways(&model.pre, &config.pre_threads),
            on: ways(&model.on, &config.on_threads),
            stock: match ahead {
                Ahead::Pool { stock } => stock.get(i).map_or(0, |n| *n as usize),
                Ahead::Notices => 0,
            },
            jobs: Vec::new(),
        };
        let mut classes: Vec<Class> = models.iter().enumerate().map(class).collect();
        for arrival in arrivals {
            let lead = match ahead {
                Ahead::Notices => arrival.lead.map_or(0.0, |lead| lead.secs().min(arrival.at.secs())),
                Ahead::Pool { .. } => arrival.at.secs(),
            };
            let job = Job { arrived: arrival.at.secs(), lead };
            classes[arrival.model as usize].jobs.extend(std::iter::repeat_n(job, arrival.inputs as usize));
        }
        classes
    }

    /// The least time from arrival to end, with a T_pre.
    pub(super) fn alone(&self, job: &Job) -> f64 {
        (least(&self.pre, |w| w.secs) - job.lead).max(0.0) + least(&self.on, |w| w.secs)
    }

    /// The sum of these times over all inputs, those that gain most from stock without a T_pre.
    pub(super) fn all_alone(&self) -> f64 {
        let on = least(&self.on, |w| w.secs);
        let mut gains: Vec<f64> = self.jobs.iter().map(|job| self.alone(job) - on).collect();
        gains.sort_by(|a, b| b.total_cmp(a));
        gains.iter().skip(self.stock).sum::<f64>() + on * self.jobs.len() as f64
    }

    /// The least share of the cores, times seconds, that an input takes after its arrival.
    fn work(&self, job: &Job) -> f64 {
        let work = |w: &Way| w.secs * w.cores;
        least(&self.on, work) + if job.lead > 0.0 || self.stock > 0 { 0.0 } else { least(&self.pre, work) }
    }
}

pub(super) fn least(ways: &[Way], cost: impl Fn(&Way) -> f64) -> f64 {
    ways.iter().map(cost).fold(f64::INFINITY, f64::min)
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

    #[test]
    fn shortest_remaining_work_preempts() {
        // A long job alone; a short one comes at 1 and goes first: delays 1 and 3 + 1.
        let mean = shortest_remaining_work(&[(0.0, 6.0), (1.0, 2.0)], 2.0);
        assert!((mean - (4.0 + 1.0) / 2.0).abs() < 1e-12, "{mean}");
        // Idle time between jobs does not count.
        assert!((shortest_remaining_work(&[(0.0, 1.0), (10.0, 1.0)], 1.0) - 1.0).abs() < 1e-12);
    }
}
