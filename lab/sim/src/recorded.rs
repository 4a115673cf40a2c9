//! A run of a real server in the simulator's terms: the arrivals, and the times of the jobs. It
//! yields the same figures and pictures as a simulated run, and the scenarios that simulate it
//! again.

use crate::engine::{JobRecord, QueueSample, Run};
use crate::scenario::{RequestTimes, Scenario};
use crate::workload::{Arrival, Workload};
use serde::Serialize;
use std::collections::BTreeMap;
use tacit_sched::policy::PolicySpec;
use tacit_sched::profile::{ProfileTable, Sample};
use tacit_sched::{
    Cause, ClientId, Config, InputId, InputReport, JobPhase, ModelId, ModelSpec, Outcome, RequestId, Resources, Source,
    Span, Stamp, Time,
};

/// Earliest arrival of a client after a job's end, seconds: never at the same moment.
const MIN_ARRIVAL_DELAY_S: f64 = 1e-6;

/// A job as the server reported it; seconds since the recording began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RecordedJob {
    /// When the client came for the job.
    pub queued: f64,
    /// When the job started.
    pub from: f64,
    /// When the job ended.
    pub to: f64,
}

impl RecordedJob {
    /// Duration in seconds.
    pub fn length(&self) -> f64 {
        (self.to - self.from).max(0.0)
    }
}

/// A successful job of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestJob {
    /// Index of the request's arrival.
    pub request: usize,
    pub phase: JobPhase,
    pub times: RecordedJob,
}

/// Times of one request; seconds since the recording began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RecordedInput {
    /// When the server first knew of the request: from its notice, or from the request itself.
    pub known: f64,
    /// When the server had the request.
    pub arrived: f64,
    /// T_pre, if one succeeded.
    pub pre: Option<RecordedJob>,
    /// T_on, if it succeeded.
    pub on: Option<RecordedJob>,
}

impl RecordedInput {
    /// Seconds from the end of T_pre until the client came for T_on, or until the request arrived,
    /// if that was later.
    pub fn gap(&self) -> Option<f64> {
        let (pre, on) = (self.pre?, self.on?);
        Some((on.queued - pre.to.max(self.arrived)).max(0.0))
    }
}

/// A run of a real server. Requests are of one input each.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The server's initial estimates of each model.
    pub believed: Vec<ModelSpec>,
    /// Most jobs at a time, of one thread each.
    pub cores: u32,
    /// Most dealings at a time, in addition to the jobs on `cores`.
    pub dealings: u32,
    /// The policy.
    pub policy: PolicySpec,
    /// The mix of planned requests.
    pub workload: Workload,
    /// The planned arrivals.
    pub arrivals: Vec<Arrival>,
    /// The recorded times: one entry for each arrival.
    pub inputs: Vec<RecordedInput>,
}

