//! Gates between two checked parties, either of which may cheat.

use super::*;
use crate::dealt::{ClientShares, ServerShares, Value};
use crate::fss::delta::{Delta, DeltaShare};
use crate::fss::mac::ring::{Key, KeyShare, draw_masks};
use crate::session::run_sessions;
use crate::{MpcError, Role, Session, low_mask};
use tacit_arith::prg::{Prg, PublicSeed, Seed};
use tacit_net::Sides;

const SESSION: [u8; 32] = [7; 32];
pub(super) const HASH: [u8; 16] = [3; 16];

fn prg(byte: u8) -> Prg {
    Prg::from_seed(Seed([byte; 16]))
}

fn batch_id() -> BatchId {
    BatchId { hash: PublicSeed::from_bytes(HASH), number: 5 }
}

fn signed(value: u64, width: u32) -> i64 {
    ((value << (64 - width)) as i64) >> (64 - width)
}

/// A batch: masked values at both parties, masks (as `x - xh`) at the dealer, masks of the results.
struct Batch {
    gate: FssGate,
    masked: Vec<Vec<u64>>,
    masks: Vec<Vec<u64>>,
    targets: Vec<Vec<u64>>,
}

pub(super) type Results = [Result<Vec<Vec<u64>>, MpcError>; 2];

/// Both parties with their halves of one dealing, and the check at the end.
pub(super) fn run(
    seed: u8,
    widths: &[u32],
    halves: &[Vec<u8>; 2],
    run_party: impl Fn(Half<'_>, &mut Session<'_>, &mut CheckTranscript) -> Result<Vec<Vec<u64>>, MpcError> + Sync,
) -> Results {
    let [client, dealer] = [1, 3].map(|part| prg(seed).fork(part));
    let (delta, key) = (Delta::draw(&mut dealer.fork(100)), Key::draw(&mut dealer.fork(101), &mut client.fork(98)));
    let masks = |role| {
        let masks_of_width = |&width: &u32| {
            let (ring, mut stream) = (spec::ring(width), client.fork(1000 + u64::from(width)));
            let masks = match role {
                Role::Client => draw_masks(ring, &mut stream),
                Role::Server => key.deal_masks(ring, &mut dealer.fork(1000 + u64::from(width)), &mut stream),
            };
            (width, masks)
        };
        widths.iter().map(masks_of_width).collect::<Vec<_>>()
    };
    let (client_masks, server_masks) = (masks(Role::Client), masks(Role::Server));
    let shares = [DeltaShare::draw(&mut client.fork(99)), delta.split(&mut client.fork(99))];
    let keys = [KeyShare::draw(&mut client.fork(98)), key.other()];
    let party = |index: usize, half: Half<'_>, masks, session: &mut Session<'_>| {
        let mut transcript = CheckTranscript::new([Role::Client, Role::Server][index], &SESSION, &shares[index]);
        let results = run_party(half, session, &mut transcript)?;
        transcript.agree(&keys[index], masks, session.channel, session.prg)?;
        Ok(results)
    };
    let (a, b) = run_sessions(
        1,
        |session, _| party(0, Half::Client(&client, &halves[0]), client_masks, session),
        |session, _| party(1, Half::Server(&halves[1]), server_masks, session),
    );
    [a, b]
}

impl Batch {
    fn widths(&self) -> Vec<u32> {
        let widths: std::collections::BTreeSet<u32> = self.gate.values().iter().map(|v| v.width()).collect();
        widths.into_iter().collect()
    }

