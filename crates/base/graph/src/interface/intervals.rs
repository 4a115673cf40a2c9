//! Intervals in files and messages: pairs of numbers, the low end first.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tacit_floats::Interval;

fn interval([low, high]: [f32; 2]) -> Interval<f32> {
    Interval { low, high }
}

pub(super) mod one {
    use super::*;

    pub fn serialize<S: Serializer>(interval: &Interval<f32>, serializer: S) -> Result<S::Ok, S::Error> {
        interval.ends().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Interval<f32>, D::Error> {
        Deserialize::deserialize(deserializer).map(interval)
    }
}

pub(super) mod list {
    use super::*;

    pub fn serialize<S: Serializer>(intervals: &[Interval<f32>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(intervals.iter().map(|interval| interval.ends()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Interval<f32>>, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().map(interval).collect())
    }
}
