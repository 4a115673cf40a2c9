//! Operators of classical machine learning (`ai.onnx.ml`), as scikit-learn's exporter writes them.

use super::proto::NodeProto;
use super::view::Tensor;
use super::{Reader, Value, attribute, axes_of, fail, floats, int, ints, string_bytes, unsupported};
use crate::{FinalActivation, GraphError};

pub(super) const DOMAIN: &str = "ai.onnx.ml";

pub(super) const LABELS: &str = "class labels are not computed: take the largest of the scores";

impl Reader<'_> {
    pub(super) fn classical(&mut self, n: &NodeProto) -> Result<Vec<Value>, GraphError> {
        match n.op_type.as_str() {
            "Scaler" => Ok(vec![Value::Wire(self.scaler(n)?)]),
            "Normalizer" => self.normalizer(n).map(|v| vec![v]),
            "LinearRegressor" => {
                let targets = usize::try_from(int(n, "targets", 1)).ok().filter(|t| *t > 0);
                let scores = self.linear(n, targets)?;
                self.post_transform(n, scores).map(|v| vec![v])
            }
            "LinearClassifier" => {
                let scores = self.linear(n, None)?;
                let labels = ints(n, "classlabels_ints").map_or(0, <[i64]>::len)
                    + attribute(n, "classlabels_strings").map_or(0, |a| a.strings.len());
                if scores.shape[1] == 1 && labels == 2 {
                    return Err(unsupported(
                        n,
                        "two classes from one row of coefficients: export it with a row for each class, or as LinearRegressor",
                    ));
                }
                Ok(vec![Value::Unusable(LABELS), self.post_transform(n, scores)?])
            }
            // ZipMap makes a map from classes to scores; the client gets the scores in order.
            "ZipMap" | "Cast" | "FeatureVectorizer" if n.input.len() == 1 => {
                let value = self.values.get(&n.input[0]).cloned().ok_or_else(|| fail(n, "its input is missing"))?;
                Ok(vec![value])
            }
            "ArrayFeatureExtractor" => self.extract_features(n).map(|v| vec![v]),
            op => Err(unsupported(n, advice(op))),
        }
    }

    /// Picks features from the last axis, or the label of the class that an ArgMax found.
    fn extract_features(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        if self.is_constant(n, 0) && self.tensor(n, 1).is_ok_and(|x| self.is_class(&x)) {
            return Ok(Value::Unusable(LABELS));
        }
        let (x, index_tensor) = (self.tensor(n, 0)?, self.constant_input(n, 1)?);
        let axis_index = x.shape.len().checked_sub(1).ok_or_else(|| fail(n, "its input has no axes"))?;
        let list = index_tensor.as_ints().ok_or_else(|| fail(n, "its indices are not integers"))?;
        let indices = axes_of(n, list, x.shape[axis_index])?;
        self.select(n, &x, axis_index, &indices).map(Value::Wire)
    }

    /// Adds `(x - offset) * scale` along the last axis.
    fn scaler(&mut self, n: &NodeProto) -> Result<Tensor, GraphError> {
        let x = self.tensor(n, 0)?;
        let axis = x.shape.len().checked_sub(1).ok_or_else(|| fail(n, "its input has no axes"))?;
        let len = x.shape[axis];
        let offset = expand_list(n, floats(n, "offset")?, 0.0, len)?;
        let scale = expand_list(n, floats(n, "scale")?, 1.0, len)?;
        let shift = offset.iter().zip(&scale).map(|(o, s)| -o * s).collect();
        let x = Tensor { integer: false, ..x };
        if len == 1 {
            return self.affine(n, &x, scale[0], -offset[0] * scale[0]);
        }
        self.affine_along(n, &x, axis, scale, shift)
    }

    /// Divides by a norm of the whole row; at the end of the network the client does this.
    fn normalizer(&mut self, n: &NodeProto) -> Result<Value, GraphError> {
        let norm = string_bytes(n, "norm", b"MAX");
        let input_value = self.value(n, 0).cloned();
        Ok(match (input_value, norm) {
            (Some(Value::Activated(x, FinalActivation::Softmax)), b"L1") => {
                Value::Activated(x, FinalActivation::Softmax)
            }
            (Some(Value::Activated(x, FinalActivation::Sigmoid)), b"L1") => {
                Value::Activated(x, FinalActivation::SigmoidL1)
            }
            (Some(Value::Wire(x)), b"L1") => Value::Activated(x, FinalActivation::L1),
            (Some(Value::Wire(x)), b"L2") => Value::Activated(x, FinalActivation::L2),
            (Some(Value::Wire(x)), b"MAX") => Value::Activated(x, FinalActivation::Largest),
            _ => {
                return Err(unsupported(
                    n,
                    "a norm of this kind here is not supported; normalise outside of the network",
                ));
            }
        })
    }

    /// Adds a linear layer with coefficients `[rows, features]` and intercepts.
    fn linear(&mut self, n: &NodeProto, rows: Option<usize>) -> Result<Tensor, GraphError> {
        let x = self.tensor(n, 0)?;
        let x = Tensor { integer: false, ..x };
        let [_, features] = x.shape[..] else {
            return Err(fail(n, format!("needs an input [N, features], got {:?}", x.shape)));
        };
        let weights = floats(n, "coefficients")?.ok_or_else(|| fail(n, "has no coefficients"))?;
        let rows = rows.unwrap_or(weights.len() / features);
        let bias = floats(n, "intercepts")?.filter(|b| !b.is_empty()).unwrap_or_else(|| vec![0.0; rows]);
        if rows == 0 || bias.len() != rows || weights.len() != rows.saturating_mul(features) {
            let (weight_count, rows) = (weights.len(), bias.len());
            return Err(fail(
                n,
                format!("{weight_count} coefficients and {rows} intercepts for inputs of {features} features"),
            ));
        }
        self.dense(n, &x, 1, weights, bias)
    }

    fn post_transform(&mut self, n: &NodeProto, scores: Tensor) -> Result<Value, GraphError> {
        Ok(match string_bytes(n, "post_transform", b"NONE") {
            b"NONE" => Value::Wire(scores),
            b"SOFTMAX" => Value::Activated(scores, FinalActivation::Softmax),
            b"LOGISTIC" => Value::Activated(scores, FinalActivation::Sigmoid),
            other => {
                let name = String::from_utf8_lossy(other).into_owned();
                return Err(unsupported(n, format!("post_transform {name}: NONE, SOFTMAX and LOGISTIC are supported")));
            }
        })
    }
}

