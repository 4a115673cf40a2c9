//! Cost of one event and the actions that follow, with n jobs queued on 96 cores. The claim: at most 10
//! microseconds on average at n = 100,000, growing like log n.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;
use tacit_sched::policy::PolicySpec;
use tacit_sched::profile::{Sample, Speedup};
use tacit_sched::{
    Action, BoundTo, ClientId, Config, Event, JobId, JobPhase, MaterialId, ModelId, ModelSpec, PhaseSpec, Request,
    RequestId, Resources, Scheduler, Span, Time, Usage,
};

const MODELS: u32 = 10;

struct Machine {
    scheduler: Scheduler<PolicySpec>,
    running: VecDeque<(JobId, Span, Option<MaterialId>)>,
    now: Time,
    next: u64,
    rng: fastrand::Rng,
    /// Requests that ended and are not replaced yet.
    owed: usize,
}

impl Machine {
    fn new(policy: &str, queued: usize) -> Self {
        let phase = |secs: f64, memory| PhaseSpec {
            first: Sample { time: Span::from_secs(secs), memory },
            speedup: Speedup::Amdahl(0.95),
        };
        let models = (0..MODELS).map(|i| ModelSpec {
            name: format!("m{i}"),
            backend: "bench".into(),
            link: "loopback".into(),
            binding: BoundTo::Client,
            material_bytes: 1,
            dealt: false,
            pre: Some(phase(f64::from(i) + 1.0, 1 << 20)),
            on: phase(f64::from(i) * 0.5 + 0.5, 1 << 21),
        });
        let mut config = Config::new(Resources { cores: 96, memory: 1 << 40, disk: 1 << 50, dealings: 0 });
        config.max_queued = u32::MAX;
        let scheduler = Scheduler::new(config, models.collect(), policy.parse().expect("a known policy"))
            .expect("a valid configuration");
        let rng = fastrand::Rng::with_seed(0);
        let mut machine = Self { scheduler, running: VecDeque::new(), now: Time::ZERO, next: 0, rng, owed: 0 };
        for _ in 0..queued + 96 {
            machine.request();
        }
        // Reach the steady mix of both phases before measuring.
        for _ in 0..1000 {
            machine.step();
        }
        machine
    }

    fn send(&mut self, event: Event) {
        self.now = self.now + Span::from_millis(1);
        self.scheduler.handle(self.now, event).expect("the event makes sense");
        while let Some(action) = self.scheduler.poll_action(self.now) {
            match action {
                Action::Start(start) => {
                    // A fresh name, whose order says nothing about age, as a server's random ones.
                    let material = (start.phase == JobPhase::Pre).then(|| MaterialId::numbered(self.rng.u64(..)));
                    self.running.push_back((start.job, start.estimate, material));
                }
                Action::Report(_) => self.owed += 1,
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    fn request(&mut self) {
        let id = self.next;
        self.next += 1;
        let model = self.rng.u32(..MODELS);
        let client = ClientId::numbered(id % 1000);
        self.send(Event::Request(Request::plain(RequestId(id), client, ModelId(model), 1)));
    }

    /// One event: a request in place of one that ended, else the end of a job.
    fn step(&mut self) {
        if self.owed > 0 {
            self.owed -= 1;
            return self.request();
        }
        let (job, estimate, material) = self.running.pop_front().expect("the machine is full");
        // A spread of 5 %, so that estimates move as they do in practice.
        let time = estimate.scaled(0.95 + 0.1 * self.rng.f64());
        self.send(Event::JobFinished { job, usage: Usage { time, peak_memory: 1 << 20 }, material });
    }
}

fn event(c: &mut Criterion) {
    let mut group = c.benchmark_group("event_and_actions");
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).sample_size(20);
    for policy in ["priority", "adaptive"] {
        for queued in [1_000, 10_000, 100_000, 1_000_000] {
            let mut machine = Machine::new(policy, queued);
            group.bench_with_input(BenchmarkId::new(policy, queued), &queued, |b, _| {
                b.iter(|| {
                    machine.step();
                    black_box(&machine.scheduler);
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, event);
criterion_main!(benches);
