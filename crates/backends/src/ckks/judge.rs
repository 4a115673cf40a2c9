//! Answers of a lowered network, in the clear, beside those of the float network: on samples that judge it,
//! on extreme inputs and on such as are drawn from the accepted range.

use rayon::prelude::*;
use serde::Serialize;
use tacit_graph::float::run::run;
use tacit_graph::{Model, OutputMode};

use super::argmax;
use super::lanes::{LANES, side_by_side};
use super::probes;
use super::program::Program;
use crate::classes::{class, flip_probability, interval, relative_error, spread, told};
use crate::{BackendError, DryRun};

/// What an answer may be off beyond what was seen, as a share of the outputs' range, before it counts as
/// wrong.
const SLACK: f64 = 1.0 / 64.0;

/// An input, and the network's result in floats.
struct Case {
    input: Vec<f32>,
    wanted: Vec<f32>,
}

/// What a lowering is judged by.
pub(super) struct Judge {
    mode: OutputMode,
    /// What the network's results are multiplied by for an answer.
    multiplier: f64,
    /// Whether samples were made up.
    guessed: bool,
    kinds: [Vec<Case>; 3],
    samples: Samples,
    /// How far the wanted values of all samples spread.
    spread: f64,
}

/// How calibration samples were used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Samples {
    /// Ranges were taken from these.
    pub searched: usize,
    /// These judge.
    pub held_out: usize,
}

/// What to expect of other inputs like the samples that judge.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Expected {
    /// Share with the float network's class.
    pub share: f64,
    /// Ends of its 95 % interval.
    pub interval: [f64; 2],
}

/// What became of inputs of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Tried {
    pub inputs: usize,
    /// Some tensor left what its polynomial or its bootstrap holds for.
    pub left: usize,
    /// A client refuses the answer.
    pub refused: usize,
    /// The answer is wrong, and no client notices.
    pub wrong: usize,
}

/// The verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Judged {
    pub samples: Samples,
    /// Share of the samples that judge with the float network's class; none where they were made up.
    pub agreement: Option<f64>,
    pub expected: Option<Expected>,
    /// Mean root mean square error of their outputs, as a share of these outputs' range.
    pub output_error: f64,
    /// Largest distance from the float network of an answer that no tensor left its range for, as a share of
    /// the outputs' range.
    pub off: f64,
    /// Samples that judge, extreme inputs, inputs drawn from the accepted range.
    pub tried: [Tried; 3],
}

/// Runs in the clear of what both parties compute.
pub(super) struct Runs<'r> {
    pub rehearse: &'r dyn Fn(&[&[f32]]) -> Vec<DryRun>,
    /// Whether a client refuses an answer.
    pub refuses: &'r dyn Fn(&[f64]) -> bool,
    /// Largest error that is stated.
    pub stated: f64,
}

/// What one input gives.
struct Outcome {
    outputs: Vec<f64>,
    left: bool,
}

/// Largest distance of outputs from `multiplier` times what is wanted; NaN where either is no number.
fn distance(outputs: &[f64], wanted: &[f32], multiplier: f64) -> f64 {
    tacit_floats::largest_magnitude(outputs.iter().zip(wanted).map(|(v, w)| v - f64::from(*w) * multiplier))
}

/// Whether a distance is at most so much: never where it is no number.
fn is_within(distance: f64, most: f64) -> bool {
    distance <= most
}

impl Judge {
    /// Made with the network's results in floats.
    ///
    /// # Errors
    /// None in practice.
    pub fn new(model: &Model) -> Result<Self, BackendError> {
        let calibration = &model.calibration;
        let (searched, held_out) = calibration.split(&model.graph);
        let samples = Samples { searched: searched.len(), held_out: held_out.len() };
        let judging = if held_out.is_empty() { searched } else { held_out };
        let sample = |i: usize| Case { input: calibration.samples[i].clone(), wanted: calibration.wanted[i].clone() };
        let cases = |inputs: Vec<Vec<f32>>| -> Result<Vec<Case>, BackendError> {
            let one = |input: Vec<f32>| Ok(Case { wanted: run(&model.graph, &input)?, input });
            inputs.into_par_iter().map(one).collect()
        };
        let kinds = [judging.map(sample).collect(), cases(probes::extremes(model))?, cases(probes::drawn(model))?];
        Ok(Self {
            mode: model.interface.output_mode,
            multiplier: model.output_multiplier,
            guessed: calibration.guessed,
            kinds,
            samples,
            spread: spread(&calibration.wanted),
        })
    }

    /// Whether samples judge that ranges are not taken from.
    pub fn holds_out(&self) -> bool {
        self.samples.held_out > 0
    }

    fn is_best_alone(&self) -> bool {
        self.mode == OutputMode::Top1
    }

