//! Single-point COT by a correlated GGM tree (half-tree, eprint 2022/1431, section 4). The sender's
//! leaves `v` sum to `delta`. The receiver gets all leaves except one at a random position, where
//! it has `v ^ delta`.
//!
//! A node `x` has the children `H(x)` and `H(x) ^ x`, so every level sums to `delta`. Level `i`
//! consumes one COT `M = K ^ r * delta` whose choice `r` is the negation of bit `i` of the
//! position: `c = left_sum ^ K` gives the receiver the sum of side `r`. The first level is the COT
//! itself: its two nodes are `K` and `K ^ delta`, and the receiver may know only `M`. A tree costs
//! one hash per leaf and `depth - 1` blocks from the sender; the receiver sends nothing.
//!
//! The bit of the newest level is the highest of a node's index, so that a level is computed in
//! place. The position is secret: the receiver writes by scanning.

use tacit_arith::aes::CcrHash;
use tacit_arith::block::Block;
use tacit_arith::block_select::replace;

/// All bits but bit 0, which carries the choice.
const CLEAR: Block = Block(u128::MAX - 1);

/// Sender: fills `leaves` (a power of two) from one COT key per level, and `corrections` (one block fewer).
/// Bit 0 of every leaf is 0 afterwards.
pub(super) fn expand(hash: &CcrHash, delta: Block, keys: &[Block], leaves: &mut [Block], corrections: &mut [Block]) {
    leaves[0] = keys[0];
    leaves[1] = keys[0] ^ delta;
    for (level, (key, c)) in keys[1..].iter().zip(corrections).enumerate() {
        *c = hash.double(&mut leaves[..4 << level]) ^ *key;
    }
    leaves.iter_mut().for_each(|b| *b = *b & CLEAR);
}

/// Receiver: fills `leaves` from one COT block per level and the sender's corrections. Bit 0 of a leaf is 1
/// at the punctured position and 0 elsewhere.
pub(super) fn expand_punctured(hash: &CcrHash, cots: &[Block], corrections: &[Block], leaves: &mut [Block]) {
    let mut garbage = [Block::ZERO];
    hash.hash(&[Block::ZERO], Block::ZERO, &mut garbage);
    let [garbage] = garbage; // what the zero at the punctured place turns into, on either side

    let first = cots[0].lsb();
    let side = Block::mask(first);
    leaves[0] = cots[0] & (side ^ Block(u128::MAX));
    leaves[1] = cots[0] & side;
    let mut hole = 1 ^ first;
    let mut known = cots[0]; // sum of all nodes of the level but the one at the hole
    for (level, (cot, c)) in cots[1..].iter().zip(corrections).enumerate() {
        let half = 2 << level;
        let nodes = &mut leaves[..2 * half];
        let left = hash.double(nodes);
        let r = cot.lsb();
        let side = Block::mask(r);
        let opposite = side ^ Block(u128::MAX);
        let full = *cot ^ *c; // the sum of side r, as the sender has it
        let sibling = full ^ left ^ (known & side) ^ garbage;
        let (low, high) = nodes.split_at_mut(half);
        replace(hash.cpu(), low, hole, sibling & opposite, Block(u128::MAX));
        replace(hash.cpu(), high, hole, sibling & side, Block(u128::MAX));
        known = full ^ left ^ (known & opposite) ^ garbage;
        hole += (1 ^ r) * half as u64;
    }
    // All leaves sum to delta, so the sum of the others is the missing one plus delta.
    replace(hash.cpu(), leaves, hole, Block(known.0 | 1), CLEAR);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::prg;

    #[test]
    fn leaves_differ_by_delta_at_the_chosen_position_only() {
        let hash = CcrHash::new(Block(5));
        for (seed, depth) in [(1, 1), (2, 2), (3, 3), (4, 7), (5, 9), (6, 10)] {
            let mut stream = prg(seed);
            let delta = Block(stream.next_block().0 | 1);
            let keys: Vec<Block> = (0..depth).map(|_| stream.next_block() & CLEAR).collect();
            let bits: Vec<u64> = (0..depth).map(|_| stream.next_u64() & 1).collect();
            let cots: Vec<Block> = keys.iter().zip(&bits).map(|(k, b)| *k ^ (delta & Block::mask(*b))).collect();
            let position: usize = bits.iter().enumerate().map(|(i, b)| ((1 ^ *b) as usize) << i).sum();
            let (mut v, mut w) = (vec![Block::ZERO; 1 << depth], vec![Block::ZERO; 1 << depth]);
            let mut c = vec![Block::ZERO; depth - 1];
            expand(&hash, delta, &keys, &mut v, &mut c);
            expand_punctured(&hash, &cots, &c, &mut w);
            for i in 0..1 << depth {
                let expected = if i == position { v[i] ^ delta } else { v[i] };
                assert!(w[i] == expected && v[i].lsb() == 0, "depth {depth}, leaf {i}, hole {position}");
            }
        }
    }
}
