//! Fraction bits of tensors and of weights.

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scheme {
    /// One scale for all tensors and one for all weights.
    Fixed { frac: u32, weight: u32 },
    /// Relative precisions; see the module `lowering`.
    Relative { activations: i32, weights: i32, most: u32 },
}

impl Scheme {
    pub(super) fn fixed(frac: u32, weight: u32) -> Self {
        Self::Fixed { frac, weight }
    }

    /// The fraction bits of a tensor.
    pub(super) fn tensor(&self, mean_square: f64) -> u32 {
        match *self {
            Self::Fixed { frac, .. } => frac,
            Self::Relative { activations, most, .. } => {
                let size = if mean_square > 0.0 { 0.5 * mean_square.log2() } else { 0.0 };
                (f64::from(activations) - size).round().clamp(0.0, f64::from(most)) as u32
            }
        }
    }

    /// Fraction bits of a layer's weights. `gain` is the ratio of the layer's input to its output in size,
    /// fan-in included. Weights of magnitude `largest` must fit.
    pub(super) fn layer(&self, gain: f64, largest: f64) -> u32 {
        let frac_bits = match *self {
            Self::Fixed { weight, .. } => weight,
            Self::Relative { weights, .. } => (f64::from(weights) + gain.log2()).round().clamp(0.0, 24.0) as u32,
        };
        let room = if largest > 0.0 { 29.0 - largest.log2().ceil() } else { 29.0 };
        frac_bits.min(room.clamp(0.0, 47.0) as u32)
    }
}
