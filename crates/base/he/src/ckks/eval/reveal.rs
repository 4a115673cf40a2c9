//! What a ciphertext reveals to the holder of the secret beside its message.

use super::super::cipher::{Ciphertext, Plaintext};
use super::super::context::Context;
use super::super::keys::{KeyKind, SecretKey};
use super::super::noise::Estimate;
use super::super::poly::{Ntt, Poly};
use super::super::shape::Shape;
use super::Evaluator;
use crate::HeError;
use crate::core::ToRing;
use tacit_arith::prg::{Prg, SplitPrg};
use tacit_arith::sample;
use zeroize::Zeroizing;

const WHAT: &str = "shares of coefficients";

impl Evaluator<'_> {
    /// Encrypts the message anew: adds an encryption of zero by the key [`KeyKind::Zero`]. The
    /// second half, and how the first follows from it, then reveal nothing of how the ciphertext
    /// was made; its error still does.
    ///
    /// # Errors
    /// [`HeError::MissingKey`], [`HeError::KeyTooLow`]; errors of reading the key from a file.
    pub fn encrypt_anew(&self, a: &Ciphertext, prg: &mut SplitPrg) -> Result<Ciphertext, HeError> {
        let key = self.key(KeyKind::Zero, a.level())?.public(self.context, a.level())?;
        let estimate = Estimate { deviation: 0.0, magnitude: 0.0 };
        let poly = Poly::zero(self.context, a.c0.shape());
        let zero = Plaintext { poly, scale: a.scale, slots: a.slots, estimate };
        self.add(a, &key.encrypt(self.context, &zero, prg))
    }

    /// Hides the message and the error of `a`, at level 1: adds a mask to every coefficient,
    /// uniform mod the lowest prime q. Returns the hidden ciphertext and the server's shares of the
    /// N coefficients, in the ring of `ring_bits` bits. With those of [`SecretKey::share`], they
    /// add up to `2^l m / q`, l = `ring_bits`, off by one at most, for coefficients m of the
    /// message with its error.
    ///
    /// # Errors
    /// [`HeError::Level`] if `a` is not at level 1.
    ///
    /// # Panics
    /// If the ring is larger than q.
    pub fn share(
        &self,
        a: &Ciphertext,
        ring_bits: u32,
        prg: &mut Prg,
    ) -> Result<(Ciphertext, Zeroizing<Vec<u64>>), HeError> {
        lowest(a)?;
        let shape = Shape::level(1);
        let mut mask = Zeroizing::new(Poly::<Ntt>::zero(self.context, shape));
        mask.slices_mut().for_each(|limb| sample::uniform(prg, self.context.modulus(shape, 0), limb));
        let mut hidden = a.clone();
        hidden.c0.add_assign(&mask, self.context);
        mask.negate(self.context);
        Ok((hidden, convert_to_ring(self.context, Poly::clone(&mask), ring_bits)))
    }
}

impl SecretKey {
    /// The client's shares, in the ring of `ring_bits` bits, of the N coefficients that
    /// [`Evaluator::share`] hid.
    ///
    /// # Errors
    /// [`HeError::Level`] if `a` is not at level 1.
    ///
    /// # Panics
    /// If the ring is larger than the lowest prime.
    pub fn share(&self, a: &Ciphertext, ring_bits: u32) -> Result<Zeroizing<Vec<u64>>, HeError> {
        lowest(a)?;
        Ok(convert_to_ring(self.context(), self.decrypt(a).poly.clone(), ring_bits))
    }
}

/// A share mod the first prime, converted to the ring.
fn convert_to_ring(context: &Context, share: Poly<Ntt>, ring_bits: u32) -> Zeroizing<Vec<u64>> {
    let ring = ToRing::new(context.parameters().primes()[0], ring_bits);
    let coefficients = Zeroizing::new(share.into_coeff(context));
    Zeroizing::new(coefficients.limb(0).iter().map(|&x| ring.apply(x)).collect())
}

fn lowest(a: &Ciphertext) -> Result<(), HeError> {
    if a.level() == 1 { Ok(()) } else { Err(HeError::Level { what: WHAT, need: 1, have: a.level() }) }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{Bench, prg, spec, worst};
    use super::super::super::{KeyId, KeySet};
    use super::*;

    #[test]
    fn ciphertexts_encrypted_anew_share_only_the_message() {
        let (mut bench, context) = Bench::with_context(&spec(9), 1);
        let x = bench.values(64);
        let a = bench.encrypt(&x, 2);
        let needs = [KeyId::for_level(&context, KeyKind::Zero, 3), KeyId::for_level(&context, KeyKind::Zero, 1)];
        let keys = bench.keys(&needs);
        let e = Evaluator::new(&context, &keys);
        let [first, second] = [(); 2].map(|()| e.encrypt_anew(&a, &mut bench.prg).unwrap());
        for ciphertext in [&first, &second] {
            let ratio = bench.ratio(ciphertext, &x);
            assert!((0.5..1.5).contains(&ratio), "{ratio} of the error that is stated");
            assert!(worst(&bench.decrypt(ciphertext), &x) < 1e-6);
        }
        let equal = |a: &Poly<Ntt>, b: &Poly<Ntt>| a.limb(0).iter().zip(b.limb(0)).filter(|(x, y)| x == y).count();
        for (x, y) in [(&first, &a), (&first, &second)] {
            assert!(equal(&x.c0, &y.c0) < 4 && equal(&x.c1, &y.c1) < 4);
        }
        let none = KeySet::default();
        let missing = Evaluator::new(&context, &none).encrypt_anew(&a, &mut bench.prg).err();
        assert!(matches!(missing, Some(HeError::MissingKey { .. })));
    }

    /// Shares also look uniform for every message.
    #[test]
    fn shares_add_up_to_the_coefficients() {
        let (mut bench, bits) = (Bench::new(&spec(9), 2), 26);
        let context = bench.context.clone();
        let keys = KeySet::default();
        let e = Evaluator::new(&context, &keys);
        let x = bench.values(64);
        let a = bench.encrypt(&x, 1);
        let plain = bench.secret.decrypt(&a).poly.clone().into_coeff(&context);
        let q = context.parameters().primes()[0];
        let mut sums = [0.0; 2];
        for round in 0..20 {
            let (hidden, own_share) = e.share(&a, bits, prg(round + 1).secret()).unwrap();
            let peer_share = bench.secret.share(&hidden, bits).unwrap();
            for ((s, c), &m) in own_share.iter().zip(peer_share.iter()).zip(plain.limb(0)) {
                let exact = (u128::from(m) << bits) as f64 / q as f64;
                let away = ((s + c) as f64 - exact).rem_euclid(f64::from(1u32 << bits));
                assert!(away < 1.01 || away > f64::from(1u32 << bits) - 1.01, "{away}");
            }
            for (sum, share) in sums.iter_mut().zip([&own_share, &peer_share]) {
                *sum += share.iter().map(|&v| v as f64).sum::<f64>() / f64::from(1u32 << bits);
            }
        }
        // Means of 20 * 512 uniform numbers: their deviation is 1/350 of the range.
        assert!(sums.iter().all(|sum| (sum / 10_240.0 - 0.5).abs() < 0.015), "{sums:?}");
        let high = bench.encrypt(&x, 2);
        assert!(matches!(
            e.share(&high, bits, bench.prg.secret()).err(),
            Some(HeError::Level { need: 1, have: 2, .. })
        ));
        assert!(matches!(bench.secret.share(&high, bits).err(), Some(HeError::Level { .. })));
    }
}
