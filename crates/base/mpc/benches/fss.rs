//! Nanoseconds per key, dealer and party, on one thread.
//! `cargo bench -p tacit-mpc --bench fss`; throughput is in keys, opened bits or opened values.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use tacit_arith::bits::Bits;
use tacit_arith::block::Block;
use tacit_arith::prg::{Prg, PublicSeed, Seed};
use tacit_mpc::Role;
use tacit_mpc::fss::delta::{Delta, DeltaShare};
use tacit_mpc::fss::mac::{bits::BitCheck, ring};
use tacit_mpc::fss::table::{self, Table};
use tacit_mpc::fss::tree_hash::{Place, TreeHash};
use tacit_mpc::fss::{Bound, compare, dpf};
use zeroize::Zeroizing;

/// Keys per batch: the correction words (23 MB at 24 bits) exceed the caches, as in a real network.
const N: usize = 1 << 16;
const PLACE: Place = Place { batch: 0, group: 0 };

type Group<'a> = BenchmarkGroup<'a, WallTime>;

fn prg(seed: u8) -> Prg {
    Prg::from_seed(Seed([seed; 16]))
}

fn hash() -> TreeHash {
    TreeHash::new(PublicSeed::from_bytes([1; 16]))
}

fn numbers(seed: u8, n: usize, bits: u32) -> Vec<u64> {
    let mut out = vec![0; n];
    prg(seed).fill_u64(&mut out);
    out.iter_mut().for_each(|x| *x >>= 64 - bits);
    out
}

fn comparisons(group: &mut Group) {
    group.throughput(Throughput::Elements(N as u64));
    let delta = Delta::draw(&mut prg(2));
    for bits in [12, 24, 36] {
        let shape = compare::Shape::new(bits).unwrap();
        let (alphas, points) = (numbers(3, N, bits), numbers(4, N, bits));
        let deal = || compare::deal(&mut hash(), PLACE, shape, &delta, &alphas, &mut prg(5));
        group.bench_function(format!("compare {bits} bits, deal"), |b| b.iter(|| drop(black_box(deal()))));
        let dealt = deal();
        let keys = compare::Keys::new(shape, N, dealt.tops, dealt.corrections).unwrap();
        let mut out = vec![Block::ZERO; N];
        group.bench_function(format!("compare {bits} bits, eval"), |b| {
            b.iter(|| keys.eval(&mut hash(), PLACE, black_box(&points), Bound::Below, &mut out))
        });
    }
    for bits in [12, 24] {
        let shape = dpf::Shape::new(bits).unwrap();
        let (alphas, points) = (numbers(3, N, bits), numbers(4, N, bits));
        let deal = || dpf::deal(&mut hash(), PLACE, shape, &alphas, &mut prg(5), &mut prg(6));
        group.bench_function(format!("dpf {bits} bits, deal"), |b| b.iter(|| drop(black_box(deal()))));
        let keys = dpf::Keys::new(Role::Server, shape, N, &mut prg(6), deal()).unwrap();
        group.bench_function(format!("dpf {bits} bits, eval"), |b| {
            b.iter(|| drop(black_box(keys.eval(&mut hash(), PLACE, black_box(&points), Bound::Below))))
        });
    }
}

fn tables(group: &mut Group) {
    for bits in [8, 12] {
        let n = 1 << 10;
        group.throughput(Throughput::Elements(n as u64));
        let (alphas, points) = (numbers(3, n, bits), numbers(4, n, bits));
        let function = Table::new(bits, 12, numbers(7, 1 << bits, 12)).unwrap();
        let shape = dpf::Shape::new(bits).unwrap();
        let dealt = dpf::deal(&mut hash(), PLACE, shape, &alphas, &mut prg(5), &mut prg(6));
        let keys = dpf::Keys::new(Role::Server, shape, n, &mut prg(6), dealt).unwrap();
        group.bench_function(format!("table {bits} to 12 bits, dpf"), |b| {
            b.iter(|| keys.look_up(&mut hash(), PLACE, &function, &points).unwrap())
        });
        let shape = compare::Shape::new(bits).unwrap();
        let dealt = compare::deal(&mut hash(), PLACE, shape, &Delta::draw(&mut prg(2)), &alphas, &mut prg(5));
        let keys = compare::Keys::new(shape, n, dealt.tops, dealt.corrections).unwrap();
        let mut out = vec![Block::ZERO; 12 * n];
        group.bench_function(format!("table {bits} to 12 bits, authenticated"), |b| {
            b.iter(|| table::look_up(&keys, &mut hash(), PLACE, &function, &points, &mut out).unwrap())
        });
    }
}

fn checks(group: &mut Group) {
    group.throughput(Throughput::Elements(N as u64));
    let mut tags = vec![Block::ZERO; N];
    prg(8).fill_blocks(&mut tags);
    let (opened, share) = (Bits::random(&mut prg(9), N), DeltaShare::draw(&mut prg(10)));
    group.bench_function("check of bits", |b| {
        b.iter(|| {
            let mut check = BitCheck::new(Role::Server, &[0; 32], &share);
            check.absorb(&tags, &opened);
            check.finish().own
        })
    });
    let ring = ring::Ring::new(24).unwrap();
    let key = ring::KeyShare::draw(&mut prg(11));
    let shares = Zeroizing::new(ring::draw_shares(ring, N, &mut prg(12)));
    let opened: Vec<u128> = numbers(13, N, 24).into_iter().map(u128::from).collect();
    group.bench_function("check of ring elements", |b| {
        b.iter(|| {
            let masks = ring::draw_masks(ring, &mut prg(14));
            let check = ring::Check::new(ring, &key, PublicSeed::from_bytes([3; 16]), &shares, &opened, masks);
            check.digest(Role::Server, &[0; 32], &[5; ring::ROWS]).unwrap()
        })
    });
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("fss");
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    comparisons(&mut group);
    tables(&mut group);
    checks(&mut group);
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
