//! Public choices of the back end.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::audit;
use crate::BackendError;
use crate::ring::RingOptions;
use crate::seam;

/// Name of the back end.
pub(super) const NAME: &str = "dealt";

/// How many exchanges a batch of gates takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Choice {
    /// For each batch what takes less time over the links that the options name.
    Auto,
    /// One: most material.
    One,
    /// Two: least material.
    Two,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "1" => Ok(Self::One),
            "2" => Ok(Self::Two),
            _ => Err("`auto`, `1` or `2`".into()),
        }
    }
}

/// Public choices of the protocol; both parties and the dealer must use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Low bits that ReLU's sign test leaves out: results below `2^relu_drop` units may become 0.
    pub relu_drop: u32,
    /// Exchanges of a batch of gates.
    pub exchanges: Choice,
    /// Round trip between the parties, in milliseconds: what a second exchange costs.
    pub rtt_ms: u32,
    /// Rate of the link between dealer and server, in Mbit/s: what material costs.
    pub dealer_mbit: u32,
    /// Materials of a thousand that the parties have opened and deal again.
    pub audit: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { relu_drop: 0, exchanges: Choice::Auto, rtt_ms: 20, dealer_mbit: 10_000, audit: audit::DEFAULT }
    }
}

/// Largest values of the numbers among the options, and smallest.
const RANGES: [(&str, std::ops::RangeInclusive<u32>); 4] =
    [("relu_drop", 0..=30), ("rtt_ms", 0..=60_000), ("dealer_mbit", 1..=1_000_000), ("audit", audit::RATES)];

impl Options {
    /// Checks options that came from elsewhere.
    ///
    /// # Errors
    /// [`BackendError::Option`] names the one that is out of its range.
    pub fn check(&self) -> Result<(), BackendError> {
        for ((key, allowed), value) in RANGES.iter().zip([self.relu_drop, self.rtt_ms, self.dealer_mbit, self.audit]) {
            seam::within(NAME, key, value, allowed)?;
        }
        Ok(())
    }
}

/// Reads the options of the protocol and of the lowering to a ring.
///
/// # Errors
/// [`BackendError::Option`].
pub(super) fn parse(text: &seam::Options) -> Result<(Options, RingOptions), BackendError> {
    let mut reader = text.reader(NAME);
    let default = Options::default();
    let [drop, rtt, mbit, audit] = RANGES;
    let drops = RingOptions::read_relu_drop(&mut reader, drop.1)?;
    let options = Options {
        relu_drop: *drops.start(),
        exchanges: reader.get("exchanges")?.unwrap_or(default.exchanges),
        rtt_ms: reader.in_range(rtt.0, rtt.1)?.unwrap_or(default.rtt_ms),
        dealer_mbit: reader.in_range(mbit.0, mbit.1)?.unwrap_or(default.dealer_mbit),
        audit: reader.in_range(audit.0, audit.1)?.unwrap_or(default.audit),
    };
    // Linear layers are exact.
    let ring = RingOptions { linear_error: 0, relu_drop: drops, ..RingOptions::read(&mut reader)? };
    reader.end()?;
    Ok((options, ring))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_nonsense_is_named() {
        let (options, ring) = parse(&"exchanges=2,relu_drop=2,frac_bits=12".parse().unwrap()).unwrap();
        assert_eq!((options.exchanges, options.relu_drop, ring.frac_bits), (Choice::Two, 2, Some(12)));
        assert_eq!(parse(&seam::Options::default()).unwrap().0, Options::default());
        for bad in ["relu_drop=99", "audit=1000", "exchanges=3", "dealer_mbit=0", "rtt_ms=-1", "leaves=masked"] {
            let key = bad.split('=').next().unwrap();
            let error = parse(&bad.parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(NAME), "{bad}: {error}");
        }
        assert!(Options { rtt_ms: 99_999, ..Options::default() }.check().is_err());
    }
}
