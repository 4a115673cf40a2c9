//! Plays a random script against a scheduler, recording a replay.

use super::announce;
use super::monitor::Monitor;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tacit_sched::policy::PolicySpec;
use tacit_sched::replay::{Header, Replay};
use tacit_sched::{
    Action, ClientId, DeadlineClass, Event, JobId, JobPhase, MaterialId, ModelId, NoticeId, Rejected, Request,
    RequestId, Resources, Scheduler, Shutdown, Span, Time, Usage,
};

/// A step of a script. Picks are taken modulo what there is to pick from, so every script makes sense.
#[derive(Clone, Debug)]
pub enum Op {
    Request { client: u64, model: u32, inputs: u32, notice: Option<usize>, timeout: Option<u64>, deadline: u8 },
    Notice { client: u64, model: u32, inputs: u32 },
    Finish { pick: usize, percent: u64 },
    Fail { pick: usize },
    Gone { client: u64 },
    Cancel { pick: usize },
    Capacity { cores: u32, memory: u64 },
    Advance { ms: u64 },
    Found { material: u64, model: u32, client: Option<u64> },
    StaleEnd { job: u64 },
    Shutdown { now: bool },
}

pub fn op() -> impl Strategy<Value = Op> {
    let small_batch = prop_oneof![6 => Just(1u32), 3 => 2..4u32, 1 => 4..10u32];
    prop_oneof![
        8 => (0..4u64, 0..4u32, small_batch.clone(), prop::option::weighted(0.5, 0..64usize), prop::option::weighted(0.3, 0..60_000u64), 0..3u8)
            .prop_map(|(client, model, inputs, notice, timeout, deadline)| Op::Request { client, model, inputs, notice, timeout, deadline }),
        4 => (0..4u64, 0..3u32, small_batch).prop_map(|(client, model, inputs)| Op::Notice { client, model, inputs }),
        14 => (0..64usize, 50..200u64).prop_map(|(pick, percent)| Op::Finish { pick, percent }),
        2 => (0..64usize).prop_map(|pick| Op::Fail { pick }),
        1 => (0..5u64).prop_map(|client| Op::Gone { client }),
        1 => (0..64usize).prop_map(|pick| Op::Cancel { pick }),
        1 => (prop_oneof![4 => 1..7u32, 1 => Just(0u32)], prop_oneof![3 => 80..140u64, 1 => 30..80u64])
            .prop_map(|(cores, memory)| Op::Capacity { cores, memory }),
        4 => (0..8_000u64).prop_map(|ms| Op::Advance { ms }),
        1 => found(),
        1 => (0..400u64).prop_map(|job| Op::StaleEnd { job }),
    ]
}

/// Material from an earlier run; the last hundred names may be this run's own.
fn found() -> impl Strategy<Value = Op> {
    (0..1_100u64, 0..3u32, prop::option::of(0..4u64)).prop_map(|(material, model, client)| Op::Found {
        material,
        model,
        client,
    })
}

/// A script. It begins with material from an earlier run; one in four ends with a shutdown somewhere in its
/// second half.
pub fn script(len: usize) -> impl Strategy<Value = Vec<Op>> {
    let end = prop::option::weighted(0.25, (0..len / 2, any::<bool>()));
    let start = prop::collection::vec(found(), 0..8);
    (start, prop::collection::vec(op(), 1..len), end).prop_map(|(mut ops, then, end)| {
        ops.extend(then);
        if let Some((at, now)) = end {
            let at = ops.len() - at.min(ops.len());
            ops.insert(at, Op::Shutdown { now });
        }
        ops
    })
}

#[derive(Clone, Debug)]
pub struct Driver {
    pub sched: Scheduler<PolicySpec>,
    pub monitor: Monitor,
    pub now: Time,
    pub events: Vec<(Time, Event)>,
    pub actions: Vec<(Time, Action)>,
    /// Stopped jobs are left to the script.
    pub slow_stops: bool,
    /// Models so far.
    models: u32,
    header: Header,
    notices: BTreeMap<usize, NoticeId>,
    next: u64,
    /// Materials named so far.
    materials: u64,
}

impl Driver {
    pub fn new(header: Header) -> Self {
        let sched = Scheduler::new(header.config.clone(), header.models.clone(), header.policy.clone()).unwrap();
        let monitor = Monitor::new(header.config.capacity);
        let mut driver = Self {
            sched,
            monitor,
            now: Time::ZERO,
            events: Vec::new(),
            actions: Vec::new(),
            slow_stops: false,
            models: header.models.len() as u32,
            header,
            notices: BTreeMap::new(),
            next: 0,
            materials: 0,
        };
        driver.send(Event::Tick).unwrap();
        driver
    }

    /// Hands an event over and carries out what follows.
    pub fn send(&mut self, event: Event) -> Result<(), Rejected> {
        self.events.push((self.now, event.clone()));
        let result = self.sched.handle(self.now, event.clone());
        if result.is_ok() {
            self.monitor.event(self.now, &event);
        }
        self.poll();
        result
    }

