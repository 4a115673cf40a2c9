//! Key sets: what a network's rotations need under the ways there are to serve them ([KDS25]), and which of
//! those that this back end runs fits a budget.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use tacit_graph::{Model, Watch};
use tacit_he::ckks::{Context, KeyId, KeyKind, Secret, SwitchKey, max_modulus_bits};

use super::draft::Draft;
use super::frame::{Frame, frame};
use super::options::Options;
use super::public::StepRecord;
use crate::BackendError;
use crate::seam;

/// What a chosen set is to be best at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Fewest transforms.
    Latency,
    /// Fewest bytes to send.
    Upload,
    /// Fewest bytes at the server.
    Memory,
    /// Least product of transforms and bytes.
    Balanced,
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "latency" => Ok(Self::Latency),
            "upload" => Ok(Self::Upload),
            "memory" => Ok(Self::Memory),
            "balanced" => Ok(Self::Balanced),
            _ => Err("`latency`, `upload`, `memory` or `balanced`".into()),
        }
    }
}

/// One way to serve a network's rotations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeySetChoice {
    /// Its name.
    pub name: String,
    /// The back end's options that run it; none for what is there to compare with.
    pub options: Option<String>,
    /// Keys in all: rotations, relinearisation, bootstraps.
    pub keys: usize,
    /// Bytes of them, seeded and packed: to send, and at the server.
    pub bytes: u64,
    /// Bytes at the server while it computes for one client: keys, encoded weights, what a step holds.
    pub memory: u64,
    /// Key switches of rotations in linear steps of one inference.
    pub rotations: u64,
    /// Number-theoretic transforms of these.
    pub transforms: u64,
}

/// A network's rotations and the sets that serve them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Design {
    /// Name of the network.
    pub model: String,
    /// Name of the parameters, and log2 of the ring degree.
    pub parameters: (String, u32),
    /// Steps with their rotations (distances in slots), hoisted.
    pub steps: Vec<StepRecord>,
    /// Ways to serve them, those that run first.
    pub choices: Vec<KeySetChoice>,
    /// Index of the one that was chosen.
    pub chosen: usize,
}

/// Budgets in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Keys, encoded weights and what a step holds, at the server.
    pub memory: Option<u64>,
    /// Keys to send.
    pub upload: Option<u64>,
}

/// Transforms of one key switch at `level` with `alpha` special primes.
fn transforms(level: usize, alpha: usize) -> u64 {
    ((level.div_ceil(alpha) + 2) * (level + alpha)) as u64
}

fn bytes(context: &Context, keys: &[KeyId]) -> u64 {
    keys.iter().map(|&k| SwitchKey::packed_bytes(context, k) as u64).sum()
}

/// The design of a model's key set.
///
/// # Errors
/// What lowering fails with; [`BackendError::Data`] where nothing fits the budget: it says what would.
pub fn design(
    model: &Model,
    options: &seam::Options,
    budget: Budget,
    goal: Goal,
    watch: &Watch,
) -> Result<Design, BackendError> {
    let base = Options::read(options)?;
    let frame = frame(model, &base, watch)?;
    let mut choices = Vec::new();
    let mut hoisted: Option<(Vec<StepRecord>, Vec<KeyId>, u64)> = None;
    let boots: &[bool] = if frame.places.iter().any(|p| p.boots) { &[true, false] } else { &[true] };
    for &own_boots in boots {
        watch.tell("making tables of bootstraps", 0, None)?;
        let way = |rotations| Options { hoisted: rotations, hoisted_bootstraps: own_boots, ..base.clone() };
        let bootstrapper = frame.bootstrapper(&way(true))?;
        for rotations in [true, false] {
            let options = way(rotations);
            let draft = Draft::new(&frame, &options, bootstrapper.as_ref())?;
            choices.push(running(&frame, &draft, &options, boots.len() > 1));
            if rotations && hoisted.is_none() {
                let beside = draft.memory(0);
                hoisted = Some((draft.steps, draft.needs, beside));
            }
        }
    }
    let runnable = choices.len();
    let (steps, needs, beside) = hoisted.expect("the first way is hoisted");
    choices.extend(compared(&frame, &steps, &needs, beside));
    let chosen = choose(&choices[..runnable], budget, goal)?;
    let parameters = (frame.setting.name.clone(), frame.setting.parameters.log_degree);
    Ok(Design { model: model.interface.name.clone(), parameters, steps, choices, chosen })
}

/// A way that this back end runs.
fn running(frame: &Frame, draft: &Draft<'_>, options: &Options, boots: bool) -> KeySetChoice {
    let keys: Vec<KeyId> = draft.keys().into_iter().map(|k| k.id()).collect();
    let (rotations, transforms) = linear_work(frame, &draft.steps);
    let word = |hoisted| if hoisted { "hoisted" } else { "chained" };
    let (own, of_boots) = (word(options.hoisted), word(options.hoisted_bootstraps));
    let (name, text) = match boots {
        true => (format!("{own}, bootstraps {of_boots}"), format!("rotations={own},bootstraps={of_boots}")),
        false => (own.to_owned(), format!("rotations={own}")),
    };
    KeySetChoice {
        name,
        options: Some(text),
        keys: keys.len(),
        bytes: bytes(&frame.context, &keys),
        memory: draft.memory(bytes(&frame.context, &keys)),
        rotations,
        transforms,
    }
}

