//! The information that a client needs about a model's inputs and outputs.

use serde::{Deserialize, Serialize};
use tacit_floats::Interval;

use crate::{GraphError, geometry};

mod intervals;

/// The outputs that the client learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputMode {
    /// All values of the last tensor.
    Logits,
    /// Only the index of the largest value.
    Top1,
}

/// The units of an input's values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Units {
    /// Raw 8-bit pixels, 0 to 255.
    Pixels,
    /// Inputs of the exported ONNX network.
    #[default]
    Network,
    /// Inputs of the model: after everything that the client applies.
    Normalised,
}

/// `scale * x + shift` by channel, the index on the first axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChannelAffine {
    /// Factors.
    pub scale: Vec<f32>,
    /// Addends.
    pub shift: Vec<f32>,
}

impl ChannelAffine {
    /// Applies the map to all channels of an input.
    #[must_use]
    pub fn apply(&self, values: &[f32]) -> Vec<f32> {
        let inner = (values.len() / self.scale.len().max(1)).max(1);
        values.iter().enumerate().map(|(i, v)| v * self.scale[i / inner] + self.shift[i / inner]).collect()
    }
}

/// The client's conversion of pixels into inputs of the ONNX network,
/// `(pixel * pixel_scale - mean) / std`, and of those into inputs of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputSpec {
    /// Subtracted from scaled pixels, per channel; empty for none.
    pub mean: Vec<f32>,
    /// Divides the result, per channel; empty for none.
    pub std: Vec<f32>,
    /// Factor applied to raw 8-bit pixels first, e.g. 1/255.
    pub pixel_scale: f32,
    /// The map that the importer moved from the start of the network to the client.
    pub moved: Option<ChannelAffine>,
    /// Accepted values after these conversions, over all channels. Other values
    /// are refused, since they could leave the range that a back end computes with.
    #[serde(with = "intervals::one")]
    pub range: Interval<f32>,
    /// Declared ranges of the ONNX network's input (before [`moved`](Self::moved)): one for each
    /// channel, or one for all. Empty if none was declared; then [`range`](Self::range) alone
    /// applies.
    #[serde(with = "intervals::list")]
    pub declared: Vec<Interval<f32>>,
}

impl InputSpec {
    /// A specification with this range and no conversions.
    #[must_use]
    pub fn plain(range: Interval<f32>) -> Self {
        Self { mean: Vec::new(), std: Vec::new(), pixel_scale: 1.0, moved: None, range, declared: Vec::new() }
    }

    /// Returns the accepted values of a channel, after everything that the client applies.
    ///
    /// Both ends are converted like inputs, so that rounding cannot exclude an end's own value.
    #[must_use]
    pub fn accepted(&self, channel: usize) -> Interval<f32> {
        let Interval { low, high } = self.range;
        let Some(declared) = self.declared.get(channel).or(self.declared.first()) else { return self.range };
        let [a, b] = declared.ends().map(|v| match &self.moved {
            Some(affine) => v * affine.scale[channel] + affine.shift[channel],
            None => v,
        });
        Interval { low: a.min(b), high: a.max(b) }.map(|end| end.max(low).min(high))
    }

    /// Returns the accepted range in units of the ONNX network's input. If a factor is zero, no
    /// input reaches the model, and the model's own range is returned.
    fn accepted_by_network(&self, channel: usize) -> Interval<f32> {
        let accepted = self.accepted(channel);
        let [a, b] = accepted.ends().map(|end| self.network_value(channel, end));
        let interval = Interval { low: a.min(b), high: a.max(b) };
        // The declared range without rounding, unless the accepted range is smaller.
        let wide = Self { range: Interval { low: f32::MIN, high: f32::MAX }, ..self.clone() };
        match self.declared.get(channel).or(self.declared.first()) {
            Some(declared) if wide.accepted(channel) == accepted => *declared,
            _ => interval,
        }
    }

    /// Returns the ONNX network's input for a raw pixel.
    fn value_of_pixel(&self, channel: usize, pixel: f32) -> f32 {
        normalised_pixel(&self.mean, &self.std, self.pixel_scale, channel, pixel)
    }

