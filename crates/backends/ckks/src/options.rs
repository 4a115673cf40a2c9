//! Lowering options of the back end, which are public.

use std::ops::RangeInclusive;
use std::str::FromStr;

use super::rotation_method::{RotationMethod, RotationMethods, Steps};
use serde::{Deserialize, Serialize};
use tacit_backend_api::seam;
use tacit_backend_api::{BackendError, Result};

pub(super) const NAME: &str = "ckks";

/// Which parameters (primes) the network runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Set {
    /// The smallest ring that holds the network without bootstraps, else a set with bootstraps.
    Auto,
    /// Parameters made for the network, without bootstraps.
    Leveled,
    A,
    B,
}

/// What computes ReLU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ReluBy {
    /// A polynomial if one is within the tolerance, else a composite.
    Auto,
    /// One polynomial on the argument's range: takes few levels.
    Polynomial,
    /// `x (1 + sign x) / 2`, with polynomials one after another for the sign.
    Composite,
}

/// The inputs for which the polynomials must be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Domain {
    /// Every input that the model accepts, from a range that the lowering may narrow. With `margin`: as
    /// `Calibrated`.
    Auto,
    /// All inputs that the model accepts, for certain.
    Accepted,
    /// The values of calibration samples, with the margin.
    Calibrated,
}

/// The value of a name; the error lists all names.
pub(super) fn find_named<T: Copy>(text: &str, values: &[(&str, T)]) -> Result<T, String> {
    values.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let mut names: Vec<String> = values.iter().map(|(name, _)| format!("`{name}`")).collect();
        let last = names.pop().unwrap_or_default();
        format!("{} or {last}", names.join(", "))
    })
}

impl FromStr for Domain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        find_named(text, &[("auto", Self::Auto), ("accepted", Self::Accepted), ("calibrated", Self::Calibrated)])
    }
}

impl FromStr for ReluBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        find_named(text, &[("auto", Self::Auto), ("polynomial", Self::Polynomial), ("composite", Self::Composite)])
    }
}

/// How the network is lowered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Options {
    pub set: Set,
    pub rotations: RotationMethods,
    /// One of [`BOOTSTRAPS`].
    pub bootstraps: Steps,
    /// Levels left free between the last bootstrap and the result: each moves all bootstraps a level nearer
    /// to the result.
    pub placement: u32,
    /// Whether the server derives rotation keys from masters, where that saves bytes to send.
    pub derive: bool,
    /// Factor on the range of calibration samples, for inputs beyond them.
    pub margin: f64,
    /// Largest error of a polynomial, as a share of the function's largest value.
    pub tolerance: f64,
    pub relu: ReluBy,
    pub domain: Domain,
    /// Share of inputs that must get the float network's class; 0 accepts any.
    pub agreement: f64,
    /// Whether the client rounds answers to twice their error. Digits below reveal something of the weights
    /// and of the secret key, and add nothing to the answer.
    pub round: bool,
    /// Most tried inputs that may get a wrong answer without the client noticing.
    pub unnoticed: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            set: Set::Auto,
            rotations: RotationMethods::All(RotationMethod::HOISTED),
            bootstraps: Steps::Paired,
            placement: 0,
            derive: false,
            margin: 1.25,
            tolerance: 0.01,
            relu: ReluBy::Auto,
            domain: Domain::Auto,
            agreement: 0.99,
            round: true,
            unnoticed: 0,
        }
    }
}

impl FromStr for Set {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        find_named(text, &[("auto", Self::Auto), ("leveled", Self::Leveled), ("A", Self::A), ("B", Self::B)])
    }
}

const PLACEMENT: RangeInclusive<u32> = 0..=30;

const UNNOTICED: RangeInclusive<u32> = 0..=1000;

/// How bootstraps may compute their rotations.
pub(super) const BOOTSTRAPS: [Steps; 3] = [Steps::Hoisted, Steps::Paired, Steps::Chained];

struct BootstrapSteps(Steps);

impl FromStr for BootstrapSteps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let steps = text.parse::<Steps>().ok().filter(|steps| BOOTSTRAPS.contains(steps));
        steps.map(Self).ok_or_else(|| format!("`{}`", BOOTSTRAPS.map(|steps| steps.to_string()).join("`, `")))
    }
}

impl Options {
    /// Reads options from text.
    ///
    /// # Errors
    /// [`BackendError::Option`] for an unknown option or a value that is not allowed.
    pub fn read(text: &seam::Options) -> Result<Self> {
        let mut reader = text.reader(NAME);
        let default = Self::default();
        let options = Self {
            set: reader.get("set")?.unwrap_or(default.set),
            rotations: reader.get("rotations")?.unwrap_or(default.rotations),
            bootstraps: reader.get::<BootstrapSteps>("bootstraps")?.map_or(default.bootstraps, |r| r.0),
            placement: reader.in_range("placement", PLACEMENT)?.unwrap_or(default.placement),
            derive: reader.get("derive")?.unwrap_or(default.derive),
            margin: reader.up_to("margin", 16.0)?.unwrap_or(default.margin),
            tolerance: reader.up_to("tolerance", 0.5)?.unwrap_or(default.tolerance),
            relu: reader.get("relu")?.unwrap_or(default.relu),
            domain: reader.get("domain")?.unwrap_or(default.domain),
            agreement: reader.up_to("agreement", 1.0)?.unwrap_or(default.agreement),
            round: reader.get("round")?.unwrap_or(default.round),
            unnoticed: reader.in_range("unnoticed", UNNOTICED)?.unwrap_or(default.unnoticed),
        };
        reader.end()?;
        if options.margin < 1.0 {
            let what = format!("{}: 1 to 16 are allowed", options.margin);
            return Err(BackendError::Option { backend: NAME, key: "margin".into(), what });
        }
        Ok(options)
    }

    /// Whether clients may fail to notice the wrong answers of this many tried inputs.
    pub fn tolerates(&self, wrong: usize) -> bool {
        wrong <= self.unnoticed as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_options_and_rejects_invalid_ones() {
        let read = |text: &str| Options::read(&text.parse().unwrap());
        let methods = |text: &str| {
            let options = read(text).unwrap();
            (options.rotations.get(0).unwrap().steps, options.bootstraps)
        };
        assert_eq!(methods(""), (Steps::Hoisted, Steps::Paired));
        assert_eq!(methods("rotations=flat,bootstraps=hoisted"), (Steps::Flat, Steps::Hoisted));
        assert_eq!(methods("rotations=paired,bootstraps=chained"), (Steps::Paired, Steps::Chained));
        let options = read("set=B,rotations=chained,bootstraps=hoisted,margin=2").unwrap();
        assert_eq!(
            (options.set, options.rotations, options.bootstraps, options.margin),
            (Set::B, RotationMethods::All(RotationMethod::CHAINED), Steps::Hoisted, 2.0)
        );
        assert_eq!(read("").unwrap(), Options::default());
        for bad in [
            "set=Z",
            "rotations=fast",
            "bootstraps=flat",
            "placement=31",
            "placement=-1",
            "derive=some",
            "margin=0.5",
            "margin=99",
            "tolerance=nan",
            "relu=exact",
            "domain=all",
            "agreement=1.5",
            "agreement=-1",
            "round=up",
            "unnoticed=some",
            "depth=3",
        ] {
            let key = bad.split('=').next().unwrap();
            let error = read(bad).unwrap_err().to_string();
            assert!([key, NAME].iter().all(|word| error.contains(word)), "{bad}: {error}");
        }
    }
}
