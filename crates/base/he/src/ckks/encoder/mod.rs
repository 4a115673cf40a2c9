//! Encoding of complex or real slots as a polynomial with integer coefficients, and decoding
//! ([CKKS17]). With fewer than N/2 slots, polynomials lie in the subring of the slots.
//!
//! n slots (a power of two, 2 to N/2) use the 2n coefficients at multiples of `N / 2n`. The
//! transform works in doubles: its error is below 2^-45 of the largest entry.

mod fft;

pub use fft::{Complex, SlotTransform};

use super::cipher::Plaintext;
use super::context::Context;
use super::noise::Estimate;
use super::poly::{Coeff, Poly};
use super::scale::Scale;
use super::shape::Shape;
use crate::HeError;
use std::sync::Arc;
use tacit_arith::modulus::{Modulus, Shoup};
use zeroize::Zeroizing;

/// Coefficients stay below `2^MAX_COEFFICIENT_BITS`.
pub const MAX_COEFFICIENT_BITS: u32 = 62;

/// Encoder for a fixed number of slots.
pub struct Encoder {
    context: Arc<Context>,
    transform: SlotTransform,
}

fn root_mean_square(values: &[Complex]) -> f64 {
    (values.iter().map(|v| v.re * v.re + v.im * v.im).sum::<f64>() / values.len().max(1) as f64).sqrt()
}

impl Encoder {
    /// Makes an encoder for `slots` slots.
    ///
    /// # Errors
    /// [`HeError::Slots`] if `slots` is not a power of two from 2 to N/2.
    pub fn new(context: &Arc<Context>, slots: usize) -> Result<Self, HeError> {
        let max = context.degree() / 2;
        if !slots.is_power_of_two() || !(2..=max).contains(&slots) {
            return Err(HeError::Slots { slots, max });
        }
        Ok(Self { context: context.clone(), transform: SlotTransform::new(slots) })
    }

    /// The context of the encoder.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Number of slots n.
    pub fn slots(&self) -> usize {
        self.transform.slots()
    }

    /// The rounded coefficients `[N]` of the polynomial with slots `values`, padded by zeros, times
    /// `scale`.
    ///
    /// # Errors
    /// [`HeError::TooManyValues`]; [`HeError::TooLarge`] if a coefficient is 2^62 or more, or not a
    /// number.
    pub fn coefficients(&self, values: &[Complex], scale: Scale) -> Result<Zeroizing<Vec<i64>>, HeError> {
        let (degree, slots) = (self.context.degree(), self.slots());
        let mut coefficients = Zeroizing::new(vec![0i64; degree]);
        let gap = degree / (2 * slots);
        for (k, value) in self.small_coefficients(values, scale)?.iter().enumerate() {
            coefficients[k * gap] = *value;
        }
        Ok(coefficients)
    }

    /// As [`Encoder::coefficients`] without the zeros between: 2n coefficients.
    pub(super) fn small_coefficients(&self, values: &[Complex], scale: Scale) -> Result<Zeroizing<Vec<i64>>, HeError> {
        let slots = self.slots();
        if values.len() > slots {
            return Err(HeError::TooManyValues { values: values.len(), slots });
        }
        let mut entries = Zeroizing::new(vec![Complex::default(); slots]);
        entries[..values.len()].copy_from_slice(values);
        self.transform.to_coefficients(&mut entries);
        let factor = scale.to_f64();
        let limit = 2f64.powi(MAX_COEFFICIENT_BITS as i32);
        let largest = tacit_floats::largest_magnitude(entries.iter().flat_map(|v| [v.re, v.im]));
        if (largest * factor).is_nan() || largest * factor >= limit {
            return Err(HeError::TooLarge { log2: (largest * factor).log2(), max: MAX_COEFFICIENT_BITS });
        }
        let parts = entries.iter().map(|v| v.re).chain(entries.iter().map(|v| v.im));
        Ok(Zeroizing::new(parts.map(|v| (v * factor).round_ties_even() as i64).collect()))
    }

