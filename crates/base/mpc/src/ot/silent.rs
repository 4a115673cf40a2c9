//! The two parties of the silent OT, and their setup.

use tacit_arith::aes::CcrHash;
use tacit_arith::bits::Bits;
use tacit_arith::bits::transpose::block_planes;
use tacit_arith::block::{self, Block};
use tacit_arith::prg::{Prg, SplitPrg};
use tacit_net::{Channel, Tag, TrafficModel};
use zeroize::{Zeroize, Zeroizing};

use super::output::{Emit, Form, GROUP, Strings};
use super::params::{COTS_PER_DELTA, LpnParams};
use super::schedule::BOOTSTRAP;
use super::stock::{Party, Stock};
use super::{
    Ot, POINT_BYTES, RandomOtReceiver, RandomOtSender, ReceiverPlanes, ReceiverWords, SenderPlanes, SenderWords, base,
    check_planes, iknp, tree,
};
use crate::{MpcError, Role};

const SEED: Tag = Tag::new(0x0204, "public seed");
const CORRECTIONS: Tag = Tag::new(0x0205, "tree corrections");

/// Sender of random OTs. Holds `delta` and its supply; no part can be copied or stored.
pub struct RotSender(Stock<SendingParty>);

/// Receiver of random OTs.
pub struct RotReceiver(Stock<ReceivingParty>);

/// The sender's state beside its supply.
pub(super) struct SendingParty {
    delta: Block,
    /// Randomness of later bootstraps.
    prg: Prg,
    context: u8,
}

/// The receiver's state beside its supply.
pub(super) struct ReceivingParty {
    /// Randomness of later bootstraps.
    prg: Prg,
    context: u8,
}

/// Draws a new `delta` and its free bits, the choices in the base OTs.
fn new_delta(prg: &mut Prg) -> (Block, Bits) {
    let delta = Block(prg.next_block().0 | 1);
    (delta, (1..128).map(|i| delta.0 >> i & 1 == 1).collect())
}

/// Public, so it must not be a block of the stream of `delta`.
fn send_seed(ch: &mut Channel, prg: &mut Prg) -> Result<Block, MpcError> {
    let seed = Block::from_bytes(SplitPrg::draw(prg).public_seed().to_bytes());
    ch.send(SEED, &seed.to_bytes())?;
    Ok(seed)
}

fn receive_seed(ch: &mut Channel) -> Result<Block, MpcError> {
    Ok(block::from_bytes(&ch.recv(SEED, 16)?)[0])
}

impl Party for SendingParty {
    fn begin_batch(&self, _ch: &mut Channel, blocks: usize) -> Result<Vec<Block>, MpcError> {
        Ok(vec![Block::ZERO; blocks])
    }

    fn finish_batch(&self, ch: &mut Channel, corrections: &[Block]) -> Result<(), MpcError> {
        ch.send(CORRECTIONS, &block::to_bytes(corrections))?;
        Ok(ch.flush()?)
    }

    fn bootstrap(&mut self, ch: &mut Channel) -> Result<(Block, Vec<Block>), MpcError> {
        let (delta, choices) = new_delta(&mut self.prg);
        let chosen = Zeroizing::new(base::receive(ch, &mut self.prg, &choices, self.context)?);
        let seed = send_seed(ch, &mut self.prg)?;
        self.delta = delta;
        Ok((seed, iknp::send(ch, delta, &chosen, BOOTSTRAP)?))
    }

    fn expand_tree(&self, hash: &CcrHash, cots: &[Block], corrections: &mut [Block], leaves: &mut [Block]) {
        tree::expand(hash, self.delta, cots, leaves, corrections);
    }
}

impl Drop for SendingParty {
    fn drop(&mut self) {
        self.delta.zeroize();
    }
}

impl Party for ReceivingParty {
    fn begin_batch(&self, ch: &mut Channel, blocks: usize) -> Result<Vec<Block>, MpcError> {
        Ok(block::from_bytes(&ch.recv(CORRECTIONS, 16 * blocks)?))
    }

    fn finish_batch(&self, _ch: &mut Channel, _corrections: &[Block]) -> Result<(), MpcError> {
        Ok(())
    }

