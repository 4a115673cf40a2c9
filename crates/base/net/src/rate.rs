//! Bit rates, and their text: `3.89mbit`, `941mbit`, `64kbit`, `1gbit`.
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

const KBIT: u64 = 1_000;
const MBIT: u64 = 1_000_000;
const GBIT: u64 = 1_000_000_000;

/// A bit rate: a whole number of bit/s from 1 to [`Rate::MAX`].
///
/// As text, a decimal number and `bit`, `kbit`, `mbit` or `gbit` (powers of 1000, upper or lower
/// case): the units of `tc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(NonZeroU64);

/// A text that cannot be parsed as a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rate {text:?}: {reason}; write for example 3.89mbit, 64kbit or 1gbit, from 1bit to 1000gbit")]
pub struct BadRate {
    /// The text.
    pub text: String,
    /// The fault.
    pub reason: &'static str,
}

impl Rate {
    /// The fastest: 1 Tbit/s.
    pub const MAX: u64 = 1000 * GBIT;

    /// A rate of `bits` bit/s; `None` for 0 and above [`Rate::MAX`].
    #[must_use]
    pub const fn new(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(rate) if bits <= Self::MAX => Some(Self(rate)),
            _ => None,
        }
    }

    /// bit/s.
    #[must_use]
    pub const fn bits_per_second(self) -> u64 {
        self.0.get()
    }

    /// Bytes that pass in `time`, rounded up.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        // At most 1e12 bit/s * 1.8e19 s * 1e9: fits into 128 bits.
        let bytes = (u128::from(self.0.get()) * time.as_nanos()).div_ceil(8 * u128::from(GBIT));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0.get() {
            GBIT.. => (GBIT, "gbit"),
            MBIT.. => (MBIT, "mbit"),
            KBIT.. => (KBIT, "kbit"),
            bits => return write!(f, "{bits}bit"),
        };
        // Integers, so that the text parses to exactly the same rate.
        let (quotient, remainder) = (self.0.get() / unit, self.0.get() % unit);
        if remainder == 0 {
            return write!(f, "{quotient}{name}");
        }
        let digits = format!("{remainder:0width$}", width = unit.ilog10() as usize);
        write!(f, "{quotient}.{}{name}", digits.trim_end_matches('0'))
    }
}

impl FromStr for Rate {
    type Err = BadRate;

    fn from_str(text: &str) -> Result<Self, BadRate> {
        let lower = text.trim().to_ascii_lowercase();
        let split = lower.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(lower.len());
        let (number, unit) = lower.split_at(split);
        let unit = match unit.trim() {
            "bit" => 1,
            "kbit" => KBIT,
            "mbit" => MBIT,
            "gbit" => GBIT,
            "" => return Err(wrong(text, "the unit is missing")),
            _ => return Err(wrong(text, "this is not a number with a unit of bit, kbit, mbit or gbit")),
        };
        let number: f64 = number.trim().parse().map_err(|_| wrong(text, "this is not a decimal number with a unit"))?;
        let bits = number * unit as f64;
        if bits.is_nan() || bits <= 0.0 {
            return Err(wrong(text, "a rate must be above 0 (leave it out for no limit)"));
        }
        // The cast saturates; `new` refuses values that are too large or round to 0.
        Self::new(bits.round() as u64).ok_or_else(|| wrong(text, "a rate is from 1bit to 1000gbit"))
    }
}

fn wrong(text: &str, reason: &'static str) -> BadRate {
    BadRate { text: text.to_owned(), reason }
}

impl TryFrom<String> for Rate {
    type Error = BadRate;

    fn try_from(text: String) -> Result<Self, BadRate> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_of_the_paper_reads_as_bits() {
        for (text, bits) in [
            ("941mbit", 941_000_000),
            ("95.6mbit", 95_600_000),
            ("19.2Mbit", 19_200_000),
            ("3.89mbit", 3_890_000),
            (" 64 kbit ", 64_000),
            ("1gbit", 1_000_000_000),
            ("1500bit", 1_500),
            ("0.5gbit", 500_000_000),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().bits_per_second(), bits, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        let nonsense = [
            "0mbit",
            "-1mbit",
            "NaN",
            "nanmbit",
            "infgbit",
            "",
            "mbit",
            "20",
            "20mb",
            "1.2.3mbit",
            "9999gbit",
            "0.2bit",
            "1e3kbit",
        ];
        for text in nonsense {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains("3.89mbit") && error.contains(&format!("{text:?}")), "{error}");
        }
        assert!("0mbit".parse::<Rate>().unwrap_err().to_string().contains("above 0"));
        assert!(serde_json::from_str::<Rate>("\"0kbit\"").unwrap_err().to_string().contains("above 0"));
        assert_eq!((Rate::new(0), Rate::new(Rate::MAX + 1)), (None, None));
    }

    #[test]
    fn bytes_in_a_time() {
        let rate: Rate = "8mbit".parse().unwrap();
        assert_eq!(rate.bytes_in(Duration::from_millis(40)), 40_000);
        assert_eq!(rate.bytes_in(Duration::from_nanos(1)), 1);
    }

    proptest! {
        #[test]
        fn display_reads_back(bits in 1u64..=1_000_000_000_000) {
            let rate = Rate::new(bits).unwrap();
            prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
            let json = serde_json::to_string(&rate).unwrap();
            prop_assert_eq!(serde_json::from_str::<Rate>(&json).unwrap(), rate);
        }
    }
}