/// Key switches and their transforms in linear steps.
fn linear_work(frame: &Frame, steps: &[StepRecord]) -> (u64, u64) {
    let parameters = frame.context.parameters();
    steps.iter().zip(&frame.places).filter(|(step, _)| step.diagonals > 1).fold(
        (0, 0),
        |(count, sum), (step, place)| {
            let level = place.made + 1;
            let own = step.switches as u64;
            (count + own, sum + own * transforms(level, parameters.alpha(level)))
        },
    )
}

/// The sets of the paper on this lowering: every rotation is a key switch of its own, from a key for its
/// distance or from keys for powers of two. `beside` bytes are at the server with all of them.
fn compared(frame: &Frame, steps: &[StepRecord], needs: &[KeyId], beside: u64) -> Vec<KeySetChoice> {
    let context = &*frame.context;
    let (parameters, n) = (context.parameters(), context.degree() as i64 / 2);
    let top = parameters.levels();
    let galois = |k: &KeyId| matches!(k.kind, KeyKind::Galois(_));
    let others: Vec<KeyId> = needs.iter().filter(|k| !galois(k)).copied().collect();
    let others = tacit_he::ckks::merged(&others);
    let distinct: BTreeMap<KeyKind, usize> = needs.iter().filter(|k| galois(k)).fold(BTreeMap::new(), |mut all, k| {
        let level = all.entry(k.kind).or_default();
        *level = k.level.max(*level);
        all
    });
    // The most special primes that are secure at the top.
    let room = f64::from(max_modulus_bits(context.degree(), Secret::Ternary)) - parameters.modulus_log2(top, 0);
    let largest = ((room / 50.0) as usize).clamp(1, parameters.special_primes().len());
    let all = |alpha: usize| -> Vec<KeyId> {
        distinct.keys().map(|&kind| KeyId { kind, level: top, alpha }).chain(others.iter().copied()).collect()
    };
    let powers: BTreeSet<u32> = (0..n.trailing_zeros())
        .flat_map(|b| [1i64 << b, -(1i64 << b)])
        .map(|k| context.rotation_element(k))
        .chain([context.conjugation_element()])
        .collect();
    let two = |alpha: usize| -> Vec<KeyId> {
        let key = |&e: &u32| KeyId { kind: KeyKind::Galois(e), level: top, alpha };
        powers.iter().map(key).chain(others.iter().copied()).collect()
    };
    let needed: Vec<KeyId> =
        distinct.iter().map(|(&kind, &level)| KeyId::at(context, kind, level)).chain(others.iter().copied()).collect();
    let work = |hops: &dyn Fn(i64) -> u64, alpha: Option<usize>| {
        // The input rotates nothing, and there may be no level above it.
        let rotating = steps.iter().zip(&frame.places).filter(|(step, _)| !step.rotations.is_empty());
        rotating.fold((0, 0), |(count, sum), (step, place)| {
            let level = place.made + 1;
            let own: u64 = step.rotations.iter().map(|&k| hops(k)).sum();
            (count + own, sum + own * transforms(level, alpha.unwrap_or_else(|| parameters.alpha(level))))
        })
    };
    let one = |name: &str, keys: Vec<KeyId>, (rotations, transforms): (u64, u64)| KeySetChoice {
        name: name.into(),
        options: None,
        keys: keys.len(),
        bytes: bytes(context, &keys),
        memory: beside + bytes(context, &keys),
        rotations,
        transforms,
    };
    let chain = |k: i64| u64::from(weight(k, n));
    vec![
        one("all-required, alpha 1, all levels", all(1), work(&|_| 1, Some(1))),
        one("all-required, largest alpha, all levels", all(largest), work(&|_| 1, Some(largest))),
        one("all-required, needed levels (the paper's proposal)", needed, work(&|_| 1, None)),
        one("power-of-two, alpha 1, all levels", two(1), work(&chain, Some(1))),
        one("power-of-two, largest alpha, all levels", two(largest), work(&chain, Some(largest))),
    ]
}

/// Least number of powers of two, added or taken off, that make `k` mod `n`.
fn weight(k: i64, n: i64) -> u32 {
    let form = |k: i64| ((k ^ (3 * k)) as u64).count_ones();
    let k = k.rem_euclid(n);
    form(k).min(form(n - k))
}

