//! Turns an ONNX file into a [`Model`]: parse, rewrite, calibrate. The import is independent of the
//! back end.

use std::path::PathBuf;

mod calibrate;
mod extremes;
mod rescale;

pub use extremes::extreme_inputs;

#[cfg(test)]
mod tests;

use crate::float::{FloatGraph, FloatOp};
use crate::interface::normalised_pixel;
use crate::npy::Npy;
use crate::onnx::{self, Network};
use crate::rewrite::{self, Rewritten};
use crate::rng::SplitMix;
use crate::{Calibration, ChannelAffine, GraphError, InputSpec, Interface, Interval, Model, OutputMode, Units, Watch};

/// Options of an import. `Default` holds the recommended values.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Name of the model; empty: the name in the file.
    pub name: String,
    /// Samples `[N, ..input]` or one sample `[..input]`. Floats are inputs of the ONNX network,
    /// without conversion. Bytes are raw pixels, to which the normalisation below is applied first.
    pub calibration: Option<Npy>,
    /// Largest number of samples to run; all samples determine the accepted range.
    pub max_samples: usize,
    /// The client's normalisation of raw 8-bit pixels: `(pixel * pixel_scale - mean) / std`, per
    /// channel; empty for none.
    pub mean: Vec<f32>,
    /// See `mean`.
    pub std: Vec<f32>,
    /// See `mean`.
    pub pixel_scale: f32,
    /// Range of the network's input. The default is that of normalised pixels (if there is a
    /// normalisation), else that of the samples.
    pub range: Option<Interval<f32>>,
    /// The outputs that the client learns.
    pub output_mode: OutputMode,
    /// Seed of generated samples.
    pub seed: u64,
    /// Identity of the import; random if not given.
    pub model_id: Option<[u8; 16]>,
    /// Folder of the ONNX file, for tensors with external data.
    pub folder: Option<PathBuf>,
    /// Receives the progress of the import.
    pub watch: Watch,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            calibration: None,
            max_samples: 64,
            mean: vec![],
            std: vec![],
            pixel_scale: 1.0,
            range: None,
            output_mode: OutputMode::Logits,
            seed: 1,
            model_id: None,
            folder: None,
            watch: Watch::default(),
        }
    }
}

impl ImportOptions {
    /// Returns at most `limit` samples as checked inputs of the ONNX network; bytes are normalised
    /// as at the client. `shape` is that of one input.
    ///
    /// # Errors
    /// If the samples have another shape, or a value is not finite.
    pub fn prepare(&self, shape: &[usize], npy: &Npy, limit: usize) -> Result<Vec<Vec<f32>>, GraphError> {
        let n: usize = shape.iter().product();
        let fits = npy.shape == *shape || npy.shape.get(1..) == Some(shape);
        if !fits || npy.data.is_empty() {
            return Err(GraphError::Input {
                what: format!("samples of shape {:?} for a network with input [N] + {shape:?}", npy.shape),
            });
        }
        if let Some(bad) = npy.data.iter().find(|v| !v.is_finite()) {
            return Err(GraphError::Input { what: format!("a sample holds {bad}") });
        }
        let inner = n / shape[0];
        let samples = npy.data.chunks(n).take(limit);
        if !npy.is_bytes {
            return Ok(samples.map(<[f32]>::to_vec).collect());
        }
        Ok(samples.map(|s| s.iter().enumerate().map(|(i, &v)| self.normalise(i / inner, v)).collect()).collect())
    }

    /// Applies the client's normalisation to one raw value.
    fn normalise(&self, channel: usize, value: f32) -> f32 {
        normalised_pixel(&self.mean, &self.std, self.pixel_scale, channel, value)
    }
}

/// An imported model.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The model, which the owner stores and back ends lower.
    pub model: Model,
    /// The float network of the file (before rewrites), for agreement checks.
    pub network: Network,
}

impl Imported {
    /// Turns an input of the ONNX network into an input of the model: applies the maps that the
    /// rewrites moved to the client.
    pub fn client_input(&self, x: &[f32]) -> Vec<f32> {
        self.model.interface.normalise(x, Units::Network)
    }
}

