//! A lowered model against its float network on a data set, in the clear: what its owner should know before
//! serving it.

mod private;

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;
use tacit_graph::{Model, OutputMode, Watch};

pub use self::private::{Ran, Took, run as run_privately};
use crate::classes::{interval, relative_error, spread, told};
use crate::{BackendError, Rehearsal, ServerModel, Strain};

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
    /// Share of inputs with the float network's class (the sign, of a single output).
    pub agreement: f64,
    /// Its 95 % interval, for other inputs like these.
    pub interval: [f64; 2],
    /// Shares of inputs with the right class, where labels were given.
    pub accuracy: Option<Accuracy>,
    /// Mean over inputs of the root mean square error of the outputs, as a share of their range; 0 in mode
    /// top-1.
    pub output_error: f64,
    /// Inputs for which some tensor overflowed: their answers are wrong.
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
        let wanted: Vec<Vec<f64>> = taken_inputs.par_iter().map(|x| model.run(x)).collect::<Result<_, _>>()?;
        let got = lowered.rehearse(&taken_inputs)?;
        for ((k, wanted), Rehearsal { answer, strains }) in taken.iter().zip(wanted).zip(got) {
            tally.add(model, [wanted, answer], strains, labels.map(|l| l[i * TOGETHER + k]));
        }
    }
    tally.finish(labels.is_some(), &lowered.remedy())
}

#[derive(Default)]
struct Tally {
    inputs: usize,
    refused: usize,
    same: usize,
    /// By the float network, and by the lowered model.
    right: [usize; 2],
    error: f64,
    overflowed: usize,
    strained: BTreeMap<String, Strained>,
}

impl Tally {
    fn add(&mut self, model: &Model, [wanted, got]: [Vec<f64>; 2], strain: Vec<Strain>, label: Option<usize>) {
        let classes = [&wanted, &got].map(|answer| told(model.interface.output_mode, answer));
        self.inputs += 1;
        self.same += usize::from(classes[0] == classes[1]);
        for (right, class) in self.right.iter_mut().zip(classes) {
            *right += usize::from(Some(class) == label);
        }
        if model.interface.output_mode == OutputMode::Logits {
            let spread = spread(std::slice::from_ref(&wanted));
            self.error += relative_error(&got, &wanted, spread);
        }
        self.overflowed += usize::from(strain.iter().any(|s| s.share >= 1.0));
        strain.into_iter().filter(|s| s.share >= NEAR).for_each(|s| self.strain(s));
    }

    fn strain(&mut self, Strain { node, share }: Strain) {
        let fresh = Strained { node: node.clone(), share: 0.0, overflowed: 0, near: 0 };
        let known = self.strained.entry(node).or_insert(fresh);
        known.share = known.share.max(share);
        known.near += 1;
        known.overflowed += usize::from(share >= 1.0);
    }

    fn finish(self, labelled: bool, remedy: &str) -> Result<Checked, BackendError> {
        if self.inputs == 0 {
            let what = format!("none of {} inputs lies in the range that the model accepts", self.refused);
            return Err(BackendError::Data { what });
        }
        let share = |count: usize| count as f64 / self.inputs as f64;
        let [float, right] = self.right.map(share);
        let mut strained: Vec<Strained> = self.strained.into_values().collect();
        strained.sort_by(|a, b| b.share.total_cmp(&a.share));
        Ok(Checked {
            inputs: self.inputs,
            refused: self.refused,
            agreement: share(self.same),
            interval: interval(share(self.same), self.inputs),
            accuracy: labelled.then_some(Accuracy { float, lowered: right }),
            output_error: self.error / self.inputs as f64,
            overflowed: self.overflowed,
            advice: (self.overflowed > 0).then(|| format!("calibrate with inputs like these, or lower {remedy}")),
            strained,
        })
    }
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
                OutputMode::Logits => class(&model.run(x).unwrap()),
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
