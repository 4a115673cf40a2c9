//! The protocol's JSON, with tensors as lists of numbers or as bytes behind the JSON (the binary
//! tensor extension). Memory stays in proportion to the length of a text: numbers are stored as
//! numbers, parameters are scalars, and lists nest no deeper than the axes of a tensor.
use crate::ApiError;
use crate::fleet::{Request, VERSION};
use crate::metadata::Wanted;
use crate::tensor::{MAX_AXES, Tensor, Values, short};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar {
    Flag(bool),
    Whole(i64),
    Real(f64),
    Text(String),
}

pub(crate) type Parameters = BTreeMap<String, Scalar>;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default)]
    id: String,
    #[serde(default)]
    parameters: Parameters,
    inputs: Vec<Input>,
    #[serde(default)]
    outputs: Vec<Output>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    name: String,
    shape: Vec<usize>,
    datatype: String,
    #[serde(default)]
    parameters: Parameters,
    data: Option<Numbers>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Output {
    name: String,
    #[serde(default)]
    parameters: Parameters,
}

/// The settings of a request beside its tensors, for either protocol.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Settings {
    pub timeout: Option<Duration>,
    pub priority: u64,
    pub binary: bool,
}

impl Settings {
    /// Reads the settings from the parameters of a request.
    ///
    /// # Errors
    /// A parameter is unknown, or has an invalid value.
    pub(crate) fn from_parameters(parameters: &Parameters) -> Result<Self, ApiError> {
        let mut settings = Self::default();
        for (name, value) in parameters {
            match (name.as_str(), value) {
                ("timeout", Scalar::Whole(0)) => {}
                ("timeout", Scalar::Whole(us @ 1..)) => {
                    settings.timeout = Some(Duration::from_micros(us.unsigned_abs()));
                }
                ("priority", Scalar::Whole(priority @ 0..)) => settings.priority = priority.unsigned_abs(),
                ("binary_data_output", Scalar::Flag(binary)) => settings.binary = *binary,
                _ => {
                    let known_names = "timeout (microseconds), priority (0 and more), binary_data_output";
                    return Err(unknown_parameter("of the request", name, known_names));
                }
            }
        }
        Ok(settings)
    }
}

pub(crate) fn wanted_output(name: String, parameters: &Parameters) -> Result<Wanted, ApiError> {
    let mut wanted = Wanted { name, ..Wanted::default() };
    for (name, value) in parameters {
        match (name.as_str(), value) {
            ("binary_data", Scalar::Flag(binary)) => wanted.binary = Some(*binary),
            ("classification", Scalar::Whole(count @ 0..)) => {
                wanted.classes = usize::try_from(*count).unwrap_or(usize::MAX);
            }
            _ => return Err(unknown_parameter("of an output", name, "binary_data, classification")),
        }
    }
    Ok(wanted)
}

/// The error of a parameter that is unknown or has an unusable value.
pub(crate) fn unknown_parameter(whose: &str, name: &str, known_names: &str) -> ApiError {
    if name.starts_with("shared_memory") {
        return ApiError::Unsupported(format!("shared memory (parameter `{name}`)"));
    }
    let name = short(name);
    ApiError::Bad(format!("parameter `{name}` {whose} is unknown or has no value that is taken; known: {known_names}"))
}

/// Reads a request whose JSON has `header` bytes; tensors follow it.
///
/// # Errors
/// The bytes are not a request, or the request is not supported.
pub fn read(bytes: &[u8], header: Option<usize>) -> Result<Request, ApiError> {
    let Some((text, mut rest)) = bytes.split_at_checked(header.unwrap_or(bytes.len())) else {
        return Err(ApiError::Bad("Inference-Header-Content-Length is more than the body has".into()));
    };
    let body: Body =
        serde_json::from_slice(text).map_err(|e| ApiError::Bad(format!("the JSON of the request: {}", cut(&e))))?;
    let settings = Settings::from_parameters(&body.parameters)?;
    let mut inputs = Vec::with_capacity(body.inputs.len());
    for input in body.inputs {
        let Input { name, shape, datatype, parameters, data } = input;
        let size = binary_size(&parameters)?;
        let values = match (data, size) {
            (Some(Numbers(numbers)), None) => Values::from_numbers(&datatype, numbers)?,
            (None, Some(size)) => {
                let Some((tensor_bytes, remainder)) = rest.split_at_checked(size) else {
                    return Err(ApiError::Bad("binary_data_size is more than the body has behind its JSON".into()));
                };
                rest = remainder;
                Values::from_bytes(&datatype, tensor_bytes)?
            }
            _ => return Err(ApiError::Bad("an input has either `data` or the parameter binary_data_size".into())),
        };
        inputs.push(Tensor { name, shape, values });
    }
    if !rest.is_empty() {
        return Err(ApiError::Bad(format!("{} bytes behind the last tensor", rest.len())));
    }
    let outputs = body.outputs.into_iter().map(|output| wanted_output(output.name, &output.parameters));
    let outputs = outputs.collect::<Result<_, ApiError>>()?;
    let Settings { timeout, priority, binary } = settings;
    Ok(Request { id: body.id, inputs, outputs, timeout, priority, binary })
}

