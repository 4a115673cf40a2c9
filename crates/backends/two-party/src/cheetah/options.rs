//! Public choices of the back end.

use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tacit_mpc::gate::Leaves;

use tacit_backend_api::BackendError;
use tacit_backend_api::seam;
use tacit_ring::RingOptions;

/// Public choices of the protocol; both parties must make the same choices, which are in the public
/// part and in the plan's digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// How the digits of comparisons are evaluated.
    pub leaves: Leaves,
    /// Number of low bits that ReLU's sign test leaves out: results below `2^relu_drop` units may
    /// become 0.
    pub relu_drop: u32,
    /// Largest error of a linear output before truncation, in units, at least 1; wide rings raise
    /// it. Larger bounds save bytes. A layer uses as much of this error as its truncation hides.
    pub linear_error: u32,
    /// Number of online bytes that one round trip is worth. A ReLU that saves this many by widening
    /// after its gate takes the extra round trip.
    pub round_trip: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { leaves: Leaves::Weighed(6), relu_drop: 0, linear_error: 1 << 12, round_trip: 1 << 17 }
    }
}

impl Options {
    /// Checks options that did not come from the parser.
    ///
    /// # Errors
    /// [`BackendError::Option`] names the option that is out of its range.
    pub fn check(&self, backend: &'static str) -> Result<(), BackendError> {
        let (leaves, sizes) = match self.leaves {
            Leaves::Direct(bits) | Leaves::Masked(bits) => (bits, LEAVES),
            Leaves::Weighed(weight) => (weight, WEIGHTS),
        };
        for (key, value, allowed) in [
            ("leaves", leaves, sizes),
            ("relu_drop", self.relu_drop, RELU_DROP),
            ("linear_error", self.linear_error, LINEAR_ERROR),
            ("round_trip", self.round_trip, ROUND_TRIP),
        ] {
            seam::within(backend, key, value, &allowed)?;
        }
        Ok(())
    }
}

/// Allowed bits of a leaf.
const LEAVES: RangeInclusive<u32> = 1..=4;
/// Allowed worths of an online bit, in offline bits.
const WEIGHTS: RangeInclusive<u32> = 1..=16;
const RELU_DROP: RangeInclusive<u32> = 0..=30;
const LINEAR_ERROR: RangeInclusive<u32> = 1..=1 << 16;
const ROUND_TRIP: RangeInclusive<u32> = 0..=1 << 30;

/// `weighed1` to `weighed16`, `masked1` to `masked4`, or `direct1` to `direct4`.
struct LeavesText(Leaves);

impl LeavesText {
    /// Reads one kind of leaves: its name and an allowed number.
    fn parse_kind(text: &str, name: &str, allowed: RangeInclusive<u32>, kind: fn(u32) -> Leaves) -> Option<Self> {
        let number: u32 = text.strip_prefix(name)?.parse().ok()?;
        allowed.contains(&number).then(|| Self(kind(number)))
    }
}

impl FromStr for LeavesText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse_kind(text, "weighed", WEIGHTS, Leaves::Weighed)
            .or_else(|| Self::parse_kind(text, "masked", LEAVES, Leaves::Masked))
            .or_else(|| Self::parse_kind(text, "direct", LEAVES, Leaves::Direct))
            .ok_or_else(|| "`weighed1` to `weighed16`, `masked1` to `masked4`, or `direct1` to `direct4`".into())
    }
}

/// Reads the options of gates; the other options have their defaults.
///
/// # Errors
/// [`BackendError::Option`].
pub fn read_gates(reader: &mut seam::Reader<'_>) -> Result<Options, BackendError> {
    let default = Options::default();
    let leaves = reader.get::<LeavesText>("leaves")?.map_or(default.leaves, |leaves| leaves.0);
    let round_trip = reader.in_range("round_trip", ROUND_TRIP)?.unwrap_or(default.round_trip);
    Ok(Options { leaves, round_trip, ..default })
}

/// Reads the options of the protocol and of the lowering to a ring.
///
/// # Errors
/// [`BackendError::Option`].
pub(super) fn parse(backend: &'static str, options: &seam::Options) -> Result<(Options, RingOptions), BackendError> {
    let mut reader = options.reader(backend);
    let default = Options::default();
    let drops = RingOptions::read_relu_drop(&mut reader, RELU_DROP)?;
    let options = Options {
        relu_drop: *drops.start(),
        linear_error: reader.in_range("linear_error", LINEAR_ERROR)?.unwrap_or(default.linear_error),
        ..read_gates(&mut reader)?
    };
    let ring = RingOptions { linear_error: options.linear_error, relu_drop: drops, ..RingOptions::read(&mut reader)? };
    reader.end()?;
    Ok((options, ring))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "cheetah";

    #[test]
    fn options_are_read_and_invalid_ones_named() {
        let (options, ring) =
            parse(NAME, &"leaves=direct4,relu_drop=2,frac_bits=12,round_trip=0".parse().unwrap()).unwrap();
        assert_eq!((options.leaves, options.relu_drop, ring.frac_bits), (Leaves::Direct(4), 2, Some(12)));
        assert_eq!(options.round_trip, 0);
        assert_eq!(parse(NAME, &seam::Options::default()).unwrap().0, Options::default());
        let numbers = ["relu_drop=99", "frac_bits=-1", "guard_bits=nan", "linear_error=0", "round_trip=-1"];
        for text in numbers.into_iter().chain([
            "leaves=tree",
            "leaves=direct5",
            "leaves=masked",
            "leaves=weighed17",
            "clamp=maybe",
        ]) {
            let key = text.split('=').next().unwrap();
            let error = parse(NAME, &text.parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
            assert!(error.contains(NAME), "{text}: {error}");
        }
    }
}
