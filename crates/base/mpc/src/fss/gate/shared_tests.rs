//! Gates between two checked parties, either of which may cheat.

use super::tests::{Dealing, Results, count_peer_failures, dealt_frequencies, flip, honest, widths};
use super::*;
use crate::MpcError;
use crate::dealt::{ClientShares, ServerShares, Value};
use crate::fss::mac::ring::Key;
use crate::gate::slices;
use crate::tests::{
    Relu, add, assert_uniform, check_picked, check_widened, collect, prg, random, spread, subtract, widening_inputs,
};
use crate::{Role, Session};

/// A batch: masked values at both parties, masks (as `x - xh`) at the dealer, masks of the results.
struct Batch {
    gate: FssGate,
    masked: Vec<Vec<u64>>,
    masks: Vec<Vec<u64>>,
    targets: Vec<Vec<u64>>,
}

impl Batch {
    /// A ReLU of `values` under `masks`.
    fn relu(relu: Relu, values: &[u64], masks: &[u64]) -> Self {
        let n = values.len();
        Self {
            gate: FssGate::new(n, relu.width, relu.drop, vec![Value::Tested { wide: relu.wide }], Checked::Both),
            masked: vec![subtract(values, masks, relu.width)],
            masks: vec![masks.to_vec()],
            targets: vec![spread(n, relu.wide)],
        }
    }

    fn halves(&self, dealing: &Dealing) -> [Vec<u8>; 2] {
        let (values, targets) = (slices(&self.masks), slices(&self.targets));
        dealing.halves(&self.gate, &ClientShares { tested: values[0], values: &values, bases: &[], targets: &targets })
    }

    fn run_party(
        &self,
        batch: BatchId,
        half: Half<'_>,
        session: &mut Session<'_>,
        transcript: &mut CheckTranscript,
    ) -> Result<Vec<Vec<u64>>, MpcError> {
        let values = slices(&self.masked);
        let shares = ServerShares { tested: values[0], values: &values, bases: &[] };
        shared_online(&self.gate, batch, shares, half, session, transcript)
    }

    fn run(&self, dealing: &Dealing, halves: &[Vec<u8>; 2]) -> Results {
        let batch = dealing.keys().0.id;
        dealing.run_both(&widths(&self.gate), halves, |half, session, transcript| {
            self.run_party(batch, half, session, transcript)
        })
    }

    /// The results in the clear, the same at both parties.
    fn results(&self, seed: u8) -> Vec<Vec<u64>> {
        let dealing = Dealing::new(seed, Checked::Both);
        let [client_results, server_results] = honest(self.run(&dealing, &self.halves(&dealing)));
        assert_eq!(client_results, server_results);
        let results = client_results.iter().zip(&self.targets).zip(self.gate.values());
        results.map(|((masked, masks), value)| add(masked, masks, value.width())).collect()
    }
}

#[test]
fn relu_is_right_for_every_value_and_mask_of_small_rings() {
    for relu in Relu::small(6, 2) {
        let (values, masks) = relu.all_inputs();
        relu.check(0, &values, &masks, &Batch::relu(relu, &values, &masks).results(9)[0]);
    }
}

#[test]
fn several_values_hang_on_one_bit_in_more_than_one_piece() {
    let (n, width, index, mut stream) = (PIECE + 77, 24, 13, prg(5));
    let mut list = |width| random(&mut stream, n, width);
    let (y, c, x, cx) = (list(width), list(width), list(index), list(index));
    let values = vec![Value::Tested { wide: width }, Value::Other { width: index }, Value::MinusOne { width: 9 }];
    let batch = Batch {
        gate: FssGate::new(n, width, 0, values, Checked::Both),
        targets: vec![list(width), list(index), list(9)],
        masked: vec![subtract(&y, &c, width), subtract(&x, &cx, index), vec![u64::MAX; n]],
        masks: vec![c, cx, vec![0; n]],
    };
    check_picked(&batch.results(4), &y, &x, width, 0);
}

