//! The error of predictions in the last comparison with measured cells.

use serde::{Deserialize, Serialize};

const BUILT_IN: &str = include_str!("../checked.toml");

/// A campaign of `docs/scripts/plan_check.py`: networks outside the calibration, over emulated
/// links.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checked {
    /// Machine and date.
    pub machine: String,
    /// Number of cells: network, back end, threads, link.
    pub cells: u32,
    /// Number of timed phases in these cells.
    pub times: u32,
    /// Largest relative error of the better half of all predicted times.
    pub median: f64,
    /// Largest relative error of the best nine tenths.
    pub p90: f64,
    /// Number of phases whose bytes were exactly as predicted.
    pub bytes_exact: u32,
    /// Largest relative error of the better half of all predicted memory peaks, of either party.
    pub memory_median: f64,
    /// Largest relative error of the best nine tenths.
    pub memory_p90: f64,
}

impl Checked {
    /// Returns the built-in comparison, made with the built-in calibration.
    ///
    /// # Panics
    /// Never: a test reads the built-in file.
    #[must_use]
    pub fn built_in() -> Self {
        toml::from_str(BUILT_IN).expect("a test reads it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_built_in_comparison() {
        let checked = Checked::built_in();
        assert!(checked.cells > 0);
        assert!(checked.times >= checked.cells);
        assert!(checked.bytes_exact <= checked.times);
        for [median, p90] in [[checked.median, checked.p90], [checked.memory_median, checked.memory_p90]] {
            assert!(0.0 < median, "{checked:?}");
            assert!(median <= p90, "{checked:?}");
        }
    }
}
