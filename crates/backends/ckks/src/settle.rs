//! The search for lowering options that leave the protocol unchanged: composites, degrees, margins, domains
//! and the share of the accepted range. Choices are tried from cheap to expensive, until answers hold on the
//! judging inputs.
//!
//! A network with functions is lowered only with polynomials that hold on all inputs it then accepts or, by
//! an option, with the ranges of its samples. A network of polynomials can go wrong only beyond the limit of
//! a bootstrap or a modulus: limits without a proof are measured.

use std::borrow::Cow;
use std::cmp::Reverse;

use tacit_graph::{Interval, Model, OutputMode, Watch};

use super::emit::Samples;
use super::judge::{Judge, Judged, Runs};
use super::levelled_program::Emitted;
use super::options::{Domain, Options};
use super::plan::{Plan, plan_of};
use super::refusal::{FailedChoice, MAX_OFF, add_hint, is_function, refusal, uncertain};
use super::refused_cost;
use tacit_backend_api::{BackendError, Result, seam};

const MARGINS: [f64; 3] = [1.25, 2.0, 4.0];
/// Tolerances that are tried, as shares of the allowed one.
const TOLERANCES: [f64; 3] = [1.0, 0.25, 0.0625];
/// Output error above which finer polynomials do not help.
const HOPELESS_ERROR: f64 = 100.0 * MAX_OFF;
/// Narrower ranges, as shares of the way from the accepted range to that of the samples. The narrowest is
/// first: it shows whether anything holds.
const NARROWING_SHARES: [f64; 3] = [1.0, 1.0 / 3.0, 2.0 / 3.0];
/// Certain scales are taken if their error is at most so many times as large.
const MAX_ERROR_RATIO: f64 = 4.0;
/// Factor on the largest measured error: other inputs may err more.
const UNTRIED_FACTOR: f64 = 4.0;
/// Ranges that differ by a smaller share count as the same.
const ALIKE_SHARE: f64 = 0.02;

/// The network with its accepted range, and the choice that holds on it.
pub(super) struct SettledModel<'m> {
    pub model: Cow<'m, Model>,
    pub choice: AcceptedChoice,
}

/// Options that hold, with their plan and verdict.
pub(super) struct AcceptedChoice {
    pub options: Options,
    pub emitted: Emitted,
    pub plan: Plan,
    pub judged: Judged,
}

/// A network with an accepted range, and the judge for that range.
struct RangedModel<'m> {
    model: Cow<'m, Model>,
    judge: Judge,
}

impl<'m> RangedModel<'m> {
    fn new(model: Cow<'m, Model>) -> Result<Self> {
        Ok(Self { judge: Judge::new(&model)?, model })
    }
}

/// A search through choices of options, and what its attempts have shown.
struct Search<'a> {
    requested: &'a Options,
    watch: &'a Watch,
    tried: usize,
    best: Option<FailedChoice>,
    broken: Option<BackendError>,
    functions: bool,
    unbounded: bool,
}

/// Searches the choices for a model.
///
/// # Errors
/// A node that cannot be lowered; [`BackendError::Option`] where no choice holds.
pub(super) fn settle<'m>(model: &'m Model, text: &seam::Options, watch: &Watch) -> Result<SettledModel<'m>> {
    let mut requested = Options::read(text)?;
    let has_margin = text.iter().any(|(key, _)| key == "margin");
    if requested.domain == Domain::Auto && has_margin {
        // A margin is meant for the ranges of samples.
        requested.domain = Domain::Calibrated;
    }
    let functions = model.graph.nodes.iter().any(|node| is_function(&node.op));
    let search =
        Search { requested: &requested, watch, tried: 0, best: None, broken: None, functions, unbounded: false };
    let ranged = RangedModel::new(Cow::Borrowed(model))?;
    let result = match (requested.domain, functions) {
        (Domain::Auto, true) => search.widest(ranged),
        (Domain::Auto, false) => search.scaled(ranged, has_margin),
        (Domain::Calibrated, _) => search.only(ranged, &calibrated(&requested, has_margin)),
        (Domain::Accepted, _) => search.only(ranged, &accepted(&requested)),
    };
    let domain = requested.domain;
    result.map_err(|error| {
        let error = if functions && domain != Domain::Calibrated { add_hint(error, &model.graph) } else { error };
        refused_cost::add_cost(error, &model.graph)
    })
}

/// The stated error for a measured `off`: a power of two, since `off` depends on the weights and little of it
/// is published.
pub(super) fn published_error(off: f64) -> f64 {
    if off > 0.0 { (UNTRIED_FACTOR * off).log2().ceil().exp2() } else { 0.0 }
}

