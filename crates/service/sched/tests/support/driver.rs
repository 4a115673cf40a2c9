//! Plays a random script against a scheduler, recording a replay.

use super::announce;
use super::models;
use super::monitor::Monitor;
use super::script::Op;
use std::collections::{BTreeMap, BTreeSet};
use tacit_sched::policy::PolicySpec;
use tacit_sched::replay::{Header, Replay, Told};
use tacit_sched::{
    Action, AdvanceNotice, ClientId, DeadlineClass, Event, JobId, JobPhase, MaterialId, ModelId, NoticeId, Owner,
    Rejected, Request, RequestId, Resources, Scheduler, Shutdown, Span, Time, Usage,
};

/// Returns the candidate that a script picked.
fn choose<T: Copy>(candidates: &[T], pick: usize) -> Option<T> {
    candidates.get(pick % candidates.len().max(1)).copied()
}

#[derive(Clone, Debug)]
pub struct Driver {
    pub sched: Scheduler<PolicySpec>,
    pub monitor: Monitor,
    pub now: Time,
    pub events: Vec<(Time, Told)>,
    pub actions: Vec<(Time, Action)>,
    /// Whether only the script reports the end of stopping jobs.
    pub slow_stops: bool,
    /// Number of models so far, and the model at each place of the script.
    models: u32,
    places: [ModelId; 7],
    header: Header,
    notices: Vec<NoticeId>,
    next: u64,
    /// Number of materials named so far.
    materials: u64,
}

impl Driver {
    pub fn new(header: Header) -> Self {
        let sched = Scheduler::new(header.config.clone(), header.models.clone(), header.policy.clone()).unwrap();
        let monitor = Monitor::new(&header);
        let mut driver = Self {
            sched,
            monitor,
            now: Time::ZERO,
            events: Vec::new(),
            actions: Vec::new(),
            slow_stops: false,
            models: header.models.len() as u32,
            places: [0, 1, 2, 3, 4, 5, 1000].map(ModelId),
            header,
            notices: Vec::new(),
            next: 0,
            materials: 0,
        };
        driver.send(Event::Tick).unwrap();
        driver
    }

    /// Gives an event to the scheduler and carries out the actions that follow.
    pub fn send(&mut self, event: Event) -> Result<(), Rejected> {
        self.events.push((self.now, Told::Event(event.clone())));
        let result = self.sched.handle(self.now, event.clone());
        let is_late = matches!(&event, Event::JobFinished { job, .. } if self.monitor.stopping.contains_key(job));
        if result.is_ok() || is_late {
            self.monitor.record_event(self.now, &event);
        }
        self.poll();
        result
    }

    fn poll(&mut self) {
        while let Some(action) = self.sched.poll_action(self.now) {
            self.monitor.record_action(self.now, &action);
            self.actions.push((self.now, action));
        }
        if !self.slow_stops
            && let Some(&job) = self.monitor.stopping.keys().next()
        {
            self.send(Event::JobStopped { job }).expect("it was told to stop");
        }
        self.monitor.check_settled();
        let kept_materials: BTreeSet<MaterialId> = self.kept().into_iter().collect();
        assert_eq!(&kept_materials, self.monitor.kept(), "what is kept");
        let window = if self.header.config.batch_share < 1.0 {
            ((f64::from(self.sched.capacity().cores) * self.header.config.batch_share) as u32).max(1)
        } else {
            u32::MAX
        };
        let mut threads: BTreeMap<RequestId, u32> = BTreeMap::new();
        for (job, (start, _)) in &self.monitor.running {
            if let Some(input) = self.sched.job_input(*job) {
                *threads.entry(input.request).or_default() += self.monitor.takes(start).cores;
            }
        }
        // The share holds only on a machine of fixed size: jobs that run when it shrinks continue, and so do
        // announced T_pre and adopted refills that started before their request.
        let is_fixed_machine =
            !self.events.iter().any(|(_, e)| matches!(e, Told::Event(Event::Capacity(_) | Event::Notice(_))));
        if is_fixed_machine && self.header.config.pool.is_none() {
            assert!(threads.values().all(|&t| t <= window), "a batch holds more than its share: {threads:?}");
        }
    }

