//! Gates between two parties, and the distribution of the dealer's halves.

use super::*;
use crate::gate::WrapSpec;
use crate::low_mask;
use crate::session::run_sessions;
use proptest::prelude::*;
use tacit_arith::prg::{Prg, Seed};
use tacit_net::Sides;

fn prg(byte: u8) -> Prg {
    Prg::from_seed(Seed([byte; 16]))
}

fn signed(value: u64, width: u32) -> i64 {
    ((value << (64 - width)) as i64) >> (64 - width)
}

fn deal_material(gate: &DealtGate, c: &[u64], values: &[&[u64]], streams: Sides<&Prg>) -> Vec<u8> {
    let mut out = Vec::new();
    let Ok(()) = deal(gate, c, values, streams, &mut |bytes| {
        out.extend_from_slice(bytes);
        Ok::<_, std::convert::Infallible>(())
    });
    out
}

/// Runs a gate on `y` shared with `c`; returns the results in the clear.
fn run(gate: &DealtGate, y: &[u64], c: &[u64], others: &[(Vec<u64>, Vec<u64>)], base: Sides<u64>) -> Vec<Vec<u64>> {
    let n = gate.n();
    let ring = low_mask(gate.width);
    let s: Vec<u64> = y.iter().zip(c).map(|(y, c)| y.wrapping_sub(*c) & ring).collect();
    let mut other_values = others.iter();
    // Shares by value; shares that the gate ignores are empty.
    let (mut client_shares, mut server_shares): (Vec<Vec<u64>>, Vec<Vec<u64>>) = (Vec::new(), Vec::new());
    for value in gate.values() {
        match value {
            Value::Other { width } => {
                let (x, cx) = other_values.next().expect("a value and its share for each other");
                client_shares.push(cx.clone());
                server_shares.push(x.iter().zip(cx).map(|(x, c)| x.wrapping_sub(*c) & low_mask(*width)).collect());
            }
            _ => (client_shares.push(Vec::new()), server_shares.push(Vec::new())).0,
        }
    }
    let (client, server) = (prg(3), prg(4));
    let (client_shares, server_shares): (Vec<&[u64]>, Vec<&[u64]>) =
        (crate::gate::slices(&client_shares), crate::gate::slices(&server_shares));
    let streams = Sides { client: &client, server: &server };
    let material = deal_material(gate, c, &client_shares, streams);
    assert_eq!(material.len(), gate.cost().material);
    assert_eq!(material, deal_material(gate, c, &client_shares, streams), "dealing is deterministic");
    let targets: Vec<Vec<u64>> = gate
        .values()
        .iter()
        .map(|v| (0..n as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & low_mask(v.width())).collect())
        .collect();
    let (client_base, server_base) = (vec![base.client; n], vec![base.server; n]);
    let targets_ref = crate::gate::slices(&targets);
    let cost = gate.cost();
    let (traffic, (shares, answered)) = run_sessions(
        1,
        |session, _| {
            let shares =
                ClientShares { tested: c, values: &client_shares, bases: &[&client_base], targets: &targets_ref };
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
    let headers = 64 * 16;
    for (traffic, stated) in [(traffic.sent, cost.up), (answered.sent, cost.down)] {
        assert!((stated as u64..=stated as u64 + headers).contains(&traffic), "{traffic} sent, {stated} stated");
    }
    let results = shares.iter().zip(&targets).zip(gate.values());
    results
        .map(|((s, r), v)| s.iter().zip(r).map(|(s, r)| s.wrapping_add(*r) & low_mask(v.width())).collect())
        .collect()
}

fn relu(gate: &DealtGate, wide: u32, y: &[u64], c: &[u64]) {
    let actual = run(gate, y, c, &[], Sides { client: 5, server: 7 });
    for (i, (&y, actual)) in y.iter().zip(&actual[0]).enumerate() {
        let value = signed(y, gate.width);
        let expected = (value.max(0) as u64).wrapping_add(12) & low_mask(wide);
        let dropped = (12 & low_mask(wide), value >= 0 && value < 1 << gate.drop);
        assert!(
            *actual == expected || (dropped.1 && *actual == dropped.0 && gate.drop > 0),
            "{value} with {}: {actual}, not {expected}",
            c[i]
        );
    }
}

#[test]
fn every_value_and_share_of_small_rings() {
    for exchanges in [Exchanges::One, Exchanges::Two] {
        let rings = (2..=7u32).flat_map(|width| [0, 1, 5].map(|grow| (width, width + grow))).chain([(8, 13)]);
        for (width, wide) in rings {
            let ring = 1u64 << width;
            let (mut y, mut c) = (Vec::new(), Vec::new());
            for drop in 0..(width - 1).min(if width < 8 { 3 } else { 1 }) {
                y.clear();
                c.clear();
                // Accepted values of a gate: |y| < 2^(n-1), except the lowest 2^drop values.
                for value in (0..ring).filter(|v| !(ring / 2..ring / 2 + (1 << drop)).contains(v)) {
                    y.extend(vec![value; ring as usize]);
                    c.extend(0..ring);
                }
                let gate = DealtGate::new(y.len(), width, drop, vec![Value::Tested { wide }], exchanges);
                relu(&gate, wide, &y, &c);
            }
        }
    }
}

#[test]
fn every_cut_into_digits_computes_the_same() {
    let y: Vec<u64> = (0..300u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51).collect();
    let y: Vec<u64> = y.into_iter().map(|v| if v == 1 << 12 { 0 } else { v }).collect();
    let c: Vec<u64> = (0..300u64).map(|i| i.wrapping_mul(0xd1b5_4a32_d192_ed03) >> 51).collect();
    for exchanges in [Exchanges::One, Exchanges::Two] {
        for digits in
            [vec![12], vec![6, 6], vec![4, 4, 4], vec![3, 3, 3, 3], vec![1, 5, 6], vec![3, 3, 2, 2, 2], vec![2; 6]]
        {
            if exchanges == Exchanges::One && digits.len() > 4 {
                continue;
            }
            let mut gate = DealtGate::new(300, 13, 0, vec![Value::Tested { wide: 20 }], exchanges);
            gate.exchanges = if digits.len() == 1 { Exchanges::One } else { exchanges };
            gate.terms = super::terms::Terms::new(digits.len(), gate.exchanges);
            gate.digits = digits;
            relu(&gate, 20, &y, &c);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn wide_rings_and_edges(width in 8u32..=40, grow in 0u32..=12, drop in 0u32..=6, two in any::<bool>(), seed in any::<u64>()) {
        let exchanges = if two { Exchanges::Two } else { Exchanges::One };
        let top = 1u64 << (width - 1);
        let mut y: Vec<u64> = vec![0, 1, 2, top - 1, top + (1 << drop), top + 64, low_mask(width), low_mask(width) - 1, (1 << drop) - 1, 1 << drop];
        let mut c: Vec<u64> = vec![0, low_mask(width), top, top - 1, 1, 0, low_mask(width), top, 1 << drop, 3];
        let mut random = tacit_arith::prg::Prg::from_seed(Seed(seed.to_le_bytes().repeat(2).try_into().unwrap()));
        for _ in 0..2 * BLOCK + 77 {
            let value = random.next_u64() & low_mask(width);
            y.push(if (top..top + (1 << drop)).contains(&value) { 0 } else { value });
            c.push(random.next_u64() & low_mask(width));
        }
        let gate = DealtGate::new(y.len(), width, drop, vec![Value::Tested { wide: width + grow }], exchanges);
        relu(&gate, width + grow, &y, &c);
    }

    #[test]
    fn several_values_hang_on_one_bit(width in 4u32..=30, index in 2u32..=20, two in any::<bool>(), seed in any::<u64>()) {
        let exchanges = if two { Exchanges::Two } else { Exchanges::One };
        let mut random = tacit_arith::prg::Prg::from_seed(Seed(seed.to_le_bytes().repeat(2).try_into().unwrap()));
        let n = 100;
        let mut list = |width: u32| -> Vec<u64> { (0..n).map(|_| random.next_u64() & low_mask(width)).collect() };
        let (y, c, x, cx) = (list(width), list(width), list(index), list(index));
        let y: Vec<u64> = y.into_iter().map(|v| if v == 1 << (width - 1) { 0 } else { v }).collect();
        let values = vec![Value::Tested { wide: width }, Value::Other { width: index }, Value::MinusOne { width: 9 }];
        let gate = DealtGate::new(n, width, 0, values, exchanges);
        let actual = run(&gate, &y, &c, &[(x.clone(), cx)], Sides { client: 1, server: 0 });
        for i in 0..n {
            let positive = signed(y[i], width) >= 0;
            let pick = |v: u64| if positive { v } else { 0 };
            prop_assert_eq!(actual[0][i], (pick(y[i]) + 1) & low_mask(width));
            prop_assert_eq!(actual[1][i], pick(x[i]));
            prop_assert_eq!(actual[2][i], pick(0x1ff));
        }
    }
}

#[test]
fn widening_is_exact_for_every_value_and_share() {
    for width in 3..=7u32 {
        for extra in [1u32, 3, 9] {
            let ring = 1u64 << width;
            let quarter = (ring / 4) as i64;
            let (mut y, mut c) = (Vec::new(), Vec::new());
            for value in 1 - quarter..quarter {
                y.extend(vec![value; ring as usize]);
                c.extend(0..ring);
            }
            let spec = WrapSpec { n: y.len(), width, extra };
            let s: Vec<u64> = y.iter().zip(&c).map(|(y, c)| (*y as u64).wrapping_sub(*c) & low_mask(width)).collect();
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
            for i in 0..y.len() {
                let sum = share[i].wrapping_add(target[i]) & low_mask(width + extra);
                assert_eq!(signed(sum, width + extra), y[i], "{} with {}", y[i], c[i]);
            }
        }
    }
}

/// Frequency of each bit in the server's part over many dealings, for one mask and value.
fn ones(gate: &DealtGate, c: u64, dealings: usize) -> Vec<f64> {
    let mut counts: Vec<u32> = Vec::new();
    let mut seeds = Prg::from_seed(Seed([9; 16]));
    for _ in 0..dealings {
        let (client, server) = (Prg::from_seed(seeds.next_seed()), prg(8));
        let material = deal_material(gate, &vec![c; gate.n()], &[], Sides { client: &client, server: &server });
        counts.resize(8 * material.len(), 0);
        for (i, byte) in material.iter().enumerate() {
            (0..8).for_each(|b| counts[8 * i + b] += u32::from(byte >> b & 1));
        }
    }
    counts.into_iter().map(|count| f64::from(count) / dealings as f64).collect()
}

/// The server's half, with its own stream fixed, is independent of the client's share: every bit is
/// practically uniform for any share (padding bits are always 0).
#[test]
fn the_servers_half_is_uniform_for_every_share() {
    for exchanges in [Exchanges::One, Exchanges::Two] {
        let gate = DealtGate::new(64, 13, 0, vec![Value::Tested { wide: 20 }], exchanges);
        for c in [0, 1, 4095, 4096, 8191] {
            let dealings = 400;
            let limit = 6.0 * 0.5 / f64::from(dealings).sqrt();
            for (i, share) in ones(&gate, c, dealings as usize).into_iter().enumerate() {
                assert!((share - 0.5).abs() < limit, "bit {i} of {exchanges:?} with {c}: {share}");
            }
        }
    }
}
