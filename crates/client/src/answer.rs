//! What comes of an input, and of the material that is made for it.
use crate::measure::PhaseReport;
use crate::wire::InputId;
use tacit_backends::Faint;
use tacit_ids::MaterialId;

/// Material that was made, and what that cost.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    /// Its name.
    pub id: MaterialId,
    /// Cost of the offline phase.
    pub offline: PhaseReport,
    /// Size of the client's and the server's half in bytes.
    pub bytes: [u64; 2],
}

/// The answer to one input.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What the input is called in the logs of both parties, and in the server's records.
    pub name: InputId,
    /// The network's real outputs (`interface().output_shape`), a final softmax applied; for a top-1 model
    /// the class index alone.
    pub values: Vec<f64>,
    /// What the back end answered: `values` before what the client applies.
    pub revealed: Vec<f64>,
    /// The class with the largest output (the lowest of equals).
    pub class: usize,
    /// That the input was too small for the steps that the model computes in, if it was: the answer is
    /// that of an empty one.
    pub faint: Option<Faint>,
    /// Cost of the online phase, of all inputs that were answered as one.
    pub online: PhaseReport,
    /// This input's place among those, from 0, and how many there were.
    pub part: [usize; 2],
    /// Cost of setup, where this answer needed it.
    pub setup: Option<PhaseReport>,
    /// Wall seconds from the request to the answer, in which stored material was found, read and burnt, or
    /// new material made.
    pub request_to_answer_s: f64,
    /// The material made for this answer, and for the others of its batch; `None` if stored material was
    /// used, or none is needed.
    pub prepared: Option<Prepared>,
}

/// The answer of a batch of one.
pub(crate) fn only(mut answers: Vec<Answer>) -> Answer {
    answers.pop().expect("each input of a batch has an answer")
}

/// Answers with material that was made for them, after a setup perhaps.
pub(crate) fn made_for(answers: Vec<Answer>, setup: Option<PhaseReport>, prepared: Prepared) -> Vec<Answer> {
    let made = |a: Answer| Answer { setup: setup.or(a.setup), prepared: Some(prepared), ..a };
    answers.into_iter().map(made).collect()
}
