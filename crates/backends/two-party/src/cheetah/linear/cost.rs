//! Exact costs of a plan.

use super::plan::{LinearPlan, Upload};
use tacit_arith::prg::PublicSeed;
use tacit_he::coeff::{Ciphertexts, HALVING_NTTS};
use tacit_net::{HEADER_BYTES, TrafficModel};

/// Cost of one layer, without its tensor's upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConsumerCost {
    /// Bytes from server to client, message headers included.
    pub down_bytes: u64,
    /// Answer polynomials.
    pub answers: u64,
    /// Weight polynomials transformed (two NTTs each).
    pub weight_polys: u64,
    /// Products of a weight polynomial and a ciphertext (four pointwise products each).
    pub products: u64,
}

/// Cost of all layers of one tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinearCost {
    /// Bytes from client to server, message headers included.
    pub up_bytes: u64,
    /// Fresh ciphertexts.
    pub uploads: u64,
    /// Halvings of parts of the fresh ciphertexts.
    pub halvings: u64,
    /// Bytes that all parts take in memory at the server.
    pub memory_bytes: u64,
    /// Per layer, in the plan's order.
    pub consumers: Vec<ConsumerCost>,
}

impl LinearCost {
    /// Bytes from server to client of all layers.
    #[must_use]
    pub fn down_bytes(&self) -> u64 {
        self.consumers.iter().map(|c| c.down_bytes).sum()
    }

    /// NTTs at the server: two per ciphertext and weight polynomial, five per answer, plus those of
    /// halvings.
    #[must_use]
    pub fn server_ntts(&self) -> u64 {
        let halvings = HALVING_NTTS * self.halvings;
        2 * self.uploads + halvings + self.consumers.iter().map(|c| 2 * c.weight_polys + 5 * c.answers).sum::<u64>()
    }

    /// NTTs at the client, without [`LinearPlan::choosing_ntts`]: two per ciphertext and per
    /// answer.
    #[must_use]
    pub fn client_ntts(&self) -> u64 {
        2 * self.uploads + self.consumers.iter().map(|c| 2 * c.answers).sum::<u64>()
    }
}

/// Bytes of each polynomial of one tensor.
fn frames(upload: &Upload) -> impl Iterator<Item = usize> + '_ {
    (0..upload.tiling.uploads()).map(|i| upload.up_bytes(i))
}

impl LinearPlan {
    /// Returns the exact cost of running this plan once (tests compare it with the channel's
    /// counters).
    #[must_use]
    pub fn cost(&self) -> LinearCost {
        let parts = self.uploads.iter().map(|u| (self.batch * u.tiling.parts()) as u64);
        LinearCost {
            up_bytes: self.up_bytes(),
            uploads: self.uploads.iter().map(|u| self.ciphertexts(u)).sum(),
            halvings: self.uploads.iter().map(|u| self.ciphertexts(u) * ((1 << u.tiling.steps) - 1)).sum(),
            memory_bytes: parts.sum::<u64>() * Ciphertexts::MEMORY_BYTES as u64,
            consumers: (0..self.consumers().len()).map(|k| self.consumer_cost(k)).collect(),
        }
    }

    /// Returns the number of ciphertexts of an upload.
    fn ciphertexts(&self, upload: &Upload) -> u64 {
        (self.batch * upload.tiling.uploads()) as u64
    }

    /// Bytes from client to server, message headers included.
    #[must_use]
    pub fn up_bytes(&self) -> u64 {
        self.batch as u64 * self.uploads.iter().flat_map(frames).map(message_bytes).sum::<u64>()
    }

    /// NTTs at the client, in each phase, for the masks that encryptions choose: two per
    /// ciphertext.
    #[must_use]
    pub fn choosing_ntts(&self) -> u64 {
        let chosen = self.uploads.iter().filter(|u| u.chosen.is_some());
        2 * chosen.map(|u| (self.batch * u.tiling.uploads()) as u64).sum::<u64>()
    }

    /// Records the plan's traffic, message by message.
    pub fn add_traffic(&self, traffic: &mut TrafficModel) {
        for upload in &self.uploads {
            (0..self.batch).for_each(|_| frames(upload).for_each(|bytes| traffic.up(bytes)));
        }
        for k in 0..self.consumers().len() {
            let (_, upload, _) = self.consumer(k).expect("these are the plan's own layers");
            traffic.down(PublicSeed::BYTES);
            traffic.downs(self.consumer_cost(k).answers, self.uploads[upload].params.down_bytes());
        }
    }

    /// The cost of layer `k`.
    fn consumer_cost(&self, k: usize) -> ConsumerCost {
        let (c, upload, _) = self.consumer(k).expect("`cost` counts the plan's own layers");
        let u = &self.uploads[upload];
        let (blocks, tiles) = (u.tiling.out_blocks(c), self.batch * u.tiling.output_tiles(c).len());
        let joined: usize = (0..blocks).map(|o| self.inputs_reaching(k, o).len()).sum();
        let passes = tiles.div_ceil(super::server::TILES_AT_ONCE);
        ConsumerCost {
            down_bytes: message_bytes(PublicSeed::BYTES)
                + (blocks * tiles) as u64 * message_bytes(u.params.down_bytes()),
            answers: (blocks * tiles) as u64,
            weight_polys: (joined * passes) as u64,
            products: (joined * tiles) as u64,
        }
    }
}

/// Returns the bytes of a message with its header.
fn message_bytes(bytes: usize) -> u64 {
    (bytes + HEADER_BYTES) as u64
}
