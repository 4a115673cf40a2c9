//! Gates per second of a pair of parties, on one thread each: the ReLU of a convolution of SqueezeNet at
//! default scales, and at 12 fraction bits. `cargo bench -p tacit-mpc --bench gate`; offline includes the
//! random OTs, of which the rate is printed apart, since they are most of it.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rayon::{ThreadPool, ThreadPoolBuilder};
use tacit_arith::prg::Prg;
use tacit_mpc::gate::{ClientGate, GateSpec, Leaves, ServerGate, Widening};
use tacit_mpc::{Ots, Role, Session, run_pair};
use tacit_net::Channel;

/// Gates of a batch.
const N: usize = 1 << 17;

struct Party {
    role: Role,
    prg: Prg,
    pool: ThreadPool,
}

impl Party {
    fn new(role: Role) -> Self {
        let pool = ThreadPoolBuilder::new().num_threads(1).build().expect("a pool of one thread");
        Self { role, prg: Prg::from_os().expect("randomness"), pool }
    }

    /// On one thread, as a session of the phase.
    fn run<T: Send>(&mut self, channel: &mut Channel, phase: impl FnOnce(&mut Session<'_>) -> T + Send) -> T {
        let Self { role, prg, pool } = self;
        pool.install(|| {
            let mut session = Session { role: *role, channel, prg };
            let result = phase(&mut session);
            session.channel.flush().expect("the peer listens");
            result
        })
    }
}

/// Both parties with their OTs.
struct Pair {
    client: Party,
    server: Party,
    ots: [Ots; 2],
}

impl Pair {
    fn new(spec: &GateSpec) -> Self {
        let (mut client, mut server) = (Party::new(Role::Client), Party::new(Role::Server));
        let cost = spec.cost();
        // As many as a network of a few million gates takes.
        let setup = |s: &mut Session<'_>| {
            let mut ots = Ots::setup(s).expect("setup");
            ots.reserve(s.role, 32 * cost.client_rots, 32 * cost.server_rots);
            ots
        };
        let ots = run_pair(|ch| client.run(ch, setup), |ch| server.run(ch, setup));
        Self { client, server, ots: ots.into() }
    }

    fn offline(&mut self, spec: &GateSpec, share: &[u64]) -> (ClientGate, ServerGate) {
        let Self { client, server, ots: [client_ots, server_ots] } = self;
        let gate =
            |s: &mut Session<'_>| ClientGate::offline(spec, share, &[share], &[share], s, client_ots).expect("gate");
        run_pair(
            |ch| client.run(ch, gate),
            |ch| server.run(ch, |s| ServerGate::offline(spec, s, server_ots).expect("gate")),
        )
    }

    fn online(&mut self, spec: &GateSpec, share: &[u64], client_gate: ClientGate, server_gate: ServerGate) {
        let Self { client, server, .. } = self;
        let (_, shares) = run_pair(
            |ch| client.run(ch, |s| client_gate.online(spec, share, &[share], &[], &[share], s).expect("gate")),
            |ch| server.run(ch, |s| server_gate.online(spec, share, &[share], &[], s).expect("gate")),
        );
        black_box(shares);
    }
}

fn bench(c: &mut Criterion) {
    for (name, width, wide) in [("default scales", 13, 17), ("12 fraction bits", 20, 26)] {
        let spec = GateSpec::widening(N, width, 0, Leaves::Weighed(6), wide, Widening::OnTheWay);
        let share: Vec<u64> = (0..N as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - width)).collect();
        let cost = spec.cost();
        let of_one = |count: usize| count as f64 / N as f64;
        println!(
            "gate, {name}: {:.1} OTs, offline {:.1} bytes, online {:.1} bytes and {} round trips",
            of_one(cost.client_rots + cost.server_rots),
            of_one(cost.offline_up + cost.offline_down),
            of_one(cost.online_up + cost.online_down),
            cost.exchanges,
        );
        let mut pair = Pair::new(&spec);
        // The OTs grow to their set before anything is measured.
        for _ in 0..8 {
            pair.offline(&spec, &share);
        }
        let mut group = c.benchmark_group(format!("gate, {name}"));
        group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(4));
        group.throughput(Throughput::Elements(N as u64));
        group.bench_function("offline", |b| b.iter(|| black_box(pair.offline(&spec, &share))));
        // One run uses up a batch's material: another pair makes it.
        let mut makers = Pair::new(&spec);
        group.bench_function("online", |b| {
            b.iter_batched(
                || makers.offline(&spec, &share),
                |(client, server)| pair.online(&spec, &share, client, server),
                BatchSize::PerIteration,
            )
        });
        group.throughput(Throughput::Elements((cost.client_rots + cost.server_rots) as u64));
        let Pair { client, server, ots: [client_ots, server_ots] } = &mut pair;
        group.bench_function("its random OTs", |b| {
            b.iter(|| {
                run_pair(
                    |ch| {
                        client.run(ch, |s| {
                            drop(black_box(client_ots.sender.planes(s.channel, cost.server_rots, 1).expect("OTs")));
                            drop(black_box(client_ots.receiver.planes(s.channel, cost.client_rots, 1).expect("OTs")));
                        });
                    },
                    |ch| {
                        server.run(ch, |s| {
                            drop(black_box(server_ots.receiver.planes(s.channel, cost.server_rots, 1).expect("OTs")));
                            drop(black_box(server_ots.sender.planes(s.channel, cost.client_rots, 1).expect("OTs")));
                        });
                    },
                )
            })
        });
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
