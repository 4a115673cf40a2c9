//! Costs of a batch of dealt gates: payload bytes without frame headers.

use super::{BLOCK, DealtGate, Exchanges, block};
use crate::packed_bytes;

/// Bytes and waits of a batch of gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DealtCost {
    /// Client to server, online.
    pub up: usize,
    /// Server to client, online.
    pub down: usize,
    /// Number of times that the parties wait for each other, online.
    pub exchanges: usize,
    /// Bytes of the server's material.
    pub material: usize,
    /// AES blocks of the client's streams.
    pub client_aes: usize,
    /// AES blocks of the server's streams.
    pub server_aes: usize,
}

impl DealtGate {
    /// The cost of the whole batch.
    #[must_use]
    pub fn cost(&self) -> DealtCost {
        let (plane, masked) = (self.n.div_ceil(8), self.masked_bits());
        let signs = if self.exchanges == Exchanges::Two { plane } else { 0 };
        let mut cost = DealtCost {
            up: masked * plane + signs + packed_bytes(self.n, &self.widths()),
            down: packed_bytes(self.n, &self.opened()) + masked * plane + signs,
            exchanges: if self.exchanges == Exchanges::Two { 2 } else { 1 },
            ..DealtCost::default()
        };
        let masks = self.masks();
        let per_word = if self.is_narrow() { 2 } else { 1 };
        for index in 0..block::count(self.n) {
            let len = block::range(self.n, index).len();
            let words = block::words(len);
            cost.material += block::bytes(self, len);
            cost.client_aes +=
                ((self.planes() + masks) * words + self.all_columns().len() * len.div_ceil(per_word)).div_ceil(2);
            cost.server_aes += (masks * words + self.opened().len() * len).div_ceil(2);
        }
        cost
    }

    /// Bytes of material at the server for each of many gates.
    #[must_use]
    pub fn bytes_per_gate(&self) -> f64 {
        block::bytes(self, BLOCK) as f64 / BLOCK as f64
    }
}
