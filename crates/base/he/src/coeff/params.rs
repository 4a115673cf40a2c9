//! Choice of parameters: how many low bits of ciphertexts may be dropped while shares still sum to
//! the value within an error. `docs/notes/noise.md` derives the bounds, with these names.

use super::context::{DEGREE, MAX_STEPS, P1, P2, P3, Q, polynomial_bytes};
use crate::HeError;
use tacit_arith::pack::packed_len;
use tacit_arith::prg::PublicSeed;
use tacit_arith::sample::ERROR_COINS;

/// log2 of the probability, per output coefficient, that a share pair exceeds its error, negated.
pub const FAILURE_LOG2: u32 = 40;
/// Bits of the widest supported ring.
pub const MAX_RING_BITS: u32 = 45;

/// `sqrt(2 ln(2 * 2^40))`: a sub-Gaussian variable exceeds this many deviations with probability at
/// most 2^-40.
const TAIL: f64 = 7.54;
/// Margin on the squared norms of secret, error and encryption randomness (7 deviations).
const NORM_MARGIN: f64 = 1.08;
const ERROR_VARIANCE: f64 = ERROR_COINS as f64 / 2.0;
const TERNARY_NORM_SQ: f64 = DEGREE as f64 * 2.0 / 3.0 * NORM_MARGIN;
/// Fewest dropped bits of `b`: packed coefficients of q's 65.3 bits then fit one word.
const MIN_UP_DROP: u32 = 2;

/// Requirements of a linear layer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ParamsSpec {
    /// Width l of the plaintext ring `Z_{2^l}`.
    pub ring_bits: u32,
    /// Squared Euclidean norm of all weights of one output polynomial with one part. Each of these
    /// weights multiplies noise that reaches every output coefficient.
    pub norm_sq: f64,
    /// Expansion steps of a fresh ciphertext, at most [`MAX_STEPS`]. An output polynomial has
    /// `2^steps` parts, each with weights of this norm.
    pub steps: u32,
    /// Largest allowed error of `client_share + server_share`, at least 1.
    pub max_error: u32,
    /// Fresh ciphertexts per answer: the weight of their dropped bits against those of answers.
    pub up_per_down: f64,
}

/// Checked rounding of ciphertexts for one layer group.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Params {
    ring_bits: u32,
    steps: u32,
    max_error: u32,
    norm_sq: f64,
    up_drop: u32,
    down_drop: u32,
}

/// Variance of the noise that expansion adds, on average over coefficients. Each step adds a key
/// switch and doubles what is there.
fn expansion(steps: u32) -> f64 {
    let digits = [P1, P2].map(|p| (p as f64 / P3 as f64).powi(2) / 12.0).iter().sum::<f64>();
    let rounding = (TERNARY_NORM_SQ + 1.0) / 12.0;
    let switch = DEGREE as f64 * ERROR_VARIANCE * NORM_MARGIN * digits + rounding;
    (2f64.powi(steps as i32) - 1.0) * switch
}

/// Deviation of the phase error E mod P1 for the given roundings.
fn deviation(norm_sq: f64, steps: u32, up_drop: u32, down_drop: u32) -> f64 {
    let zero_encryption = 2.0 * ERROR_VARIANCE * TERNARY_NORM_SQ;
    let switch = (TERNARY_NORM_SQ + 1.0) / 12.0;
    let answer = if down_drop == 0 { 0.0 } else { rounding(down_drop) * TERNARY_NORM_SQ };
    let fresh = ERROR_VARIANCE + rounding(up_drop) + 1.0 / 12.0;
    // Fresh noise ends in its own part; the noise of switching meets the weights of all parts.
    let multiplied = fresh + expansion(steps) * 2f64.powi(steps as i32);
    (zero_encryption + switch + answer + multiplied * norm_sq / (P2 as f64).powi(2)).sqrt()
}

/// Variance of a rounding that drops `drop` bits.
fn rounding(drop: u32) -> f64 {
    4f64.powi(drop as i32) / 12.0
}

