//! How far predictions were off when they were last held against measured cells.

use serde::{Deserialize, Serialize};

const BUILT_IN: &str = include_str!("../checked.toml");

/// A campaign of `docs/scripts/plan_check.py`: networks that no calibration has seen, over emulated links.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checked {
    /// Where and when.
    pub machine: String,
    /// Cells: network, back end, threads, link.
    pub cells: u32,
    /// Phases of them that were timed.
    pub times: u32,
    /// Half of all times were predicted within this share of themselves.
    pub median: f64,
    /// Nine of ten.
    pub p90: f64,
    /// Of so many, the bytes were the predicted ones.
    pub bytes_exact: u32,
    /// Half of all peaks of memory, either party's, were predicted within this share of themselves.
    pub memory_median: f64,
    /// Nine of ten.
    pub memory_p90: f64,
}

impl Checked {
    /// The one that comes with the program, made with the calibration that does.
    ///
    /// # Panics
    /// Never: a test reads it.
    #[must_use]
    pub fn built_in() -> Self {
        toml::from_str(BUILT_IN).expect("a test reads it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_with_the_program_is_read() {
        let checked = Checked::built_in();
        assert!(checked.cells > 0 && checked.times >= checked.cells && checked.bytes_exact <= checked.times);
        for [half, most] in [[checked.median, checked.p90], [checked.memory_median, checked.memory_p90]] {
            assert!(0.0 < half && half <= most, "{checked:?}");
        }
    }
}
