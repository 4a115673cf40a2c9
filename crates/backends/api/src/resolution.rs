//! Detects inputs that are too small for a model's input steps, so that rounding makes them zero.

use std::fmt;

use serde::Serialize;

/// An input whose values nearly all round to zero.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FaintInput {
    /// Nonzero values that round to zero.
    pub zeroed: usize,
    /// Nonzero values.
    pub of: usize,
    /// The largest magnitude, after the client's normalisation.
    pub largest: f64,
    /// The size of one step, after the client's normalisation.
    pub step: f64,
}

impl FaintInput {
    /// Returns `None` if more than a twentieth of the nonzero values of `input` (what the model computes on)
    /// stay nonzero.
    #[must_use]
    pub fn detect(input: &[f32], step: f64) -> Option<Self> {
        let values = || input.iter().map(|v| f64::from(*v)).filter(|v| *v != 0.0);
        let (zeroed, total) = (values().filter(|v| (v / step).round() == 0.0).count(), values().count());
        let largest = tacit_floats::largest_magnitude(values());
        (total > 0 && 20 * zeroed >= 19 * total).then_some(Self { zeroed, of: total, largest, step })
    }
}

impl fmt::Display for FaintInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zeroed, of, largest, step } = self;
        write!(
            f,
            "the input is below the model's resolution: {zeroed} of its {of} values that are not zero count as zero (the largest is \
             {largest:.3e}, a step {step:.3e}, after normalisation), so the answer is that of an empty input. Is it in the units of \
             the samples that the model was calibrated with? If so, its owner calibrates again with samples like it"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_inputs_that_round_to_zero() {
        let tiny: Vec<f32> = (0..100).map(|i| i as f32 * 1e-6).collect();
        let faint = FaintInput::detect(&tiny, 1.0 / 64.0).unwrap();
        assert_eq!((faint.zeroed, faint.of, faint.step), (99, 99, 1.0 / 64.0));
        assert!(faint.to_string().contains("99 of its 99 values"));
        // In finer steps it is a normal input. So are a dark picture and an empty one.
        assert_eq!(FaintInput::detect(&tiny, 1e-6), None);
        let mut dark = vec![0.0; 95];
        dark.extend([1.0; 5]);
        assert_eq!([&dark[..], &[0.0; 9], &[]].map(|input| FaintInput::detect(input, 0.25)), [None; 3]);
        // One remaining value in twenty is too few.
        let mut spark = vec![1e-3; 19];
        spark.push(5.0);
        assert_eq!(FaintInput::detect(&spark, 0.25).map(|f| (f.zeroed, f.of, f.largest)), Some((19, 20, 5.0)));
    }
}
