//! A model's description for applications, and the conversion between their tensors and the model's
//! inputs and outputs.
use crate::ApiError;
use crate::rows::Accepted;
use crate::tensor::{Tensor, Values, elements, short};
use tacit_backends::Trust;
use tacit_client::Answer;
use tacit_graph::{InputSpec, Interface, OutputMode, Units};

/// Name of the one input that every model has.
pub const INPUT: &str = "input";
/// Name of the output, if the model's interface names none.
pub const OUTPUT: &str = "output";
/// Name of the output of a model that reveals the class alone.
pub const CLASS: &str = "class";

/// Text of a refused row in place of `value:class`.
const NO_CLASS: &str = "nan:-1";

/// Most bytes of one value as text, separators included.
const TEXT_BYTES: usize = 28;
/// Bytes of a request beside its values.
pub(crate) const FRAME_BYTES: usize = 64 << 10;
/// Most bytes of a request, whatever the model.
pub const MAX_BODY_BYTES: usize = 64 << 20;

/// An output that a request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Name of the output.
    pub name: String,
    /// Whether its values are sent as bytes; `None`: as the request says.
    pub binary: Option<bool>,
    /// Number of largest classes to send in place of the values; 0: send the values.
    pub classes: usize,
}

/// Description of a tensor; -1 stands for an axis that the request chooses.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TensorDescription {
    /// Name of the tensor.
    pub name: String,
    /// Datatype, as the protocol names it.
    pub datatype: &'static str,
    /// Length of each axis, the batch first.
    pub shape: Vec<i64>,
}

/// Description of a model by its server.
#[derive(Debug, Clone)]
pub struct ModelMetadata {
    /// Inputs and outputs.
    pub interface: Interface,
    /// The back end in use.
    pub backend: String,
    /// The parties that its users trust, by this program's registry.
    pub trust: Trust,
    /// Whether the back end needs material.
    pub prepares: bool,
    /// Names of classes; empty if there are none.
    pub labels: Vec<String>,
}

impl ModelMetadata {
    /// Describes the input.
    #[must_use]
    pub fn input(&self) -> TensorDescription {
        describe_tensor(INPUT, &self.interface.input_shape)
    }

    /// Describes the outputs.
    #[must_use]
    pub fn outputs(&self) -> Vec<TensorDescription> {
        let Interface { outputs, output_shape, output_mode, .. } = &self.interface;
        match (output_mode, outputs.as_slice()) {
            (OutputMode::Top1, _) => vec![TensorDescription { datatype: "INT64", ..describe_tensor(CLASS, &[1]) }],
            (OutputMode::Logits, []) => vec![describe_tensor(OUTPUT, output_shape)],
            (OutputMode::Logits, several) => several.iter().map(|o| describe_tensor(&o.name, &o.shape)).collect(),
        }
    }

    /// Most bytes of a request with this number of inputs for this model.
    #[must_use]
    pub fn body_limit(&self, inputs: usize) -> usize {
        let values = self.interface.input_len().saturating_mul(inputs);
        values.saturating_mul(TEXT_BYTES).saturating_add(FRAME_BYTES).min(MAX_BODY_BYTES)
    }

    /// Whether inputs have the shape of pictures.
    #[must_use]
    pub fn has_picture_shape(&self) -> bool {
        matches!(self.interface.input_shape.as_slice(), [1 | 3, _, _])
    }

    /// Whether pictures can be converted: the model states the scale of pixels, or accepts 0 to 255
    /// unchanged. Otherwise a picture's numbers would be misread.
    #[must_use]
    pub fn takes_pixels(&self) -> bool {
        let InputSpec { mean, std, pixel_scale, .. } = &self.interface.input;
        let is_stated = !mean.is_empty() || !std.is_empty() || *pixel_scale != 1.0;
        self.has_picture_shape() && (is_stated || (self.takes_uniform(0.0) && self.takes_uniform(255.0)))
    }

    /// Whether the model accepts a picture of equal pixels.
    fn takes_uniform(&self, pixel: f32) -> bool {
        let uniform = vec![pixel; self.interface.input_len()];
        self.interface.accept(&uniform, Units::Pixels).is_ok()
    }

