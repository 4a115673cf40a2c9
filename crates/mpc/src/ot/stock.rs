//! The silent COT extension of Ferret (eprint 2020/924, protocol 1) with regular noise, made on demand.
//!
//! An extension turns `base()` COTs into `outputs()`: output `i` is leaf `i` of the trees (the noise) plus a sparse public
//! combination of the secret's COTs. It is lazy: trees are expanded, combined and hashed as outputs are asked for, and
//! nothing but the secret (k blocks) is held. The sender's tree corrections, `16 (depth - 1)` bytes a tree, go along with
//! each batch of trees; the receiver sends nothing, so there are no rounds. When the remaining trees are just enough to
//! feed the next extension (of this or the next larger set, by demand), they do.

use rayon::prelude::*;
use tacit_arith::aes::CcrHash;
use tacit_arith::block::Block;
use tacit_arith::block_code::LocalCode;
use tacit_net::Channel;
use zeroize::{Zeroize, Zeroizing};

use super::output::{Emit, GROUP, Raw};
use super::params::{LpnParams, SMALL};
use crate::MpcError;

/// Outputs worked on between two messages, so that both parties compute at the same time.
const BATCH: usize = 1 << 17;

/// What differs between sender and receiver.
pub(super) trait Party: Sync {
    /// Corrections of a batch before its trees are expanded: the receiver's come from the peer, the sender's are zeros.
    fn before(&self, ch: &mut Channel, blocks: usize) -> Result<Vec<Block>, MpcError>;
    /// After the trees are expanded: the sender sends the corrections.
    fn after(&self, ch: &mut Channel, corrections: &[Block]) -> Result<(), MpcError>;
    /// Expands one tree.
    fn tree(&self, hash: &CcrHash, cots: &[Block], corrections: &mut [Block], leaves: &mut [Block]);
}

/// One extension: all that is needed to expand any of its trees.
struct Extension {
    params: LpnParams,
    code: LocalCode,
    hash: CcrHash,
    secret: Vec<Block>,
    cots: Vec<Block>,
}

impl Extension {
    fn new(params: LpnParams, matrix: Block, mut base: Vec<Block>) -> Extension {
        let cots = base[1 << params.log_secret..].to_vec();
        base[1 << params.log_secret..].zeroize();
        base.truncate(1 << params.log_secret);
        let code = LocalCode::new(matrix ^ Block(params.log_secret as u128));
        Extension { params, code, hash: CcrHash::new(0), secret: base, cots }
    }

    /// The outputs of tree `index`.
    fn outputs(&self, party: &impl Party, index: usize, corrections: &mut [Block], leaves: &mut [Block]) {
        let depth = self.params.depth as usize;
        party.tree(&self.hash, &self.cots[index * depth..][..depth], corrections, leaves);
        self.code.add_rows(&self.secret, (index * leaves.len() / GROUP) as u64, leaves);
    }
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.secret.zeroize();
        self.cots.zeroize();
    }
}

/// A party's supply of COTs.
pub(super) struct Stock<P> {
    pub(super) party: P,
    matrix: Block,
    extension: Extension,
    next_tree: usize,
    /// Outputs of the newest tree; those from `taken` on are still to be used.
    ready: Vec<Block>,
    taken: usize,
    reserved: usize,
}

/// COTs that [`Stock::new`] wants.
pub(super) const BOOTSTRAP: usize = SMALL.base();

impl<P: Party> Stock<P> {
    /// From [`BOOTSTRAP`] COTs and the public seed of the code.
    pub(super) fn new(party: P, matrix: Block, base: Vec<Block>) -> Stock<P> {
        let extension = Extension::new(SMALL, matrix, base);
        Stock { party, matrix, extension, next_tree: 0, ready: Vec::new(), taken: 0, reserved: 0 }
    }

    pub(super) fn reserve(&mut self, n: usize) {
        self.reserved = self.reserved.saturating_add(n);
    }

    /// The set in use.
    pub(super) fn params(&self) -> LpnParams {
        self.extension.params
    }

