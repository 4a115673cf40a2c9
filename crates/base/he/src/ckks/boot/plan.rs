//! Description and tables of a bootstrap, and the levels, keys and errors that follow from them.

use super::super::context::Context;
use super::super::encoder::Encoder;
use super::super::eval::{
    Basis, LinearTransform, Method, Polynomial, TransformPlan, TransformSpec, relinearisation_needs,
};
use super::super::keys::{KeyId, KeyKind};
use super::super::noise::rounding_deviation;
use super::super::scale::Scale;
use super::sine::{arcsine, wave};
use super::stages::{Diagonals, group_stages, shift_parts};
use crate::HeError;
use std::f64::consts::PI;
use std::sync::Arc;

/// Least ratio bits without the arcsine: values of size 1 are at most `2^-MESSAGE_RATIO_BITS` of
/// `q_0`, where the sine is nearly straight.
pub const MESSAGE_RATIO_BITS: u32 = 8;
/// Least ratio bits with the arcsine.
const CORRECTED_RATIO_BITS: u32 = 6;
/// Range of the multiples of `q_0` in all bootstraps.
const RANGE: u32 = 16;
const DOUBLINGS: u32 = 3;
/// log2 of the probability that the multiple of `q_0` in one coefficient reaches [`RANGE`]: that
/// weight + 1 = 33 uniform numbers of `[-1/2, 1/2]` sum to at least 15.5 in size (Irwin and Hall).
const FAILURE_LOG2: f64 = -121.7;

/// Factor between the errors of CoeffToSlot, powers and doublings together and that of one
/// rescaling of the argument (docs/notes/ckks.md).
const EVAL_MOD_ERROR_FACTOR: f64 = 6.0;

/// SlotToCoeff is flat: keys at its low levels are small.
const SLOT_TO_COEFF_METHOD: Method = Method::Flat;

const WHAT: &str = "bootstrapping";

/// Description of a bootstrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootstrapSpec {
    /// Number of slots n.
    pub slots: usize,
    /// Levels of SlotToCoeff.
    pub slot_to_coeff: usize,
    /// Levels of CoeffToSlot.
    pub coeff_to_slot: usize,
    /// log2 of `q_0` over a value of size 1: each bit makes the sine straighter by two bits (four
    /// with the arcsine) and noise larger by one. At least [`MESSAGE_RATIO_BITS`], or 6 with the
    /// arcsine.
    pub message_ratio_bits: u32,
    /// Whether the cubic term of the arcsine corrects the sine, which takes two more levels.
    pub arcsine: bool,
    /// How CoeffToSlot rotates.
    pub method: Method,
    /// Bytes of diagonals that may be stored transformed.
    pub cache_bytes: usize,
}

/// Tables for bootstraps of one description.
pub struct Bootstrapper {
    pub(super) context: Arc<Context>,
    pub(super) spec: BootstrapSpec,
    /// Bound of the multiples of `q_0`.
    range: u32,
    pub(super) to_coefficients: Vec<LinearTransform>,
    pub(super) to_slots: Vec<LinearTransform>,
    /// Distance by which slots are rotated before the first transform: the sum of the first offsets
    /// of chained transforms, which only rotate forward.
    pub(super) turn: i64,
    pub(super) wave: Polynomial,
    pub(super) arcsine: Option<Polynomial>,
}

impl Bootstrapper {
    /// Builds the diagonals and the polynomials.
    ///
    /// # Errors
    /// [`HeError::Circuit`] if the parameters have no sparse secret or too few levels, or a number
    /// is out of range; [`HeError::Slots`].
    pub fn new(context: &Arc<Context>, spec: &BootstrapSpec) -> Result<Self, HeError> {
        Self::with_range(context, spec, RANGE)
    }

