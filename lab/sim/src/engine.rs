//! The virtual-time engine: the server's loop with a heap of events instead of a machine.

use crate::error::SimError;
use crate::scenario::{RequestTimes, Scenario, Stock};
use crate::workload::{Arrival, Arrivals, exponential, streams};
use fastrand::Rng;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use tacit_sched::policy::PolicySpec;
use tacit_sched::{
    Action, AdvanceNotice, ClientId, Counts, Event, InputReport, JobId, JobPhase, MaterialId, ModelId, NoticeId, Owner,
    PhaseSpec, Rejected, Request, RequestId, Scheduler, Span, Start, Time, Usage, Work,
};

/// One job as it ran; times in seconds since the start of the simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobRecord {
    /// Model, as an index into the mix.
    pub model: ModelId,
    /// JobPhase.
    pub phase: JobPhase,
    /// The request that finally used the job, if any.
    pub request: Option<RequestId>,
    /// Threads.
    pub threads: u32,
    /// When it started.
    pub from: f64,
    /// When it ended or was stopped.
    pub to: f64,
}

/// Queue lengths, in inputs, and resource use after an event.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueueSample {
    /// Time, in seconds since the start of the simulation.
    pub at: f64,
    /// Q_pre.
    pub pre: u32,
    /// Q_waiting.
    pub waiting: u32,
    /// Q_transit.
    pub transit: u32,
    /// Q_ready.
    pub ready: u32,
    /// Material in stock.
    pub stock: usize,
    /// Cores in use.
    pub cores: u32,
    /// Memory in use, in bytes.
    pub memory: u64,
}

/// Results of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Every input, in the order of their ends.
    pub reports: Vec<InputReport>,
    /// Every job (only with `timeline`).
    pub jobs: Vec<JobRecord>,
    /// Queue lengths after every event (only with `timeline`).
    pub samples: Vec<QueueSample>,
    /// Requests refused on arrival.
    pub refused: Vec<(RequestId, Rejected)>,
    /// Core-seconds used.
    pub core_seconds: f64,
    /// Byte-seconds of memory used.
    pub byte_seconds: f64,
    /// First arrival.
    pub first: Time,
    /// Last end of an input.
    pub last: Time,
    /// Events handled.
    pub events: u64,
    /// The requests in order of arrival.
    pub arrivals: Vec<Arrival>,
    /// Material in stock at time zero, by model.
    pub stock: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    JobEnd(JobId),
    Leave(u64),
    Notice(usize),
    Request(usize),
    /// A request's client comes for its T_on.
    Comes(usize),
}

pub(crate) struct Engine<'a> {
    scenario: &'a Scenario,
    scheduler: Scheduler<PolicySpec>,
    due: BinaryHeap<Reverse<(Time, Due)>>,
    running: BTreeMap<JobId, (Start, Time, Option<RequestId>)>,
    /// Recorded requests that have not arrived yet and whose material is made.
    prepared: BTreeSet<usize>,
    noise: Rng,
    think: Rng,
    /// Number of material names so far.
    materials: u64,
    /// Closed loop: the next request to send.
    unsent: usize,
    /// Requests that have not arrived yet.
    to_come: usize,
    /// Inputs that have arrived and not ended.
    open: usize,
    run: Run,
}

impl Scenario {
    /// Simulates the scenario with this seed until every request has ended.
    ///
    /// # Errors
    /// [`SimError::Scheduler`] if the scheduler refuses the configuration.
    pub fn run(&self, seed: u64) -> Result<Run, SimError> {
        let arrivals = self.trace.clone().unwrap_or_else(|| self.workload.draw(seed));
        let mut engine = self.engine(seed)?;
        engine.plan(arrivals);
        if self.stock == Stock::Full {
            engine.fill_pools();
        }
        engine.finish();
        Ok(engine.run)
    }

