//! Functions as pieces of lines, for numbers that have more bits than the index of a table.
//!
//! With s low bits a piece is `2^s` numbers long, of which each is computed by its own line or by that of
//! the piece above: so a line is fitted to its piece and the one below. Where the function curves by c, the
//! error of pieces of length d is `c d^2 / 4`, that of constants over them would be `d / 2` times the
//! steepest slope.
//!
//! A number has so many fraction bits that rounding it costs a quarter of a unit of the result (if its own
//! scale allows), an entry two more than the result, a slope so many that its rounding costs a quarter of a
//! unit at the end of a piece. The result then has `s + 1` fraction bits more than asked for, and is
//! truncated as the result of a linear layer is.
//!
//! What lies between ReLU and another function has a kink at zero, which no line follows: there the
//! magnitude is looked up, or what lies below zero, which are never below the first piece.

use tacit_graph::Function;

use super::integers::quantise;
use super::tabulated::{Argument, Scales, Tabulated, cut, exceed};
use crate::ring::{Lines, Table};

/// Places in a piece at which it is held against the function.
const PLACES: i64 = 32;
/// Widest number, and most fraction bits of a result.
const MOST_BITS: [i32; 2] = [30, 40];

/// The fewest pieces of lines that are as exact as the results' scale, or as many as an index has places.
/// None if numbers have no more bits than an index.
pub(super) fn at(function: Function, scales: &Scales, half_span: i32, coarsest: i32) -> Option<Tabulated> {
    let function = Curve::of(function);
    let span = half_span + i32::from(!function.starts_at_zero());
    let finest = (scales.finest as i32).min(MOST_BITS[0] - span);
    let steep = steepest(&function, scales, span);
    let wanted = (steep * f64::from(scales.frac_bits).exp2() * 2.0).max(1.0).log2().ceil() as i32;
    let frac = wanted.clamp(coarsest.min(finest), finest);
    let mut best: Option<(f64, Tabulated)> = None;
    for index in 3..=scales.most_bits as i32 {
        let low = span + frac - index;
        if low < 1 || scales.frac_bits as i32 + low + 1 > MOST_BITS[1] {
            continue;
        }
        let (error, made) = with(&function, scales, (index as u32, low as u32), frac as u32);
        if error <= 1.0 {
            return Some(made);
        }
        if best.as_ref().is_none_or(|(least, _)| error < *least) {
            best = Some((error, made));
        }
    }
    best.map(|(_, made)| made)
}

/// A function of what is looked up.
struct Curve {
    function: Function,
    of: Argument,
}

impl Curve {
    fn of(function: Function) -> Self {
        let of = match function {
            Function::EluGap => Argument::Below,
            _ if function.is_gap() => Argument::Magnitude,
            _ => Argument::Itself,
        };
        Self { function, of }
    }

    /// Whether nothing below zero is looked up.
    fn starts_at_zero(&self) -> bool {
        self.function.is_positive() || self.of != Argument::Itself
    }

    /// Its value, cut where its results are.
    fn value(&self, scales: &Scales) -> impl Fn(f64) -> f64 + use<> {
        let (value, sign) = (cut(self.function, scales), if self.of == Argument::Itself { 1.0 } else { -1.0 });
        // An even function may as well be asked below zero.
        move |x| value(sign * x)
    }
}

/// The steepest slope over a span of `2^span`, about.
fn steepest(function: &Curve, scales: &Scales, span: i32) -> f64 {
    let (value, step) = (function.value(scales), f64::from(span - 12).exp2());
    let first = if function.starts_at_zero() { 0 } else { -2048 };
    let slope = |i: i32| (value(f64::from(i + 1) * step) - value(f64::from(i) * step)).abs() / step;
    (first..first + 4096).map(slope).fold(0.0, tacit_floats::larger)
}

/// Pieces of `2^low` numbers, chosen by an index of so many bits, and their error in units of the result's
/// scale.
fn with(function: &Curve, scales: &Scales, (index, low): (u32, u32), frac: u32) -> (f64, Tabulated) {
    let half = 1i64 << (index + low - 1);
    let centre = if function.starts_at_zero() { half } else { 0 };
    let (unit, value) = ((-f64::from(frac)).exp2(), function.value(scales));
    let least = if function.starts_at_zero() { 0.0 } else { f64::NEG_INFINITY };
    let frac_bits = scales.frac_bits + low + 1;
    let slope_unit = (f64::from(frac_bits) - f64::from(frac)).exp2();
    let entry_unit = f64::from(scales.frac_bits + 2).exp2();
    let spacing = f64::from(low).exp2() / PLACES as f64;
    let count = 1i64 << index;
    let (mut entries, mut slopes) = (vec![0; count as usize], vec![0; count as usize]);
    let mut error = 0f64;
    for piece in -count / 2..count / 2 {
        let at = |place: i64| (((piece << low) + centre) as f64 + place as f64 * spacing) * unit;
        let first = (-PLACES..PLACES).find(|&place| at(place) >= least).unwrap_or(0);
        // The topmost is kept free.
        let last = if piece == count / 2 - 1 { 0 } else { PLACES };
        let length = at(1) - at(0);
        let slope = (value(at(last)) - value(at(first.min(last - 1)))) / ((last - first.min(last - 1)) as f64 * length);
        let slope = (slope * slope_unit).round();
        let line = |place: i64| slope / slope_unit * place as f64 * length;
        let gaps = (first..=last).map(|place| value(at(place)) - line(place));
        let [low_gap, high_gap] = gaps.fold([f64::MAX, f64::MIN], |[a, b], gap| [a.min(gap), b.max(gap)]);
        let entry = quantise((low_gap + high_gap) / 2.0, scales.frac_bits + 2);
        let place = (piece & (count - 1)) as usize;
        (entries[place], slopes[place]) = (entry, slope as i64);
        let entry = entry as f64 / entry_unit;
        // A number stands for those that round to it: half a unit more to either side.
        for number in first..=last {
            for end in [-0.5, 0.5].map(|way| (at(number) + way * unit).max(least)) {
                error = error.max((value(end) - entry - line(number)).abs());
            }
        }
    }
    // Index 0 is the middle of the ring.
    let top = half - (1 << low) + centre;
    let clipped = function.function.is_positive() || exceed(scales, frac, top);
    let stated = (error * f64::from(frac_bits).exp2()).ceil() as u32;
    let lines = Some(Lines { low, shift: low - 1, slopes });
    let table = Table { function: function.function, entries, lines, frac_bits, error: stated.max(1) };
    let made = Tabulated { table, frac, centre, clipped, of: function.of };
    (error * f64::from(scales.frac_bits).exp2(), made)
}