fn choose(choices: &[KeySetChoice], budget: Budget, goal: Goal) -> Result<usize, BackendError> {
    let [memory, upload] = [budget.memory, budget.upload].map(|most| most.unwrap_or(u64::MAX));
    let cost = |c: &KeySetChoice| match goal {
        Goal::Latency => c.transforms as f64,
        Goal::Upload => c.bytes as f64,
        Goal::Memory => c.memory as f64,
        Goal::Balanced => c.transforms.max(1) as f64 * c.bytes as f64,
    };
    let fitting = choices.iter().enumerate().filter(|(_, c)| c.bytes <= upload && c.memory <= memory);
    fitting.min_by(|a, b| cost(a.1).total_cmp(&cost(b.1))).map(|(i, _)| i).ok_or_else(|| {
        let fewest = choices.iter().min_by_key(|c| c.bytes).expect("there are choices");
        let leanest = choices.iter().min_by_key(|c| c.memory).expect("there are choices");
        let what = format!(
            "no key set of this network is within the budgets: `{}` has the fewest bytes to send, {}; a server takes {} bytes of memory with \
             `{}`, the least, of which {} are keys and the others encoded weights and what a step holds. A shallower network, or one with \
             fewer channels, needs less",
            fewest.name, fewest.bytes, leanest.memory, leanest.name, leanest.bytes
        );
        BackendError::Data { what }
    })
}

/// Bytes of one rotation key in the paper's setting (N = 2^16, 8 bytes a residue, both halves, nothing
/// seeded): `depth` multiplications are left after a bootstrap of 15 levels.
#[must_use]
pub fn paper_key_bytes(depth: u64, alpha: u64) -> u64 {
    let primes = depth + 16;
    2 * (1 << 16) * (primes / alpha) * (primes + alpha - 1) * 8
}

/// A row of the paper's Table 5: bytes of the keys of a bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BootstrapKeys {
    /// Multiplications left after it.
    pub depth: u64,
    /// With alpha = 1: 38 keys.
    pub single: u64,
    /// The largest alpha that has 128 bits there, where the paper has a figure: and its bytes.
    pub largest: Option<(u64, u64)>,
}

/// Alphas of the paper's column "largest alpha", by depth, from the deepest: 0 where it has none.
const LARGEST: [u64; 16] = [1, 0, 1, 0, 4, 3, 2, 5, 6, 0, 2, 7, 10, 0, 9, 0];

/// The two columns of the paper's Table 5 that formulas give: 38 keys with alpha = 1, 45 where the largest
/// alpha is used (38 at depth 14).
#[must_use]
pub fn table_5() -> Vec<BootstrapKeys> {
    let row = |(depth, alpha): (u64, u64)| {
        let keys = if depth == 14 { 38 } else { 45 };
        let largest = (alpha > 0).then(|| (alpha, keys * paper_key_bytes(depth, alpha)));
        BootstrapKeys { depth, single: 38 * paper_key_bytes(depth, 1), largest }
    };
    (1..=16).rev().zip(LARGEST).map(row).collect()
}

impl fmt::Display for KeySetChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gb = self.bytes as f64 / 1e9;
        let (name, memory) = (&self.name, self.memory as f64 / 1e9);
        write!(f, "{name:<52} {:>6} {gb:>9.3} {memory:>9.3} {:>9} {:>11}", self.keys, self.rotations, self.transforms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GB to three digits, as printed in the paper.
    #[test]
    fn static_columns_are_those_of_the_paper() {
        let gb = |bytes: u64| format!("{:.3}", bytes as f64 / 1e9);
        let single: Vec<String> = table_5().iter().map(|row| gb(row.single)).collect();
        let paper = "40.802 38.292 35.861 33.510 31.239 29.048 26.936 24.904 22.951 21.078 19.285 17.572 15.938 14.384 12.910 11.515";
        assert_eq!(single.join(" "), paper);
        let largest: Vec<String> =
            table_5().iter().map(|row| row.largest.map_or("-".into(), |(_, bytes)| gb(bytes))).collect();
        let paper = "48.318 - 35.861 - 10.239 12.316 16.562 6.842 5.474 - 11.938 3.822 2.737 - 2.454 -";
        assert_eq!(largest.join(" "), paper);
        assert_eq!(gb(257 * paper_key_bytes(16, 1)), "275.952");
        assert_eq!(gb(236 * paper_key_bytes(16, 1)), "253.403");
    }

    #[test]
    fn distances_have_their_weights() {
        assert_eq!([1, 3, 7, 5, -1, 1023].map(|k| weight(k, 1024)), [1, 2, 2, 2, 1, 1]);
    }

    #[test]
    fn a_budget_that_nothing_fits_says_what_would() {
        let choice = |name: &str, bytes, transforms| KeySetChoice {
            name: name.into(),
            options: None,
            keys: 1,
            bytes,
            memory: bytes + 7,
            rotations: 1,
            transforms,
        };
        let all = [choice("fast", 100, 10), choice("small", 20, 90)];
        let pick = |memory, goal| choose(&all, Budget { memory, upload: None }, goal);
        assert_eq!(pick(None, Goal::Latency).unwrap(), 0);
        assert_eq!(pick(Some(100), Goal::Latency).unwrap(), 1);
        assert_eq!(choose(&all, Budget { memory: None, upload: Some(100) }, Goal::Latency).unwrap(), 0);
        assert_eq!(pick(None, Goal::Upload).unwrap(), 1);
        let error = pick(Some(10), Goal::Balanced).unwrap_err().to_string();
        assert!(error.contains("small") && error.contains("27 bytes of memory"), "{error}");
    }
}