    /// Lets time pass, waking the scheduler when it asks.
    pub fn advance(&mut self, span: Span) {
        let until = self.now + span;
        while let Some(wake) = self.sched.next_wakeup().filter(|w| *w <= until) {
            assert!(wake >= self.now, "a wake-up in the past");
            self.now = wake;
            self.poll();
        }
        self.now = until;
        self.poll();
    }

    fn running_job(&self, pick: usize) -> Option<JobId> {
        let jobs: Vec<JobId> = self.monitor.running.keys().copied().collect();
        choose(&jobs, pick)
    }

    /// Makes a name that was never used before, whose order does not follow age. Names start at 1000; found
    /// material may have any name below 1100.
    fn new_material(&mut self) -> MaterialId {
        loop {
            self.materials += 1;
            let name = MaterialId::numbered(1000 + (self.materials ^ 5));
            if !self.monitor.knows(name) {
                return name;
            }
        }
    }

    pub fn finish(&mut self, job: JobId, percent: u64) {
        let (start, _) = self.monitor.running[&job].clone();
        let time = Span(start.estimate.0 / 100 * percent);
        let usage = Usage { time, peak_memory: start.memory };
        let material = (start.phase == JobPhase::Pre).then(|| self.new_material());
        self.send(Event::JobFinished { job, usage, material }).expect("the end of a running job is accepted");
    }

    pub fn set_policy(&mut self, policy: PolicySpec) {
        self.events.push((self.now, Told::Policy(policy.clone())));
        self.sched.set_policy(policy);
        self.poll();
    }

    fn place(&self, model: usize) -> ModelId {
        self.places[model % self.places.len()]
    }

    fn play_arrival(&mut self, op: &Op) {
        self.next += 1;
        match op.clone() {
            Op::Request { client, model, inputs, notice, timeout, deadline, lanes, kept } => {
                let deadlines = [DeadlineClass::Interactive, DeadlineClass::Normal, DeadlineClass::Batch];
                let (client, model) = (ClientId::numbered(client), self.place(model));
                let request = Request {
                    id: RequestId(self.next),
                    client,
                    model,
                    inputs,
                    notice: notice.and_then(|pick| choose(&self.notices, pick)),
                    timeout: timeout.map(Span::from_millis),
                    deadline: deadlines[deadline as usize],
                    materials: self.sched.kept(client, model).take(kept).collect(),
                    lanes,
                };
                let _ = self.send(Event::Request(request));
            }
            Op::Notice { client, model, inputs, lanes, keep, life } => {
                let id = NoticeId(self.next);
                let (client, model) = (ClientId::numbered(client), self.place(model));
                let expected = life.map(|(expected, _)| Span::from_secs(expected as f64));
                let ttl = life.map(|(_, ttl)| Span::from_secs(ttl as f64));
                let notice = AdvanceNotice { lanes, keep, expected, ttl, ..announce(id, client, model, inputs) };
                if self.send(Event::Notice(notice)).is_ok() {
                    self.notices.push(id);
                }
            }
            _ => {}
        }
    }

