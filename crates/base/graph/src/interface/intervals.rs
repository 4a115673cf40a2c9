//! Intervals in files and messages: pairs of numbers, the low end first.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tacit_floats::Interval;

fn interval([low, high]: [f32; 2]) -> Interval<f32> {
    Interval { low, high }
}

/// An interval.
pub(super) mod one {
    use super::*;

    /// Writes an interval as `[low, high]`.
    pub fn serialize<S: Serializer>(interval: &Interval<f32>, serializer: S) -> Result<S::Ok, S::Error> {
        interval.ends().serialize(serializer)
    }

    /// Reads an interval written as `[low, high]`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Interval<f32>, D::Error> {
        Deserialize::deserialize(deserializer).map(interval)
    }
}

/// A list of intervals.
pub(super) mod list {
    use super::*;

    /// Writes intervals as a list of `[low, high]`.
    pub fn serialize<S: Serializer>(intervals: &[Interval<f32>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(intervals.iter().map(|interval| interval.ends()))
    }

    /// Reads intervals written as a list of `[low, high]`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Interval<f32>>, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().map(interval).collect())
    }
}
