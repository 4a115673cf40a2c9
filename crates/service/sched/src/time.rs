//! Instants and durations as plain integers. The scheduler never reads a clock; the caller passes
//! the time.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// An instant, in nanoseconds since an origin that the caller chose (server start, simulation start).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A duration in nanoseconds, at most about 584 years; arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(pub u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// Time since `earlier`, zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Seconds since the origin.
    pub fn secs(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// The instant `secs` seconds after the origin; negative and non-finite values give the origin.
    pub fn from_secs(secs: f64) -> Self {
        Self(Span::from_secs(secs).0)
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A whole number of milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// `secs` seconds, rounded to a nanosecond; negative and NaN give zero, too large saturates.
    pub fn from_secs(secs: f64) -> Self {
        // A float to integer cast saturates and sends NaN to zero.
        Self((secs * 1e9).round() as u64)
    }

    /// Length in seconds.
    pub fn secs(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// This span times a non-negative factor.
    pub fn scaled(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor).round() as u64)
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Span {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.secs())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_and_never_wraps() {
        assert_eq!(Time(5).since(Time(9)), Span::ZERO);
        assert_eq!(Time(u64::MAX) + Span(1), Time(u64::MAX));
        assert_eq!(Span(3) - Span(4), Span::ZERO);
        assert_eq!(Span::from_secs(-1.0), Span::ZERO);
        assert_eq!(Span::from_secs(f64::NAN), Span::ZERO);
        assert_eq!(Span::from_secs(1.5), Span(1_500_000_000));
        assert_eq!(Span::from_secs(f64::INFINITY), Span(u64::MAX));
    }
}
