use super::compare::{self, Keys, Shape};
use super::delta::{Delta, bits};
use super::table::{self, Table};
use super::tree_hash::{Place, TreeHash};
use super::{Bound, GROUP, dpf};
use crate::tests::{prg, random, with_all_shares};
use crate::{MpcError, Role};
use proptest::prelude::*;
use tacit_arith::bits::Bits;
use tacit_arith::block::Block;
use tacit_arith::prg::PublicSeed;

const PLACE: Place = Place { batch: 3, group: 5 };

fn hash() -> TreeHash {
    TreeHash::new(PublicSeed::from_bytes([1; 16]))
}

/// The keys of both parties; the first drew its tables from a seed.
fn deal(shape: Shape, delta: &Delta, alphas: &[u64]) -> [Keys; 2] {
    let mut hash = hash();
    let dealt = compare::deal(&mut hash, PLACE, shape, delta, alphas, &mut prg(9));
    assert_eq!(16 * dealt.tops.len(), shape.tops_bytes(alphas.len()));
    assert_eq!(16 * dealt.corrections.len(), shape.corrections_bytes(alphas.len()));
    assert_eq!(hash.work(), shape.deal_work(alphas.len()));
    let seeded = Keys::seeded(shape, alphas.len(), &mut prg(9), dealt.corrections.clone()).unwrap();
    [seeded, Keys::new(shape, alphas.len(), dealt.tops, dealt.corrections).unwrap()]
}

fn eval(keys: &Keys, points: &[u64], bound: Bound) -> Vec<Block> {
    let mut hash = hash();
    let mut out = vec![Block::ONE; points.len()];
    keys.eval(&mut hash, PLACE, points, bound, &mut out);
    assert_eq!(hash.work(), keys.shape().eval_work(points.len()));
    out
}

/// Both bounds at all points against the plain comparison, with tags, `low` bits dropped.
fn check_compare(shape: Shape, low: u32, alphas: &[u64], points: &[u64]) {
    let delta = Delta::draw(&mut prg(2));
    let keys = deal(shape, &delta, alphas);
    let compared_part = |v: u64| v >> low & crate::low_mask(shape.bits());
    for bound in [Bound::Below, Bound::AtMost] {
        let [client_values, server_values] = [0, 1].map(|party| eval(&keys[party], points, bound));
        let opened = bits(&client_values).xor(&bits(&server_values));
        for i in 0..points.len() {
            let (x, alpha) = (compared_part(points[i]), compared_part(alphas[i]));
            let expected = if bound == Bound::Below { x < alpha } else { x <= alpha };
            assert_eq!(opened.get(i), expected, "{x} {bound:?} {alpha} of {} bits", shape.bits());
            assert!(client_values[i] ^ server_values[i] == delta.times(u64::from(expected)), "tag of {x}, {alpha}");
        }
    }
}

/// Pairs around each other, around powers of two and the block edges of 128 bits, and random ones.
fn edges(bits: u32, seed: u8, n: usize) -> (Vec<u64>, Vec<u64>) {
    let mut prg = prg(seed);
    let mask = crate::low_mask(bits);
    let mut out = Vec::new();
    for i in 0..n {
        let random = prg.next_u64() & mask;
        let alpha = match i % 4 {
            0 => random,
            1 => random & !127,
            2 => random | 127,
            _ => 1u64.checked_shl(i as u32 / 4 % (bits + 1)).unwrap_or(0).wrapping_sub((i as u64 / 4) & 1) & mask,
        };
        for x in [alpha, alpha.wrapping_add(1) & mask, alpha.wrapping_sub(1) & mask, prg.next_u64() & mask, 0, mask] {
            out.push((alpha, x));
        }
    }
    out.into_iter().unzip()
}

#[test]
fn comparisons_are_exact_for_all_pairs_of_up_to_eight_bits() {
    for bits in 1..=8 {
        let (alphas, points) = with_all_shares(0..1 << bits, bits);
        for top in 0..=bits.min(if bits < 6 { compare::MAX_TOP } else { 3 }) {
            check_compare(Shape::new(bits).unwrap().with_top(top).unwrap(), 0, &alphas, &points);
        }
    }
}

