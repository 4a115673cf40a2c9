//! Nanoseconds for a dealt gate: at the dealer, and at both parties together.
//!
//! `cargo run --release -p tacit-mpc --example dealt_cost`

use std::time::Instant;

use tacit_arith::prg::{Prg, Seed};
use tacit_mpc::dealt::{ClientShares, DealtGate, Exchanges, Value, client_online, deal, server_online};
use tacit_mpc::{Role, Session, run_pair};

const GATES: usize = 1 << 18;

/// Wall seconds of `work`.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_secs_f64(), result)
}

fn main() {
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("the first pool of the process");
    let prg = |byte: u8| Prg::from_seed(Seed([byte; 16]));
    println!("ring -> result  exchanges  bytes   deal  client+server, ns a gate (both parties on one core each)");
    for (width, wide, exchanges) in
        [(12, 24), (24, 24), (24, 36)].into_iter().flat_map(|(n, w)| [(n, w, Exchanges::One), (n, w, Exchanges::Two)])
    {
        let gate = DealtGate::new(GATES, width, 0, vec![Value::Tested { wide }], exchanges);
        let (mut c, mut s) = (vec![0; GATES], vec![0; GATES]);
        prg(1).fill_u64(&mut c);
        prg(2).fill_u64(&mut s);
        [&mut c, &mut s].into_iter().flatten().for_each(|v| *v &= (1 << width) - 1);
        let mut material = Vec::new();
        let (dealt, _) = timed(|| {
            deal(&gate, (&c, &[]), [&prg(3), &prg(4)], &mut |bytes| {
                material.extend_from_slice(bytes);
                Ok::<_, std::convert::Infallible>(())
            })
        });
        let target = vec![0; GATES];
        let (both, _) = timed(|| {
            run_pair(
                |channel| {
                    let mut session = Session { role: Role::Client, channel, prg: &mut prg(5) };
                    let shares = ClientShares { tested: &c, values: &[&[]], bases: &[], targets: &[&target] };
                    client_online(&gate, shares, &prg(3), &mut session).expect("the client");
                    session.channel.flush().expect("the server listens");
                },
                |channel| {
                    let mut session = Session { role: Role::Server, channel, prg: &mut prg(6) };
                    server_online(&gate, (&s, &[&[]], &[]), (&prg(4), &material), &mut session).expect("the server")
                },
            )
        });
        let per_gate = |seconds: f64| seconds * 1e9 / GATES as f64;
        let bytes = gate.bytes_per_gate();
        println!(
            "{width:>4} -> {wide:<6}  {exchanges:>9?}  {bytes:>5.1}  {:>5.0}  {:>13.0}",
            per_gate(dealt),
            per_gate(both)
        );
    }
}