    /// Explains why the model takes no pictures.
    #[must_use]
    pub fn no_pictures(&self) -> &'static str {
        match self.has_picture_shape() {
            true => "this model does not say how pixels become its inputs, so it takes numbers and no pictures",
            false => "this model's inputs are not pictures, so it takes numbers",
        }
    }

    /// Converts tensors, a batch of at most `max_rows` rows, to normalised inputs, one for each
    /// accepted row.
    ///
    /// # Errors
    /// The tensors do not fit the model's input, or all rows are refused.
    pub fn accept(&self, tensors: Vec<Tensor>, max_rows: usize) -> Result<Accepted, ApiError> {
        let count = tensors.len();
        let Ok([Tensor { name, shape, values }]) = <[Tensor; 1]>::try_from(tensors) else {
            return refuse_tensors(format!("{count} inputs: the model has one, `{INPUT}`"));
        };
        if name != INPUT {
            return refuse_tensors(format!("there is no input `{}`: the model has one, `{INPUT}`", short(&name)));
        }
        let wanted = &self.interface.input_shape;
        let [batch, row @ ..] = shape.as_slice() else {
            return refuse_tensors(format!("a shape without axes: the model takes {:?}", self.input().shape));
        };
        if row != wanted.as_slice() {
            let shape: Vec<usize> = shape.iter().copied().take(8).collect();
            return refuse_tensors(format!("shape {shape:?}: the model takes {:?}", self.input().shape));
        }
        if !(1..=max_rows).contains(batch) {
            return refuse_tensors(format!("a batch of {batch} inputs: 1 to {max_rows} are taken"));
        }
        if values.len() != elements(&shape)? {
            return refuse_tensors(format!("{} values for a tensor of shape {shape:?}", values.len()));
        }
        let units = match values {
            Values::U8(_) if self.takes_pixels() => Units::Pixels,
            Values::U8(_) => return refuse_tensors(format!("UINT8 is for pixels: {}", self.no_pictures())),
            _ => Units::Network,
        };
        let values = values.into_f32()?;
        Accepted::from_rows(values.chunks(self.interface.input_len()).map(|row| self.interface.accept(row, units)))
    }

    /// Converts the answers of a batch to the wanted outputs (all if none is named), each with its
    /// request. A refused row has no answer.
    ///
    /// # Errors
    /// There is no such output, or it has no classes.
    pub fn reply(&self, wanted: &[Wanted], answers: &[Option<&Answer>]) -> Result<Vec<(Tensor, Wanted)>, ApiError> {
        let defaults: Vec<Wanted>;
        let wanted = if wanted.is_empty() {
            defaults = self.outputs().into_iter().map(|o| Wanted { name: o.name, ..Wanted::default() }).collect();
            &defaults
        } else {
            wanted
        };
        wanted.iter().map(|w| Ok((self.output(w, answers)?, w.clone()))).collect()
    }

    /// Checks the outputs that a request wants, before anything is sent.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn check_wanted(&self, wanted: &[Wanted]) -> Result<(), ApiError> {
        let names: Vec<&str> = wanted.iter().map(|w| w.name.as_str()).collect();
        if let Some(repeated) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            return Err(ApiError::Bad(format!("output `{}` is asked for twice", short(repeated.1))));
        }
        self.reply(wanted, &[]).map(drop)
    }

    fn output(&self, wanted: &Wanted, answers: &[Option<&Answer>]) -> Result<Tensor, ApiError> {
        let outputs = self.outputs();
        let Some(index) = outputs.iter().position(|o| o.name == wanted.name) else {
            let names: Vec<String> = outputs.into_iter().map(|o| o.name).collect();
            let name = short(&wanted.name);
            return Err(ApiError::Bad(format!("there is no output `{name}`; there are: {}", names.join(", "))));
        };
        let lengths: Vec<usize> = outputs.iter().map(|o| o.shape[1..].iter().map(|&n| n as usize).product()).collect();
        let (start, len) = (lengths[..index].iter().sum::<usize>(), lengths[index]);
        let name = wanted.name.clone();
        let mut shape: Vec<usize> = outputs[index].shape[1..].iter().map(|&n| n as usize).collect();
        shape.insert(0, answers.len());
        if self.interface.output_mode == OutputMode::Top1 {
            if wanted.classes > 0 {
                return Err(ApiError::Bad("the model reveals the class alone: it cannot be ranked".into()));
            }
            let classes = answers.iter().map(|answer| answer.map_or(-1, |a| a.class as i64));
            return Ok(Tensor { name, shape, values: Values::I64(classes.collect()) });
        }
        let refused = vec![f64::NAN; len];
        let parts = answers.iter().map(|answer| answer.map_or(&refused[..], |a| &a.values[start..start + len]));
        if wanted.classes > 0 {
            let count = wanted.classes.min(len);
            let texts = parts.flat_map(|row_values| match row_values.first() {
                Some(first) if first.is_nan() => vec![NO_CLASS.to_owned(); count],
                _ => self.format_ranked(row_values, count),
            });
            return Ok(Tensor { name, shape: vec![answers.len(), count], values: Values::Text(texts.collect()) });
        }
        let values = Values::F32(parts.flatten().map(|&v| v as f32).collect());
        Ok(Tensor { name, shape, values })
    }

    /// Formats `value:class` or `value:class:label`, largest first.
    fn format_ranked(&self, values: &[f64], count: usize) -> Vec<String> {
        let ranked = largest(values, count).into_iter().map(|(class, value)| match self.labels.get(class) {
            Some(label) => format!("{value:.6}:{class}:{label}"),
            None => format!("{value:.6}:{class}"),
        });
        ranked.collect()
    }
}

fn describe_tensor(name: &str, shape: &[usize]) -> TensorDescription {
    TensorDescription { name: name.into(), datatype: "FP32", shape: batched(shape) }
}

fn refuse_tensors(message: String) -> Result<Accepted, ApiError> {
    Err(ApiError::Bad(message))
}

/// The largest values with their indices, the first of equals first.
pub(crate) fn largest(values: &[f64], count: usize) -> Vec<(usize, f64)> {
    let mut order: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    order.sort_by(|a, b| tacit_floats::falling(&a.1, &b.1).then(a.0.cmp(&b.0)));
    order.truncate(count);
    order
}

/// The shape of a batch of tensors of this shape.
fn batched(shape: &[usize]) -> Vec<i64> {
    std::iter::once(-1).chain(shape.iter().map(|&n| n as i64)).collect()
}

#[cfg(test)]
mod tests;
