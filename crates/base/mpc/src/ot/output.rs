//! Output of COTs: their blocks are hashed 64 at a time, and only the requested bits stay.
//!
//! The sender's strings of a COT `K` are `H(K)` and `H(K ^ delta)`, the receiver's is `H(M)`: a random OT by
//! correlation robustness of the AES hash (eprint 2019/074). Its public key changes every few groups
//! (`keys`).

use tacit_arith::aes::CcrHash;
use tacit_arith::bits::transpose::block_planes;
use tacit_arith::block::Block;
use zeroize::Zeroize;

/// OTs are handled in groups of this many: one word of a bit plane.
pub(super) const GROUP: usize = 64;

/// A kind of output of party `P`.
pub(super) trait Emit<P>: Sync {
    /// Element of the output.
    type Item: Copy + Default + Send + Zeroize;
    /// Items per group; at least 1.
    fn stride(&self) -> usize;
    /// Writes `stride` items for the COTs of each group, all hashed under one public key.
    fn emit(&self, party: &P, key: Block, groups: &[[Block; GROUP]], out: &mut [Self::Item]);
}

/// The unhashed COTs.
pub(super) struct Raw;

impl<P> Emit<P> for Raw {
    type Item = Block;
    fn stride(&self) -> usize {
        GROUP
    }
    fn emit(&self, _: &P, _: Block, groups: &[[Block; GROUP]], out: &mut [Block]) {
        out.copy_from_slice(groups.as_flattened());
    }
}

/// The form of a hashed string.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// The low bits as planes, one word per plane and group.
    Planes(usize),
    /// The low word of each string.
    Words,
}

impl Form {
    /// Words for each group.
    pub(super) fn stride(self) -> usize {
        match self {
            Self::Planes(k) => k,
            Self::Words => GROUP,
        }
    }

    /// Writes the words of a group's strings to `out`.
    pub(super) fn write(self, hash: &CcrHash, strings: &[Block; GROUP], out: &mut [u64]) {
        match self {
            Self::Planes(_) => block_planes(hash.cpu(), strings, out),
            Self::Words => out.iter_mut().zip(strings).for_each(|(o, s)| *o = s.0 as u64),
        }
    }
}

/// Hashed strings. The sender's item: strings for choice 0, then those for choice 1. The
/// receiver's: the choices (one word), then the chosen strings.
pub(super) struct Strings(pub(super) Form);
