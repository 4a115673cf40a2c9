//! From an ONNX file to a [`Model`]: parse, rewrite, calibrate. Nothing is decided here about how a back end will compute.

mod calibrate;

#[cfg(test)]
mod tests;

use crate::float::{FloatGraph, FloatOp};
use crate::npy::Npy;
use crate::onnx::{self, Network};
use crate::rewrite::{self, Rewritten};
use crate::rng::SplitMix;
use crate::{GraphError, InputSpec, Interface, Model, OutputMode, Watch};

/// Per-channel factors and addends.
type ChannelAffine = (Vec<f32>, Vec<f32>);

/// Choices of an import. `Default` is what a stranger should use.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Name of the model; empty: the name in the file.
    pub name: String,
    /// Samples `[N, ..input]` or one sample `[..input]`. Floats are inputs of the ONNX network as they are; bytes are raw
    /// pixels, to which the normalisation below is applied first.
    pub calibration: Option<Npy>,
    /// Most samples used.
    pub max_samples: usize,
    /// What the client does to raw 8-bit pixels: `(pixel * pixel_scale - mean) / std`, per channel; empty: nothing.
    pub mean: Vec<f32>,
    /// See `mean`.
    pub std: Vec<f32>,
    /// See `mean`.
    pub pixel_scale: f32,
    /// Range of the network's input; without it that of normalised pixels (if there is a normalisation), else that of the samples.
    pub range: Option<[f32; 2]>,
    /// What the client learns.
    pub output_mode: OutputMode,
    /// Seed of generated samples.
    pub seed: u64,
    /// Identity of the import; random if not given.
    pub model_id: Option<[u8; 16]>,
    /// Is told how far the import is.
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
            watch: Watch::default(),
        }
    }
}

impl ImportOptions {
    /// At most `limit` samples as inputs of the ONNX network, checked; bytes are normalised as the client does it. `shape` is that
    /// of one input.
    ///
    /// # Errors
    /// The samples are of another shape, or hold something that is no number.
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
        let prepare = |s: &[f32]| -> Vec<f32> {
            if !npy.is_bytes {
                return s.to_vec();
            }
            s.iter().enumerate().map(|(i, &v)| self.normalise(i / inner, v)).collect()
        };
        Ok(npy.data.chunks(n).take(limit).map(prepare).collect())
    }

    /// The client's normalisation of one raw value.
    fn normalise(&self, channel: usize, value: f32) -> f32 {
        let mean = self.mean.get(channel).copied().unwrap_or(0.0);
        let std = self.std.get(channel).copied().unwrap_or(1.0);
        (value * self.pixel_scale - mean) / std
    }
}

/// An imported model.
#[derive(Debug, Clone)]
pub struct Imported {
    /// What the owner keeps, and back ends lower.
    pub model: Model,
    /// The float network of the file (before rewrites), for agreement checks.
    pub network: Network,
    /// Per-channel factors and addends that the rewrites moved from the network into the client's normalisation (they are in the
    /// model's interface already).
    pub input_affine: Option<ChannelAffine>,
}

impl Imported {
    /// An input of the ONNX network as the client gives it to the model: with what the rewrites left to the client applied.
    pub fn client_input(&self, x: &[f32]) -> Vec<f32> {
        apply_affine(x, self.input_affine.as_ref())
    }
}

/// Imports an ONNX file.
///
/// # Errors
/// Whatever `onnx::parse` refuses; calibration samples that do not fit, or overflow the network.
pub fn import(bytes: &[u8], options: &ImportOptions) -> Result<Imported, GraphError> {
    options.watch.tell("reading the network", 0, None)?;
    let network = onnx::parse(bytes)?;
    import_network(network, options)
}

/// Imports a network that was read before.
///
/// # Errors
/// As [`import`].
pub fn import_network(network: Network, options: &ImportOptions) -> Result<Imported, GraphError> {
    let mut float = network.graph.clone();
    let top1 = strip_arg_max(&mut float)? || options.output_mode == OutputMode::Top1;
    let rewritten = rewrite::simplify(&float)?;
    let (raw, text, guessed) = samples(&float, options)?;
    let input = input_spec(&rewritten, options, &raw)?;
    let samples = raw.iter().map(|s| apply_affine(s, rewritten.input_affine.as_ref())).collect();
    let calibration = calibrate::measure(&rewritten.graph, samples, input.range, (text, guessed), &options.watch)?;
    let result = &rewritten.graph.nodes[rewritten.graph.output];
    let interface = Interface {
        name: if options.name.is_empty() { network.name.clone() } else { options.name.clone() },
        input_shape: rewritten.graph.nodes[0].shape.clone(),
        input,
        output_shape: if top1 { vec![1] } else { result.shape.clone() },
        output_mode: if top1 { OutputMode::Top1 } else { OutputMode::Logits },
        softmax_by_client: network.softmax,
    };
    let model = Model {
        model_id: model_id(options)?,
        graph: rewritten.graph,
        interface,
        output_multiplier: rewritten.output_multiplier,
        calibration,
        notes: rewritten.notes,
    };
    model.check()?;
    Ok(Imported { model, network, input_affine: rewritten.input_affine })
}

