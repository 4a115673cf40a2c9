//! Public options of the back end.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tacit_mpc::fss::gate::Checked;

use crate::session::DealerOptions;
use crate::session::audit;
use tacit_backend_api::BackendError;
use tacit_backend_api::seam;
use tacit_ring::RingOptions;

pub(super) const NAME: &str = "fss";

/// The parties whose deviations are detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// The client is checked; the server must follow the protocol.
    L1,
    /// Both parties are checked.
    L2,
}

impl Level {
    pub(super) fn checked_parties(self) -> Checked {
        match self {
            Self::L1 => Checked::Client,
            Self::L2 => Checked::Both,
        }
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "l1" => Ok(Self::L1),
            "l2" => Ok(Self::L2),
            _ => Err("`l1` (a client that deviates is found) or `l2` (both parties)".into()),
        }
    }
}

/// Public options of the protocol, which both parties and the dealer must share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// The parties whose deviations are detected.
    pub level: Level,
    /// Low bits that ReLU's sign test drops: results below `2^relu_drop` units may become 0.
    pub relu_drop: u32,
    /// Materials per thousand that the parties open, as an audit, and have dealt again.
    pub audit: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { level: Level::L1, relu_drop: 0, audit: audit::DEFAULT_RATE }
    }
}

const DROP_RANGE: std::ops::RangeInclusive<u32> = 0..=30;

impl DealerOptions for Options {
    fn check(&self) -> Result<(), BackendError> {
        seam::within(NAME, "audit", self.audit, &audit::ALLOWED_RATES)?;
        seam::within(NAME, "relu_drop", self.relu_drop, &DROP_RANGE).map(drop)
    }

    fn parse(text: &seam::Options) -> Result<(Self, RingOptions), BackendError> {
        let mut reader = text.reader(NAME);
        let default = Self::default();
        let drops = RingOptions::read_relu_drop(&mut reader, DROP_RANGE)?;
        let options = Self {
            level: reader.get("level")?.unwrap_or(default.level),
            relu_drop: *drops.start(),
            audit: reader.in_range("audit", audit::ALLOWED_RATES)?.unwrap_or(default.audit),
        };
        // Linear layers are exact.
        let ring = RingOptions { linear_error: 0, relu_drop: drops, ..RingOptions::read(&mut reader)? };
        reader.end()?;
        Ok((options, ring))
    }

    fn with_relu_drop(self, relu_drop: u32) -> Self {
        Self { relu_drop, ..self }
    }

    fn relu_drop(&self) -> u32 {
        self.relu_drop
    }

    fn audit_rate(&self) -> u32 {
        self.audit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_options_and_names_bad_ones() {
        let (options, ring) = Options::parse(&"level=l1,relu_drop=2,frac_bits=12".parse().unwrap()).unwrap();
        assert_eq!((options.level, options.relu_drop, ring.frac_bits), (Level::L1, 2, Some(12)));
        assert_eq!(Options::parse(&seam::Options::default()).unwrap().0, Options::default());
        assert_eq!(Options::parse(&"level=l2".parse().unwrap()).unwrap().0.level, Level::L2);
        for bad in ["relu_drop=99", "audit=1000", "level=l0", "level=3", "exchanges=1"] {
            let key = bad.split('=').next().unwrap();
            let error = Options::parse(&bad.parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(NAME), "{bad}: {error}");
        }
        assert!(Options { relu_drop: 99, ..Options::default() }.check().is_err());
    }
}
