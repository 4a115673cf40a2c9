//! The fixed-key hash `H(x) = pi(sigma(x)) ^ sigma(x)` (MMO with a linear orthomorphism, eprint 2019/074 section 7),
//! circular correlation robust in the ideal-permutation model, as the half-tree construction (eprint 2022/1431) needs.

use super::Aes128;
use crate::block::Block;
use crate::cpu::Cpu;

/// The public AES key of domain 0: leading hexadecimal digits of the fractional part of pi.
const FIXED_KEY: Block = Block(0x243f_6a88_85a3_08d3_1319_8a2e_0370_7344);

/// Circular correlation robust hash on blocks.
#[derive(Clone)]
pub struct CcrHash(Aes128);

impl CcrHash {
    /// The hash of a domain, with the fastest kernel of this CPU. Domains use different public keys.
    pub fn new(domain: u64) -> CcrHash {
        CcrHash::with_cpu(Cpu::best(), domain)
    }

    /// With the fastest kernel of `cpu`.
    pub fn with_cpu(cpu: Cpu, domain: u64) -> CcrHash {
        CcrHash(Aes128::with_cpu(cpu, FIXED_KEY ^ Block(domain as u128)))
    }

    /// What the kernel in use was chosen from.
    pub fn cpu(&self) -> Cpu {
        self.0.cpu()
    }

    /// `dst[i] = H(src[i] ^ mask)` for `i` below the shorter length.
    pub fn hash(&self, src: &[Block], mask: Block, dst: &mut [Block]) {
        self.0.hash(src, mask, dst);
    }

    /// One level of a correlated GGM tree in place: with `m = nodes.len() / 2` parents in `nodes[..m]`, writes
    /// `nodes[j] = H(x_j)` (left child) and `nodes[m + j] = H(x_j) ^ x_j` (right child), and returns the sum of the
    /// left children. An odd last element is left alone.
    pub fn double(&self, nodes: &mut [Block]) -> Block {
        self.0.double(nodes)
    }
}
