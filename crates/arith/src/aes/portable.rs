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

const BATCH: usize = 32;

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