pub(super) fn holds(judged: &Judged, options: &Options, model: &Model) -> bool {
    let min_agreement = options.agreement;
    let agrees = judged.agreement.is_none_or(|share| share >= min_agreement);
    let expected = judged.expected.is_none_or(|expected| expected.share >= min_agreement);
    let is_near = model.calibration.guessed || min_agreement == 0.0 || judged.output_error <= MAX_OFF;
    options.tolerates(judged.wrong()) && agrees && expected && is_near
}

impl Search<'_> {
    fn widest<'m>(mut self, full_range: RangedModel<'m>) -> Result<SettledModel<'m>> {
        let choices = accepted(self.requested);
        if let Some(choice) = self.first(&full_range, &choices)? {
            return Ok(SettledModel { model: full_range.model, choice });
        }
        let mut narrowest = None;
        for share in NARROWING_SHARES {
            let Some(model) = narrowed(&full_range.model, share) else { break };
            let ranged = RangedModel::new(Cow::Owned(model))?;
            match self.first(&ranged, &choices)? {
                Some(choice) if share < 1.0 => return Ok(SettledModel { model: ranged.model, choice }),
                Some(choice) => narrowest = Some(SettledModel { model: ranged.model, choice }),
                // Nothing holds on the narrowest range, so neither on wider ones.
                None if share >= 1.0 => break,
                None => {}
            }
        }
        narrowest.ok_or_else(|| self.refusal())
    }

    fn only<'m>(mut self, ranged: RangedModel<'m>, choices: &[Options]) -> Result<SettledModel<'m>> {
        let choice = self.first(&ranged, choices)?;
        choice.map(|choice| SettledModel { model: ranged.model, choice }).ok_or_else(|| self.refusal())
    }

    /// Takes the scales of samples if they are certain and no answer is refused; otherwise certain scales of
    /// not much larger error; otherwise larger margins.
    fn scaled<'m>(mut self, ranged: RangedModel<'m>, has_margin: bool) -> Result<SettledModel<'m>> {
        let scales = margins(self.requested, has_margin);
        let mut choice = self.first(&ranged, &scales[..1])?;
        if !choice.as_ref().is_some_and(|choice| choice.plan.public.certain && choice.judged.refused() == 0) {
            let certain = Options { domain: Domain::Accepted, ..self.requested.clone() };
            let accepted = self.first(&ranged, &[certain])?;
            choice = match (accepted, choice) {
                (Some(accepted), Some(calibrated))
                    if accepted.plan.public.error > MAX_ERROR_RATIO * calibrated.plan.public.error =>
                {
                    Some(calibrated)
                }
                (accepted, calibrated) => accepted.or(calibrated),
            };
        }
        if choice.is_none() {
            choice = self.first(&ranged, &scales[1..])?;
        }
        choice.map(|choice| SettledModel { model: ranged.model, choice }).ok_or_else(|| self.refusal())
    }

    fn first(&mut self, ranged: &RangedModel<'_>, choices: &[Options]) -> Result<Option<AcceptedChoice>> {
        let mut hopeless = None;
        for options in choices {
            self.watch.tell("choosing polynomials", self.tried, None)?;
            self.tried += 1;
            let kind = (options.domain, options.margin);
            if hopeless == Some(kind) {
                continue;
            }
            match self.try_options(ranged, options) {
                Ok(Tried::Holds(choice)) => return Ok(Some(*choice)),
                Ok(Tried::Fails) => {}
                Ok(Tried::Hopeless) => hopeless = Some(kind),
                Err(
                    error
                    @ (BackendError::Unsupported { .. } | BackendError::Option { .. } | BackendError::Data { .. }),
                ) => {
                    self.broken.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Tries one choice with ranges of the samples that do not judge and, if that holds, with ranges of all
    /// samples.
    fn try_options(&mut self, ranged: &RangedModel<'_>, options: &Options) -> Result<Tried> {
        let RangedModel { model, judge } = ranged;
        let mut emitted = Emitted::new(model, options, Samples::Searched, self.watch)?;
        if options.domain == Domain::Accepted && !emitted.is_certain() {
            self.unbounded = true;
            return Ok(Tried::Hopeless);
        }
        emitted.setting(options)?;
        let judged = judge.judge_program(emitted.program());
        if !holds(&judged, options, model) {
            let hopeless = judged.output_error > HOPELESS_ERROR || judged.output_error.is_nan();
            self.record_failure(options, judged);
            return Ok(if hopeless { Tried::Hopeless } else { Tried::Fails });
        }
        if judge.holds_out() {
            emitted = Emitted::new(model, options, Samples::All, self.watch)?;
        }
        let approximation_error = match model.interface.output_mode {
            // Few inputs come near a polynomial's worst point, so the measured error may be far too small.
            OutputMode::Logits => {
                published_error(tacit_floats::larger(judged.max_deviation, emitted.largest_error() / UNTRIED_FACTOR))
            }
            OutputMode::Top1 => 0.0,
        };
        let plan = plan_of(model, &emitted, options, approximation_error, self.watch)?;
        let runs = Runs {
            rehearse: &|inputs| plan.rehearse(inputs),
            refuses: &|answer| plan.public.check_answer(answer).is_err(),
            stated: plan.public.stated_error(),
        };
        let judged = judge.judge_runs(&judged, &runs);
        if holds(&judged, options, model) && self.is_vouched(&plan, &judged, model.interface.output_mode) {
            return Ok(Tried::Holds(Box::new(AcceptedChoice { options: options.clone(), emitted, plan, judged })));
        }
        self.record_failure(options, judged);
        Ok(Tried::Fails)
    }

    /// Whether the plan holds for what the model accepts. A client cannot check a class: such a plan must be
    /// certain, unless no tried input exceeds a limit and the network is one of polynomials or an option asks
    /// for sample ranges.
    fn is_vouched(&mut self, plan: &Plan, judged: &Judged, mode: OutputMode) -> bool {
        let is_requested = self.requested.domain == Domain::Calibrated;
        let is_vouched = plan.is_certain()
            || match mode {
                OutputMode::Logits => plan.options.domain == Domain::Calibrated,
                OutputMode::Top1 => (is_requested || !self.functions) && judged.outside_domain() == 0,
            };
        self.unbounded |= !is_vouched;
        is_vouched
    }

    fn record_failure(&mut self, options: &Options, judged: Judged) {
        if self.best.as_ref().is_none_or(|best| worth(&judged) > worth(&best.judged)) {
            self.best = Some(FailedChoice { options: options.clone(), judged });
        }
    }

    fn refusal(self) -> BackendError {
        let Self { requested, best, broken, unbounded, .. } = self;
        match (best, broken) {
            (Some(best), _) if !(unbounded && fails_only_certainty(&best)) => refusal(&best),
            (_, Some(error)) if !unbounded => error,
            _ => uncertain(requested.domain),
        }
    }
}

fn worth(judged: &Judged) -> (Reverse<usize>, f64) {
    (Reverse(judged.wrong()), judged.agreement.unwrap_or(1.0) - judged.output_error)
}

enum Tried {
    Holds(Box<AcceptedChoice>),
    Fails,
    /// The choice fails, and so would finer polynomials.
    Hopeless,
}

fn fails_only_certainty(FailedChoice { options, judged }: &FailedChoice) -> bool {
    let share = judged.agreement.unwrap_or(1.0);
    options.tolerates(judged.wrong()) && share >= options.agreement && judged.output_error <= MAX_OFF
}

/// Choices with finer polynomials; composites follow where none is fine enough.
fn refinements(options: &Options) -> Vec<Options> {
    TOLERANCES.map(|share| Options { tolerance: options.tolerance * share, ..options.clone() }).to_vec()
}

fn accepted(requested: &Options) -> Vec<Options> {
    refinements(&Options { domain: Domain::Accepted, ..requested.clone() })
}

fn margins(requested: &Options, has_margin: bool) -> Vec<Options> {
    let margins = if has_margin { vec![requested.margin] } else { MARGINS.to_vec() };
    let margins = margins.into_iter();
    margins.map(|margin| Options { domain: Domain::Calibrated, margin, ..requested.clone() }).collect()
}

fn calibrated(requested: &Options, has_margin: bool) -> Vec<Options> {
    margins(requested, has_margin).iter().flat_map(refinements).collect()
}

/// The model with a range between the accepted one and that of its samples; `None` if these are alike.
fn narrowed(model: &Model, share: f64) -> Option<Model> {
    let accepted = model.interface.input.range.ends().map(f64::from);
    let samples = tacit_floats::range(model.calibration.samples.iter().flatten().copied()).ends();
    let [low, high] = std::array::from_fn(|end| match share >= 1.0 {
        true => samples[end] as f32,
        false => (accepted[end] + share * (samples[end] - accepted[end])) as f32,
    });
    if width(samples).is_nan() || width(samples) >= (1.0 - ALIKE_SHARE) * width(accepted) {
        return None;
    }
    let mut model = model.clone();
    model.interface.input.range = Interval { low, high };
    Some(model)
}

fn width([low, high]: [f64; 2]) -> f64 {
    high - low
}
