//! The view of one party is distributed independently of mask, value and key. The tests compare
//! many dealings under different secrets, byte by byte. A leaking key shows part of the secret in
//! some byte of its owner's view: own blocks, words without the pad that the owner can make, and
//! sums of two of these.

use super::compare::{self, Shape};
use super::delta::Delta;
use super::mac::ring::{self, Ring};
use super::tree_hash::{Place, Purpose, TreeHash};
use super::{GROUP, dpf};
use tacit_arith::aes::CcrHash;
use tacit_arith::bits::Bits;
use tacit_arith::block::Block;
use tacit_arith::prg::{Prg, PublicSeed};

const GROUPS: usize = 8;
const SAMPLES: usize = GROUPS * GROUP;
const SHAPE_BITS: u32 = 5;

/// A party's view of one dealing, for each of many dealings: `self[column][sample]`.
type View = Vec<Vec<Block>>;

/// The bytes of a column, or of the sum of two.
fn histogram(view: &View, a: usize, b: Option<usize>, byte: usize) -> [u32; 256] {
    let mut bins = [0; 256];
    for (i, block) in view[a].iter().enumerate() {
        let sum = block.0 ^ b.map_or(0, |b| view[b][i].0);
        bins[(sum >> (8 * byte)) as usize & 255] += 1;
    }
    bins
}

/// Chi-squared for two samples of equal size: 255 on average if they have one distribution with 256 values,
/// less if it has fewer.
fn distance(a: &[u32; 256], b: &[u32; 256]) -> f64 {
    let term = |(a, b): (&u32, &u32)| (f64::from(*a) - f64::from(*b)).powi(2) / f64::from((a + b).max(1));
    a.iter().zip(b).map(term).sum()
}

/// The largest distance of two views, over all bytes of all columns and of all sums of two.
fn worst(a: &View, b: &View) -> f64 {
    assert_eq!(a.len(), b.len());
    let mut worst = 0f64;
    for i in 0..a.len() {
        for j in std::iter::once(None).chain((0..i).map(Some)) {
            for byte in 0..16 {
                worst = worst.max(distance(&histogram(a, i, j, byte), &histogram(b, i, j, byte)));
            }
        }
    }
    worst
}

/// Threshold above which two distributions differ: some 7 deviations (22.6) from the mean, for
/// 10,000 comparisons of bytes.
const LIMIT: f64 = 255.0 + 7.5 * 22.6;

fn prg(seed: u8, domain: u64) -> Prg {
    crate::tests::prg(seed).fork(domain)
}

/// How a faulty dealer changes the correction words of a level.
type Spoil = fn(correction: Block, own: Block, other: Block, delta: Block, previous: Block, side: u64) -> Block;

fn honest(correction: Block, _: Block, _: Block, _: Block, _: Block, _: u64) -> Block {
    correction
}

