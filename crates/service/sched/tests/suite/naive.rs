//! The fast queue against naive models: at every decision a model sorts all queued jobs by the score as
//! [SS26] writes it. The first model starts the first job that fits; the second is Algorithm 1 as printed.

use crate::support::{self, model};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tacit_sched::policy::{PolicySpec, Ss26, Ss26Order};
use tacit_sched::profile::{Measured, ProfileTable, Sample, Speedup};
use tacit_sched::{
    Action, BoundTo, ClientId, Config, Event, InputId, JobId, JobPhase, MaterialId, ModelId, ModelSpec, Outcome,
    Request, RequestId, Resources, Scheduler, Span, Time, Usage, Work,
};

/// The client of all requests.
fn client() -> ClientId {
    ClientId::numbered(0)
}

#[derive(Clone, Debug)]
struct Queued {
    input: InputId,
    model: ModelId,
    phase: JobPhase,
    /// Inputs of its request; estimates are kept by batch size.
    batch: u32,
    arrived: Time,
    entered: Time,
    order: usize,
}

#[derive(Clone, Debug)]
struct Running {
    job: Queued,
    estimate: Span,
    memory: u64,
}

/// Which job a model starts next.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// The first in order, of both phases together.
    OneOrder,
    /// Algorithm 1, lines 14 to 37: each T_pre that fits, then the first T_on or none.
    TwoQueues { exclusive: bool, by_entry: bool },
}

/// The queue as a list that is sorted anew at each decision.
struct Naive {
    rule: Rule,
    beta_ppm: Option<i128>,
    capacity: Resources,
    table: ProfileTable,
    queue: Vec<Queued>,
    running: Vec<Running>,
}

impl Naive {
    fn length(&self, job: &Queued) -> Span {
        self.table.estimate(job.model, job.phase, job.batch, 1).unwrap().time
    }

    /// The paper's score, l - beta * age, in millionths of a nanosecond; for first come, first served, the
    /// arrival.
    fn score(&self, job: &Queued, now: Time) -> i128 {
        match self.beta_ppm {
            Some(beta) => i128::from(self.length(job).0) * 1_000_000 - beta * i128::from(now.since(job.entered).0),
            None if matches!(self.rule, Rule::TwoQueues { by_entry: true, .. }) => i128::from(job.entered.0),
            None => i128::from(job.arrived.0),
        }
    }

    /// Indices of the queued jobs that `keep` names, in order of their scores.
    fn sorted(&self, now: Time, keep: impl Fn(&Queued) -> bool) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.queue.len()).filter(|&index| keep(&self.queue[index])).collect();
        order.sort_by_key(|&index| (self.score(&self.queue[index], now), self.queue[index].order));
        order
    }

    /// Memory of a job on one thread, in bytes.
    fn memory(&self, job: &Queued) -> u64 {
        self.table.estimate(job.model, job.phase, job.batch, 1).unwrap().memory
    }

    fn fits(&self, job: &Queued) -> bool {
        let used: u64 = self.running.iter().map(|r| r.memory).sum();
        self.running.len() < self.capacity.cores as usize && used + self.memory(job) <= self.capacity.memory
    }

    fn runs_same_online(&self, job: &Queued) -> bool {
        let key = |job: &Queued| (job.phase, job.model, job.batch.next_power_of_two());
        self.running.iter().any(|r| key(&r.job) == key(job))
    }

    /// Chooses the next job to start.
    fn choose(&self, now: Time) -> Option<usize> {
        match self.rule {
            Rule::OneOrder => self.sorted(now, |_| true).into_iter().find(|&index| self.fits(&self.queue[index])),
            Rule::TwoQueues { exclusive, .. } => {
                let pre = self.sorted(now, |job| job.phase == JobPhase::Pre);
                pre.into_iter().find(|&index| self.fits(&self.queue[index])).or_else(|| {
                    let first = self.sorted(now, |job| job.phase == JobPhase::On).first().copied()?;
                    let job = &self.queue[first];
                    (self.fits(job) && !(exclusive && self.runs_same_online(job))).then_some(first)
                })
            }
        }
    }

    /// Starts the next job.
    fn next(&mut self, now: Time) -> Option<(Queued, Span)> {
        let job = self.queue.remove(self.choose(now)?);
        let (estimate, memory) = (self.length(&job), self.memory(&job));
        self.running.push(Running { job: job.clone(), estimate, memory });
        Some((job, estimate))
    }

    fn finish(&mut self, input: InputId, phase: JobPhase, time: Span, now: Time) {
        let index = self.running.iter().position(|r| r.job.input == input && r.job.phase == phase).unwrap();
        let Running { mut job, estimate, memory } = self.running.remove(index);
        let measured = Measured { sample: Sample { time, memory }, from: Some(client()) };
        self.table.learn(job.model, phase, job.batch, 1, measured, estimate);
        if phase == JobPhase::Pre {
            job.phase = JobPhase::On;
            job.entered = now;
            self.queue.push(job);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { model: u32, inputs: u32 },
    Finish { pick: usize, percent: u64 },
    Wait { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3u32, 1..4u32).prop_map(|(model, inputs)| Step::Arrive { model, inputs }),
        5 => (0..64usize, 20..500u64).prop_map(|(pick, percent)| Step::Finish { pick, percent }),
        3 => (0..9_000u64).prop_map(|ms| Step::Wait { ms }),
    ]
}