/// Bytes of an input that follows the JSON, if its parameters say so.
fn binary_size(parameters: &Parameters) -> Result<Option<usize>, ApiError> {
    let mut size = None;
    for (name, value) in parameters {
        match (name.as_str(), value) {
            ("binary_data_size", Scalar::Whole(bytes @ 0..)) => size = usize::try_from(*bytes).ok(),
            _ => return Err(unknown_parameter("of an input", name, "binary_data_size")),
        }
    }
    Ok(size)
}

/// Text of a JSON error, shortened, since it may quote the input.
pub(crate) fn cut(error: &serde_json::Error) -> String {
    short(&error.to_string())
}

/// Writes an answer with parameters: JSON, and the bytes that follow it. `binary` is the default
/// for outputs that do not choose. Values that are not numbers are `null` in JSON.
#[must_use]
pub fn write(
    model: &str,
    id: &str,
    outputs: &[(Tensor, Wanted)],
    parameters: &[(&'static str, String)],
    binary: bool,
) -> (Vec<u8>, Vec<u8>) {
    let mut raw = Vec::new();
    let tensors = outputs.iter().map(|(tensor, wanted)| {
        let Tensor { name, shape, values } = tensor;
        let mut object = json!({ "name": name, "datatype": values.datatype(), "shape": shape });
        if wanted.binary.unwrap_or(binary) {
            let bytes = values.to_bytes();
            object["parameters"] = json!({ "binary_data_size": bytes.len() });
            raw.extend_from_slice(&bytes);
        } else {
            object["data"] = match values {
                Values::F32(v) => json!(v),
                Values::F64(v) => json!(v),
                Values::U8(v) => json!(v),
                Values::I64(v) => json!(v),
                Values::Text(v) => json!(v),
            };
        }
        object
    });
    let tensors: Vec<Value> = tensors.collect();
    let mut object = json!({ "model_name": model, "model_version": VERSION, "outputs": tensors });
    if !id.is_empty() {
        object["id"] = json!(id);
    }
    if !parameters.is_empty() {
        let named = parameters.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        object["parameters"] = Value::Object(named.collect());
    }
    (object.to_string().into_bytes(), raw)
}

/// Numbers of a list, possibly nested, in order of appearance.
pub(crate) struct Numbers(pub(crate) Vec<f64>);

/// Appends numbers to a list; the second field is how many more lists may nest.
struct NumberVisitor<'a>(&'a mut Vec<f64>, usize);

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut numbers = Vec::new();
        deserializer.deserialize_seq(NumberVisitor(&mut numbers, MAX_AXES))?;
        Ok(Self(numbers))
    }
}

impl<'de> DeserializeSeed<'de> for NumberVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NumberVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "numbers, or lists of them to a depth of {MAX_AXES}")
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<(), E> {
        self.0.push(v);
        Ok(())
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<(), E> {
        self.visit_f64(v as f64)
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<(), E> {
        self.visit_f64(v as f64)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some(depth) = self.1.checked_sub(1) else {
            return Err(A::Error::custom("lists in lists, deeper than tensors have axes"));
        };
        while list.next_element_seed(NumberVisitor(self.0, depth))?.is_some() {}
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, a number or a text")
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Scalar, E> {
        Ok(Scalar::Flag(v))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Scalar, E> {
        Ok(Scalar::Whole(v))
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Scalar, E> {
        Ok(i64::try_from(v).map_or(Scalar::Real(v as f64), Scalar::Whole))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Scalar, E> {
        Ok(Scalar::Real(v))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(v.to_owned()))
    }
}

#[cfg(test)]
mod tests;
