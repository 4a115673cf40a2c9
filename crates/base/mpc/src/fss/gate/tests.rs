//! Gates between two parties, cheating clients, and the distribution of the halves.

use super::*;
use crate::dealt::{ClientShares, DealtHalf, ServerShares, Value};
use crate::fss::delta::{Delta, DeltaShare};
use crate::fss::mac::ring::{Key, KeyShare, Masks, Share, draw_masks};
use crate::gate::slices;
use crate::session::run_sessions;
use crate::tests::{
    Relu, add, assert_sent, assert_uniform, bit_frequencies, check_picked, check_widened, collect, is_uniform, prg,
    random, spread, subtract, widening_inputs,
};
use crate::{MpcError, Role, Session};
use proptest::prelude::*;
use std::fmt::Debug;
use tacit_arith::prg::{Prg, PublicSeed};
use tacit_net::Sides;

const SESSION: [u8; 32] = [7; 32];

/// Both parties' results, each one list for each value.
pub(super) type Results = [Result<Vec<Vec<u64>>, MpcError>; 2];

/// A dealer's inputs for one batch.
pub(super) struct Dealing {
    pub(super) client: Prg,
    pub(super) server: Prg,
    dealer: Prg,
    hash: PublicSeed,
    delta: Delta,
    pub(super) key: Key,
}

impl Dealing {
    pub(super) fn new(seed: u8, checked: Checked) -> Self {
        let [client, server, dealer] = [1, 2, 3].map(|part| prg(seed).fork(part));
        let delta = Delta::draw(&mut dealer.fork(100));
        let key = match checked {
            Checked::Client => Key::one_sided(&mut dealer.fork(101)),
            Checked::Both => Key::draw(&mut dealer.fork(101), &mut client.fork(98)),
        };
        Self { client, server, dealer, hash: PublicSeed::from_bytes([seed; 16]), delta, key }
    }

    pub(super) fn keys(&self) -> (BatchKeys<'_>, DealerStreams<'_>) {
        let keys = BatchKeys { id: BatchId { hash: self.hash, number: 5 }, delta: &self.delta, key: &self.key };
        (keys, DealerStreams { client: &self.client, server: &self.server, dealer: &self.dealer })
    }

    pub(super) fn streams(&self) -> Sides<&Prg> {
        Sides { client: &self.client, server: &self.server }
    }

    /// The client's half and the server's.
    pub(super) fn halves(&self, gate: &FssGate, shares: &ClientShares<'_>) -> [Vec<u8>; 2] {
        let (keys, streams) = self.keys();
        let halves = [
            collect(|sink| deal_client(gate, &keys, &streams, shares, sink)),
            collect(|sink| deal_server(gate, &keys, &streams, shares, sink)),
        ];
        let cost = gate.cost();
        assert_eq!(halves.each_ref().map(Vec::len), [cost.client_material, cost.server_material]);
        halves
    }

    fn masks(&self, widths: &[u32]) -> [Vec<(u32, Masks)>; 2] {
        let masks_of_width = |&width: &u32| {
            let (ring, stream) = (spec::ring(width), || self.client.fork(1000 + u64::from(width)));
            let server_masks = self.key.deal_masks(ring, &mut self.dealer.fork(1000 + u64::from(width)), &mut stream());
            ((width, draw_masks(ring, &mut stream())), (width, server_masks))
        };
        let (client_masks, server_masks) = widths.iter().map(masks_of_width).unzip();
        [client_masks, server_masks]
    }

    fn deltas(&self) -> [DeltaShare; 2] {
        [DeltaShare::draw(&mut self.client.fork(99)), self.delta.split(&mut self.client.fork(99))]
    }

