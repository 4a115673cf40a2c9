//! The results of an input and of making its material.
use crate::measure::PhaseReport;
use crate::wire::InputId;
use std::time::Instant;
use tacit_backends::{FaintInput, Sides};
use tacit_ids::MaterialId;

/// Material that was made, and its cost.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    /// Its name.
    pub id: MaterialId,
    /// Cost of the offline phase.
    pub offline: PhaseReport,
    /// Size of the client's and the server's half in bytes.
    pub bytes: Sides<u64>,
}

/// The place of an input in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPart {
    /// Index of the input, from 0.
    pub index: usize,
    /// Number of inputs in the batch.
    pub inputs: usize,
}

/// The answer to one input.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Name of the input in the logs of both parties and in the server's records.
    pub name: InputId,
    /// The network's real outputs (`interface().output_shape`), a final softmax applied; for a
    /// top-1 model the class index alone.
    pub values: Vec<f64>,
    /// The back end's answer: `values` before the client's own last steps.
    pub revealed: Vec<f64>,
    /// The class with the largest output (the lowest of equals).
    pub class: usize,
    /// Set if the input was too small for the resolution of the model's numbers: the answer is that
    /// of an empty input.
    pub faint: Option<FaintInput>,
    /// Cost of the online phase of the whole batch.
    pub online: PhaseReport,
    /// The input's place in its batch.
    pub part: BatchPart,
    /// Cost of setup, if it ran for this answer.
    pub setup: Option<PhaseReport>,
    /// Wall seconds from the request to the answer. Includes finding, reading and burning stored
    /// material, or making new material.
    pub request_to_answer_s: f64,
    /// The material made for this answer's batch; `None` if stored material was used or none is
    /// needed.
    pub prepared: Option<Prepared>,
}

pub(crate) fn only(mut answers: Vec<Answer>) -> Answer {
    answers.pop().expect("each input of a batch has an answer")
}

/// Adds the setup, if any, and the material that was made to answers.
pub(crate) fn made_for(answers: Vec<Answer>, setup: Option<PhaseReport>, prepared: Prepared) -> Vec<Answer> {
    answers.into_iter().map(|a| Answer { setup: setup.or(a.setup), prepared: Some(prepared), ..a }).collect()
}

/// Adds the time since `began` to answers.
pub(crate) fn timed(answers: Vec<Answer>, began: Instant) -> Vec<Answer> {
    let request_to_answer_s = began.elapsed().as_secs_f64();
    answers.into_iter().map(|answer| Answer { request_to_answer_s, ..answer }).collect()
}