    /// Encodes complex values at `level` with `scale`.
    ///
    /// # Errors
    /// [`HeError::TooManyValues`]; [`HeError::TooLarge`], also if the modulus of the level is too
    /// small; [`HeError::Level`].
    pub fn encode(&self, values: &[Complex], level: usize, scale: Scale) -> Result<Plaintext, HeError> {
        let levels = self.context.parameters().levels();
        if level == 0 || level > levels {
            return Err(HeError::Level { what: "encoding", need: level, have: levels });
        }
        let coefficients = self.coefficients(values, scale)?;
        let largest = coefficients.iter().fold(0, |m: u64, v| m.max(v.unsigned_abs()));
        let half = self.context.parameters().modulus_log2(level, 0) - 1.0;
        if (largest as f64).log2() >= half {
            return Err(HeError::TooLarge { log2: (largest as f64).log2(), max: half as u32 });
        }
        let poly = Poly::from_signed(&self.context, Shape::level(level), &coefficients).into_ntt(&self.context);
        // Rounding errors are uniform over one unit, in 2n of N coefficients.
        let used = 2.0 * self.slots() as f64 / self.context.degree() as f64;
        let estimate = Estimate { deviation: (used / 12.0).sqrt(), magnitude: root_mean_square(values) };
        Ok(Plaintext { poly, scale, slots: self.slots(), estimate })
    }

    /// Encodes real values at `level` with the canonical scale there.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_real(&self, values: &[f64], level: usize) -> Result<Plaintext, HeError> {
        let parameters = self.context.parameters();
        let scale = parameters.scale(level.clamp(1, parameters.levels()));
        let complex: Zeroizing<Vec<Complex>> = Zeroizing::new(values.iter().map(|&v| v.into()).collect());
        self.encode(&complex, level, scale)
    }

    /// Decodes the slots of a plaintext: the message, wiped on drop.
    ///
    /// # Errors
    /// [`HeError::SlotCount`] if the plaintext has another number of slots.
    pub fn decode(&self, plaintext: &Plaintext) -> Result<Zeroizing<Vec<Complex>>, HeError> {
        super::cipher::same_slots("decoding", self.slots(), plaintext.slots)?;
        let parameters = self.context.parameters();
        // Takes as many primes as hold slots up to 2^SLOT_BITS.
        let room = plaintext.scale.log2() + SLOT_BITS;
        let enough = (1..plaintext.level()).find(|&level| parameters.modulus_log2(level, 0) >= room);
        let mut poly = plaintext.poly.clone();
        poly.truncate(enough.unwrap_or(plaintext.level()));
        let poly = Zeroizing::new(poly.into_coeff(&self.context));
        let centred = Centred::new(&self.context, poly.shape());
        let gap = self.context.degree() / (2 * self.slots());
        let wide: Zeroizing<Vec<f64>> =
            Zeroizing::new((0..2 * self.slots()).map(|k| centred.at(&poly, k * gap)).collect());
        let factor = 1.0 / plaintext.scale.to_f64();
        let (re, im) = wide.split_at(self.slots());
        let values = re.iter().zip(im).map(|(&re, &im)| Complex::new(re * factor, im * factor));
        let mut values: Zeroizing<Vec<Complex>> = Zeroizing::new(values.collect());
        self.transform.to_slots(&mut values);
        Ok(values)
    }
}

/// log2 of the largest slots that are decoded, as far as the level has room for them.
const SLOT_BITS: f64 = 50.0;

/// Conversion of residues to a centred integer (Garner's mixed radix, digits centred).
struct Centred<'a> {
    moduli: Vec<&'a Modulus>,
    /// `inverses[k][j] = q_j^-1 mod q_k` for j below k.
    inverses: Vec<Vec<Shoup>>,
}

impl<'a> Centred<'a> {
    fn new(context: &'a Context, shape: Shape) -> Self {
        let moduli: Vec<&Modulus> = (0..shape.level).map(|k| context.modulus(shape, k)).collect();
        let inverses = moduli.iter().enumerate().map(|(k, m)| {
            let lower_moduli = moduli[..k].iter();
            lower_moduli.map(|q| m.shoup(m.inv(m.reduce(q.value())))).collect()
        });
        let inverses = inverses.collect();
        Self { moduli, inverses }
    }

    fn at(&self, poly: &Poly<Coeff>, i: usize) -> f64 {
        let mut digits = Zeroizing::new(Vec::with_capacity(self.moduli.len()));
        let (mut value, mut weight) = (0.0, 1.0);
        for (k, m) in self.moduli.iter().enumerate() {
            let step =
                |residue, (&digit, &inverse): (&i64, &Shoup)| m.mul_shoup(m.sub(residue, m.reduce_i64(digit)), inverse);
            let digit = m.centred(digits.iter().zip(&self.inverses[k]).fold(poly.limb(k)[i], step));
            digits.push(digit);
            value += digit as f64 * weight;
            weight *= m.value() as f64;
        }
        value
    }
}

#[cfg(test)]
mod tests;
