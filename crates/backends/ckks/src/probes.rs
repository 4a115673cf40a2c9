//! Inputs of the accepted range that calibration lacks: extreme ones, and random ones.

use tacit_graph::Model;
use tacit_graph::import::extreme_inputs;
use tacit_graph::rng::SplitMix;

/// Most multiplications for the inputs of a kind, most extreme inputs, and most random inputs.
const MAX_WORK: u64 = 600_000_000;
const MAX_EXTREMES: usize = 64;
const MAX_DRAWN: usize = 256;

const DRAW_SEED: u64 = 0x1d6e5;

/// How many inputs of a kind are made: 4 to `max`, by the cost of a run.
fn count_inputs(model: &Model, max: usize) -> usize {
    model.graph.runs_within(MAX_WORK).clamp(4, max)
}

pub(super) fn extremes(model: &Model) -> Vec<Vec<f32>> {
    extreme_inputs(&model.graph, model.interface.input.range, count_inputs(model, MAX_EXTREMES))
}

/// Draws inputs from the accepted range, of three kinds in turn: uniform, at its ends, and samples with a
/// third of their values drawn anew.
pub(super) fn draw_random(model: &Model) -> Vec<Vec<f32>> {
    let samples = &model.calibration.samples;
    let mut rng = SplitMix::new(DRAW_SEED);
    let numbers = 0..3 * count_inputs(model, MAX_DRAWN) / 2;
    numbers
        .map(|i| draw_of_kind(i % 3, &samples[(i / 3) % samples.len()], model.interface.input.range.ends(), &mut rng))
        .collect()
}

fn draw_of_kind(kind: usize, sample: &[f32], [low, high]: [f32; 2], rng: &mut SplitMix) -> Vec<f32> {
    let values = sample.iter().map(|v| {
        let uniform = rng.range(low.into(), high.into()) as f32;
        match (kind, rng.next_u64() % 6) {
            (1, k) => {
                if k < 3 {
                    low
                } else {
                    high
                }
            }
            (2, 2..) => v.clamp(low, high),
            _ => uniform.clamp(low, high),
        }
    });
    values.collect()
}
