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

/// How a client turns its raw input into the network's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputSpec {
    /// Subtracted per channel before division (empty: none). Applied by the client.
    pub mean: Vec<f32>,
    /// Divisor per channel (empty: none). Applied by the client.
    pub std: Vec<f32>,
    /// Multiplied onto raw 8-bit pixels first, e.g. 1/255.
    pub pixel_scale: f32,
    /// Smallest and largest value accepted after normalisation; others are refused, since they could leave what a back end computes
    /// with.
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
}

impl FinalActivation {
    /// The activated values.
    #[must_use]
    pub fn apply(self, values: &[f64]) -> Vec<f64> {
        let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log_sum = largest + values.iter().map(|v| (v - largest).exp()).sum::<f64>().ln();
        let sigmoid = |v: &f64| 1.0 / (1.0 + (-v).exp());
        let over = |values: &[f64], norm: f64| values.iter().map(|v| if norm == 0.0 { *v } else { v / norm }).collect();
        match self {
            FinalActivation::Softmax => values.iter().map(|v| (v - log_sum).exp()).collect(),
            FinalActivation::LogSoftmax => values.iter().map(|v| v - log_sum).collect(),
            FinalActivation::Sigmoid => values.iter().map(sigmoid).collect(),
            FinalActivation::Tanh => values.iter().map(|v| v.tanh()).collect(),
            FinalActivation::SigmoidL1 => {
                let each: Vec<f64> = values.iter().map(sigmoid).collect();
                over(&each, each.iter().sum())
            }
            FinalActivation::L1 => over(values, values.iter().map(|v| v.abs()).sum()),
            FinalActivation::L2 => over(values, values.iter().map(|v| v * v).sum::<f64>().sqrt()),
            FinalActivation::Largest => over(values, largest),
        }
    }

    /// Whether each value is activated without the others.
    #[must_use]
    pub fn by_element(self) -> bool {
        matches!(self, FinalActivation::Sigmoid | FinalActivation::Tanh)
    }

    /// Its name in ONNX.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FinalActivation::Softmax => "Softmax",
            FinalActivation::LogSoftmax => "LogSoftmax",
            FinalActivation::Sigmoid => "Sigmoid",
            FinalActivation::Tanh => "Tanh",
            FinalActivation::SigmoidL1 => "Sigmoid and Normalizer",
            FinalActivation::L1 | FinalActivation::L2 | FinalActivation::Largest => "Normalizer",
        }
    }
}

/// Inputs and outputs of a model, the same for every back end. Inputs are `f32` in the network's units, after the client's
/// normalisation; outputs are `f64` with the public multiplier applied, or the class index in mode top-1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// Name of the model, for people.
    pub name: String,
    /// Shape of one input: `[C, H, W]`, `[C, L]` or `[F]`.
    pub input_shape: Vec<usize>,
    /// Input normalisation and range.
    pub input: InputSpec,
    /// Shape of one result: that of the last tensor, `[1]` in mode top-1.
    pub output_shape: Vec<usize>,
    /// What is revealed.
    pub output_mode: OutputMode,
    /// Where the ONNX network has several outputs: those, in its order. The result joins them, flattened. Empty where there is one.
    pub outputs: Vec<OutputTensor>,
    /// What the ONNX network does to its outputs last, left to the client.
    pub final_activation: Option<FinalActivation>,
}

/// An output of the ONNX network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputTensor {
    /// Its name in the file.
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
        let InputSpec { mean, std, pixel_scale, range: [low, high] } = &self.input;
        let channels = self.input_shape[0];
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

    /// Checks one input, after normalisation.
    ///
    /// # Errors
    /// Wrong length, a value that is not finite, or one outside the range that the model accepts.
    pub fn check_input(&self, input: &[f32]) -> Result<(), GraphError> {
        if input.len() != self.input_len() {
            return Err(GraphError::Input {
                what: format!("{} values for an input of shape {:?}", input.len(), self.input_shape),
            });
        }
        let [low, high] = self.input.range;
        // Rounding in the client's own normalisation must not push the extreme pixel over the edge.
        let slack = (high - low).abs() * 1e-4;
        let refused = |x: f32| !(x.is_finite() && x >= low - slack && x <= high + slack);
        match input.iter().position(|&x| refused(x)) {
            None => Ok(()),
            Some(i) => {
                Err(GraphError::Input { what: format!("value {i} is {}, the model accepts {low} to {high}", input[i]) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface() -> Interface {
        Interface {
            name: "m".into(),
            input_shape: vec![2, 2],
            input: InputSpec { mean: vec![0.0; 2], std: vec![], pixel_scale: 1.0, range: [-8.0, 8.0] },
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
    fn what_does_not_hold_together_is_refused() {
        let changes: [fn(&mut Interface); 8] = [
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
