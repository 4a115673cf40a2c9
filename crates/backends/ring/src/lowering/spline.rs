//! Functions as pieces of lines, for numbers with more bits than the index of a table.
//!
//! With s low bits a piece is `2^s` numbers long. Each number is computed by its own line or by that of the
//! piece above, so a line is fitted to its piece and the one below. If the function curves by c, pieces of
//! length d have the error `c d^2 / 4`; constants over them would have `d / 2` times the steepest slope.
//!
//! Rounding a number costs a quarter of a unit of the result (if its own scale allows). An entry has two more
//! bits than the result. Rounding a slope costs a quarter of a unit at the end of a piece. The result then
//! has `s + 1` more fraction bits than requested, and is truncated like that of a linear layer.
//!
//! The difference between ReLU and another function has a kink at zero, which no line follows. There the
//! table takes the magnitude, or the part below zero; neither is ever below the first piece.

use tacit_graph::{Function, Symmetry};

use super::integers::quantise;
use super::tabulated::{Argument, Scales, Tabulated, cut, exceed};
use crate::{Lines, Table};

/// Places in a piece where its line is compared with the function.
const PLACES_PER_PIECE: i64 = 32;
/// Widest number in bits, and most fraction bits of a result.
const MAX_BITS: [i32; 2] = [30, 40];

/// The fewest pieces that are as exact as the results' scale, or as many as an index allows. `None` if
/// numbers have no more bits than an index.
pub(super) fn fit_lines(function: Function, scales: &Scales, half_span: i32, coarsest: i32) -> Option<Tabulated> {
    let function = Curve::new(function);
    let span = half_span + i32::from(!function.starts_at_zero());
    let finest = (scales.finest as i32).min(MAX_BITS[0] - span);
    let steep = steepest(&function, scales, span);
    let needed_frac = (steep * f64::from(scales.frac_bits).exp2() * 2.0).max(1.0).log2().ceil() as i32;
    let frac = needed_frac.clamp(coarsest.min(finest), finest);
    let mut best: Option<(f64, Tabulated)> = None;
    for index in 3..=scales.most_bits as i32 {
        let low = span + frac - index;
        if low < 1 || scales.frac_bits as i32 + low + 1 > MAX_BITS[1] {
            continue;
        }
        let (error, tabulated) = build_lines(&function, scales, index as u32, low as u32, frac as u32);
        if error <= 1.0 {
            return Some(tabulated);
        }
        if best.as_ref().is_none_or(|(least_error, _)| error < *least_error) {
            best = Some((error, tabulated));
        }
    }
    best.map(|(_, tabulated)| tabulated)
}

/// A function of the looked-up argument.
struct Curve {
    function: Function,
    argument: Argument,
}

impl Curve {
    fn new(function: Function) -> Self {
        let argument = match function.residual_symmetry() {
            Some(Symmetry::ZeroAbove) => Argument::Below,
            Some(Symmetry::Even) => Argument::Magnitude,
            Some(Symmetry::None) | None => Argument::Itself,
        };
        Self { function, argument }
    }

    /// Whether the looked-up argument is never below zero.
    fn starts_at_zero(&self) -> bool {
        self.function.is_positive() || self.argument != Argument::Itself
    }

    fn value(&self, scales: &Scales) -> impl Fn(f64) -> f64 + use<> {
        let (value, sign) = (cut(self.function, scales), if self.argument == Argument::Itself { 1.0 } else { -1.0 });
        // An even function may also be evaluated below zero.
        move |x| value(sign * x)
    }
}

/// Approximately the steepest slope over a span of `2^span`.
fn steepest(function: &Curve, scales: &Scales, span: i32) -> f64 {
    let (value, step) = (function.value(scales), f64::from(span - 12).exp2());
    let start = if function.starts_at_zero() { 0 } else { -2048 };
    let slopes =
        (start..start + 4096).map(|i: i32| (value(f64::from(i + 1) * step) - value(f64::from(i) * step)).abs() / step);
    slopes.fold(0.0, tacit_floats::larger)
}

/// Values of the function at the places of all pieces, and of one more piece below them.
struct Samples {
    /// Places from the first one to the middle of all pieces.
    origin: i64,
    /// The first place inside the function's domain.
    first_place: i64,
    /// Values at each place, and half a number to either side: a number stands for those that round to it.
    values: Vec<Sample>,
    /// Distance from one place to the next.
    length: f64,
}

