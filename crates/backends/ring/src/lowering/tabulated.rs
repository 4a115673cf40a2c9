//! What a look-up requires, and its result: a table, or pieces of lines.

use tacit_graph::Function;

use crate::Table;

/// Ranges and scales that a table is made for.
pub(super) struct Scales {
    /// Largest likely magnitude of the input, and largest magnitude on extreme inputs.
    pub input: [f64; 2],
    /// Most fraction bits of the input.
    pub finest: u32,
    /// Largest likely magnitude of a result; larger ones are cut.
    pub result: f64,
    /// Fraction bits of the results.
    pub frac_bits: u32,
    /// Bits of the widest index.
    pub most_bits: u32,
}

/// A table and the meaning of its index.
pub(super) struct Tabulated {
    pub table: Table,
    /// Fraction bits of the index.
    pub frac: u32,
    /// The number that index 0 stands for, in the index's scale.
    pub centre: i64,
    /// Whether the input may lie outside the table and is clipped.
    pub clipped: bool,
    /// The part of the input that is looked up.
    pub argument: Argument,
}

/// The part of a number that is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Argument {
    Itself,
    Magnitude,
    /// The distance of the number below zero, or 0.
    Below,
}

/// The function, cut to the range of its results.
pub(super) fn cut(function: Function, scales: &Scales) -> impl Fn(f64) -> f64 + use<> {
    // Tables are public: where they are cut must reveal only a power of two about the calibration data.
    let result_limit = if scales.result > 0.0 { scales.result.log2().ceil().exp2() } else { 1.0 };
    move |x| {
        let value = function.value(x);
        if value.is_nan() { result_limit } else { value.clamp(-result_limit, result_limit) }
    }
}

/// Whether numbers may lie at least `top` above that of index 0, in units of `frac` fraction bits.
pub(super) fn exceed(scales: &Scales, frac: u32, top: i64) -> bool {
    let [likely, extreme] = scales.input.map(|size| size * f64::from(frac).exp2() + 2.0);
    likely.max(extreme) >= top as f64
}