    fn poll(&mut self) {
        while let Some(action) = self.sched.poll_action(self.now) {
            self.monitor.action(self.now, &action);
            self.actions.push((self.now, action));
        }
        if !self.slow_stops
            && let Some(&job) = self.monitor.stopping.keys().next()
        {
            self.send(Event::JobStopped { job }).expect("it was told to stop");
        }
        self.monitor.settled();
        let window = if self.header.config.batch_share < 1.0 {
            ((f64::from(self.sched.capacity().cores) * self.header.config.batch_share) as u32).max(1)
        } else {
            u32::MAX
        };
        let mut threads: BTreeMap<RequestId, u32> = BTreeMap::new();
        for (job, (start, _)) in &self.monitor.running {
            if let Some(input) = self.sched.job_input(*job) {
                *threads.entry(input.request).or_default() += start.threads;
            }
        }
        // Only a fixed machine promises the share: jobs that run when it shrinks go on, and so do announced
        // T_pre and adopted refills that ran before their request came.
        let plain = !self.events.iter().any(|(_, e)| matches!(e, Event::Capacity(_) | Event::Notice(_)));
        if plain && self.header.config.pool.is_none() {
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

    fn picked(&self, pick: usize) -> Option<JobId> {
        let n = self.monitor.running.len();
        self.monitor.running.keys().nth(pick % n.max(1)).copied()
    }

    /// A name that was never used before, whose order says nothing about age. From 1000 on: found material
    /// may have any name below 1100.
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

    fn play_request(&mut self, op: &Op) {
        let Op::Request { client, model, inputs, notice, timeout, deadline } = op.clone() else { return };
        self.next += 1;
        let deadline = [DeadlineClass::Interactive, DeadlineClass::Normal, DeadlineClass::Batch][deadline as usize];
        let request = Request {
            id: RequestId(self.next),
            client: ClientId::numbered(client),
            model: ModelId(model),
            inputs,
            notice: notice.and_then(|n| self.notices.get(&(n % self.notices.len().max(1))).copied()),
            timeout: timeout.map(Span::from_millis),
            deadline,
            materials: Vec::new(),
            lanes: None,
        };
        let _ = self.send(Event::Request(request));
    }

    pub fn play(&mut self, op: &Op) {
        match op.clone() {
            Op::Request { .. } => self.play_request(op),
            Op::Notice { client, model, inputs } => {
                self.next += 1;
                let id = NoticeId(self.next);
                let (client, model) = (ClientId::numbered(client), ModelId(model));
                if self.send(Event::Notice(announce(id, client, model, inputs))).is_ok() {
                    self.notices.insert(self.notices.len(), id);
                }
            }
            Op::Finish { pick, percent } => {
                if let Some(job) = self.picked(pick) {
                    self.finish(job, percent);
                }
            }
            Op::Fail { pick } => {
                if let Some(job) = self.picked(pick) {
                    self.send(Event::JobFailed { job }).expect("the failure of a running job is accepted");
                }
            }
            Op::Gone { client } => {
                let client = ClientId::numbered(client);
                let _ = self.send(Event::ClientRevoked { client });
                assert_eq!(self.monitor.unfinished_of(client), 0, "a client that left has open inputs");
            }
            Op::Cancel { pick } => {
                let open = self.monitor.open();
                if let Some(&request) = open.get(pick % open.len().max(1)) {
                    self.send(Event::Cancel { request }).expect("an open request can be cancelled");
                }
            }
            Op::Capacity { cores, memory } => {
                let _ = self.send(Event::Capacity(Resources { cores, memory, disk: 200 }));
            }
            Op::Advance { ms } => self.advance(Span::from_millis(ms)),
            Op::Found { material, model, client } => {
                let (material, model) = (MaterialId::numbered(material), ModelId(model));
                let client = client.map(ClientId::numbered);
                // That what is found is unused is the ledger's word.
                if !self.monitor.is_gone(material) {
                    let _ = self.send(Event::MaterialFound { material, model, client });
                }
            }
            Op::StaleEnd { job } => {
                if !self.monitor.running.contains_key(&JobId(job)) {
                    let refused = self.send(Event::JobFailed { job: JobId(job) });
                    assert!(refused.is_err(), "accepted the end of a job that does not run");
                }
            }
            Op::Shutdown { now } => {
                let how = if now { Shutdown::Now } else { Shutdown::Drain };
                let _ = self.send(Event::Shutdown(how));
            }
        }
    }

    /// Finishes everything that runs until nothing is left, then checks that nothing leaked.
    pub fn wind_down(&mut self) {
        let _ = self.send(Event::Capacity(Resources { cores: 4, memory: 200, disk: 200 }));
        let mut rounds = 0;
        while !self.monitor.open().is_empty() {
            if let Some(job) = self.picked(rounds) {
                self.finish(job, 100);
            } else {
                self.advance(Span::from_secs(1.0));
            }
            rounds += 1;
            assert!(rounds < 20_000, "requests {:?} never end", self.monitor.open());
        }
        let _ = self.send(Event::Shutdown(Shutdown::Drain));
        while let Some(job) = self.picked(0) {
            self.finish(job, 100);
        }
        assert!(self.sched.stopped() && self.monitor.is_stopped(), "drained but not stopped");
        let used = self.sched.used();
        let left = (self.sched.stock() + self.kept().len()) as u64;
        assert_eq!((used.cores, used.memory, used.disk), (0, 0, 10 * left), "leaked resources");
        assert_eq!(self.sched.queued_jobs(), 0);
        assert_eq!(self.sched.next_wakeup(), None, "leaked a timer");
        self.sched.audit().unwrap();
    }

    /// All kept material.
    pub fn kept(&self) -> Vec<MaterialId> {
        let whose = (0..5).flat_map(|client| (0..self.models).map(move |model| (client, model)));
        whose.flat_map(|(client, model)| self.sched.kept(ClientId::numbered(client), ModelId(model))).collect()
    }

    pub fn replay(&self) -> Replay {
        Replay { header: self.header.clone(), events: self.events.clone(), actions: self.actions.clone() }
    }
}
