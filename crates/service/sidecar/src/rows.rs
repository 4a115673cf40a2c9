//! Batches with rows outside the accepted range: only these rows fail, and the answer reports them.
//! In the outputs they are NaN, or -1 for a class.
use crate::ApiError;
use std::collections::BTreeMap;
use tacit_client::Answer;

/// Most refused rows whose reasons an answer gives.
const MAX_REASONS: usize = 16;
/// Parameter of an answer: the rows that were refused, as `1,4`.
pub const REFUSED_ROWS: &str = "refused_rows";
/// Parameter of an answer: the reasons.
pub const REFUSED_WHY: &str = "refused_why";

/// Normalised inputs of the accepted rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Accepted {
    /// In the order of their rows.
    pub inputs: Vec<Vec<f32>>,
    /// Reasons for the refused rows, by row.
    pub refused: BTreeMap<usize, String>,
}

impl Accepted {
    /// Collects the model's verdict on each row.
    ///
    /// # Errors
    /// All rows are refused.
    pub(crate) fn from_rows<E: std::fmt::Display>(
        rows: impl Iterator<Item = Result<Vec<f32>, E>>,
    ) -> Result<Self, ApiError> {
        let mut accepted = Self::default();
        for (row, result) in rows.enumerate() {
            match result {
                Ok(input) => accepted.inputs.push(input),
                Err(why) => drop(accepted.refused.insert(row, why.to_string())),
            }
        }
        match accepted.refused.first_key_value() {
            Some((row, why)) if accepted.inputs.is_empty() => {
                Err(ApiError::Bad(format!("input {row} of the batch: {why}")))
            }
            _ => Ok(accepted),
        }
    }

    /// The answers at the positions of their rows.
    pub(crate) fn in_row_order<'a>(&self, answers: &'a [Answer]) -> Vec<Option<&'a Answer>> {
        let mut answers = answers.iter();
        let rows = self.inputs.len() + self.refused.len();
        (0..rows).map(|row| if self.refused.contains_key(&row) { None } else { answers.next() }).collect()
    }
}

/// Parameters of an answer for refused rows; empty if there are none.
pub(crate) fn refusal_parameters(refused: &BTreeMap<usize, String>) -> Vec<(&'static str, String)> {
    if refused.is_empty() {
        return vec![];
    }
    let rows: Vec<String> = refused.keys().map(ToString::to_string).collect();
    let mut why: Vec<String> = refused.iter().take(MAX_REASONS).map(|(row, why)| format!("row {row}: {why}")).collect();
    if refused.len() > MAX_REASONS {
        why.push(format!("and {} more", refused.len() - MAX_REASONS));
    }
    vec![(REFUSED_ROWS, rows.join(",")), (REFUSED_WHY, why.join("; "))]
}
