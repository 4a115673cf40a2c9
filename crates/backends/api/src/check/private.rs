//! Runs inputs through client and server in one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use tacit_graph::{Model, OutputMode, Watch};
use tacit_mpc::run_pair;
use tacit_net::Channel;

use crate::classes::{agrees, answer_class, class, is_class_of, root_mean_square, useful_bound};
use crate::{Backend, BackendError, ConnectionResources, Material, Preparation, Result, ServerModel, Setup, Trust};

/// The result of running both parties.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunReport {
    /// Inputs with an answer.
    pub inputs: usize,
    /// Inputs whose answer the client refused. No other field counts them.
    pub answers_refused: usize,
    /// Answers with the float network's class, or a class tied with it.
    pub same_class: usize,
    /// Answers with the class of the model's own arithmetic in the clear.
    pub as_reference: usize,
    /// Wrong answers because of a NaN.
    pub no_number: usize,
    /// Largest distance of an output from the reference, in real units; 0 in mode top-1. NaN if either is
    /// NaN, or without answers.
    pub off: f64,
    /// Root mean square distance of outputs from the float network, averaged over inputs.
    pub error: f64,
    /// Largest [`off`](Self::off) of an honest run; infinite if there is no bound.
    #[serde(skip)]
    pub bound: f64,
    /// The bound, if it is useful ([`useful_bound`]) for these outputs.
    pub stated: Option<f64>,
    /// Costs of keys and other setup.
    pub setup: Took,
    /// Mean costs of the offline phase of one input.
    pub offline: Took,
    /// Mean costs of the online phase of one input.
    pub online: Took,
    /// The server's mean seconds of one online phase by kind of step, if the back end reports steps.
    pub steps: BTreeMap<&'static str, f64>,
}

struct Split {
    last_mark: Instant,
    seconds: BTreeMap<&'static str, f64>,
}

impl Split {
    fn new() -> Self {
        Self { last_mark: Instant::now(), seconds: BTreeMap::new() }
    }

    fn begin(&mut self) {
        self.last_mark = Instant::now();
    }

    fn note(&mut self, step: &'static str) {
        *self.seconds.entry(step).or_default() += self.last_mark.elapsed().as_secs_f64();
        self.begin();
    }
}

/// The costs of a phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Took {
    /// Seconds.
    pub seconds: f64,
    /// Bytes from client to server, with frame headers.
    pub up_bytes: u64,
    /// Bytes from server to client, with frame headers.
    pub down_bytes: u64,
}

impl RunReport {
    fn compare(&mut self, mode: OutputMode, answer: &[f64], float: &[f64], reference: &[f64]) {
        self.inputs += 1;
        self.same_class += usize::from(agrees(mode, answer, float));
        self.no_number += usize::from(answer.iter().any(|v| v.is_nan()));
        if mode == OutputMode::Logits {
            self.as_reference += usize::from(is_class_of(class(answer), reference));
            self.off = tacit_floats::larger(self.off, tacit_floats::largest_distance(answer, reference));
            self.error += (root_mean_square(answer, float) - self.error) / self.inputs as f64;
        } else {
            let [answer_class, reference_class] = [answer, reference].map(|answer| answer_class(mode, answer));
            self.as_reference += usize::from(answer_class.is_some() && answer_class == reference_class);
        }
    }
}

fn timed<T>(total: &mut Took, channel: &mut Channel, phase: impl FnOnce(&mut Channel) -> Result<T>) -> Result<T> {
    let (started, before) = (Instant::now(), channel.total_traffic());
    let result = phase(channel)?;
    let after = channel.total_traffic();
    total.seconds += started.elapsed().as_secs_f64();
    total.up_bytes += after.sent - before.sent;
    total.down_bytes += after.received - before.received;
    Ok(result)
}

impl Took {
    fn divided_by(self, count: usize) -> Self {
        let [up_bytes, down_bytes] = [self.up_bytes, self.down_bytes].map(|bytes| bytes / count.max(1) as u64);
        Self { seconds: self.seconds / count.max(1) as f64, up_bytes, down_bytes }
    }
}

/// Runs `inputs` (after normalisation) through both parties, one after the other on one connection. Compares
/// the answers with the float network and with the model's own arithmetic.
///
/// # Errors
/// The model accepts no input, the back end needs a dealer, a phase fails, or `watch` interrupts.
pub fn run(
    model: &Model,
    backend: &dyn Backend,
    lowered: &Arc<dyn ServerModel>,
    inputs: &[Vec<f32>],
    watch: &Watch,
) -> Result<RunReport> {
    if backend.trust() == Trust::Dealer {
        let id = backend.id();
        return refuse(format!("`{id}` takes material from a dealer, which does not run here: `tacit bench` has one"));
    }
    let inputs: Vec<&Vec<f32>> = inputs.iter().filter(|x| lowered.interface().check_input(x).is_ok()).collect();
    if inputs.is_empty() {
        return refuse("none of these inputs lies in the range that the model accepts".into());
    }
    let split = Arc::new(Mutex::new(Split::new()));
    let (answers, [setup, offline, online]) = run_both_parties(backend, lowered, &inputs, watch, &split)?;
    let [offline, online] = [offline, online].map(|took| took.divided_by(inputs.len()));
    let count = inputs.len() as f64;
    let steps = locked(&split).seconds.iter().map(|(step, seconds)| (*step, seconds / count)).collect();
    let mut ran = RunReport { setup, offline, online, steps, ..RunReport::default() };
    let mut references = Vec::new();
    for (input, answer) in inputs.into_iter().zip(answers) {
        let Some(answer) = answer else {
            ran.answers_refused += 1;
            continue;
        };
        let (float, reference) = (model.outputs(input)?, lowered.reference(input)?);
        ran.compare(model.interface.output_mode, &answer, &float, &reference);
        ran.bound = tacit_floats::larger(ran.bound, lowered.error_bound(&reference));
        references.extend(reference);
    }
    if ran.inputs == 0 {
        [ran.off, ran.error] = [f64::NAN; 2];
    }
    ran.stated = useful_bound(ran.bound, tacit_floats::range(references));
    Ok(ran)
}