impl Params {
    /// Drops as many bits as the error bound allows, weighing both directions by `up_per_down`.
    ///
    /// # Errors
    /// [`HeError::RingBits`]; [`HeError::TooNoisy`] if the bound does not hold even without
    /// rounding (see [`Params::smallest_error`]), `max_error` is 0, or `steps` exceeds
    /// [`MAX_STEPS`].
    pub fn new(spec: &ParamsSpec) -> Result<Self, HeError> {
        check_ring(spec.ring_bits)?;
        let ParamsSpec { ring_bits, norm_sq, steps, max_error, .. } = *spec;
        let threshold = (f64::from(spec.max_error) - 1.0 / 4096.0) * P1 as f64 / 2f64.powi(spec.ring_bits as i32);
        let choices = (0..30).filter_map(|down| {
            let up = (MIN_UP_DROP..=50).rev().find(|&up| TAIL * deviation(norm_sq, steps, up, down) < threshold)?;
            Some((up, down))
        });
        let saved = |&(up, down): &(u32, u32)| f64::from(up) * spec.up_per_down + f64::from(down);
        let best = choices.max_by(|a, b| tacit_floats::rising(&saved(a), &saved(b)));
        let Some((up_drop, down_drop)) = best.filter(|_| max_error > 0 && steps <= MAX_STEPS) else {
            return Err(HeError::TooNoisy { ring_bits, norm_log2: norm_sq.log2() / 2.0, max_error });
        };
        Ok(Self { ring_bits, steps, max_error, norm_sq, up_drop, down_drop })
    }

    /// The smallest error bound without expansion steps: 1 up to 39-bit rings with moderate
    /// weights, growing as `2^(l-39)` above.
    ///
    /// # Errors
    /// [`HeError::RingBits`]; [`HeError::TooNoisy`] if the bound would exceed 2^20.
    pub fn smallest_error(ring_bits: u32, norm_sq: f64) -> Result<u32, HeError> {
        check_ring(ring_bits)?;
        let needed = TAIL * deviation(norm_sq, 0, MIN_UP_DROP, 0) * 2f64.powi(ring_bits as i32) / P1 as f64;
        let error = (needed + 1.0 / 2048.0).ceil().max(1.0);
        if error > f64::from(1 << 20) || !error.is_finite() {
            return Err(HeError::TooNoisy { ring_bits, norm_log2: norm_sq.log2() / 2.0, max_error: 1 << 20 });
        }
        Ok(error as u32)
    }

    /// Width l of the plaintext ring.
    pub fn ring_bits(&self) -> u32 {
        self.ring_bits
    }

    /// Largest error of `client_share + server_share`, but with probability 2^-40 per coefficient.
    pub fn max_error(&self) -> u32 {
        self.max_error
    }

    /// Expansion steps of fresh ciphertexts.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Bound on the phase error |E| mod P1 behind [`Params::max_error`].
    pub fn phase_error_bound(&self) -> f64 {
        TAIL * deviation(self.norm_sq, self.steps, self.up_drop, self.down_drop)
    }

    /// Low bits of `b` dropped in a fresh ciphertext.
    pub fn up_drop(&self) -> u32 {
        self.up_drop
    }

    /// Low bits of `c1` dropped in an answer.
    pub fn down_drop(&self) -> u32 {
        self.down_drop
    }

    pub(super) fn up_max(&self) -> u64 {
        ((Q - 1 + (1 << (self.up_drop - 1))) >> self.up_drop) as u64
    }

    pub(super) fn down_max(&self) -> u64 {
        (P1 - 1 + ((1 << self.down_drop) >> 1)) >> self.down_drop
    }

    /// Bits of a packed coefficient of a fresh ciphertext.
    pub fn up_bits(&self) -> u32 {
        64 - self.up_max().leading_zeros()
    }

    /// Bits of a packed coefficient of an answer.
    pub fn down_bits(&self) -> u32 {
        64 - self.down_max().leading_zeros()
    }

    pub(super) fn chosen_max(&self) -> u64 {
        // The rounding in `Blank::mask` costs up to 6 * 2^(l - 64), less than 2^-16 of `q / 2^l`;
        // others one each.
        let bound = (Q >> self.ring_bits) + (Q >> (self.ring_bits + 16)) + 2;
        ((bound + (1 << (self.up_drop - 1))) >> self.up_drop) as u64
    }

    /// As [`Params::up_bits`], where the encryption chose the mask: l bits fewer.
    pub fn chosen_bits(&self) -> u32 {
        (64 - self.chosen_max().leading_zeros()).max(1)
    }

    /// Bytes of a fresh ciphertext with `chosen` masks: a 16-byte seed, the other coefficients
    /// packed, then the chosen ones packed.
    ///
    /// # Panics
    /// If `chosen` is above N.
    pub fn up_bytes(&self, chosen: usize) -> usize {
        PublicSeed::BYTES + packed_bytes(DEGREE - chosen, self.up_bits()) + packed_bytes(chosen, self.chosen_bits())
    }

    /// Bytes of an answer: N packed coefficients.
    pub fn down_bytes(&self) -> usize {
        polynomial_bytes(self.down_bits())
    }
}

fn packed_bytes(count: usize, bits: u32) -> usize {
    packed_len(count, bits).expect("a coefficient fits one word")
}

fn check_ring(bits: u32) -> Result<(), HeError> {
    if bits == 0 || bits > MAX_RING_BITS {
        return Err(HeError::RingBits { bits, max: MAX_RING_BITS });
    }
    Ok(())
}
