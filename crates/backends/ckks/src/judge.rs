//! Judges a lowered network in the clear, by the float network's answers to samples, to extreme inputs and to
//! inputs drawn from the accepted range.

use rayon::prelude::*;
use serde::Serialize;
use tacit_graph::float::run::run;
use tacit_graph::{Model, OutputMode};

use super::argmax;
use super::lanes::{LANES, pack_lanes};
use super::probes;
use super::program::Program;
use tacit_backend_api::classes::{answer_class, class, flip_probability, interval, relative_error, spread};
use tacit_backend_api::{BackendError, DryRun};
use tacit_ring::lowering::report::{Expected, Samples};

/// An answer counts as wrong if its error exceeds twice the largest measured one by more than this share of
/// the outputs' range. A client refuses outputs that exceed their range by more.
const SLACK: f64 = 1.0 / 64.0;

/// An input and the float network's result.
struct Case {
    input: Vec<f32>,
    expected: Vec<f32>,
}

/// The inputs that judge a lowering.
pub(super) struct Judge {
    mode: OutputMode,
    /// Factor from the network's results to an answer.
    multiplier: f64,
    /// Whether the samples were made up.
    guessed: bool,
    kinds: [Vec<Case>; 3],
    samples: Samples,
    /// Spread of the wanted values of all samples.
    spread: f64,
}

/// Results for the inputs of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct TrialCounts {
    pub inputs: usize,
    /// Inputs for which a tensor left the domain of its polynomial or bootstrap.
    #[serde(rename = "left")]
    pub outside_domain: usize,
    pub refused: usize,
    /// Inputs whose answer is wrong, and no client notices.
    pub wrong: usize,
}

/// The verdict on a lowering.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Judged {
    pub samples: Samples,
    /// Share of the judging samples with the float network's class; `None` if samples were made up.
    pub agreement: Option<f64>,
    pub expected: Option<Expected>,
    /// Mean over these samples of the outputs' root mean square error, as a share of their range.
    pub output_error: f64,
    /// Largest distance from the float network, as a share of the outputs' range, over answers that no client
    /// refuses and for which no tensor left its domain.
    #[serde(rename = "off")]
    pub max_deviation: f64,
    /// On judging samples, extreme inputs, and inputs drawn from the accepted range.
    pub tried: [TrialCounts; 3],
}

/// Runs in the clear of everything that both parties compute.
pub(super) struct Runs<'r> {
    pub rehearse: &'r dyn Fn(&[&[f32]]) -> Vec<DryRun>,
    pub refuses: &'r dyn Fn(&[f64]) -> bool,
    /// The stated error: an answer that is off by more is wrong.
    pub stated: f64,
}

struct Outcome {
    outputs: Vec<f64>,
    left_domain: bool,
}

/// Largest distance of outputs from `multiplier` times the wanted values; NaN if either is.
fn distance(outputs: &[f64], expected: &[f32], multiplier: f64) -> f64 {
    tacit_floats::largest_magnitude(outputs.iter().zip(expected).map(|(v, w)| v - f64::from(*w) * multiplier))
}

fn is_within(distance: f64, limit: f64) -> bool {
    distance <= limit
}

impl Judge {
    /// # Errors
    /// [`BackendError::Graph`] if an input has another number of values than the network's input.
    pub fn new(model: &Model) -> Result<Self, BackendError> {
        let calibration = &model.calibration;
        let (searched, held_out) = calibration.split(&model.graph);
        let samples = Samples { searched: searched.len(), held_out: held_out.len() };
        let judging = if held_out.is_empty() { searched } else { held_out };
        let judging: Vec<Case> = judging
            .map(|i| Case { input: calibration.samples[i].clone(), expected: calibration.wanted[i].clone() })
            .collect();
        let kinds = [judging, cases(model, probes::extremes(model))?, cases(model, probes::draw_random(model))?];
        Ok(Self {
            mode: model.interface.output_mode,
            multiplier: model.output_multiplier,
            guessed: calibration.guessed,
            kinds,
            samples,
            spread: spread(&calibration.wanted),
        })
    }

    pub fn holds_out(&self) -> bool {
        self.samples.held_out > 0
    }

    fn reveals_class_only(&self) -> bool {
        self.mode == OutputMode::Top1
    }

    /// Judges a program, without errors of the arithmetic.
    pub fn judge_program(&self, program: &Program) -> Judged {
        let unit = program.output().scale[0];
        let outcomes = self.kinds.each_ref().map(|cases| self.outcomes(program, cases));
        let pairs = self.kinds.iter().flatten().zip(outcomes.iter().flatten());
        let inside = pairs.filter(|(_, outcome)| !outcome.left_domain && !self.refuses(outcome, unit));
        let max_deviation =
            tacit_floats::largest_magnitude(inside.map(|(case, outcome)| case.distance(outcome))) / unit;
        let judging = self.kinds[0].iter().zip(&outcomes[0]);
        let count = self.kinds[0].len() as f64;
        let same = judging.clone().filter(|(case, o)| !self.refuses(o, unit) && case.has_class_of(o)).count();
        let flips: f64 = judging.clone().map(|(case, o)| class_change_probability(&case.expected, o)).sum();
        let errors = judging.map(|(case, o)| relative_error(&o.outputs, &case.expected, self.spread));
        let (share, is_given) = (1.0 - flips / count, !self.guessed);
        Judged {
            samples: self.samples,
            agreement: is_given.then_some(same as f64 / count),
            expected: is_given.then(|| Expected { share, interval: interval(share, self.kinds[0].len()) }),
            output_error: errors.fold(0.0, sum) / count,
            max_deviation,
            tried: [0usize, 1, 2].map(|k| self.trial_counts(&self.kinds[k], &outcomes[k], unit, max_deviation)),
        }
    }

