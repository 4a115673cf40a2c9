//! Public options of the back end.

use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::session::DealerOptions;
use crate::session::audit;
use tacit_backend_api::{BackendError, seam};
use tacit_ring::RingOptions;
use tacit_two_party::cheetah;

pub(super) const NAME: &str = "dealt";

/// Number of exchanges of a batch of gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Choice {
    /// The faster choice for each batch, over the links that the options describe.
    Auto,
    /// One exchange, with the most material.
    One,
    /// Two exchanges, with the least material.
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

/// Origin of the shares of linear layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Linear {
    /// The dealer. The client gets the masked weights `E` once.
    Dealt,
    /// Lattices, without a dealer and without `E`.
    He,
    /// Lattices for the layers with the largest `E`, as many as needed to keep the client's `E`
    /// within the limit. The dealer for all others.
    Auto {
        /// Most bytes of `E` that a client gets.
        limit: u64,
    },
}

/// Default of `Auto`'s limit in bytes, and its allowed values: no model has more.
const DEFAULT_LIMIT: u64 = 64 * MEGABYTE;
const ALLOWED_LIMITS: RangeInclusive<u64> = 0..=4096 * MEGABYTE;
const MEGABYTE: u64 = 1_000_000;

impl FromStr for Linear {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "dealt" => Ok(Self::Dealt),
            "he" => Ok(Self::He),
            "auto" => Ok(Self::Auto { limit: DEFAULT_LIMIT }),
            _ => Err("`dealt`, `he` or `auto`".into()),
        }
    }
}

impl Linear {
    fn read(reader: &mut seam::Reader<'_>) -> Result<Self, BackendError> {
        let origin = reader.get("linear")?.unwrap_or(Options::default().linear);
        match (origin, reader.up_to(E_LIMIT, (ALLOWED_LIMITS.end() / MEGABYTE) as f64)?) {
            (Self::Auto { .. }, Some(limit)) => Ok(Self::Auto { limit: (limit * MEGABYTE as f64) as u64 }),
            (origin, None) => Ok(origin),
            (_, Some(_)) => Err(BackendError::Option {
                backend: NAME,
                key: E_LIMIT.into(),
                what: "it belongs to `linear=auto`, which chooses by it".into(),
            }),
        }
    }
}

/// Public options of the protocol, which both parties and the dealer must share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Low bits that ReLU's sign test drops: results below `2^relu_drop` units may become 0.
    pub relu_drop: u32,
    /// Number of exchanges of a batch of gates.
    pub exchanges: Choice,
    /// Round trip between the parties in milliseconds, which is the cost of a second exchange.
    pub rtt_ms: u32,
    /// Rate of the link between dealer and server in Mbit/s, which sets the cost of material.
    pub dealer_mbit: u32,
    /// Materials per thousand that the parties open, as an audit, and have dealt again.
    pub audit: u32,
    /// Origin of the shares of linear layers.
    pub linear: Linear,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            relu_drop: 0,
            exchanges: Choice::Auto,
            rtt_ms: 20,
            dealer_mbit: 10_000,
            audit: audit::DEFAULT_RATE,
            linear: Linear::Dealt,
        }
    }
}

/// Allowed ranges of the integer options.
const RANGES: [(&str, RangeInclusive<u32>); 4] =
    [("relu_drop", 0..=30), ("rtt_ms", 0..=60_000), ("dealer_mbit", 1..=1_000_000), ("audit", audit::ALLOWED_RATES)];
/// Key of the most bytes of `E`, in MB (10^6 bytes).
const E_LIMIT: &str = "e_limit";

impl DealerOptions for Options {
    fn check(&self) -> Result<(), BackendError> {
        for ((key, allowed), value) in RANGES.iter().zip([self.relu_drop, self.rtt_ms, self.dealer_mbit, self.audit]) {
            seam::within(NAME, key, value, allowed)?;
        }
        match self.linear {
            Linear::Auto { limit } if !ALLOWED_LIMITS.contains(&limit) => {
                let what = format!("{limit} bytes: up to {} are allowed", ALLOWED_LIMITS.end());
                Err(BackendError::Option { backend: NAME, key: E_LIMIT.into(), what })
            }
            _ => Ok(()),
        }
    }

    fn parse(text: &seam::Options) -> Result<(Self, RingOptions), BackendError> {
        let mut reader = text.reader(NAME);
        let default = Self::default();
        let [drop, rtt, mbit, audit] = RANGES;
        let drops = RingOptions::read_relu_drop(&mut reader, drop.1)?;
        let options = Self {
            relu_drop: *drops.start(),
            exchanges: reader.get("exchanges")?.unwrap_or(default.exchanges),
            rtt_ms: reader.in_range(rtt.0, rtt.1)?.unwrap_or(default.rtt_ms),
            dealer_mbit: reader.in_range(mbit.0, mbit.1)?.unwrap_or(default.dealer_mbit),
            audit: reader.in_range(audit.0, audit.1)?.unwrap_or(default.audit),
            linear: Linear::read(&mut reader)?,
        };
        // Dealt linear layers are exact.
        let linear_error = if options.linear == Linear::Dealt { 0 } else { cheetah::Options::default().linear_error };
        let ring = RingOptions { linear_error, relu_drop: drops, ..RingOptions::read(&mut reader)? };
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
        let (options, ring) = Options::parse(&"exchanges=2,relu_drop=2,frac_bits=12".parse().unwrap()).unwrap();
        assert_eq!((options.exchanges, options.relu_drop, ring.frac_bits), (Choice::Two, 2, Some(12)));
        assert_eq!(Options::parse(&seam::Options::default()).unwrap().0, Options::default());
        let parse_linear = |text: &str| {
            Options::parse(&text.parse().unwrap()).map(|(options, ring)| (options.linear, ring.linear_error))
        };
        assert_eq!(parse_linear("").unwrap(), (Linear::Dealt, 0));
        assert_eq!(parse_linear("linear=he").unwrap(), (Linear::He, 1 << 12));
        assert_eq!(parse_linear("linear=auto").unwrap().0, Linear::Auto { limit: DEFAULT_LIMIT });
        assert_eq!(parse_linear("linear=auto,e_limit=0.5").unwrap().0, Linear::Auto { limit: 500_000 });
        for text in ["e_limit=7", "linear=he,e_limit=7", "linear=auto,e_limit=5000", "linear=auto,e_limit=-1"] {
            let error = parse_linear(text).unwrap_err().to_string();
            assert!(error.contains("e_limit") && error.contains(NAME), "{text}: {error}");
        }
        for text in
            ["relu_drop=99", "audit=1000", "exchanges=3", "dealer_mbit=0", "rtt_ms=-1", "leaves=masked", "linear=ckks"]
        {
            let key = text.split('=').next().unwrap();
            let error = Options::parse(&text.parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(NAME), "{text}: {error}");
        }
        assert!(Options { rtt_ms: 99_999, ..Options::default() }.check().is_err());
        assert!(Options { linear: Linear::Auto { limit: 5000 * MEGABYTE }, ..Options::default() }.check().is_err());
    }
}