fn refuse(what: String) -> Result<RunReport> {
    Err(BackendError::Data { what })
}

fn locked(split: &Mutex<Split>) -> std::sync::MutexGuard<'_, Split> {
    split.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answers to inputs; `None` if the client refuses one.
type Answers = Vec<Option<Vec<f64>>>;

/// The total costs of setup, offline and online phases too. Records the server's online steps in
/// `split`.
fn run_both_parties(
    backend: &dyn Backend,
    lowered: &Arc<dyn ServerModel>,
    inputs: &[&Vec<f32>],
    watch: &Watch,
    split: &Arc<Mutex<Split>>,
) -> Result<(Answers, [Took; 3])> {
    let (sets_up, prepares) = (lowered.setup() != Setup::Nothing, lowered.preparation() != Preparation::Nothing);
    let mut took = [Took::default(); 3];
    let ask = |channel: &mut Channel| {
        let [setup, offline, online] = &mut took;
        let mut side = backend.open(lowered.public_bytes())?.connect(&ConnectionResources::default())?;
        if sets_up {
            timed(setup, channel, |channel| side.setup(channel))?;
        }
        let mut answers = Vec::with_capacity(inputs.len());
        for (index, input) in inputs.iter().enumerate() {
            watch.tell("running both parties", index, Some(inputs.len()))?;
            let material = match prepares {
                true => timed(offline, channel, |channel| side.offline(channel))?,
                false => Material::nothing(),
            };
            let answer = timed(online, channel, |channel| {
                // The server's steps start with the client's message.
                locked(split).begin();
                match side.online(channel, material, input) {
                    Ok(answer) => Ok(Some(answer)),
                    // The connection stays usable.
                    Err(BackendError::Answer { .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            });
            answers.push(answer?);
        }
        Ok::<_, BackendError>(answers)
    };
    let serve = |channel: &mut Channel| {
        let shared_split = split.clone();
        let watch = Watch::new(move |step| {
            locked(&shared_split).note(step.what);
            true
        });
        let mut side = lowered.clone().connect(&ConnectionResources { watch, ..ConnectionResources::default() })?;
        if sets_up {
            side.setup(channel)?;
            channel.flush()?;
        }
        locked(split).seconds.clear();
        for _ in inputs {
            let material = if prepares { side.offline(channel)? } else { Material::nothing() };
            side.online(channel, material)?;
        }
        Ok::<_, BackendError>(())
    };
    match run_pair(ask, serve) {
        (Ok(answers), Ok(())) => Ok((answers, took)),
        // The first party to fail breaks the connection of the other.
        (Err(BackendError::Net(_)), Err(first)) | (Err(first), _) | (Ok(_), Err(first)) => Err(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn nan_answer_is_wrong() {
        let mut ran = RunReport::default();
        let float = [0.25, 1.0];
        ran.compare(OutputMode::Logits, &[0.5, 1.0], &float, &float);
        assert_eq!((ran.same_class, ran.as_reference, ran.no_number, ran.off), (1, 1, 0, 0.25));
        assert!((ran.error - 0.25 / std::f64::consts::SQRT_2).abs() < 1e-12, "{ran:?}");
        for answer in [[f64::NAN, f64::NAN], [0.25, -f64::NAN]] {
            ran.compare(OutputMode::Logits, &answer, &float, &float);
        }
        assert_eq!((ran.same_class, ran.as_reference, ran.no_number), (1, 1, 2));
        assert!(ran.off.is_nan());
        assert!(ran.error.is_nan());
        // Neither earlier nor later values hide a NaN.
        ran.compare(OutputMode::Logits, &float, &float, &float);
        assert!(ran.off.is_nan());
        // The reference is NaN, so no answer agrees with it.
        ran.compare(OutputMode::Logits, &[f64::NAN; 2], &[f64::NAN; 2], &[f64::NAN; 2]);
        ran.compare(OutputMode::Top1, &[f64::NAN], &float, &[f64::NAN]);
        assert_eq!((ran.same_class, ran.as_reference, ran.no_number), (2, 2, 4));
        ran.compare(OutputMode::Top1, &[0.0], &[3.0, 3.0], &[0.0]);
        assert_eq!((ran.same_class, ran.as_reference), (3, 3));
    }
}