    /// As [`Bootstrapper::new`], with another range, for tests in which failures happen.
    pub(super) fn with_range(context: &Arc<Context>, spec: &BootstrapSpec, range: u32) -> Result<Self, HeError> {
        let parameters = context.parameters();
        if !parameters.spec().encapsulated {
            return refuse("the parameters have no sparse secret".to_owned());
        }
        let encoder = Encoder::new(context, spec.slots)?;
        let stages = spec.slots.trailing_zeros() as usize;
        if ![spec.slot_to_coeff, spec.coeff_to_slot].iter().all(|groups| (1..=stages).contains(groups)) {
            return refuse(format!("transforms of {} slots take 1 to {stages} levels", spec.slots));
        }
        let least = if spec.arcsine { CORRECTED_RATIO_BITS } else { MESSAGE_RATIO_BITS };
        if !(least..=20).contains(&spec.message_ratio_bits) {
            return refuse(format!("a ratio of {} bits is not {least} to 20", spec.message_ratio_bits));
        }
        let wave = Polynomial::new(Basis::Chebyshev, &wave(range, DOUBLINGS))?;
        let [linear, cubic] = arcsine(2.0 * PI / 2f64.powi(spec.message_ratio_bits as i32));
        let arcsine = spec.arcsine.then(|| Polynomial::new(Basis::Power, &[0.0, linear, 0.0, cubic])).transpose()?;
        let depth =
            spec.coeff_to_slot + wave.depth() + DOUBLINGS as usize + arcsine.as_ref().map_or(0, Polynomial::depth);
        if parameters.levels() <= depth + spec.slot_to_coeff {
            let why = format!("{} levels, {} are needed", parameters.levels(), depth + spec.slot_to_coeff + 1);
            return refuse(why);
        }
        let mut built = Self {
            context: context.clone(),
            spec: *spec,
            range,
            to_coefficients: Vec::new(),
            to_slots: Vec::new(),
            turn: 0,
            wave,
            arcsine,
        };
        let [mut down, mut up] = [built.down(), built.up()];
        // All distances of a part are multiples of one stride: blocks are useless.
        let method = if spec.method.is_chained() { spec.method } else { Method::Flat };
        let methods = [vec![SLOT_TO_COEFF_METHOD; down.len()], vec![method; up.len()]].concat();
        built.turn = shift_parts(spec.slots, methods.into_iter().zip(down.iter_mut().chain(&mut up)))?;
        let (low, top) = (built.level_in(), parameters.levels());
        // The multiples of q_0 are large before CoeffToSlot, so rounding must be fine there.
        let raised = built.raised_scale();
        let slot_scale = raised.times(Scale::power_of_two(1));
        built.to_coefficients =
            built.transforms(&encoder, SLOT_TO_COEFF_METHOD, &down, low, parameters.scale(low), None)?;
        built.to_slots = built.transforms(&encoder, method, &up, top, raised, Some(slot_scale))?;
        Ok(built)
    }

    /// Compiles the transforms of `parts` from `level` down. The input has `scale`; outputs have
    /// canonical scales, or `slot_scale` if given, except the last.
    fn transforms(
        &self,
        encoder: &Encoder,
        method: Method,
        parts: &[Diagonals],
        level: usize,
        mut scale: Scale,
        slot_scale: Option<Scale>,
    ) -> Result<Vec<LinearTransform>, HeError> {
        let parameters = self.context.parameters();
        let mut left = self.spec.cache_bytes;
        let transforms = parts.iter().enumerate().map(|(i, diagonals)| {
            let level: usize = level - i;
            let canonical = parameters.scale(level - 1);
            let goal = slot_scale.filter(|_| i + 1 < parts.len()).unwrap_or(canonical);
            let of_diagonals = goal.times_prime(parameters.primes()[level - 1]).over(scale);
            scale = goal;
            let spec = TransformSpec { diagonals, level, scale: of_diagonals, method, cache_bytes: left };
            let transform = LinearTransform::new(encoder, &spec)?;
            left = left.saturating_sub(transform.memory_bytes());
            Ok(transform)
        });
        transforms.collect()
    }

    fn down(&self) -> Vec<Diagonals> {
        let parameters = self.context.parameters();
        // The factor that brings the scale at level 1 to the ratio asked for.
        let ratio = 2f64.powi(-(self.spec.message_ratio_bits as i32));
        let factor = ratio * parameters.primes()[0] as f64 / parameters.scale(1).to_f64();
        let groups = self.spec.slot_to_coeff;
        group_stages(self.spec.slots, groups, false, factor.powf(1.0 / groups as f64))
    }

    fn up(&self) -> Vec<Diagonals> {
        // The sum with the conjugate is twice the real part, and the wave's argument is divided by
        // the range.
        let factor = 1.0 / (2.0 * self.range());
        let groups = self.spec.coeff_to_slot;
        group_stages(self.spec.slots, groups, true, factor.powf(1.0 / groups as f64))
    }

    /// Scale after raising: `q_0`, so that its multiples are integers, times the terms of the
    /// trace.
    pub(super) fn raised_scale(&self) -> Scale {
        let copies = self.context.degree() / (2 * self.spec.slots);
        Scale::ONE
            .times_prime(self.context.parameters().primes()[0])
            .times(Scale::power_of_two(copies.trailing_zeros()))
    }

    /// Rotations of the trace to the subring.
    pub(super) fn trace(&self) -> Vec<i64> {
        let doubled = std::iter::successors(Some(self.spec.slots), |k| Some(2 * k));
        doubled.take_while(|k| *k < self.context.degree() / 2).map(|k| k as i64).collect()
    }

    pub(super) fn range(&self) -> f64 {
        f64::from(self.range)
    }

    pub(super) fn doublings(&self) -> usize {
        DOUBLINGS as usize
    }

    /// Slope of the sine: EvalMod of a value of size 1, without the arcsine.
    pub(super) fn slope(&self) -> f64 {
        2.0 * PI / 2f64.powi(self.spec.message_ratio_bits as i32)
    }