    /// Returns the ONNX network's input for the model's input `value`.
    fn network_value(&self, channel: usize, value: f32) -> f32 {
        match &self.moved {
            Some(affine) if affine.scale[channel] != 0.0 => (value - affine.shift[channel]) / affine.scale[channel],
            _ => value,
        }
    }
}

/// Returns `(pixel * scale - mean) / std`. A channel without mean or deviation has 0 or 1.
pub(crate) fn normalised_pixel(mean: &[f32], std: &[f32], scale: f32, channel: usize, pixel: f32) -> f32 {
    (pixel * scale - mean.get(channel).unwrap_or(&0.0)) / std.get(channel).unwrap_or(&1.0)
}

/// The end of the ONNX network, which the client computes: over all outputs, in real numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FinalActivation {
    /// `exp(x_i) / sum exp(x)`.
    Softmax,
    /// `x_i - log sum exp(x)`.
    LogSoftmax,
    /// `1 / (1 + exp(-x_i))`.
    Sigmoid,
    /// `tanh(x_i)`.
    Tanh,
    /// Sigmoid, then divided by the sum (one classifier against the rest for each class).
    SigmoidL1,
    /// Divided by the sum of magnitudes; zero stays zero.
    L1,
    /// Divided by the Euclidean norm; zero stays zero.
    L2,
    /// Divided by the largest value; unchanged if that is zero.
    Largest,
    /// A softmax, or its logarithm, for each position: over the middle axis of the outputs as
    /// `[outer, length, inner]`. Both lengths are at least 1.
    SoftmaxAlong {
        /// Number of values in a softmax.
        length: u32,
        /// Distance between two of them.
        inner: u32,
        /// Whether to take the logarithm of the softmax.
        logarithm: bool,
    },
}

impl FinalActivation {
    /// Applies the activation.
    #[must_use]
    pub fn apply(self, values: &[f64]) -> Vec<f64> {
        let largest = tacit_floats::range(values.iter().copied()).high;
        let log_sum = largest + values.iter().map(|v| (v - largest).exp()).sum::<f64>().ln();
        match self {
            Self::Softmax => values.iter().map(|v| (v - log_sum).exp()).collect(),
            Self::LogSoftmax => values.iter().map(|v| v - log_sum).collect(),
            Self::Sigmoid => values.iter().map(sigmoid).collect(),
            Self::Tanh => values.iter().map(|v| v.tanh()).collect(),
            Self::SigmoidL1 => {
                let sigmoids: Vec<f64> = values.iter().map(sigmoid).collect();
                divide_by_norm(&sigmoids, sigmoids.iter().sum())
            }
            Self::L1 => divide_by_norm(values, values.iter().map(|v| v.abs()).sum()),
            Self::L2 => divide_by_norm(values, values.iter().map(|v| v * v).sum::<f64>().sqrt()),
            Self::Largest => divide_by_norm(values, largest),
            Self::SoftmaxAlong { length, inner, logarithm } => {
                let activation = if logarithm { Self::LogSoftmax } else { Self::Softmax };
                let (length, inner) = (length as usize, inner as usize);
                let mut outputs = values.to_vec();
                for group in outputs.chunks_exact_mut(length * inner) {
                    for i in 0..inner {
                        let logits: Vec<f64> = group[i..].iter().step_by(inner).copied().collect();
                        group[i..]
                            .iter_mut()
                            .step_by(inner)
                            .zip(activation.apply(&logits))
                            .for_each(|(output, v)| *output = v);
                    }
                }
                outputs
            }
        }
    }

    /// Whether each value is activated independently of the others.
    #[must_use]
    pub fn by_element(self) -> bool {
        matches!(self, Self::Sigmoid | Self::Tanh)
    }

    /// The operator's name in ONNX.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Softmax | Self::SoftmaxAlong { logarithm: false, .. } => "Softmax",
            Self::LogSoftmax | Self::SoftmaxAlong { .. } => "LogSoftmax",
            Self::Sigmoid => "Sigmoid",
            Self::Tanh => "Tanh",
            Self::SigmoidL1 => "Sigmoid and Normalizer",
            Self::L1 | Self::L2 | Self::Largest => "Normalizer",
        }
    }
}

fn sigmoid(v: &f64) -> f64 {
    1.0 / (1.0 + (-v).exp())
}

