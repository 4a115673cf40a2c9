//! A lowered model against its float network on a data set, in the clear: what its owner should know before
//! serving it.

mod private;

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;
use tacit_graph::{Model, OutputMode, Watch};

pub use self::private::{RunReport, Took, run as run_privately};
pub use crate::classes::useful_bound;
use crate::classes::{agrees, interval, relative_error, spread_of, told};
use crate::{BackendError, DryRun, ServerModel, Strain};

/// From this share of a limit on, a tensor counts as near it.
pub const NEAR: f64 = 0.5;

/// Inputs that are run together.
const TOGETHER: usize = 64;

/// What came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checked {
    /// Inputs that were compared.
    pub inputs: usize,
    /// Inputs outside the range that the model accepts: a client refuses them, so they were not compared.
    pub refused: usize,
    /// Inputs whose answer a client refuses as none of the model's: they have no class, and no output that
    /// could be off.
    pub answers_refused: usize,
    /// Share of inputs with the float network's class (the sign, of a single output; any of those that are
    /// tied for the best).
    pub agreement: f64,
    /// Its 95 % interval, for other inputs like these.
    pub interval: [f64; 2],
    /// Shares of inputs with the right class, where labels were given.
    pub accuracy: Option<Accuracy>,
    /// Mean over inputs of the root mean square error of the outputs, as a share of their range (of a single
    /// output, and where all are the same: the range over all inputs); 0 in mode top-1. NaN where an output
    /// is, and where all answers are refused.
    pub output_error: f64,
    /// Inputs whose answer, or the float network's, holds a value that is no number: they count as wrong.
    pub no_number: usize,
    /// Inputs for which the float network's best classes are tied: which of them is answered is chance.
    pub tied: usize,
    /// Inputs for which some tensor overflowed: their answers are wrong, or refused.
    pub overflowed: usize,
    /// What to do about it, if there are any.
    pub advice: Option<String>,
    /// Tensors that came near their limits or went beyond, worst first.
    pub strained: Vec<Strained>,
}

/// Shares of inputs with the right class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Accuracy {
    /// By the float network.
    pub float: f64,
    /// By the lowered model.
    pub lowered: f64,
}

/// A tensor that came near its limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Strained {
    /// Name of the node that makes it.
    pub node: String,
    /// Its largest magnitude over all inputs, as a share of the smallest that is computed wrongly.
    pub share: f64,
    /// Inputs for which it overflowed.
    pub overflowed: usize,
    /// Inputs for which it came beyond [`NEAR`].
    pub near: usize,
}

/// How far an honest answer may be from this reference of a model, where that says something of it.
#[must_use]
pub fn useful_error_bound(model: &dyn ServerModel, reference: &[f64]) -> Option<f64> {
    useful_bound(model.error_bound(reference), tacit_floats::range(reference.iter().copied()))
}

/// Runs both on `inputs` (what the model computes on, after the client's normalisation). `labels`: the right
/// class of each.
///
/// # Errors
/// No input that the model accepts, labels for another number of inputs, a model that does not compute, or
/// `watch` wants it to end.
pub fn check(
    model: &Model,
    lowered: &dyn ServerModel,
    inputs: &[Vec<f32>],
    labels: Option<&[usize]>,
    watch: &Watch,
) -> Result<Checked, BackendError> {
    if let Some(labels) = labels.filter(|l| l.len() != inputs.len()) {
        let what = format!("{} labels for {} inputs", labels.len(), inputs.len());
        return Err(BackendError::Data { what });
    }
    let mut tally = Tally::default();
    for (i, some) in inputs.chunks(TOGETHER).enumerate() {
        watch.tell("comparing with the float network", i * TOGETHER, Some(inputs.len()))?;
        let fits = |k: &usize| lowered.interface().check_input(&some[*k]).is_ok();
        let taken: Vec<usize> = (0..some.len()).filter(fits).collect();
        tally.refused += some.len() - taken.len();
        let taken_inputs: Vec<&[f32]> = taken.iter().map(|&k| &*some[k]).collect();
        let wanted: Vec<Vec<f64>> = taken_inputs.par_iter().map(|x| model.outputs(x)).collect::<Result<_, _>>()?;
        let got = lowered.rehearse(&taken_inputs)?;
        for ((k, wanted), DryRun { answer, strains }) in taken.iter().zip(wanted).zip(got) {
            let label = labels.map(|l| l[i * TOGETHER + k]);
            let answer = lowered.check_answer(&answer).is_ok().then_some(answer);
            tally.add(model, (wanted, answer), strains, label);
        }
    }
    tally.finish(labels.is_some(), &lowered.remedy())
}