/// Returns a number for each of `len` features; `none` is that of an absent list.
fn expand_list(n: &NodeProto, list: Option<Vec<f32>>, none: f32, len: usize) -> Result<Vec<f32>, GraphError> {
    match list {
        None => Ok(vec![none; len]),
        Some(v) if v.len() == 1 => Ok(vec![v[0]; len]),
        Some(v) if v.len() == len => Ok(v),
        Some(v) => Err(fail(n, format!("{} numbers for {len} features", v.len()))),
    }
}

fn advice(op: &str) -> &'static str {
    match op {
        "TreeEnsemble" | "TreeEnsembleClassifier" | "TreeEnsembleRegressor" => {
            "decision trees compare secret features along secret paths; train a linear model or a small network instead"
        }
        "SVMClassifier" | "SVMRegressor" => {
            "kernels are products of secret values; a linear SVM can be exported as LinearClassifier or as MatMul and Add"
        }
        "LabelEncoder" | "CategoryMapper" | "OneHotEncoder" | "DictVectorizer" | "StringNormalizer" => {
            "categories and strings are encoded outside of the network; export the part behind it"
        }
        "Imputer" | "Binarizer" => "prepare the features outside of the network; export the part behind it",
        _ => {
            "of ai.onnx.ml, ArrayFeatureExtractor, Scaler, Normalizer (at the end), LinearClassifier, LinearRegressor and ZipMap are supported"
        }
    }
}
