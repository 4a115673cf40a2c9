//! Chooses parameters for a program: the smallest ring without bootstraps, or a set with bootstraps.

use serde::{Deserialize, Serialize};
use tacit_he::ckks::{BootstrapSpec, KeyGroup, NamedSet, ParametersSpec, Secret, Segment, max_modulus_bits};

use super::levels::{Bootstraps, Levels, assign_levels};
use super::options::{NAME, Options, Set};
use super::program::Program;
use tacit_backend_api::{BackendError, Result};

/// Bits of the lowest prime, of primes above it, and of special primes.
const BASE_BITS: u32 = 46;
const SCALE_BITS: u32 = 36;
const SPECIAL_BITS: u32 = 50;
/// Most bytes of a bootstrap's diagonals that are stored transformed: enough for the existing sets.
const KEPT_BYTES: usize = 3 << 28;
/// Degrees of sets without bootstraps. Beyond `SMALL_LOG_DEGREE` a set with bootstraps is tried first.
const LOG_DEGREES: [u32; 4] = [13, 14, 15, 16];
const SMALL_LOG_DEGREE: u32 = 15;
/// Cost of a bootstrap and its layers, relative to set B.
const BOOTSTRAP_COSTS: [(Set, usize); 2] = [(Set::B, 1), (Set::A, 5)];
/// Most bytes of an input, unless the network fits no levels that way. The limit may cost one more bootstrap.
const INPUT_BYTES: usize = 3_000_000;
/// Most special primes: more bring no gain.
const MAX_SPECIAL: usize = 8;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Setting {
    /// Name of the set, or `leveled`.
    pub name: String,
    pub parameters: ParametersSpec,
    /// How bootstraps are made; `None` without bootstraps.
    pub bootstrap: Option<Bootstrapping>,
}

/// Levels of a bootstrap, and the accuracy of its sine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Bootstrapping {
    slot_to_coeff: usize,
    coeff_to_slot: usize,
    message_ratio_bits: u32,
    arcsine: bool,
    /// Levels that EvalMod and CoeffToSlot use up.
    depth: usize,
}

impl Bootstrapping {
    pub fn levels(&self, primes: usize) -> Bootstraps {
        Bootstraps { level_in: 1 + self.slot_to_coeff, level_out: primes - self.depth }
    }

    pub fn spec(&self, slots: usize, options: &Options) -> BootstrapSpec {
        BootstrapSpec {
            slots,
            slot_to_coeff: self.slot_to_coeff,
            coeff_to_slot: self.coeff_to_slot,
            message_ratio_bits: self.message_ratio_bits,
            arcsine: self.arcsine,
            method: options.bootstraps.he_method(),
            cache_bytes: KEPT_BYTES,
        }
    }
}

impl Setting {
    pub fn degree(&self) -> usize {
        1 << self.parameters.log_degree
    }

    pub fn slots(&self) -> usize {
        self.degree() / 2
    }

    fn primes(&self) -> usize {
        1 + self.parameters.segments.iter().map(|s| s.count).sum::<usize>()
    }

    /// Bytes of a sent ciphertext at `level`: one half, and a seed for the other.
    fn input_bytes(&self, level: usize) -> usize {
        let spec = &self.parameters;
        let above = spec.segments.iter().flat_map(|s| std::iter::repeat_n(s.bits, s.count));
        let bits: u32 = std::iter::once(spec.base_bits).chain(above).take(level).sum();
        self.degree() / 8 * bits as usize
    }

    pub fn bootstraps(&self) -> Option<Bootstraps> {
        self.bootstrap.map(|b| b.levels(self.primes()))
    }

    /// A chain of `levels` primes without bootstraps, with the special primes that make keys smallest.
    pub fn leveled(log_degree: u32, levels: usize) -> Option<Self> {
        let max_bits = f64::from(max_modulus_bits(1 << log_degree, Secret::Ternary));
        let fits = (1..=MAX_SPECIAL.min(levels)).filter(|&alpha| bits(levels, alpha) < max_bits);
        let alpha = fits.min_by_key(|&alpha| levels.div_ceil(alpha) * (levels + alpha))?;
        let segments = if levels > 1 { vec![Segment { count: levels - 1, bits: SCALE_BITS }] } else { vec![] };
        let parameters = ParametersSpec {
            log_degree,
            base_bits: BASE_BITS,
            segments,
            special_bits: SPECIAL_BITS,
            groups: vec![KeyGroup { up_to_level: levels, alpha }],
            encapsulated: false,
        };
        Some(Self { name: "leveled".into(), parameters, bootstrap: None })
    }

    fn named(set: Set) -> Self {
        let (name, bootstrap) = match set {
            Set::A => (
                "A",
                Bootstrapping { slot_to_coeff: 3, coeff_to_slot: 3, message_ratio_bits: 7, arcsine: true, depth: 13 },
            ),
            _ => (
                "B",
                Bootstrapping { slot_to_coeff: 2, coeff_to_slot: 3, message_ratio_bits: 10, arcsine: false, depth: 11 },
            ),
        };
        let set = NamedSet::find(name).expect("a set of the library");
        Self { name: name.into(), parameters: set.spec(), bootstrap: Some(bootstrap) }
    }
}