/// A party's material and computed values of comparison keys. `party` 0 has the seed. `spoil` makes
/// the words from honest ones.
fn compare_view(party: usize, alpha: u64, delta: &Delta, seed: u8, tables: bool, spoil: Spoil) -> View {
    let shape = Shape::new(SHAPE_BITS).unwrap();
    let place = Place { batch: 0, group: 0 };
    let public = PublicSeed::from_bytes([seed; 16]);
    let mut seeded = vec![Block::ZERO; SAMPLES * shape.tops()];
    prg(seed, 1).fill_blocks(&mut seeded);
    let dealt =
        compare::deal(&mut TreeHash::new(public), place, shape, delta, &vec![alpha; SAMPLES], &mut prg(seed, 1));
    let (levels, tops) = (shape.levels() as usize, shape.tops());
    let paths = [0, 31, 0b01011];
    let mut view = vec![Vec::with_capacity(SAMPLES); tops + levels + 2 * levels * paths.len()];
    let mut hash = TreeHash::new(public);
    for g in 0..GROUPS {
        let own_tops: &[Block] = if party == 0 { &seeded } else { &dealt.tops };
        let own_tops = &own_tops[g * GROUP * tops..][..GROUP * tops];
        let base = &seeded[g * GROUP * tops..][..GROUP * tops];
        let hit = |j: usize, v: u64| Block::mask(u64::from(j as u64 == v >> levels));
        let own_tops: Vec<Block> = (0..GROUP * tops)
            // Without the pad of the other's seed, for leaking tables.
            .map(|i| if tables { own_tops[i] ^ base[i] ^ (delta.block() & hit(i / GROUP, alpha)) } else { own_tops[i] })
            .collect();
        for j in 0..tops {
            view[j].extend_from_slice(&own_tops[j * GROUP..][..GROUP]);
        }
        let mut words = dealt.corrections[g * GROUP * levels..][..GROUP * levels].to_vec();
        let levels_of: Vec<_> =
            (0..levels).map(|l| hash.at(Purpose::Authenticated, place.after(g), l as u32)).collect();
        // The dealer's walk along alpha, for spoiled words that depend on the dealer's secrets.
        let top = (alpha >> levels) as usize;
        let mut nodes: Vec<Block> = base[top * GROUP..][..GROUP].to_vec();
        let mut previous = vec![Block::ZERO; GROUP];
        for (l, ccr) in levels_of.iter().enumerate() {
            let side = alpha >> (levels - 1 - l) & 1;
            let (mut own_pads, mut peer_pads) = (vec![Block::ZERO; GROUP], vec![Block::ZERO; GROUP]);
            ccr.hash(&nodes, Block::ZERO, &mut own_pads);
            ccr.hash(&nodes, delta.block(), &mut peer_pads);
            if party == 1 {
                std::mem::swap(&mut own_pads, &mut peer_pads);
            }
            let word = &mut words[l * GROUP..][..GROUP];
            ccr.descend(&mut nodes, word, &[side.wrapping_neg(); GROUP / 64], &mut [Block::ZERO; GROUP]);
            for i in 0..GROUP {
                word[i] = spoil(word[i], own_pads[i], peer_pads[i], delta.block(), previous[i], side);
                previous[i] = word[i];
            }
            view[tops + l].extend_from_slice(word);
        }
        for (p, x) in paths.iter().enumerate() {
            let columns = &mut view[tops + levels + 2 * levels * p..][..2 * levels];
            walk(&own_tops[(x >> levels) * GROUP..][..GROUP], &words, &levels_of, *x as u64, columns);
        }
    }
    view
}

/// A party's own walk from the nodes at the table's place of `x`: its words without the pads that it can
/// make, and its nodes.
fn walk(start: &[Block], words: &[Block], levels: &[CcrHash], x: u64, columns: &mut [Vec<Block>]) {
    let mut nodes = start.to_vec();
    for (l, (ccr, columns)) in levels.iter().zip(columns.chunks_mut(2)).enumerate() {
        let word = &words[l * GROUP..][..GROUP];
        let mut pads = vec![Block::ZERO; GROUP];
        ccr.hash(&nodes, Block::ZERO, &mut pads);
        columns[0].extend(pads.iter().zip(word).map(|(a, b)| *a ^ *b));
        let side = x >> (levels.len() - 1 - l) & 1;
        ccr.descend(&mut nodes, word, &[side.wrapping_neg(); GROUP / 64], &mut [Block::ZERO; GROUP]);
        columns[1].extend_from_slice(&nodes);
    }
}

/// Masks and MAC keys that a party must not be able to distinguish.
fn secrets() -> [(u64, Delta); 3] {
    let pattern = 0x0123_4567_89ab_cdef_f00d_cafe_dead_beef;
    [(0, Delta::fixed(1)), (31, Delta::fixed(u128::MAX)), (0b01011, Delta::fixed(pattern))]
}

/// The largest distance between views under different secrets.
fn leak(view: impl Fn(usize, &(u64, Delta)) -> View) -> f64 {
    let views: Vec<View> = secrets().iter().enumerate().map(|(i, secret)| view(i, secret)).collect();
    worst(&views[0], &views[1]).max(worst(&views[0], &views[2]))
}

#[test]
fn comparison_keys_of_one_party_tell_neither_mask_nor_key() {
    for party in [0, 1] {
        let distance = compare_leak(party, honest);
        assert!(distance < LIMIT, "party {party}: {distance}");
    }
}

/// The leak of one party's comparison keys, with correction words that `spoil` changes.
fn compare_leak(party: usize, spoil: Spoil) -> f64 {
    leak(|i, (alpha, delta)| compare_view(party, *alpha, delta, 3 * i as u8 + party as u8, false, spoil))
}