    /// A machine before the first arrival.
    pub(crate) fn engine(&self, seed: u64) -> Result<Engine<'_>, SimError> {
        let mut believed = self.models.clone();
        for (model, &bias) in believed.iter_mut().zip(&self.bias) {
            for phase in model.pre.iter_mut().chain([&mut model.on]) {
                phase.first.time = phase.first.time.scaled(bias);
            }
        }
        let [_, _, _, _, _, _, noise, think] = streams(seed);
        Ok(Engine {
            scenario: self,
            scheduler: Scheduler::new(self.config.clone(), believed, self.policy.clone())?,
            due: BinaryHeap::new(),
            running: BTreeMap::new(),
            prepared: BTreeSet::new(),
            noise,
            think,
            materials: 0,
            unsent: 0,
            to_come: 0,
            open: 0,
            run: Run { first: Time(u64::MAX), ..Run::default() },
        })
    }
}

impl Engine<'_> {
    /// Processes all events up to and including `until`.
    pub(crate) fn advance(&mut self, until: Time) {
        while self.next().is_some_and(|next| next <= until) {
            self.step();
        }
    }

    /// A request arrives now; all earlier events must have been processed.
    pub(crate) fn receive(&mut self, arrival: Arrival, now: Time) {
        let request = self.run.arrivals.len();
        self.run.arrivals.push(arrival);
        self.to_come += 1;
        self.process(now, Due::Request(request));
    }

    pub(crate) fn counts(&self) -> Counts {
        self.scheduler.counts()
    }

    /// Remaining seconds of the running jobs.
    pub(crate) fn left_s(&self, now: Time) -> f64 {
        self.running.values().map(|(start, started, _)| (*started + start.estimate).since(now).secs()).sum()
    }

    pub(crate) fn run_so_far(&self) -> &Run {
        &self.run
    }

    fn plan(&mut self, arrivals: Vec<Arrival>) {
        (self.unsent, self.to_come) = (arrivals.len(), arrivals.len());
        for (i, arrival) in arrivals.iter().enumerate() {
            if arrival.at == Time(u64::MAX) {
                self.unsent = self.unsent.min(i);
                continue;
            }
            self.due.push(Reverse((arrival.at, Due::Request(i))));
            if let Some(lead) = arrival.lead {
                self.due.push(Reverse((Time(arrival.at.0.saturating_sub(lead.0)), Due::Notice(i))));
            }
            if let Some(leaves) = arrival.leaves {
                self.due.push(Reverse((leaves, Due::Leave(arrival.client))));
            }
        }
        self.run.arrivals = arrivals;
    }

    /// Gives every pool the stock for the mean rate, within the pools' share of the disk, the first
    /// models first.
    fn fill_pools(&mut self) {
        let Some(pool) = &self.scenario.config.pool else { return };
        let rate = self.scenario.workload.arrivals.rate();
        let total = self.scenario.workload.mix.total().max(1) as f64;
        let mut room = (self.scenario.config.capacity.disk as f64 * pool.disk_share) as u64;
        for (i, model) in self.scenario.models.iter().enumerate() {
            let share = f64::from(self.scenario.workload.mix.counts.get(i).map_or(0, |c| c.1)) / total;
            let t_pre = model.pre.map_or(0.0, |pre| pre.first.time.secs());
            let demand = rate * share * t_pre * pool.cover;
            let want = pool.min_stock.max((demand + 2.0 * demand.sqrt()).ceil() as u32);
            let mut stock = 0;
            while stock < want && room >= model.material_bytes {
                room -= model.material_bytes;
                let material = self.new_material();
                stock += 1;
                self.send(Time::ZERO, Event::MaterialFound { material, model: ModelId(i as u32), client: None });
            }
            self.run.stock.push(stock);
        }
    }

    fn new_material(&mut self) -> MaterialId {
        self.materials += 1;
        MaterialId::numbered(self.materials)
    }

    /// Runs until the last input has ended. Refills that still run count up to that moment.
    pub(crate) fn finish(&mut self) {
        while (self.to_come > 0 || self.open > 0) && self.next().is_some() {
            self.step();
        }
        let running_jobs: Vec<JobId> = self.running.keys().copied().collect();
        for job in running_jobs {
            self.account(job, self.run.last);
        }
    }

    fn next(&self) -> Option<Time> {
        let due = self.due.peek().map(|r| r.0.0);
        [due, self.scheduler.next_wakeup()].into_iter().flatten().min()
    }

    /// Processes the next event: a job's end or a request before the scheduler's own wake-up.
    fn step(&mut self) {
        let (due, wake) = (self.due.peek().map(|r| r.0.0), self.scheduler.next_wakeup());
        if let Some(wake) = wake.filter(|wake| due.is_none_or(|due| *wake < due)) {
            self.send(wake, Event::Tick);
        } else if let Some(Reverse((now, due))) = self.due.pop() {
            self.process(now, due);
        }
    }

    fn process(&mut self, now: Time, due: Due) {
        match due {
            Due::JobEnd(job) => {
                // A stopped job has left the table already.
                let Some((start, started, _)) = self.running.get(&job).cloned() else { return };
                let failed = self.scenario.failures > 0.0 && self.noise.f64() < self.scenario.failures;
                self.account(job, now);
                self.leave_queue(now, &start);
                let usage = Usage { time: now.since(started), peak_memory: self.truth(&start).first.memory };
                if failed {
                    return self.send(now, Event::JobFailed { job });
                }
                let material = (start.phase == JobPhase::Pre).then(|| self.new_material());
                self.send(now, Event::JobFinished { job, usage, material });
            }
            Due::Comes(request) => {
                let owner = Owner::Request(RequestId(request as u64));
                self.send(now, Event::Lanes { of: owner, lanes: 1 });
            }
            Due::Leave(client) => self.send(now, Event::ClientRevoked { client: ClientId::numbered(client) }),
            Due::Notice(i) => {
                let arrival = &self.run.arrivals[i];
                let notice = AdvanceNotice {
                    id: NoticeId(i as u64),
                    client: ClientId::numbered(arrival.client),
                    model: ModelId(arrival.model),
                    inputs: arrival.inputs,
                    input_bytes: 0,
                    expected: None,
                    ttl: None,
                    lanes: None,
                    keep: false,
                };
                self.send(now, Event::Notice(notice));
            }
            Due::Request(i) => {
                self.run.arrivals[i].at = now;
                self.to_come -= 1;
                // An announced request finds its material ready; a recorded client must still come
                // for its T_on.
                let gap = self
                    .scenario
                    .recorded
                    .as_ref()
                    .filter(|_| self.prepared.remove(&i))
                    .and_then(|recorded| recorded[i].gap);
                self.due.extend(gap.map(|gap| Reverse((now + gap, Due::Comes(i)))));
                let arrival = &self.run.arrivals[i];
                let (client, model) = (ClientId::numbered(arrival.client), ModelId(arrival.model));
                let request = Request {
                    notice: arrival.lead.map(|_| NoticeId(i as u64)),
                    timeout: self.scenario.workload.timeout,
                    lanes: gap.map(|_| 0),
                    ..Request::plain(RequestId(i as u64), client, model, arrival.inputs)
                };
                self.run.first = self.run.first.min(now);
                self.send(now, Event::Request(request));
            }
        }
    }

    fn send(&mut self, now: Time, event: Event) {
        self.run.events += 1;
        let request = if let Event::Request(request) = &event { Some((request.id, request.inputs)) } else { None };
        let handled = self.scheduler.handle(now, event);
        if let Some((id, inputs)) = request {
            match handled {
                Ok(()) => self.open += inputs as usize,
                Err(reason) => self.run.refused.push((id, reason)),
            }
        }
        while let Some(action) = self.scheduler.poll_action(now) {
            self.act(now, action);
        }
        if self.scenario.timeline {
            let (used, counts) = (self.scheduler.used(), self.scheduler.counts());
            self.run.samples.push(QueueSample {
                at: now.secs(),
                pre: counts.pre,
                waiting: counts.waiting,
                transit: counts.transit,
                ready: counts.ready,
                stock: self.scheduler.stock(),
                cores: used.cores,
                memory: used.memory,
            });
        }
    }

    fn act(&mut self, now: Time, action: Action) {
        match action {
            Action::Start(start) => {
                let spread = self.scenario.spread;
                let noise = if spread == 1.0 { 1.0 } else { spread.powf(2.0 * self.noise.f64() - 1.0) };
                let end = now + self.time_of(&start).scaled(noise);
                self.due.push(Reverse((end, Due::JobEnd(start.job))));
                let request = match start.work {
                    Work::Request(input) => Some(input.request),
                    Work::Notice(_) | Work::Pool => None,
                };
                self.running.insert(start.job, (start, now, request));
            }
            Action::Stop { job } => {
                self.account(job, now);
                let stopped = self.scheduler.handle(now, Event::JobStopped { job });
                stopped.expect("it was told to stop and has not said that it did");
            }
            Action::Report(report) => {
                self.run.last = self.run.last.max(now);
                self.open -= 1;
                if report.last {
                    let request = report.input.request.0 as usize;
                    self.next_of_client(now, self.run.arrivals[request].client);
                }
                self.run.reports.push(report);
            }
            Action::Burn { .. }
            | Action::Reject { .. }
            | Action::NoticeIgnored { .. }
            | Action::NoticeEnded { .. }
            | Action::Stopped => {}
        }
    }

    /// Closed loop: this client thinks, then sends the next request.
    fn next_of_client(&mut self, now: Time, client: u64) {
        let Arrivals::Closed { think, .. } = self.scenario.workload.arrivals else { return };
        if let Some(arrival) = self.run.arrivals.get_mut(self.unsent) {
            arrival.client = client;
            let request_at = now + Span::from_secs(exponential(&mut self.think, think));
            self.due.push(Reverse((request_at, Due::Request(self.unsent))));
            if let Some(lead) = arrival.lead {
                self.due.push(Reverse((Time(request_at.0.saturating_sub(lead.0)).max(now), Due::Notice(self.unsent))));
            }
            self.unsent += 1;
        }
    }

    /// The recorded times of the request that a job works for, and its index.
    fn recorded(&self, start: &Start) -> Option<(usize, RequestTimes)> {
        let request = match start.work {
            Work::Request(input) => input.request.0,
            Work::Notice(notice) => notice.0,
            Work::Pool => return None,
        } as usize;
        self.scenario.recorded.as_ref()?.get(request).map(|times| (request, *times))
    }

    /// Duration of a job: as recorded, or by its model.
    fn time_of(&self, start: &Start) -> Span {
        let recorded = self.recorded(start).and_then(|(_, times)| match start.phase {
            JobPhase::Pre => times.pre,
            JobPhase::On => times.on,
        });
        recorded.unwrap_or_else(|| {
            let truth = self.truth(start);
            truth.first.time.scaled(truth.speedup.factor(start.threads))
        })
    }

    /// After a T_pre, a recorded client must come before its T_on is queued.
    fn leave_queue(&mut self, now: Time, start: &Start) {
        let recorded = self.recorded(start).filter(|_| start.phase == JobPhase::Pre);
        let Some((request, RequestTimes { gap: Some(gap), .. })) = recorded else { return };
        if self.run.arrivals[request].at > now {
            self.prepared.insert(request);
            return;
        }
        self.send(now, Event::Lanes { of: Owner::Request(RequestId(request as u64)), lanes: 0 });
        self.due.push(Reverse((now + gap, Due::Comes(request))));
    }

    fn truth(&self, start: &Start) -> &PhaseSpec {
        let model = &self.scenario.models[start.model.0 as usize];
        match start.phase {
            JobPhase::Pre => model.pre.as_ref().expect("only a model with a T_pre starts one"),
            JobPhase::On => &model.on,
        }
    }

    /// Takes a job off the machine and adds up its resource use.
    fn account(&mut self, job: JobId, now: Time) {
        let Some((start, started, request)) = self.running.remove(&job) else { return };
        let secs = now.since(started).secs();
        // A dealing waits for its dealer and uses no core.
        let is_dealing = start.phase == JobPhase::Pre && self.scenario.models[start.model.0 as usize].dealt;
        let threads = if is_dealing { 0 } else { start.threads };
        self.run.core_seconds += secs * f64::from(threads);
        self.run.byte_seconds += secs * start.memory as f64;
        if self.scenario.timeline {
            let request = request.or(self.scheduler.job_input(job).map(|i| i.request));
            let (start_s, end_s) = (started.secs(), now.secs());
            let Start { model, phase, .. } = start;
            self.run.jobs.push(JobRecord { model, phase, request, threads, from: start_s, to: end_s });
        }
    }
}
