//! Look-ups with tags between two parties: every index, and every changed bit of messages and
//! material.

use super::tests::{Dealing, Results, count_failures, count_peer_failures, dealt_frequencies, flip, honest};
use super::*;
use crate::dealt::{DealtHalf, Lines, LookUp};
use crate::fss::mac::ring::Key;
use crate::tests::{add, assert_uniform, collect, prg, spread, subtract};
use crate::{MpcError, low_mask};

/// A table with negative entries.
fn entries(bits: u32) -> Vec<i64> {
    (0..1i64 << bits).map(|i| (i * i * 7 + 3 * i) % 23 - 9).collect()
}

/// Look-ups with the indices and the client's shares of them.
struct Batch {
    table: LookUp,
    x: Vec<u64>,
    c: Vec<u64>,
}

impl Batch {
    /// Every index with several shares of it.
    fn of_every_index(bits: u32, width: u32) -> Self {
        let (mask, copies) = (low_mask(bits), if bits < 6 { 1 << bits } else { 3 });
        let pairs = (0..=mask).flat_map(|x| (0..copies).map(move |i: u64| (x, i.wrapping_mul(0x9e37_79b9) & mask)));
        let (x, c): (Vec<u64>, Vec<u64>) = pairs.unzip();
        Self { table: LookUp::new(x.len(), width, &entries(bits)).unwrap(), x, c }
    }

    /// Every number of a table of lines with several shares of it.
    fn of_lines(width: u32) -> Self {
        let x: Vec<u64> = (0..32 * 8u64).map(|i| i / 8).collect();
        let c = (0..x.len() as u64).map(|i| (i.wrapping_mul(11) + i / 8) & 31).collect();
        Self { table: LookUp::with_lines(x.len(), width, &entries(3), LINES).unwrap(), x, c }
    }

    /// `n` indices with shares of them.
    fn of_many(n: usize, bits: u32, width: u32) -> Self {
        let x = (0..n as u64).map(|i| (13 * i) & low_mask(bits)).collect();
        Self { table: LookUp::new(n, width, &entries(bits)).unwrap(), x, c: spread(n, bits) }
    }

    /// Some of the indices, for look-ups in `table`.
    fn select(&self, table: Result<LookUp, MpcError>, range: std::ops::Range<usize>) -> Self {
        Self { table: table.unwrap(), x: self.x[range.clone()].to_vec(), c: self.c[range].to_vec() }
    }

    fn spec(&self, checked: Checked) -> FssLookUp {
        FssLookUp::new(&self.table, checked).unwrap()
    }

    fn target(&self) -> Vec<u64> {
        spread(self.x.len(), self.table.width)
    }

    fn expected(&self, bits: u32) -> Vec<u64> {
        let entries = entries(bits);
        self.x.iter().map(|x| entries[*x as usize] as u64 & low_mask(self.table.width)).collect()
    }

    /// Results in the clear, if only the client is checked.
    fn run(&self, spoil: impl FnOnce(&mut [u8])) -> Result<Vec<u64>, MpcError> {
        let (spec, dealing) = (self.spec(Checked::Client), Dealing::new(4, Checked::Client));
        let (width, target) = (self.table.width, self.target());
        let (keys, streams) = dealing.keys();
        let [mut corrections, material] = halves(&spec, &keys, &streams, &self.c, &target);
        spoil(&mut corrections);
        let s = subtract(&self.x, &self.c, 64);
        let client = DealtHalf { prg: &dealing.client, bytes: &corrections };
        let server = DealtHalf { prg: &dealing.server, bytes: &material };
        let shares = dealing.run(
            &[width],
            &spec.cost(),
            |session, transcript| client_look_up(&spec, keys.id, client, session, transcript),
            |session, transcript| server_look_up(&spec, keys.id, &s, server, session, transcript),
        )?;
        Ok(add(&shares, &target, width))
    }

    /// Both parties' results if both are checked, with halves that `spoil` may change.
    fn run_both(&self, spoil: impl FnOnce(&mut [Vec<u8>; 2])) -> Results {
        let (spec, dealing) = (self.spec(Checked::Both), Dealing::new(6, Checked::Both));
        let (keys, streams) = dealing.keys();
        let mut halves = halves(&spec, &keys, &streams, &self.c, &self.target());
        spoil(&mut halves);
        let masked = subtract(&self.x, &self.c, 64);
        dealing.run_both(&[self.table.width], &halves, |half, session, transcript| {
            Ok(vec![shared_look_up(&spec, keys.id, &masked, half, session, transcript)?])
        })
    }