#[test]
fn widening_is_exact_for_every_value_and_mask() {
    for (width, extra) in (3..=6u32).flat_map(|width| [1u32, 3, 9].map(|extra| (width, extra))) {
        let (y, c) = widening_inputs(width);
        let spec = FssWiden { n: y.len(), width, extra, checked: Checked::Both };
        let (masked, target) = (subtract(&y, &c, width), spread(y.len(), width + extra));
        let dealing = Dealing::new(6, Checked::Both);
        let material = deal_widen(&spec, &dealing.key, dealing.streams(), &c, &target);
        assert_eq!(material.len(), spec.cost().server_material);
        let halves = [Vec::new(), material.to_vec()];
        let results = dealing.run_both(&[width + extra], &halves, |half, session, transcript| {
            Ok(vec![shared_widen(&spec, &masked, half, session, transcript)?])
        });
        for results in honest(results) {
            check_widened(&y, width, &add(&results[0], &target, width + extra), width + extra);
        }
    }
}

#[test]
fn changed_material_of_either_party_is_found_or_without_effect() {
    let values: Vec<u64> = (0..16).map(|i| i * 5 % 32).map(|v| if v == 16 { 0 } else { v }).collect();
    let masks: Vec<u64> = (0..16).map(|i| i * 7 % 32).collect();
    let batch = Batch::relu(Relu { width: 5, wide: 8, drop: 0 }, &values, &masks);
    let dealing = Dealing::new(6, Checked::Both);
    let halves = batch.halves(&dealing);
    let honest = honest(batch.run(&dealing, &halves));
    for (party, step) in [(0, 5), (1, 11)] {
        let bits = 8 * halves[party].len();
        let detected = count_peer_failures(party, (0..bits).step_by(step), &honest, |bit| {
            let mut halves = halves.clone();
            flip(&mut halves[party], bit);
            batch.run(&dealing, &halves)
        });
        assert!(detected > bits / step / 5, "{detected} of {} found", bits / step);
    }
}

/// A result that the server alone computed is compared with the one that the client expects.
#[test]
fn wrong_projections_of_the_server_fail_the_check() {
    for wrong in [false, true] {
        let batch = Batch::relu(Relu { width: 5, wide: 8, drop: 0 }, &[3, 4], &[9, 30]);
        let dealing = Dealing::new(6, Checked::Both);
        let results = dealing.run_both(&widths(&batch.gate), &batch.halves(&dealing), |half, session, transcript| {
            transcript.project(&[1, 2, if wrong && session.role == Role::Server { 4 } else { 3 }]);
            batch.run_party(dealing.keys().0.id, half, session, transcript)
        });
        // The client leaves without showing its digests: the server releases nothing.
        assert_eq!(results.map(|results| results.is_err()), [wrong; 2]);
    }
}

/// The server's half is independent of the masks, of the masks of results, and of the keys. (The
/// client's half is its seed and correction words, as if only the client is checked.)
#[test]
fn servers_half_is_uniform_for_every_mask() {
    let gate = FssGate::new(4, 13, 0, vec![Value::Tested { wide: 20 }], Checked::Both);
    let key = Key::draw(&mut prg(51), &mut prg(52));
    let frequencies = |fixed: &[usize], c: u64| {
        dealt_frequencies(&key, fixed, |keys, streams| {
            let c = [c; 4];
            let shares = ClientShares { tested: &c, values: &[&c], bases: &[], targets: &[&[5; 4]] };
            collect(|sink| deal_server(&gate, keys, streams, &shares, sink))
        })
    };
    for c in [0, 1, 4095, 4096, 8191] {
        // Shares and tags of 61 bits in whole bytes.
        assert_uniform(&frequencies(&[], c), gate.n() * (1 + 4) * 2 * 3, c);
    }
    // With the client's pads the same every time, the test sees unmasked bits.
    assert!(frequencies(&[0], 1).into_iter().filter(|s| *s > 0.99).count() > 100);
}