#[test]
fn comparisons_are_exact_at_edges_and_at_random_up_to_all_widths() {
    for bits in [9, 12, 13, 16, 23, 24, 25, 31, 32, 37, 40, 63, 64] {
        let (alphas, points) = edges(bits, bits as u8, 100);
        check_compare(Shape::new(bits).unwrap(), 0, &alphas, &points);
        check_compare(Shape::new(bits).unwrap().with_top(0).unwrap(), 0, &alphas, &points);
    }
}

#[test]
fn comparisons_ignore_dropped_low_bits_and_bits_above() {
    for (bits, low) in [(5, 3), (12, 8), (24, 40), (1, 63)] {
        let (alphas, points) = edges(64, bits as u8, 60);
        check_compare(Shape::new(bits).unwrap().with_dropped_bits(low).unwrap(), low, &alphas, &points);
    }
}

#[test]
fn batches_cut_at_groups_give_the_same_shares() {
    let shape = Shape::new(11).unwrap();
    let (alphas, points) = edges(11, 4, 200);
    let delta = Delta::draw(&mut prg(2));
    let uncut = deal(shape, &delta, &alphas);
    let cut = 2 * GROUP;
    let mut stream = prg(9);
    let first = compare::deal(&mut hash(), PLACE, shape, &delta, &alphas[..cut], &mut stream);
    let second = compare::deal(&mut hash(), PLACE.after(2), shape, &delta, &alphas[cut..], &mut stream);
    let expected = eval(&uncut[1], &points, Bound::Below);
    let mut actual = vec![Block::ZERO; points.len()];
    for (dealt, place, range) in [(first, PLACE, 0..cut), (second, PLACE.after(2), cut..points.len())] {
        let keys = Keys::new(shape, range.len(), dealt.tops, dealt.corrections).unwrap();
        assert_eq!((keys.len(), keys.is_empty()), (range.len(), false));
        keys.eval(&mut hash(), place, &points[range.clone()], Bound::Below, &mut actual[range]);
    }
    assert_eq!(actual, expected);
}

/// Bytes, AES calls and AES keys of a comparison, as documented.
#[test]
fn costs_are_as_documented() {
    let shape = Shape::new(24).unwrap();
    assert_eq!((shape.corrections_bytes(1), shape.tops_bytes(1)), (352, 64));
    let work = |keys, hashes| super::tree_hash::Work { keys, hashes };
    assert_eq!((shape.deal_work(257), shape.eval_work(257)), (work(44, 44 * 257), work(44, 22 * 257)));
    assert_eq!(table::work(Shape::new(8).unwrap(), 3), work(6, 3 * 252));
    let shape = dpf::Shape::new(24).unwrap();
    assert_eq!((shape.bytes(1), shape.deal_work(1), shape.eval_work(1)), (288, work(18, 36), work(18, 18)));
    let shape = dpf::Shape::new(12).unwrap();
    assert_eq!((shape.bytes(1), shape.one_hot_work(2)), (96, work(6, 126)));
}

#[test]
fn shapes_out_of_range_and_material_of_wrong_length_are_refused() {
    for bits in [0, 65, u32::MAX] {
        assert!(matches!(Shape::new(bits), Err(MpcError::OutOfRange { .. })), "{bits}");
    }
    let shape = Shape::new(10).unwrap();
    assert!(
        shape.with_top(9).is_err()
            && shape.with_dropped_bits(55).is_err()
            && Shape::new(3).unwrap().with_top(4).is_err()
    );
    assert!(dpf::Shape::new(65).is_err());
    let blocks = |n| vec![Block::ZERO; n];
    for (n, tops, corrections) in [(2, 7, 16), (2, 8, 15), (2, 9, 17), (usize::MAX, 8, 16)] {
        assert!(matches!(
            Keys::new(shape, n, blocks(tops).into(), blocks(corrections)),
            Err(MpcError::Material { .. })
        ));
    }
    assert!(matches!(Keys::seeded(shape, usize::MAX, &mut prg(1), blocks(16)), Err(MpcError::Material { .. })));
    assert!(matches!(Keys::seeded(shape, 3, &mut prg(1), blocks(16)), Err(MpcError::Material { .. })));
    assert!(dpf::Keys::new(Role::Client, dpf::Shape::new(9).unwrap(), 2, &mut prg(1), blocks(5)).is_err());
    let wide = Keys::new(Shape::new(13).unwrap(), 0, blocks(0).into(), blocks(0)).unwrap();
    assert!(table::one_hot(&wide, &mut hash(), PLACE, |_, _| ()).is_err());
    for (bits, out_bits, entries) in [(17, 1, 1), (2, 65, 4), (2, 1, 3), (2, 1, 5)] {
        assert!(Table::new(bits, out_bits, vec![0; entries]).is_err());
    }
    assert!(Table::new(2, 3, vec![7, 7, 8, 7]).is_err());
    let function = Table::new(2, 3, vec![7; 4]).unwrap();
    let keys = Keys::new(shape, 0, blocks(0).into(), blocks(0)).unwrap();
    assert!(table::look_up(&keys, &mut hash(), PLACE, &function, &[], &mut []).is_err());
}

