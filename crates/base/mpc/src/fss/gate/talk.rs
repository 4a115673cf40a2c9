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

/// Opened bits, and words of `n` values of the given widths.
fn add_opening(bits: usize, n: usize, widths: &[u32], checked: Checked, talk: &mut TrafficModel) {
    if bits > 0 {
        talk.down(bits);
        talk.up(bits);
    }
    widths.iter().for_each(|&width| talk.up(Packed::len_bytes(n, width)));
    if checked == Checked::Both {
        widths.iter().for_each(|&width| talk.down(Packed::len_bytes(n, width)));
    }
}

impl FssGate {
    /// Adds the messages of a batch.
    pub fn talk(&self, talk: &mut TrafficModel) {
        if self.checked == Checked::Client {
            self.opened().into_iter().for_each(|width| talk.down(Packed::len_bytes(self.n(), width)));
        }
        add_opening(self.n().div_ceil(8), self.n(), &self.widths(), self.checked, talk);
    }
}

impl FssWiden {
    /// Adds the messages of a batch.
    pub fn talk(&self, talk: &mut TrafficModel) {
        if self.checked == Checked::Client {
            talk.down(self.n.div_ceil(8));
        }
        add_opening(0, self.n, &[self.width + self.extra], self.checked, talk);
    }
}

impl FssLookUp {
    /// Adds the messages of a batch.
    pub fn talk(&self, talk: &mut TrafficModel) {
        let n = self.n();
        if self.checked == Checked::Client {
            talk.down(Packed::len_bytes(n, self.table.index_bits()));
        }
        add_opening((n * self.out_bits()).div_ceil(8), n, &[self.table.width], self.checked, talk);
    }
}

impl CheckTranscript {
    /// Adds the messages of a check of the client, for values in rings of `widths` widths.
    pub fn talk(widths: usize, talk: &mut TrafficModel) {
        talk.down(16);
        talk.ups(widths as u64, Packed::len_bytes(ROWS, SIGMA));
        talk.up((widths + 1) * DIGEST);
    }

    /// Adds the messages of a check of both parties.
    pub fn agree_talk(widths: usize, talk: &mut TrafficModel) {
        let (highs, digests) = (Packed::len_bytes(ROWS, SIGMA), (widths + 1) * DIGEST);
        talk.down(DIGEST);
        talk.up(COIN_BYTES);
        talk.down(2 * COIN_BYTES);
        talk.downs(widths as u64, highs);
        talk.ups(widths as u64, highs);
        talk.up(DIGEST);
        talk.down(digests + DIGEST);
        talk.up(digests + COIN_BYTES);
    }
}
