//! Inputs that the accepted range holds and calibration does not: extreme ones, and such as are drawn from
//! it.

use tacit_graph::Model;
use tacit_graph::import::extreme_inputs;
use tacit_graph::rng::SplitMix;

/// Multiplications that all made-up inputs of a kind may take, and most of them.
const WORK: u64 = 600_000_000;
const MOST: usize = 64;

/// Seeds of what ranges are taken from, and of what judges them.
const DOMAINS: u64 = 0xd0_3a15;
const JUDGES: u64 = 0x1d6e5;

fn count(model: &Model) -> usize {
    model.graph.runs_within(WORK).clamp(4, MOST)
}

/// What polynomials' domains are taken from, beside calibration samples.
pub(super) fn for_domains(model: &Model) -> Vec<Vec<f32>> {
    let mut all = extremes(model);
    all.extend(drawn(model, DOMAINS));
    all
}

/// Extreme inputs.
pub(super) fn extremes(model: &Model) -> Vec<Vec<f32>> {
    extreme_inputs(&model.graph, model.interface.input.range, count(model))
}

/// Inputs drawn from the accepted range to judge by: no domain was taken from these.
pub(super) fn judging(model: &Model) -> Vec<Vec<f32>> {
    drawn(model, JUDGES)
}

/// Of three kinds in turn: uniform in the range, at its ends, and samples with a third of their values drawn
/// anew.
fn drawn(model: &Model, seed: u64) -> Vec<Vec<f32>> {
    let [low, high] = model.interface.input.range;
    let samples = &model.calibration.samples;
    let mut rng = SplitMix::new(seed);
    let one = |i: usize| {
        let sample = &samples[(i / 3) % samples.len()];
        let value = |v: &f32| {
            let drawn = rng.range(low.into(), high.into()) as f32;
            match (i % 3, rng.next_u64() % 6) {
                (1, k) => {
                    if k < 3 {
                        low
                    } else {
                        high
                    }
                }
                (2, 2..) => v.clamp(low, high),
                _ => drawn.clamp(low, high),
            }
        };
        sample.iter().map(value).collect()
    };
    (0..3 * count(model) / 2).map(one).collect()
}