    fn play_job(&mut self, op: &Op) {
        match *op {
            Op::Finish { pick, percent } => {
                if let Some(job) = self.running_job(pick) {
                    self.finish(job, percent);
                }
            }
            Op::NotStarted { pick, lanes } => {
                let Some(job) = self.running_job(pick) else { return };
                if let Some(input) = self.sched.job_input(job).filter(|_| lanes == 0) {
                    self.send(Event::Lanes { of: Owner::Request(input.request), lanes }).expect("a request that lives");
                }
                self.send(Event::JobNotStarted { job }).expect("a running job may turn out not to have started");
            }
            Op::Fail(pick) => {
                if let Some(job) = self.running_job(pick) {
                    self.send(Event::JobFailed { job }).expect("the failure of a running job is accepted");
                }
            }
            Op::Stopped { pick, how } => {
                let stopping: Vec<_> = self.monitor.stopping.iter().map(|(job, start)| (*job, start.phase)).collect();
                let Some((job, phase)) = choose(&stopping, pick) else { return };
                let usage = Usage { time: Span::from_secs(1.0), peak_memory: 5 };
                let material = (phase == JobPhase::Pre).then(|| self.new_material());
                let (event, answer) = match how {
                    0 => (Event::JobStopped { job }, Ok(())),
                    1 => (Event::JobFailed { job }, Ok(())),
                    _ => {
                        let refused = if material.is_some() { Err(Rejected::JobNotRunning(job)) } else { Ok(()) };
                        (Event::JobFinished { job, usage, material }, refused)
                    }
                };
                assert_eq!(self.send(event), answer);
            }
            Op::StaleEnd(job) => {
                let job = JobId(job);
                if !self.monitor.running.contains_key(&job) && !self.monitor.stopping.contains_key(&job) {
                    let refused = self.send(Event::JobFailed { job });
                    assert!(refused.is_err(), "accepted the end of a job that does not run");
                }
                if !self.monitor.stopping.contains_key(&job) {
                    assert!(self.send(Event::JobStopped { job }).is_err(), "accepted a stop that was not asked for");
                }
            }
            _ => {}
        }
    }

    fn play_client(&mut self, op: &Op) {
        match *op {
            Op::Gone(client) => {
                let client = ClientId::numbered(client);
                let _ = self.send(Event::ClientGone { client });
                assert_eq!(self.monitor.unfinished_of(client), 0, "a client that left has open inputs");
            }
            Op::Revoke(client) => {
                let client = ClientId::numbered(client);
                let done = self.send(Event::ClientRevoked { client });
                assert_eq!(self.monitor.unfinished_of(client), 0, "a client that may not has open inputs");
                let kept = (0..self.models).flat_map(|model| self.sched.kept(client, ModelId(model))).count();
                assert!(kept == 0 || done.is_err(), "material is kept for a client that may not use it");
            }
            Op::Cancel(pick) => {
                if let Some(request) = choose(&self.monitor.open(), pick) {
                    self.send(Event::Cancel { request }).expect("an open request can be cancelled");
                }
            }
            Op::Lanes { request: true, pick, lanes } => {
                if let Some(request) = choose(&self.monitor.open(), pick) {
                    let owner = Owner::Request(request);
                    self.send(Event::Lanes { of: owner, lanes }).expect("an open request has lanes");
                }
            }
            Op::Lanes { request: false, pick, lanes } => {
                if let Some(notice) = choose(&self.notices, pick) {
                    let _ = self.send(Event::Lanes { of: Owner::Notice(notice), lanes });
                }
            }
            _ => {}
        }
    }

    fn play_material(&mut self, op: &Op) {
        match *op {
            Op::Found { material, model, client } => {
                let (material, model) = (MaterialId::numbered(material), self.place(model));
                let client = client.map(ClientId::numbered);
                // The ledger guarantees that found material is unused.
                if !self.monitor.is_gone(material) {
                    let _ = self.send(Event::MaterialFound { material, model, client });
                }
            }
            Op::Lose { pick, kept } => {
                let names = if kept { self.kept() } else { self.monitor.live() };
                if let Some(material) = choose(&names, pick) {
                    let result = self.send(Event::MaterialGone { material });
                    assert!(result.is_ok() || !kept || self.sched.is_stopped(), "what is kept can be gone");
                }
            }
            _ => {}
        }
    }

    fn play_model(&mut self, op: &Op) {
        match *op {
            Op::AddModel(model) => {
                let spec = models().swap_remove(model % models().len());
                if self.send(Event::ModelAdded(spec)).is_ok() {
                    self.places[model] = ModelId(self.models);
                    self.models += 1;
                }
            }
            Op::RemoveModel(model) => {
                let model = self.place(model);
                if self.send(Event::ModelRemoved { model }).is_ok() {
                    assert_eq!(self.count_kept(model), 0, "material is kept for a model that is gone");
                }
            }
            Op::Demand { model, inputs } => {
                let _ = self.send(Event::Demand { model: self.place(model), inputs });
            }
            _ => {}
        }
    }

