//! Compares a lowered model with its float network on a data set, in the clear, before its owner
//! serves it.

mod private;

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;
use tacit_floats::Interval;
use tacit_graph::{Model, OutputMode, Watch};

pub use self::private::{RunReport, Took, run as run_privately};
pub use crate::classes::useful_bound;
use crate::classes::{agrees, answer_class, interval, relative_error, spread_of};
use crate::{BackendError, DryRun, Result, ServerModel, Strain};

/// Share of a tensor's limit from which on it counts as near the limit.
pub const NEAR: f64 = 0.5;

/// Inputs per chunk.
const CHUNK_INPUTS: usize = 64;

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checked {
    /// Inputs that were compared.
    pub inputs: usize,
    /// Inputs outside the accepted range, which were not compared.
    pub refused: usize,
    /// Inputs whose answer a client refuses; it has no class and no output error.
    pub answers_refused: usize,
    /// Share of inputs with the float network's class: the sign of a single output, or any class tied for the
    /// best.
    pub agreement: f64,
    /// The 95 % interval of the agreement, for other inputs like these.
    pub interval: [f64; 2],
    /// Shares of inputs with the right class, if labels were given.
    pub accuracy: Option<Accuracy>,
    /// Mean over inputs of the outputs' root mean square error, as a share of their range; 0 in mode top-1.
    /// For a single output or equal outputs, the range is that over all inputs. NaN if an output is NaN, or
    /// all answers are refused.
    pub output_error: f64,
    /// Inputs with a NaN in the answer or in the float network's outputs, counted as wrong.
    pub no_number: usize,
    /// Inputs whose best classes are tied in the float network: the answered class is random.
    pub tied: usize,
    /// Inputs for which a tensor overflowed: their answers are wrong or refused.
    pub overflowed: usize,
    /// Advice to the owner, if any tensor overflowed.
    pub advice: Option<String>,
    /// Tensors near or beyond their limits, worst first.
    pub strained: Vec<Strained>,
}

/// Shares of inputs with the right class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Accuracy {
    /// The share of the float network.
    pub float: f64,
    /// The share of the lowered model.
    pub lowered: f64,
}

/// A tensor near or beyond its limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Strained {
    /// Name of the node that outputs the tensor.
    pub node: String,
    /// Largest magnitude of the tensor over all inputs, as a share of the smallest magnitude that overflows.
    pub share: f64,
    /// Inputs for which the tensor overflowed.
    pub overflowed: usize,
    /// Inputs for which the tensor reached [`NEAR`].
    pub near: usize,
}

/// The error bound of an honest answer for this reference, if it is useful ([`useful_bound`]).
#[must_use]
pub fn useful_error_bound(model: &dyn ServerModel, reference: &[f64]) -> Option<f64> {
    useful_bound(model.error_bound(reference), tacit_floats::range(reference.iter().copied()))
}

/// Runs the lowered model and its float network on `inputs` (after the client's normalisation), with the
/// right class of each in `labels`.
///
/// # Errors
/// The model accepts no input, the number of labels is another one than that of inputs, a model fails to
/// compute, or `watch` interrupts.
pub fn check(
    model: &Model,
    lowered: &dyn ServerModel,
    inputs: &[Vec<f32>],
    labels: Option<&[usize]>,
    watch: &Watch,
) -> Result<Checked> {
    if let Some(labels) = labels.filter(|l| l.len() != inputs.len()) {
        let what = format!("{} labels for {} inputs", labels.len(), inputs.len());
        return Err(BackendError::Data { what });
    }
    let mut tally = Tally::default();
    for (i, chunk) in inputs.chunks(CHUNK_INPUTS).enumerate() {
        watch.tell("comparing with the float network", i * CHUNK_INPUTS, Some(inputs.len()))?;
        let accepted: Vec<usize> =
            (0..chunk.len()).filter(|&k| lowered.interface().check_input(&chunk[k]).is_ok()).collect();
        tally.refused += chunk.len() - accepted.len();
        let accepted_inputs: Vec<&[f32]> = accepted.iter().map(|&k| &*chunk[k]).collect();
        let expected: Vec<Vec<f64>> = accepted_inputs.par_iter().map(|x| model.outputs(x)).collect::<Result<_, _>>()?;
        let dry_runs = lowered.rehearse(&accepted_inputs)?;
        for ((k, expected), DryRun { answer, strains }) in accepted.iter().zip(expected).zip(dry_runs) {
            let label = labels.map(|l| l[i * CHUNK_INPUTS + k]);
            let answer = lowered.check_answer(&answer).is_ok().then_some(answer);
            tally.add(model, expected, answer, strains, label);
        }
    }
    tally.finish(labels.is_some(), &lowered.remedy())
}