/// Imports an ONNX file.
///
/// # Errors
/// The errors of `onnx::parse`, and calibration samples that do not fit, or overflow the network.
pub fn import(bytes: &[u8], options: &ImportOptions) -> Result<Imported, GraphError> {
    options.watch.tell("reading the network", 0, None)?;
    let network = onnx::parse_in(bytes, options.folder.as_deref())?;
    import_network(network, options)
}

/// Imports a network that is already parsed.
///
/// # Errors
/// As [`import`].
pub fn import_network(network: Network, options: &ImportOptions) -> Result<Imported, GraphError> {
    let mut float = network.graph.clone();
    let top1 = strip_arg_max(&mut float)? || options.output_mode == OutputMode::Top1;
    let mut rewritten = rewrite::simplify(&float)?;
    let declared = declared(options, network.input_range);
    let (raw, text, guessed) = samples(&float, options, &declared)?;
    let mut samples: Vec<Vec<f32>> = match &rewritten.input_affine {
        Some(affine) => raw.iter().map(|sample| affine.apply(sample)).collect(),
        None => raw,
    };
    // The accepted range is that of all given samples, even if only some of them are run.
    let mut input = input_spec(&rewritten, options, declared, &samples)?;
    samples.truncate(options.max_samples.max(1));
    let mut measured = calibrate::measure(&rewritten.graph, samples, input.range, &options.watch)?;
    let Rewritten { graph, output_multiplier, notes, .. } = &mut rewritten;
    if rescale::rescale(graph, &mut measured, &mut input, output_multiplier) {
        notes.push("tensors of extreme size scaled by powers of two".into());
    }
    let extreme = extremes::magnitudes(&rewritten.graph, input.range, &options.watch)?;
    let calibrate::Measured { max_abs, mean_square, samples, wanted } = measured;
    let calibration = Calibration { max_abs, mean_square, extreme, samples, wanted, text, guessed };
    let result = &rewritten.graph.nodes[rewritten.graph.output];
    let output_shape = if top1 { vec![1] } else { result.shape.clone() };
    let outputs = if network.outputs.len() > 1 { network.outputs.clone() } else { vec![] };
    if top1 && !outputs.is_empty() {
        return Err(GraphError::Input {
            what: "revealing the best class alone needs a network with one output".into(),
        });
    }
    let interface = Interface {
        name: if options.name.is_empty() { network.name.clone() } else { options.name.clone() },
        input_shape: rewritten.graph.nodes[0].shape.clone(),
        input,
        output_shape,
        output_mode: if top1 { OutputMode::Top1 } else { OutputMode::Logits },
        outputs,
        final_activation: network.activation,
    };
    let model = Model {
        model_id: model_id(options)?,
        graph: rewritten.graph,
        interface,
        output_multiplier: rewritten.output_multiplier,
        calibration,
        notes: [network.notes.clone(), rewritten.notes].concat(),
    };
    model.check()?;
    Ok(Imported { model, network })
}

fn strip_arg_max(graph: &mut FloatGraph) -> Result<bool, GraphError> {
    let has_arg_max = matches!(graph.nodes[graph.output].op, FloatOp::ArgMax);
    if has_arg_max {
        graph.output = graph.nodes[graph.output].inputs[0];
        graph.sort()?;
    }
    if let Some(inner) = graph.nodes.iter().find(|n| n.op == FloatOp::ArgMax) {
        return Err(GraphError::Unsupported {
            node: format!("`{}` (ArgMax)", inner.name),
            help: "an ArgMax is supported at the end of the network only".into(),
        });
    }
    Ok(has_arg_max)
}

fn model_id(options: &ImportOptions) -> Result<[u8; 16], GraphError> {
    if let Some(id) = options.model_id {
        return Ok(id);
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id)?;
    Ok(id)
}

