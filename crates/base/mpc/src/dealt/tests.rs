//! Gates between two parties, and the distribution of the dealer's halves.

use super::*;
use crate::gate::{WrapSpec, slices};
use crate::low_mask;
use crate::session::run_sessions;
use crate::tests::{
    Relu, add, assert_sent, assert_uniform, bit_frequencies, check_picked, check_widened, collect, prg, random, spread,
    subtract, widening_inputs,
};
use proptest::prelude::*;
use tacit_arith::prg::Prg;
use tacit_net::Sides;

const EXCHANGES: [Exchanges; 2] = [Exchanges::One, Exchanges::Two];

fn deal_material(gate: &DealtGate, c: &[u64], values: &[&[u64]], streams: Sides<&Prg>) -> Vec<u8> {
    collect(|sink| deal(gate, c, values, streams, sink))
}

/// Runs a gate on `y` shared with `c`; returns the results in the clear.
fn run(gate: &DealtGate, y: &[u64], c: &[u64], others: &[(Vec<u64>, Vec<u64>)], base: Sides<u64>) -> Vec<Vec<u64>> {
    let (n, cost) = (gate.n(), gate.cost());
    let s = subtract(y, c, gate.width);
    let mut other_values = others.iter();
    // Shares by value; shares that the gate ignores are empty.
    let shares = gate.values().iter().map(|value| match value {
        Value::Other { width } => {
            let (x, cx) = other_values.next().expect("a value and its share for each other");
            (cx.clone(), subtract(x, cx, *width))
        }
        _ => Default::default(),
    });
    let (client_shares, server_shares): (Vec<Vec<u64>>, Vec<Vec<u64>>) = shares.unzip();
    let (client_shares, server_shares) = (slices(&client_shares), slices(&server_shares));
    let (client, server) = (prg(3), prg(4));
    let streams = Sides { client: &client, server: &server };
    let material = deal_material(gate, c, &client_shares, streams);
    assert_eq!(material.len(), cost.material);
    assert_eq!(material, deal_material(gate, c, &client_shares, streams), "dealing is deterministic");
    let targets: Vec<Vec<u64>> = gate.values().iter().map(|v| spread(n, v.width())).collect();
    let (client_base, server_base) = (vec![base.client; n], vec![base.server; n]);
    let target_slices = slices(&targets);
    let (traffic, (shares, answered)) = run_sessions(
        1,
        |session, _| {
            let shares =
                ClientShares { tested: c, values: &client_shares, bases: &[&client_base], targets: &target_slices };
            client_online(gate, shares, &client, session).expect("the client");
            session.channel.flush().expect("flushed");
            session.channel.total_traffic()
        },
        |session, _| {
            let bases: [&[u64]; 1] = [&server_base];
            let shares = ServerShares { tested: &s, values: &server_shares, bases: &bases };
            let half = DealtHalf { prg: &server, bytes: &material };
            let shares = server_online(gate, shares, half, session).expect("the server");
            (shares, session.channel.total_traffic())
        },
    );
    assert_sent(traffic.sent, cost.up, 64);
    assert_sent(answered.sent, cost.down, 64);
    shares.iter().zip(&targets).zip(gate.values()).map(|((s, r), v)| add(s, r, v.width())).collect()
}

fn relu_gate(relu: Relu, n: usize, exchanges: Exchanges) -> DealtGate {
    DealtGate::new(n, relu.width, relu.drop, vec![Value::Tested { wide: relu.wide }], exchanges)
}

fn check_relu(relu: Relu, gate: &DealtGate, y: &[u64], c: &[u64]) {
    relu.check(12, y, c, &run(gate, y, c, &[], Sides { client: 5, server: 7 })[0]);
}

#[test]
fn relu_is_right_for_every_value_and_share_of_small_rings() {
    for exchanges in EXCHANGES {
        for relu in Relu::small(7, 3) {
            let (y, c) = relu.all_inputs();
            check_relu(relu, &relu_gate(relu, y.len(), exchanges), &y, &c);
        }
    }
}

