//! A lower bound on the mean input delay that no scheduler can beat.

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

/// The two bounds, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Mean time of an input alone on the machine, on the thread counts that make it fastest.
    pub alone: f64,
    /// Mean delay of preemptive shortest remaining work on one machine of speed P.
    pub fluid: f64,
}

impl Bounds {
    /// The larger one.
    pub fn best(&self) -> f64 {
        self.alone.max(self.fluid)
    }

    /// Bounds for these requests. `alone` counts of T_pre what cannot have been done when the request comes; `fluid` leaves T_pre
    /// out where any of it may be done ahead. Both are optimistic, so the bounds hold.
    pub fn of(arrivals: &[Arrival], models: &[ModelSpec], config: &Config, ahead: Ahead) -> Bounds {
        let over = |phase: &PhaseSpec, threads: &[u32], cost: &dyn Fn(f64, f64) -> f64| {
            let secs = |t: u32| phase.first.time.secs() * phase.speedup.factor(t);
            threads.iter().map(|&t| cost(secs(t), f64::from(t))).fold(f64::INFINITY, f64::min)
        };
        let fastest = |phase, threads| over(phase, threads, &|secs, _| secs);
        let cheapest = |phase, threads| over(phase, threads, &|secs, threads| secs * threads);
        let (mut alone, mut inputs) = (0.0, 0.0);
        let mut jobs: Vec<(f64, f64)> = Vec::new();
        for arrival in arrivals {
            let model = &models[arrival.model as usize];
            let lead = match ahead {
                Ahead::Notices => arrival.lead.map(|lead| lead.secs().min(arrival.at.secs())),
                Ahead::Pool => Some(arrival.at.secs()),
                Ahead::FullPool => Some(f64::INFINITY),
            };
            let pre = (fastest(&model.pre, &config.pre_threads) - lead.unwrap_or(0.0)).max(0.0);
            let mut work = cheapest(&model.on, &config.on_threads);
            if lead.is_none() {
                work += cheapest(&model.pre, &config.pre_threads);
            }
            alone += (pre + fastest(&model.on, &config.on_threads)) * f64::from(arrival.inputs);
            inputs += f64::from(arrival.inputs);
            jobs.extend((0..arrival.inputs).map(|_| (arrival.at.secs(), work)));
        }
        let fluid = shortest_remaining_work(&jobs, f64::from(config.capacity.cores));
        Bounds { alone: alone / f64::max(inputs, 1.0), fluid }
    }
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
