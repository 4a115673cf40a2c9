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

    /// One level down in many half-trees with correction words (eprint 2022/1431), a node of each. Node `x`
    /// has the children `left = H(x) ^ lsb(x) * correction` and `right = left ^ x`; it is replaced by the
    /// child on the side that bit `i` of `sides` says (1: right) for node `i`. Where that is the left one,
    /// the right one is added to `sums[i]`.
    ///
    /// # Panics
    /// If the slices differ in length, or `sides` has fewer bits.
    pub fn descend(&self, nodes: &mut [Block], corrections: &[Block], sides: &[u64], sums: &mut [Block]) {
        assert!(corrections.len() == nodes.len() && sums.len() == nodes.len(), "a correction and a sum for every node");
        assert!(sides.len() >= nodes.len().div_ceil(64), "{} words of sides for {} nodes", sides.len(), nodes.len());
        self.0.descend(nodes, corrections, sides, sums);
    }

    /// The corrections with which [`Self::descend`] keeps two parties' nodes `x` and `x ^ delta` apart by
    /// `delta` on the side of bit `i` of `sides`, and makes them equal on the other:
    /// `H(x) ^ H(x ^ delta) ^ (1 - side) * delta`. Replaces `x` by the child on that side.
    ///
    /// # Panics
    /// If the slices differ in length, or `sides` has fewer bits.
    pub fn correct(&self, nodes: &mut [Block], deltas: &[Block], sides: &[u64], corrections: &mut [Block]) {
        assert!(
            corrections.len() == nodes.len() && deltas.len() == nodes.len(),
            "a correction and a delta for every node"
        );
        assert!(sides.len() >= nodes.len().div_ceil(64), "{} words of sides for {} nodes", sides.len(), nodes.len());
        self.0.correct(nodes, deltas, sides, corrections);
    }
}
