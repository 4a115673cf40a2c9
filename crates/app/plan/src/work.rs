//! A client's wish for its own share of the work.
//!
//! A wish becomes a goal and limits of the ranking; this module computes no costs of its own.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::{PlanError, wrong};
use crate::predict::Setting;
use crate::rank::{Goal, Limits, Question};

/// With [`ClientWork::Balanced`], the joules that the client may spend, as a multiple of the least
/// of any choice.
pub const BALANCED: f64 = 2.0;

/// How much work a client wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientWork {
    /// The least client energy of all choices.
    Min,
    /// The given goal, with at most [`BALANCED`] times the least client energy.
    Balanced,
    /// The given goal.
    Any,
}

impl ClientWork {
    const ALL: [Self; 3] = [Self::Min, Self::Balanced, Self::Any];

    /// Returns the goal and the limits that express this wish.
    ///
    /// # Errors
    /// As [`Question::ranked`].
    pub fn goal_and_limits(self, question: &Question<'_>, setting: &Setting) -> Result<(Goal, Limits), PlanError> {
        let (goal, limits) = (question.goal, question.limits);
        Ok(match self {
            Self::Any => (goal, limits),
            Self::Min => (Goal::ClientEnergy, limits),
            Self::Balanced => {
                let cheapest = Question { goal: Goal::ClientEnergy, ..*question }.best(setting)?;
                let max_score = cheapest.map(|choice| BALANCED * choice.score);
                // Keep a budget that is already smaller.
                let client_j = [limits.client_j, max_score].into_iter().flatten().reduce(tacit_floats::smaller);
                (goal, Limits { client_j, ..limits })
            }
        })
    }
}

impl fmt::Display for ClientWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Min => "min",
            Self::Balanced => "balanced",
            Self::Any => "any",
        })
    }
}

impl FromStr for ClientWork {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        match Self::ALL.into_iter().find(|work| work.to_string() == text) {
            Some(work) => Ok(work),
            None => wrong(format!("client work {text:?}"), "there are min, balanced, any"),
        }
    }
}