fn deal_dpf(shape: dpf::Shape, alphas: &[u64]) -> [dpf::Keys; 2] {
    let mut hash = hash();
    let words = dpf::deal(&mut hash, PLACE, shape, alphas, &mut prg(6), &mut prg(7));
    assert_eq!((16 * words.len(), hash.work()), (shape.bytes(alphas.len()), shape.deal_work(alphas.len())));
    [(Role::Client, 6), (Role::Server, 7)].map(|(role, seed)| {
        let keys = dpf::Keys::new(role, shape, alphas.len(), &mut prg(seed), words.clone()).unwrap();
        assert_eq!((keys.len(), keys.is_empty()), (alphas.len(), alphas.is_empty()));
        keys
    })
}

fn check_dpf(bits: u32, alphas: &[u64], points: &[u64]) {
    let shape = dpf::Shape::new(bits).unwrap();
    let keys = deal_dpf(shape, alphas);
    for bound in [Bound::Below, Bound::AtMost] {
        let shares = [0, 1].map(|party: usize| {
            let mut hash = hash();
            let out = keys[party].eval(&mut hash, PLACE, points, bound);
            assert_eq!(hash.work(), shape.eval_work(points.len()));
            out
        });
        let expected: Bits =
            alphas.iter().zip(points).map(|(a, x)| if bound == Bound::Below { x < a } else { x <= a }).collect();
        assert!(shares[0].xor(&shares[1]) == expected, "{bits} bits, {bound:?}");
    }
}

#[test]
fn early_ended_comparisons_are_exact() {
    for bits in 0..=8 {
        let (alphas, points) = with_all_shares(0..1 << bits, bits);
        check_dpf(bits, &alphas, &points);
    }
    for bits in [9, 10, 14, 15, 23, 24, 33, 40, 64] {
        let (alphas, points) = edges(bits, bits as u8, 100);
        check_dpf(bits, &alphas, &points);
    }
}

/// A staircase of the masked value.
#[test]
fn one_key_serves_many_thresholds() {
    let (bits, mask) = (12, 4095u64);
    let alphas: Vec<u64> = (0..300).map(|i| (i * 1237) & mask).collect();
    let keys = deal_dpf(dpf::Shape::new(bits).unwrap(), &alphas);
    for threshold in [0, 1, 127, 128, 129, 2048, 4095] {
        let points: Vec<u64> = alphas.iter().map(|a| a.wrapping_add(77).wrapping_sub(threshold) & mask).collect();
        let shares = keys.each_ref().map(|k| k.eval(&mut hash(), PLACE, &points, Bound::AtMost));
        let expected: Bits = alphas.iter().zip(&points).map(|(alpha, x)| x <= alpha).collect();
        assert!(shares[0].xor(&shares[1]) == expected, "threshold {threshold}");
    }
}