    /// Makes outputs for `groups` groups of OTs and hands them over in order, some whole groups at a time.
    pub(super) fn draw<E: Emit>(
        &mut self,
        ch: &mut Channel,
        mut groups: usize,
        emit: &E,
        mut consume: impl FnMut(&[E::Item]),
    ) -> Result<(), MpcError> {
        self.reserved = self.reserved.saturating_sub(groups.saturating_mul(GROUP));
        let mut out = Zeroizing::new(Vec::new());
        while groups > 0 {
            if self.taken == self.ready.len() {
                let spare = self.spare_trees(ch, groups.saturating_mul(GROUP))?;
                let per_tree = self.params().leaves() / GROUP;
                let trees = spare.min(BATCH / self.params().leaves()).min(groups.div_ceil(per_tree));
                let whole = trees.min(groups / per_tree);
                self.batch(ch, whole, trees > whole, emit, &mut out)?;
                groups -= whole * per_tree;
            } else {
                let (left, _) = self.ready[self.taken..].as_chunks::<GROUP>();
                let now = left.len().min(groups);
                out.resize(now * emit.stride(), E::Item::default());
                for (cots, out) in left[..now].iter().zip(out.chunks_mut(emit.stride())) {
                    emit.emit(cots, out);
                }
                self.taken += now * GROUP;
                groups -= now;
            }
            consume(&out);
        }
        Ok(())
    }

    /// Outputs of the next `whole` trees into `out`, and of one more into `ready` if `extra`.
    fn batch<E: Emit>(
        &mut self,
        ch: &mut Channel,
        whole: usize,
        extra: bool,
        emit: &E,
        out: &mut Vec<E::Item>,
    ) -> Result<(), MpcError> {
        let params = self.params();
        let (leaves, per_tree) = (params.leaves(), params.corrections());
        let items = leaves / GROUP * emit.stride();
        let mut corrections = self.party.before(ch, (whole + extra as usize) * per_tree)?;
        out.resize(whole * items, E::Item::default());
        let (extension, party, first) = (&self.extension, &self.party, self.next_tree);
        let one = |scratch: &mut Vec<Block>, i: usize, corrections: &mut [Block], out: &mut [E::Item]| {
            scratch.resize(leaves, Block::ZERO);
            extension.outputs(party, first + i, corrections, scratch);
            for (cots, out) in scratch.as_chunks().0.iter().zip(out.chunks_mut(emit.stride())) {
                emit.emit(cots, out);
            }
        };
        if whole > 1 && rayon::current_num_threads() > 1 {
            let trees = out.par_chunks_mut(items).zip(corrections.par_chunks_mut(per_tree)).enumerate();
            trees.for_each_init(Scratch::default, |scratch, (i, (out, c))| one(&mut scratch.0, i, c, out));
        } else {
            let trees = out.chunks_mut(items).zip(corrections.chunks_mut(per_tree)).enumerate();
            trees.for_each(|(i, (out, c))| one(&mut self.ready, i, c, out));
        }
        if extra {
            self.ready.resize(leaves, Block::ZERO);
            let c = &mut corrections[whole * per_tree..];
            self.extension.outputs(&self.party, first + whole, c, &mut self.ready);
        }
        self.taken = if extra { 0 } else { self.ready.len() };
        self.next_tree += whole + extra as usize;
        self.party.after(ch, &corrections)
    }

    /// Number of trees that may be given out now, at least 1; goes to the next extension if there are none, or if the
    /// demand asks for a larger set.
    fn spare_trees(&mut self, ch: &mut Channel, wanted: usize) -> Result<usize, MpcError> {
        loop {
            let params = self.params();
            let left = params.trees - self.next_tree;
            let needed = |next: LpnParams| next.base().div_ceil(params.leaves());
            let demand = self.reserved.saturating_add(wanted);
            match params.upgrade(demand) {
                Some(larger) if needed(larger) <= left => self.extend(ch, larger)?,
                _ if needed(params) < left => return Ok(left - needed(params)),
                _ => self.extend(ch, params)?,
            }
        }
    }

    /// Starts an extension with set `next`, fed from the trees that are left.
    fn extend(&mut self, ch: &mut Channel, next: LpnParams) -> Result<(), MpcError> {
        let leaves = self.params().leaves();
        let mut trees = next.base().div_ceil(leaves);
        let mut base = Vec::with_capacity(trees * leaves);
        let mut out = Zeroizing::new(Vec::new());
        while trees > 0 {
            let now = trees.min(BATCH / leaves);
            self.batch(ch, now, false, &Raw, &mut out)?;
            base.extend_from_slice(&out);
            trees -= now;
        }
        self.extension = Extension::new(next, self.matrix, base);
        self.next_tree = 0;
        Ok(())
    }
}

impl<P> Drop for Stock<P> {
    fn drop(&mut self) {
        self.ready.zeroize();
    }
}

/// A worker's tree, wiped when the worker is done with a batch.
#[derive(Default)]
struct Scratch(Vec<Block>);

impl Drop for Scratch {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
