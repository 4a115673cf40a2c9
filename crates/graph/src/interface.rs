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
    /// The ONNX file ended with a softmax, which is left to the client.
    pub softmax_by_client: bool,
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
            softmax_by_client: false,
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
