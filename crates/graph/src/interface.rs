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
    /// Smallest and largest value accepted behind all of that; others are refused, since they could leave
    /// what a back end computes with.
    pub range: [f32; 2],
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
        let InputSpec { mean, std, pixel_scale, moved, range: [low, high] } = &self.input;
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
        if !(low.is_finite() && high.is_finite() && low <= high) {
            return fail(format!("an input range of [{low}, {high}]"));
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
        let [low, high] = self.input.range;
        // Rounding in the client's own normalisation must not push the extreme pixel over the edge.
        let slack = (high - low).abs() * 1e-4;
        let refused = |x: f32| !(x.is_finite() && x >= low - slack && x <= high + slack);
        let Some(i) = input.iter().position(|&x| refused(x)) else { return Ok(()) };
        let inner = (input.len() / self.input_shape[0].max(1)).max(1);
        // A factor of zero lets no input reach the model, so its result is told as it is.
        let (factor, addend) = match &self.input.moved {
            Some(moved) if moved.scale[i / inner] != 0.0 => (moved.scale[i / inner], moved.shift[i / inner]),
            _ => (1.0, 0.0),
        };
        let [given, a, b] = [input[i], low, high].map(|v| (v - addend) / factor);
        let (least, most) = (a.min(b), a.max(b));
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
mod tests {
    use super::*;

    fn interface() -> Interface {
        Interface {
            name: "m".into(),
            input_shape: vec![2, 2],
            input: InputSpec { mean: vec![0.0; 2], std: vec![], pixel_scale: 1.0, moved: None, range: [-8.0, 8.0] },
            output_shape: vec![3],
            output_mode: OutputMode::Logits,
            outputs: vec![],
            final_activation: None,
        }
    }

    #[test]
    fn inputs_are_held_to_shape_and_range() {
        let i = interface();
        i.check().unwrap();
        assert!(i.check_input(&[8.0005, -8.0005, 0.0, 1.0]).is_ok());
        for wrong in [vec![0.0; 3], vec![0.0, 0.0, f32::NAN, 0.0], vec![f32::INFINITY; 4], vec![9.0; 4]] {
            assert!(i.check_input(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_channel_has_its_own_normalisation_in_any_shape() {
        let moved = Some(ChannelAffine { scale: vec![2.0, -0.5], shift: vec![1.0, 3.0] });
        for (shape, raw, wanted) in [
            (vec![2], vec![10.0, 20.0], vec![13.0, -1.0]),
            (vec![2, 2], vec![10.0, 20.0, 10.0, 20.0], vec![13.0, 33.0, 1.5, -1.0]),
            (vec![2, 1, 2], vec![10.0, 20.0, 10.0, 20.0], vec![13.0, 33.0, 1.5, -1.0]),
        ] {
            let mut i = interface();
            i.input_shape = shape;
            i.input = InputSpec { mean: vec![4.0, 4.0], std: vec![1.0, 2.0], moved: moved.clone(), ..i.input };
            i.input.range = [-50.0, 50.0];
            i.check().unwrap();
            assert_eq!(i.accept(&raw, Units::Pixels).unwrap(), wanted);
            let network: Vec<f32> =
                raw.iter().enumerate().map(|(k, v)| (v - 4.0) / if k >= raw.len() / 2 { 2.0 } else { 1.0 }).collect();
            assert_eq!(i.accept(&network, Units::Network).unwrap(), wanted);
            assert_eq!(i.accept(&wanted, Units::Normalised).unwrap(), wanted);
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_network_s_own_units() {
        let mut i = interface();
        i.input.moved = Some(ChannelAffine { scale: vec![1.0, -0.5], shift: vec![0.0, 3.0] });
        let told = i.accept(&[0.0, 0.0, 0.0, -11.0], Units::Network).unwrap_err().to_string();
        assert!(told.contains("value 3 is -11, the model accepts -10 to 22 (at [1, 1]); clip it"), "{told}");
        assert!(told.contains("--calibrate") && told.contains("--range"), "{told}");
        let told = i.accept(&[0.0, f32::NAN, 0.0, 0.0], Units::Network).unwrap_err().to_string();
        assert!(told.contains("value 1 is NaN") && told.contains("(at [0, 1])") && !told.contains("clip"), "{told}");
        assert!(i.accept(&[0.0; 3], Units::Network).is_err() && i.accept(&[0.0; 3], Units::Pixels).is_err());
    }

    #[test]
    fn each_activation_is_what_its_name_says() {
        let near = |a: FinalActivation, given: &[f64], wanted: &[f64]| {
            let got = a.apply(given);
            assert!(got.iter().zip(wanted).all(|(g, w)| (g - w).abs() < 1e-6), "{a:?}: {got:?}");
        };
        near(FinalActivation::Sigmoid, &[0.0, 2.0, -800.0], &[0.5, 0.880_797, 0.0]);
        near(FinalActivation::Tanh, &[0.0, -0.5], &[0.0, -0.462_117]);
        near(FinalActivation::SigmoidL1, &[0.0, 0.0, 800.0], &[0.25, 0.25, 0.5]);
        near(FinalActivation::L1, &[1.0, -3.0], &[0.25, -0.75]);
        near(FinalActivation::L2, &[3.0, -4.0], &[0.6, -0.8]);
        near(FinalActivation::Largest, &[-2.0, 4.0], &[-0.5, 1.0]);
        near(FinalActivation::L2, &[0.0, 0.0], &[0.0, 0.0]);
        // Two classes, two positions, class by class; then position by position.
        let along = |inner, logarithm| FinalActivation::SoftmaxAlong { length: 2, inner, logarithm };
        near(along(2, false), &[0.0, 2.0, 0.0, 0.0], &[0.5, 0.880_797, 0.5, 0.119_203]);
        near(along(1, false), &[0.0, 2.0, 0.0, 0.0], &[0.119_203, 0.880_797, 0.5, 0.5]);
        near(along(1, true), &[0.0, 0.0], &[-std::f64::consts::LN_2; 2]);
    }

    #[test]
    fn several_outputs_fill_the_result() {
        let part = |name: &str, shape: &[usize]| OutputTensor { name: name.into(), shape: shape.to_vec() };
        let mut i = interface();
        i.outputs = vec![part("a", &[1]), part("b", &[2, 1])];
        i.check().unwrap();
        i.outputs[1].shape = vec![3];
        assert!(i.check().is_err());
        i.outputs[1].shape = vec![usize::MAX];
        assert!(i.check().is_err());
    }

    #[test]
    fn the_client_ends_the_network() {
        let mut i = interface();
        let logits = [1000.0, 1001.0, 998.0];
        assert_eq!(i.finish(&logits), logits);
        i.final_activation = Some(FinalActivation::Softmax);
        let sum: f64 = [0.0f64, 1.0, -2.0].iter().map(|v| v.exp()).sum();
        for (got, v) in i.finish(&logits).iter().zip([0.0f64, 1.0, -2.0]) {
            assert!((got - v.exp() / sum).abs() < 1e-12, "{got}");
        }
        i.final_activation = Some(FinalActivation::LogSoftmax);
        for (got, v) in i.finish(&logits).iter().zip([0.0f64, 1.0, -2.0]) {
            assert!((got - (v - sum.ln())).abs() < 1e-9, "{got}");
        }
        (i.output_mode, i.output_shape) = (OutputMode::Top1, vec![1]);
        assert_eq!(i.finish(&[7.0]), [7.0], "a class is a class");
    }

    #[test]
    fn what_does_not_hold_together_is_refused() {
        let changes: [fn(&mut Interface); 10] = [
            |i| i.input.moved = Some(ChannelAffine { scale: vec![1.0], shift: vec![0.0] }),
            |i| i.input.moved = Some(ChannelAffine { scale: vec![1.0; 2], shift: vec![0.0, f32::NAN] }),
            |i| i.input_shape = vec![],
            |i| i.output_shape = vec![0],
            |i| i.output_shape = vec![usize::MAX, 2],
            |i| i.output_mode = OutputMode::Top1,
            |i| i.input.mean.push(0.0),
            |i| i.input.std = vec![1.0, 0.0],
            |i| i.input.pixel_scale = f32::NAN,
            |i| i.input.range = [1.0, f32::INFINITY],
        ];
        for change in changes {
            let mut i = interface();
            change(&mut i);
            assert!(i.check().is_err(), "{i:?}");
        }
    }
}