    /// Runs both parties with the check of the client, and compares their traffic with `cost`.
    pub(super) fn run<S: Send>(
        &self,
        widths: &[u32],
        cost: &FssCost,
        client: impl FnOnce(&mut Session<'_>, &mut CheckTranscript) -> Result<(), MpcError>,
        server: impl FnOnce(&mut Session<'_>, &mut CheckTranscript) -> Result<S, MpcError> + Send,
    ) -> Result<S, MpcError> {
        let [client_masks, server_masks] = self.masks(widths);
        let ([client_delta, server_delta], key) = (self.deltas(), self.key.unseeded_share());
        let (traffic, result) = run_sessions(
            1,
            |session, _| {
                let mut transcript = CheckTranscript::new(Role::Client, &SESSION, &client_delta);
                client(session, &mut transcript)?;
                transcript.answer(client_masks, session.channel)?;
                Ok::<_, MpcError>(session.channel.total_traffic())
            },
            |session, _| {
                let mut transcript = CheckTranscript::new(Role::Server, &SESSION, &server_delta);
                let result = server(session, &mut transcript)?;
                transcript.verify(&key, server_masks, session.channel, session.prg)?;
                Ok::<_, MpcError>(result)
            },
        );
        let result = result?;
        let (traffic, check) = (traffic.expect("the client"), CheckTranscript::bytes(widths.len()));
        assert_sent(traffic.sent, cost.up + check.client, 64);
        assert_sent(traffic.received, cost.down + check.server, 64);
        Ok(result)
    }

    /// Runs both parties with their halves and the check of both.
    pub(super) fn run_both(
        &self,
        widths: &[u32],
        halves: &[Vec<u8>; 2],
        run_party: impl Fn(Half<'_>, &mut Session<'_>, &mut CheckTranscript) -> Result<Vec<Vec<u64>>, MpcError> + Sync,
    ) -> Results {
        let ([client_masks, server_masks], deltas) = (self.masks(widths), self.deltas());
        let keys = [KeyShare::draw(&mut self.client.fork(98)), self.key.unseeded_share()];
        let party = |index: usize, half: Half<'_>, masks, session: &mut Session<'_>| {
            let mut transcript = CheckTranscript::new(session.role, &SESSION, &deltas[index]);
            let results = run_party(half, session, &mut transcript)?;
            transcript.agree(&keys[index], masks, session.channel, session.prg)?;
            Ok(results)
        };
        let (client, server) = run_sessions(
            1,
            |session, _| party(0, Half::Client(&self.client, &halves[0]), client_masks, session),
            |session, _| party(1, Half::Server(&halves[1]), server_masks, session),
        );
        [client, server]
    }
}

/// Results of honest parties that are both checked.
pub(super) fn honest(results: Results) -> [Vec<Vec<u64>>; 2] {
    results.map(|results| results.expect("honest parties"))
}

/// The widths of a gate's results, each once.
pub(super) fn widths(gate: &FssGate) -> Vec<u32> {
    let widths: std::collections::BTreeSet<u32> = gate.values().iter().map(|v| v.width()).collect();
    widths.into_iter().collect()
}

pub(super) fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// Runs the client with each of the bits flipped: the check fails, or the result is `honest`. Returns
/// how often the check failed.
pub(super) fn count_failures<T: PartialEq + Debug>(
    bits: impl Iterator<Item = usize>,
    honest: &T,
    run: impl Fn(usize) -> Result<T, MpcError>,
) -> usize {
    let fails = |bit: usize| match run(bit) {
        Ok(results) => {
            assert_eq!(results, *honest, "bit {bit}");
            false
        }
        Err(MpcError::Misbehaviour { .. }) => true,
        Err(other) => panic!("bit {bit}: {other}"),
    };
    bits.filter(|bit| fails(*bit)).count()
}

/// Runs both parties with each of the bits of one party's half flipped: the peer's result is that of
/// `honest`, or the peer gets none. Returns how often it got none.
pub(super) fn count_peer_failures(
    party: usize,
    bits: impl Iterator<Item = usize>,
    honest: &[Vec<Vec<u64>>; 2],
    run: impl Fn(usize) -> Results,
) -> usize {
    let fails = |bit: usize| {
        let results = run(bit);
        if let Ok(peer_results) = &results[1 - party] {
            assert_eq!(*peer_results, honest[1 - party], "party {party}, bit {bit}");
            return false;
        }
        // Found by the peer, or by the changed party, which closes the connection.
        let found = results.iter().any(|result| matches!(result, Err(MpcError::Misbehaviour { .. })));
        assert!(found, "party {party}, bit {bit}: {results:?}");
        let has_ended = matches!(results[1 - party], Err(MpcError::Misbehaviour { .. } | MpcError::Net(_)));
        assert!(has_ended, "party {party}, bit {bit}: {results:?}");
        true
    };
    bits.filter(|bit| fails(*bit)).count()
}

/// The frequency of each bit in what `deal` makes of many dealings under one pair of MAC keys, with the
/// streams `fixed` (0: the client's, 1: the server's, 2: the dealer's) the same in all of them.
pub(super) fn dealt_frequencies(
    key: &Key,
    fixed: &[usize],
    deal: impl Fn(&BatchKeys<'_>, &DealerStreams<'_>) -> Vec<u8>,
) -> Vec<f64> {
    let (mut seeds, delta) = (prg(9), Delta::draw(&mut prg(50)));
    bit_frequencies(|| {
        let mut streams = [0; 3].map(|_| Prg::from_seed(seeds.next_seed()));
        fixed.iter().for_each(|&i| streams[i] = prg(8 + i as u8));
        let id = BatchId { hash: PublicSeed::from_bytes(seeds.next_seed().0), number: 0 };
        let [client, server, dealer] = &streams;
        deal(&BatchKeys { id, delta: &delta, key }, &DealerStreams { client, server, dealer })
    })
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
    fn relu(relu: Relu, y: Vec<u64>, c: Vec<u64>) -> Self {
        let values = vec![Value::Tested { wide: relu.wide }];
        let gate = FssGate::new(y.len(), relu.width, relu.drop, values, Checked::Client);
        Self { gate, y, c, others: vec![Default::default()], base: Sides { client: 5, server: 7 } }
    }

    /// The results in the clear. `spoil` changes the client's material.
    fn run(&self, dealing: &Dealing, spoil: impl FnOnce(&mut [u8])) -> Result<Vec<Vec<u64>>, MpcError> {
        let (gate, n) = (&self.gate, self.gate.n());
        let s = subtract(&self.y, &self.c, gate.width);
        let client_values: Vec<&[u64]> = self.others.iter().map(|(_, c)| c.as_slice()).collect();
        let server_values: Vec<Vec<u64>> = self.others.iter().map(|(x, c)| subtract(x, c, 64)).collect();
        let targets: Vec<Vec<u64>> = gate.values().iter().map(|v| spread(n, v.width())).collect();
        let (client_base, server_base) = (vec![self.base.client; n], vec![self.base.server; n]);
        let (client_bases, server_bases): ([&[u64]; 1], [&[u64]; 1]) = ([&client_base], [&server_base]);
        let shares =
            ClientShares { tested: &self.c, values: &client_values, bases: &client_bases, targets: &slices(&targets) };
        let [mut corrections, material] = dealing.halves(gate, &shares);
        assert!([&corrections, &material] == dealing.halves(gate, &shares).each_ref(), "dealing is deterministic");
        spoil(&mut corrections);
        let batch = dealing.keys().0.id;
        let client = DealtHalf { prg: &dealing.client, bytes: &corrections };
        let server = DealtHalf { prg: &dealing.server, bytes: &material };
        let shares = ServerShares { tested: &s, values: &slices(&server_values), bases: &server_bases };
        let results = dealing.run(
            &widths(gate),
            &gate.cost(),
            |session, transcript| client_online(gate, batch, client, session, transcript),
            |session, transcript| server_online(gate, batch, shares, server, session, transcript),
        )?;
        Ok(results.iter().zip(&targets).zip(gate.values()).map(|((s, t), v)| add(s, t, v.width())).collect())
    }

    fn check_relu(relu: Relu, y: Vec<u64>, c: Vec<u64>) {
        let batch = Self::relu(relu, y, c);
        let actual = batch.run(&Dealing::new(9, Checked::Client), |_| {}).expect("honest parties");
        relu.check(12, &batch.y, &batch.c, &actual[0]);
    }
}

#[test]
fn relu_is_right_for_every_value_and_share_of_small_rings() {
    for relu in Relu::small(7, 3) {
        let (y, c) = relu.all_inputs();
        Batch::check_relu(relu, y, c);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn relu_is_right_in_wide_rings_and_at_edges(width in 8u32..=40, grow in 0u32..=12, drop in 0u32..=6, seed in any::<u64>()) {
        let relu = Relu { width, wide: width + grow, drop };
        let (y, c) = relu.edge_inputs(PIECE + 77, &mut prg(0).fork(seed));
        Batch::check_relu(relu, y, c);
    }

    #[test]
    fn several_values_hang_on_one_bit(width in 4u32..=30, index in 2u32..=20, seed in any::<u64>()) {
        let (n, mut stream) = (100, prg(0).fork(seed));
        let mut list = |width| random(&mut stream, n, width);
        let (mut y, c, x, cx) = (list(width), list(width), list(index), list(index));
        y.iter_mut().filter(|v| **v == 1 << (width - 1)).for_each(|v| *v = 0);
        let values = vec![Value::Tested { wide: width }, Value::Other { width: index }, Value::MinusOne { width: 9 }];
        let others = vec![Default::default(), (x.clone(), cx), Default::default()];
        let gate = FssGate::new(n, width, 0, values, Checked::Client);
        let batch = Batch { gate, y, c, others, base: Sides { client: 1, server: 0 } };
        let actual = batch.run(&Dealing::new(4, Checked::Client), |_| {}).unwrap();
        check_picked(&actual, &batch.y, &x, width, 1);
    }
}

#[test]
fn widening_is_exact_for_every_value_and_share() {
    for (width, extra) in (3..=7u32).flat_map(|width| [1u32, 3, 9].map(|extra| (width, extra))) {
        let (y, c) = widening_inputs(width);
        let spec = FssWiden { n: y.len(), width, extra, checked: Checked::Client };
        let (s, target) = (subtract(&y, &c, width), spread(y.len(), width + extra));
        let dealing = Dealing::new(3, Checked::Client);
        let material = deal_widen(&spec, &dealing.key, dealing.streams(), &c, &target);
        assert_eq!(material.len(), spec.cost().server_material);
        let half = DealtHalf { prg: &dealing.server, bytes: &material };
        let share = dealing.run(
            &[width + extra],
            &spec.cost(),
            |session, transcript| client_widen(&spec, &dealing.client, session, transcript),
            |session, transcript| server_widen(&spec, &s, half, session, transcript),
        );
        let wide = add(&share.expect("honest parties"), &target, width + extra);
        check_widened(&y, width, &wide, width + extra);
    }
}

#[test]
fn changed_correction_words_are_found_or_without_effect() {
    let y = (0..16).map(|i| i * 5 % 32).map(|v| if v == 16 { 0 } else { v }).collect();
    let batch = Batch::relu(Relu { width: 5, wide: 8, drop: 0 }, y, (0..16).map(|i| i * 7 % 32).collect());
    let dealing = Dealing::new(6, Checked::Client);
    let honest = batch.run(&dealing, |_| {}).unwrap();
    let bits = 8 * batch.gate.cost().client_material;
    let detected =
        count_failures((0..bits).step_by(5), &honest, |bit| batch.run(&dealing, |corrections| flip(corrections, bit)));
    // A word is used where the node's lowest bit is 1.
    assert!((bits / 20..bits / 5 + 1).contains(&detected), "{detected} of {} found", bits / 5);
}

/// A client that sends words of another key, value or position: the tags reveal it.
#[test]
fn values_that_were_not_dealt_are_found() {
    let spec = FssWiden { n: 20, width: 6, extra: 3, checked: Checked::Client };
    let [dealing, foreign] = [1, 2].map(|seed| Dealing::new(seed, Checked::Client));
    let zeros = vec![0; 20];
    let material = deal_widen(&spec, &dealing.key, dealing.streams(), &zeros, &zeros);
    let half = DealtHalf { prg: &dealing.server, bytes: &material };
    let result = dealing.run(
        &[9],
        &spec.cost(),
        |session, transcript| client_widen(&spec, &foreign.client, session, transcript),
        |session, transcript| server_widen(&spec, &zeros, half, session, transcript),
    );
    assert!(matches!(result, Err(MpcError::Misbehaviour { .. })));
    assert!(KeyShare::new(1 << 41).is_err());
}

/// For any share, mask and key, every bit of a half is practically uniform, or padding.
#[test]
fn one_half_is_uniform_for_every_share() {
    let gate = FssGate::new(4, 13, 0, vec![Value::Tested { wide: 20 }], Checked::Client);
    let key = Key::one_sided(&mut prg(51));
    let frequencies = |party: usize, fixed: &[usize], c: u64| {
        dealt_frequencies(&key, fixed, |keys, streams| {
            let c = [c; 4];
            let shares = ClientShares { tested: &c, values: &[&c], bases: &[], targets: &[&[0; 4]] };
            match party {
                0 => collect(|sink| deal_client(&gate, keys, streams, &shares, sink)),
                _ => collect(|sink| deal_server(&gate, keys, streams, &shares, sink)),
            }
        })
    };
    for party in [0, 1] {
        // Words of 20 and 61 bits in whole bytes.
        let padding = if party == 0 { 0 } else { gate.n() * (1 + 4) * (4 + 3) };
        for c in [0, 1, 4095, 4096, 8191] {
            assert_uniform(&frequencies(party, &[party], c), padding, (party, c));
        }
    }
    // With some streams the same every time (the client's pads, or the dealer's bits and the
    // masks), the test sees unmasked bits.
    for fixed in [&[0, 1][..], &[1, 0, 2]] {
        let is_seen = |s: &f64| *s > 0.99 || (*s >= 0.01 && !is_uniform(*s));
        let seen = frequencies(1, fixed, 1).iter().filter(|s| is_seen(s)).count();
        assert!(seen > 100, "{fixed:?}: {seen}");
    }
}

#[test]
fn words_without_masks_are_an_error_at_both_parties() {
    let share = || std::iter::once(Share { value: 1, tag: 2 });
    let (key, delta) = (KeyShare::new(3).unwrap(), DeltaShare::draw(&mut prg(1)));
    for role in [Role::Client, Role::Server] {
        let (mut channel, _peer) = tacit_net::mem_pair();
        let mut transcript = CheckTranscript::new(role, &SESSION, &delta);
        transcript.values(9, share(), std::iter::once(1u64));
        let result = match role {
            Role::Client => transcript.answer(Vec::new(), &mut channel),
            Role::Server => transcript.verify(&key, Vec::new(), &mut channel, &mut prg(2)),
        };
        assert!(matches!(result, Err(MpcError::Material { .. })), "{role:?}: {result:?}");
        assert_eq!(channel.total_traffic().sent, 0, "{role:?}");
    }
}
