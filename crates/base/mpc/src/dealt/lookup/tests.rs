use tacit_arith::prg::Prg;
use tacit_net::Sides;

use super::super::{BLOCK, DealtHalf};
use super::{Lines, LookUp, client_look_up, deal_look_up, server_look_up};
use crate::low_mask;
use crate::session::run_sessions;
use crate::tests::{
    add, assert_sent, assert_uniform, bit_frequencies, collect, prg, random, spread, subtract, with_all_shares,
};

fn deal_material(spec: &LookUp, c: &[u64], streams: Sides<&Prg>) -> Vec<u8> {
    collect(|sink| deal_look_up(spec, c, streams, sink))
}

/// Looks `x` up with the client's shares `c`, and compares material and traffic with the stated
/// cost.
fn run(spec: &LookUp, x: &[u64], c: &[u64]) -> Vec<u64> {
    let (client, server) = (prg(3), prg(4));
    let streams = Sides { client: &client, server: &server };
    let material = deal_material(spec, c, streams);
    let cost = spec.cost();
    assert_eq!(material.len(), cost.material);
    assert!(material == deal_material(spec, c, streams), "dealing is deterministic");
    let s = subtract(x, c, spec.index_bits());
    let target = spread(x.len(), spec.width);
    let (traffic, (shares, answered)) = run_sessions(
        1,
        |session, _| {
            client_look_up(spec, &target, &client, session).expect("the client");
            session.channel.flush().expect("flushed");
            session.channel.total_traffic()
        },
        |session, _| {
            let cut = DealtHalf { prg: &server, bytes: &material[1..] };
            assert!(server_look_up(spec, &s, cut, session).is_err());
            let half = DealtHalf { prg: &server, bytes: &material };
            let shares = server_look_up(spec, &s, half, session).expect("the server");
            (shares, session.channel.total_traffic())
        },
    );
    assert_sent(traffic.sent, cost.up, 8);
    assert_sent(answered.sent, cost.down, 8);
    add(&shares, &target, spec.width)
}

fn table(bits: u32, span: i64) -> Vec<i64> {
    (0..1i64 << bits).map(|i| (i.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 20).rem_euclid(span) - span / 3).collect()
}

fn check(width: u32, table: &[i64], x: &[u64], c: &[u64]) {
    let spec = LookUp::new(x.len(), width, table).unwrap();
    for (i, actual) in run(&spec, x, c).into_iter().enumerate() {
        assert_eq!(actual, table[x[i] as usize] as u64 & low_mask(width), "entry {} with {}", x[i], c[i]);
    }
}

#[test]
fn looks_up_every_index_with_every_share_in_small_tables() {
    for bits in 1..=6u32 {
        let (x, c) = with_all_shares(0..1 << bits, bits);
        for (width, span) in [(2, 4), (9, 300), (40, 1 << 39)] {
            check(width, &table(bits, span), &x, &c);
        }
        // A constant entry, and one that fills its ring.
        check(5, &vec![-7; 1 << bits], &x, &c);
        check(3, &table(bits, 8), &x, &c);
    }
}

#[test]
fn looks_up_every_index_with_one_hot_vectors_and_with_keys() {
    let mut stream = prg(9);
    for bits in 7..=12u32 {
        let x: Vec<u64> = (0..1u64 << bits).chain([0, low_mask(bits)]).collect();
        check(17, &table(bits, 60_000), &x, &random(&mut stream, x.len(), bits));
    }
    // Several blocks, the last one partial; the widest table.
    let [x, c] = [0; 2].map(|_| random(&mut stream, BLOCK + 77, 8));
    check(20, &table(8, 60_000), &x, &c);
    check(30, &table(16, 1 << 29), &[0, 5, 65_535, 32_768], &[9, 65_535, 1, 32_768]);
    check(30, &table(16, 1 << 29), &[], &[]);
}

#[test]
fn malformed_tables_are_rejected() {
    for entries in [vec![], vec![1], vec![1, 2, 3], vec![0; 1 << 17]] {
        assert!(LookUp::new(1, 20, &entries).is_err(), "{} entries", entries.len());
    }
    for (width, entries) in [(1, [0, 1]), (64, [0, 1]), (3, [0, 8]), (20, [i64::MIN, i64::MAX])] {
        assert!(LookUp::new(1, width, &entries).is_err(), "{entries:?} in {width} bits");
    }
}

/// Returns the entries, the slopes, and the parameters of `2^bits` lines over `2^low` numbers each.
fn lines(bits: u32, low: u32) -> (Vec<i64>, Vec<i64>, Lines<'static>) {
    let slopes = table(bits, 37);
    (table(bits, 500), slopes.clone(), Lines { low, shift: 3, slopes: slopes.leak() })
}

