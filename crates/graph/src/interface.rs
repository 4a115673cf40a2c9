//! What a client needs to know about a model's inputs and outputs.

use serde::{Deserialize, Serialize};

use crate::{GraphError, geometry};

/// What the client learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputMode {
    /// All values of the last tensor.
    Logits,
    /// Only the index of the largest value.
    Top1,
}

/// What the numbers of an input are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Units {
    /// Raw 8-bit pixels, 0 to 255.
    Pixels,
    /// Inputs of the ONNX network as it was exported.
    #[default]
    Network,
    /// What the model computes on: behind everything that the client applies.
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
    /// The map on all channels of an input.
    #[must_use]
    pub fn apply(&self, values: &[f32]) -> Vec<f32> {
        let inner = (values.len() / self.scale.len().max(1)).max(1);
        values.iter().enumerate().map(|(i, v)| v * self.scale[i / inner] + self.shift[i / inner]).collect()
    }
}

/// How a client turns pixels into inputs of the ONNX network, `(pixel * pixel_scale - mean) / std`, and these
/// into what the model computes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputSpec {
    /// Subtracted from scaled pixels per channel (empty: nothing).
    pub mean: Vec<f32>,
    /// Divides pixels per channel after that (empty: nothing).
    pub std: Vec<f32>,
    /// Multiplied onto raw 8-bit pixels first, e.g. 1/255.
    pub pixel_scale: f32,
    /// What the importer moved from the start of the network to the client.
    pub moved: Option<ChannelAffine>,
    /// Smallest and largest value accepted behind all of that, over all channels; others are refused, since
    /// they could leave what a back end computes with.
    pub range: [f32; 2],
    /// What was declared of each channel, as the ONNX network takes it (before [`moved`](Self::moved)): one
    /// range for each, or one for all. Empty where nothing was, and [`range`](Self::range) alone holds.
    pub declared: Vec<[f32; 2]>,
}

impl InputSpec {
    /// Values of this range, as they are: nothing is applied to them.
    #[must_use]
    pub fn plain(range: [f32; 2]) -> Self {
        Self { mean: Vec::new(), std: Vec::new(), pixel_scale: 1.0, moved: None, range, declared: Vec::new() }
    }

    /// Smallest and largest value accepted of a channel, behind all that a client applies.
    ///
    /// Both ends take the way of the inputs: rounding cannot put an end's own value outside.
    #[must_use]
    pub fn accepted(&self, channel: usize) -> [f32; 2] {
        let [low, high] = self.range;
        let Some(declared) = self.declared.get(channel).or(self.declared.first()) else { return self.range };
        let ends = match &self.moved {
            Some(moved) => declared.map(|v| v * moved.scale[channel] + moved.shift[channel]),
            None => *declared,
        };
        [ends[0].min(ends[1]), ends[0].max(ends[1])].map(|end| end.max(low).min(high))
    }

    /// The same as the ONNX network takes it. A factor of zero lets no input reach the model, so what the
    /// model computes on is told as it is.
    fn accepted_by_network(&self, channel: usize) -> [f32; 2] {
        let accepted = self.accepted(channel);
        let [a, b] = accepted.map(|end| self.network_value(channel, end));
        let told = [a.min(b), a.max(b)];
        // As it was declared, without rounding, unless less is accepted.
        let wide = Self { range: [f32::MIN, f32::MAX], ..self.clone() };
        match self.declared.get(channel).or(self.declared.first()) {
            Some(declared) if wide.accepted(channel) == accepted => *declared,
            _ => told,
        }
    }

    /// What the ONNX network takes where the model computes on `value`.
    fn network_value(&self, channel: usize, value: f32) -> f32 {
        match &self.moved {
            Some(moved) if moved.scale[channel] != 0.0 => (value - moved.shift[channel]) / moved.scale[channel],
            _ => value,
        }
    }
}