#[test]
fn missing_pads_of_comparison_keys_are_found() {
    const LOW: Block = Block((1 << 40) - 1);
    let spoils: [(&str, Spoil); 4] = [
        ("the other's pad is missing", |c, _, other, _, _, _| c ^ other),
        ("both pads are missing", |_, _, _, delta, _, side| delta & Block::mask(1 ^ side)),
        ("the pads have 40 bits", |c, own, other, _, _, _| c ^ ((own ^ other) & Block(!LOW.0))),
        ("the pad of the level above serves again", |c, own, other, _, previous, _| c ^ own ^ other ^ previous),
    ];
    for party in [0, 1] {
        for (name, spoil) in spoils {
            let found = compare_leak(party, spoil);
            assert!(found > 4.0 * LIMIT, "party {party}, {name}: {found}");
        }
    }
    let found = leak(|i, (alpha, delta)| compare_view(1, *alpha, delta, i as u8, true, honest));
    assert!(found > 4.0 * LIMIT, "tables without a pad: {found}");
}

#[test]
fn early_ended_keys_of_one_party_do_not_tell_the_mask() {
    let shape = dpf::Shape::new(9).unwrap();
    for party in [0, 1] {
        let distance = leak(|i, (alpha, _)| {
            let (seed, alphas) = (10 + i as u8, vec![alpha * 16 + 7; SAMPLES]);
            let mut hash = TreeHash::new(PublicSeed::from_bytes([seed; 16]));
            let place = Place { batch: 0, group: 0 };
            let words = dpf::deal(&mut hash, place, shape, &alphas, &mut prg(seed, 0), &mut prg(seed, 1));
            let mut roots = vec![Block::ZERO; SAMPLES];
            prg(seed, party).fill_blocks(&mut roots);
            let mut view = vec![roots.clone()];
            roots.iter_mut().for_each(|root| *root = Block(root.0 & !1 | u128::from(party)));
            for l in 0..shape.words() {
                let groups = words.chunks(GROUP * shape.words());
                view.push(groups.flat_map(|group| group[l * GROUP..][..GROUP].iter().copied()).collect());
            }
            // The first word and the leaf's, without the pads of the party's own root.
            for (l, purpose) in [(0, Purpose::Dpf), (shape.words() - 1, Purpose::Leaf)] {
                let mut pads = vec![Block::ZERO; SAMPLES];
                for (g, (roots, pads)) in roots.chunks(GROUP).zip(pads.chunks_mut(GROUP)).enumerate() {
                    hash.at(purpose, place.after(g), 0).hash(roots, Block::ZERO, pads);
                }
                view.push(pads.iter().zip(&view[1 + l]).map(|(a, b)| *a ^ *b).collect());
            }
            view
        });
        assert!(distance < LIMIT, "party {party}: {distance}");
    }
}

/// The view of the party without the seed: bits, values, masks and keys.
#[test]
fn dealt_bits_and_values_of_one_party_do_not_tell_them() {
    let ring = Ring::new(24).unwrap();
    let distance = leak(|i, (alpha, delta)| {
        let (mut dealer, mut seeded) = (prg(20 + i as u8, 0), prg(20 + i as u8, 1));
        let bits: Bits = (0..SAMPLES).map(|_| *alpha != 0).collect();
        let mut view = vec![delta.deal_bits(&bits, &mut seeded)];
        view.push((0..SAMPLES).map(|_| delta.split(&mut seeded).to_block()).collect());
        let keys: Vec<ring::Key> = (0..SAMPLES).map(|_| ring::Key::draw(&mut dealer, &mut seeded)).collect();
        let values = [u128::from(*alpha) << 19];
        let shares: Vec<_> = keys.iter().map(|key| key.deal(ring, &values, &mut seeded).remove(0)).collect();
        view.push(keys.iter().map(|key| Block(u128::from(key.unseeded_share().to_u64()))).collect());
        view.push(shares.iter().map(|share| Block(share.value)).collect());
        view.push(shares.iter().map(|share| Block(share.tag)).collect());
        view
    });
    assert!(distance < LIMIT, "{distance}");
}
