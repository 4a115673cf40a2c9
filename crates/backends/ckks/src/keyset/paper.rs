//! The figures of [KDS25], by the formulas behind them, and the same figures for our own bootstraps and
//! primes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tacit_he::ckks::{Method, NamedSet, Parameters, TransformPlan};

use super::presets::most_special;
use crate::levelled_program::backend_error;
use tacit_backend_api::Result;

/// Bytes of one residue of both halves of a key: N = 2^16, 8 bytes.
const UNIT: u64 = 2 * (1 << 16) * 8;
/// Most primes and special primes that together have 128 bits: one more than a key's bytes count.
const MAX_PRIMES: u64 = 33;
/// Number of keys of a bootstrap in the columns with several alphas.
const KEYS: u64 = 38;
/// log2 of the slots.
const LOG_SLOTS: u32 = 15;

/// Bytes of a key with `primes` primes (1 + Q), in digits of `alpha` primes. The paper's keys are not seeded.
fn key(primes: u64, alpha: u64) -> u64 {
    UNIT * primes.div_ceil(alpha) * (primes + alpha - 1)
}

/// Bytes of one rotation key in the paper's setting: `depth` multiplications are left after a bootstrap of 15
/// levels.
#[must_use]
pub fn paper_key_bytes(depth: u64, alpha: u64) -> u64 {
    key(depth + 16, alpha)
}

/// Bytes of the keys for one rotation at all levels, with dynamic alpha as in the paper's Tables 6 and 7: one
/// key for each of these alphas, at the highest level where that alpha has 128 bits.
#[must_use]
pub fn dynamic_key_bytes(alphas: &[u64]) -> u64 {
    alphas.iter().map(|&alpha| key(MAX_PRIMES - alpha, alpha)).sum()
}

/// A row of the paper's Table 5: bytes of the keys of a bootstrap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BootstrapKeys {
    /// Multiplications left after it.
    pub depth: u64,
    /// Bytes of 38 keys with alpha = 1.
    pub single: u64,
    /// The largest alpha that has 128 bits at this depth, and the bytes; `None` without a figure in the
    /// paper.
    pub largest: Option<(u64, u64)>,
    /// Alphas of which 38 keys each, at the highest level, add up to the paper's dynamic column, and the
    /// bytes.
    pub dynamic: Option<(Vec<u64>, u64)>,
    /// The paper's dynamic and level-aware columns, in millions of bytes.
    pub paper: Option<[u64; 2]>,
}

/// Alphas of the paper's column "largest alpha", by depth, from the deepest; 0 where it has none.
const LARGEST: [u64; 16] = [1, 0, 1, 0, 4, 3, 2, 5, 6, 0, 2, 7, 10, 0, 9, 0];

/// Alphas that add up to the paper's column "dynamic", by depth: found by trying sets of divisors.
/// No set fits depths 16 and 6.
const DYNAMIC: [(u64, &[u64]); 9] = [
    (14, &[1, 3, 5]),
    (12, &[1, 2, 4]),
    (11, &[3]),
    (10, &[2]),
    (9, &[5]),
    (8, &[2, 3, 6]),
    (5, &[3, 7]),
    (4, &[1, 2, 4, 5, 10]),
    (2, &[1, 2, 3, 6, 9]),
];

/// The paper's columns "dynamic" and "dynamic + level-aware", in millions of bytes.
const PRINTED: [(u64, [u64; 2]); 11] = [
    (16, [61_641, 25_535]),
    (14, [56_741, 18_895]),
    (12, [56_063, 10_305]),
    (11, [10_400, 10_273]),
    (10, [13_986, 13_413]),
    (9, [5_778, 5_557]),
    (8, [24_864, 6_250]),
    (6, [17_094, 9_597]),
    (5, [9_643, 4_448]),
    (4, [35_024, 4_452]),
    (2, [29_327, 4_050]),
];

fn find_by_depth<T: Clone>(list: &[(u64, T)], depth: u64) -> Option<T> {
    list.iter().find(|(row_depth, _)| *row_depth == depth).map(|(_, value)| value.clone())
}

/// The paper's Table 5: 38 keys with alpha = 1; 45 keys with the largest alpha (38 at depth 14); 38 keys of
/// each of several alphas where alpha is dynamic.
#[must_use]
pub fn table_5() -> Vec<BootstrapKeys> {
    (1..=16).rev().zip(LARGEST).map(|(depth, alpha)| row_of_table_5(depth, alpha)).collect()
}

