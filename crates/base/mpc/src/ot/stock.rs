//! The silent COT extension of Ferret (eprint 2020/924, protocol 1) with regular noise, made on demand.
//!
//! An extension turns `base()` COTs into `outputs()`: output `i` is leaf `i` of the trees (the
//! noise) plus a sparse public combination of the secret's COTs. It is lazy: trees are expanded,
//! combined and hashed on demand, and only the secret (k blocks) is stored. The sender's tree
//! corrections, `16 (depth - 1)` bytes a tree, travel with each batch of trees; the receiver sends
//! nothing, so there are no rounds. The last trees that are just enough feed the next extension (of
//! this or the next larger set, by demand). If that extension would exceed the bound on the COTs of
//! one `delta`, both parties bootstrap anew instead, with a new `delta`, seed and secret.

use rayon::prelude::*;
use tacit_arith::aes::CcrHash;
use tacit_arith::block::Block;
use tacit_arith::block_code::LocalCode;
use tacit_arith::pages::Long;
use tacit_net::Channel;
use zeroize::{Zeroize, Zeroizing};

use super::keys::{HashKeys, PART_GROUPS};
use super::output::{Emit, GROUP, Raw};
use super::params::{LpnParams, SMALL};
use super::schedule::{Schedule, Step, Trees};
use super::workers;
use crate::MpcError;

/// The steps of an extension that differ between sender and receiver.
pub(super) trait Party: Sync {
    /// Returns the corrections with which a batch of trees is expanded, `blocks` blocks. The receiver
    /// gets them from its peer; at the sender they are zeros, which the expansion overwrites.
    fn begin_batch(&self, ch: &mut Channel, blocks: usize) -> Result<Vec<Block>, MpcError>;
    /// Sends the corrections after the expansion, at the sender. Does nothing at the receiver.
    fn finish_batch(&self, ch: &mut Channel, corrections: &[Block]) -> Result<(), MpcError>;
    /// A bootstrap for this direction alone: [`BOOTSTRAP`] COTs of a new `delta`, and a new public seed.
    fn bootstrap(&mut self, ch: &mut Channel) -> Result<(Block, Vec<Block>), MpcError>;
    /// Writes the leaves of one tree. The sender also writes the tree's corrections, which the
    /// receiver reads.
    fn expand_tree(&self, hash: &CcrHash, cots: &[Block], corrections: &mut [Block], leaves: &mut [Block]);
}

/// One extension, with all inputs for the expansion of its trees.
struct Extension {
    params: LpnParams,
    code: LocalCode,
    /// Its number since the bootstrap, part of its hash keys' positions.
    number: u32,
    base: Base,
}

/// Inputs of an extension: the secret (of two instances side by side: both, interleaved), the COTs
/// of its trees, and surplus outputs of the previous extension's last tree. Wiped on drop.
struct Base(Long<Block>);

impl Drop for Base {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl Base {
    fn wipe(&mut self) {
        self.0.par_chunks_mut(BLOCKS_PER_WIPE).for_each(Zeroize::zeroize);
    }
}

const BLOCKS_PER_WIPE: usize = 1 << 14;

impl Extension {
    /// The extension `number` of a supply, with the code of the public seed.
    fn new(params: LpnParams, number: u32, seed: Block, base: Base) -> Self {
        let code = LocalCode::new(seed ^ Block(params.log_secret as u128));
        Self { params, code, number, base }
    }

    fn after_bootstrap(seed: Block, blocks: Vec<Block>) -> Self {
        let blocks = Zeroizing::new(blocks);
        let mut base = Long::zeros(blocks.len());
        base.copy_from_slice(&blocks);
        Self::new(SMALL, 0, seed, Base(base))
    }

