//! The portable kernel: the `aes` crate and plain integer code.

use aes::cipher::{BlockCipherEncrypt, KeyInit};

use crate::block::Block;

#[derive(Clone)]
pub(super) struct Cipher(aes::Aes128);

impl Cipher {
    pub(super) fn new(key: Block) -> Self {
        Self(aes::Aes128::new(&key.to_bytes().into()))
    }

    pub(super) fn encrypt(&self, blocks: &mut [Block]) {
        let mut buf = [aes::Block::default(); BATCH];
        for chunk in blocks.chunks_mut(BATCH) {
            for (b, x) in buf.iter_mut().zip(chunk.iter()) {
                *b = x.to_bytes().into();
            }
            self.0.encrypt_blocks(&mut buf[..chunk.len()]);
            for (x, b) in chunk.iter_mut().zip(buf.iter()) {
                *x = Block::from_bytes((*b).into());
            }
        }
    }
}

/// Blocks that are encrypted together.
const BATCH: usize = 32;

/// As `CcrHash::hash`.
pub(super) fn hash(cipher: &Cipher, src: &[Block], mask: Block, dst: &mut [Block]) {
    let mut buf = [Block::ZERO; BATCH];
    for (s, d) in src.chunks(BATCH).zip(dst.chunks_mut(BATCH)) {
        let n = s.len().min(d.len());
        for (b, x) in buf.iter_mut().zip(&s[..n]) {
            *b = (*x ^ mask).sigma();
        }
        cipher.encrypt(&mut buf[..n]);
        for i in 0..n {
            d[i] = buf[i] ^ (s[i] ^ mask).sigma();
        }
    }
}

pub(super) fn double(cipher: &Cipher, left: &mut [Block], right: &mut [Block]) -> Block {
    hash(cipher, left, Block::ZERO, right);
    let mut sum = Block::ZERO;
    for (l, r) in left.iter_mut().zip(right) {
        let (parent, child) = (*l, *r);
        *l = child;
        *r = child ^ parent;
        sum ^= child;
    }
    sum
}

fn side(sides: &[u64], i: usize) -> Block {
    Block::mask(sides[i / 64] >> (i % 64) & 1)
}

pub(super) fn descend(cipher: &Cipher, nodes: &mut [Block], corrections: &[Block], sides: &[u64], sums: &mut [Block]) {
    let mut hashes = [Block::ZERO; BATCH];
    for first in (0..nodes.len()).step_by(BATCH) {
        let n = BATCH.min(nodes.len() - first);
        hash(cipher, &nodes[first..first + n], Block::ZERO, &mut hashes);
        for (i, h) in (first..).zip(&hashes[..n]) {
            let (parent, side) = (nodes[i], side(sides, i));
            let left = *h ^ (corrections[i] & Block::mask(parent.lsb()));
            nodes[i] = left ^ (parent & side);
            sums[i] ^= (left ^ parent) & (side ^ Block(u128::MAX));
        }
    }
}

pub(super) fn correct(
    cipher: &Cipher,
    nodes: &mut [Block],
    deltas: &[Block],
    sides: &[u64],
    corrections: &mut [Block],
) {
    let (mut hashes, mut others) = ([Block::ZERO; BATCH], [Block::ZERO; BATCH]);
    for first in (0..nodes.len()).step_by(BATCH) {
        let n = BATCH.min(nodes.len() - first);
        hash(cipher, &nodes[first..first + n], Block::ZERO, &mut hashes);
        let shifted: [Block; BATCH] =
            std::array::from_fn(|i| if i < n { nodes[first + i] ^ deltas[first + i] } else { Block::ZERO });
        hash(cipher, &shifted[..n], Block::ZERO, &mut others);
        for (j, i) in (first..first + n).enumerate() {
            let (parent, side) = (nodes[i], side(sides, i));
            corrections[i] = hashes[j] ^ others[j] ^ (deltas[i] & (side ^ Block(u128::MAX)));
            nodes[i] = hashes[j] ^ (corrections[i] & Block::mask(parent.lsb())) ^ (parent & side);
        }
    }
}