#[test]
fn one_hot_vectors_have_one_one() {
    for (bits, n) in [(0, 1), (3, 8), (7, 128), (8, 256), (9, 300), (13, 9), (16, 2)] {
        let mask = crate::low_mask(bits);
        let alphas: Vec<u64> = (0..n as u64).map(|i| i.wrapping_mul(0x9e37) & mask).collect();
        let shape = dpf::Shape::new(bits).unwrap();
        let [client_values, server_values] = deal_dpf(shape, &alphas).map(|keys| {
            let (mut hash, mut out) = (hash(), Vec::new());
            keys.one_hot(&mut hash, PLACE, |i, leaves| {
                assert_eq!(i, out.len());
                out.push(leaves.to_vec());
            })
            .unwrap();
            assert_eq!(hash.work(), shape.one_hot_work(n));
            out
        });
        for (i, alpha) in alphas.iter().enumerate() {
            let ones: Vec<u64> = (0..128 * client_values[i].len() as u64)
                .filter(|j| {
                    (client_values[i][*j as usize / 128] ^ server_values[i][*j as usize / 128]).0 >> (j % 128) & 1 == 1
                })
                .collect();
            assert_eq!(ones, [*alpha], "{bits} bits");
        }
    }
    let wide = deal_dpf(dpf::Shape::new(17).unwrap(), &[1]);
    assert!(wide[0].one_hot(&mut hash(), PLACE, |_, _| ()).is_err());
}

#[test]
fn one_hot_vectors_with_tags_are_delta_at_alpha() {
    for (bits, top, n) in [(1, 0, 2), (3, 2, 8), (6, 6, 64), (8, 2, 260), (12, 2, 3), (12, 0, 2)] {
        let shape = Shape::new(bits).unwrap().with_top(top).unwrap();
        let alphas: Vec<u64> = (0..n as u64).map(|i| i.wrapping_mul(0x9e3779b9) & crate::low_mask(bits)).collect();
        let delta = Delta::draw(&mut prg(2));
        let [client_values, server_values] = deal(shape, &delta, &alphas).map(|keys| {
            let (mut hash, mut out) = (hash(), Vec::new());
            table::one_hot(&keys, &mut hash, PLACE, |_, leaves| out.push(leaves.to_vec())).unwrap();
            assert_eq!(hash.work(), table::work(shape, n));
            out
        });
        for (i, alpha) in alphas.iter().enumerate() {
            assert_eq!(client_values[i].len(), 1 << bits);
            for (j, (a, b)) in client_values[i].iter().zip(&server_values[i]).enumerate() {
                assert!(*a ^ *b == delta.times(u64::from(j as u64 == *alpha)), "{bits} bits, {alpha}, {j}");
            }
        }
    }
}

/// Both kinds of look-up on all masked inputs.
#[test]
fn look_ups_return_the_entry_of_the_unmasked_input() {
    for (bits, out_bits) in [(1u32, 1u32), (4, 3), (7, 24), (9, 17), (5, 64)] {
        let mask = crate::low_mask(bits);
        let entries = random(&mut prg(4), 1 << bits, out_bits);
        let function = Table::new(bits, out_bits, entries.clone()).unwrap();
        assert_eq!((function.bits(), function.out_bits()), (bits, out_bits));
        let alphas: Vec<u64> = (0..1u64 << bits).map(|i| i.wrapping_mul(0x9e3779b9) & mask).collect();
        let points: Vec<u64> = alphas.iter().enumerate().map(|(v, a)| (v as u64).wrapping_add(*a)).collect();
        let shares = deal_dpf(dpf::Shape::new(bits).unwrap(), &alphas)
            .map(|k| k.look_up(&mut hash(), PLACE, &function, &points).unwrap());
        let delta = Delta::draw(&mut prg(2));
        let tags = deal(Shape::new(bits).unwrap(), &delta, &alphas).map(|k| {
            let mut out = vec![Block::ZERO; points.len() * out_bits as usize];
            table::look_up(&k, &mut hash(), PLACE, &function, &points, &mut out).unwrap();
            out
        });
        for (v, entry) in entries.iter().enumerate() {
            assert_eq!(shares[0][v] ^ shares[1][v], *entry, "{bits} to {out_bits} bits at {v}");
            for t in 0..out_bits as usize {
                let bit = v * out_bits as usize + t;
                assert!(tags[0][bit] ^ tags[1][bit] == delta.times(entry >> t & 1), "bit {t} at {v}");
            }
        }
    }
}

proptest! {
    #[test]
    fn both_kinds_agree_with_plain_comparison(bits in 1u32..=40, seed: u8, n in 0usize..300) {
        let mut stream = prg(seed);
        let [alphas, points] = [0; 2].map(|_| random(&mut stream, n, bits));
        check_compare(Shape::new(bits).unwrap(), 0, &alphas, &points);
        check_dpf(bits, &alphas, &points);
    }
}
