//! The AES hash `H(x) = pi(sigma(x)) ^ sigma(x)` (MMO with a linear orthomorphism, eprint 2019/074
//! section 7). It is circular correlation robust in the ideal-cipher model, as the half-tree
//! construction (eprint 2022/1431) needs. The key is public. The caller changes it often enough to
//! limit how many hashes an attacker can compare with one guess.

use super::{Aes128, Keys, portable};
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

    /// As [`Self::new`], with the fastest kernel of `cpu`.
    pub fn with_cpu(cpu: Cpu, key: Block) -> Self {
        Self(Aes128::with_cpu(cpu, key))
    }

    /// The instruction sets from which the kernel was chosen.
    pub fn cpu(&self) -> Cpu {
        self.0.cpu()
    }

    /// `dst[i] = H(src[i] ^ mask)` for `i` below the shorter length.
    pub fn hash(&self, src: &[Block], mask: Block, dst: &mut [Block]) {
        dispatch!(self.0, hash(src, mask, dst));
    }

    /// Expands one level of a correlated GGM tree in place. Parent `x_j` in `nodes[..m]`, with
    /// `m = nodes.len() / 2`, is replaced by its left child `H(x_j)`; the right child `H(x_j) ^ x_j`
    /// goes to `nodes[m + j]`. Returns the sum of the left children. An odd last element stays.
    pub fn double(&self, nodes: &mut [Block]) -> Block {
        let (left, right) = nodes.split_at_mut(nodes.len() / 2);
        dispatch!(self.0, double(left, right))
    }

    /// Goes one level down in many half-trees with correction words (eprint 2022/1431). The left
    /// child of node `x` is `H(x) ^ lsb(x) * correction`; the right child is the left one `^ x`. Bit
    /// `i` of `sides` (1: right) selects the child that replaces node `i`; an unselected right child
    /// is added to `sums[i]`.
    ///
    /// # Panics
    /// If the slices differ in length, or `sides` has fewer bits.
    pub fn descend(&self, nodes: &mut [Block], corrections: &[Block], sides: &[u64], sums: &mut [Block]) {
        assert!(corrections.len() == nodes.len() && sums.len() == nodes.len(), "a correction and a sum for every node");
        assert!(sides.len() >= nodes.len().div_ceil(64), "{} words of sides for {} nodes", sides.len(), nodes.len());
        dispatch!(self.0, descend(nodes, corrections, sides, sums));
    }

    /// Computes the corrections `H(x) ^ H(x ^ delta) ^ (1 - side) * delta`. With them,
    /// [`Self::descend`] keeps two parties' nodes `x` and `x ^ delta` apart by `delta` on the side of
    /// bit `i` of `sides`, and makes them equal on the other. The child on that side replaces `x`.
    ///
    /// # Panics
    /// If the slices differ in length, or `sides` has fewer bits.
    pub fn correct(&self, nodes: &mut [Block], deltas: &[Block], sides: &[u64], corrections: &mut [Block]) {
        assert!(
            corrections.len() == nodes.len() && deltas.len() == nodes.len(),
            "a correction and a delta for every node"
        );
        assert!(sides.len() >= nodes.len().div_ceil(64), "{} words of sides for {} nodes", sides.len(), nodes.len());
        dispatch!(self.0, correct(nodes, deltas, sides, corrections));
    }
}
