//! Agreement of a fixed-point model with the float network on inputs that calibration did not use.

use tacit_graph::float::run::run;
use tacit_graph::{Imported, OutputMode};

use super::RingModel;
use crate::{RingError, reference};
use tacit_backend_api::classes::{class, is_class_of, relative_error, spread};

/// Agreement over a set of inputs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Agreement {
    /// Inputs.
    pub samples: usize,
    /// Share of inputs with the class of the float network (for a single output: its sign).
    pub same_class: f64,
    /// Mean over inputs of the outputs' root mean square error, as a share of their range (0 in mode top-1).
    pub mean_error: f64,
    /// Largest of these errors.
    pub max_error: f64,
    /// Inputs with a value outside the safe range of some ring.
    pub out_of_range: usize,
}

/// Compares a lowered model with the float network on inputs of that network
/// ([`ImportOptions::prepare`](tacit_graph::ImportOptions::prepare)). With a `seed`, errors of two-party
/// truncation and of tests of fewer bits are simulated. A class chosen among equal outputs counts as right.
///
/// # Errors
/// If the inputs do not fit the model.
pub fn agreement(
    imported: &Imported,
    lowered: &RingModel,
    inputs: &[Vec<f32>],
    seed: Option<u64>,
) -> Result<Agreement, RingError> {
    let RingModel { graph, weights, relu_drop, .. } = lowered;
    let output_range = spread(&imported.model.calibration.wanted) * imported.model.output_multiplier;
    let mut a = Agreement { samples: inputs.len(), ..Agreement::default() };
    for (i, x) in inputs.iter().enumerate() {
        let expected = run(&imported.network.graph, x)?;
        let ints = reference::quantize_unchecked(graph, &imported.client_input(x));
        let out = match seed {
            Some(seed) => {
                let seed = seed.wrapping_add(i as u64);
                reference::run_with_share_errors(graph, weights, &ints, seed, *relu_drop)?
            }
            None => {
                a.out_of_range += usize::from(!reference::range_check(graph, weights, &ints)?.is_empty());
                reference::run(graph, weights, &ints)?
            }
        };
        let answer = reference::dequantize_output(graph, &out);
        let is_same = match (graph.spec().interface.output_mode, expected.as_slice()) {
            // The network itself ends with an arg max.
            (OutputMode::Top1, &[index]) => out[0] as f32 == index,
            (OutputMode::Top1, several) => is_class_of(Some(out[0] as usize), several),
            (OutputMode::Logits, outputs) => is_class_of(class(&answer), outputs),
        };
        a.same_class += f64::from(u8::from(is_same)) / inputs.len() as f64;
        if graph.spec().interface.output_mode == OutputMode::Logits {
            let e = relative_error(&answer, &expected, output_range);
            a.mean_error += e / inputs.len() as f64;
            a.max_error = tacit_floats::larger(a.max_error, e);
        }
    }
    Ok(a)
}