#[derive(Clone, Copy)]
struct Sample {
    centre: f64,
    below: f64,
    above: f64,
}

impl Samples {
    /// `count` pieces of `2^low` numbers of `frac` fraction bits, half of them below `centre`.
    fn new(function: &Curve, scales: &Scales, count: i64, low: u32, centre: i64, frac: u32) -> Self {
        let (unit, value) = ((-f64::from(frac)).exp2(), function.value(scales));
        let domain_start = if function.starts_at_zero() { 0.0 } else { f64::NEG_INFINITY };
        let spacing = f64::from(low).exp2() / PLACES_PER_PIECE as f64;
        let origin = (count / 2 + 1) * PLACES_PER_PIECE;
        let argument = |place: i64| (centre as f64 + place as f64 * spacing) * unit;
        let places = -origin..(count / 2) * PLACES_PER_PIECE + 1;
        let first_place = places.clone().find(|&place| argument(place) >= domain_start).unwrap_or(-origin);
        let values = places.map(|place| {
            let x = argument(place);
            let [below, above] = [x - 0.5 * unit, x + 0.5 * unit];
            Sample { centre: value(x), below: value(below.max(domain_start)), above: value(above.max(domain_start)) }
        });
        Self { origin, first_place, values: values.collect(), length: spacing * unit }
    }

    fn get(&self, place: i64) -> Sample {
        self.values[(place + self.origin) as usize]
    }
}

/// Makes pieces of `2^low` numbers, chosen by an index of `index` bits, and returns their error in units of
/// the result's scale.
fn build_lines(function: &Curve, scales: &Scales, index: u32, low: u32, frac: u32) -> (f64, Tabulated) {
    let half = 1i64 << (index + low - 1);
    let centre = if function.starts_at_zero() { half } else { 0 };
    let frac_bits = scales.frac_bits + low + 1;
    let slope_unit = (f64::from(frac_bits) - f64::from(frac)).exp2();
    let entry_unit = f64::from(scales.frac_bits + 2).exp2();
    let count = 1i64 << index;
    let samples = Samples::new(function, scales, count, low, centre, frac);
    let (mut entries, mut slopes) = (vec![0; count as usize], vec![0; count as usize]);
    let mut error = 0f64;
    for piece in -count / 2..count / 2 {
        let of_piece = |place: i64| samples.get(piece * PLACES_PER_PIECE + place);
        let first_place = (samples.first_place - piece * PLACES_PER_PIECE).max(-PLACES_PER_PIECE);
        let first_place = if first_place < PLACES_PER_PIECE { first_place } else { 0 };
        // The topmost piece is reserved.
        let last_place = if piece == count / 2 - 1 { 0 } else { PLACES_PER_PIECE };
        let start = first_place.min(last_place - 1);
        let slope =
            (of_piece(last_place).centre - of_piece(start).centre) / ((last_place - start) as f64 * samples.length);
        let slope = (slope * slope_unit).round();
        let line = |place: i64| slope / slope_unit * place as f64 * samples.length;
        let [mut min_gap, mut max_gap] = [f64::MAX, f64::MIN];
        for place in first_place..last_place + 1 {
            let gap = of_piece(place).centre - line(place);
            (min_gap, max_gap) = (min_gap.min(gap), max_gap.max(gap));
        }
        let entry = quantise((min_gap + max_gap) / 2.0, scales.frac_bits + 2);
        let place = (piece & (count - 1)) as usize;
        (entries[place], slopes[place]) = (entry, slope as i64);
        let entry = entry as f64 / entry_unit;
        for place in first_place..last_place + 1 {
            let (sample, on_line) = (of_piece(place), entry + line(place));
            error = error.max((sample.below - on_line).abs()).max((sample.above - on_line).abs());
        }
    }
    // Index 0 is the middle of the ring.
    let top = half - (1 << low) + centre;
    let clipped = function.function.is_positive() || exceed(scales, frac, top);
    let table_error = (error * f64::from(frac_bits).exp2()).ceil() as u32;
    let lines = Some(Lines { low, shift: low - 1, slopes });
    let table = Table { function: function.function, entries, lines, frac_bits, error: table_error.max(1) };
    let tabulated = Tabulated { table, frac, centre, clipped, argument: function.argument };
    (error * f64::from(scales.frac_bits).exp2(), tabulated)
}
