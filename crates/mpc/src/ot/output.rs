//! What becomes of a COT: its blocks are hashed 64 at a time and only the bits asked for are kept.
//!
//! The sender's strings of a COT `K` are `H(K)` and `H(K ^ delta)`, the receiver's is `H(M)`: a random OT by correlation
//! robustness of the fixed-key hash (eprint 2019/074). The hash has its own AES key, apart from that of the trees.

use tacit_arith::aes::CcrHash;
use tacit_arith::bits::transpose::block_planes;
use tacit_arith::block::Block;
use zeroize::Zeroize;

/// OTs are handled in groups of this many: one word of a bit plane.
pub(super) const GROUP: usize = 64;

/// A kind of output.
pub(super) trait Emit: Sync {
    /// What the output is made of.
    type Item: Copy + Default + Send + Zeroize;
    /// Items per group; at least 1.
    fn stride(&self) -> usize;
    /// Writes `stride` items for the COTs of a group.
    fn emit(&self, cots: &[Block; GROUP], out: &mut [Self::Item]);
}

/// The COTs as they are.
pub(super) struct Raw;

impl Emit for Raw {
    type Item = Block;
    fn stride(&self) -> usize {
        GROUP
    }
    fn emit(&self, cots: &[Block; GROUP], out: &mut [Block]) {
        out.copy_from_slice(cots);
    }
}

/// The form of a hashed string.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// The low bits as this many planes: one word per plane and group.
    Planes(usize),
    /// This many low words (1 or 2) per string, string by string.
    Words(usize),
}

impl Form {
    fn stride(self) -> usize {
        match self {
            Form::Planes(k) => k,
            Form::Words(w) => w * GROUP,
        }
    }

    fn write(self, hash: &CcrHash, strings: &[Block; GROUP], out: &mut [u64]) {
        match self {
            Form::Planes(_) => block_planes(hash.cpu(), strings, out),
            Form::Words(1) => out.iter_mut().zip(strings).for_each(|(o, s)| *o = s.0 as u64),
            Form::Words(_) => {
                let (pairs, _) = out.as_chunks_mut();
                pairs.iter_mut().zip(strings).for_each(|(o, s)| *o = [s.0 as u64, (s.0 >> 64) as u64]);
            }
        }
    }
}

/// Sender's strings: those for choice 0, then those for choice 1.
pub(super) struct SenderStrings {
    pub(super) hash: CcrHash,
    pub(super) delta: Block,
    pub(super) form: Form,
}

impl Emit for SenderStrings {
    type Item = u64;
    fn stride(&self) -> usize {
        (2 * self.form.stride()).max(1)
    }
    fn emit(&self, cots: &[Block; GROUP], out: &mut [u64]) {
        let mut strings = [Block::ZERO; GROUP];
        for (mask, out) in [Block::ZERO, self.delta].into_iter().zip(out.chunks_mut(self.form.stride().max(1))) {
            self.hash.hash(cots, mask, &mut strings);
            self.form.write(&self.hash, &strings, out);
        }
    }
}

/// Receiver's choices (one word), then its strings.
pub(super) struct ReceiverStrings {
    pub(super) hash: CcrHash,
    pub(super) form: Form,
}

impl Emit for ReceiverStrings {
    type Item = u64;
    fn stride(&self) -> usize {
        1 + self.form.stride()
    }
    fn emit(&self, cots: &[Block; GROUP], out: &mut [u64]) {
        let (choice, out) = out.split_at_mut(1);
        block_planes(self.hash.cpu(), cots, choice);
        let mut strings = [Block::ZERO; GROUP];
        self.hash.hash(cots, Block::ZERO, &mut strings);
        self.form.write(&self.hash, &strings, out);
    }
}