/// Returns all calibration samples as inputs of the ONNX network, a sentence about those that are
/// used, and whether the samples were made up.
fn samples(
    graph: &FloatGraph,
    options: &ImportOptions,
    declared: &[Interval<f32>],
) -> Result<(Vec<Vec<f32>>, String, bool), GraphError> {
    let shape = &graph.nodes[0].shape;
    let n = graph.nodes[0].elements();
    check_normalisation(options, shape[0])?;
    let Some(npy) = &options.calibration else {
        let Interval { low, high } = hull(declared).unwrap_or(Interval { low: -1.0, high: 1.0 });
        let inner = (n / shape[0].max(1)).max(1);
        let mut rng = SplitMix::new(options.seed);
        let mut samples = vec![vec![0.0; n]; 4];
        for (i, value) in samples.iter_mut().flat_map(|sample| sample.iter_mut().enumerate()) {
            let random = rng.range(f64::from(low), f64::from(high)) as f32;
            let of_channel = declared.get(i / inner).or(declared.first());
            *value = of_channel.map_or(random, |range| random.max(range.low).min(range.high));
        }
        return Ok((samples, format!("4 seeded random inputs in [{low}, {high}]: headroom is a guess"), true));
    };
    let all = options.prepare(shape, npy, usize::MAX)?;
    let text = format!("{} calibration samples", all.len().min(options.max_samples.max(1)));
    Ok((all, text, false))
}

fn check_normalisation(options: &ImportOptions, channels: usize) -> Result<(), GraphError> {
    for (name, v) in [("mean", &options.mean), ("std", &options.std)] {
        if !v.is_empty() && v.len() != channels || v.iter().any(|x| !x.is_finite()) {
            return Err(GraphError::Input { what: format!("{} values of `{name}` for {channels} channels", v.len()) });
        }
    }
    if options.std.contains(&0.0) || !options.pixel_scale.is_finite() {
        return Err(GraphError::Input {
            what: "a standard deviation of zero, or a pixel scale that is no number".into(),
        });
    }
    Ok(())
}

/// Returns the declared range of the network's inputs, by channel or for all: the requested range,
/// else that of normalised pixels 0 to 255 if a normalisation is given, else that of the element
/// type of the network's input.
fn declared(options: &ImportOptions, network: Option<Interval<f32>>) -> Vec<Interval<f32>> {
    if let Some(range) = options.range {
        return vec![range];
    }
    if options.mean.is_empty() && options.std.is_empty() && options.pixel_scale == 1.0 {
        return network.into_iter().collect();
    }
    let channels = options.mean.len().max(options.std.len()).max(1);
    (0..channels).map(|c| span([0.0, 255.0].map(|pixel| options.normalise(c, pixel)).into_iter())).collect()
}

fn hull(ranges: &[Interval<f32>]) -> Option<Interval<f32>> {
    (!ranges.is_empty()).then(|| span(ranges.iter().flat_map(|range| range.ends())))
}

fn span(values: impl Iterator<Item = f32>) -> Interval<f32> {
    tacit_floats::range(values).map(|end| end as f32)
}

/// Makes the input part of the interface; `samples` are values after the client's normalisation.
fn input_spec(
    rewritten: &Rewritten,
    options: &ImportOptions,
    declared: Vec<Interval<f32>>,
    samples: &[Vec<f32>],
) -> Result<InputSpec, GraphError> {
    let affine = rewritten.input_affine.clone();
    let range = match (hull(&declared), &affine) {
        (Some(range), None) => range,
        (Some(_), Some(ChannelAffine { scale, shift })) => span((0..scale.len()).flat_map(|c| {
            let of_channel = declared.get(c).unwrap_or(&declared[0]);
            of_channel.ends().map(|v| v * scale[c] + shift[c])
        })),
        (None, _) => {
            // A little room for inputs other than the samples.
            let Interval { low, high } = span(samples.iter().flatten().copied());
            let room = 0.05 * (high - low).max(f32::MIN_POSITIVE);
            Interval { low: low - room, high: high + room }
        }
    };
    let Interval { low, high } = range;
    if !(low.is_finite() && high.is_finite() && low <= high) {
        return Err(GraphError::Input { what: format!("an input range of [{low}, {high}]") });
    }
    Ok(InputSpec {
        mean: options.mean.clone(),
        std: options.std.clone(),
        pixel_scale: options.pixel_scale,
        moved: affine,
        range,
        declared,
    })
}
