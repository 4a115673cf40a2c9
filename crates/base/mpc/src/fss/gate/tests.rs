//! Gates between two parties, cheating clients, and the distribution of the halves.

use super::*;
use crate::dealt::{ClientShares, DealtHalf, ServerShares, Value};
use crate::fss::delta::{Delta, DeltaShare};
use crate::fss::mac::ring::{Key, KeyShare, Masks, Share, draw_masks};
use crate::session::run_sessions;
use crate::{MpcError, Role, low_mask};
use proptest::prelude::*;
use tacit_arith::prg::{Prg, PublicSeed, Seed};
use tacit_net::Sides;

const SESSION: [u8; 32] = [7; 32];

fn prg(byte: u8) -> Prg {
    Prg::from_seed(Seed([byte; 16]))
}

fn signed(value: u64, width: u32) -> i64 {
    ((value << (64 - width)) as i64) >> (64 - width)
}

/// A dealer's inputs for one batch.
pub(super) struct Dealing {
    pub(super) client: Prg,
    pub(super) server: Prg,
    dealer: Prg,
    hash: PublicSeed,
    delta: Delta,
    key: Key,
}

impl Dealing {
    pub(super) fn new(seed: u8) -> Self {
        let [client, server, dealer] = [1, 2, 3].map(|part| prg(seed).fork(part));
        let (delta, key) = (Delta::draw(&mut dealer.fork(100)), Key::held(&mut dealer.fork(101)));
        Self { client, server, dealer, hash: PublicSeed::from_bytes([seed; 16]), delta, key }
    }

    pub(super) fn keys(&self) -> (BatchKeys<'_>, DealerStreams<'_>) {
        let keys = BatchKeys { id: BatchId { hash: self.hash, number: 5 }, delta: &self.delta, key: &self.key };
        (keys, DealerStreams { client: &self.client, server: &self.server, dealer: &self.dealer })
    }

    fn streams(&self) -> Sides<&Prg> {
        Sides { client: &self.client, server: &self.server }
    }

    fn halves(&self, gate: &FssGate, shares: &ClientShares<'_>) -> [Vec<u8>; 2] {
        let (keys, streams) = self.keys();
        let mut out = [Vec::new(), Vec::new()];
        let mut sink = |bytes: &[u8], party: usize| {
            out[party].extend_from_slice(bytes);
            Ok::<_, std::convert::Infallible>(())
        };
        let Ok(()) = deal_client(gate, &keys, &streams, shares, &mut |bytes| sink(bytes, 0));
        let Ok(()) = deal_server(gate, &keys, &streams, shares, &mut |bytes| sink(bytes, 1));
        out
    }

    fn masks(&self, widths: &[u32]) -> [Vec<(u32, Masks)>; 2] {
        let masks_of_width = |&width: &u32| {
            let (ring, stream) = (spec::ring(width), || self.client.fork(1000 + u64::from(width)));
            let theirs = self.key.deal_masks(ring, &mut self.dealer.fork(1000 + u64::from(width)), &mut stream());
            ((width, draw_masks(ring, &mut stream())), (width, theirs))
        };
        let (ours, theirs) = widths.iter().map(masks_of_width).unzip();
        [ours, theirs]
    }

