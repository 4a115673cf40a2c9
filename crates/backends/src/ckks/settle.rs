//! Which of the choices that leave the protocol alone a network is lowered with: composites, degrees, margins
//! and domains, from cheap to dear, until answers hold on what judges them.

use tacit_graph::{Model, Watch};

use super::beyond;
use super::emit::Samples;
use super::frame::Emitted;
use super::judge::{Judge, Judged};
use super::options::{Domain, NAME, Options};
use crate::{BackendError, seam};

/// Margins that are tried where none is given.
const MARGINS: [f64; 3] = [1.25, 2.0, 4.0];
/// Tolerances that are tried, as shares of the one that is allowed.
const TOLERANCES: [f64; 3] = [1.0, 0.25, 0.0625];
/// Most that outputs may be off on average, as a share of their range.
const MOST_OFF: f64 = 0.05;

/// What a network is lowered with.
pub(super) struct Settled {
    pub options: Options,
    pub emitted: Emitted,
    pub judged: Judged,
}

/// A choice, and the verdict why it does not do.
pub(super) struct Fallen {
    pub options: Options,
    pub judged: Judged,
}

struct Search<'a> {
    model: &'a Model,
    judge: &'a Judge<'a>,
    watch: &'a Watch,
    tried: usize,
    best: Option<Fallen>,
    /// Why what could not be built was not.
    broken: Option<BackendError>,
}

/// The choices for a model.
///
/// # Errors
/// A node that cannot be lowered; [`BackendError::Option`] says what would do where no choice does.
pub(super) fn settle(model: &Model, text: &seam::Options, watch: &Watch) -> Result<Settled, BackendError> {
    settled_by(model, &Judge::new(model)?, text, watch)
}

/// The same by a judge that was made before.
///
/// # Errors
/// As [`settle`].
pub(super) fn settled_by(
    model: &Model,
    judge: &Judge,
    text: &seam::Options,
    watch: &Watch,
) -> Result<Settled, BackendError> {
    let asked = Options::read(text)?;
    let has_margin = text.iter().any(|(key, _)| key == "margin");
    let mut search = Search { model, judge, watch, tried: 0, best: None, broken: None };
    search.run(&asked, has_margin).map_err(|error| beyond::priced(error, &model.graph))
}

/// What is stated where the largest error that was seen is `off`: a power of two, since it depends on the
/// weights and little of it is published.
pub(super) fn stated(off: f64) -> f64 {
    if off > 0.0 { (2.0 * off).log2().ceil().exp2() } else { 0.0 }
}

/// Whether a verdict is good enough.
pub(super) fn holds(judged: &Judged, options: &Options, model: &Model) -> bool {
    let asked = options.agreement;
    let agrees = judged.agreement.is_none_or(|share| share >= asked);
    let expected = judged.expected.is_none_or(|expected| expected.share >= asked);
    let is_near = model.calibration.guessed || asked == 0.0 || judged.output_error <= MOST_OFF;
    judged.wrong() == 0 && agrees && expected && is_near
}

impl Search<'_> {
    fn run(&mut self, asked: &Options, has_margin: bool) -> Result<Settled, BackendError> {
        let usual = Options { domain: Domain::Calibrated, ..asked.clone() };
        if asked.domain != Domain::Accepted {
            let first = Emitted::new(self.model, &usual, Samples::Searched, self.watch)?;
            // Without approximations there is nothing to choose.
            if first.is_exact() {
                return match self.judged(&usual, first)? {
                    Some(settled) => Ok(settled),
                    None => Err(self.refusal()),
                };
            }
        }
        let accepted = Options { domain: Domain::Accepted, ..asked.clone() };
        let mut choices = Vec::new();
        if asked.domain != Domain::Calibrated {
            choices.extend(finer(&accepted));
        }
        if asked.domain != Domain::Accepted {
            let margins = if has_margin { vec![asked.margin] } else { MARGINS.to_vec() };
            choices.extend(margins.into_iter().flat_map(|margin| finer(&Options { margin, ..usual.clone() })));
        }
        for options in &choices {
            self.watch.tell("choosing polynomials", self.tried, Some(choices.len()))?;
            if let Some(settled) = self.tries(options)? {
                return Ok(settled);
            }
        }
        Err(self.refusal())
    }

    /// One choice: none if it does not do.
    fn tries(&mut self, options: &Options) -> Result<Option<Settled>, BackendError> {
        self.tried += 1;
        match Emitted::new(self.model, options, Samples::Searched, self.watch) {
            Ok(emitted) => self.judged(options, emitted),
            Err(error @ (BackendError::Unsupported { .. } | BackendError::Option { .. })) => {
                self.broken.get_or_insert(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The same, from ranges of the samples that do not judge.
    fn judged(&mut self, options: &Options, emitted: Emitted) -> Result<Option<Settled>, BackendError> {
        if let Err(error) = emitted.setting(options) {
            self.broken.get_or_insert(error);
            return Ok(None);
        }
        let judged = self.judge.of_program(emitted.program());
        if holds(&judged, options, self.model) {
            let emitted = match self.judge.holds_out() {
                true => Emitted::new(self.model, options, Samples::All, self.watch)?,
                false => emitted,
            };
            return Ok(Some(Settled { options: options.clone(), emitted, judged }));
        }
        let worth = |judged: &Judged| (judged.wrong() == 0, judged.agreement.unwrap_or(1.0) - judged.output_error);
        if self.best.as_ref().is_none_or(|best| worth(&judged) > worth(&best.judged)) {
            self.best = Some(Fallen { options: options.clone(), judged });
        }
        Ok(None)
    }

    fn refusal(&mut self) -> BackendError {
        match (&self.best, self.broken.take()) {
            (Some(best), _) => refusal(best),
            (None, Some(error)) => error,
            (None, None) => BackendError::Misuse("a search tries something"),
        }
    }
}

/// With finer polynomials, and composites behind them.
fn finer(options: &Options) -> Vec<Options> {
    TOLERANCES.map(|share| Options { tolerance: options.tolerance * share, ..options.clone() }).to_vec()
}

/// Why the best choice does not do, and what would.
pub(super) fn refusal(Fallen { options, judged }: &Fallen) -> BackendError {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let asked = options.agreement;
    let samples = if judged.samples.held_out > 0 { "samples held out" } else { "samples" };
    let Judged { output_error, tried, .. } = judged;
    let what = if judged.wrong() > 0 {
        let inputs: usize = tried.iter().map(|tried| tried.inputs).sum();
        format!(
            "{} of {inputs} inputs that the model accepts would get a wrong answer that no client notices. Accept a narrower range \
             (`--range`), calibrate with inputs from all of it, or take `cheetah` or `dealt`",
            judged.wrong()
        )
    } else {
        let seen = judged.agreement.map_or(1.0, |share| share.min(judged.expected.map_or(1.0, |e| e.share)));
        let share = (100.0 * seen).floor() / 100.0;
        let fewer = match seen < asked {
            true => format!("`--agreement {share}` asks for what it has"),
            false => "`--agreement 0` serves it as it is".into(),
        };
        format!(
            "{} of inputs are asked to get the float network's class with outputs off by {} of their range at most; the best polynomials \
             give {} and {} on {} {samples}. More calibration samples may show better; {fewer}; a network trained with polynomials in \
             place of ReLU loses nothing; `cheetah` and `dealt` compute it exactly",
            percent(asked),
            percent(MOST_OFF),
            percent(seen),
            percent(*output_error),
            tried[0].inputs,
        )
    };
    BackendError::Option { backend: NAME, key: "agreement".into(), what }
}