/// Divides by a norm; zero changes nothing.
fn divide_by_norm(values: &[f64], norm: f64) -> Vec<f64> {
    values.iter().map(|v| if norm == 0.0 { *v } else { v / norm }).collect()
}

/// Inputs and outputs of a model, the same for every back end. A back end takes the values of
/// [`accept`](Interface::accept) and returns `f64` with the public multiplier applied (in mode
/// top-1: the class index). [`finish`](Interface::finish) turns these into the outputs of the ONNX
/// network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// Name of the model, for users.
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub name: String,
    /// Shape of one input: `[C, H, W]`, `[C, L]` or `[F]`.
    pub input_shape: Vec<usize>,
    /// Input normalisation and range.
    pub input: InputSpec,
    /// Shape of one result: that of the last tensor, `[1]` in mode top-1.
    pub output_shape: Vec<usize>,
    /// The outputs that are revealed.
    pub output_mode: OutputMode,
    /// The outputs of the ONNX network in its order, if there are several. The result joins them,
    /// flattened. Empty for a single output.
    pub outputs: Vec<OutputTensor>,
    /// The last operation of the ONNX network on its outputs, which the client computes.
    pub final_activation: Option<FinalActivation>,
}

/// An output of the ONNX network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputTensor {
    /// Name of the output in the file.
    #[serde(deserialize_with = "tacit_foreign::text::deserialize_plain")]
    pub name: String,
    /// Shape of the output, without the batch.
    pub shape: Vec<usize>,
}

impl Interface {
    /// Number of values of one input.
    pub fn input_len(&self) -> usize {
        self.input_shape.iter().product()
    }

    /// Number of values of one answer.
    pub fn output_len(&self) -> usize {
        self.output_shape.iter().product()
    }

    /// Converts values to inputs of the model.
    #[must_use]
    pub fn normalise(&self, values: &[f32], units: Units) -> Vec<f32> {
        let network = match units {
            Units::Normalised => return values.to_vec(),
            Units::Network => values.to_vec(),
            Units::Pixels => {
                let inner = (values.len() / self.input_shape[0].max(1)).max(1);
                values.iter().enumerate().map(|(i, v)| self.input.value_of_pixel(i / inner, *v)).collect()
            }
        };
        self.input.moved.as_ref().map_or(network.clone(), |affine| affine.apply(&network))
    }

    /// Converts values to inputs of the model and checks that the model accepts them.
    ///
    /// # Errors
    /// As [`check_input`](Self::check_input).
    pub fn accept(&self, values: &[f32], units: Units) -> Result<Vec<f32>, GraphError> {
        self.check_length(values.len())?;
        let normalised = self.normalise(values, units);
        self.check_input(&normalised)?;
        Ok(normalised)
    }

    /// Turns a back end's answer into the outputs of the ONNX network.
    #[must_use]
    pub fn finish(&self, answer: &[f64]) -> Vec<f64> {
        match self.final_activation {
            Some(activation) if self.output_mode == OutputMode::Logits => activation.apply(answer),
            _ => answer.to_vec(),
        }
    }

