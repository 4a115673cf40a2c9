//! The AES hash `H(x) = pi(sigma(x)) ^ sigma(x)` (MMO with a linear orthomorphism, eprint 2019/074 section
//! 7), circular correlation robust in the ideal-cipher model, as the half-tree construction (eprint
//! 2022/1431) needs. Its key is public: the caller changes it as often as the number of hashes that an
//! attacker may compare with one guess demands.

use super::Aes128;
use crate::block::Block;
use crate::cpu::Cpu;

/// Circular correlation robust hash on blocks.
#[derive(Clone)]
pub struct CcrHash(Aes128);

impl CcrHash {
    /// The hash under a public key, with the fastest kernel of this CPU.
    pub fn new(key: Block) -> Self {
        Self::with_cpu(Cpu::best(), key)
    }

    /// With the fastest kernel of `cpu`.
    pub fn with_cpu(cpu: Cpu, key: Block) -> Self {
        Self(Aes128::with_cpu(cpu, key))
    }

    /// What the kernel in use was chosen from.
    pub fn cpu(&self) -> Cpu {
        self.0.cpu()
    }

    /// `dst[i] = H(src[i] ^ mask)` for `i` below the shorter length.
    pub fn hash(&self, src: &[Block], mask: Block, dst: &mut [Block]) {
        self.0.hash(src, mask, dst);
    }

    /// One level of a correlated GGM tree in place: with `m = nodes.len() / 2` parents in `nodes[..m]`,
    /// writes `nodes[j] = H(x_j)` (left child) and `nodes[m + j] = H(x_j) ^ x_j` (right child), and returns
    /// the sum of the left children. An odd last element is left alone.
    pub fn double(&self, nodes: &mut [Block]) -> Block {
        self.0.double(nodes)
    }
}