/// The end of the ONNX network that is left to the client: over all outputs, in real numbers.
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
    /// Divided by the largest value; nothing where that is zero.
    Largest,
    /// A softmax, or its logarithm, for each position: over the middle axis of the outputs as
    /// `[outer, length, inner]`. Both lengths are at least 1.
    SoftmaxAlong {
        /// Values that a softmax is over.
        length: u32,
        /// Distance between two of them.
        inner: u32,
        /// Whether its logarithm is meant.
        logarithm: bool,
    },
}

impl FinalActivation {
    /// The activated values.
    #[must_use]
    pub fn apply(self, values: &[f64]) -> Vec<f64> {
        let largest = tacit_floats::range(values.iter().copied())[1];
        let log_sum = largest + values.iter().map(|v| (v - largest).exp()).sum::<f64>().ln();
        let sigmoid = |v: &f64| 1.0 / (1.0 + (-v).exp());
        let over = |values: &[f64], norm: f64| values.iter().map(|v| if norm == 0.0 { *v } else { v / norm }).collect();
        match self {
            Self::Softmax => values.iter().map(|v| (v - log_sum).exp()).collect(),
            Self::LogSoftmax => values.iter().map(|v| v - log_sum).collect(),
            Self::Sigmoid => values.iter().map(sigmoid).collect(),
            Self::Tanh => values.iter().map(|v| v.tanh()).collect(),
            Self::SigmoidL1 => {
                let each: Vec<f64> = values.iter().map(sigmoid).collect();
                over(&each, each.iter().sum())
            }
            Self::L1 => over(values, values.iter().map(|v| v.abs()).sum()),
            Self::L2 => over(values, values.iter().map(|v| v * v).sum::<f64>().sqrt()),
            Self::Largest => over(values, largest),
            Self::SoftmaxAlong { length, inner, logarithm } => {
                let one = if logarithm { Self::LogSoftmax } else { Self::Softmax };
                let (length, inner) = (length as usize, inner as usize);
                let mut made = values.to_vec();
                for group in made.chunks_exact_mut(length * inner) {
                    for i in 0..inner {
                        let along: Vec<f64> = group[i..].iter().step_by(inner).copied().collect();
                        group[i..].iter_mut().step_by(inner).zip(one.apply(&along)).for_each(|(to, v)| *to = v);
                    }
                }
                made
            }
        }
    }

    /// Whether each value is activated without the others.
    #[must_use]
    pub fn by_element(self) -> bool {
        matches!(self, Self::Sigmoid | Self::Tanh)
    }

    /// Its name in ONNX.
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

/// Inputs and outputs of a model, the same for every back end. A back end takes what
/// [`accept`](Interface::accept) gives and makes `f64` with the public multiplier applied (the class index in
/// mode top-1), which [`finish`](Interface::finish) turns into the outputs of the ONNX network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// Name of the model, for people.
    #[serde(deserialize_with = "tacit_foreign::text::decoded")]
    pub name: String,
    /// Shape of one input: `[C, H, W]`, `[C, L]` or `[F]`.
    pub input_shape: Vec<usize>,
    /// Input normalisation and range.
    pub input: InputSpec,
    /// Shape of one result: that of the last tensor, `[1]` in mode top-1.
    pub output_shape: Vec<usize>,
    /// What is revealed.
    pub output_mode: OutputMode,
    /// Where the ONNX network has several outputs: those, in its order. The result joins them, flattened.
    /// Empty where there is one.
    pub outputs: Vec<OutputTensor>,
    /// What the ONNX network does to its outputs last, left to the client.
    pub final_activation: Option<FinalActivation>,
}

/// An output of the ONNX network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputTensor {
    /// Its name in the file.
    #[serde(deserialize_with = "tacit_foreign::text::decoded")]
    pub name: String,
    /// Its shape, without the batch.
    pub shape: Vec<usize>,
}

impl Interface {
    /// Values of one input.
    pub fn input_len(&self) -> usize {
        self.input_shape.iter().product()
    }

    /// Values of one answer.
    pub fn output_len(&self) -> usize {
        self.output_shape.iter().product()
    }