    /// Checks shapes, normalisation and range.
    ///
    /// # Errors
    /// Names the inconsistency.
    pub fn check(&self) -> Result<(), GraphError> {
        for shape in [&self.input_shape, &self.output_shape] {
            if shape.is_empty() {
                return fail("a shape without axes".into());
            }
            geometry::check_size(shape).map_err(|what| GraphError::Interface { what })?;
        }
        if self.output_mode == OutputMode::Top1 && self.output_shape != [1] {
            return fail(format!("output mode top-1 with results of shape {:?}", self.output_shape));
        }
        let parts = self.outputs.iter().map(|o| geometry::checked_elements(&o.shape));
        let total = parts.collect::<Option<Vec<_>>>().and_then(|p| p.into_iter().try_fold(0usize, usize::checked_add));
        if !self.outputs.is_empty() && (total != Some(self.output_len()) || self.output_mode == OutputMode::Top1) {
            return fail(format!("outputs {:?} in results of shape {:?}", self.outputs, self.output_shape));
        }
        if let Some(FinalActivation::SoftmaxAlong { length, inner, .. }) = self.final_activation {
            let group = u64::from(length) * u64::from(inner);
            if group == 0 || !(self.output_len() as u64).is_multiple_of(group) && self.output_mode == OutputMode::Logits
            {
                return fail(format!("a softmax over {length} by {inner} of {} outputs", self.output_len()));
            }
        }
        let InputSpec { mean, std, pixel_scale, moved, range, declared } = &self.input;
        let channels = self.input_shape[0];
        if let Some(ChannelAffine { scale, shift }) = moved
            && (scale.len() != channels || shift.len() != channels || scale.iter().chain(shift).any(|v| !v.is_finite()))
        {
            return fail(format!(
                "{} factors and {} addends for {channels} channels, or no numbers",
                scale.len(),
                shift.len()
            ));
        }
        for (name, values) in [("mean", mean), ("std", std)] {
            if !(values.is_empty() || values.len() == channels) || values.iter().any(|v| !v.is_finite()) {
                return fail(format!("{} values of `{name}` for {channels} channels, or no numbers", values.len()));
            }
        }
        if std.contains(&0.0) || !pixel_scale.is_finite() {
            return fail("a standard deviation of zero, or a pixel scale that is no number".into());
        }
        if !matches!(declared.len(), 0 | 1) && declared.len() != channels {
            return fail(format!("{} declared ranges for {channels} channels", declared.len()));
        }
        for Interval { low, high } in declared.iter().chain([range]) {
            if !(low.is_finite() && high.is_finite() && low <= high) {
                return fail(format!("an input range of [{low}, {high}]"));
            }
        }
        Ok(())
    }

    fn check_length(&self, count: usize) -> Result<(), GraphError> {
        if count != self.input_len() {
            return Err(GraphError::Input {
                what: format!("{count} values for an input of shape {:?}", self.input_shape),
            });
        }
        Ok(())
    }

    /// Checks one input, after normalisation.
    ///
    /// # Errors
    /// If the length is wrong, or a value is not finite or outside the accepted range (the message
    /// uses the network's units).
    pub fn check_input(&self, input: &[f32]) -> Result<(), GraphError> {
        self.check_length(input.len())?;
        let inner = self.inner();
        let refused = input.iter().enumerate().position(|(i, x)| {
            let Interval { low, high } = self.input.accepted(i / inner);
            // Rounding in the client's own normalisation must not push the extreme pixel out of the
            // range.
            let slack = (high - low).abs() * 1e-4;
            !(x.is_finite() && *x >= low - slack && *x <= high + slack)
        });
        let Some(i) = refused else { return Ok(()) };
        let value = self.input.network_value(i / inner, input[i]);
        let Interval { low: least, high: most } = self.input.accepted_by_network(i / inner);
        let remedy = match value.is_finite() {
            true => {
                "clip it, or have the model imported with samples that reach so far (--calibrate) or a wider --range"
            }
            false => "leave this input out, or put a finite number there",
        };
        let position = self.position(i);
        let what = format!("value {i} is {value}, the model accepts {least} to {most}{position}; {remedy}");
        Err(GraphError::Input { what })
    }

    /// Returns the accepted input nearest to zeros, in the model's units.
    #[must_use]
    pub fn blank(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.input_len()];
        self.clip(&mut values);
        values
    }

    /// Clips inputs of the model to the accepted range.
    pub fn clip(&self, values: &mut [f32]) {
        let inner = self.inner();
        for (i, v) in values.iter_mut().enumerate() {
            let Interval { low, high } = self.input.accepted(i / inner);
            *v = v.max(low).min(high);
        }
    }

    /// Number of values of a channel.
    fn inner(&self) -> usize {
        (self.input_len() / self.input_shape[0].max(1)).max(1)
    }

    /// Returns the position of a value as text, for inputs of several axes: " (at [0, 2, 1])".
    fn position(&self, flat: usize) -> String {
        if self.input_shape.len() < 2 {
            return String::new();
        }
        let mut remaining = flat;
        let mut coordinates: Vec<usize> = self
            .input_shape
            .iter()
            .rev()
            .map(|&length| {
                let index = remaining % length.max(1);
                remaining /= length.max(1);
                index
            })
            .collect();
        coordinates.reverse();
        format!(" (at {coordinates:?})")
    }
}

fn fail(what: String) -> Result<(), GraphError> {
    Err(GraphError::Interface { what })
}

#[cfg(test)]
mod tests;
