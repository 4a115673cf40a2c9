//! Warnings about scales that round calibrated values to nothing, and inputs too small to have an effect.

use tacit_graph::float::FloatOp;

use super::Problem;
use super::emit::Emitted;
use crate::Op;
use tacit_backend_api::FaintInput;

/// Root mean squares of fewer steps count as nothing.
const FEWEST_STEPS: f64 = 0.5;
/// Root mean squares of the input from this value on are unusual: clients may use other units.
const LARGE_INPUT: f64 = (1u64 << 16) as f64;

pub(super) fn warnings(problem: &Problem, emitted: &Emitted) -> Vec<String> {
    [input(problem, emitted), tensors(problem, emitted), units(problem, emitted)].into_iter().flatten().collect()
}

/// The step of the input in the network's units, without the factor that the client applies to the first
/// channel.
pub(super) fn input_step(problem: &Problem, emitted: &Emitted) -> f64 {
    let affine = problem.model.interface.input.moved.as_ref();
    let factor = affine.map_or(1.0, |affine| f64::from(affine.scale[0]).abs());
    emitted.graph.input().fixed.dequantize(1) / if factor > 0.0 { factor } else { 1.0 }
}

/// Warns of samples that round to nothing.
fn input(problem: &Problem, emitted: &Emitted) -> Option<String> {
    let samples = &problem.model.calibration.samples;
    let step = emitted.graph.input().fixed.dequantize(1);
    let faint = samples.iter().filter(|sample| FaintInput::detect(sample, step).is_some()).count();
    (faint > 0).then(|| {
        format!(
            "of {faint} of {} calibration samples rounding leaves nothing: they lie below a step ({step:.3e}) of the input, and their \
             answers are those of an empty one; more fraction bits (`max_frac_bits`, `frac_bits`), or samples and a range of one size",
            samples.len()
        )
    })
}

/// Warns of tensors whose values hardly reach a step.
fn tensors(problem: &Problem, emitted: &Emitted) -> Option<String> {
    let squares = &problem.model.calibration.mean_square;
    let steps =
        |id: usize| squares[emitted.origin[id]].sqrt() * f64::from(emitted.graph.nodes()[id].fixed.frac_bits).exp2();
    let lost = (0..emitted.graph.nodes().len()).filter(|&id| {
        let node = &emitted.graph.nodes()[id];
        // Nodes that prepare the index of a table are no tensors of the float network.
        let of_table = matches!(problem.model.graph.nodes[emitted.origin[id]].op, FloatOp::Function(_));
        let is_tensor = !matches!(node.op, Op::ArgMax | Op::MulConst { .. }) && !of_table;
        is_tensor && steps(id) > 0.0 && steps(id) < FEWEST_STEPS
    });
    let lost: Vec<usize> = lost.collect();
    let first_input = *lost.first()?;
    Some(format!(
        "the scales leave next to nothing of {} tensors: the values of the first, `{}`, are {:.1e} steps on average; more fraction bits \
         (`max_frac_bits`, `frac_bits`)",
        lost.len(),
        emitted.graph.nodes()[first_input].name,
        steps(first_input)
    ))
}

/// Warns of samples of unusual size.
fn units(problem: &Problem, emitted: &Emitted) -> Option<String> {
    let model = problem.model;
    let step = input_step(problem, emitted);
    let size = model.calibration.mean_square[0].sqrt() * step / emitted.graph.input().fixed.dequantize(1);
    (size >= LARGE_INPUT && !model.calibration.guessed).then(|| {
        format!(
            "the calibration samples are {size:.1e} in size: the input is computed with in steps of {step:.1e}, and what is smaller \
             counts as zero. If clients ask in other units, calibrate with samples in theirs"
        )
    })
}
