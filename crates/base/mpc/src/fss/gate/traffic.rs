//! Online messages of gates, widenings and look-ups with tags, and of the check at the end, in
//! protocol order.

use tacit_net::TrafficModel;

use super::super::mac::bits::DIGEST;
use super::super::mac::ring::{ROWS, SIGMA};
use super::agree::COIN_BYTES;
use super::check_transcript::CheckTranscript;
use super::spec::Checked;
use super::{FssGate, FssLookUp, FssWiden};
use crate::codec::Packed;

/// Adds `bit_plane_bytes` bytes of opened bits each way, and `n` words of each of `widths` bits to the
/// server. With [`Checked::Both`], the words go to the client too.
fn add_opening(bit_plane_bytes: usize, n: usize, widths: &[u32], checked: Checked, traffic: &mut TrafficModel) {
    if bit_plane_bytes > 0 {
        traffic.down(bit_plane_bytes);
        traffic.up(bit_plane_bytes);
    }
    widths.iter().for_each(|&width| traffic.up(Packed::len_bytes(n, width)));
    if checked == Checked::Both {
        widths.iter().for_each(|&width| traffic.down(Packed::len_bytes(n, width)));
    }
}

impl FssGate {
    /// Adds the messages of a batch.
    pub fn add_traffic(&self, traffic: &mut TrafficModel) {
        if self.checked == Checked::Client {
            self.opened().into_iter().for_each(|width| traffic.down(Packed::len_bytes(self.n(), width)));
        }
        add_opening(self.n().div_ceil(8), self.n(), &self.widths(), self.checked, traffic);
    }
}

impl FssWiden {
    /// Adds the messages of a batch.
    pub fn add_traffic(&self, traffic: &mut TrafficModel) {
        if self.checked == Checked::Client {
            traffic.down(self.n.div_ceil(8));
        }
        add_opening(0, self.n, &[self.width + self.extra], self.checked, traffic);
    }
}

impl FssLookUp {
    /// Adds the messages of a batch.
    pub fn add_traffic(&self, traffic: &mut TrafficModel) {
        let n = self.n();
        if self.checked == Checked::Client {
            traffic.down(Packed::len_bytes(n, self.table.index_bits()));
        }
        add_opening((n * self.out_bits()).div_ceil(8), n, &[self.table.width], self.checked, traffic);
    }
}

impl CheckTranscript {
    /// Adds the messages of a check of the client, for values in rings of `width_count` widths.
    pub fn add_traffic(width_count: usize, traffic: &mut TrafficModel) {
        traffic.down(16);
        traffic.ups(width_count as u64, Packed::len_bytes(ROWS, SIGMA));
        traffic.up((width_count + 1) * DIGEST);
    }

    /// Adds the messages of a check of both parties, for values in rings of `width_count` widths.
    pub fn add_agreement_traffic(width_count: usize, traffic: &mut TrafficModel) {
        let (highs, digests) = (Packed::len_bytes(ROWS, SIGMA), (width_count + 1) * DIGEST);
        traffic.down(DIGEST);
        traffic.up(COIN_BYTES);
        traffic.down(2 * COIN_BYTES);
        traffic.downs(width_count as u64, highs);
        traffic.ups(width_count as u64, highs);
        traffic.up(DIGEST);
        traffic.down(digests + DIGEST);
        traffic.up(digests + COIN_BYTES);
    }
}