    /// Results in the clear if both are checked, the same at both parties.
    fn shared_results(&self) -> Vec<u64> {
        let [client_results, server_results] = honest(self.run_both(|_| {}));
        assert_eq!(client_results, server_results);
        add(&client_results[0], &self.target(), self.table.width)
    }

    /// Flips each `step`-th bit of the client's half, if only the client is checked; returns the number
    /// of flips and of failed checks.
    fn flip_corrections(&self, step: usize) -> (usize, usize) {
        let bits = 8 * self.spec(Checked::Client).cost().client_material;
        let expected = self.run(|_| {}).unwrap();
        let run = |bit| self.run(|corrections| flip(corrections, bit));
        (bits / step, count_failures((0..bits).step_by(step), &expected, run))
    }

    /// As [`Self::flip_corrections`], for each half if both are checked: more than half of the checks fail.
    fn check_flipped_halves(&self) {
        let cost = self.spec(Checked::Both).cost();
        let expected = honest(self.run_both(|_| {}));
        for (party, bytes, step) in [(0, cost.client_material, 11), (1, cost.server_material, 23)] {
            let run = |bit| self.run_both(|halves| flip(&mut halves[party], bit));
            let detected = count_peer_failures(party, (0..8 * bytes).step_by(step), &expected, run);
            assert!(detected > 8 * bytes / step / 2, "party {party}: {detected} of {}", 8 * bytes / step);
        }
    }
}

/// The client's half and the server's.
fn halves(
    spec: &FssLookUp,
    keys: &BatchKeys<'_>,
    streams: &DealerStreams<'_>,
    c: &[u64],
    target: &[u64],
) -> [Vec<u8>; 2] {
    let halves = [
        collect(|sink| deal_look_up_client(spec, keys, streams, c, sink)),
        collect(|sink| deal_look_up_server(spec, keys, streams, c, target, sink)),
    ];
    assert_eq!(halves.each_ref().map(Vec::len), [spec.cost().client_material, spec.cost().server_material]);
    halves
}

#[test]
fn looks_up_every_index_of_small_tables() {
    for (bits, width) in [(1, 6), (2, 5), (3, 12), (5, 24), (8, 37), (12, 16)] {
        let batch = Batch::of_every_index(bits, width);
        assert_eq!(batch.run(|_| {}).unwrap(), batch.expected(bits), "{bits} bits");
    }
    let large = LookUp::new(1, 20, &vec![0; 1 << 13]).unwrap();
    assert!(matches!(FssLookUp::new(&large, Checked::Client), Err(MpcError::OutOfRange { max: 12, got: 13, .. })));
}

#[test]
fn looks_up_every_index_where_both_are_checked() {
    for (bits, width) in [(1, 6), (3, 12), (5, 24), (8, 37)] {
        let batch = Batch::of_every_index(bits, width);
        assert_eq!(batch.shared_results(), batch.expected(bits), "{bits} bits");
    }
}

#[test]
fn changed_correction_words_are_found_or_without_effect() {
    let batch = Batch::of_every_index(4, 9).select(LookUp::new(10, 9, &entries(4)), 60..70);
    assert_eq!(batch.run(|_| {}).unwrap(), batch.expected(4));
    let (flips, detected) = batch.flip_corrections(7);
    // Every leaf has an effect; a word has none only if no node of its level has the lowest bit.
    assert!(detected > flips * 3 / 4, "{detected} of {flips}");
}

#[test]
fn changed_halves_are_found_or_without_effect_where_both_are_checked() {
    Batch::of_every_index(4, 9).select(LookUp::new(6, 9, &entries(4)), 60..66).check_flipped_halves();
}

/// A table of lines: 8 of them, of 4 numbers each.
const LINES: Lines<'_> = Lines { low: 2, shift: 1, slopes: &[5, -3, 0, 2, 11, 1, -7, 4] };

