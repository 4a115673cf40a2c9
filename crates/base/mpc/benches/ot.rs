//! Random OTs per second of one party on one thread, both parties running at the same time on a thread each.
//! `cargo bench -p tacit-mpc --bench ot`; the reported throughput is that of the slower party.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tacit_arith::prg::Prg;
use tacit_mpc::ot::{Ot, RandomOtReceiver, RandomOtSender, RotReceiver, RotSender, setup};
use tacit_mpc::{Role, run_pair};

const N: usize = 1 << 21;

type Parties = (Ot<RotSender, RotReceiver>, Ot<RotSender, RotReceiver>);

fn parties() -> Parties {
    let party = |role| move |ch: &mut _| setup(role, ch, &mut Prg::from_os().unwrap()).unwrap();
    run_pair(party(Role::Client), party(Role::Server))
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("rot");
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    group.bench_function("setup, both directions", |b| b.iter(parties));
    group.throughput(Throughput::Elements(N as u64));
    let (mut client, mut server) = parties();
    client.sender.reserve(1 << 30);
    server.receiver.reserve(1 << 30);
    for k in [2, 8] {
        group.bench_function(format!("planes({k})"), |b| {
            b.iter(|| {
                run_pair(
                    |ch| drop(black_box(client.sender.planes(ch, N, k).unwrap())),
                    |ch| drop(black_box(server.receiver.planes(ch, N, k).unwrap())),
                )
            })
        });
    }
    group.bench_function("words", |b| {
        b.iter(|| {
            run_pair(
                |ch| drop(black_box(client.sender.words(ch, N).unwrap())),
                |ch| drop(black_box(server.receiver.words(ch, N).unwrap())),
            )
        })
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
