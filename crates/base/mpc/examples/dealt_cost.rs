//! Nanoseconds for a dealt gate, at the dealer and at each party (half of what both take); and for keys of
//! comparisons, with and without tags.
//!
//! `cargo run --release -p tacit-mpc --example dealt_cost`

use std::time::Instant;

use tacit_arith::block::Block;
use tacit_arith::prg::{Prg, PublicSeed, Seed};
use tacit_mpc::dealt::{
    ClientShares, DealtGate, DealtHalf, Exchanges, ServerShares, Value, client_online, deal, server_online,
};
use tacit_mpc::fss::delta::Delta;
use tacit_mpc::fss::tree_hash::{Place, TreeHash};
use tacit_mpc::fss::{Bound, compare, dpf};
use tacit_mpc::{Role, Session, run_pair};
use tacit_net::Sides;

const GATES: usize = 1 << 18;
const ROUNDS: usize = 7;
/// So many that the correction words come from memory, as they do in a network.
const KEYS: usize = 1 << 16;

/// Wall seconds of `work`.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_secs_f64(), result)
}

/// The middle one of some runs.
fn middle(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn main() {
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("the first pool of the process");
    println!(
        "ring -> result  exchanges  bytes   deal  a party, ns a gate (all on one thread; {ROUNDS} runs, the middle one)"
    );
    // Results of 2 bits, of the constant -1: the comparison alone.
    for (width, wide) in [(12, 24), (24, 24), (24, 36), (25, 2)] {
        for exchanges in [Exchanges::One, Exchanges::Two] {
            measure(width, wide, exchanges);
        }
    }
    println!("keys for 24 bits              deal     eval");
    keys("early-terminated (dpf)", |alphas, points| {
        let shape = dpf::Shape::new(24).expect("24 bits");
        let deal = || dpf::deal(&mut hash(), PLACE, shape, alphas, &mut prg(5), &mut prg(6));
        let (dealt, words) = timed(deal);
        let keys = dpf::Keys::new(Role::Server, shape, alphas.len(), &mut prg(6), words).expect("keys");
        [dealt, timed(|| keys.eval(&mut hash(), PLACE, points, Bound::Below)).0]
    });
    keys("authenticated (compare)", |alphas, points| {
        let shape = compare::Shape::new(24).expect("24 bits");
        let deal = || compare::deal(&mut hash(), PLACE, shape, &Delta::draw(&mut prg(2)), alphas, &mut prg(5));
        let (dealt, words) = timed(deal);
        let keys = compare::Keys::new(shape, alphas.len(), words.tops, words.corrections).expect("keys");
        let mut out = vec![Block::ZERO; alphas.len()];
        [dealt, timed(|| keys.eval(&mut hash(), PLACE, points, Bound::Below, &mut out)).0]
    });
}

const PLACE: Place = Place { batch: 0, group: 0 };

fn prg(byte: u8) -> Prg {
    Prg::from_seed(Seed([byte; 16]))
}

fn hash() -> TreeHash {
    TreeHash::new(PublicSeed::from_bytes([1; 16]))
}

/// What `run` takes for random keys and points: dealing, and evaluating.
fn keys(name: &str, run: impl Fn(&[u64], &[u64]) -> [f64; 2]) {
    let [alphas, points] = [3, 4].map(|byte| {
        let mut out = vec![0; KEYS];
        prg(byte).fill_u64(&mut out);
        out.iter().map(|x| x >> 40).collect::<Vec<u64>>()
    });
    let runs: Vec<[f64; 2]> = (0..ROUNDS).map(|_| run(&alphas, &points)).collect();
    let [dealt, eval] = [0, 1].map(|i| middle(runs.iter().map(|run| run[i]).collect()) * 1e9 / KEYS as f64);
    println!("{name:<24}  {dealt:>8.0} {eval:>8.0}");
}

fn measure(width: u32, wide: u32, exchanges: Exchanges) {
    let value = if wide > 2 { Value::Tested { wide } } else { Value::MinusOne { width: wide } };
    let gate = DealtGate::new(GATES, width, 0, vec![value], exchanges);
    let (mut c, mut s) = (vec![0; GATES], vec![0; GATES]);
    prg(1).fill_u64(&mut c);
    prg(2).fill_u64(&mut s);
    [&mut c, &mut s].into_iter().flatten().for_each(|v| *v &= (1 << width) - 1);
    let (mut material, mut dealing, mut online) = (Vec::new(), Vec::new(), Vec::new());
    let target = vec![0; GATES];
    for _ in 0..ROUNDS {
        material.clear();
        let sink = &mut |bytes: &[u8]| {
            material.extend_from_slice(bytes);
            Ok::<_, std::convert::Infallible>(())
        };
        let (client, server) = (prg(3), prg(4));
        let streams = Sides { client: &client, server: &server };
        dealing.push(timed(|| deal(&gate, &c, &[], streams, sink)).0);
        let make_both = || {
            run_pair(
                |channel| {
                    let mut session = Session { role: Role::Client, channel, prg: &mut prg(5) };
                    let shares = ClientShares { tested: &c, values: &[&[]], bases: &[], targets: &[&target] };
                    client_online(&gate, shares, &prg(3), &mut session).expect("the client");
                    session.channel.flush().expect("the server listens");
                },
                |channel| {
                    let mut session = Session { role: Role::Server, channel, prg: &mut prg(6) };
                    let shares = ServerShares { tested: &s, values: &[&[]], bases: &[] };
                    let half = DealtHalf { prg: &prg(4), bytes: &material };
                    server_online(&gate, shares, half, &mut session).expect("the server")
                },
            )
        };
        online.push(timed(make_both).0 / 2.0);
    }
    let [dealt, party] = [dealing, online].map(|seconds| middle(seconds) * 1e9 / GATES as f64);
    let bytes = gate.bytes_per_gate();
    println!("{width:>4} -> {wide:<6}  {exchanges:>9?}  {bytes:>5.1}  {dealt:>5.0}  {party:>7.0}");
}
