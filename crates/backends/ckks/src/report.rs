//! The lowering report for the model's owner.

use std::fmt;

use serde::Serialize;
use tacit_graph::{FEWEST_SAMPLES, Model};

use super::fit::Approximation;
use super::judge::{Judged, TrialCounts};
use super::options::Domain;
use super::plan::Plan;
use tacit_backend_api::LoweringReport;
use tacit_ring::lowering::report::{Expected, Samples};

#[derive(Serialize)]
pub(super) struct Report {
    model: String,
    calibration: String,
    set: String,
    #[serde(flatten)]
    sizes: Sizes,
    #[serde(flatten)]
    errors: Errors,
    #[serde(flatten)]
    validity: Validity,
    approximations: Vec<Approximation>,
    #[serde(flatten)]
    verdict: Verdict,
    warnings: Vec<String>,
}

/// The size of the parameters and of the computation.
#[derive(Serialize)]
struct Sizes {
    log_degree: u32,
    levels: usize,
    bootstraps: usize,
    keys: usize,
    key_bytes: u64,
    up_bytes: u64,
    down_bytes: u64,
    diagonals: usize,
}

/// The largest expected errors, as shares of the outputs' range.
#[derive(Serialize)]
struct Errors {
    /// By the arithmetic.
    relative_error: f64,
    /// By polynomials in place of functions.
    approximation: f64,
    stated_error: f64,
}

/// The inputs that the lowering holds for.
#[derive(Serialize)]
struct Validity {
    accepted: [f32; 2],
    /// The model's own range, if it differs.
    narrowed_from: Option<[f32; 2]>,
    /// Whether no accepted input leaves a domain where the computation is right; otherwise errors were
    /// measured.
    certain: bool,
    domain: Domain,
    margin: f64,
    tolerance: f64,
}

/// What the judge found.
#[derive(Serialize)]
struct Verdict {
    samples: Samples,
    agreement: Option<f64>,
    expected: Option<Expected>,
    output_error: f64,
    /// On held-out samples, or on all samples if there are none.
    held_out: TrialCounts,
    extreme: TrialCounts,
    drawn: TrialCounts,
}

impl Report {
    /// `accepting` is the same model with its accepted range.
    pub fn new(model: &Model, accepting: &Model, plan: &Plan, judged: Judged) -> Self {
        let public = &plan.public;
        let (costs, options) = (&public.costs, &public.options);
        let [held_out, extreme, drawn] = judged.tried;
        let [declared, accepted] = [model, accepting].map(|model| model.interface.input.range.ends());
        let sizes = Sizes {
            log_degree: public.parameters.log_degree,
            levels: plan.context.parameters().levels(),
            bootstraps: public.steps.iter().filter(|s| s.bootstrapped).count(),
            keys: public.keys.len(),
            key_bytes: costs.setup.up_bytes,
            up_bytes: costs.online.up_bytes,
            down_bytes: costs.online.down_bytes,
            diagonals: public.steps.iter().map(|s| s.diagonals).sum(),
        };
        let errors = Errors {
            relative_error: public.relative,
            approximation: public.approximation,
            stated_error: public.relative + public.approximation,
        };
        let validity = Validity {
            accepted,
            narrowed_from: (accepted != declared).then_some(declared),
            certain: public.certain,
            domain: options.domain,
            margin: options.margin,
            tolerance: options.tolerance,
        };
        let Judged { samples, agreement, expected, output_error, .. } = judged;
        let mut report = Self {
            model: model.interface.name.clone(),
            calibration: model.calibration.text.clone(),
            set: public.set.clone(),
            sizes,
            errors,
            validity,
            approximations: plan.approximations.clone(),
            verdict: Verdict { samples, agreement, expected, output_error, held_out, extreme, drawn },
            warnings: Vec::new(),
        };
        report.warnings = report.collect_warnings(model);
        report
    }

