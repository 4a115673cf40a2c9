//! Agreement of a fixed-point model with the float network on inputs that calibration did not see.

use super::search::relative_error;
use super::{ImportOptions, Imported, prepare_samples};
use crate::GraphError;
use crate::float::run::run;
use crate::kernel;
use crate::model::{ModelGraph, OutputMode};
use crate::npy::Npy;
use crate::reference;

/// Agreement over a set of inputs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Agreement {
    /// Number of inputs.
    pub samples: usize,
    /// Share with the class of the float network.
    pub same_class: f64,
    /// Mean over inputs of the root mean square error of the outputs, as a share of their range (0 in mode top-1).
    pub mean_error: f64,
    /// Largest of them.
    pub max_error: f64,
    /// Inputs with a value outside the safe range of some ring.
    pub out_of_range: usize,
}

/// Compares the model with the float network of the ONNX file. `tests` are given as calibration samples are; with `simulated`,
/// the errors of two-party truncation are simulated on seeded shares. A class chosen among equal outputs counts as right.
///
/// # Errors
/// The inputs do not fit the model.
pub fn agreement(
    imported: &Imported,
    graph: &ModelGraph,
    options: &ImportOptions,
    tests: &Npy,
    simulated: bool,
) -> Result<Agreement, GraphError> {
    let float = &imported.network.graph;
    let inputs = prepare_samples(&float.nodes[0].shape, options, tests, usize::MAX)?;
    let mut a = Agreement { samples: inputs.len(), ..Agreement::default() };
    for (i, x) in inputs.iter().enumerate() {
        let wanted = run(float, x)?;
        let fixed = graph.input().fixed;
        let given = imported.client_input(x);
        let ints: Vec<i64> = given.iter().map(|&v| fixed.quantize(f64::from(v))).collect();
        let out = if simulated {
            reference::run_with_share_errors(graph, &imported.weights, &ints, options.seed.wrapping_add(i as u64))?
        } else {
            a.out_of_range += usize::from(!reference::range_check(graph, &imported.weights, &ints)?.is_empty());
            reference::run(graph, &imported.weights, &ints)?
        };
        let got = reference::dequantize_output(graph, &out);
        let class = |v: &[f32]| if v.len() == 1 { v[0] as usize } else { kernel::arg_max(v) };
        let same = match graph.spec().output_mode {
            OutputMode::Top1 => out[0] as usize == class(&wanted),
            OutputMode::Logits => kernel::arg_max(&got) == class(&wanted),
        };
        a.same_class += f64::from(u8::from(same)) / inputs.len() as f64;
        if graph.spec().output_mode == OutputMode::Logits {
            let e = relative_error(&got, &wanted);
            a.mean_error += e / inputs.len() as f64;
            a.max_error = a.max_error.max(e);
        }
    }
    Ok(a)
}
