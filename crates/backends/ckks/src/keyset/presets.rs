//! The strategies of [KDS25], applied to this lowering, with a key switch for each rotation. A strategy
//! decides which distances have keys, with how many special primes, and at which levels.

use std::collections::{BTreeMap, BTreeSet};

use tacit_he::ckks::{Parameters, Secret, TransformPlan, max_modulus_bits, merge_needs};

use super::KeySetChoice;
use super::rates::{key_bytes, plain_bytes, transforms};
use super::runnable_sets::Running;
use crate::hops::{Hops, signed_powers};
use crate::rotation_method::RotationMethod;
use tacit_backend_api::Result;

/// Number of special primes of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpha {
    /// One.
    Single,
    /// As many as have 128 bits at the highest level.
    Largest,
    /// At each level the most of 1, 2, 4, 8 and 16 that have 128 bits there.
    Dynamic,
}

/// A strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
    /// Whether only powers of two, in either direction, have keys.
    pub powers: bool,
    /// Special primes.
    pub alpha: Alpha,
    /// Whether keys are made for the levels that use them, instead of the highest.
    pub needed: bool,
}

const fn preset(name: &'static str, about: &'static str, powers: bool, alpha: Alpha, needed: bool) -> Preset {
    Preset { name, about, powers, alpha, needed }
}

/// All strategies.
pub const PRESETS: [Preset; 7] = [
    preset("power-of-two", "powers of two, one special prime, highest level", true, Alpha::Single, false),
    preset(
        "power-of-two, dynamic",
        "powers of two, most special primes of each level, all levels",
        true,
        Alpha::Dynamic,
        false,
    ),
    preset("all-required", "every distance, one special prime, highest level", false, Alpha::Single, false),
    preset("alpha=1", "every distance, one special prime, needed levels", false, Alpha::Single, true),
    preset("max-alpha", "every distance, most special primes at the top, highest level", false, Alpha::Largest, false),
    preset("dynamic", "every distance, most special primes of each level, all levels", false, Alpha::Dynamic, false),
    preset(
        "level-aware",
        "every distance, most special primes of each level, needed levels",
        false,
        Alpha::Dynamic,
        true,
    ),
];

/// The most special primes, of the parameters' size, with which keys at `level` have 128 bits: 1 to the
/// level's number of primes.
pub(super) fn most_special(parameters: &Parameters, level: usize) -> usize {
    let max_bits = f64::from(max_modulus_bits(parameters.degree(), Secret::Ternary));
    let bits_left = max_bits - parameters.modulus_log2(level, 0);
    ((bits_left / f64::from(parameters.spec().special_bits)) as usize).clamp(1, level.max(1))
}

/// Rounds [`most_special`] down to 1, 2, 4, 8 or 16.
fn dynamic(parameters: &Parameters, level: usize) -> usize {
    1 << most_special(parameters, level).min(16).ilog2()
}

impl Alpha {
    fn special_primes(self, parameters: &Parameters, level: usize) -> usize {
        match self {
            Self::Single => 1,
            Self::Largest => most_special(parameters, parameters.levels()),
            Self::Dynamic => dynamic(parameters, level),
        }
    }
}

/// A rotation distance of a linear step or a bootstrap.
struct Move {
    distance: i64,
    level: usize,
    times: u64,
    is_of_step: bool,
}

fn moves(running: &Running<'_>) -> Result<Vec<Move>> {
    let mut moves = Vec::new();
    for class in running.problem.classes.iter().filter(|class| !class.transforms.is_empty()) {
        moves.extend(transform_moves(&running.plan(class, RotationMethod::FLAT)?, class.transforms.len() as u64, true));
    }
    let boots = running.frame.bootstraps() as u64;
    let stages = running.bootstrappers.first().into_iter().flat_map(|boot| boot.plans());
    moves.extend(stages.flat_map(|plan| transform_moves(plan, boots, false)));
    Ok(moves)
}

/// The rotations of a transform that runs `times` times.
fn transform_moves(plan: &TransformPlan, times: u64, is_of_step: bool) -> Vec<Move> {
    let distances = plan.moves().into_iter().flatten();
    distances.map(|distance| Move { distance, level: plan.level(), times, is_of_step }).collect()
}

impl Preset {
    pub(super) fn evaluate(&self, running: &Running<'_>) -> Result<KeySetChoice> {
        let context = &*running.frame.context;
        let (parameters, n) = (context.parameters(), context.degree() / 2);
        let top = parameters.levels();
        let moves = moves(running)?;
        let powers = signed_powers(n);
        let hops = Hops::new(n, powers.iter().copied().filter(|_| self.powers));
        let distances: BTreeSet<i64> = match self.powers {
            true => powers.iter().copied().collect(),
            false => moves.iter().map(|m| m.distance).collect(),
        };
        // The highest level for each distance and number of special primes.
        let mut keys: BTreeMap<(i64, usize), usize> = BTreeMap::new();
        for &distance in &distances {
            let needed_levels = moves.iter().filter(|m| !self.powers && m.distance == distance).map(|m| m.level);
            let levels: Vec<usize> = match (self.needed, self.powers) {
                (true, false) => needed_levels.collect(),
                (true, true) => moves.iter().map(|m| m.level).collect(),
                (false, _) => (1..=top).collect(),
            };
            for level in levels {
                let highest = keys.entry((distance, self.alpha.special_primes(parameters, level))).or_default();
                *highest = level.max(*highest);
            }
        }
        let others = merge_needs(&running.other_needs());
        let rotation_bytes = keys.iter().map(|(&(_, alpha), &level)| key_bytes(parameters, level, alpha)).sum::<u64>();
        let plain_bytes = keys.iter().map(|(&(_, alpha), &level)| plain_bytes(context.degree(), level, alpha)).sum();
        let bytes = rotation_bytes + others.iter().map(|id| key_bytes(parameters, id.level, id.alpha)).sum::<u64>();
        let (mut rotations, mut ntts, mut seconds) = (0, 0, running.seconds_beside_rotations());
        for m in &moves {
            let count = m.times * if self.powers { u64::from(hops.count_to(m.distance)) } else { 1 };
            let alpha = self.alpha.special_primes(parameters, m.level);
            seconds += count as f64 * running.rates.switch_seconds(m.level, alpha);
            if m.is_of_step {
                rotations += count;
                ntts += count * transforms(m.level, alpha);
            }
        }
        Ok(KeySetChoice {
            name: self.name.into(),
            about: self.about.into(),
            options: None,
            keys: keys.len() + others.len(),
            bytes,
            rotation_keys: keys.len(),
            rotation_bytes,
            plain_bytes,
            memory: bytes + running.beside_keys(),
            rotations,
            transforms: ntts,
            seconds,
        })
    }
}