    fn trial_counts(&self, cases: &[Case], outcomes: &[Outcome], unit: f64, max_deviation: f64) -> TrialCounts {
        let max_distance = (2.0 * max_deviation + SLACK) * unit;
        let pairs = cases.iter().zip(outcomes);
        let wrong = pairs.filter(|(case, o)| !self.refuses(o, unit) && !self.is_right(case, o, max_distance));
        TrialCounts {
            inputs: cases.len(),
            outside_domain: outcomes.iter().filter(|o| o.left_domain).count(),
            refused: outcomes.iter().filter(|o| self.refuses(o, unit)).count(),
            wrong: wrong.count(),
        }
    }

    /// Whether a client refuses an answer whose range is `unit`.
    fn refuses(&self, outcome: &Outcome, unit: f64) -> bool {
        !self.reveals_class_only() && !outcome.outputs.iter().all(|v| v.abs() <= unit * (1.0 + SLACK))
    }

    fn is_right(&self, case: &Case, outcome: &Outcome, max_distance: f64) -> bool {
        match self.reveals_class_only() {
            // If no tensor left its range, classes differ only near ties.
            true => !outcome.left_domain || case.has_class_of(outcome),
            false => is_within(case.distance(outcome), max_distance),
        }
    }

    fn outcomes(&self, program: &Program, cases: &[Case]) -> Vec<Outcome> {
        cases.chunks(LANES).flat_map(|chunk| self.chunk_outcomes(program, chunk)).collect()
    }

    /// Runs a program on up to [`LANES`] cases side by side.
    fn chunk_outcomes(&self, program: &Program, cases: &[Case]) -> Vec<Outcome> {
        let inputs: Vec<&[f32]> = cases.iter().map(|case| &*case.input).collect();
        let mut left_domain = [false; LANES];
        let result = program.run(pack_lanes(&inputs), |id, slots: &mut Vec<[f64; LANES]>| {
            let Some(limit) = program.vectors[id].limit else { return };
            for slot in slots.iter() {
                left_domain
                    .iter_mut()
                    .zip(slot)
                    .for_each(|(left_domain, v)| *left_domain |= v.is_nan() || v.abs() > limit);
            }
        });
        let outcomes = (0..cases.len()).map(|lane| {
            let outputs: Vec<f64> = result.iter().map(|v| v[lane]).collect();
            let outputs = match self.reveals_class_only() {
                true => argmax::outputs(&outputs, cases[lane].expected.len()),
                false => outputs,
            };
            Outcome { outputs, left_domain: left_domain[lane] }
        });
        outcomes.collect()
    }

    /// Judges complete runs, with all limits and errors of the arithmetic. Agreement is that of `judged`, or
    /// worse; expected agreement and output errors are copied.
    pub fn judge_runs(&self, judged: &Judged, runs: &Runs<'_>) -> Judged {
        let mut verdict = judged.clone();
        let mut same = 0;
        for (k, cases) in self.kinds.iter().enumerate() {
            let inputs: Vec<&[f32]> = cases.iter().map(|case| &*case.input).collect();
            let mut tried = TrialCounts { inputs: cases.len(), ..TrialCounts::default() };
            for (case, DryRun { answer, strains }) in cases.iter().zip((runs.rehearse)(&inputs)) {
                let left_domain = strains.iter().any(|s| !is_within(s.share, 1.0));
                let refused = (runs.refuses)(&answer);
                let is_same = answer_class(self.mode, &answer) == class(&case.expected);
                let is_right = match self.reveals_class_only() {
                    true => is_same || !left_domain,
                    false => is_within(distance(&answer, &case.expected, self.multiplier), runs.stated),
                };
                tried.outside_domain += usize::from(left_domain);
                tried.refused += usize::from(refused);
                tried.wrong += usize::from(!refused && !is_right);
                same += usize::from(k == 0 && is_same && !refused);
            }
            verdict.tried[k] = tried;
        }
        let share = same as f64 / self.kinds[0].len() as f64;
        verdict.agreement = verdict.agreement.map(|agreement| agreement.min(share));
        verdict
    }
}

impl Judged {
    pub fn wrong(&self) -> usize {
        self.tried.iter().map(|tried| tried.wrong).sum()
    }

    pub fn refused(&self) -> usize {
        self.tried.iter().map(|tried| tried.refused).sum()
    }

    pub fn outside_domain(&self) -> usize {
        self.tried.iter().map(|tried| tried.outside_domain).sum()
    }
}

impl Case {
    fn distance(&self, outcome: &Outcome) -> f64 {
        distance(&outcome.outputs, &self.expected, 1.0)
    }

    fn has_class_of(&self, outcome: &Outcome) -> bool {
        class(&self.expected) == class(&outcome.outputs)
    }
}

fn cases(model: &Model, inputs: Vec<Vec<f32>>) -> Result<Vec<Case>, BackendError> {
    inputs.into_par_iter().map(|input| Ok(Case { expected: run(&model.graph, &input)?, input })).collect()
}

fn sum(a: f64, b: f64) -> f64 {
    a + b
}

/// Returns 1 if an output is NaN.
fn class_change_probability(expected: &[f32], outcome: &Outcome) -> f64 {
    let probability = flip_probability(expected, &outcome.outputs);
    if probability.is_nan() { 1.0 } else { probability }
}