    fn bootstrap(&mut self, ch: &mut Channel) -> Result<(Block, Vec<Block>), MpcError> {
        let keys = base::Sender::start(ch, &mut self.prg, self.context)?;
        let keys = Zeroizing::new(keys.finish(ch, iknp::BASE_OTS)?);
        let seed = receive_seed(ch)?;
        Ok((seed, iknp::receive(ch, &mut self.prg, &keys, BOOTSTRAP)?))
    }

    fn expand_tree(&self, hash: &CcrHash, cots: &[Block], corrections: &mut [Block], leaves: &mut [Block]) {
        tree::expand_punctured(hash, cots, corrections, leaves);
    }
}

impl Emit<SendingParty> for Strings {
    type Item = u64;
    fn stride(&self) -> usize {
        (2 * self.0.stride()).max(1)
    }
    fn emit(&self, party: &SendingParty, key: Block, groups: &[[Block; GROUP]], out: &mut [u64]) {
        let hash = CcrHash::new(key);
        let mut strings = [Block::ZERO; GROUP];
        for (cots, out) in groups.iter().zip(out.chunks_mut(Emit::<SendingParty>::stride(self))) {
            for (mask, out) in [Block::ZERO, party.delta].into_iter().zip(out.chunks_mut(self.0.stride().max(1))) {
                hash.hash(cots, mask, &mut strings);
                self.0.write(&hash, &strings, out);
            }
        }
    }
}

impl Emit<ReceivingParty> for Strings {
    type Item = u64;
    fn stride(&self) -> usize {
        1 + self.0.stride()
    }
    fn emit(&self, _: &ReceivingParty, key: Block, groups: &[[Block; GROUP]], out: &mut [u64]) {
        let hash = CcrHash::new(key);
        let mut strings = [Block::ZERO; GROUP];
        for (cots, out) in groups.iter().zip(out.chunks_mut(Emit::<ReceivingParty>::stride(self))) {
            let (choice, out) = out.split_at_mut(1);
            block_planes(hash.cpu(), cots, choice);
            hash.hash(cots, Block::ZERO, &mut strings);
            self.0.write(&hash, &strings, out);
        }
    }
}

/// Bytes of [`setup`] each way, without frame headers: equal both ways, since every party is a
/// sender and a receiver.
pub const SETUP_BYTES: usize = POINT_BYTES + POINT_BYTES * iknp::BASE_OTS + 16 + iknp::column_bytes(BOOTSTRAP);

/// Adds the messages of [`setup`].
pub fn add_setup_traffic(traffic: &mut TrafficModel) {
    traffic.both(&[POINT_BYTES]);
    traffic.both(&[POINT_BYTES * iknp::BASE_OTS, 16]);
    traffic.both(&[iknp::column_bytes(BOOTSTRAP)]);
}

/// Base OTs and bootstrap for both directions, in three rounds. Each party is base-OT sender for
/// the direction in which it is OT receiver. About 0.88 MB in all. A direction that has made
/// [`COTS_PER_DELTA`] COTs bootstraps again alone, inside the call that needs more: 0.44 MB and two
/// rounds.
///
/// # Errors
/// Channel errors; a peer that deviates from the base OT.
pub fn setup(role: Role, ch: &mut Channel, prg: &mut Prg) -> Result<Ot<RotSender, RotReceiver>, MpcError> {
    setup_bounded(role, ch, prg, COTS_PER_DELTA)
}

/// As [`setup`], with another bound on the COTs of one `delta`.
fn setup_bounded(
    role: Role,
    ch: &mut Channel,
    prg: &mut Prg,
    bound: u64,
) -> Result<Ot<RotSender, RotReceiver>, MpcError> {
    let (sending, receiving) = match role {
        Role::Client => (0, 1),
        Role::Server => (1, 0),
    };
    let (delta, choices) = new_delta(prg);
    let keys = base::Sender::start(ch, prg, receiving)?;
    let chosen = Zeroizing::new(base::receive(ch, prg, &choices, sending)?);
    let sender_seed = send_seed(ch, prg)?;
    let keys = Zeroizing::new(keys.finish(ch, iknp::BASE_OTS)?);
    let receiver_seed = receive_seed(ch)?;
    let receiver_base = iknp::receive(ch, prg, &keys, BOOTSTRAP)?;
    let sender_base = iknp::send(ch, delta, &chosen, BOOTSTRAP)?;

    let sender = SendingParty { delta, prg: Prg::from_seed(prg.next_seed()), context: sending };
    let receiver = ReceivingParty { prg: Prg::from_seed(prg.next_seed()), context: receiving };
    Ok(Ot {
        sender: RotSender(Stock::new(sender, sender_seed, sender_base, bound)),
        receiver: RotReceiver(Stock::new(receiver, receiver_seed, receiver_base, bound)),
    })
}

