//! What a function is looked up for, and what comes of it: a table, or pieces of lines.

use tacit_graph::Function;

use crate::ring::Table;

/// What a table is made for.
pub(super) struct Scales {
    /// Largest magnitude of the input that is likely, and on extreme inputs.
    pub input: [f64; 2],
    /// Most fraction bits that the input has.
    pub finest: u32,
    /// Largest magnitude of a result that is likely: larger ones are cut.
    pub result: f64,
    /// Fraction bits of the results.
    pub frac_bits: u32,
    /// Bits of the widest index.
    pub most_bits: u32,
}

/// A table and what its index stands for.
pub(super) struct Tabulated {
    pub table: Table,
    /// Fraction bits of the index.
    pub frac: u32,
    /// The number that index 0 stands for, at that scale.
    pub centre: i64,
    /// The input may lie outside.
    pub clipped: bool,
    /// What of the input is looked up.
    pub of: Argument,
}

/// What of a number is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Argument {
    /// The number.
    Itself,
    /// Its magnitude.
    Magnitude,
    /// How far it lies below zero, or 0.
    Below,
}

/// The function, cut where its results are.
pub(super) fn cut(function: Function, scales: &Scales) -> impl Fn(f64) -> f64 + use<> {
    // Tables are public: where they are cut must say no more of the calibration data than a power of two.
    let most = if scales.result > 0.0 { scales.result.log2().ceil().exp2() } else { 1.0 };
    move |x| {
        let value = function.value(x);
        if value.is_nan() { most } else { value.clamp(-most, most) }
    }
}

/// Whether numbers may lie `top` or more above what index 0 stands for, in units of `frac` fraction bits.
pub(super) fn exceed(scales: &Scales, frac: u32, top: i64) -> bool {
    let [likely, extreme] = scales.input.map(|size| size * f64::from(frac).exp2() + 2.0);
    likely.max(extreme) >= top as f64
}
