//! What a lowering tells the model's owner.

use std::fmt;

use serde::Serialize;
use tacit_graph::Model;

use super::fit::Approximation;
use super::plan::Plan;
use crate::classes::{class, told};
use crate::{BackendError, LoweringReport};

/// The report.
#[derive(Serialize)]
pub(super) struct Report {
    model: String,
    calibration: String,
    set: String,
    log_degree: u32,
    levels: usize,
    bootstraps: usize,
    keys: usize,
    key_bytes: u64,
    up_bytes: u64,
    down_bytes: u64,
    /// Diagonals of all linear steps.
    diagonals: usize,
    relative_error: f64,
    approximations: Vec<Approximation>,
    /// Samples with the float network's class, of how many.
    same_class: [usize; 2],
    warnings: Vec<String>,
}

impl Report {
    /// For a model and its plan.
    ///
    /// # Errors
    /// A sample does not fit the model.
    pub fn new(model: &Model, plan: &Plan) -> Result<Self, BackendError> {
        let public = &plan.public;
        let costs = &public.costs;
        let samples = &model.calibration.samples;
        let count = model.graph.runs_within(1 << 31).clamp(1, samples.len());
        let mode = model.interface.output_mode;
        let same = |i: &usize| told(mode, &plan.simulate(&samples[*i])) == class(&model.calibration.wanted[*i]);
        let same_class = [(0..count).filter(same).count(), count];
        let mut warnings = Vec::new();
        if model.calibration.guessed {
            warnings.push("no calibration samples were given: ranges are guesses, and polynomials may not hold".into());
        }
        for a in plan.approximations.iter().filter(|a| a.op == "Relu" && a.degrees.len() == 1) {
            warnings.push(format!(
                "`{}`: ReLU is a polynomial of degree {}, off by {:.2} % of its largest value; `-O relu=composite,tolerance=0.001` is nearer \
                 and slower, networks trained with polynomials lose nothing",
                a.node,
                a.degrees[0],
                100.0 * a.error
            ));
        }
        Ok(Self {
            model: model.interface.name.clone(),
            calibration: model.calibration.text.clone(),
            set: public.set.clone(),
            log_degree: public.parameters.log_degree,
            levels: plan.context.parameters().levels(),
            bootstraps: public.steps.iter().filter(|s| s.bootstrapped).count(),
            keys: public.keys.len(),
            key_bytes: costs.setup.up_bytes,
            up_bytes: costs.online.up_bytes,
            down_bytes: costs.online.down_bytes,
            diagonals: public.steps.iter().map(|s| s.diagonals).sum(),
            relative_error: public.relative,
            approximations: plan.approximations.clone(),
            same_class,
            warnings,
        })
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / (1u64 << 20) as f64;
        writeln!(f, "model         {}, ranges from {}", self.model, self.calibration)?;
        writeln!(f, "parameters    {}: ring degree 2^{}, {} primes, 128 bits", self.set, self.log_degree, self.levels)?;
        writeln!(f, "bootstraps    {}", self.bootstraps)?;
        writeln!(f, "keys          {}, {:.1} MiB, sent once", self.keys, mib(self.key_bytes))?;
        writeln!(f, "an input      {:.2} MiB up, {:.2} MiB down", mib(self.up_bytes), mib(self.down_bytes))?;
        writeln!(f, "diagonals     {}", self.diagonals)?;
        for a in &self.approximations {
            let [from, to] = a.range;
            let degrees = a.degrees.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            writeln!(
                f,
                "polynomial    `{}` ({}): degree {} on [{from:.3}, {to:.3}], off by {:.3} %",
                a.node,
                a.op,
                degrees,
                100.0 * a.error
            )?;
        }
        writeln!(f, "errors        at most 2^{:.0} of the outputs' range are expected", self.relative_error.log2())?;
        let [same, count] = self.same_class;
        write!(
            f,
            "agreement     {same} of {count} calibration samples have the float network's class, errors simulated"
        )
    }
}