    /// The values that the model computes on.
    #[must_use]
    pub fn normalise(&self, values: &[f32], units: Units) -> Vec<f32> {
        let InputSpec { mean, std, pixel_scale, moved, .. } = &self.input;
        let network = match units {
            Units::Normalised => return values.to_vec(),
            Units::Network => values.to_vec(),
            Units::Pixels => {
                let inner = (values.len() / self.input_shape[0].max(1)).max(1);
                let of = |list: &[f32], i: usize, none: f32| list.get(i / inner).copied().unwrap_or(none);
                let one = |(i, v): (usize, &f32)| (v * pixel_scale - of(mean, i, 0.0)) / of(std, i, 1.0);
                values.iter().enumerate().map(one).collect()
            }
        };
        moved.as_ref().map_or(network.clone(), |moved| moved.apply(&network))
    }

    /// The values that the model computes on, if it accepts them.
    ///
    /// # Errors
    /// As [`check_input`](Self::check_input).
    pub fn accept(&self, values: &[f32], units: Units) -> Result<Vec<f32>, GraphError> {
        self.check_length(values.len())?;
        let normalised = self.normalise(values, units);
        self.check_input(&normalised)?;
        Ok(normalised)
    }

    /// The outputs of the ONNX network for what a back end answered.
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
    /// Says what does not hold together.
    pub fn check(&self) -> Result<(), GraphError> {
        let fail = |what: String| Err(GraphError::Interface { what });
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
        for [low, high] in declared.iter().chain([range]) {
            if !(low.is_finite() && high.is_finite() && low <= high) {
                return fail(format!("an input range of [{low}, {high}]"));
            }
        }
        Ok(())
    }

    fn check_length(&self, given: usize) -> Result<(), GraphError> {
        if given != self.input_len() {
            return Err(GraphError::Input {
                what: format!("{given} values for an input of shape {:?}", self.input_shape),
            });
        }
        Ok(())
    }

    /// Checks one input, after normalisation.
    ///
    /// # Errors
    /// Wrong length, a value that is not finite, or one outside the range that the model accepts (both told
    /// in the network's units).
    pub fn check_input(&self, input: &[f32]) -> Result<(), GraphError> {
        self.check_length(input.len())?;
        let inner = self.inner();
        let refused = |(i, x): (usize, &f32)| {
            let [low, high] = self.input.accepted(i / inner);
            // Rounding in the client's own normalisation must not push the extreme pixel over the edge.
            let slack = (high - low).abs() * 1e-4;
            !(x.is_finite() && *x >= low - slack && *x <= high + slack)
        };
        let Some(i) = input.iter().enumerate().position(refused) else { return Ok(()) };
        let given = self.input.network_value(i / inner, input[i]);
        let [least, most] = self.input.accepted_by_network(i / inner);
        let remedy = match given.is_finite() {
            true => {
                "clip it, or have the model imported with samples that reach so far (--calibrate) or a wider --range"
            }
            false => "leave this input out, or put a finite number there",
        };
        let at = self.position(i);
        let what = format!("value {i} is {given}, the model accepts {least} to {most}{at}; {remedy}");
        Err(GraphError::Input { what })
    }

    /// The input nearest to zeros that the model accepts, as it computes on it.
    #[must_use]
    pub fn blank(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.input_len()];
        self.clip(&mut values);
        values
    }

    /// Brings values that the model computes on into the range that it accepts.
    pub fn clip(&self, values: &mut [f32]) {
        let inner = self.inner();
        for (i, v) in values.iter_mut().enumerate() {
            let [low, high] = self.input.accepted(i / inner);
            *v = v.max(low).min(high);
        }
    }

    /// Values of a channel.
    fn inner(&self) -> usize {
        (self.input_len() / self.input_shape[0].max(1)).max(1)
    }

    /// Where a value stands, in inputs of several axes: " (at [0, 2, 1])".
    fn position(&self, flat: usize) -> String {
        if self.input_shape.len() < 2 {
            return String::new();
        }
        let mut rest = flat;
        let mut at: Vec<usize> = self
            .input_shape
            .iter()
            .rev()
            .map(|&length| {
                let index = rest % length.max(1);
                rest /= length.max(1);
                index
            })
            .collect();
        at.reverse();
        format!(" (at {at:?})")
    }
}

#[cfg(test)]
mod tests;