#[test]
fn every_cut_into_digits_computes_the_same() {
    let y: Vec<u64> = (0..300u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51).collect();
    let y: Vec<u64> = y.into_iter().map(|v| if v == 1 << 12 { 0 } else { v }).collect();
    let c: Vec<u64> = (0..300u64).map(|i| i.wrapping_mul(0xd1b5_4a32_d192_ed03) >> 51).collect();
    let relu = Relu { width: 13, wide: 20, drop: 0 };
    for exchanges in EXCHANGES {
        for digits in
            [vec![12], vec![6, 6], vec![4, 4, 4], vec![3, 3, 3, 3], vec![1, 5, 6], vec![3, 3, 2, 2, 2], vec![2; 6]]
        {
            if exchanges == Exchanges::One && digits.len() > 4 {
                continue;
            }
            let mut gate = relu_gate(relu, 300, exchanges);
            gate.exchanges = if digits.len() == 1 { Exchanges::One } else { exchanges };
            gate.terms = super::terms::Terms::new(digits.len(), gate.exchanges);
            gate.digits = digits;
            check_relu(relu, &gate, &y, &c);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn relu_is_right_in_wide_rings_and_at_edges(width in 8u32..=40, grow in 0u32..=12, drop in 0u32..=6, two in any::<bool>(), seed in any::<u64>()) {
        let relu = Relu { width, wide: width + grow, drop };
        let (y, c) = relu.edge_inputs(2 * BLOCK + 77, &mut prg(0).fork(seed));
        check_relu(relu, &relu_gate(relu, y.len(), EXCHANGES[usize::from(two)]), &y, &c);
    }

    #[test]
    fn several_values_hang_on_one_bit(width in 4u32..=30, index in 2u32..=20, two in any::<bool>(), seed in any::<u64>()) {
        let (n, mut stream) = (100, prg(0).fork(seed));
        let mut list = |width| random(&mut stream, n, width);
        let (mut y, c, x, cx) = (list(width), list(width), list(index), list(index));
        y.iter_mut().filter(|v| **v == 1 << (width - 1)).for_each(|v| *v = 0);
        let values = vec![Value::Tested { wide: width }, Value::Other { width: index }, Value::MinusOne { width: 9 }];
        let gate = DealtGate::new(n, width, 0, values, EXCHANGES[usize::from(two)]);
        let actual = run(&gate, &y, &c, &[(x.clone(), cx)], Sides { client: 1, server: 0 });
        check_picked(&actual, &y, &x, width, 1);
    }
}

#[test]
fn widening_is_exact_for_every_value_and_share() {
    for (width, extra) in (3..=7u32).flat_map(|width| [1u32, 3, 9].map(|extra| (width, extra))) {
        let (y, c) = widening_inputs(width);
        let spec = WrapSpec { n: y.len(), width, extra };
        let s = subtract(&y, &c, width);
        let (client, server) = (prg(5), prg(6));
        let material = deal_widen(&spec, &c, &client, &server);
        assert_eq!(material.len(), widen_bytes(&spec));
        let target: Vec<u64> =
            c.iter().enumerate().map(|(i, c)| c | ((i as u64 * 5) & low_mask(extra)) << width).collect();
        let ((), share) = run_sessions(
            2,
            |session, _| {
                client_widen(&spec, &c, &target, &client, session).expect("the client");
                session.channel.flush().expect("flushed");
            },
            |session, _| {
                let half = DealtHalf { prg: &server, bytes: &material };
                server_widen(&spec, &s, half, session).expect("the server")
            },
        );
        check_widened(&y, width, &add(&share, &target, width + extra), width + extra);
    }
}

/// With its own stream fixed, the server's half is independent of the client's share.
#[test]
fn servers_half_is_uniform_for_every_share() {
    for exchanges in EXCHANGES {
        let gate = relu_gate(Relu { width: 13, wide: 20, drop: 0 }, 64, exchanges);
        for c in [0, 1, 4095, 4096, 8191] {
            let (mut seeds, server) = (prg(9), prg(8));
            let frequencies = bit_frequencies(|| {
                let client = Prg::from_seed(seeds.next_seed());
                deal_material(&gate, &[c; 64], &[], Sides { client: &client, server: &server })
            });
            assert_uniform(&frequencies, 0, (exchanges, c));
        }
    }
}
