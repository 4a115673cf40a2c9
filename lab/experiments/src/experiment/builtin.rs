//! The built-in experiments.
use super::checked::Experiment;
use super::spec::ExperimentSpec;
use crate::LabError;

/// A built-in experiment.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// Its TOML text.
    pub text: &'static str,
}

/// All built-in experiments.
pub const BUILT_IN: &[BuiltIn] = &[
    BuiltIn { name: "pm24-bandwidth", text: include_str!("../../experiments/pm24-bandwidth.toml") },
    BuiltIn { name: "pm24-inference", text: include_str!("../../experiments/pm24-inference.toml") },
    BuiltIn { name: "pm24-timeseries", text: include_str!("../../experiments/pm24-timeseries.toml") },
    BuiltIn { name: "vpn24-transport", text: include_str!("../../experiments/vpn24-transport.toml") },
    BuiltIn { name: "idle", text: include_str!("../../experiments/idle.toml") },
    BuiltIn { name: "pacing", text: include_str!("../../experiments/pacing.toml") },
];

/// Experiments that are no matrix of links and commands; separate code runs them.
const SEPARATE_EXPERIMENTS: [&str; 2] = ["ss26-live", "pm24-study"];

impl BuiltIn {
    /// The built-in experiment called `name`.
    ///
    /// # Errors
    /// [`LabError::Spec`] with the known names.
    pub fn find(name: &str) -> Result<&'static Self, LabError> {
        BUILT_IN.iter().find(|b| b.name == name).ok_or_else(|| {
            let names: Vec<&str> = BUILT_IN.iter().map(|b| b.name).chain(SEPARATE_EXPERIMENTS).collect();
            let detail = format!(
                "there is no such experiment; built in: {}; or give a file that ends in .toml",
                names.join(", ")
            );
            LabError::Spec { what: name.into(), detail }
        })
    }

    /// Parses its text.
    ///
    /// # Errors
    /// Never for built-in texts (a test parses them all).
    pub fn spec(&self) -> Result<ExperimentSpec, LabError> {
        ExperimentSpec::from_toml(self.name, self.text)
    }

    /// Parses and checks its text.
    ///
    /// # Errors
    /// As [`Self::spec`].
    pub fn experiment(&self) -> Result<Experiment, LabError> {
        Experiment::new(self.spec()?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;

    #[test]
    fn built_in_experiments_are_valid_and_take_minutes() {
        for built_in in BUILT_IN {
            let experiment = built_in.experiment().unwrap();
            assert_eq!(experiment.spec().name, built_in.name);
            assert!(!experiment.spec().description.is_empty());
            tacit_measure::device::DeviceProfile::load(experiment.spec().device.as_deref().unwrap()).unwrap();
            let time = plan::total(&experiment, &plan::remaining(&experiment, &[]));
            assert!((60..45 * 60).contains(&time.as_secs()), "{}: {time:?}", built_in.name);
        }
        let error = BuiltIn::find("pm25").unwrap_err().to_string();
        assert!(error.contains("pm24-bandwidth, pm24-inference"), "{error}");
        assert!(
            SEPARATE_EXPERIMENTS.iter().all(|name| error.contains(name) && BuiltIn::find(name).is_err()),
            "{error}"
        );
    }

    #[test]
    fn sweeps_have_the_links_of_pm24() {
        for name in ["pm24-bandwidth", "pm24-inference"] {
            let experiment = BuiltIn::find(name).unwrap().experiment().unwrap();
            let rates: Vec<u64> = experiment
                .links()
                .iter()
                .map(|l| l.spec.as_ref().and_then(|s| s.up()).map_or(0, |r| r.bits_per_second()))
                .collect();
            assert_eq!(rates, [941_000_000, 95_600_000, 19_200_000, 3_890_000]);
            assert_eq!(experiment.spec().repetitions, 10);
        }
    }

    #[test]
    fn quick_variants_take_less_than_five_minutes() {
        for built_in in BUILT_IN {
            let mut spec = built_in.spec().unwrap();
            spec.make_quick();
            let experiment = Experiment::new(spec).unwrap();
            let time = plan::total(&experiment, &plan::remaining(&experiment, &[]));
            assert!(time.as_secs() < 5 * 60, "{}: {time:?}", built_in.name);
        }
    }
}