/// `alpha` is the largest one, or 0.
fn row_of_table_5(depth: u64, alpha: u64) -> BootstrapKeys {
    let keys = if depth == 14 { 38 } else { 45 };
    let largest = (alpha > 0).then(|| (alpha, keys * paper_key_bytes(depth, alpha)));
    let dynamic = find_by_depth(&DYNAMIC, depth).map(|alphas: &[u64]| {
        let bytes = alphas.iter().map(|&alpha| KEYS * paper_key_bytes(depth, alpha)).sum();
        (alphas.to_vec(), bytes)
    });
    let paper = find_by_depth(&PRINTED, depth);
    BootstrapKeys { depth, single: KEYS * paper_key_bytes(depth, 1), largest, dynamic, paper }
}

/// The keys of one of our bootstraps at a depth, in the paper's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageKeys {
    /// Multiplications left after it.
    pub depth: u64,
    /// Distances, in three and three linear transforms.
    pub distances: usize,
    /// Bytes with dynamic alpha: each distance has a key for every alpha that it is used with, at the highest
    /// level of that alpha.
    pub dynamic: u64,
    /// Bytes of the same keys, each only at the highest level that needs it.
    pub level_aware: u64,
}

/// The largest alpha of 1, 2, 4, 8, 16 that the paper's budget allows at a level.
fn dynamic_alpha(primes: u64) -> u64 {
    [16, 8, 4, 2, 1].into_iter().find(|alpha| primes + alpha <= MAX_PRIMES).unwrap_or(1)
}

/// The keys of our own split of a bootstrap at a depth: CoeffToSlot at the top, SlotToCoeff at the end, three
/// levels each. The rule is that of the paper's Table 7; the distances differ.
///
/// # Errors
/// None in practice.
pub fn stage_keys(depth: u64) -> Result<StageKeys> {
    let primes = depth + 16;
    let mut uses: Vec<(i64, u64)> = Vec::new();
    for group in 0..3 {
        uses.extend(stage(2 - group, primes - u64::from(group))?);
        uses.extend(stage(group, depth + 4 - u64::from(group))?);
    }
    let mut highest: BTreeMap<(i64, u64), u64> = BTreeMap::new();
    for (distance, level) in &uses {
        let max_level = highest.entry((*distance, dynamic_alpha(*level))).or_default();
        *max_level = (*level).max(*max_level);
    }
    let dynamic = highest.keys().map(|&(_, alpha)| key(primes.min(MAX_PRIMES - alpha), alpha)).sum();
    let level_aware = highest.iter().map(|(&(_, alpha), &level)| key(level, alpha)).sum();
    let distances = uses.iter().map(|(distance, _)| distance).collect::<BTreeSet<_>>().len();
    Ok(StageKeys { depth, distances, dynamic, level_aware })
}

/// Distances of a bootstrap's stage, each with its level.
fn stage(group: u32, level: u64) -> Result<Vec<(i64, u64)>> {
    // A stage merges five butterflies: its distances are multiples of their least stride up to their sum,
    // either way.
    let (n, stride) = (1i64 << LOG_SLOTS, 1i64 << (5 * group));
    let offsets = (-31..=31).map(|i| (i * stride).rem_euclid(n));
    let plan = TransformPlan::new(n as usize, level as usize, Method::Flat, offsets).map_err(backend_error)?;
    Ok(plan.rotations().into_iter().map(|k| (k, level)).collect())
}

/// The alphas that 128 bits allow at a level: the paper's Fig. 3.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alphas {
    /// Primes of the level.
    pub level: usize,
    /// The most special primes, of 50 bits, with the primes of set A; at most as many as the level has
    /// primes.
    pub largest: usize,
    /// Alphas that divide the level: the paper uses whole numbers of digits only.
    pub whole: Vec<usize>,
    /// The paper's largest alpha, where its Table 5 shows one.
    pub paper: Option<u64>,
}