impl Recording {
    /// Every successful job.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = RequestJob> {
        self.inputs.iter().enumerate().flat_map(|(request, input)| {
            let phases = [(JobPhase::Pre, input.pre), (JobPhase::On, input.on)];
            phases.into_iter().filter_map(move |(phase, times)| Some(RequestJob { request, phase, times: times? }))
        })
    }

    /// The server's profile table after the run: its jobs, learned in the order of their ends, by
    /// the table's own rule.
    pub fn learned_models(&self) -> Vec<ModelSpec> {
        let mut table = ProfileTable::new();
        for model in &self.believed {
            table.add_model(model.pre, model.on);
        }
        let mut jobs: Vec<_> = self.jobs().collect();
        jobs.sort_by(|a, b| tacit_floats::rising(&a.times.to, &b.times.to));
        for RequestJob { request, phase, times } in jobs {
            let model = ModelId(self.arrivals[request].model);
            let Some(estimate) = table.estimate(model, phase, 1, 1) else { continue };
            let time = Span::from_secs(times.length());
            table.learn(model, phase, 1, 1, Sample { time, memory: estimate.memory }, estimate.time);
        }
        let mut models = self.believed.clone();
        for (id, model) in models.iter_mut().enumerate() {
            let phases = model.pre.iter_mut().map(|pre| (JobPhase::Pre, pre)).chain([(JobPhase::On, &mut model.on)]);
            for (phase, spec) in phases {
                let learned = table.estimate(ModelId(id as u32), phase, 1, 1).expect("both phases were added above");
                spec.first = Sample { time: learned.time, memory: learned.memory };
            }
        }
        models
    }

    /// Mean times of its jobs, by model and phase. A wait depends on the mean of the earlier jobs,
    /// and job times have a long tail, so the table's median is too short for it. Phases that never
    /// ran retain the initial estimate.
    pub fn measured_models(&self) -> Vec<ModelSpec> {
        let mut sums = BTreeMap::<_, (f64, u32)>::new();
        for RequestJob { request, phase, times } in self.jobs() {
            let sum = sums.entry((self.arrivals[request].model as usize, phase)).or_default();
            *sum = (sum.0 + times.length(), sum.1 + 1);
        }
        let mut models = self.believed.clone();
        for ((model, phase), (seconds, jobs)) in sums {
            let spec = match phase {
                JobPhase::Pre => models[model].pre.as_mut().expect("it had such a job"),
                JobPhase::On => &mut models[model].on,
            };
            spec.first.time = Span::from_secs(seconds / f64::from(jobs));
        }
        models
    }

    /// The same arrivals at a machine with `cores` cores, with the mean duration of its kind for
    /// every job.
    pub fn scenario(&self, cores: u32) -> Scenario {
        let mut config = Config::new(Resources { cores, memory: u64::MAX, disk: u64::MAX, dealings: self.dealings });
        config.max_queued = u32::MAX;
        config.max_inputs = 1 << 20;
        config.pre_attempts = 1;
        let mut scenario =
            Scenario::on_machine(config, self.measured_models(), self.policy.clone(), self.workload.clone());
        scenario.trace = Some(self.arrivals.clone());
        scenario.timeline = true;
        scenario
    }

    /// As [`scenario`](Self::scenario), but every job takes its recorded time. With `handover`,
    /// clients also come for T_on with the recorded delay after T_pre; without, they come at once.
    pub fn replay(&self, cores: u32, handover: bool) -> Scenario {
        let times = self.inputs.iter().map(|input| RequestTimes {
            pre: length(input.pre),
            on: length(input.on),
            gap: input.gap().filter(|_| handover).map(|gap| Span::from_secs(gap.max(MIN_ARRIVAL_DELAY_S))),
        });
        Scenario { recorded: Some(times.collect()), ..self.scenario(cores) }
    }

    /// As [`replay`](Self::replay) with `handover` at its own number of cores. Notices and requests
    /// arrive at their recorded times instead of the planned ones, so two close ones may change
    /// places.
    pub fn replay_recorded_arrivals(&self) -> Scenario {
        let mut arrivals = self.arrivals.clone();
        for (arrival, input) in arrivals.iter_mut().zip(&self.inputs) {
            arrival.at = Time::from_secs(input.arrived);
            arrival.lead = arrival.lead.map(|_| Span::from_secs((input.arrived - input.known).max(0.0)));
        }
        Scenario { trace: Some(arrivals), ..self.replay(self.cores, true) }
    }

    /// The recording as a run, for the same figures and pictures as a simulated run.
    pub fn run(&self) -> Run {
        let reports: Vec<InputReport> = (0..self.inputs.len()).map(|i| self.report(i)).collect();
        let placed = self.placed_jobs();
        let jobs = placed.iter().map(|job| JobRecord {
            model: ModelId(self.arrivals[job.request].model),
            phase: job.phase,
            request: Some(RequestId(job.request as u64)),
            threads: u32::from(!self.is_dealing(job)),
            from: job.times.from.max(0.0),
            to: job.times.to.max(0.0),
        });
        Run {
            core_seconds: self.jobs().map(|job| job.times.length()).sum(),
            jobs: jobs.collect(),
            samples: self.samples(&placed),
            first: reports.iter().map(|r| r.arrived).min().unwrap_or(Time::ZERO),
            last: reports.iter().filter(|r| r.outcome == Outcome::Done).map(|r| r.ended).max().unwrap_or(Time::ZERO),
            reports,
            arrivals: self.arrivals.clone(),
            ..Run::default()
        }
    }

    fn report(&self, i: usize) -> InputReport {
        let (input, arrival) = (&self.inputs[i], &self.arrivals[i]);
        let ended = input.on.or(input.pre).map_or(input.arrived, |job| job.to);
        InputReport {
            input: InputId { request: RequestId(i as u64), index: 0 },
            client: ClientId::numbered(arrival.client),
            model: ModelId(arrival.model),
            outcome: if input.on.is_some() { Outcome::Done } else { Outcome::Cancelled(Cause::Client) },
            source: if arrival.lead.is_some() { Source::Notice } else { Source::Own },
            arrived: Time::from_secs(input.arrived),
            pre: stamp(input.pre),
            on: stamp(input.on),
            ended: Time::from_secs(ended),
            last: true,
        }
    }

    /// Whether a job took no core.
    fn is_dealing(&self, job: &RequestJob) -> bool {
        job.phase == JobPhase::Pre && self.believed[self.arrivals[job.request].model as usize].dealt
    }

    /// Returns the jobs in the order of their starts; at most `cores` jobs and `dealings` dealings
    /// run at a time. A server records the end of a job after its report to the client, a moment
    /// after the scheduler has reassigned its core.
    fn placed_jobs(&self) -> Vec<RequestJob> {
        let (dealings, jobs) = self.jobs().partition(|job| self.is_dealing(job));
        let mut placed_jobs = limit_concurrency(self.dealings, dealings);
        placed_jobs.extend(limit_concurrency(self.cores, jobs));
        placed_jobs.sort_by(|a, b| tacit_floats::rising(&a.times.from, &b.times.from));
        placed_jobs
    }

    /// Queued and running jobs after every change.
    fn samples(&self, placed: &[RequestJob]) -> Vec<QueueSample> {
        // Changes of the counters: the time, the counter (Q_pre, Q_transit, Q_ready or cores), and
        // the difference.
        let mut changes: Vec<(f64, usize, i64)> = Vec::new();
        for job in placed {
            let RequestJob { request, phase, times } = *job;
            let queue = if phase == JobPhase::On { 2 } else { 0 };
            changes.extend([(times.queued, queue, 1), (times.from, queue, -1)]);
            if !self.is_dealing(job) {
                changes.extend([(times.from, 3, 1), (times.to, 3, -1)]);
            }
            if let (JobPhase::Pre, Some(on)) = (phase, self.inputs[request].on) {
                changes.extend([(times.to, 1, 1), (on.queued.max(times.to), 1, -1)]);
            }
        }
        // At the same moment, ends precede starts, so that no core is held twice.
        changes.sort_by(|a, b| tacit_floats::rising(&a.0, &b.0).then(a.2.cmp(&b.2)));
        let mut counts = [0i64; 4];
        let samples = changes.into_iter().map(|(time, counter, change)| {
            counts[counter] += change;
            let [pre, transit, ready, cores] = counts.map(|n| n.max(0) as u32);
            QueueSample { at: time.max(0.0), pre, waiting: 0, transit, ready, stock: 0, cores, memory: 0 }
        });
        samples.collect()
    }
}

fn length(job: Option<RecordedJob>) -> Option<Span> {
    job.map(|job| Span::from_secs(job.length()))
}

fn stamp(job: Option<RecordedJob>) -> Stamp {
    Stamp {
        started: job.map(|job| Time::from_secs(job.from)),
        finished: job.map(|job| Time::from_secs(job.to)),
        threads: u32::from(job.is_some()),
    }
}

/// Jobs in the order of their starts, with at most `max` at a time, one at least. If there are
/// more, the first to end ends when the next begins.
fn limit_concurrency(max: u32, mut jobs: Vec<RequestJob>) -> Vec<RequestJob> {
    jobs.sort_by(|a, b| tacit_floats::rising(&a.times.from, &b.times.from));
    let mut running: Vec<usize> = Vec::new();
    for index in 0..jobs.len() {
        let start = jobs[index].times.from;
        running.retain(|&other_index| jobs[other_index].times.to > start);
        running.sort_by(|&a, &b| tacit_floats::falling(&jobs[a].times.to, &jobs[b].times.to));
        while running.len() >= max.max(1) as usize {
            let first = running.pop().expect("there is at least one");
            jobs[first].times.to = start;
        }
        running.push(index);
    }
    jobs
}
