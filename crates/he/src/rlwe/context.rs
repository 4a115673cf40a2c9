//! The fixed ring of the scheme: degree and moduli are the same for every layer, so one key pair serves a whole network.

use crate::HeError;
use tacit_arith::modulus::{Modulus, Shoup};
use tacit_arith::ntt::Ntt;

/// Ring degree N.
pub const DEGREE: usize = 4096;
/// The modulus of answers: `2^50 - 2^14 + 1`, the largest prime below `2^50` that is 1 mod `2^14`.
pub const P1: u64 = 1_125_899_906_826_241;
/// The modulus dropped after the linear combination: `5 * 2^13 + 1`, the smallest prime that is 1 mod 2N.
pub const P2: u64 = 40_961;

/// Transforms and constants for `q = P1 * P2` (65.3 bits). Immutable; share it in an `Arc`.
pub struct Context {
    ntt: [Ntt; 2],
    /// P1^-1 mod P2
    p1_inverse: u64,
    /// P2^-1 mod P1
    p2_inverse: Shoup,
}

impl Context {
    /// Builds the tables (about a millisecond).
    ///
    /// # Errors
    /// None in practice; the moduli are checked again rather than trusted.
    pub fn new() -> Result<Self, HeError> {
        let (m1, m2) = (Modulus::new(P1)?, Modulus::new(P2)?);
        Ok(Self {
            ntt: [Ntt::new(DEGREE, m1)?, Ntt::new(DEGREE, m2)?],
            p1_inverse: m2.inv(m2.reduce(P1)),
            p2_inverse: m1.shoup(m1.inv(P2)),
        })
    }

    /// The transforms mod P1 and mod P2.
    #[must_use]
    pub fn ntt(&self) -> &[Ntt; 2] {
        &self.ntt
    }

    /// The integer in `[0, q)` with residues `x1` and `x2`.
    #[inline(always)]
    pub(super) fn lift(&self, x1: u64, x2: u64) -> u128 {
        let m2 = self.ntt[1].modulus();
        let digit = m2.mul(m2.sub(x2, m2.reduce(x1)), self.p1_inverse);
        u128::from(P1) * u128::from(digit) + u128::from(x1)
    }

    /// `round(x / P2) mod P1` for the x in `[0, q)` with residues `x1` and `x2`.
    #[inline(always)]
    pub(super) fn drop_p2(&self, x1: u64, x2: u64) -> u64 {
        let m1 = self.ntt[0].modulus();
        let low = m1.reduce_i64(self.ntt[1].modulus().centred(x2));
        m1.mul_shoup(m1.sub(x1, low), self.p2_inverse)
    }
}
