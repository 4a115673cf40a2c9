//! Tables of functions: the numbers that an index stands for, and the resolution of the index.
//!
//! An index of k bits at f fraction bits stands for the numbers that round to it. The indices span `2^(k-f)`
//! around zero, or from zero for functions of positive numbers: calibration with its guard, but at most the
//! part where the function still changes. Inputs outside are clipped. The index is as fine as the result's
//! scale requires: the error is one unit of the result, if the widest table and the input's own scale allow.
//! Where one table is too wide, pieces of lines ([`super::spline`]) take its place.

use tacit_graph::Function;

use super::integers::quantise;
use super::spline;
use super::tabulated::{Argument, Scales, Tabulated, cut, exceed};
use crate::Table;

/// The coarsest table that is as exact as its results' scale, or the finest possible table.
///
/// # Errors
/// A sentence, if the input is too large for any table.
pub(super) fn tabulate(function: Function, scales: &Scales) -> Result<Tabulated, String> {
    let [likely_size, extreme] = scales.input;
    let reach = match function.saturates_at() {
        Some(end) => likely_size.max(extreme).min(end),
        None => likely_size,
    };
    let half_span = if reach > 0.0 { reach.log2().ceil().max(-40.0) as i32 } else { 0 };
    let span = if function.is_positive() { half_span } else { half_span + 1 };
    let most_bits = scales.most_bits as i32;
    // An index has at least two bits.
    let (coarsest, finest) = ((2 - span).max(0), (most_bits - span).min(scales.finest as i32));
    if finest < coarsest {
        return Err(format!(
            "values of up to {likely_size:.3} need a table of more than {most_bits} bits (`table_bits`), or more fraction bits than they have"
        ));
    }
    let mut frac = coarsest;
    let finest_table = loop {
        let candidate = build_table(function, scales, (span + frac) as u32, frac as u32);
        if candidate.table.error <= 1 {
            return Ok(candidate);
        }
        if frac == finest {
            break candidate;
        }
        frac += 1;
    };
    let lines = spline::fit_lines(function, scales, half_span, coarsest);
    Ok(lines.filter(|lines| error_units(lines, scales) < error_units(&finest_table, scales)).unwrap_or(finest_table))
}

fn error_units(tabulated: &Tabulated, scales: &Scales) -> f64 {
    f64::from(tabulated.table.error) * (f64::from(scales.frac_bits) - f64::from(tabulated.table.frac_bits)).exp2()
}