    /// The outputs of tree `index` of each instance, one after the other.
    fn outputs(
        &self,
        party: &impl Party,
        keys: &HashKeys,
        index: usize,
        corrections: &mut [Block],
        leaves: &mut [Block],
    ) {
        let LpnParams { depth, lanes, .. } = self.params;
        let (depth, leaf_count) = (depth as usize, 1 << depth);
        let (secret, cots) = self.base.0.split_at(self.params.secret());
        let parts = corrections.chunks_exact_mut(depth - 1).zip(leaves.chunks_exact_mut(leaf_count));
        for (lane, (corrections, leaves)) in parts.enumerate() {
            let tree = index * lanes + lane;
            let hash = CcrHash::new(keys.tree(self.number, tree));
            party.expand_tree(&hash, &cots[tree * depth..][..depth], corrections, leaves);
        }
        let row = (index * leaf_count / GROUP) as u64;
        match lanes {
            1 => self.code.add_rows(secret, row, leaves),
            _ => self.code.add_row_pairs(secret, row, leaves.split_at_mut(leaf_count).into()),
        }
    }
}

/// Destination of a tree's outputs.
enum Outputs<'a, I> {
    Emitted(&'a mut [I]),
    /// Unhashed, for the next draw.
    Kept(&'a mut [Block]),
}

/// A party's supply of COTs.
pub(super) struct Stock<P> {
    pub(super) party: P,
    seed: Block,
    keys: HashKeys,
    extension: Extension,
    schedule: Schedule,
    /// Number of the tree whose outputs `ready` holds.
    newest: usize,
    /// Outputs of that tree; draws take them before new trees are made.
    ready: Vec<Block>,
    /// Wiped buffer of the previous extension; the system would clear new memory page by page.
    spare: Option<Base>,
}

impl<P: Party> Stock<P> {
    /// A supply from a public seed and [`BOOTSTRAP`](super::schedule::BOOTSTRAP) COTs. `bound`
    /// limits the COTs of one `delta`; an extension of each set must fit the bound.
    pub(super) fn new(party: P, seed: Block, base: Vec<Block>, bound: u64) -> Self {
        let (keys, extension) = (HashKeys::new(seed), Extension::after_bootstrap(seed, base));
        let (schedule, ready) = (Schedule::new(bound), Vec::new());
        Self { party, seed, keys, extension, schedule, newest: 0, ready, spare: None }
    }

    pub(super) fn reserve(&mut self, n: usize) {
        self.schedule.reserve(n);
    }

    pub(super) fn params(&self) -> LpnParams {
        self.extension.params
    }

    /// Makes outputs for `groups` groups of OTs and emits them in order, in runs of whole groups.
    pub(super) fn draw<E: Emit<P>>(
        &mut self,
        ch: &mut Channel,
        mut groups: usize,
        emit: &E,
        mut consume: impl FnMut(&[E::Item]),
    ) -> Result<(), MpcError> {
        self.schedule.begin(groups);
        let mut out = Zeroizing::new(Vec::new());
        while groups > 0 {
            match self.schedule.step(groups) {
                Step::Left { groups: now, start } => {
                    let left = &self.ready.as_chunks::<GROUP>().0[start..start + now];
                    out.resize(now * emit.stride(), E::Item::default());
                    self.emit(emit, self.newest, start, left, &mut out);
                    groups -= now;
                    consume(&out);
                }
                Step::Batch(trees) => {
                    let whole = trees.whole * (self.params().leaves() / GROUP);
                    out.resize(whole * emit.stride(), E::Item::default());
                    self.batch(ch, trees, emit, &mut out)?;
                    groups -= whole;
                    consume(&out);
                }
                Step::Extend(next) => self.extend(ch, next)?,
                Step::Refresh => self.refresh(ch)?,
            }
        }
        Ok(())
    }

    /// Emits the groups `first_group ..` of a tree's outputs, each part under its own key.
    fn emit<E: Emit<P>>(
        &self,
        emit: &E,
        tree: usize,
        first_group: usize,
        mut groups: &[[Block; GROUP]],
        mut out: &mut [E::Item],
    ) {
        let mut group = first_group;
        while !groups.is_empty() {
            let now = (PART_GROUPS - group % PART_GROUPS).min(groups.len());
            let (part, following) = groups.split_at(now);
            let (items, rest_out) = out.split_at_mut(now * emit.stride());
            emit.emit(&self.party, self.keys.strings(self.extension.number, tree, group / PART_GROUPS), part, items);
            (groups, out, group) = (following, rest_out, group + now);
        }
    }

    /// Writes the outputs of whole trees to `out`, which has room for them, and those of the extra
    /// tree to `ready`.
    fn batch<E: Emit<P>>(
        &mut self,
        ch: &mut Channel,
        trees: Trees,
        emit: &E,
        out: &mut [E::Item],
    ) -> Result<(), MpcError> {
        let Trees { first, whole, extra } = trees;
        let params = self.params();
        let (leaves, per_tree) = (params.leaves(), params.corrections());
        let items = leaves / GROUP * emit.stride();
        let mut corrections = self.party.begin_batch(ch, (whole + extra as usize) * per_tree)?;
        let mut ready = std::mem::take(&mut self.ready);
        if extra {
            ready.resize(leaves, Block::ZERO);
        }
        // The stored tree is the last.
        let outputs = out.chunks_mut(items).map(Outputs::Emitted).chain([Outputs::Kept(&mut ready)]);
        let trees = corrections.chunks_mut(per_tree).zip(outputs).enumerate();
        workers::for_each(trees, |scratch, (i, (corrections, outputs))| {
            let tree = first + i;
            match outputs {
                Outputs::Emitted(out) => {
                    scratch.resize(leaves, Block::ZERO);
                    self.extension.outputs(&self.party, &self.keys, tree, corrections, scratch);
                    self.emit(emit, tree, 0, scratch.as_chunks().0, out);
                }
                Outputs::Kept(ready) => self.extension.outputs(&self.party, &self.keys, tree, corrections, ready),
            }
        });
        if extra {
            self.newest = first + whole;
        }
        self.ready = ready;
        self.party.finish_batch(ch, &corrections)
    }

    /// Starts an extension with set `next`, fed from the remaining trees.
    fn extend(&mut self, ch: &mut Channel, next: LpnParams) -> Result<(), MpcError> {
        let (leaves, feed) = (self.params().leaves(), self.schedule.feed(next));
        let blocks = leaves * feed.iter().map(|(_, trees)| trees).sum::<usize>();
        let mut base = match self.spare.take() {
            Some(spare) if spare.0.len() == blocks => spare,
            _ => Base(Long::zeros(blocks)),
        };
        let mut room = &mut base.0[..];
        for (first, trees) in feed {
            let (now, remaining) = room.split_at_mut(trees * leaves);
            self.batch(ch, Trees { first, whole: trees, extra: false }, &Raw, now)?;
            room = remaining;
        }
        let new = Extension::new(next, self.extension.number + 1, self.seed, base);
        let mut old = std::mem::replace(&mut self.extension, new).base;
        old.wipe();
        self.spare = Some(old);
        self.schedule.record_extension(next);
        Ok(())
    }

    /// Continues with a new `delta`. Drops the rest of the old extension.
    fn refresh(&mut self, ch: &mut Channel) -> Result<(), MpcError> {
        let (seed, base) = self.party.bootstrap(ch)?;
        (self.seed, self.keys, self.extension) = (seed, HashKeys::new(seed), Extension::after_bootstrap(seed, base));
        self.schedule.record_refresh();
        Ok(())
    }
}

impl<P> Drop for Stock<P> {
    fn drop(&mut self) {
        self.ready.zeroize();
    }
}