/// The alphas by level at N = 2^16.
///
/// # Errors
/// None in practice.
pub fn allowed_alphas() -> Result<Vec<Alphas>> {
    let set = NamedSet::find("A").expect("a set of the library");
    let parameters = Parameters::new(&set.spec()).map_err(backend_error)?;
    let rows = (1..=parameters.levels()).map(|level| {
        let largest = most_special(&parameters, level);
        let whole = (1..=largest).filter(|alpha| level.is_multiple_of(*alpha)).collect();
        let paper = (17..=32).contains(&level).then(|| LARGEST[32 - level]).filter(|alpha| *alpha > 0);
        Alphas { level, largest, whole, paper }
    });
    Ok(rows.collect())
}

/// A line of the paper's Tables 6 and 7 that the formula reproduces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperAlphas {
    /// Network and strategy.
    pub what: &'static str,
    /// Keys for each alpha.
    pub keys: u64,
    /// Alphas of the keys.
    pub alphas: &'static [u64],
    /// The paper's figure, in millions of bytes.
    pub printed: u64,
}

const fn line(what: &'static str, keys: u64, alphas: &'static [u64], printed: u64) -> PaperAlphas {
    PaperAlphas { what, keys, alphas, printed }
}

/// All lines but those of the paper's own method and one of the GRU.
pub const PAPER_ALPHAS: [PaperAlphas; 9] = [
    line("GRU + MLP, all-required", 286, &[1], 307_090),
    line("GRU + MLP, power-of-two", 52, &[1], 55_835),
    line("GRU + MLP, power-of-two, dynamic", 52, &[1, 2], 83_752),
    line("SqueezeNet, all-required", 236, &[1], 253_403),
    line("ResNet-20, all-required", 257, &[1], 275_952),
    line("SqueezeNet and ResNet-20, power-of-two", 52, &[1], 55_835),
    line("SqueezeNet, all-required, dynamic", 236, &[1, 2, 4, 8, 16], 490_968),
    line("ResNet-20, all-required, dynamic", 257, &[1, 2, 4, 8, 16], 534_656),
    line("both, power-of-two, dynamic", 52, &[1, 2, 4, 8, 16], 108_179),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn gb(bytes: u64) -> String {
        format!("{:.3}", bytes as f64 / 1e9)
    }

    /// GB to three digits, as printed in the paper.
    #[test]
    fn static_columns_match_paper() {
        let single: Vec<String> = table_5().iter().map(|row| gb(row.single)).collect();
        let paper = "40.802 38.292 35.861 33.510 31.239 29.048 26.936 24.904 22.951 21.078 19.285 17.572 15.938 14.384 12.910 11.515";
        assert_eq!(single.join(" "), paper);
        let largest: Vec<String> =
            table_5().iter().map(|row| row.largest.map_or("-".into(), |(_, bytes)| gb(bytes))).collect();
        let paper = "48.318 - 35.861 - 10.239 12.316 16.562 6.842 5.474 - 11.938 3.822 2.737 - 2.454 -";
        assert_eq!(largest.join(" "), paper);
    }

    /// Figures agree, up to one unit of the last digit at depth 4.
    #[test]
    fn dynamic_columns_match_paper() {
        let rows = table_5();
        let bytes = |row: &BootstrapKeys| Some((row.dynamic.as_ref()?.1, row.paper?[0] * 1_000_000));
        let pairs: Vec<(u64, u64)> = rows.iter().filter_map(bytes).collect();
        assert_eq!(pairs.len(), 9);
        assert!(pairs.iter().all(|(computed, paper)| computed.abs_diff(*paper) < 1_000_000), "{pairs:?}");
        for PaperAlphas { what, keys, alphas, printed } in PAPER_ALPHAS {
            assert_eq!(gb(keys * dynamic_key_bytes(alphas)), gb(printed * 1_000_000), "{what}");
        }
        assert_eq!(dynamic_key_bytes(&[1]), paper_key_bytes(16, 1));
    }

    #[test]
    fn level_aware_stages_need_fewer_bytes() {
        for depth in 1..=16 {
            let keys = stage_keys(depth).unwrap();
            assert!(keys.level_aware <= keys.dynamic, "{keys:?}");
            assert!((36..=48).contains(&keys.distances), "{keys:?}");
        }
    }

    #[test]
    fn allowed_alphas_fall_with_level() {
        let alphas = allowed_alphas().unwrap();
        assert!(alphas.windows(2).skip(20).all(|w| w[0].largest >= w[1].largest));
        let top = alphas.last().unwrap();
        assert!(top.largest >= 1);
        assert!(alphas[3].largest == 4);
        assert!(alphas[27].paper == Some(4));
    }
}
