//! Costs of a lowered model by phase, for the search for scales, the planner and the scheduler's first
//! estimates.

use std::ops::AddAssign;

use tacit_net::{Phase, Sides, TrafficModel};

/// Counts of primitive work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Work {
    /// Number-theoretic transforms of one polynomial modulo one prime.
    pub ntts: u64,
    /// Random oblivious transfers, as sender or receiver.
    pub ots: u64,
    /// AES blocks.
    pub aes_blocks: u64,
    /// Multiplications with accumulation in linear layers, pointwise on polynomials or of integers.
    pub macs: u64,
    /// Key switches (relinearisations and rotations).
    pub key_switches: u64,
}

/// One party's costs of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct PartyCost {
    /// Primitive work.
    pub work: Work,
    /// Estimated peak of the phase's memory, in bytes, without the model itself.
    pub peak_memory_bytes: u64,
    /// Bytes that remain after the phase: keys of a setup, material of an offline phase.
    pub stored_bytes: u64,
}

/// Both parties' costs of one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct PhaseCost {
    /// Bytes from client to server, with frame headers (before TLS).
    pub up_bytes: u64,
    /// Bytes from server to client, with frame headers (before TLS).
    pub down_bytes: u64,
    /// Round trips that the client waits for, in sequence.
    pub exchanges: u64,
    /// Bytes that the client waits for if both directions are equally fast
    /// ([`TrafficModel::waited_bytes`]).
    pub waited_bytes: u64,
    /// Bytes still on their way to the server when the client is done
    /// ([`TrafficModel::queued_bytes`]).
    pub queued_bytes: u64,
    /// Most bytes that the client sends without waiting for an answer.
    pub up_burst: u64,
    /// Most bytes that the server sends without waiting for an answer.
    pub down_burst: u64,
    /// The client's costs.
    pub client: PartyCost,
    /// The server's costs.
    pub server: PartyCost,
}

/// The costs of a lowered model: the setup once for a client, the other phases for each input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Costs {
    /// The phase that makes keys.
    pub setup: PhaseCost,
    /// The phase without the input.
    pub offline: PhaseCost,
    /// The phase with the input.
    pub online: PhaseCost,
    /// Sign tests of one input.
    pub comparisons: u64,
    /// Numbers in the weights of linear layers, which a server holds in every phase; 0 if the phases' peak
    /// memory includes them.
    pub weights: u64,
    /// The dealer's costs for one input; zeros without a dealer.
    pub dealing: DealingCost,
}

impl Costs {
    /// The costs of a phase.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> &PhaseCost {
        match phase {
            Phase::Setup => &self.setup,
            Phase::Offline => &self.offline,
            Phase::Online => &self.online,
        }
    }

    /// Bytes that a dealer sends to the client in a phase.
    #[must_use]
    pub fn dealt_bytes(&self, phase: Phase) -> u64 {
        if phase == Phase::Offline { self.dealing.client_bytes } else { 0 }
    }

    /// Bytes on the links of client and server in a phase. A dealer's bytes to the client count beside those
    /// between the parties.
    #[must_use]
    pub fn carried(&self, phase: Phase) -> Sides<u64> {
        let bytes = self.phase(phase).bytes();
        Sides { client: bytes + self.dealt_bytes(phase), server: bytes }
    }
}

/// The dealer's costs of the material for one input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct DealingCost {
    /// Bytes to the client.
    pub client_bytes: u64,
    /// Bytes to the server.
    pub server_bytes: u64,
    /// Primitive work at the dealer.
    pub work: Work,
    /// Estimated peak of the dealer's memory, in bytes.
    pub peak_memory_bytes: u64,
}

impl From<TrafficModel> for PhaseCost {
    /// The costs of the traffic alone.
    fn from(traffic: TrafficModel) -> Self {
        let Sides { client: up_burst, server: down_burst } = traffic.bursts();
        Self {
            up_bytes: traffic.up_bytes(),
            down_bytes: traffic.down_bytes(),
            exchanges: traffic.exchanges(),
            waited_bytes: traffic.waited_bytes(),
            queued_bytes: traffic.queued_bytes(),
            up_burst,
            down_burst,
            ..Self::default()
        }
    }
}

impl PhaseCost {
    /// Bytes in both directions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.up_bytes + self.down_bytes
    }

    /// Adds work of both parties; traffic is counted separately.
    pub fn add_work(&mut self, client: PartyCost, server: PartyCost) {
        self.client += client;
        self.server += server;
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, addend: Self) {
        self.ntts += addend.ntts;
        self.ots += addend.ots;
        self.aes_blocks += addend.aes_blocks;
        self.macs += addend.macs;
        self.key_switches += addend.key_switches;
    }
}

impl AddAssign for PartyCost {
    /// Adds a cost that follows in sequence: the peak is the larger one.
    fn add_assign(&mut self, addend: Self) {
        self.work += addend.work;
        self.peak_memory_bytes = self.peak_memory_bytes.max(addend.peak_memory_bytes);
        self.stored_bytes += addend.stored_bytes;
    }
}
