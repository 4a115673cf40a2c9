//! The encoding of a lowered model.
//!
//! The **public** part is all that a client receives: [`RingSpec`] by `postcard`. The **private** part has
//! for each linear node, in order: the bytes of one weight (1, 2 or 4, the fewest that hold all weights of
//! the layer), the weights, and the bias with 8 bytes each. Integers are signed, little endian and raw, so
//! that reading is one pass. The public part determines their number, which readers compare with the bytes
//! before they allocate memory.

#[cfg(test)]
mod tests;

use zeroize::Zeroizing;

use super::{LayerWeights, RingError, RingGraph, RingSpec, Weights};
use tacit_backend_api::seam::MAX_PUBLIC_BYTES;

/// Encodes the public part.
///
/// # Errors
/// If it would exceed [`MAX_PUBLIC_BYTES`].
pub fn public_bytes(graph: &RingGraph) -> Result<Vec<u8>, RingError> {
    let bytes = postcard::to_stdvec(graph.spec()).expect("plain data with known lengths has an encoding");
    check_public_length(&bytes)?;
    Ok(bytes)
}

/// Decodes a public part from a server.
///
/// # Errors
/// If the bytes are too many, are not a graph, or fail the graph's checks.
pub fn read_public(bytes: &[u8]) -> Result<RingGraph, RingError> {
    check_public_length(bytes)?;
    let (spec, remainder): (RingSpec, _) =
        postcard::take_from_bytes(bytes).map_err(|e| wrong(format!("cannot be decoded: {e}")))?;
    if !remainder.is_empty() {
        return Err(wrong(format!("{} bytes left over", remainder.len())));
    }
    RingGraph::new(spec)
}

fn wrong(what: String) -> RingError {
    RingError::Encoding { part: "public", what }
}

fn check_public_length(bytes: &[u8]) -> Result<(), RingError> {
    let length = bytes.len() as u64;
    if length > MAX_PUBLIC_BYTES {
        return Err(wrong(format!("{length} bytes, the limit is {MAX_PUBLIC_BYTES}")));
    }
    Ok(())
}

/// Encodes the private part: the weights.
pub fn weights_to_bytes(weights: &Weights) -> Zeroizing<Vec<u8>> {
    // Full size from the start: a growing buffer would leave copies behind.
    let mut out = Zeroizing::new(Vec::with_capacity(weights.layers.iter().map(layer_bytes).sum()));
    for layer in &weights.layers {
        let size = weight_size(&layer.weights);
        out.push(size as u8);
        match size {
            1 => out.extend(layer.weights.iter().map(|&w| w as u8)),
            2 => out.extend(layer.weights.iter().flat_map(|&w| (w as i16).to_le_bytes())),
            _ => out.extend(layer.weights.iter().flat_map(|w| w.to_le_bytes())),
        }
        out.extend(layer.bias.iter().flat_map(|b| b.to_le_bytes()));
    }
    out
}

/// Reads a private part for `graph`.
///
/// # Errors
/// If its length is not what the graph needs, or the weights fail [`RingGraph::check_weights`].
pub fn read_weights(bytes: &[u8], graph: &RingGraph) -> Result<Weights, RingError> {
    let mut unread = bytes;
    let mut take = |count: usize| {
        let (weight_bytes, later) = unread.split_at_checked(count).ok_or_else(wrong_length)?;
        unread = later;
        Ok::<_, RingError>(weight_bytes)
    };
    let mut layers = Vec::new();
    for (node, (rows, row_len)) in graph.linear_nodes() {
        let count = rows.checked_mul(row_len).ok_or_else(wrong_length)?;
        let size = usize::from(take(1)?[0]);
        let raw = take(count.checked_mul(size).ok_or_else(wrong_length)?)?;
        let weights = match size {
            1 => raw.iter().map(|&b| i32::from(b as i8)).collect(),
            2 => raw.as_chunks().0.iter().map(|b| i32::from(i16::from_le_bytes(*b))).collect(),
            4 => raw.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect(),
            _ => return Err(RingError::Encoding { part: "private", what: format!("weights of {size} bytes") }),
        };
        let raw = take(rows.checked_mul(8).ok_or_else(wrong_length)?)?;
        let bias = raw.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect();
        layers.push(LayerWeights { node, weights, bias });
    }
    if !unread.is_empty() {
        return Err(wrong_length());
    }
    let weights = Weights { layers };
    graph.check_weights(&weights)?;
    Ok(weights)
}

fn wrong_length() -> RingError {
    RingError::Encoding { part: "private", what: "its length does not fit the graph".into() }
}

fn layer_bytes(layer: &LayerWeights) -> usize {
    1 + weight_size(&layer.weights) * layer.weights.len() + 8 * layer.bias.len()
}

/// Bytes that hold each of the weights.
fn weight_size(weights: &[i32]) -> usize {
    let all_fit = |fits: fn(i32) -> bool| weights.iter().all(|&w| fits(w));
    if all_fit(|w| i8::try_from(w).is_ok()) {
        1
    } else if all_fit(|w| i16::try_from(w).is_ok()) {
        2
    } else {
        4
    }
}
