//! Look-ups with tags between two parties: every index, and every changed bit of messages and
//! material.

use super::shared_tests::{self, HASH, Results};
use super::tests::Dealing;
use super::*;
use crate::dealt::{DealtHalf, Lines, LookUp};
use crate::fss::delta::Delta;
use crate::fss::mac::ring::Key;
use crate::{MpcError, low_mask};
use std::convert::Infallible;
use tacit_arith::prg::{Prg, PublicSeed, Seed};

/// A table with negative entries.
fn entries(bits: u32) -> Vec<i64> {
    (0..1i64 << bits).map(|i| (i * i * 7 + 3 * i) % 23 - 9).collect()
}

/// Every index with several shares of it.
fn batch(bits: u32, width: u32) -> (LookUp, Vec<u64>, Vec<u64>) {
    let (mask, copies) = (low_mask(bits), if bits < 6 { 1 << bits } else { 3 });
    let (mut x, mut c) = (Vec::new(), Vec::new());
    for value in 0..=mask {
        x.extend(vec![value; copies as usize]);
        c.extend((0..copies).map(|i: u64| i.wrapping_mul(0x9e37_79b9) & mask));
    }
    (LookUp::new(x.len(), width, &entries(bits)).unwrap(), x, c)
}

fn targets(n: usize, width: u32) -> Vec<u64> {
    (0..n as u64).map(|i| i.wrapping_mul(0x9e37_79b9) & low_mask(width)).collect()
}

fn halves(
    spec: &FssLookUp,
    keys: &BatchKeys<'_>,
    streams: &DealerStreams<'_>,
    c: &[u64],
    target: &[u64],
) -> [Vec<u8>; 2] {
    let mut out = [Vec::new(), Vec::new()];
    let mut sink = |bytes: &[u8], party: usize| {
        out[party].extend_from_slice(bytes);
        Ok::<_, Infallible>(())
    };
    let Ok(()) = deal_look_up_client(spec, keys, streams, c, &mut |bytes| sink(bytes, 0));
    let Ok(()) = deal_look_up_server(spec, keys, streams, c, target, &mut |bytes| sink(bytes, 1));
    assert_eq!([out[0].len(), out[1].len()], [spec.cost().client_material, spec.cost().server_material]);
    out
}

