//! Order of the server's answer ciphertexts for one upload, and the places of their values. Both
//! parties iterate it, so no index is sent.

use std::collections::BTreeSet;

use tacit_he::bfv::Turn;
use tacit_mpc::gate::LiftSpec;
use tacit_net::Tag;

use super::plan::{SlotPlan, Upload};

/// Message, setup: the client's public key.
pub(super) const TAG_KEY: Tag = Tag::new(0x0440, "slots public key");
/// Message, setup: a Galois key.
pub(super) const TAG_GALOIS: Tag = Tag::new(0x0441, "Galois key");
/// Message, offline: a ciphertext of a mask.
pub(super) const TAG_UP: Tag = Tag::new(0x0442, "slots ciphertext");
/// Message, offline: the public seed of an answer.
pub(super) const TAG_SEED: Tag = Tag::new(0x0443, "slots answer seed");
/// Message, offline: a ciphertext of an answer.
pub(super) const TAG_DOWN: Tag = Tag::new(0x0444, "slots answer");

/// One answer ciphertext of the server, for one input.
pub(super) struct Unit {
    /// Digit of the mask, by index.
    pub limb: usize,
    /// Tile of the output, by index.
    pub tile: usize,
    /// The layer, by index.
    pub layer: usize,
    /// The output block of the layer, by index.
    pub output: usize,
    /// Index of the layer's first value of this digit, among all values of the upload.
    offset: usize,
}

impl Unit {
    /// Returns (slot, place among all values of the upload) of every output.
    pub fn places(&self, plan: &SlotPlan, upload: &Upload) -> impl Iterator<Item = (usize, usize)> {
        let places = upload.layout.places(&plan.consumers()[self.layer], self.tile, self.output);
        let offset = self.offset;
        places.into_iter().map(move |(slot, index)| (slot, offset + index))
    }
}

/// All answers of an upload for one input: digit by digit, tile by tile, layer by layer.
pub(super) fn units(plan: &SlotPlan, upload: &Upload) -> Vec<Unit> {
    let layout = &upload.layout;
    let mut units = Vec::new();
    for limb in 0..upload.limbs as usize {
        for tile in 0..layout.tiles() {
            let mut first = 0;
            for &layer in &upload.members {
                let c = &plan.consumers()[layer];
                let offset = first + limb * c.conv.out_len();
                first += upload.limbs as usize * c.conv.out_len();
                if layout.has_outputs(c, tile) {
                    let outputs = 0..layout.out_blocks(c);
                    units.extend(outputs.map(|output| Unit { limb, tile, layer, output, offset }));
                }
            }
        }
    }
    units
}

/// Number of values of all layers of an upload for one input, each counted once per digit.
pub(super) fn values(plan: &SlotPlan, upload: &Upload) -> usize {
    let outputs = upload.members.iter().map(|&k| plan.consumers()[k].conv.out_len());
    outputs.sum::<usize>() * upload.limbs as usize
}

/// Specifies the lift of all values of an upload from the field to the ring, input by input.
pub(super) fn lift_spec(plan: &SlotPlan, upload: &Upload) -> LiftSpec {
    LiftSpec { n: plan.batch * values(plan, upload), prime: upload.prime, width: upload.ring_bits }
}

/// Combines the digits of all layers of an upload into a party's shares, each in its layer's ring,
/// input by input.
pub(super) fn combine_digits(plan: &SlotPlan, upload: &Upload, lifted: &[u64], shares: &mut [Vec<u64>]) {
    lifted
        .chunks(values(plan, upload))
        .for_each(|input_lifted| combine_digits_of_input(plan, upload, input_lifted, shares));
}

/// As [`combine_digits`], for one input.
fn combine_digits_of_input(plan: &SlotPlan, upload: &Upload, lifted: &[u64], shares: &mut [Vec<u64>]) {
    let mut rest = lifted;
    for &k in &upload.members {
        let c = &plan.consumers()[k];
        let mut share = vec![0u64; c.conv.out_len()];
        for limb in 0..upload.limbs {
            let (digit, further) = rest.split_at(share.len());
            let shift = limb * upload.limb_bits;
            share.iter_mut().zip(digit).for_each(|(s, d)| *s = s.wrapping_add(d << shift));
            rest = further;
        }
        share.iter_mut().for_each(|s| *s &= (1 << c.ring_bits) - 1);
        shares[k].extend(share);
    }
}

pub(super) fn keys(plans: &[&SlotPlan]) -> BTreeSet<Turn> {
    plans.iter().flat_map(|plan| plan.keys()).collect()
}