#[derive(Default)]
struct Tally {
    inputs: usize,
    refused: usize,
    answers_refused: usize,
    same: usize,
    no_number: usize,
    tied: usize,
    /// By the float network, and by the lowered model.
    right: [usize; 2],
    /// What outputs are off by: where they have a range, as a share of it.
    errors: f64,
    /// The same where all outputs of an input are one number.
    errors_without_range: f64,
    /// All wanted outputs.
    range: Option<[f64; 2]>,
    overflowed: usize,
    strained: BTreeMap<String, Strained>,
}

impl Tally {
    /// Adds an input with the float network's outputs and the answer, if a client takes it.
    fn add(
        &mut self,
        model: &Model,
        (wanted, answer): (Vec<f64>, Option<Vec<f64>>),
        strain: Vec<Strain>,
        label: Option<usize>,
    ) {
        let mode = model.interface.output_mode;
        self.inputs += 1;
        self.answers_refused += usize::from(answer.is_none());
        let got = answer.as_deref();
        let classes = [told(mode, &model.told(&wanted)), got.and_then(|got| told(mode, got))];
        self.same += usize::from(got.is_some_and(|got| agrees(mode, got, &wanted)));
        self.no_number += usize::from(wanted.iter().chain(got.into_iter().flatten()).any(|v| v.is_nan()));
        self.tied += usize::from(tacit_floats::tied_for_largest(&wanted) > 1);
        for (right, class) in self.right.iter_mut().zip(classes) {
            *right += usize::from(class.is_some() && class == label);
        }
        if let Some(got) = got.filter(|_| mode == OutputMode::Logits) {
            self.compare(&wanted, got);
        }
        self.strains(strain);
    }

    /// Takes in how far outputs are off.
    fn compare(&mut self, wanted: &[f64], got: &[f64]) {
        let [low, high] = tacit_floats::range(wanted.iter().copied());
        match low == high {
            true => self.errors_without_range += relative_error(got, wanted, 1.0),
            false => self.errors += relative_error(got, wanted, 1.0),
        }
        let [least, most] = self.range.unwrap_or([low, high]);
        self.range = Some([tacit_floats::smaller(least, low), tacit_floats::larger(most, high)]);
    }

    fn strains(&mut self, strain: Vec<Strain>) {
        // Several vectors of a node bear its name.
        let mut by_node: BTreeMap<String, f64> = BTreeMap::new();
        for Strain { node, share } in strain {
            let most = by_node.entry(node).or_default();
            *most = tacit_floats::larger(*most, share);
        }
        self.overflowed += usize::from(by_node.values().any(|share| reaches(*share, 1.0)));
        by_node
            .into_iter()
            .filter(|(_, share)| reaches(*share, NEAR))
            .for_each(|(node, share)| self.strain(node, share));
    }

    fn strain(&mut self, node: String, share: f64) {
        let fresh = Strained { node: node.clone(), share: 0.0, overflowed: 0, near: 0 };
        let known = self.strained.entry(node).or_insert(fresh);
        known.share = tacit_floats::larger(known.share, share);
        known.near += 1;
        known.overflowed += usize::from(reaches(share, 1.0));
    }