#[derive(Default)]
struct Tally {
    inputs: usize,
    refused: usize,
    answers_refused: usize,
    same_class: usize,
    no_number: usize,
    tied: usize,
    /// Right classes of the float network, and of the lowered model.
    right: [usize; 2],
    /// Sum of relative output errors, for inputs whose outputs have a range.
    errors: f64,
    /// The same for inputs whose outputs are all equal.
    errors_without_range: f64,
    /// Range of all wanted outputs.
    range: Option<Interval<f64>>,
    overflowed: usize,
    strained: BTreeMap<String, Strained>,
}

impl Tally {
    /// `answer` is `None` if a client refuses it.
    fn add(
        &mut self,
        model: &Model,
        expected: Vec<f64>,
        answer: Option<Vec<f64>>,
        strain: Vec<Strain>,
        label: Option<usize>,
    ) {
        let mode = model.interface.output_mode;
        self.inputs += 1;
        self.answers_refused += usize::from(answer.is_none());
        let logits = answer.as_deref();
        let classes =
            [answer_class(mode, &model.answer(&expected)), logits.and_then(|logits| answer_class(mode, logits))];
        self.same_class += usize::from(logits.is_some_and(|logits| agrees(mode, logits, &expected)));
        self.no_number += usize::from(expected.iter().chain(logits.into_iter().flatten()).any(|v| v.is_nan()));
        self.tied += usize::from(tacit_floats::tied_for_largest(&expected) > 1);
        for (right, class) in self.right.iter_mut().zip(classes) {
            *right += usize::from(class.is_some() && class == label);
        }
        if let Some(logits) = logits.filter(|_| mode == OutputMode::Logits) {
            self.compare(&expected, logits);
        }
        self.strains(strain);
    }

    fn compare(&mut self, expected: &[f64], answer: &[f64]) {
        let range = tacit_floats::range(expected.iter().copied());
        let errors = if range.low == range.high { &mut self.errors_without_range } else { &mut self.errors };
        *errors += relative_error(answer, expected, 1.0);
        let union = self.range.unwrap_or(range);
        self.range = Some(Interval {
            low: tacit_floats::smaller(union.low, range.low),
            high: tacit_floats::larger(union.high, range.high),
        });
    }

    fn strains(&mut self, strain: Vec<Strain>) {
        // Several vectors of one node have the same name.
        let mut by_node: BTreeMap<String, f64> = BTreeMap::new();
        for Strain { node, share } in strain {
            let largest = by_node.entry(node).or_default();
            *largest = tacit_floats::larger(*largest, share);
        }
        self.overflowed += usize::from(by_node.values().any(|share| reaches(*share, 1.0)));
        for (node, share) in by_node.into_iter().filter(|(_, share)| reaches(*share, NEAR)) {
            let empty = Strained { node: node.clone(), share: 0.0, overflowed: 0, near: 0 };
            let entry = self.strained.entry(node).or_insert(empty);
            entry.share = tacit_floats::larger(entry.share, share);
            entry.near += 1;
            entry.overflowed += usize::from(reaches(share, 1.0));
        }
    }

    fn finish(self, labelled: bool, remedy: &str) -> Result<Checked> {
        if self.inputs == 0 {
            let what = format!("none of {} inputs lies in the range that the model accepts", self.refused);
            return Err(BackendError::Data { what });
        }
        let share = |count: usize| count as f64 / self.inputs as f64;
        let [float, right] = self.right.map(share);
        let output_range = self.range.map_or(1.0, spread_of);
        let mut strained: Vec<Strained> = self.strained.into_values().collect();
        strained.sort_by(|a, b| tacit_floats::falling(&a.share, &b.share));
        Ok(Checked {
            inputs: self.inputs,
            refused: self.refused,
            answers_refused: self.answers_refused,
            agreement: share(self.same_class),
            interval: interval(share(self.same_class), self.inputs),
            accuracy: labelled.then_some(Accuracy { float, lowered: right }),
            // NaN if there are no answers.
            output_error: (self.errors + self.errors_without_range / output_range)
                / (self.inputs - self.answers_refused) as f64,
            no_number: self.no_number,
            tied: self.tied,
            overflowed: self.overflowed,
            advice: (self.overflowed > 0).then(|| format!("calibrate with inputs like these, or lower {remedy}")),
            strained,
        })
    }
}

