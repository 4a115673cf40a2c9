//! Several nodes and the front that sends clients to them (`python/tacit/cluster`), in virtual
//! time. Each node has its own scheduler, and the front knows only a node's last report.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tacit_sched::{JobPhase, Outcome, Span, Time};

use crate::engine::{Engine, Run};
use crate::error::SimError;
use crate::metrics::{mean, percentile};
use crate::scenario::Scenario;
use crate::workload::Arrival;

/// The front's choice of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// As in the real front: a client goes to the node with the shortest expected wait (its name
    /// decides between equals), and stays while that node lives.
    Home,
    /// By the client's name alone, permanently.
    Name,
    /// Every request goes to the shortest expected wait, independent of its client's node: shows
    /// the cost of staying.
    Anew,
}

/// A node that dies permanently.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Death {
    /// Index of the node.
    pub node: usize,
    /// Seconds after the first arrival.
    pub at_s: f64,
}

/// A cluster of equal nodes; the scenario's workload is for all of them together.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// One node, and the requests for all nodes.
    pub scenario: Scenario,
    /// Number of nodes.
    pub nodes: usize,
    /// Choice of nodes for clients.
    pub placement: Placement,
    /// Seconds between two reports of a node.
    pub report_s: f64,
    /// Seconds until a silent node counts as dead, and its clients are sent to other nodes.
    pub lease_s: f64,
    /// Nodes that die.
    pub deaths: Vec<Death>,
}

/// Results; times in seconds, from a client's first request for the input.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterSummary {
    /// Number of nodes.
    pub nodes: usize,
    /// Choice of nodes for clients.
    pub placement: Placement,
    /// Answered inputs.
    pub done: usize,
    /// Inputs without an answer.
    pub lost: usize,
    /// D: mean of finish minus arrival.
    pub input_delay: f64,
    /// W: mean of T_on start minus arrival.
    pub waiting_time: f64,
    /// 95th percentile of the input delay.
    pub p95: f64,
    /// 99th percentile of the input delay.
    pub p99: f64,
    /// Answered inputs per second, first arrival to last end.
    pub throughput: f64,
    /// Share of the cores' time that jobs held.
    pub core_use: f64,
    /// Core-seconds of the busiest node over the mean.
    pub busiest: f64,
    /// Requests that a dead node left unanswered and another node answered.
    pub moved: usize,
    /// Events of all schedulers.
    pub events: u64,
}

struct Node<'a> {
    engine: Engine<'a>,
    /// Last reported expected wait, and the time of the next report.
    wait_s: f64,
    next_report: Time,
    alive: bool,
    /// Time of the client's first try, for each of the node's requests.
    asked_at: Vec<Time>,
}

struct Cluster<'a> {
    spec: &'a ClusterSpec,
    nodes: Vec<Node<'a>>,
    /// Node of each client.
    homes: BTreeMap<u64, usize>,
    /// Mean seconds of the models' phases: the front's estimate for a queued input.
    typical: [f64; 2],
    moved: usize,
    events: u64,
    /// D and W of every answered input, in seconds.
    delays: Vec<f64>,
    waits: Vec<f64>,
    core_seconds: Vec<f64>,
    first: Time,
    last: Time,
    inputs: usize,
}

impl ClusterSpec {
    /// Simulates this seed until every request has ended.
    ///
    /// # Errors
    /// [`SimError::Scheduler`] for a configuration that the scheduler refuses;
    /// [`SimError::NoSuchNode`] without nodes, or for the death of a node that does not exist.
    pub fn run(&self, seed: u64) -> Result<ClusterSummary, SimError> {
        if self.nodes == 0 || self.deaths.iter().any(|death| death.node >= self.nodes) {
            return Err(SimError::NoSuchNode { nodes: self.nodes });
        }
        let nodes = (0..self.nodes).map(|k| self.node(seed, k)).collect::<Result<Vec<_>, SimError>>()?;
        let arrivals = self.scenario.trace.clone().unwrap_or_else(|| self.scenario.workload.draw(seed));
        let first = arrivals.iter().map(|arrival| arrival.at).min().unwrap_or(Time::ZERO);
        let cluster = Cluster {
            spec: self,
            core_seconds: vec![0.0; nodes.len()],
            nodes,
            homes: BTreeMap::new(),
            typical: [self.mean_s(JobPhase::Pre), self.mean_s(JobPhase::On)],
            moved: 0,
            events: 0,
            delays: Vec::new(),
            waits: Vec::new(),
            first,
            last: first,
            inputs: arrivals.iter().map(|arrival| arrival.inputs as usize).sum(),
        };
        Ok(cluster.play(arrivals))
    }