fn bits(levels: usize, alpha: usize) -> f64 {
    f64::from(BASE_BITS + SCALE_BITS * (levels as u32 - 1) + SPECIAL_BITS * alpha as u32)
}

/// Chooses a setting and levels in it. `holds` says whether all tensors fit a number of slots.
///
/// # Errors
/// [`BackendError::Option`] if no setting holds the program.
pub(super) fn choose(program: &Program, options: &Options, holds: impl Fn(usize) -> bool) -> Result<(Setting, Levels)> {
    let depth = assign_levels(program, None, usize::MAX, 0).map_or(usize::MAX, |levels| levels.level[0]);
    let largest = LOG_DEGREES[LOG_DEGREES.len() - 1];
    let setting = match options.set {
        Set::Auto => leveled(program, depth, SMALL_LOG_DEGREE, &holds)
            .or_else(|| cheapest(program, options, &holds))
            .or_else(|| leveled(program, depth, largest, &holds)),
        Set::Leveled => leveled(program, depth, largest, &holds),
        set => named(program, options, set, &holds),
    };
    setting.ok_or_else(|| {
        let max_slots = program.vectors.iter().map(|v| v.scale.len()).max().unwrap_or(0);
        let what = format!(
            "the network takes {depth} levels without bootstraps, its largest tensor {max_slots} slots. Without bootstraps about 40 levels and \
             2^15 slots are secure; set B has 4 levels between bootstraps and 2^14 slots, set A 15 and 2^15. A smaller network helps, or \
             polynomials of lower degree (`-O tolerance`)"
        );
        BackendError::Option { backend: NAME, key: "set".into(), what }
    })
}

/// The smallest ring up to degree `2^largest` that holds the program without bootstraps.
fn leveled(program: &Program, depth: usize, largest: u32, holds: &dyn Fn(usize) -> bool) -> Option<(Setting, Levels)> {
    let degrees = LOG_DEGREES.into_iter().filter(|log_degree| *log_degree <= largest);
    let mut settings =
        degrees.filter_map(|log_degree| Setting::leveled(log_degree, depth)).filter(|s| holds(s.slots()));
    settings.next().and_then(|s| Some((s, assign_levels(program, None, depth, 0)?)))
}

fn named(program: &Program, options: &Options, set: Set, holds: &dyn Fn(usize) -> bool) -> Option<(Setting, Levels)> {
    let setting = Setting::named(set);
    let bootstraps = setting.bootstraps()?;
    // The client may encrypt one level above what bootstraps reach, or lower if inputs would be too large.
    let top = bootstraps.level_out + 1;
    let small = (1..=top).rev().find(|&level| setting.input_bytes(level) <= INPUT_BYTES).unwrap_or(top);
    let placement = options.placement as usize;
    let levels =
        [small, top].into_iter().find_map(|max_level| assign_levels(program, Some(bootstraps), max_level, placement));
    let levels = levels.filter(|_| holds(setting.slots()))?;
    Some((setting, levels))
}

fn cheapest(program: &Program, options: &Options, holds: &dyn Fn(usize) -> bool) -> Option<(Setting, Levels)> {
    let candidates = BOOTSTRAP_COSTS.into_iter().filter_map(|(set, cost)| {
        let (setting, levels) = named(program, options, set, holds)?;
        Some((cost * levels.bootstraps(), setting, levels))
    });
    candidates.min_by_key(|(cost, _, _)| *cost).map(|(_, setting, levels)| (setting, levels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tacit_he::ckks::{Bootstrapper, Context, Parameters};

    #[test]
    fn leveled_chains_are_secure() {
        for (log, levels) in [(13, 3), (14, 9), (15, 18), (16, 38)] {
            let setting = Setting::leveled(log, levels).unwrap();
            let parameters = Parameters::new(&setting.parameters).unwrap();
            assert_eq!((parameters.levels(), parameters.degree()), (levels, setting.degree()));
        }
        assert!(Setting::leveled(13, 5).is_none());
        assert!(Setting::leveled(16, 60).is_none());
    }

    #[test]
    fn input_bytes_limit_level_of_set_a() {
        let [a, b] = [Set::A, Set::B].map(Setting::named);
        assert!(a.input_bytes(8) <= INPUT_BYTES);
        assert!(a.input_bytes(9) > INPUT_BYTES);
        assert!(b.input_bytes(8) <= INPUT_BYTES);
    }

    /// The stated depths are those of the library's bootstraps.
    #[test]
    fn bootstrap_levels_match_library() {
        let set = Setting::named(Set::B);
        let parameters = Parameters::new(&set.parameters).unwrap();
        let context = Arc::new(Context::new(&parameters).unwrap());
        // Few slots suffice: the levels are the same.
        let spec = set.bootstrap.unwrap().spec(64, &Options::default());
        let boot = Bootstrapper::new(&context, &spec).unwrap();
        assert_eq!(set.bootstraps(), Some(Bootstraps { level_in: boot.level_in(), level_out: boot.level_out() }));
    }
}