/// Whether a share of a limit reaches `limit`; NaN does.
fn reaches(share: f64, limit: f64) -> bool {
    share >= limit || share.is_nan()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_graph::{ImportOptions, import, zoo};

    fn tiny() -> Model {
        import(&zoo::build("tiny-cnn", 2).unwrap(), &ImportOptions::default()).unwrap().model
    }

    #[test]
    fn nan_counts_as_wrong() {
        let model = tiny();
        let mut tally = Tally::default();
        let expected: Vec<f64> = (0..10).map(f64::from).collect();
        let strained = |share| vec![Strain { node: "a".into(), share }, Strain { node: "a".into(), share }];
        tally.add(&model, expected.clone(), Some(expected.clone()), strained(0.1), Some(9));
        let mut broken = expected.clone();
        broken[3] = f64::NAN;
        tally.add(&model, expected.clone(), Some(broken.clone()), strained(f64::NAN), Some(9));
        tally.add(&model, broken.clone(), Some(broken), strained(2.0), Some(0));
        let checked = tally.finish(true, "").unwrap();
        assert_eq!((checked.inputs, checked.agreement, checked.no_number, checked.overflowed), (3, 1.0 / 3.0, 2, 2));
        assert!(checked.output_error.is_nan());
        assert_eq!(checked.accuracy, Some(Accuracy { float: 2.0 / 3.0, lowered: 1.0 / 3.0 }));
        // Two vectors of one node overflow: the input counts once.
        let [Strained { overflowed: 2, near: 2, .. }] = checked.strained[..] else { panic!("{checked:?}") };
        assert!(checked.strained[0].share.is_nan());
    }

    #[test]
    fn refused_answers_are_counted_apart() {
        let (model, expected) = (tiny(), (0..10).map(f64::from).collect::<Vec<f64>>());
        let check = |answers: &[Option<Vec<f64>>]| {
            let mut tally = Tally::default();
            for answer in answers {
                tally.add(&model, expected.clone(), answer.clone(), vec![], Some(9));
            }
            tally.finish(true, "").unwrap()
        };
        let all_refused = check(&[None]);
        assert_eq!((all_refused.answers_refused, all_refused.agreement, all_refused.no_number), (1, 0.0, 0));
        assert!(all_refused.output_error.is_nan());
        let checked = check(&[None, Some(expected.clone())]);
        assert_eq!(
            (checked.inputs, checked.answers_refused, checked.agreement, checked.output_error),
            (2, 1, 0.5, 0.0)
        );
        assert_eq!(checked.accuracy, Some(Accuracy { float: 1.0, lowered: 0.5 }));
    }

    #[test]
    fn error_of_equal_outputs_uses_range_of_all_inputs() {
        let model = tiny();
        let check = |pairs: &[[&[f64]; 2]]| {
            let mut tally = Tally::default();
            pairs.iter().for_each(|[x, y]| tally.add(&model, x.to_vec(), Some(y.to_vec()), vec![], None));
            tally.finish(false, "").unwrap()
        };
        let checked = check(&[[&[-4.0], &[-3.92]], [&[0.25], &[0.33]], [&[4.0], &[4.08]]]);
        assert!((checked.output_error - 0.01).abs() < 1e-12, "{checked:?}");
        // The same if all outputs of an input are equal.
        let checked = check(&[[&[1.0, 1.0], &[1.1, 1.1]], [&[1.0, 3.0], &[1.0, 3.0]]]);
        assert!((checked.output_error - 0.025).abs() < 1e-12, "{checked:?}");
        assert_eq!((checked.tied, checked.agreement), (1, 1.0));
    }
}