    /// The verdict on a program, without errors of the arithmetic.
    pub fn of_program(&self, program: &Program) -> Judged {
        let unit = program.output().scale[0];
        let outcomes = self.kinds.each_ref().map(|cases| self.outcomes(program, cases));
        let pairs = || self.kinds.iter().flatten().zip(outcomes.iter().flatten());
        let refuses = |o: &Outcome| !self.is_best_alone() && !o.outputs.iter().all(|v| v.abs() <= unit * (1.0 + SLACK));
        let inside = pairs().filter(|(_, outcome)| !outcome.left && !refuses(outcome));
        let far = |case: &Case, o: &Outcome| distance(&o.outputs, &case.wanted, 1.0);
        let off = tacit_floats::largest_magnitude(inside.map(|(case, outcome)| far(case, outcome))) / unit;
        let is_right = |case: &Case, o: &Outcome| match self.is_best_alone() {
            // Where nothing left its range, errors decide between classes that are nearly tied.
            true => !o.left || class(&case.wanted) == class(&o.outputs),
            false => is_within(far(case, o), (2.0 * off + SLACK) * unit),
        };
        let tried = |k: usize| {
            let all = || self.kinds[k].iter().zip(&outcomes[k]);
            let wrong = |(case, o): &(&Case, &Outcome)| !refuses(o) && !is_right(case, o);
            Tried {
                inputs: self.kinds[k].len(),
                left: outcomes[k].iter().filter(|o| o.left).count(),
                refused: outcomes[k].iter().filter(|o| refuses(o)).count(),
                wrong: all().filter(wrong).count(),
            }
        };
        let judging = || self.kinds[0].iter().zip(&outcomes[0]);
        let count = self.kinds[0].len() as f64;
        let same = judging().filter(|(case, o)| !refuses(o) && class(&case.wanted) == class(&o.outputs)).count();
        let flips: f64 = judging().map(|(case, o)| flip(&case.wanted, o)).sum();
        let errors = judging().map(|(case, o)| relative_error(&o.outputs, &case.wanted, self.spread));
        let (share, is_given) = (1.0 - flips / count, !self.guessed);
        Judged {
            samples: self.samples,
            agreement: is_given.then_some(same as f64 / count),
            expected: is_given.then(|| Expected { share, interval: interval(share, self.kinds[0].len()) }),
            output_error: errors.fold(0.0, sum) / count,
            off,
            tried: [0, 1, 2].map(tried),
        }
    }

    fn outcomes(&self, program: &Program, cases: &[Case]) -> Vec<Outcome> {
        cases.chunks(LANES).flat_map(|some| self.outcomes_of(program, some)).collect()
    }

    fn outcomes_of(&self, program: &Program, cases: &[Case]) -> Vec<Outcome> {
        let inputs: Vec<&[f32]> = cases.iter().map(|case| &*case.input).collect();
        let mut left = [false; LANES];
        let result = program.run(side_by_side(&inputs), |id, slots: &mut Vec<[f64; LANES]>| {
            let Some(limit) = program.vectors[id].limit else { return };
            for slot in slots.iter() {
                left.iter_mut().zip(slot).for_each(|(left, v)| *left |= v.is_nan() || v.abs() > limit);
            }
        });
        let outcome = |lane: usize| {
            let outputs: Vec<f64> = result.iter().map(|v| v[lane]).collect();
            let outputs = match self.is_best_alone() {
                true => argmax::outputs(&outputs, cases[lane].wanted.len()),
                false => outputs,
            };
            Outcome { outputs, left: left[lane] }
        };
        (0..cases.len()).map(outcome).collect()
    }

    /// The verdict on what both parties compute, with errors of the arithmetic and all limits; agreement and
    /// what follows from it are those of `judged`, or worse.
    pub fn of_runs(&self, judged: &Judged, runs: &Runs<'_>) -> Judged {
        let mut found = judged.clone();
        let mut same = 0;
        for (k, cases) in self.kinds.iter().enumerate() {
            let inputs: Vec<&[f32]> = cases.iter().map(|case| &*case.input).collect();
            let mut tried = Tried { inputs: cases.len(), ..Tried::default() };
            for (case, DryRun { answer, strains }) in cases.iter().zip((runs.rehearse)(&inputs)) {
                let left = strains.iter().any(|s| !is_within(s.share, 1.0));
                let refused = (runs.refuses)(&answer);
                let is_same = told(self.mode, &answer) == class(&case.wanted);
                let is_right = match self.is_best_alone() {
                    true => is_same || !left,
                    false => is_within(distance(&answer, &case.wanted, self.multiplier), runs.stated),
                };
                tried.left += usize::from(left);
                tried.refused += usize::from(refused);
                tried.wrong += usize::from(!refused && !is_right);
                same += usize::from(k == 0 && is_same && !refused);
            }
            found.tried[k] = tried;
        }
        let share = same as f64 / self.kinds[0].len() as f64;
        found.agreement = found.agreement.map(|seen| seen.min(share));
        found
    }
}

impl Judged {
    /// Inputs that get a wrong answer unnoticed.
    pub fn wrong(&self) -> usize {
        self.tried.iter().map(|tried| tried.wrong).sum()
    }

    /// Inputs that get no answer.
    pub fn refused(&self) -> usize {
        self.tried.iter().map(|tried| tried.refused).sum()
    }

    /// Inputs that left what is computed rightly.
    pub fn left(&self) -> usize {
        self.tried.iter().map(|tried| tried.left).sum()
    }
}

fn sum(a: f64, b: f64) -> f64 {
    a + b
}

/// How likely the class changes; surely where an output is no number.
fn flip(wanted: &[f32], outcome: &Outcome) -> f64 {
    let likely = flip_probability(wanted, &outcome.outputs);
    if likely.is_nan() { 1.0 } else { likely }
}