    fn count_kept(&self, model: ModelId) -> usize {
        (0..5).flat_map(|client| self.sched.kept(ClientId::numbered(client), model)).count()
    }

    pub fn play(&mut self, op: &Op) {
        match *op {
            Op::Request { .. } | Op::Notice { .. } => self.play_arrival(op),
            Op::Finish { .. } | Op::Fail(_) | Op::NotStarted { .. } | Op::Stopped { .. } | Op::StaleEnd(_) => {
                self.play_job(op)
            }
            Op::Gone(_) | Op::Revoke(_) | Op::Cancel(_) | Op::Lanes { .. } => self.play_client(op),
            Op::Found { .. } | Op::Lose { .. } => self.play_material(op),
            Op::AddModel(_) | Op::RemoveModel(_) | Op::Demand { .. } => self.play_model(op),
            Op::Capacity { cores, memory } => {
                let _ = self.send(Event::Capacity(Resources { cores, memory, disk: 200, dealings: cores / 2 }));
            }
            Op::Advance(ms) => self.advance(Span::from_millis(ms)),
            Op::Policy(pick) => {
                let policies = [
                    "fcfs",
                    "priority",
                    "sequential",
                    "srt",
                    "adaptive",
                    "priority+fair",
                    "ss26:fcfs",
                    "ss26:priority+exclusive",
                ];
                self.set_policy(policies[pick % policies.len()].parse().expect("a policy's name"));
            }
            Op::Shutdown(now) => {
                let how = if now { Shutdown::Now } else { Shutdown::Drain };
                let _ = self.send(Event::Shutdown(how));
            }
        }
    }

    /// Finishes everything that runs until nothing is left, then checks that nothing leaked.
    pub fn wind_down(&mut self) {
        self.slow_stops = false;
        let dealings = self.header.config.capacity.dealings;
        let _ = self.send(Event::Capacity(Resources { cores: 4, memory: 200, disk: 200, dealings }));
        self.poll();
        for request in self.monitor.open() {
            let owner = Owner::Request(request);
            self.send(Event::Lanes { of: owner, lanes: 2 }).expect("an open request has lanes");
        }
        let mut rounds = 0;
        while !self.monitor.open().is_empty() {
            if let Some(job) = self.running_job(rounds) {
                self.finish(job, 100);
            } else {
                self.advance(Span::from_secs(1.0));
            }
            rounds += 1;
            assert!(rounds < 20_000, "requests {:?} never end", self.monitor.open());
        }
        let _ = self.send(Event::Shutdown(Shutdown::Drain));
        while let Some(job) = self.running_job(0) {
            self.finish(job, 100);
        }
        assert!(self.sched.is_stopped(), "drained but not stopped");
        assert!(self.monitor.is_stopped(), "drained but not stopped");
        let used = self.sched.used();
        let material_count = (self.sched.stock() + self.kept().len()) as u64;
        let nothing = Resources { disk: 10 * material_count, ..Resources::default() };
        assert_eq!(used, nothing, "leaked resources");
        assert_eq!(self.sched.queued_jobs(), 0);
        assert_eq!(self.sched.next_wakeup(), None, "leaked a timer");
        self.sched.audit().unwrap();
    }

    /// All kept material.
    pub fn kept(&self) -> Vec<MaterialId> {
        let clients_and_models = (0..5).flat_map(|client| (0..self.models).map(move |model| (client, model)));
        clients_and_models
            .flat_map(|(client, model)| self.sched.kept(ClientId::numbered(client), ModelId(model)))
            .collect()
    }

    pub fn replay(&self) -> Replay {
        Replay { header: self.header.clone(), events: self.events.clone(), actions: self.actions.clone() }
    }
}