    fn node(&self, seed: u64, k: usize) -> Result<Node<'_>, SimError> {
        Ok(Node {
            engine: self.scenario.engine(seed.wrapping_add(k as u64))?,
            wait_s: 0.0,
            next_report: Time::ZERO,
            alive: true,
            asked_at: Vec::new(),
        })
    }

    fn mean_s(&self, phase: JobPhase) -> f64 {
        let times = self.scenario.models.iter().map(|model| match phase {
            JobPhase::Pre => model.pre.map_or(0.0, |pre| pre.first.time.secs()),
            JobPhase::On => model.on.first.time.secs(),
        });
        times.sum::<f64>() / self.scenario.models.len().max(1) as f64
    }
}

impl Cluster<'_> {
    /// Processes the front's events in order: requests, deaths of nodes, and repeated requests.
    fn play(mut self, arrivals: Vec<Arrival>) -> ClusterSummary {
        let mut deaths = self.spec.deaths.clone();
        deaths.sort_by(|a, b| tacit_floats::rising(&a.at_s, &b.at_s));
        let mut deaths = deaths.into_iter().peekable();
        let mut retries: Vec<(Time, Arrival, Time)> = Vec::new();
        let mut arrivals = arrivals.into_iter().peekable();
        loop {
            let next = arrivals.peek().map(|arrival| arrival.at);
            let next_retry = retries.iter().map(|(at, ..)| *at).min();
            let death = deaths.peek().map(|death| self.first + Span::from_secs(death.at_s));
            let Some(now) = [next, next_retry, death].into_iter().flatten().min() else { break };
            if death == Some(now) {
                let death = deaths.next().expect("it was looked at");
                retries.extend(self.end_node(death.node, now));
            } else if next_retry == Some(now) {
                let index = retries.iter().position(|(at, ..)| *at == now).expect("it is the earliest");
                let (_, arrival, asked_at) = retries.swap_remove(index);
                self.moved += arrival.inputs as usize;
                self.receive(arrival, now, asked_at);
            } else {
                let arrival = arrivals.next().expect("it was looked at");
                self.receive(arrival.clone(), now, arrival.at);
            }
        }
        for k in 0..self.nodes.len() {
            if self.nodes[k].alive {
                self.nodes[k].engine.finish();
                self.close(k);
            }
        }
        self.summary()
    }

    /// The front sends a request to a node; without live nodes the request is lost.
    fn receive(&mut self, arrival: Arrival, now: Time, asked_at: Time) {
        let Some(k) = self.place(arrival.client, now) else { return };
        self.homes.insert(arrival.client, k);
        let node = &mut self.nodes[k];
        node.engine.advance(now);
        node.asked_at.push(asked_at);
        node.engine.receive(Arrival { at: now, lead: None, leaves: None, ..arrival }, now);
    }

    fn place(&mut self, client: u64, now: Time) -> Option<usize> {
        let home = self.homes.get(&client).copied().filter(|k| self.nodes[*k].alive);
        if home.is_some() && self.spec.placement != Placement::Anew {
            return home;
        }
        self.report(now);
        let alive = (0..self.nodes.len()).filter(|k| self.nodes[*k].alive);
        // The larger weight decides between equal waits.
        alive.min_by(|a, b| {
            tacit_floats::rising(&self.wait_s(*a), &self.wait_s(*b))
                .then_with(|| weight(client, *b).cmp(&weight(client, *a)))
        })
    }

    /// Returns the wait at node `k` that decides its choice.
    fn wait_s(&self, k: usize) -> f64 {
        if self.spec.placement == Placement::Name { 0.0 } else { self.nodes[k].wait_s }
    }

    /// Makes the reports that are due, each with the state at its due time.
    fn report(&mut self, now: Time) {
        let every = Span::from_secs(self.spec.report_s);
        let [pre_s, on_s] = self.typical;
        for node in self.nodes.iter_mut().filter(|node| node.alive && node.next_report <= now) {
            let periods = now.since(node.next_report).0 / every.0.max(1);
            let next_report = node.next_report + Span(periods * every.0);
            node.engine.advance(next_report);
            let counts = node.engine.counts();
            let queued = f64::from(counts.pre) * (pre_s + on_s) + f64::from(counts.waiting + counts.ready) * on_s;
            let cores = f64::from(self.spec.scenario.config.capacity.cores.max(1));
            node.wait_s = (queued + node.engine.left_s(next_report)) / cores;
            node.next_report = next_report + every;
        }
    }

    /// Ends a node: its clients repeat unanswered requests after the node counts as dead.
    fn end_node(&mut self, k: usize, now: Time) -> Vec<(Time, Arrival, Time)> {
        if !self.nodes[k].alive {
            return Vec::new();
        }
        self.nodes[k].engine.advance(now);
        let node = &mut self.nodes[k];
        node.alive = false;
        let until = now + Span::from_secs(self.spec.lease_s);
        let answered = answered_requests(node.engine.run_so_far());
        let arrivals = node.engine.run_so_far().arrivals.iter().zip(&node.asked_at).enumerate();
        let open = arrivals.filter(|(i, _)| !answered.contains(&(*i as u64)));
        let unanswered = open.map(|(_, (arrival, asked_at))| (until, arrival.clone(), *asked_at)).collect();
        self.close(k);
        unanswered
    }

    fn close(&mut self, k: usize) {
        let node = &self.nodes[k];
        let run = node.engine.run_so_far();
        let answered_requests = answered_requests(run);
        let done_reports =
            run.reports.iter().filter(|r| r.outcome == Outcome::Done && answered_requests.contains(&r.input.request.0));
        for report in done_reports {
            let asked_at = node.asked_at[report.input.request.0 as usize];
            let started = report.on.started.unwrap_or(report.ended);
            self.delays.push(report.ended.since(asked_at).secs());
            self.waits.push(started.since(asked_at).secs());
            self.last = self.last.max(report.ended);
        }
        self.core_seconds[k] = run.core_seconds;
        self.events += run.events;
    }

    fn summary(mut self) -> ClusterSummary {
        let answered_count = self.delays.len();
        let [input_delay, waiting_time] = [&self.delays, &self.waits].map(|times| mean(times.iter().copied()));
        self.delays.sort_unstable_by(tacit_floats::rising);
        let makespan = self.last.since(self.first).secs().max(f64::MIN_POSITIVE);
        let busy: f64 = self.core_seconds.iter().sum();
        let cores = self.nodes.len() as f64 * f64::from(self.spec.scenario.config.capacity.cores);
        let max_core_s = self.core_seconds.iter().copied().fold(0.0, tacit_floats::larger);
        ClusterSummary {
            nodes: self.nodes.len(),
            placement: self.spec.placement,
            done: answered_count,
            lost: self.inputs.saturating_sub(answered_count),
            input_delay,
            waiting_time,
            p95: percentile(&self.delays, 95.0),
            p99: percentile(&self.delays, 99.0),
            throughput: answered_count as f64 / makespan,
            core_use: busy / (makespan * cores),
            busiest: if busy > 0.0 { max_core_s * self.nodes.len() as f64 / busy } else { 0.0 },
            moved: self.moved,
            events: self.events,
        }
    }
}

/// The requests whose inputs have all ended.
fn answered_requests(run: &Run) -> BTreeSet<u64> {
    run.reports.iter().filter(|report| report.last).map(|report| report.input.request.0).collect()
}

/// Rendezvous weight of a node for a client. Any mixing function suffices, since no client chooses
/// its name.
fn weight(client: u64, node: usize) -> u64 {
    let mut mixed = client.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (node as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
    for _ in 0..2 {
        mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    mixed ^ (mixed >> 32)
}
