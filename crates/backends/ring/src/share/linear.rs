//! The server's part of a linear layer.

use tacit_arith::ring::{ConvSpec, conv2d};

use crate::LayerWeights;
use crate::fixed::ring_mask;
use tacit_backend_api::{BackendError, Result};

/// Readers check weights and material against the plan.
const NO_WEIGHTS: BackendError = BackendError::Misuse("the weights belong to another model");

/// Computes `W u + bias + addend` in the ring: the online half of a linear layer for one or more inputs,
/// which needs only the server's share `u`.
pub fn linear_online(conv: &ConvSpec, layer: &LayerWeights, u: &[u64], addend: &[u64], width: u32) -> Result<Vec<u64>> {
    let mut out = Vec::with_capacity(addend.len());
    for u in u.chunks(conv.in_len()) {
        out.extend(conv2d(conv, &layer.weights, u, width).map_err(|_| NO_WEIGHTS)?);
    }
    if layer.bias.len() != conv.out_ch {
        return Err(NO_WEIGHTS);
    }
    let (per_channel, mask) = (conv.out_len() / conv.out_ch, ring_mask(width));
    let channels = out.chunks_mut(per_channel).zip(addend.chunks(per_channel));
    for ((out, addend), bias) in channels.zip(layer.bias.iter().cycle()) {
        for (y, s) in out.iter_mut().zip(addend) {
            *y = y.wrapping_add(*bias as u64).wrapping_add(*s) & mask;
        }
    }
    Ok(out)
}