    fn collect_warnings(&self, model: &Model) -> Vec<String> {
        let mut warnings = Vec::new();
        if model.calibration.guessed {
            warnings.push("no calibration samples were given: ranges are guesses, and no agreement is promised".into());
        } else if self.verdict.samples.held_out == 0 {
            warnings.push(format!(
                "{} samples were kept, all of them for ranges: from {FEWEST_SAMPLES} on some are held out to judge by",
                self.verdict.samples.searched
            ));
        }
        for a in self.approximations.iter().filter(|a| a.op == "Relu" && a.degrees.len() == 1 && a.error > 1e-3) {
            warnings.push(format!(
                "`{}`: ReLU is a polynomial of degree {}, off by {:.2} % of its largest value; `-O relu=composite,tolerance=0.001` is nearer \
                 and slower, networks trained with polynomials lose nothing",
                a.node,
                a.degrees[0],
                100.0 * a.error
            ));
        }
        if let Some([low, high]) = self.validity.narrowed_from {
            let [accepted_low, accepted_high] = self.validity.accepted;
            warnings.push(format!(
                "inputs from {accepted_low} to {accepted_high} are accepted, where the model says {low} to {high}: nothing that was tried holds for more. \
                 Clients refuse others. More calibration samples, or `-O domain=calibrated`, accept them"
            ));
        }
        let refused = self.verdict.extreme.refused + self.verdict.drawn.refused;
        if !self.validity.certain {
            warnings.push(self.measurement_warning());
        } else if refused > 0 {
            warnings.push(format!(
                "{refused} of {} extreme inputs and inputs drawn from the accepted range get no answer: their outputs leave the range that \
                 samples have, and clients refuse them. A narrower `--range` or a larger `-O margin` helps",
                self.verdict.extreme.inputs + self.verdict.drawn.inputs
            ));
        }
        warnings
    }

    fn measurement_warning(&self) -> String {
        format!(
            "what is stated was measured, on {} inputs that are accepted ({} samples, {} extreme, {} drawn): {} left what is computed rightly, \
             clients refuse the answers of {}, {} that they take are off by more than is stated. Others that are accepted may get a wrong \
             answer that nobody notices",
            self.total(|tried| tried.inputs),
            self.verdict.held_out.inputs,
            self.verdict.extreme.inputs,
            self.verdict.drawn.inputs,
            self.total(|tried| tried.outside_domain),
            self.total(|tried| tried.refused),
            self.total(|tried| tried.wrong)
        )
    }

    fn total(&self, count: fn(&TrialCounts) -> usize) -> usize {
        [self.verdict.held_out, self.verdict.extreme, self.verdict.drawn].iter().map(count).sum()
    }
}

impl LoweringReport for Report {
    fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("numbers and strings have a JSON form")
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

fn power(share: f64) -> String {
    if share > 0.0 { format!("2^{:.0}", share.log2()) } else { "0".into() }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { set, sizes, errors, verdict, .. } = self;
        let Sizes { log_degree, levels, .. } = sizes;
        writeln!(f, "model         {}, ranges from {}", self.model, self.calibration)?;
        writeln!(f, "parameters    {set}: ring degree 2^{log_degree}, {levels} primes, 128 bits")?;
        writeln!(f, "bootstraps    {}", sizes.bootstraps)?;
        writeln!(f, "keys          {}, {:.1} MiB, sent once", sizes.keys, mib(sizes.key_bytes))?;
        writeln!(f, "an input      {:.2} MiB up, {:.2} MiB down", mib(sizes.up_bytes), mib(sizes.down_bytes))?;
        writeln!(f, "diagonals     {}", sizes.diagonals)?;
        for a in &self.approximations {
            let [low, high] = a.range;
            let degrees = a.degrees.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            writeln!(
                f,
                "polynomial    `{}` ({}): degree {degrees} on [{low:.3}, {high:.3}]{}, off by {:.3} %",
                a.node,
                a.op,
                if a.certain { ", which no accepted input leaves" } else { "" },
                100.0 * a.error
            )?;
        }
        let [low, high] = self.validity.accepted;
        let vouched = match self.validity.certain {
            true => "none of these leaves what is computed rightly",
            false => "what is stated was measured on some, see below",
        };
        writeln!(f, "accepted      inputs from {low} to {high}: {vouched}")?;
        let outside = |tried: &TrialCounts| format!("{} of {}", tried.outside_domain, tried.inputs);
        writeln!(
            f,
            "ranges        left by {} samples, {} extreme inputs, {} drawn from the accepted range",
            outside(&verdict.held_out),
            outside(&verdict.extreme),
            outside(&verdict.drawn)
        )?;
        writeln!(
            f,
            "errors        at most {:.2} % of the outputs' range are expected: {} by polynomials, {} by the arithmetic",
            100.0 * errors.stated_error,
            power(errors.approximation),
            power(errors.relative_error)
        )?;
        let judging = if verdict.samples.held_out > 0 { "samples held out" } else { "samples" };
        match (verdict.agreement, verdict.expected) {
            (Some(share), Some(Expected { share: expected, interval: [low, high] })) => write!(
                f,
                "agreement     {:.2} % of {} {judging} have the float network's class, {:.2} % of others are expected to (95 %: {:.1} to \
                 {:.1} %); outputs off by {:.3} % of their range",
                100.0 * share,
                verdict.held_out.inputs,
                100.0 * expected,
                100.0 * low,
                100.0 * high,
                100.0 * verdict.output_error
            ),
            _ => write!(f, "agreement     nothing is promised without calibration samples"),
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 20) as f64
}