    fn finish(self, labelled: bool, remedy: &str) -> Result<Checked, BackendError> {
        if self.inputs == 0 {
            let what = format!("none of {} inputs lies in the range that the model accepts", self.refused);
            return Err(BackendError::Data { what });
        }
        let share = |count: usize| count as f64 / self.inputs as f64;
        let [float, right] = self.right.map(share);
        let spread = self.range.map_or(1.0, spread_of);
        let mut strained: Vec<Strained> = self.strained.into_values().collect();
        strained.sort_by(|a, b| tacit_floats::falling(&a.share, &b.share));
        Ok(Checked {
            inputs: self.inputs,
            refused: self.refused,
            answers_refused: self.answers_refused,
            agreement: share(self.same),
            interval: interval(share(self.same), self.inputs),
            accuracy: labelled.then_some(Accuracy { float, lowered: right }),
            // Of no answer: no number.
            output_error: (self.errors + self.errors_without_range / spread)
                / (self.inputs - self.answers_refused) as f64,
            no_number: self.no_number,
            tied: self.tied,
            overflowed: self.overflowed,
            advice: (self.overflowed > 0).then(|| format!("calibrate with inputs like these, or lower {remedy}")),
            strained,
        })
    }
}

/// Whether a share of a limit reaches this one: what is no number does.
fn reaches(share: f64, limit: f64) -> bool {
    share >= limit || share.is_nan()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cheetah::Cheetah;
    use crate::classes::class;
    use crate::{Backend, Options};
    use tacit_graph::rng::SplitMix;
    use tacit_graph::{ImportOptions, import, zoo};

    fn tiny(output_mode: OutputMode) -> Model {
        let options = ImportOptions { output_mode, ..ImportOptions::default() };
        import(&zoo::build("tiny-cnn", 2).unwrap(), &options).unwrap().model
    }

    fn inputs(count: usize) -> Vec<Vec<f32>> {
        let mut rng = SplitMix::new(3);
        (0..count).map(|_| (0..64).map(|_| rng.range(-1.0, 1.0) as f32).collect()).collect()
    }

    #[test]
    fn a_model_is_compared_with_its_float_network() {
        for mode in [OutputMode::Logits, OutputMode::Top1] {
            let model = tiny(mode);
            let options: Options = "frac_bits=12".parse().unwrap();
            let lowered = Cheetah.lower(&model, &options).unwrap();
            let mut data = inputs(20);
            let class = |x: &Vec<f32>| match mode {
                OutputMode::Top1 => model.run(x).unwrap()[0] as usize,
                OutputMode::Logits => class(&model.run(x).unwrap()).unwrap(),
            };
            // Half of the labels are right, and one input is refused.
            let mut labels: Vec<usize> = data.iter().enumerate().map(|(i, x)| class(x) + i % 2).collect();
            data.push(vec![100.0; 64]);
            labels.push(0);
            let found = check(&model, &*lowered, &data, Some(&labels), &Watch::default()).unwrap();
            assert_eq!((found.inputs, found.refused, found.overflowed), (20, 1, 0));
            assert!(found.agreement >= 0.9 && found.interval[0] < found.agreement, "{found:?}");
            assert_eq!(found.accuracy.unwrap().float, 0.5);
            assert!(found.output_error < 1e-2 && found.strained.iter().all(|s| s.share < 1.0));
            let unlabelled = check(&model, &*lowered, &data, None, &Watch::default()).unwrap();
            assert_eq!(Checked { accuracy: found.accuracy, ..unlabelled }, found);
        }
    }

    #[test]
    fn what_overflows_is_named() {
        let mut model = tiny(OutputMode::Logits);
        // Calibration that saw almost nothing.
        for sizes in [&mut model.calibration.max_abs, &mut model.calibration.extreme] {
            sizes[1..].iter_mut().for_each(|v| *v /= 64.0);
        }
        let lowered = Cheetah.lower(&model, &"frac_bits=8".parse().unwrap()).unwrap();
        let found = check(&model, &*lowered, &inputs(5), None, &Watch::default()).unwrap();
        assert!(found.overflowed > 0 && found.strained[0].share >= 1.0, "{found:?}");
        assert!(found.advice.is_some_and(|advice| advice.contains("-O clamp=true")));
        assert!(found.strained.is_sorted_by(|a, b| a.share >= b.share));
        let clamped = Cheetah.lower(&model, &"frac_bits=8,clamp=true".parse().unwrap()).unwrap();
        let found = check(&model, &*clamped, &inputs(5), None, &Watch::default()).unwrap();
        assert_eq!((found.overflowed, found.advice), (0, None));
    }

    #[test]
    fn what_is_no_number_counts_as_wrong() {
        let model = tiny(OutputMode::Logits);
        let mut tally = Tally::default();
        let wanted: Vec<f64> = (0..10).map(f64::from).collect();
        let strained = |share| vec![Strain { node: "a".into(), share }, Strain { node: "a".into(), share }];
        tally.add(&model, (wanted.clone(), Some(wanted.clone())), strained(0.1), Some(9));
        let mut broken = wanted.clone();
        broken[3] = f64::NAN;
        tally.add(&model, (wanted.clone(), Some(broken.clone())), strained(f64::NAN), Some(9));
        tally.add(&model, (broken.clone(), Some(broken)), strained(2.0), Some(0));
        let found = tally.finish(true, "").unwrap();
        assert_eq!((found.inputs, found.agreement, found.no_number, found.overflowed), (3, 1.0 / 3.0, 2, 2));
        assert!(found.output_error.is_nan());
        assert_eq!(found.accuracy, Some(Accuracy { float: 2.0 / 3.0, lowered: 1.0 / 3.0 }));
        // Two vectors of one node: an input overflows it once.
        let [Strained { overflowed: 2, near: 2, .. }] = found.strained[..] else { panic!("{found:?}") };
        assert!(found.strained[0].share.is_nan());
    }

    #[test]
    fn an_answer_that_a_client_refuses_is_counted_apart() {
        let model = tiny(OutputMode::Logits);
        let wanted: Vec<f64> = (0..10).map(f64::from).collect();
        let mut tally = Tally::default();
        tally.add(&model, (wanted.clone(), None), vec![], Some(9));
        let all_refused = tally.finish(true, "").unwrap();
        assert_eq!((all_refused.answers_refused, all_refused.agreement, all_refused.no_number), (1, 0.0, 0));
        assert!(all_refused.output_error.is_nan(), "never an error of 0: {all_refused:?}");
        let mut tally = Tally::default();
        tally.add(&model, (wanted.clone(), None), vec![], Some(9));
        tally.add(&model, (wanted.clone(), Some(wanted)), vec![], Some(9));
        let found = tally.finish(true, "").unwrap();
        assert_eq!((found.inputs, found.answers_refused, found.agreement, found.output_error), (2, 1, 0.5, 0.0));
        assert_eq!(found.accuracy, Some(Accuracy { float: 1.0, lowered: 0.5 }));
    }

    #[test]
    fn the_error_of_a_single_output_is_measured_in_the_range_of_all() {
        let model = tiny(OutputMode::Logits);
        let mut tally = Tally::default();
        for wanted in [-4.0, 0.25, 4.0] {
            tally.add(&model, (vec![wanted], Some(vec![wanted + 0.08])), vec![], None);
        }
        let found = tally.finish(false, "").unwrap();
        assert!((found.output_error - 0.01).abs() < 1e-12, "{found:?}");
        // And so it is where all outputs of an input are alike.
        let mut tally = Tally::default();
        tally.add(&model, (vec![1.0, 1.0], Some(vec![1.1, 1.1])), vec![], None);
        tally.add(&model, (vec![1.0, 3.0], Some(vec![1.0, 3.0])), vec![], None);
        let found = tally.finish(false, "").unwrap();
        assert!((found.output_error - 0.025).abs() < 1e-12 && found.tied == 1 && found.agreement == 1.0, "{found:?}");
    }

    #[test]
    fn data_that_tells_nothing_is_an_error() {
        let model = tiny(OutputMode::Logits);
        let lowered = Cheetah.lower(&model, &"frac_bits=8".parse().unwrap()).unwrap();
        let run = |data: &[Vec<f32>], labels: Option<&[usize]>| {
            check(&model, &*lowered, data, labels, &Watch::default()).unwrap_err().to_string()
        };
        assert!(run(&inputs(2), Some(&[1])).contains("1 labels for 2 inputs"));
        assert!(run(&[vec![100.0; 64]], None).contains("none of 1 inputs"));
    }
}