/// Results in the clear, if only the client is checked.
fn run(table: &LookUp, x: &[u64], c: &[u64], spoil: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<u64>, MpcError> {
    let (spec, dealing, width) = (FssLookUp::new(table, Checked::Client).unwrap(), Dealing::new(4), table.width());
    let target = targets(x.len(), width);
    let (keys, streams) = dealing.keys();
    let [mut client_half, material] = halves(&spec, &keys, &streams, c, &target);
    spoil(&mut client_half);
    let s: Vec<u64> = x.iter().zip(c).map(|(x, c)| x.wrapping_sub(*c)).collect();
    let client = DealtHalf { prg: &dealing.client, bytes: &client_half };
    let server = DealtHalf { prg: &dealing.server, bytes: &material };
    let (traffic, shares) = dealing.run(
        &[width],
        |session, transcript| client_look_up(&spec, keys.id, client, session, transcript),
        |session, transcript| server_look_up(&spec, keys.id, &s, server, session, transcript),
    );
    let shares = shares?;
    let (cost, check) = (spec.cost(), CheckTranscript::bytes(1));
    for (measured, stated) in
        traffic.expect("the client").into_iter().zip([cost.up + check.client, cost.down + check.server])
    {
        assert!((stated as u64..=stated as u64 + 64 * 16).contains(&measured), "{measured} bytes, {stated} stated");
    }
    Ok(shares.iter().zip(&target).map(|(s, t)| s.wrapping_add(*t) & low_mask(width)).collect())
}

fn expected_entries(x: &[u64], bits: u32, width: u32) -> Vec<u64> {
    let entries = entries(bits);
    x.iter().map(|x| entries[*x as usize] as u64 & low_mask(width)).collect()
}

#[test]
fn every_index_of_small_tables() {
    for (bits, width) in [(1, 6), (2, 5), (3, 12), (5, 24), (8, 37), (12, 16)] {
        let (table, x, c) = batch(bits, width);
        assert_eq!(run(&table, &x, &c, |_| {}).unwrap(), expected_entries(&x, bits, width), "{bits} bits");
    }
    let large = LookUp::new(1, 20, &vec![0; 1 << 13]).unwrap();
    assert!(matches!(FssLookUp::new(&large, Checked::Client), Err(MpcError::OutOfRange { max: 12, got: 13, .. })));
}

/// Changes one bit of a client's material: the check finds it, or the result is right.
#[test]
fn changed_correction_words_are_found_or_without_effect() {
    let (_, x, c) = batch(4, 9);
    let (table, x, c) = (LookUp::new(10, 9, &entries(4)).unwrap(), &x[60..70], &c[60..70]);
    let bits = 8 * FssLookUp::new(&table, Checked::Client).unwrap().cost().client_material;
    let (honest, mut detected) = (expected_entries(x, 4, 9), 0);
    for bit in (0..bits).step_by(7) {
        match run(&table, x, c, |client_half| client_half[bit / 8] ^= 1 << (bit % 8)) {
            Ok(results) => assert_eq!(results, honest, "bit {bit}"),
            Err(MpcError::Misbehaviour { .. }) => detected += 1,
            Err(other) => panic!("{other}"),
        }
    }
    // Every leaf has an effect; a word has none only if no node of its level has the lowest bit.
    assert!(detected > bits / 7 * 3 / 4, "{detected} of {}", bits / 7);
}

/// Both parties' results if both are checked, with halves that `spoil` may change.
fn shared(table: &LookUp, x: &[u64], c: &[u64], spoil: impl FnOnce(&mut [Vec<u8>; 2])) -> (Results, Vec<u64>) {
    let (spec, seed, width) = (FssLookUp::new(table, Checked::Both).unwrap(), 6, table.width());
    let [client, server, dealer] = [1, 2, 3].map(|part| Prg::from_seed(Seed([seed; 16])).fork(part));
    let (delta, key) = (Delta::draw(&mut dealer.fork(100)), Key::draw(&mut dealer.fork(101), &mut client.fork(98)));
    let keys = BatchKeys { id: BatchId { hash: PublicSeed::from_bytes(HASH), number: 5 }, delta: &delta, key: &key };
    let streams = DealerStreams { client: &client, server: &server, dealer: &dealer };
    let target = targets(x.len(), width);
    let mut halves = halves(&spec, &keys, &streams, c, &target);
    spoil(&mut halves);
    let masked: Vec<u64> = x.iter().zip(c).map(|(x, c)| x.wrapping_sub(*c)).collect();
    let results = shared_tests::run(seed, &[width], &halves, |half, session, transcript| {
        Ok(vec![shared_look_up(&spec, keys.id, &masked, half, session, transcript)?])
    });
    (results, target)
}

#[test]
fn every_index_where_both_are_checked() {
    for (bits, width) in [(1, 6), (3, 12), (5, 24), (8, 37)] {
        let (table, x, c) = batch(bits, width);
        let ([client_half, server_half], target) = shared(&table, &x, &c, |_| {});
        let (client_half, server_half) = (client_half.unwrap(), server_half.unwrap());
        assert_eq!(client_half, server_half, "both have the same");
        let clear = client_half[0].iter().zip(&target).map(|(xh, c)| xh.wrapping_add(*c) & low_mask(width));
        assert_eq!(clear.collect::<Vec<_>>(), expected_entries(&x, bits, width), "{bits} bits");
    }
}

/// Changes either party's half: the other finds it, or the result is right.
#[test]
fn changed_halves_are_found_or_without_effect_where_both_are_checked() {
    let (_, x, c) = batch(4, 9);
    let (table, x, c) = (LookUp::new(6, 9, &entries(4)).unwrap(), &x[60..66], &c[60..66]);
    let (honest, _) = shared(&table, x, c, |_| {});
    let honest = honest.map(Result::unwrap);
    for (party, step) in [(0, 11), (1, 23)] {
        let cost = FssLookUp::new(&table, Checked::Both).unwrap().cost();
        let (bits, mut detected) = (8 * [cost.client_material, cost.server_material][party], 0);
        for bit in (0..bits).step_by(step) {
            let (results, _) = shared(&table, x, c, |halves| halves[party][bit / 8] ^= 1 << (bit % 8));
            match &results[1 - party] {
                Ok(results) => assert_eq!(*results, honest[1 - party], "party {party}, bit {bit}"),
                Err(_) => {
                    // Found by this party, or by the changed one, which closes the connection.
                    let checked = |result: &Result<_, _>| matches!(result, Err(MpcError::Misbehaviour { .. }));
                    assert!(results.iter().any(checked), "party {party}, bit {bit}: {results:?}");
                    detected += 1;
                }
            }
        }
        assert!(detected > bits / step / 2, "party {party}: {detected} of {}", bits / step);
    }
}

/// A table of lines: 8 of them, of 4 numbers each.
const LINES: Lines<'_> = Lines { low: 2, shift: 1, slopes: &[5, -3, 0, 2, 11, 1, -7, 4] };

/// Every number of the table with several shares.
fn lines(width: u32) -> (LookUp, Vec<u64>, Vec<u64>) {
    let x: Vec<u64> = (0..32 * 8u64).map(|i| i / 8).collect();
    let c = (0..x.len() as u64).map(|i| (i.wrapping_mul(11) + i / 8) & 31).collect();
    (LookUp::lines(x.len(), width, &entries(3), LINES).unwrap(), x, c)
}

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
fn every_number_by_pieces_of_lines() {
    for width in [10, 24, 37] {
        let (table, x, c) = lines(width);
        check_lines(&run(&table, &x, &c, |_| {}).unwrap(), &x, width);
        let ([client_half, server_half], target) = shared(&table, &x, &c, |_| {});
        let (client_half, server_half) = (client_half.unwrap(), server_half.unwrap());
        assert_eq!(client_half, server_half, "both have the same");
        let clear = client_half[0].iter().zip(&target).map(|(xh, c)| xh.wrapping_add(*c) & low_mask(width));
        check_lines(&clear.collect::<Vec<_>>(), &x, width);
    }
}

/// Changes either party's half of lines: the other finds it, or the result is right.
#[test]
fn changed_halves_of_lines_are_found_or_without_effect() {
    let (_, x, c) = lines(10);
    let (table, x, c) = (LookUp::lines(5, 10, &entries(3), LINES).unwrap(), &x[100..105], &c[100..105]);
    let (alone, honest) = (run(&table, x, c, |_| {}).unwrap(), shared(&table, x, c, |_| {}).0.map(Result::unwrap));
    let client = 8 * FssLookUp::new(&table, Checked::Client).unwrap().cost().client_material;
    let mut detected = 0;
    for bit in (0..client).step_by(7) {
        match run(&table, x, c, |client_half| client_half[bit / 8] ^= 1 << (bit % 8)) {
            Ok(results) => assert_eq!(results, alone, "bit {bit}"),
            Err(_) => detected += 1,
        }
    }
    assert!(detected > client / 7 / 2, "{detected} of {}", client / 7);
    let cost = FssLookUp::new(&table, Checked::Both).unwrap().cost();
    for (party, step) in [(0, 11), (1, 23)] {
        let (bits, mut detected) = (8 * [cost.client_material, cost.server_material][party], 0);
        for bit in (0..bits).step_by(step) {
            let (results, _) = shared(&table, x, c, |halves| halves[party][bit / 8] ^= 1 << (bit % 8));
            match &results[1 - party] {
                Ok(results) => assert_eq!(*results, honest[1 - party], "party {party}, bit {bit}"),
                Err(_) => detected += 1,
            }
        }
        assert!(detected > bits / step / 2, "party {party}: {detected} of {}", bits / step);
    }
}

/// More than one piece, the last one partial.
const PIECES: usize = PIECE + 77;

/// Look-ups of many indices, with shares of them.
fn long_batch(n: usize, bits: u32, width: u32) -> (LookUp, Vec<u64>, Vec<u64>) {
    let (table, indices) = (LookUp::new(n, width, &entries(bits)).unwrap(), 0..n as u64);
    let c = indices.clone().map(|i| i.wrapping_mul(0x9e37_79b9) & low_mask(bits)).collect();
    (table, indices.map(|i| (13 * i) & low_mask(bits)).collect(), c)
}

#[test]
fn several_pieces_and_the_largest_tables() {
    for (n, bits, width) in [(PIECES, 3, 12), (300, 12, 16)] {
        let (table, x, c) = long_batch(n, bits, width);
        assert!(run(&table, &x, &c, |_| {}).unwrap() == expected_entries(&x, bits, width), "{bits} bits");
        let ([client_half, server_half], target) = shared(&table, &x, &c, |_| {});
        let (client_half, server_half) = (client_half.unwrap(), server_half.unwrap());
        assert!(client_half == server_half, "both have the same");
        let clear = client_half[0].iter().zip(&target).map(|(xh, c)| xh.wrapping_add(*c) & low_mask(width));
        assert!(clear.eq(expected_entries(&x, bits, width)), "{bits} bits");
    }
}

/// One changed bit in the second piece of either party's half.
#[test]
fn changed_halves_of_several_pieces_are_found_or_without_effect() {
    let (table, x, c) = long_batch(PIECES, 3, 12);
    let (honest, _) = shared(&table, &x, &c, |_| {});
    let honest = honest.map(Result::unwrap);
    let spec = FssLookUp::new(&table, Checked::Both).unwrap();
    let cost = spec.cost();
    for (party, len) in [cost.client_material, cost.server_material].into_iter().enumerate() {
        let (first, mut detected) = (len - len / PIECES * 77, 0);
        for byte in (first..len).step_by((len - first) / 6) {
            let (results, _) = shared(&table, &x, &c, |halves| halves[party][byte] ^= 1);
            match &results[1 - party] {
                Ok(results) => assert!(*results == honest[1 - party], "party {party}, byte {byte}"),
                Err(_) => detected += 1,
            }
        }
        assert!(detected >= 2, "party {party}: {detected}");
    }
}

/// Frequency of each bit in a party's half (0: the client's) over many dealings, for one share of
/// the index, one target and one MAC key, with the streams `fixed` the same in all of them.
fn ones(spec: &FssLookUp, party: usize, fixed: &[usize], c: u64, target: u64, dealings: u32) -> Vec<f64> {
    let (mut counts, mut seeds): (Vec<u32>, Prg) = (Vec::new(), Prg::from_seed(Seed([9; 16])));
    let stream = |byte: u8| Prg::from_seed(Seed([byte; 16]));
    let (delta, key) = (Delta::draw(&mut stream(50)), Key::draw(&mut stream(51), &mut stream(52)));
    let (c, target) = (vec![c; spec.n()], vec![target; spec.n()]);
    for _ in 0..dealings {
        let mut streams = [0; 3].map(|_| Prg::from_seed(seeds.next_seed()));
        fixed.iter().for_each(|&i| streams[i] = stream(8 + i as u8));
        let hash = PublicSeed::from_bytes(seeds.next_seed().0);
        let keys = BatchKeys { id: BatchId { hash, number: 0 }, delta: &delta, key: &key };
        let streams = DealerStreams { client: &streams[0], server: &streams[1], dealer: &streams[2] };
        let half = &halves(spec, &keys, &streams, &c, &target)[party];
        counts.resize(8 * half.len(), 0);
        for (i, byte) in half.iter().enumerate() {
            (0..8).for_each(|b| counts[8 * i + b] += u32::from(byte >> b & 1));
        }
    }
    counts.into_iter().map(|count| f64::from(count) / f64::from(dealings)).collect()
}

/// For any share of the index, target and key, every bit of a half is practically uniform, or
/// padding and always 0.
#[test]
fn one_half_of_a_look_up_is_uniform_for_every_share_and_target() {
    let (table, lines) = (LookUp::new(4, 20, &entries(5)), LookUp::lines(2, 20, &entries(3), LINES));
    let dealings = 400;
    let limit = 6.0 * 0.5 / f64::from(dealings).sqrt();
    for (table, checked) in [&table.unwrap(), &lines.unwrap()]
        .into_iter()
        .flat_map(|table| [Checked::Client, Checked::Both].map(|checked| (table, checked)))
    {
        let spec = FssLookUp::new(table, checked).unwrap();
        // Words of 20 and 61 bits in whole bytes; where both are checked, all have 61.
        let of_word = if checked == Checked::Client { 4 + 3 } else { 2 * 3 };
        let padding = [0, spec.n() * (table.words_dealt().len() + 1) * of_word];
        for party in [0, 1] {
            for (c, target) in [(0, 0), (1, 5), (15, 0xfffff), (16, 1 << 19), (31, 77)] {
                let counts = ones(&spec, party, &[party], c, target, dealings);
                assert_eq!(counts.iter().filter(|share| **share == 0.0).count(), padding[party]);
                for (i, share) in counts.into_iter().enumerate() {
                    assert!(
                        share == 0.0 || (share - 0.5).abs() < limit,
                        "bit {i} of half {party}, {c} to {target}: {share}"
                    );
                }
            }
        }
        // With the client's pads the same every time, the test sees unmasked bits.
        let stuck = ones(&spec, 1, &[0, 1], 1, 5, dealings).into_iter().filter(|s| *s > 0.99).count();
        assert!(stuck > 50, "{checked:?}: {stuck}");
    }
}
