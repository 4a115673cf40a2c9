//! Oblivious transfer of random strings (ROT).
//!
//! The sender gets two random strings per OT, the receiver a random choice bit and the string it chooses.
//! Both parties call the matching method with the same arguments, in the same order. See the submodules for
//! the protocols.

mod base;
#[cfg(any(test, feature = "test-util"))]
pub mod ideal;
mod iknp;
mod keys;
mod output;
pub mod params;
mod schedule;
mod silent;
mod stock;
mod tree;
mod workers;

pub use schedule::PlannedOts;
pub use silent::{RotReceiver, RotSender, SETUP_BYTES, add_setup_traffic, setup};

use tacit_arith::bits::Bits;
use tacit_net::Channel;

use crate::MpcError;
use crate::error::check_max;

/// Bytes of a group element of the base OTs.
const POINT_BYTES: usize = 32;

/// Longest string, in bits, from [`RandomOtSender::planes`] per OT.
pub const MAX_PLANES: usize = 32;

/// The sender's strings of `n` OTs as bit planes: bit `i` of `m0[j]` is bit `j` of the first string of OT
/// `i`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SenderPlanes {
    /// Strings for choice 0: `k` planes of `n` bits.
    pub m0: Vec<Bits>,
    /// Strings for choice 1: `k` planes of `n` bits.
    pub m1: Vec<Bits>,
}

/// The receiver's choices and strings of `n` OTs as bit planes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReceiverPlanes {
    /// The random choices: `n` bits.
    pub choice: Bits,
    /// The chosen strings: `k` planes of `n` bits.
    pub m: Vec<Bits>,
}

/// The sender's 64-bit strings of `n` OTs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SenderWords {
    /// Strings for choice 0: `n` words.
    pub m0: Vec<u64>,
    /// Strings for choice 1: `n` words.
    pub m1: Vec<u64>,
}

/// The receiver's choices and 64-bit strings of `n` OTs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReceiverWords {
    /// The random choices: `n` bits.
    pub choice: Bits,
    /// The chosen strings: `n` words.
    pub m: Vec<u64>,
}

/// The party with both strings of every OT.
pub trait RandomOtSender {
    /// Announces about `n` OTs, for the choice of a parameter set. Only a hint, but both parties
    /// must give the same number.
    fn reserve(&mut self, n: usize);

    /// `n` OTs of `k`-bit strings, `k <= MAX_PLANES`, as bit planes.
    fn planes(&mut self, ch: &mut Channel, n: usize, k: usize) -> Result<SenderPlanes, MpcError>;

    /// `n` OTs of 64-bit strings.
    fn words(&mut self, ch: &mut Channel, n: usize) -> Result<SenderWords, MpcError>;
}

/// The party with one string of every OT.
pub trait RandomOtReceiver {
    /// See [`RandomOtSender::reserve`].
    fn reserve(&mut self, n: usize);

    /// `n` OTs of `k`-bit strings, `k <= MAX_PLANES`, as bit planes.
    fn planes(&mut self, ch: &mut Channel, n: usize, k: usize) -> Result<ReceiverPlanes, MpcError>;

    /// `n` OTs of 64-bit strings.
    fn words(&mut self, ch: &mut Channel, n: usize) -> Result<ReceiverWords, MpcError>;
}

/// Both directions at one party, the sender of one OT instance and the receiver of another.
pub struct Ot<S, R> {
    /// Sender, paired with the peer's `receiver`.
    pub sender: S,
    /// Receiver, paired with the peer's `sender`.
    pub receiver: R,
}

fn check_planes(k: usize) -> Result<(), MpcError> {
    check_max("bits of an OT string", k, MAX_PLANES)
}

#[cfg(test)]
mod tests;
