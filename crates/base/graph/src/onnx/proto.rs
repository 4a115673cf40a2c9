//! The part of the ONNX protobuf schema (onnx.proto3) that a feed-forward network needs, as `prost`
//! messages. Fields that are not declared here (subgraphs, doc strings, training info, value info)
//! are skipped when a file is read.

use prost::Message;

/// A model file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the file format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// Program that wrote the file.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// The network.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Versions of the operator sets.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
}

/// Version of one operator set.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Empty for the standard operators.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Version.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// A network.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// Operations.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Constant tensors.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Inputs (older files list the initialisers too).
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// Outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
}

/// One operation.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of the input tensors; empty for an optional input that is absent.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of the result tensors.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Name, often empty.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// Operator set, empty for the standard one.
    #[prost(string, tag = "7")]
    pub domain: String,
}

impl NodeProto {
    /// A standard operation without a name and attributes.
    #[must_use]
    pub fn new(op: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        let owned = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).into()).collect() };
        Self { op_type: op.into(), input: owned(inputs), output: owned(outputs), ..Self::default() }
    }
}

/// An attribute of an operation.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A real number.
    #[prost(float, tag = "2")]
    pub f: f32,
    /// An integer.
    #[prost(int64, tag = "3")]
    pub i: i64,
    /// A string.
    #[prost(bytes = "vec", tag = "4")]
    pub s: Vec<u8>,
    /// A tensor.
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// Real numbers.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// Integers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Strings.
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub strings: Vec<Vec<u8>>,
    /// The field in use: 1 f, 2 i, 3 s, 4 t, 6 floats, 7 ints, 8 strings.
    #[prost(int32, tag = "20")]
    pub r#type: i32,
}

impl AttributeProto {
    /// An integer.
    #[must_use]
    pub fn int(name: &str, i: i64) -> Self {
        Self { name: name.into(), i, r#type: 2, ..Self::default() }
    }

    /// A list of integers.
    #[must_use]
    pub fn ints(name: &str, ints: &[i64]) -> Self {
        Self { name: name.into(), ints: ints.to_vec(), r#type: 7, ..Self::default() }
    }

    /// A list of floats.
    #[must_use]
    pub fn floats(name: &str, floats: &[f32]) -> Self {
        Self { name: name.into(), floats: floats.to_vec(), r#type: 6, ..Self::default() }
    }
}

/// A constant tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Shape.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// Element type: 1 float, 6 int32, 7 int64, 11 double, ...
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// Elements of a float tensor.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Elements of an int32 (and smaller) tensor.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Elements of an int64 tensor.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// Name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Elements as little-endian bytes.
    #[prost(bytes = "vec", tag = "9")]
    pub raw_data: Vec<u8>,
    /// Elements of a double tensor.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// Location of the elements, if they are in another file: `location`, `offset`, `length`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<EntryProto>,
    /// 1 if the elements are in another file.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

impl TensorProto {
    /// A tensor of floats.
    #[must_use]
    pub fn floats(name: &str, dims: &[i64], float_data: Vec<f32>) -> Self {
        Self { name: name.into(), dims: dims.to_vec(), data_type: 1, float_data, ..Self::default() }
    }

    /// A list of integers.
    #[must_use]
    pub fn ints(name: &str, values: &[i64]) -> Self {
        let (dims, int64_data) = (vec![values.len() as i64], values.to_vec());
        Self { name: name.into(), dims, data_type: 7, int64_data, ..Self::default() }
    }
}

/// A key and its value.
#[derive(Clone, PartialEq, Message)]
pub struct EntryProto {
    /// Key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Name and type of an input or output.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

impl ValueInfoProto {
    /// A tensor of floats.
    #[must_use]
    pub fn floats(name: &str, dims: &[i64]) -> Self {
        let dim = dims.iter().map(|&dim_value| DimensionProto { dim_value, ..DimensionProto::default() }).collect();
        let tensor_type = Some(TensorTypeProto { elem_type: 1, shape: Some(TensorShapeProto { dim }) });
        Self { name: name.into(), r#type: Some(TypeProto { tensor_type }) }
    }
}

/// Type of a value.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// A tensor's type.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
}

/// Type of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// Element type, as in `TensorProto::data_type`.
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// Shape.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// A shape with possibly symbolic axes.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// Axes.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// One axis: a length, or a name.
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// Length, 0 if symbolic.
    #[prost(int64, tag = "1")]
    pub dim_value: i64,
    /// Name of a symbolic length.
    #[prost(string, tag = "2")]
    pub dim_param: String,
}