/// Adds the words of a batch to `planes`: plane `j` gets word `first + j` of every `stride` words.
fn spread(batch: &[u64], stride: usize, first: usize, planes: &mut [Vec<u64>]) {
    for (j, plane) in planes.iter_mut().enumerate() {
        plane.extend(batch.iter().skip(first + j).step_by(stride));
    }
}

/// Empty planes with room for `n` OTs.
fn plane_vectors(n: usize, k: usize) -> Vec<Vec<u64>> {
    (0..k).map(|_| Vec::with_capacity(n.div_ceil(GROUP))).collect()
}

fn bits(n: usize, words: Vec<u64>) -> Bits {
    Bits::from_words(n, words).expect("draw gives one word per group of OTs")
}

impl RotSender {
    /// The LPN parameters in use.
    pub fn params(&self) -> LpnParams {
        self.0.params()
    }
}

impl RandomOtSender for RotSender {
    fn reserve(&mut self, n: usize) {
        self.0.reserve(n);
    }

    fn planes(&mut self, ch: &mut Channel, n: usize, k: usize) -> Result<SenderPlanes, MpcError> {
        check_planes(k)?;
        let (mut m0, mut m1) = (plane_vectors(n, k), plane_vectors(n, k));
        let strings = Strings(Form::Planes(k));
        self.0.draw(ch, n.div_ceil(GROUP), &strings, |batch| {
            spread(batch, (2 * k).max(1), 0, &mut m0);
            spread(batch, (2 * k).max(1), k, &mut m1);
        })?;
        Ok(SenderPlanes { m0: all_bits(n, m0), m1: all_bits(n, m1) })
    }

    fn words(&mut self, ch: &mut Channel, n: usize) -> Result<SenderWords, MpcError> {
        let (mut m0, mut m1) = (Vec::with_capacity(n), Vec::with_capacity(n));
        self.0.draw(ch, n.div_ceil(GROUP), &Strings(Form::Words), |batch| {
            for group in batch.chunks_exact(2 * GROUP) {
                let take = GROUP.min(n - m0.len());
                m0.extend_from_slice(&group[..take]);
                m1.extend_from_slice(&group[GROUP..GROUP + take]);
            }
        })?;
        Ok(SenderWords { m0, m1 })
    }
}

impl RotReceiver {
    /// The LPN parameters in use.
    pub fn params(&self) -> LpnParams {
        self.0.params()
    }
}

impl RandomOtReceiver for RotReceiver {
    fn reserve(&mut self, n: usize) {
        self.0.reserve(n);
    }

    fn planes(&mut self, ch: &mut Channel, n: usize, k: usize) -> Result<ReceiverPlanes, MpcError> {
        check_planes(k)?;
        let (mut choice, mut m) = ([Vec::with_capacity(n.div_ceil(GROUP))], plane_vectors(n, k));
        let strings = Strings(Form::Planes(k));
        self.0.draw(ch, n.div_ceil(GROUP), &strings, |batch| {
            spread(batch, 1 + k, 0, &mut choice);
            spread(batch, 1 + k, 1, &mut m);
        })?;
        let [choice] = choice;
        Ok(ReceiverPlanes { choice: bits(n, choice), m: all_bits(n, m) })
    }

    fn words(&mut self, ch: &mut Channel, n: usize) -> Result<ReceiverWords, MpcError> {
        let (mut choice, mut m) = (Vec::with_capacity(n.div_ceil(GROUP)), Vec::with_capacity(n));
        self.0.draw(ch, n.div_ceil(GROUP), &Strings(Form::Words), |batch| {
            for group in batch.chunks_exact(1 + GROUP) {
                choice.push(group[0]);
                let take = GROUP.min(n - m.len());
                m.extend_from_slice(&group[1..1 + take]);
            }
        })?;
        Ok(ReceiverWords { choice: bits(n, choice), m })
    }
}

fn all_bits(n: usize, planes: Vec<Vec<u64>>) -> Vec<Bits> {
    planes.into_iter().map(|words| bits(n, words)).collect()
}

#[cfg(test)]
mod tests;