    /// Runs both parties with their ledgers.
    pub(super) fn run<S: Send>(
        &self,
        widths: &[u32],
        client: impl FnOnce(&mut crate::Session<'_>, &mut CheckTranscript) -> Result<(), MpcError>,
        server: impl FnOnce(&mut crate::Session<'_>, &mut CheckTranscript) -> Result<S, MpcError> + Send,
    ) -> (Result<[u64; 2], MpcError>, Result<S, MpcError>) {
        let [ours, theirs] = self.masks(widths);
        let (client_delta, mut stream) = (DeltaShare::draw(&mut self.client.fork(99)), self.client.fork(99));
        let (server_delta, key) = (self.delta.split(&mut stream), self.key.other());
        run_sessions(
            1,
            |session, _| {
                let mut transcript = CheckTranscript::new(Role::Client, &SESSION, &client_delta);
                client(session, &mut transcript)?;
                transcript.answer(ours, session.channel)?;
                let traffic = session.channel.total_traffic();
                Ok([traffic.sent, traffic.received])
            },
            |session, _| {
                let mut transcript = CheckTranscript::new(Role::Server, &SESSION, &server_delta);
                let result = server(session, &mut transcript)?;
                transcript.verify(&key, theirs, session.channel, session.prg)?;
                Ok(result)
            },
        )
    }
}

fn widths(gate: &FssGate) -> Vec<u32> {
    let widths: std::collections::BTreeSet<u32> = gate.values().iter().map(|v| v.width()).collect();
    widths.into_iter().collect()
}

/// A batch with its context: values in the clear, the client's shares of them, bases, targets.
struct Batch {
    gate: FssGate,
    y: Vec<u64>,
    c: Vec<u64>,
    /// Value and client's share, for each value; ignored except for `Other`.
    others: Vec<(Vec<u64>, Vec<u64>)>,
    base: Sides<u64>,
}

impl Batch {
    fn relu(gate: FssGate, y: Vec<u64>, c: Vec<u64>) -> Self {
        Self { gate, y, c, others: vec![(vec![], vec![])], base: Sides { client: 5, server: 7 } }
    }

    fn targets(&self) -> Vec<Vec<u64>> {
        let target = |mask: u64| (0..self.gate.n() as u64).map(move |i| i.wrapping_mul(0x9e37_79b9) & mask);
        self.gate.values().iter().map(|v| target(low_mask(v.width())).collect()).collect()
    }

    /// The results in the clear. `spoil` changes the client's material.
    fn run(&self, dealing: &Dealing, spoil: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<Vec<u64>>, MpcError> {
        let (gate, n, ring) = (&self.gate, self.gate.n(), low_mask(self.gate.width()));
        let s: Vec<u64> = self.y.iter().zip(&self.c).map(|(y, c)| y.wrapping_sub(*c) & ring).collect();
        let client_values: Vec<&[u64]> = self.others.iter().map(|(_, c)| c.as_slice()).collect();
        let theirs: Vec<Vec<u64>> =
            self.others.iter().map(|(x, c)| x.iter().zip(c).map(|(x, c)| x.wrapping_sub(*c)).collect()).collect();
        let (targets, bases) = (self.targets(), [vec![self.base.client; n], vec![self.base.server; n]]);
        let target_slices = crate::gate::slices(&targets);
        let (client_bases, server_bases): ([&[u64]; 1], [&[u64]; 1]) = ([&bases[0]], [&bases[1]]);
        let shares =
            ClientShares { tested: &self.c, values: &client_values, bases: &client_bases, targets: &target_slices };
        let [mut ours, material] = dealing.halves(gate, &shares);
        assert!([&ours, &material] == dealing.halves(gate, &shares).each_ref(), "dealing is deterministic");
        let cost = gate.cost();
        assert_eq!([ours.len(), material.len()], [cost.client_material, cost.server_material]);
        spoil(&mut ours);
        let theirs = crate::gate::slices(&theirs);
        let batch = dealing.keys().0.id;
        let client = DealtHalf { prg: &dealing.client, bytes: &ours };
        let server = DealtHalf { prg: &dealing.server, bytes: &material };
        let shares = ServerShares { tested: &s, values: &theirs, bases: &server_bases };
        let (traffic, results) = dealing.run(
            &widths(gate),
            |session, transcript| client_online(gate, batch, client, session, transcript),
            |session, transcript| server_online(gate, batch, shares, server, session, transcript),
        );
        let results = results?;
        let check = CheckTranscript::bytes(widths(gate).len());
        let headers = 64 * 16;
        for (measured, stated) in
            traffic.expect("the client").into_iter().zip([cost.up + check.client, cost.down + check.server])
        {
            assert!((stated as u64..=stated as u64 + headers).contains(&measured), "{measured} bytes, {stated} stated");
        }
        let sum = |((s, t), v): ((&Vec<u64>, &Vec<u64>), &Value)| {
            s.iter().zip(t).map(|(s, t)| s.wrapping_add(*t) & low_mask(v.width())).collect()
        };
        Ok(results.iter().zip(&targets).zip(gate.values()).map(sum).collect())
    }

    fn check_relu(&self, wide: u32, drop: u32) {
        let actual = self.run(&Dealing::new(9), |_| {}).expect("honest parties");
        for (i, (&y, actual)) in self.y.iter().zip(&actual[0]).enumerate() {
            let value = signed(y, self.gate.width());
            let expected = (value.max(0) as u64).wrapping_add(12) & low_mask(wide);
            let dropped = drop > 0 && (0..1 << drop).contains(&value) && *actual == 12 & low_mask(wide);
            assert!(*actual == expected || dropped, "{value} with {}: {actual}, not {expected}", self.c[i]);
        }
    }
}

#[test]
fn every_value_and_share_of_small_rings() {
    let rings = (2..=7u32).flat_map(|width| [0, 1, 5].map(|grow| (width, width + grow))).chain([(8, 13)]);
    for (width, wide) in rings {
        for drop in 0..(width - 1).min(if width < 8 { 3 } else { 1 }) {
            let (ring, mut y, mut c) = (1u64 << width, Vec::new(), Vec::new());
            for value in (0..ring).filter(|v| !(ring / 2..ring / 2 + (1 << drop)).contains(v)) {
                y.extend(vec![value; ring as usize]);
                c.extend(0..ring);
            }
            let gate = FssGate::new(y.len(), width, drop, vec![Value::Tested { wide }], Checked::Client);
            Batch::relu(gate, y, c).check_relu(wide, drop);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn wide_rings_and_edges(width in 8u32..=40, grow in 0u32..=12, drop in 0u32..=6, seed in any::<u64>()) {
        let top = 1u64 << (width - 1);
        let mut y = vec![0, 1, 2, top - 1, top + (1 << drop), top + 64, low_mask(width), (1 << drop) - 1, 1 << drop];
        let mut c = vec![0, low_mask(width), top, top - 1, 1, 0, low_mask(width), 1 << drop, 3];
        let mut random = Prg::from_seed(Seed(seed.to_le_bytes().repeat(2).try_into().unwrap()));
        for _ in 0..PIECE + 77 {
            let value = random.next_u64() & low_mask(width);
            y.push(if (top..top + (1 << drop)).contains(&value) { 0 } else { value });
            c.push(random.next_u64() & low_mask(width));
        }
        let gate = FssGate::new(y.len(), width, drop, vec![Value::Tested { wide: width + grow }], Checked::Client);
        Batch::relu(gate, y, c).check_relu(width + grow, drop);
    }

    #[test]
    fn several_values_hang_on_one_bit(width in 4u32..=30, index in 2u32..=20, seed in any::<u64>()) {
        let mut random = Prg::from_seed(Seed(seed.to_le_bytes().repeat(2).try_into().unwrap()));
        let n = 100;
        let mut list = |width: u32| -> Vec<u64> { (0..n).map(|_| random.next_u64() & low_mask(width)).collect() };
        let (y, c, x, cx) = (list(width), list(width), list(index), list(index));
        let y: Vec<u64> = y.into_iter().map(|v| if v == 1 << (width - 1) { 0 } else { v }).collect();
        let values = vec![Value::Tested { wide: width }, Value::Other { width: index }, Value::MinusOne { width: 9 }];
        let others = vec![(vec![], vec![]), (x.clone(), cx), (vec![], vec![])];
        let gate = FssGate::new(n, width, 0, values, Checked::Client);
        let batch = Batch { gate, y, c, others, base: Sides { client: 1, server: 0 } };
        let actual = batch.run(&Dealing::new(4), |_| {}).unwrap();
        for i in 0..n {
            let positive = signed(batch.y[i], width) >= 0;
            let pick = |v: u64| if positive { v } else { 0 };
            prop_assert_eq!(actual[0][i], (pick(batch.y[i]) + 1) & low_mask(width));
            prop_assert_eq!(actual[1][i], pick(x[i]));
            prop_assert_eq!(actual[2][i], pick(0x1ff));
        }
    }
}

#[test]
fn widening_is_exact_for_every_value_and_share() {
    for width in 3..=7u32 {
        for extra in [1u32, 3, 9] {
            let (ring, quarter) = (1u64 << width, (1i64 << width) / 4);
            let (mut y, mut c) = (Vec::new(), Vec::new());
            for value in 1 - quarter..quarter {
                y.extend(vec![value; ring as usize]);
                c.extend(0..ring);
            }
            let spec = FssWiden { n: y.len(), width, extra, checked: Checked::Client };
            let s: Vec<u64> = y.iter().zip(&c).map(|(y, c)| (*y as u64).wrapping_sub(*c) & low_mask(width)).collect();
            let target: Vec<u64> = (0..y.len() as u64).map(|i| i.wrapping_mul(77) & low_mask(width + extra)).collect();
            let dealing = Dealing::new(3);
            let material = deal_widen(&spec, &dealing.key, dealing.streams(), &c, &target);
            assert_eq!(material.len(), spec.cost().server_material);
            let half = DealtHalf { prg: &dealing.server, bytes: &material };
            let (_, share) = dealing.run(
                &[width + extra],
                |session, transcript| client_widen(&spec, &dealing.client, session, transcript),
                |session, transcript| server_widen(&spec, &s, half, session, transcript),
            );
            for (i, share) in share.expect("honest parties").iter().enumerate() {
                let sum = share.wrapping_add(target[i]) & low_mask(width + extra);
                assert_eq!(signed(sum, width + extra), y[i], "{} with {}", y[i], c[i]);
            }
        }
    }
}

/// Changes one bit of a client's material: the check finds it, or the result is right.
#[test]
fn changed_correction_words_are_found_or_without_effect() {
    let y: Vec<u64> = (0..16).map(|i| i * 5 % 32).map(|v| if v == 16 { 0 } else { v }).collect();
    let c: Vec<u64> = (0..16).map(|i| i * 7 % 32).collect();
    let batch = Batch::relu(FssGate::new(16, 5, 0, vec![Value::Tested { wide: 8 }], Checked::Client), y, c);
    let dealing = Dealing::new(6);
    let honest = batch.run(&dealing, |_| {}).unwrap();
    let (bits, mut detected) = (8 * batch.gate.cost().client_material, 0);
    for bit in (0..bits).step_by(5) {
        match batch.run(&dealing, |ours| ours[bit / 8] ^= 1 << (bit % 8)) {
            Ok(results) => assert_eq!(results, honest, "bit {bit}"),
            Err(MpcError::Misbehaviour { .. }) => detected += 1,
            Err(other) => panic!("{other}"),
        }
    }
    // A word is used where the node's lowest bit is 1.
    assert!((bits / 20..bits / 5 + 1).contains(&detected), "{detected} of {} found", bits / 5);
}

/// A client that sends words of another key, value or position: the tags reveal it.
#[test]
fn values_that_were_not_dealt_are_found() {
    let spec = FssWiden { n: 20, width: 6, extra: 3, checked: Checked::Client };
    let (dealing, foreign, zeros) = (Dealing::new(1), Dealing::new(2), vec![0; 20]);
    let material = deal_widen(&spec, &dealing.key, dealing.streams(), &zeros, &zeros);
    let half = DealtHalf { prg: &dealing.server, bytes: &material };
    let (_, result) = dealing.run(
        &[9],
        |session, transcript| client_widen(&spec, &foreign.client, session, transcript),
        |session, transcript| server_widen(&spec, &zeros, half, session, transcript),
    );
    assert!(matches!(result, Err(MpcError::Misbehaviour { .. })));
    assert!(KeyShare::new(1 << 41).is_err());
}

/// Frequency of each bit in a party's half (0: the client's) over many dealings, for one share and
/// one MAC key, with the streams `fixed` the same in all of them.
fn ones(gate: &FssGate, party: usize, fixed: &[usize], c: u64, dealings: u32) -> Vec<f64> {
    let (mut counts, mut seeds): (Vec<u32>, Prg) = (Vec::new(), prg(9));
    let delta = Delta::draw(&mut prg(50));
    let key = Key::held(&mut prg(51));
    let (c, zeros) = (vec![c; gate.n()], vec![0; gate.n()]);
    for _ in 0..dealings {
        let mut streams = [0; 3].map(|_| Prg::from_seed(seeds.next_seed()));
        fixed.iter().for_each(|&i| streams[i] = prg(8 + i as u8));
        let hash = PublicSeed::from_bytes(seeds.next_seed().0);
        let keys = BatchKeys { id: BatchId { hash, number: 0 }, delta: &delta, key: &key };
        let streams = DealerStreams { client: &streams[0], server: &streams[1], dealer: &streams[2] };
        let shares = ClientShares { tested: &c, values: &[&c], bases: &[], targets: &[&zeros] };
        let mut half = Vec::new();
        let mut sink = |bytes: &[u8]| {
            half.extend_from_slice(bytes);
            Ok::<_, std::convert::Infallible>(())
        };
        let Ok(()) = match party {
            0 => deal_client(gate, &keys, &streams, &shares, &mut sink),
            _ => deal_server(gate, &keys, &streams, &shares, &mut sink),
        };
        counts.resize(8 * half.len(), 0);
        for (i, byte) in half.iter().enumerate() {
            (0..8).for_each(|b| counts[8 * i + b] += u32::from(byte >> b & 1));
        }
    }
    counts.into_iter().map(|count| f64::from(count) / f64::from(dealings)).collect()
}

/// For any share, mask and key, every bit of a half is practically uniform, or padding and always
/// 0.
#[test]
fn one_half_is_uniform_for_every_share() {
    let gate = FssGate::new(4, 13, 0, vec![Value::Tested { wide: 20 }], Checked::Client);
    let dealings = 400;
    let limit = 6.0 * 0.5 / f64::from(dealings).sqrt();
    for party in [0, 1] {
        for c in [0, 1, 4095, 4096, 8191] {
            let counts = ones(&gate, party, &[party], c, dealings);
            // Words of 20 and 61 bits in whole bytes.
            let padding = if party == 0 { 0 } else { gate.n() * (1 + 4) * (4 + 3) };
            assert_eq!(counts.iter().filter(|share| **share == 0.0).count(), padding);
            for (i, share) in counts.into_iter().enumerate() {
                assert!(share == 0.0 || (share - 0.5).abs() < limit, "bit {i} of half {party} with {c}: {share}");
            }
        }
    }
    // With some streams the same every time (the client's pads, or the dealer's bits and the
    // masks), the test sees unmasked bits.
    for fixed in [&[0, 1][..], &[1, 0, 2]] {
        let max_distance = ones(&gate, 1, fixed, 1, dealings)
            .into_iter()
            .filter(|s| (0.01..0.99).contains(s) && (s - 0.5).abs() > limit);
        let stuck = ones(&gate, 1, fixed, 1, dealings).into_iter().filter(|s| *s > 0.99).count();
        assert!(stuck + max_distance.count() > 100, "{fixed:?}");
    }
}

#[test]
fn words_without_masks_are_an_error_at_both_parties() {
    let share = || std::iter::once(Share { value: 1, tag: 2 });
    let (key, delta) = (KeyShare::new(3).unwrap(), DeltaShare::draw(&mut Prg::from_seed(Seed([1; 16]))));
    for role in [Role::Client, Role::Server] {
        let (mut channel, _peer) = tacit_net::mem_pair();
        let mut transcript = CheckTranscript::new(role, &SESSION, &delta);
        transcript.values(9, share(), std::iter::once(1u64));
        let result = match role {
            Role::Client => transcript.answer(Vec::new(), &mut channel),
            Role::Server => transcript.verify(&key, Vec::new(), &mut channel, &mut Prg::from_seed(Seed([2; 16]))),
        };
        assert!(matches!(result, Err(MpcError::Material { .. })), "{role:?}: {result:?}");
        assert_eq!(channel.total_traffic().sent, 0, "nothing is said before");
    }
}
