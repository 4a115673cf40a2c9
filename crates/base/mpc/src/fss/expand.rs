//! All nodes of a tree.

use tacit_arith::aes::CcrHash;
use tacit_arith::block::Block;
use zeroize::Zeroizing;

/// Buffers for trees of one size. Wiped on drop.
pub(super) struct Expander {
    nodes: Zeroizing<Vec<Block>>,
    hashes: Zeroizing<Vec<Block>>,
}

impl Expander {
    pub(super) fn new(leaves: usize) -> Self {
        Self { nodes: Zeroizing::new(vec![Block::ZERO; leaves]), hashes: Zeroizing::new(vec![Block::ZERO; leaves]) }
    }

    /// Expands a tree from the nodes `start` of one level. `levels` has the hash of each level below,
    /// `corrections` its correction. Leaf `i` of the result has the path `i`, the highest bit first.
    /// Returns the leaves, a second buffer of the same size, and the number of hashes.
    pub(super) fn run(
        &mut self,
        start: impl ExactSizeIterator<Item = Block>,
        levels: &[CcrHash],
        corrections: impl Iterator<Item = Block>,
    ) -> (&mut [Block], &mut [Block], usize) {
        let (first, mut width) = (start.len(), start.len());
        self.nodes.iter_mut().zip(start).for_each(|(node, block)| *node = block);
        for (ccr, correction) in levels.iter().zip(corrections) {
            let hashes = &mut self.hashes[..width];
            ccr.hash(&self.nodes[..width], Block::ZERO, hashes);
            // From the end, because a node's children have the same or a larger index.
            for (i, h) in hashes.iter().enumerate().rev() {
                let parent = self.nodes[i];
                let left = *h ^ (correction & Block::mask(parent.lsb()));
                self.nodes[2 * i] = left;
                self.nodes[2 * i + 1] = left ^ parent;
            }
            width *= 2;
        }
        (&mut self.nodes[..width], &mut self.hashes[..width], width - first)
    }
}