    fn halves(&self, seed: u8) -> [Vec<u8>; 2] {
        let [client, server, dealer] = [1, 2, 3].map(|part| prg(seed).fork(part));
        let (delta, key) = (Delta::draw(&mut dealer.fork(100)), Key::draw(&mut dealer.fork(101), &mut client.fork(98)));
        let keys = BatchKeys { id: batch_id(), delta: &delta, key: &key };
        let streams = DealerStreams { client: &client, server: &server, dealer: &dealer };
        let [values, targets] =
            [&self.masks, &self.targets].map(|lists| lists.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let shares = ClientShares { tested: values[0], values: &values, bases: &[], targets: &targets };
        let mut out = [Vec::new(), Vec::new()];
        let mut sink = |bytes: &[u8], party: usize| {
            out[party].extend_from_slice(bytes);
            Ok::<_, std::convert::Infallible>(())
        };
        let Ok(()) = deal_client(&self.gate, &keys, &streams, &shares, &mut |bytes| sink(bytes, 0));
        let Ok(()) = deal_server(&self.gate, &keys, &streams, &shares, &mut |bytes| sink(bytes, 1));
        let cost = self.gate.cost();
        assert_eq!([out[0].len(), out[1].len()], [cost.client_material, cost.server_material]);
        out
    }

    fn run(&self, seed: u8, halves: &[Vec<u8>; 2]) -> Results {
        run(seed, &self.widths(), halves, |half, session, transcript| {
            let values: Vec<&[u64]> = self.masked.iter().map(Vec::as_slice).collect();
            let shares = ServerShares { tested: values[0], values: &values, bases: &[] };
            shared_online(&self.gate, batch_id(), shares, half, session, transcript)
        })
    }

    /// The results in the clear, the same at both parties.
    fn results(&self, seed: u8) -> Vec<Vec<u64>> {
        let [client_results, server_results] =
            self.run(seed, &self.halves(seed)).map(|results| results.expect("honest parties"));
        assert_eq!(client_results, server_results, "both have the same");
        let values = self.gate.values().iter().zip(client_results).zip(&self.targets);
        let clear = |((value, masked), masks): ((&Value, Vec<u64>), &Vec<u64>)| {
            masked.iter().zip(masks).map(|(xh, c)| xh.wrapping_add(*c) & low_mask(value.width())).collect()
        };
        values.map(clear).collect()
    }
}

/// A ReLU of `values` under `masks`.
fn relu(width: u32, wide: u32, drop: u32, values: &[u64], masks: &[u64]) -> Batch {
    let gate = FssGate::new(values.len(), width, drop, vec![Value::Tested { wide }], Checked::Both);
    let masked = values.iter().zip(masks).map(|(x, c)| x.wrapping_sub(*c) & low_mask(width)).collect();
    let targets = (0..values.len() as u64).map(|i| i.wrapping_mul(0x9e37_79b9) & low_mask(wide)).collect();
    Batch { gate, masked: vec![masked], masks: vec![masks.to_vec()], targets: vec![targets] }
}

#[test]
fn every_value_and_mask_of_small_rings() {
    let rings = (2..=6u32).flat_map(|width| [0, 1, 5].map(|grow| (width, width + grow))).chain([(8, 13)]);
    for (width, wide) in rings {
        for drop in 0..(width - 1).min(if width < 8 { 2 } else { 1 }) {
            let (ring, mut values, mut masks) = (1u64 << width, Vec::new(), Vec::new());
            for value in (0..ring).filter(|v| !(ring / 2..ring / 2 + (1 << drop)).contains(v)) {
                values.extend(vec![value; ring as usize]);
                masks.extend(0..ring);
            }
            let actual = relu(width, wide, drop, &values, &masks).results(9);
            for ((x, c), actual) in values.iter().zip(&masks).zip(&actual[0]) {
                let value = signed(*x, width);
                let dropped = drop > 0 && (0..1 << drop).contains(&value) && *actual == 0;
                assert!(*actual == value.max(0) as u64 || dropped, "{value} under {c}: {actual}");
            }
        }
    }
}

#[test]
fn several_values_hang_on_one_bit_in_more_than_one_piece() {
    let (n, width, index) = (PIECE + 77, 24, 13);
    let mut random = prg(5);
    let mut list = |width: u32| -> Vec<u64> { (0..n).map(|_| random.next_u64() & low_mask(width)).collect() };
    let (y, c, x, cx) = (list(width), list(width), list(index), list(index));
    let values = vec![Value::Tested { wide: width }, Value::Other { width: index }, Value::MinusOne { width: 9 }];
    let targets = vec![list(width), list(index), list(9)];
    let masked = |x: &[u64], c: &[u64], width| -> Vec<u64> {
        x.iter().zip(c).map(|(x, c)| x.wrapping_sub(*c) & low_mask(width)).collect()
    };
    let batch = Batch {
        gate: FssGate::new(n, width, 0, values, Checked::Both),
        masked: vec![masked(&y, &c, width), masked(&x, &cx, index), vec![u64::MAX; n]],
        masks: vec![c, cx, vec![0; n]],
        targets,
    };
    let actual = batch.results(4);
    for i in 0..n {
        let pick = |v: u64| if signed(y[i], width) >= 0 { v } else { 0 };
        assert_eq!([actual[0][i], actual[1][i], actual[2][i]], [pick(y[i]), pick(x[i]), pick(0x1ff)]);
    }
}

#[test]
fn widening_is_exact_for_every_value_and_mask() {
    for width in 3..=6u32 {
        for extra in [1u32, 3, 9] {
            let (ring, quarter, wide) = (1u64 << width, (1i64 << width) / 4, width + extra);
            let (mut y, mut c) = (Vec::new(), Vec::new());
            for value in 1 - quarter..quarter {
                y.extend(vec![value; ring as usize]);
                c.extend(0..ring);
            }
            let spec = FssWiden { n: y.len(), width, extra, checked: Checked::Both };
            let masked: Vec<u64> =
                y.iter().zip(&c).map(|(y, c)| (*y as u64).wrapping_sub(*c) & low_mask(width)).collect();
            let target: Vec<u64> = (0..y.len() as u64).map(|i| i.wrapping_mul(77) & low_mask(wide)).collect();
            let [client, server, dealer] = [1, 2, 3].map(|part| prg(6).fork(part));
            let key = Key::draw(&mut dealer.fork(101), &mut client.fork(98));
            let material = deal_widen(&spec, &key, Sides { client: &client, server: &server }, &c, &target);
            assert_eq!(material.len(), spec.cost().server_material);
            let halves = [Vec::new(), material.to_vec()];
            let results = run(6, &[wide], &halves, |half, session, transcript| {
                Ok(vec![shared_widen(&spec, &masked, half, session, transcript)?])
            });
            for results in results {
                for (i, xh) in results.expect("honest parties")[0].iter().enumerate() {
                    assert_eq!(signed(xh.wrapping_add(target[i]) & low_mask(wide), wide), y[i], "{} {}", y[i], c[i]);
                }
            }
        }
    }
}

/// Changes one bit of either party's material: neither continues with a wrong result.
#[test]
fn changed_material_of_either_party_is_found_or_without_effect() {
    let values: Vec<u64> = (0..16).map(|i| i * 5 % 32).map(|v| if v == 16 { 0 } else { v }).collect();
    let masks: Vec<u64> = (0..16).map(|i| i * 7 % 32).collect();
    let batch = relu(5, 8, 0, &values, &masks);
    let mut halves = batch.halves(6);
    let honest = batch.run(6, &halves).map(|results| results.expect("honest parties"));
    for (party, step) in [(0, 5), (1, 11)] {
        let (bits, mut detected) = (8 * halves[party].len(), 0);
        for bit in (0..bits).step_by(step) {
            halves[party][bit / 8] ^= 1 << (bit % 8);
            let results = batch.run(6, &halves);
            halves[party][bit / 8] ^= 1 << (bit % 8);
            // The result of the honest party decides.
            match &results[1 - party] {
                Ok(results) => assert_eq!(*results, honest[0], "party {party}, bit {bit}"),
                Err(MpcError::Misbehaviour { .. } | MpcError::Net(_)) => detected += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(detected > bits / step / 5, "{detected} of {} found", bits / step);
    }
}

#[test]
fn what_the_server_alone_computed_is_held_against_what_the_client_expects() {
    for wrong in [false, true] {
        let batch = relu(5, 8, 0, &[3, 4], &[9, 30]);
        let results = run(6, &batch.widths(), &batch.halves(6), |half, session, transcript| {
            let values: Vec<&[u64]> = batch.masked.iter().map(Vec::as_slice).collect();
            transcript.project(&[1, 2, if wrong && session.role == Role::Server { 4 } else { 3 }]);
            let shares = ServerShares { tested: values[0], values: &values, bases: &[] };
            shared_online(&batch.gate, batch_id(), shares, half, session, transcript)
        });
        assert_eq!(results[0].is_err(), wrong);
        // The client leaves without showing its digests: the server releases nothing.
        assert_eq!(results[1].is_err(), wrong);
    }
}

/// Frequency of each bit in the server's half over many dealings under one Delta and one key, for
/// one mask; with the client's pads the same in all of them, if `fixed`.
fn ones(gate: &FssGate, c: u64, fixed: bool, dealings: u32) -> Vec<f64> {
    let (mut counts, mut seeds): (Vec<u32>, Prg) = (Vec::new(), prg(9));
    let (delta, key) = (Delta::draw(&mut prg(50)), Key::draw(&mut prg(51), &mut prg(52)));
    let (c, targets) = (vec![c; gate.n()], vec![5; gate.n()]);
    for _ in 0..dealings {
        let mut streams = [0; 3].map(|_| Prg::from_seed(seeds.next_seed()));
        if fixed {
            streams[0] = prg(8);
        }
        let hash = PublicSeed::from_bytes(seeds.next_seed().0);
        let keys = BatchKeys { id: BatchId { hash, number: 0 }, delta: &delta, key: &key };
        let streams = DealerStreams { client: &streams[0], server: &streams[1], dealer: &streams[2] };
        let shares = ClientShares { tested: &c, values: &[&c], bases: &[], targets: &[&targets] };
        let mut half = Vec::new();
        let mut sink = |bytes: &[u8]| {
            half.extend_from_slice(bytes);
            Ok::<_, std::convert::Infallible>(())
        };
        let Ok(()) = deal_server(gate, &keys, &streams, &shares, &mut sink);
        counts.resize(8 * half.len(), 0);
        for (i, byte) in half.iter().enumerate() {
            (0..8).for_each(|b| counts[8 * i + b] += u32::from(byte >> b & 1));
        }
    }
    counts.into_iter().map(|count| f64::from(count) / f64::from(dealings)).collect()
}

/// The server's half is independent of the masks, of the masks of results, and of the keys. (The
/// client's half is its seed and correction words, as if only the client is checked.)
#[test]
fn the_servers_half_is_uniform_for_every_mask() {
    let gate = FssGate::new(4, 13, 0, vec![Value::Tested { wide: 20 }], Checked::Both);
    let dealings = 400;
    let limit = 6.0 * 0.5 / f64::from(dealings).sqrt();
    for c in [0, 1, 4095, 4096, 8191] {
        let counts = ones(&gate, c, false, dealings);
        // Shares and tags of 61 bits in whole bytes.
        assert_eq!(counts.iter().filter(|share| **share == 0.0).count(), gate.n() * (1 + 4) * 2 * 3);
        for (i, share) in counts.into_iter().enumerate() {
            assert!(share == 0.0 || (share - 0.5).abs() < limit, "bit {i} with {c}: {share}");
        }
    }
    let stuck = ones(&gate, 1, true, dealings).into_iter().filter(|s| *s > 0.99).count();
    assert!(stuck > 100, "it sees what is not masked");
}
