//! What a party's part of a phase is made of, in numbers.

use serde::{Deserialize, Serialize};
use tacit_backends::{PartyCost, PhaseCost};

/// A kind of work that takes time in proportion to its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Primitive {
    /// A number-theoretic transform modulo one prime.
    Ntt,
    /// A random oblivious transfer, as sender or receiver.
    Ot,
    /// An AES block.
    Aes,
    /// A multiplication with accumulation in a linear layer.
    Mac,
    /// A key switch.
    KeySwitch,
    /// A byte that is sent or received: packed, encrypted, copied.
    Byte,
    /// A byte of keys or material that is written or read.
    Stored,
    /// A message exchange: waking up, system calls.
    Exchange,
    /// Once in a phase.
    Phase,
    /// A byte that crosses a link between two machines, beside what [`Primitive::Byte`] takes on one.
    Carried,
}

impl Primitive {
    /// All of them, in the order of [`Counts`].
    pub const ALL: [Self; 10] = [
        Self::Ntt,
        Self::Ot,
        Self::Aes,
        Self::Mac,
        Self::KeySwitch,
        Self::Byte,
        Self::Stored,
        Self::Exchange,
        Self::Phase,
        Self::Carried,
    ];
}

/// How often each of [`Primitive::ALL`] happens.
pub type Counts = [f64; Primitive::ALL.len()];

/// The counts of one party in a phase, of which so many bytes cross a link.
#[must_use]
pub fn counts(phase: &PhaseCost, party: &PartyCost, carried: u64) -> Counts {
    let work = &party.work;
    let counts = [
        work.ntts,
        work.ots,
        work.aes_blocks,
        work.macs,
        work.key_switches,
        phase.bytes(),
        party.stored_bytes,
        phase.exchanges,
        1,
        carried,
    ];
    counts.map(|count| count as f64)
}