/// Takes a final arg max off the network.
fn strip_arg_max(graph: &mut FloatGraph) -> Result<bool, GraphError> {
    let found = matches!(graph.nodes[graph.output].op, FloatOp::ArgMax);
    if found {
        graph.output = graph.nodes[graph.output].inputs[0];
        graph.sort()?;
    }
    if let Some(inner) = graph.nodes.iter().find(|n| n.op == FloatOp::ArgMax) {
        return Err(GraphError::Unsupported {
            node: format!("`{}` (ArgMax)", inner.name),
            help: "an ArgMax is supported at the end of the network only".into(),
        });
    }
    Ok(found)
}

fn model_id(options: &ImportOptions) -> Result<[u8; 16], GraphError> {
    if let Some(id) = options.model_id {
        return Ok(id);
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id)?;
    Ok(id)
}

/// Calibration samples as inputs of the ONNX network, a sentence about them, and whether they were made up.
fn samples(graph: &FloatGraph, options: &ImportOptions) -> Result<(Vec<Vec<f32>>, String, bool), GraphError> {
    let shape = &graph.nodes[0].shape;
    let n = graph.nodes[0].elements();
    check_normalisation(options, shape[0])?;
    let Some(npy) = &options.calibration else {
        let [low, high] = options.range.or(pixel_range(options)).unwrap_or([-1.0, 1.0]);
        let mut rng = SplitMix::new(options.seed);
        let made =
            (0..4).map(|_| (0..n).map(|_| rng.range(f64::from(low), f64::from(high)) as f32).collect()).collect();
        return Ok((made, format!("4 seeded random inputs in [{low}, {high}]: headroom is a guess"), true));
    };
    let all = options.prepare(shape, npy, options.max_samples.max(1))?;
    let text = format!("{} calibration samples", all.len());
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

/// Range of normalised pixels 0 to 255, if a normalisation is stated.
fn pixel_range(options: &ImportOptions) -> Option<[f32; 2]> {
    if options.mean.is_empty() && options.std.is_empty() && options.pixel_scale == 1.0 {
        return None;
    }
    let channels = options.mean.len().max(options.std.len()).max(1);
    Some(span((0..channels).flat_map(|c| [options.normalise(c, 0.0), options.normalise(c, 255.0)])))
}

fn span(values: impl Iterator<Item = f32>) -> [f32; 2] {
    values.fold([f32::INFINITY, f32::NEG_INFINITY], |[l, h], v| [l.min(v), h.max(v)])
}

/// The input part of the specification: the stated normalisation with what the rewrites left to the client on top.
fn input_spec(rewritten: &Rewritten, options: &ImportOptions, samples: &[Vec<f32>]) -> Result<InputSpec, GraphError> {
    let [low, high] = match options.range.or(pixel_range(options)) {
        Some(r) => r,
        None => {
            // A little room: other inputs than the samples come.
            let [low, high] = span(samples.iter().flatten().copied());
            let room = 0.05 * (high - low).max(f32::MIN_POSITIVE);
            [low - room, high + room]
        }
    };
    if !(low.is_finite() && high.is_finite() && low <= high) {
        return Err(GraphError::Input { what: format!("an input range of [{low}, {high}]") });
    }
    let mut spec = InputSpec {
        mean: options.mean.clone(),
        std: options.std.clone(),
        pixel_scale: options.pixel_scale,
        range: [low, high],
    };
    if let Some((scale, shift)) = &rewritten.input_affine {
        // scale * (v - m) / s + t = (v - (m - t s / scale)) / (s / scale)
        let old = |c: usize| (spec.mean.get(c).copied().unwrap_or(0.0), spec.std.get(c).copied().unwrap_or(1.0));
        let pairs: Vec<(f32, f32)> = (0..scale.len())
            .map(|c| {
                let (m, s) = old(c);
                (m - shift[c] * s / scale[c], s / scale[c])
            })
            .collect();
        if pairs.iter().any(|(m, s)| !m.is_finite() || !s.is_finite()) {
            return Err(GraphError::Calibration { what: "the network multiplies an input channel by zero".into() });
        }
        spec.mean = pairs.iter().map(|p| p.0).collect();
        spec.std = pairs.iter().map(|p| p.1).collect();
        spec.range = span((0..scale.len()).flat_map(|c| [low, high].map(|v| v * scale[c] + shift[c])));
    }
    Ok(spec)
}

fn apply_affine(sample: &[f32], affine: Option<&ChannelAffine>) -> Vec<f32> {
    match affine {
        None => sample.to_vec(),
        Some((scale, shift)) => {
            let inner = sample.len() / scale.len();
            sample.iter().enumerate().map(|(i, v)| v * scale[i / inner] + shift[i / inner]).collect()
        }
    }
}