/// Each number's result by the line of its piece, or of the piece above; both occur.
fn check_lines(results: &[u64], x: &[u64], width: u32) {
    let mut above_count = 0;
    for (x, actual) in x.iter().zip(results) {
        let line = |i: u64, l: i64| (entries(3)[i as usize & 7] << 1) + LINES.slopes[i as usize & 7] * l;
        let (i, l) = (x >> 2, (x & 3) as i64);
        let either = [line(i, l), line(i + 1, l - 4)].map(|y| y as u64 & low_mask(width));
        assert!(either.contains(actual), "{x}: {actual} of {either:?}");
        above_count += usize::from(*actual == either[1] && either[0] != either[1]);
    }
    assert!(above_count > x.len() / 8, "{above_count}");
}

#[test]
fn looks_up_every_number_by_pieces_of_lines() {
    for width in [10, 24, 37] {
        let batch = Batch::of_lines(width);
        check_lines(&batch.run(|_| {}).unwrap(), &batch.x, width);
        check_lines(&batch.shared_results(), &batch.x, width);
    }
}

#[test]
fn changed_halves_of_lines_are_found_or_without_effect() {
    let batch = Batch::of_lines(10).select(LookUp::with_lines(5, 10, &entries(3), LINES), 100..105);
    let (flips, detected) = batch.flip_corrections(7);
    assert!(detected > flips / 2, "{detected} of {flips}");
    batch.check_flipped_halves();
}

/// More than one piece, the last one partial.
const MORE_THAN_ONE_PIECE: usize = PIECE + 77;

#[test]
fn looks_up_several_pieces_and_in_the_largest_tables() {
    for (n, bits, width) in [(MORE_THAN_ONE_PIECE, 3, 12), (300, 12, 16)] {
        let batch = Batch::of_many(n, bits, width);
        assert!(batch.run(|_| {}).unwrap() == batch.expected(bits), "{bits} bits");
        assert!(batch.shared_results() == batch.expected(bits), "{bits} bits");
    }
}

/// Flips bits in the second piece of either party's half.
#[test]
fn changed_halves_of_several_pieces_are_found_or_without_effect() {
    let batch = Batch::of_many(MORE_THAN_ONE_PIECE, 3, 12);
    let expected = honest(batch.run_both(|_| {}));
    let cost = batch.spec(Checked::Both).cost();
    for (party, len) in [cost.client_material, cost.server_material].into_iter().enumerate() {
        let first = len - len / MORE_THAN_ONE_PIECE * 77;
        let bits = (first..len).step_by((len - first) / 6).map(|byte| 8 * byte);
        let run = |bit| batch.run_both(|halves| flip(&mut halves[party], bit));
        let detected = count_peer_failures(party, bits, &expected, run);
        assert!(detected >= 2, "party {party}: {detected}");
    }
}

/// For any share of the index, target and key, every bit of a half is practically uniform, or
/// padding.
#[test]
fn one_half_of_a_look_up_is_uniform_for_every_share_and_target() {
    let tables = [LookUp::new(4, 20, &entries(5)), LookUp::with_lines(2, 20, &entries(3), LINES)].map(Result::unwrap);
    let key = Key::draw(&mut prg(51), &mut prg(52));
    for (table, checked) in tables.iter().flat_map(|table| [(table, Checked::Client), (table, Checked::Both)]) {
        let spec = FssLookUp::new(table, checked).unwrap();
        // Words of 20 and 61 bits in whole bytes; where both are checked, all have 61.
        let padding_bits_per_word = if checked == Checked::Client { 4 + 3 } else { 2 * 3 };
        let padding = [0, spec.n() * (table.words_dealt().len() + 1) * padding_bits_per_word];
        let frequencies = |party: usize, fixed: &[usize], c: u64, target: u64| {
            let (c, target) = (vec![c; spec.n()], vec![target; spec.n()]);
            dealt_frequencies(&key, fixed, |keys, streams| {
                halves(&spec, keys, streams, &c, &target).into_iter().nth(party).expect("two halves")
            })
        };
        for party in [0, 1] {
            for (c, target) in [(0, 0), (1, 5), (15, 0xfffff), (16, 1 << 19), (31, 77)] {
                let case = (checked, party, c, target);
                assert_uniform(&frequencies(party, &[party], c, target), padding[party], case);
            }
        }
        // With the client's pads the same every time, the test sees unmasked bits.
        let stuck = frequencies(1, &[0, 1], 1, 5).into_iter().filter(|s| *s > 0.99).count();
        assert!(stuck > 50, "{checked:?}: {stuck}");
    }
}