/// Returns both results that are allowed for `x`: on its own line, and on the next piece's line.
fn by_lines(x: u64, entries: &[i64], lines: Lines<'_>, width: u32) -> [u64; 2] {
    let (l, count) = ((x & low_mask(lines.low)) as i64, entries.len());
    let line = |i: usize, l: i64| (entries[i % count] << lines.shift) + lines.slopes[i % count] * l;
    let i = (x >> lines.low) as usize;
    [line(i, l), line(i + 1, l - (1 << lines.low))].map(|y| y as u64 & low_mask(width))
}

/// Covers all numbers and shares of small rings, and some of large ones. Requires that the next
/// piece's line gives more than a tenth of the results.
#[test]
fn looks_up_every_number_and_share_by_pieces_of_lines() {
    for (bits, low, width) in [(1, 1, 12), (3, 1, 20), (2, 3, 13), (4, 3, 40), (6, 20, 37), (9, 7, 30)] {
        let (entries, _, lines) = lines(bits, low);
        let excess_bits = (bits + low).saturating_sub(7);
        let stretch = |v: u64| v << excess_bits | v & low_mask(excess_bits);
        let (x, c) = with_all_shares(0..1 << (bits + low).min(7), (bits + low).min(7));
        let [x, c] = [x, c].map(|list| list.into_iter().map(stretch).collect::<Vec<u64>>());
        let spec = LookUp::with_lines(x.len(), width, &entries, lines).unwrap();
        let mut above_count = 0;
        for (i, actual) in run(&spec, &x, &c).into_iter().enumerate() {
            let either = by_lines(x[i], &entries, lines, width);
            assert!(either.contains(&actual), "{bits} bits and {low}: {} with {}, {actual}, {either:?}", x[i], c[i]);
            above_count += usize::from(actual == either[1] && either[0] != either[1]);
        }
        assert!(above_count * 10 > x.len(), "{above_count} of {}", x.len());
    }
}

#[test]
fn malformed_lines_are_rejected() {
    let (entries, slopes, lines) = lines(4, 3);
    let is_valid = |width, lines| LookUp::with_lines(1, width, &entries, lines).is_ok();
    assert!(is_valid(20, lines));
    let steep = [1 << 20; 16];
    for (width, other) in [
        (20, Lines { low: 0, ..lines }),
        (20, Lines { low: 37, ..lines }),
        (20, Lines { low: u32::MAX, ..lines }),
        (20, Lines { shift: 20, ..lines }),
        (11, lines),
        (20, Lines { slopes: &slopes[1..], ..lines }),
        (20, Lines { slopes: &[&steep[1..], &[-5]].concat(), ..lines }),
    ] {
        assert!(!is_valid(width, other), "{width} bits, {other:?}");
    }
}

/// With its own stream fixed, the server's half is independent of the client's share.
#[test]
fn servers_half_of_a_table_is_uniform_for_every_share() {
    let (mut seeds, server) = (prg(7), prg(8));
    let tables = [6u32, 8, 9].map(|bits| (bits, LookUp::new(16, 12, &table(bits, 200)).unwrap()));
    // Eight lines need no keys, so their material has no public seed: all its bits are tested.
    let (entries, _, lines) = lines(3, 6);
    let tables = tables.into_iter().chain([(3, LookUp::with_lines(16, 24, &entries, lines).unwrap())]);
    for (bits, spec) in tables {
        for c in [0, 1, low_mask(spec.index_bits()), 37] {
            let frequencies = bit_frequencies(|| {
                let client = Prg::from_seed(seeds.next_seed());
                deal_material(&spec, &[c; 16], Sides { client: &client, server: &server })
            });
            // Tables over 8 bits start with a 128-bit public seed from the server's stream, which is
            // fixed here: skip it.
            assert_uniform(&frequencies[if bits > 8 { 128 } else { 0 }..], 0, (bits, c));
        }
    }
}

/// A table's keys hash under a public seed, which the client sees. A block of the server's
/// generator for a known number would be a plaintext and ciphertext pair under the key of its
/// masks.
#[test]
fn public_seed_of_a_table_is_no_block_under_the_key_of_the_servers_masks() {
    let spec = LookUp::new(16, 12, &table(9, 200)).unwrap();
    for seed in [4, 5] {
        let server = prg(seed);
        let material = deal_material(&spec, &[7; 16], Sides { client: &prg(3), server: &server });
        let public: [u8; 16] = material[..16].try_into().unwrap();
        // Nor is it the key of a fork, or the next block of the stream.
        assert_ne!(public, server.fork(u64::MAX).seed().0);
        let domains = (0..64).chain(u64::MAX - 63..=u64::MAX);
        assert!(domains.into_iter().all(|domain| server.fork(domain).seed().0 != public));
        assert_ne!(public, prg(seed).next_seed().0);
    }
}
