//! Rows of a batch of which some lie outside of what the model accepts: they fail alone, and the answer says
//! so. In the outputs they are NaN, or -1 where the model tells a class.
use crate::ApiError;
use std::collections::BTreeMap;
use tacit_client::Answer;

/// Most rows of which an answer says what is wrong with them.
const TOLD: usize = 16;
/// Parameter of an answer: the rows that were refused, as `1,4`.
pub const REFUSED_ROWS: &str = "refused_rows";
/// Parameter of an answer: what is wrong with them.
pub const REFUSED_WHY: &str = "refused_why";

/// What the model computes on, of the rows that it accepts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Accepted {
    /// In the order of their rows.
    pub inputs: Vec<Vec<f32>>,
    /// What is wrong with the others, by row.
    pub refused: BTreeMap<usize, String>,
}

impl Accepted {
    /// Of what the model says of each row.
    ///
    /// # Errors
    /// It accepts none.
    pub(crate) fn of<E: std::fmt::Display>(rows: impl Iterator<Item = Result<Vec<f32>, E>>) -> Result<Self, ApiError> {
        let mut accepted = Self::default();
        for (row, made) in rows.enumerate() {
            match made {
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

    /// The answers in the places of their rows.
    pub(crate) fn placed<'a>(&self, answers: &'a [Answer]) -> Vec<Option<&'a Answer>> {
        let mut answers = answers.iter();
        let rows = self.inputs.len() + self.refused.len();
        (0..rows).map(|row| if self.refused.contains_key(&row) { None } else { answers.next() }).collect()
    }
}

/// What an answer says of refused rows; nothing where there are none.
pub(crate) fn told(refused: &BTreeMap<usize, String>) -> Vec<(&'static str, String)> {
    if refused.is_empty() {
        return vec![];
    }
    let rows: Vec<String> = refused.keys().map(ToString::to_string).collect();
    let mut why: Vec<String> = refused.iter().take(TOLD).map(|(row, why)| format!("row {row}: {why}")).collect();
    if refused.len() > TOLD {
        why.push(format!("and {} more", refused.len() - TOLD));
    }
    vec![(REFUSED_ROWS, rows.join(",")), (REFUSED_WHY, why.join("; "))]
}