fn build_table(function: Function, scales: &Scales, bits: u32, frac: u32) -> Tabulated {
    let half = 1i64 << (bits - 1);
    let centre = if function.is_positive() { half } else { 0 };
    let (unit, value) = ((-f64::from(frac)).exp2(), cut(function, scales));
    let result_unit = f64::from(scales.frac_bits).exp2();
    let (mut entries, mut error) = (vec![0; 1 << bits], 0f64);
    // Every function here rises or falls between two indices: its ends there are the farthest.
    let end = |x: f64| value(if function.is_positive() { x.max(0.0) } else { x } * unit) * result_unit;
    let mut before = end((centre - half) as f64 - 0.5);
    for index in -half..half {
        let x = (index + centre) as f64;
        let entry = quantise(value(x * unit), scales.frac_bits);
        entries[(index & (2 * half - 1)) as usize] = entry;
        let after = end(x + 0.5);
        error = error.max((before - entry as f64).abs()).max((after - entry as f64).abs());
        before = after;
    }
    // A number that rounds below zero must not wrap to the largest number.
    let clipped = function.is_positive() || exceed(scales, frac, half);
    // A cast saturates. Rounding accounts for half a unit.
    let error = (error - 0.5).max(0.0).ceil() as u32;
    Tabulated {
        table: Table { function, entries, lines: None, frac_bits: scales.frac_bits, error: error.max(1) },
        frac,
        centre,
        clipped,
        argument: Argument::Itself,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scales(input: [f64; 2], result: f64) -> Scales {
        Scales { input, finest: 14, result, frac_bits: 8, most_bits: 12 }
    }

    #[test]
    fn tables_keep_stated_error() {
        for (function, input, result, clips) in [
            (Function::Sigmoid, [3.0, 5.0], 1.0, false),
            (Function::Sigmoid, [30.0, 50.0], 1.0, true),
            (Function::Tanh, [1.5, 1.8], 1.0, false),
            (Function::GeluResidual, [9.0, 20.0], 0.2, true),
            (Function::Exp, [2.0, 3.0], 8.0, true),
            (Function::Reciprocal, [4.0, 5.0], 16.0, true),
            (Function::Sqrt, [4.0, 5.0], 3.0, true),
            (Function::Rsqrt, [4.0, 5.0], 8.0, true),
        ] {
            let Tabulated { table, frac, centre, clipped, argument } =
                tabulate(function, &scales(input, result)).unwrap();
            let (half, unit) = (1i64 << (table.bits() - 1), f64::from(table.frac_bits).exp2());
            let top = half - 1 - table.reserved();
            assert!(clipped || input[1] * f64::from(frac).exp2() < top as f64 + 1.0, "{function:?}");
            assert_eq!(clipped, clips, "{function:?}");
            let mut worst = 0f64;
            for step in -4000..4000i64 {
                // Inputs within the table, also between indices.
                let x = ((step as f64 / 4000.0) * (half as f64 - 1.0)).min(top as f64) + centre as f64;
                if (function.is_positive() || argument != Argument::Itself) && x < 0.0 {
                    continue;
                }
                let sign = if argument == Argument::Itself { 1.0 } else { -1.0 };
                let expected = function.value(sign * x * (-f64::from(frac)).exp2()).clamp(-result, result);
                for mask in [0, u64::MAX, (step as u64).wrapping_mul(0x9e37_79b9)] {
                    let result_value = table.masked_value(x.round() as i64 - centre, mask) as f64 / unit;
                    worst = worst.max((expected - result_value).abs() * unit);
                }
            }
            assert!(worst <= f64::from(table.error) + 0.51, "{function:?}: {worst} units, {} stated", table.error);
        }
        // A function that settles slowly gets no larger a table than it can use.
        assert!(tabulate(Function::Sigmoid, &scales([3.0, 3.0], 1.0)).unwrap().table.bits() <= 10);
    }

    #[test]
    fn lines_replace_wide_tables() {
        for (function, input, frac_bits) in [
            (Function::Sigmoid, [6.0, 9.0], 12),
            (Function::Tanh, [3.0, 3.5], 13),
            (Function::GeluResidual, [9.0, 20.0], 14),
            (Function::Exp, [2.0, 2.5], 10),
            (Function::Sqrt, [4.0, 5.0], 6),
        ] {
            let scales = Scales { input, finest: 20, result: 8.0, frac_bits, most_bits: 9 };
            let tabulated = tabulate(function, &scales).unwrap();
            let lines = tabulated.table.lines.as_ref().unwrap_or_else(|| panic!("{function:?}: a table"));
            assert!(tabulated.table.index_bits() <= 9, "{function:?}");
            assert!(tabulated.table.frac_bits == frac_bits + lines.low + 1, "{function:?}");
            let units = f64::from(tabulated.table.error) * (-f64::from(lines.low + 1)).exp2();
            // Constants would have a far larger error; the square root is steep at zero.
            assert!(units <= if function == Function::Sqrt { 6.0 } else { 1.0 }, "{function:?}: {units}");
            let constants =
                build_table(function, &scales, 9, tabulated.frac.min(9 - (tabulated.table.bits() - tabulated.frac)));
            assert!(f64::from(constants.table.error) > 2.0 * units, "{function:?}: {}, {units}", constants.table.error);
            // The distance between neighbouring lines is part of the error.
            assert!(tabulated.table.line_gap() <= 2 * u64::from(tabulated.table.error), "{function:?}");
        }
    }

    #[test]
    fn refuses_inputs_too_large_for_tables() {
        let message = tabulate(Function::Exp, &scales([1e5, 1e5], 1.0)).err().unwrap();
        assert!(message.contains("table_bits"), "{message}");
        assert!(tabulate(Function::Sigmoid, &scales([1e5, 1e5], 1.0)).is_ok());
        assert!(tabulate(Function::Sqrt, &scales([0.0, 0.0], 0.0)).is_ok());
    }
}
