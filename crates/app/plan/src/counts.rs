//! Counts of primitives in a party's part of a phase.

use serde::{Deserialize, Serialize};
use tacit_backends::{Costs, PartyCost, PhaseCost, Role, Sides};
use tacit_net::Phase;

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
    /// A byte of keys or material that is written, or read to be used up.
    Stored,
    /// A message exchange: waking up, system calls.
    Exchange,
    /// The fixed cost of a phase, counted once.
    Phase,
    /// A byte that crosses a link between two machines; its cost adds to that of
    /// [`Primitive::Byte`].
    Carried,
    /// A sign test of an input, online.
    Comparison,
}

impl Primitive {
    /// All primitives, in the order of [`Counts`].
    pub const ALL: [Self; 11] = [
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
        Self::Comparison,
    ];
}

/// How often each of [`Primitive::ALL`] happens.
pub type Counts = [f64; Primitive::ALL.len()];

/// Counts the primitives of a party in a phase; `carried` bytes cross a link.
#[must_use]
pub fn counts(costs: &Costs, phase: Phase, role: Role, carried: u64) -> Counts {
    let (cost, own) = (costs.phase(phase), party_cost(costs.phase(phase), role));
    // The online phase reads stored material and uses it up.
    let (material, tests) = match phase {
        Phase::Online => (party_cost(&costs.offline, role).stored_bytes, costs.comparisons),
        Phase::Setup | Phase::Offline => (0, 0),
    };
    let work = &own.work;
    let counts = [
        work.ntts,
        work.ots,
        work.aes_blocks,
        work.macs,
        work.key_switches,
        cost.bytes(),
        own.stored_bytes + material,
        cost.exchanges,
        1,
        carried,
        tests,
    ];
    counts.map(|count| count as f64)
}

fn party_cost(cost: &PhaseCost, role: Role) -> PartyCost {
    *role.value_of(&Sides { client: cost.client, server: cost.server })
}

/// Size from which a server with a material folder keeps dealt material on disk instead of in
/// memory, bytes.
pub const SPOOLED: u64 = 64 << 20;

/// The terms of a party's memory in a phase: 1 for the process itself, bytes that the plan declares,
/// and numbers in the model's weights.
#[must_use]
pub fn memory(costs: &Costs, phase: Phase, role: Role) -> [f64; 3] {
    let cost = costs.phase(phase);
    let dealt = match phase {
        Phase::Setup => 0,
        // Spooled material is written as it arrives, and read as it is used.
        Phase::Offline => costs.dealing.server_bytes,
        Phase::Online if costs.dealing.server_bytes > 0 => costs.offline.server.stored_bytes,
        Phase::Online => 0,
    };
    let spooled = if role == Role::Server && dealt > SPOOLED { dealt } else { 0 };
    let declared = party_cost(cost, role).peak_memory_bytes.saturating_sub(spooled);
    [1.0, declared as f64, costs.weights as f64]
}
