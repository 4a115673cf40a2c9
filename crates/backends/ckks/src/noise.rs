//! Error estimates: deviations of each step by the library's model (`docs/notes/ckks.md`), and of the result
//! by runs in the clear with such errors. Errors of neighbours have the same sources, so a formula for
//! independent errors would be wrong.

use tacit_graph::Model;
use tacit_graph::rng::SplitMix;
use tacit_he::ckks::{Bootstrapper, Context, Scale, digits_deviation, public_deviation, rounding_deviation};

use super::lanes::to_doubles;
use super::layout::{Layout, moves};
use super::program::{Program, Step};

/// Calibration samples, and draws of errors on each.
const MAX_SAMPLES: usize = 4;
const DRAWS_PER_SAMPLE: u64 = 4;
/// Deviation of a coefficient of a fresh error, with the rounding of the encoding.
const FRESH_DEVIATION: f64 = 3.26;
/// Least bits of rounded diagonals.
const DIAGONAL_BITS: i32 = 34;

/// Level and scale of a vector's ciphertext.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Level before a bootstrap.
    pub made_level: usize,
    pub scale: Scale,
    pub boots: bool,
    /// Level at which it is read.
    pub level: usize,
}

/// Deviation of a slot whose coefficients are off by `deviation`.
fn slot_deviation(context: &Context, deviation: f64, scale: f64) -> f64 {
    deviation * (context.degree() as f64).sqrt() / scale
}

/// Deviation of a coefficient by one key switch, without the rounding of the division by special primes.
fn switch_deviation(context: &Context, level: usize) -> f64 {
    let (parameters, alpha) = (context.parameters(), context.parameters().alpha(level));
    let digits: Vec<f64> = parameters.primes()[..level].chunks(alpha).map(bits).collect();
    digits_deviation(context.degree(), &digits, bits(&parameters.special_primes()[..alpha]))
}

fn bits(primes: &[u64]) -> f64 {
    primes.iter().map(|&p| (p as f64).log2()).sum()
}

/// The deviation that the step of vector `id` adds to its slots.
pub(super) fn step_deviation(
    program: &Program,
    places: &[Place],
    layouts: &[Layout],
    context: &Context,
    bootstrapper: Option<&Bootstrapper>,
    id: usize,
) -> f64 {
    let root = (context.degree() as f64).sqrt();
    let (vector, place) = (&program.vectors[id], &places[id]);
    let rounding = slot_deviation(context, rounding_deviation(context.degree()), place.scale.to_f64());
    let deviation = match &vector.step {
        Step::Input => slot_deviation(context, FRESH_DEVIATION, place.scale.to_f64()),
        Step::Linear { parts, .. } => parts.iter().fold(rounding, |sum, (source, matrix)| {
            let rows = matrix.rows() as f64;
            let switched = slot_deviation(
                context,
                switch_deviation(context, place.made_level + 1),
                places[*source].scale.to_f64(),
            );
            let size = tacit_floats::larger(program.vectors[*source].largest, 1.0);
            let rounded = (matrix.entries() as f64 / rows / 12.0).sqrt() * size * root * 2f64.powi(-DIAGONAL_BITS);
            let part_deviation = sum.hypot(switched * (matrix.squares() / rows).sqrt()).hypot(rounded);
            if moves(matrix, &layouts[*source], &layouts[id]).folds.is_empty() {
                return part_deviation;
            }
            // Each fold switches keys once, and the folds together add up the error of so many slots.
            let folded = rounding.hypot(slot_deviation(
                context,
                switch_deviation(context, place.made_level),
                place.scale.to_f64(),
            ));
            part_deviation.hypot(folded * (layouts[*source].period as f64 / layouts[id].period as f64).sqrt())
        }),
        // Each power is rounded, and so is each product of powers.
        Step::Polynomial { polynomial, .. } => rounding * (1.0 + 2.0 * (polynomial.degree() as f64).sqrt()),
        Step::Square { .. } | Step::Product { .. } => rounding,
        Step::Quadratic { .. } => 2.0 * rounding,
    };
    // The answer is re-encrypted.
    let anew = if id + 1 == places.len() { public_deviation(context.degree()) } else { 0.0 };
    let deviation = deviation.hypot(slot_deviation(context, anew, place.scale.to_f64()));
    match bootstrapper.filter(|_| place.boots) {
        Some(boot) => deviation.hypot(boot.noise()).hypot(boot.approximation() / 3.0),
        None => deviation,
    }
}

pub(super) fn run_with_errors(program: &Program, deviations: &[f64], input: &[f32], rng: &mut SplitMix) -> Vec<f64> {
    program.run(to_doubles(input), |id, slots: &mut Vec<f64>| {
        slots.iter_mut().for_each(|v| *v += rng.normal() * deviations[id])
    })
}

/// Root mean square error of the result's slots, over draws on calibration samples.
pub(super) fn result_deviation(program: &Program, deviations: &[f64], model: &Model) -> f64 {
    let samples = &model.calibration.samples[..MAX_SAMPLES.min(model.calibration.samples.len())];
    let (mut sum, mut count) = (0.0, 0usize);
    for sample in samples {
        let exact = program.run(to_doubles(sample), |_, _: &mut Vec<f64>| {});
        for draw in 0..DRAWS_PER_SAMPLE {
            let result = run_with_errors(program, deviations, sample, &mut SplitMix::new(draw));
            let unit = &program.output().scale;
            sum += result.iter().zip(&exact).zip(unit).map(|((a, b), unit)| ((a - b) / unit).powi(2)).sum::<f64>();
            count += exact.len();
        }
    }
    (sum / count.max(1) as f64).sqrt()
}