    /// Description of the bootstrap.
    pub fn spec(&self) -> &BootstrapSpec {
        &self.spec
    }

    /// Lowest level of an input; higher ones are brought down to it.
    pub fn level_in(&self) -> usize {
        1 + self.spec.slot_to_coeff
    }

    /// Levels that a bootstrap takes from the highest.
    pub fn depth(&self) -> usize {
        let arcsine = self.arcsine.as_ref().map_or(0, Polynomial::depth);
        self.spec.coeff_to_slot + self.wave.depth() + self.doublings() + arcsine
    }

    /// Level of the result.
    pub fn level_out(&self) -> usize {
        self.context.parameters().levels() - self.depth()
    }

    /// Keys that a bootstrap needs.
    pub fn keys(&self) -> Vec<KeyId> {
        let (context, top) = (&*self.context, self.context.parameters().levels());
        let mut keys =
            vec![KeyId::for_level(context, KeyKind::ToSparse, 1), KeyId::for_level(context, KeyKind::FromSparse, top)];
        keys.extend(self.to_coefficients.iter().chain(&self.to_slots).flat_map(|t| t.plan().keys(context)));
        let turned = context.rotation_element(self.turn);
        keys.extend((turned != 1).then(|| KeyId::for_level(context, KeyKind::Galois(turned), self.level_in())));
        keys.extend(
            self.trace().iter().map(|&k| KeyId::for_level(context, KeyKind::Galois(context.rotation_element(k)), top)),
        );
        let real = top - self.spec.coeff_to_slot;
        keys.push(KeyId::for_level(context, KeyKind::Galois(context.conjugation_element()), real));
        keys.extend(relinearisation_needs(context, real, self.level_out()));
        super::super::keys::merge_needs(&keys)
    }

    /// Key switches outside the transforms, as pairs of level and number: the turn, the switches to
    /// the sparse secret and back, the trace, the conjugation, and the products of EvalMod.
    pub fn switches(&self) -> Vec<(usize, usize)> {
        let (top, turned) = (self.context.parameters().levels(), self.context.rotation_element(self.turn) != 1);
        let real = top - self.spec.coeff_to_slot;
        let moves = [(self.level_in(), usize::from(turned)), (1, 1), (top, 1 + self.trace().len()), (real, 1)];
        let doublings = std::iter::repeat_n(1, self.doublings());
        let arcsine = self.arcsine.iter().flat_map(Polynomial::relinearisations);
        let counts = self.wave.relinearisations().into_iter().chain(doublings).chain(arcsine);
        let products = counts.enumerate().map(|(levels_below, count)| (real - levels_below, count));
        moves.into_iter().chain(products).collect()
    }

    /// The transforms of one bootstrap, in order.
    pub fn plans(&self) -> impl Iterator<Item = &TransformPlan> {
        self.to_coefficients.iter().chain(&self.to_slots).map(LinearTransform::plan)
    }

    /// Bytes of the diagonals in memory.
    pub fn memory_bytes(&self) -> usize {
        self.to_coefficients.iter().chain(&self.to_slots).map(LinearTransform::memory_bytes).sum()
    }

    /// log2 of the probability that a bootstrap gives a wrong slot.
    pub fn failure_log2(&self) -> f64 {
        FAILURE_LOG2 + f64::from(self.context.parameters().spec().log_degree)
    }

    /// Largest error of the sine (with its cubic correction if any), for values up to 1.
    pub fn approximation(&self) -> f64 {
        let angle = self.slope();
        if self.spec.arcsine { 3.0 / 640.0 * angle.powi(4) } else { angle.powi(2) / 6.0 }
    }

    /// The value of a slot after a bootstrap without noise. Small values stay; large ones follow a
    /// wave as high as a sixth of the ratio of [`BootstrapSpec::message_ratio_bits`].
    pub fn slot_after(&self, value: f64) -> f64 {
        let sine = (self.slope() * value).sin();
        self.arcsine.as_ref().map_or(sine / self.slope(), |arcsine| arcsine.at(sine))
    }

    /// Predicted deviation of a slot's error by noise alone: that of one rescaling at the wave's
    /// argument, times the sine's slope over the range and [`EVAL_MOD_ERROR_FACTOR`], and the rounding of the
    /// result.
    pub fn noise(&self) -> f64 {
        let parameters = self.context.parameters();
        let slot = rounding_deviation(self.context.degree()) * (2.0 * self.spec.slots as f64).sqrt();
        let real = parameters.levels() - self.spec.coeff_to_slot;
        let input = 2.0 * PI * self.range() * (slot / parameters.scale(real).to_f64());
        (EVAL_MOD_ERROR_FACTOR * input / self.slope()).hypot(slot / parameters.scale(self.level_out()).to_f64())
    }
}

fn refuse<T>(why: String) -> Result<T, HeError> {
    Err(HeError::Circuit { what: WHAT, why })
}