/// Models whose T_pre and T_on need these bytes. Where memory binds, policies with one order reserve, which
/// the first model does not.
fn specs(memory: [(u64, u64); 3]) -> Vec<ModelSpec> {
    let phase = |secs: f64, memory: u64| {
        let mut phase = support::phase(secs, memory);
        phase.speedup = Speedup::None;
        phase
    };
    let [a, b, c] = memory;
    vec![
        model("a", BoundTo::Client, phase(1.0, a.0), phase(0.5, a.1)),
        model("b", BoundTo::Client, phase(3.0, b.0), phase(2.0, b.1)),
        model("c", BoundTo::Client, phase(20.0, c.0), phase(10.0, c.1)),
    ]
}

struct Pair {
    fast: Scheduler<PolicySpec>,
    naive: Naive,
    jobs: BTreeMap<JobId, (InputId, JobPhase, Span, u64)>,
    now: Time,
    made: usize,
}

impl Pair {
    fn new(rule: Rule, beta: Option<f64>) -> Self {
        let capacity = Resources { cores: 3, memory: 1000, disk: u64::MAX, dealings: 0 };
        let (models, policy) = match rule {
            Rule::OneOrder => {
                let policy = beta.map_or(PolicySpec::Fcfs, |beta| PolicySpec::Priority { beta });
                (specs([(0, 0); 3]), policy)
            }
            Rule::TwoQueues { exclusive, by_entry } => {
                let fcfs = if by_entry { Ss26Order::FcfsByEntry } else { Ss26Order::Fcfs };
                let order = beta.map_or(fcfs, |beta| Ss26Order::Priority { beta });
                (specs([(100, 200), (300, 400), (100, 900)]), PolicySpec::Ss26(Ss26 { order, exclusive }))
            }
        };
        let mut table = ProfileTable::new();
        for m in &models {
            table.add_model(m.pre, m.on);
        }
        let beta_ppm = beta.map(|b| (b * 1e6).round() as i128);
        Self {
            fast: Scheduler::new(Config::new(capacity), models, policy).unwrap(),
            naive: Naive { rule, beta_ppm, capacity, table, queue: Vec::new(), running: Vec::new() },
            jobs: BTreeMap::new(),
            now: Time::ZERO,
            made: 0,
        }
    }

    /// Lets both start all jobs that fit, and compares the jobs, their order and their estimates.
    fn agree(&mut self) {
        while let Some(action) = self.fast.poll_action(self.now) {
            match action {
                Action::Start(start) => {
                    let (job, estimate) = self.naive.next(self.now).expect("the naive model would start nothing");
                    assert_eq!((start.work, start.phase), (Work::Request(job.input), job.phase), "at {}", self.now);
                    assert_eq!(start.estimate, estimate);
                    self.jobs.insert(start.job, (job.input, job.phase, estimate, start.memory));
                }
                Action::Report(report) => assert_eq!(report.outcome, Outcome::Done),
                other => panic!("unexpected {other:?}"),
            }
        }
        assert!(self.naive.next(self.now).is_none(), "the naive model would start one more");
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Wait { ms } => self.now = self.now + Span::from_millis(ms),
            Step::Arrive { model, inputs } => {
                let request = RequestId(self.made as u64);
                let model = ModelId(model);
                for index in 0..inputs {
                    self.naive.queue.push(Queued {
                        input: InputId { request, index },
                        model,
                        phase: JobPhase::Pre,
                        batch: inputs,
                        arrived: self.now,
                        entered: self.now,
                        order: self.made,
                    });
                    self.made += 1;
                }
                let event = Request::plain(request, client(), model, inputs);
                self.fast.handle(self.now, Event::Request(event)).unwrap();
            }
            Step::Finish { pick, percent } => {
                let Some((&job, &(input, phase, estimate, peak_memory))) =
                    self.jobs.iter().nth(pick % self.jobs.len().max(1))
                else {
                    return;
                };
                self.jobs.remove(&job);
                let time = Span(estimate.0 / 100 * percent + 1);
                self.naive.finish(input, phase, time, self.now);
                let usage = Usage { time, peak_memory };
                let material = (phase == JobPhase::Pre).then(|| MaterialId::numbered(job.0));
                self.fast.handle(self.now, Event::JobFinished { job, usage, material }).unwrap();
            }
        }
        self.agree();
    }
}

fn beta() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(0.1), Just(1.0), 0.001..5.0f64]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fcfs_is_the_naive_order(steps in prop::collection::vec(step(), 1..300)) {
        let mut pair = Pair::new(Rule::OneOrder, None);
        steps.iter().for_each(|s| pair.play(s));
    }

    #[test]
    fn priority_is_the_naive_order(beta in beta(), steps in prop::collection::vec(step(), 1..300)) {
        let mut pair = Pair::new(Rule::OneOrder, Some(beta));
        steps.iter().for_each(|s| pair.play(s));
    }

    #[test]
    fn ss26_is_algorithm_1(
        beta in prop::option::of(beta()),
        exclusive in any::<bool>(),
        by_entry in any::<bool>(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut pair = Pair::new(Rule::TwoQueues { exclusive, by_entry }, beta);
        steps.iter().for_each(|s| pair.play(s));
    }
}
