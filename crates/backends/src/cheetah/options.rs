//! Public choices of the back end.

use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tacit_mpc::gate::Leaves;

use crate::BackendError;
use crate::ring::RingOptions;
use crate::seam::{self, Reader};

/// Name of the back end.
pub(super) const NAME: &str = "cheetah";

/// Public choices of the protocol; both parties must use the same (they are in the public part and in the
/// plan's digest).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// How the digits of comparisons are evaluated.
    pub leaves: Leaves,
    /// Low bits that ReLU's sign test leaves out: results below `2^relu_drop` units may become 0.
    pub relu_drop: u32,
    /// Error allowed at each linear output before truncation, at least 1 (raised where a wide ring needs it):
    /// larger bounds save bytes.
    pub linear_error: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { leaves: Leaves::Masked, relu_drop: 0, linear_error: 1 }
    }
}

impl Options {
    /// Checks options that came from elsewhere.
    ///
    /// # Errors
    /// [`BackendError::Option`] names the one that is out of its range.
    pub fn check(&self) -> Result<(), BackendError> {
        let leaves = if let Leaves::Direct(bits) = self.leaves { bits } else { 1 };
        for (key, value, allowed) in [
            ("leaves", leaves, DIRECT),
            ("relu_drop", self.relu_drop, RELU_DROP),
            ("linear_error", self.linear_error, LINEAR_ERROR),
        ] {
            within(key, value, &allowed)?;
        }
        Ok(())
    }
}

/// Bits of a direct leaf.
const DIRECT: RangeInclusive<u32> = 1..=4;
const RELU_DROP: RangeInclusive<u32> = 0..=30;
const LINEAR_ERROR: RangeInclusive<u32> = 1..=1 << 16;

/// `masked`, or `direct1` to `direct4`.
struct LeavesText(Leaves);

impl FromStr for LeavesText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "masked" {
            return Ok(Self(Leaves::Masked));
        }
        let bits = text.strip_prefix("direct").and_then(|bits| bits.parse().ok()).filter(|bits| DIRECT.contains(bits));
        bits.map(|bits| Self(Leaves::Direct(bits))).ok_or_else(|| "`masked`, or `direct1` to `direct4`".into())
    }
}

/// Reads the options of the protocol and of the lowering to a ring.
///
/// # Errors
/// [`BackendError::Option`].
pub(super) fn parse(text: &seam::Options) -> Result<(Options, RingOptions), BackendError> {
    let mut reader = text.reader(NAME);
    let (default, ring) = (Options::default(), RingOptions::default());
    let options = Options {
        leaves: reader.get::<LeavesText>("leaves")?.map_or(default.leaves, |leaves| leaves.0),
        relu_drop: in_range(&mut reader, "relu_drop", RELU_DROP)?.unwrap_or(default.relu_drop),
        linear_error: in_range(&mut reader, "linear_error", LINEAR_ERROR)?.unwrap_or(default.linear_error),
    };
    let frac_bits = in_range(&mut reader, "frac_bits", 0..=47)?;
    let ring = RingOptions {
        frac_bits,
        weight_bits: in_range(&mut reader, "weight_bits", 0..=47)?,
        max_frac_bits: in_range(&mut reader, "max_frac_bits", 0..=47)?.unwrap_or(ring.max_frac_bits),
        guard_bits: positive(&mut reader, "guard_bits", 38.0)?.unwrap_or(ring.guard_bits),
        error_bound: positive(&mut reader, "error_bound", 1.0)?.unwrap_or(ring.error_bound),
        agreement: positive(&mut reader, "agreement", 1.0)?.unwrap_or(ring.agreement),
        seed: reader.get("seed")?.unwrap_or(ring.seed),
        round_facts: in_range(&mut reader, "round_facts", 1..=31)?.unwrap_or(ring.round_facts),
        clamp: reader.get("clamp")?.unwrap_or(ring.clamp),
        linear_error: options.linear_error,
    };
    reader.end()?;
    Ok((options, ring))
}

fn in_range(
    reader: &mut Reader<'_>,
    key: &'static str,
    allowed: RangeInclusive<u32>,
) -> Result<Option<u32>, BackendError> {
    reader.get(key)?.map(|value| within(key, value, &allowed)).transpose()
}

fn within(key: &str, value: u32, allowed: &RangeInclusive<u32>) -> Result<u32, BackendError> {
    match allowed.contains(&value) {
        true => Ok(value),
        false => Err(out_of_range(key, format!("{value}: {} to {} are allowed", allowed.start(), allowed.end()))),
    }
}

fn positive(reader: &mut Reader<'_>, key: &'static str, most: f64) -> Result<Option<f64>, BackendError> {
    match reader.get::<f64>(key)? {
        Some(value) if !(value >= 0.0 && value <= most) => {
            Err(out_of_range(key, format!("{value}: 0 to {most} are allowed")))
        }
        value => Ok(value),
    }
}

fn out_of_range(key: &str, what: String) -> BackendError {
    BackendError::Option { backend: NAME, key: key.into(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_nonsense_is_named() {
        let (options, ring) = parse(&"leaves=direct4,relu_drop=2,frac_bits=12".parse().unwrap()).unwrap();
        assert_eq!((options.leaves, options.relu_drop, ring.frac_bits), (Leaves::Direct(4), 2, Some(12)));
        assert_eq!(parse(&seam::Options::default()).unwrap().0, Options::default());
        let numbers = ["relu_drop=99", "frac_bits=-1", "guard_bits=nan", "linear_error=0"];
        for bad in numbers.into_iter().chain(["leaves=tree", "leaves=direct5", "clamp=maybe"]) {
            let key = bad.split('=').next().unwrap();
            let error = parse(&bad.parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(NAME), "{bad}: {error}");
        }
    }
}
