//! The polynomials of EvalMod: a wave that is exact at integers, and an arcsine.
//!
//! The polynomial interpolates `cos(2 pi (x - 1/4) / 2^r)` at all integers of the range ([HK20]),
//! near which arguments lie. The error at distance d of an integer is d times a product that is
//! smallest in the middle, where nearly all values are. r doublings turn the cosine into `sin(2 pi
//! x)`.
//!
//! The doublings undo the quarter of a turn: `sin(2 pi (x - 1/4) / 2^r)`. A cosine has its extremes
//! at the values that occur most, where it is a function of squares alone, so an error of a square
//! shows most; a sine is straight there.

use super::super::double::Double;

/// Chebyshev coefficients, for `y = (x - 1/4) / range`, of the polynomial of degree `2 range - 2`
/// through `sin(2 pi (x - 1/4) / 2^doublings)` at the integers x between `-range` and `range`. At
/// least 3 doublings.
pub(super) fn wave(range: u32, doublings: u32) -> Vec<f64> {
    let quarter = number(0.25);
    let nodes: Vec<Double> = (1 - i64::from(range)..i64::from(range)).map(|x| number(x as f64) - quarter).collect();
    let angle = number(2.0) * Double::PI * Double::power_of_two(-(doublings as i32));
    // Newton's form, in `x - 1/4`.
    let quarter_turn = Double::PI * Double::power_of_two(-1);
    let mut divided: Vec<Double> = nodes.iter().map(|&x| (x * angle - quarter_turn).cos()).collect();
    for order in 1..nodes.len() {
        for i in (order..nodes.len()).rev() {
            divided[i] = (divided[i] - divided[i - 1]) / number(order as f64);
        }
    }
    let value =
        |x: Double| divided.iter().zip(&nodes).rev().fold(Double::ZERO, |sum, (&d, &node)| sum * (x - node) + d);
    // Converts to the Chebyshev basis by the values at the Chebyshev points.
    let n = nodes.len();
    let points: Vec<Double> = (0..n).map(|k| value(circle(2 * k + 1, n) * number(f64::from(range)))).collect();
    let coefficients = (0..n).map(|m| {
        let sum = points.iter().enumerate().fold(Double::ZERO, |sum, (k, &p)| sum + p * circle(m * (2 * k + 1), n));
        (sum * number(if m == 0 { 1.0 } else { 2.0 }) / number(n as f64)).to_f64()
    });
    coefficients.collect()
}

fn number(x: f64) -> Double {
    Double::from(x)
}

/// `cos(pi k / 2n)`.
fn circle(k: usize, n: usize) -> Double {
    (Double::PI * number((k % (4 * n)) as f64) / number(2.0 * n as f64)).cos()
}

/// Coefficients of v and `v^3` that bring `v = sin(angle z)` back to z for `|z| <= 1`: the arcsine,
/// with its terms of degree 5 and 7 economised by Chebyshev polynomials of `v / sin(angle)`. The
/// error is at most `3/640 angle^4`, a sixteenth of that without these terms.
pub(super) fn arcsine(angle: f64) -> [f64; 2] {
    let square = angle.sin().powi(2);
    let (fifth, seventh) = (3.0 / 40.0, 15.0 / 336.0);
    // t^5 = (20 t^3 - 5 t + T_5) / 16 and t^7 = (84 t^3 - 28 t) / 64 + multiples of T_5 and T_7.
    let linear = 1.0 - fifth * 5.0 / 16.0 * square.powi(2) - seventh * 28.0 / 64.0 * square.powi(3);
    let cubic = 1.0 / 6.0 + fifth * 20.0 / 16.0 * square + seventh * 84.0 / 64.0 * square.powi(2);
    [linear / angle, cubic / angle]
}

#[cfg(test)]
mod tests {
    use super::super::super::eval::{Basis, Polynomial};
    use super::*;
    use std::f64::consts::PI;

    /// After three doublings, to far below the noise.
    #[test]
    fn wave_is_the_sine_near_integers() {
        let p = Polynomial::new(Basis::Chebyshev, &wave(16, 3)).unwrap();
        assert_eq!((p.degree(), p.depth()), (30, 5));
        for integer in -14..=14i32 {
            for offset in [-1.0, -0.3, 0.0, 0.7, 1.0] {
                let offset = offset / 256.0;
                let x = f64::from(integer) + offset;
                let mut c = p.at((x - 0.25) / 16.0);
                (0..3).for_each(|_| c = 2.0 * c * c - 1.0);
                let error = (c - (2.0 * PI * offset).sin()).abs();
                let bound = if integer.abs() <= 8 { 2f64.powi(-37) } else { 2f64.powi(-16) };
                assert!(error < bound, "at {x}: 2^{}", error.log2());
            }
        }
    }

    #[test]
    fn arcsine_error_is_as_stated() {
        for bits in [6, 7, 8] {
            let angle = 2.0 * PI / 2f64.powi(bits);
            let [linear, cubic] = arcsine(angle);
            let error = |i: i32| {
                let z = f64::from(i) / 1000.0;
                let v = (angle * z).sin();
                (linear * v + cubic * v.powi(3) - z).abs()
            };
            let worst = (-1000..=1000).map(error).fold(0.0, tacit_floats::larger);
            assert!((0.97..1.03).contains(&(worst / (3.0 / 640.0 * angle.powi(4)))), "ratio 2^{bits}: {worst}");
        }
    }
}
