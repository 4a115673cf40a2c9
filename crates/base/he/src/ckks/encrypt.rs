//! Encryption and decryption, at the client.

use super::cipher::{Ciphertext, Plaintext};
use super::context::Context;
use super::keys::{PublicKey, SecretKey};
use super::noise::{ERROR_VARIANCE, Estimate, public_deviation};
use super::poly::Poly;
use super::shape::Shape;
use tacit_arith::prg::{PublicSeed, SplitPrg};
use tacit_arith::sample;
use zeroize::Zeroizing;

/// A fresh ciphertext as it is sent: a seed stands for its second half.
pub struct SeededCiphertext {
    pub(super) seed: PublicSeed,
    pub(super) c0: Poly<super::poly::Ntt>,
    pub(super) scale: super::scale::Scale,
    pub(super) slots: usize,
}

/// Estimate of a fresh symmetric encryption.
fn fresh_estimate(plaintext: &Plaintext) -> Estimate {
    plaintext.estimate.with_error(ERROR_VARIANCE.sqrt())
}

impl SecretKey {
    /// Encrypts with a fresh seed.
    #[must_use]
    pub fn encrypt_seeded(&self, plaintext: &Plaintext, prg: &mut SplitPrg) -> SeededCiphertext {
        let context = self.context();
        let shape = plaintext.poly.shape();
        let seed = prg.public_seed();
        let a = super::keys::uniform(context, shape, seed);
        let mut c0 = super::keys::zero_under(context, self.s(), &a, shape, prg.secret());
        c0.add_assign(&plaintext.poly, context);
        SeededCiphertext { seed, c0, scale: plaintext.scale, slots: plaintext.slots }
    }

    /// Encrypts and expands both halves.
    #[must_use]
    pub fn encrypt(&self, plaintext: &Plaintext, prg: &mut SplitPrg) -> Ciphertext {
        let seeded = self.encrypt_seeded(plaintext, prg);
        Ciphertext {
            estimate: fresh_estimate(plaintext),
            ..seeded.expand(self.context(), plaintext.estimate.magnitude)
        }
    }

    /// Decrypts to the message with its error. The result must stay with the client: the error
    /// reveals more than the message.
    pub fn decrypt(&self, ciphertext: &Ciphertext) -> Plaintext {
        let context = self.context();
        let mut poly = ciphertext.c1.clone();
        poly.mul_assign(self.s(), context);
        poly.add_assign(&ciphertext.c0, context);
        Plaintext { poly, scale: ciphertext.scale, slots: ciphertext.slots, estimate: ciphertext.estimate }
    }
}

impl SeededCiphertext {
    /// Draws the second half from the seed. `magnitude` is the assumed root mean square of slots.
    #[must_use]
    pub fn expand(&self, context: &Context, magnitude: f64) -> Ciphertext {
        let c1 = super::keys::uniform(context, self.c0.shape(), self.seed);
        let rounding = 2.0 * self.slots as f64 / context.degree() as f64 / 12.0;
        let estimate = Estimate { deviation: (ERROR_VARIANCE + rounding).sqrt(), magnitude };
        Ciphertext { c0: self.c0.clone(), c1, scale: self.scale, slots: self.slots, estimate }
    }

    /// Level of the ciphertext.
    pub fn level(&self) -> usize {
        self.c0.shape().level
    }
}

impl PublicKey {
    /// Encrypts without the secret key: `(b u + e0 + m, a u + e1)` with a ternary u.
    #[must_use]
    pub fn encrypt(&self, context: &Context, plaintext: &Plaintext, prg: &mut SplitPrg) -> Ciphertext {
        let shape = Shape::level(plaintext.level());
        let draw = |coefficients: &[i64]| Poly::from_signed(context, shape, coefficients).into_ntt(context);
        let u = Zeroizing::new(draw(&sample::ternary(prg.secret(), context.degree())));
        let [mut c0, mut c1] = [&self.b, &self.a].map(|half| {
            let mut half = half.restricted(shape);
            half.mul_assign(&u, context);
            half
        });
        let mut error = || Zeroizing::new(draw(&sample::error(prg.secret(), context.degree())));
        c0.add_assign(&error(), context);
        c0.add_assign(&plaintext.poly, context);
        c1.add_assign(&error(), context);
        let estimate = plaintext.estimate.with_error(public_deviation(context.degree()));
        Ciphertext { c0, c1, scale: plaintext.scale, slots: plaintext.slots, estimate }
    }
}
