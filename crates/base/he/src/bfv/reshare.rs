//! Linear combinations, and their conversion into additive shares mod p.
//!
//! The answer is `(c0', c1')` mod q': `c0'` is drawn from a public seed, `c1'` is sent. The
//! server's shares follow from `b - c0'`, where `b` belongs to the rerandomised ciphertext mod q',
//! and the client's from `c0' + c1' s`.

use super::cipher::Ciphertext;
use super::context::{ANSWER, ANSWER_BYTES, Context, DEGREE, FRESH, PRIMES};
use super::plain::Plain;
use super::weights::WeightPoly;
use crate::HeError;
use crate::core::{PublicKey, ReshareStreams, SecretKey, small};
use rayon::prelude::*;
use tacit_arith::pack;
use tacit_arith::prg::PublicSeed;
use tacit_arith::rns::{Accumulator, Coeff, Ntt, RnsPoly};
use tacit_arith::sample;
use zeroize::Zeroizing;

const WHAT: &str = "answer";

/// A sum of products of weights and ciphertexts.
pub struct Sum {
    b: Accumulator,
    a: Accumulator,
}

impl Sum {
    /// Zero.
    pub fn new(ctx: &Context) -> Self {
        Self { b: Accumulator::new(ctx.basis(), FRESH), a: Accumulator::new(ctx.basis(), FRESH) }
    }

    /// The sum as a ciphertext.
    #[must_use]
    pub fn finish(mut self, ctx: &Context) -> Ciphertext {
        Ciphertext { b: self.b.take(ctx.basis()), a: self.a.take(ctx.basis()) }
    }
}

/// Adds to every sum its products, prime by prime, so that common ciphertexts stay in the cache.
pub fn add_products(ctx: &Context, sums: &mut [(&mut Sum, Vec<(WeightPoly, &Ciphertext)>)]) {
    let basis = ctx.basis();
    for (sum, terms) in sums.iter_mut() {
        sum.b.reserve(basis, terms.len());
        sum.a.reserve(basis, terms.len());
    }
    for i in 0..FRESH {
        for is_a in [false, true] {
            sums.par_iter_mut().for_each(|(sum, terms)| {
                let into = if is_a { &mut sum.a } else { &mut sum.b };
                let polys = terms.iter().map(|(w, c)| (if is_a { &c.a } else { &c.b }, w));
                let pairs: Vec<(&[u64], &[u64])> = polys.map(|(c, w)| (c.residue(i), w.residue(i))).collect();
                into.add_runs(basis, i, &pairs);
            });
        }
    }
}

impl Ciphertext {
    /// Adds another ciphertext.
    pub fn add_assign(&mut self, ctx: &Context, rhs: &Self) {
        self.b.add_assign(&rhs.b, ctx.basis());
        self.a.add_assign(&rhs.a, ctx.basis());
    }
}

/// Turns the slots of `c` into shares: appends the answer ([`ANSWER_BYTES`]) to `out` and returns
/// the server's N shares mod p. `streams.public` gives all of `c0'`.
pub fn reshare(
    ctx: &Context,
    plain: &Plain,
    key: &PublicKey,
    mut c: Ciphertext,
    streams: ReshareStreams<'_>,
    out: &mut Vec<u8>,
) -> Vec<u64> {
    let ReshareStreams { secret, public } = streams;
    let basis = ctx.basis();
    // u is scaled by the dropped primes, which later divide it again, exactly.
    let dropped = (PRIMES[2] * PRIMES[3]) as i64;
    let scaled = Zeroizing::new(sample::ternary(secret, DEGREE).iter().map(|&u| u * dropped).collect::<Vec<i64>>());
    let u = Zeroizing::new(small(ctx.ring(), ANSWER, &scaled));
    let (key_b, key_a) = key.parts();
    for (part, key) in [(&mut c.b, key_b), (&mut c.a, key_a)] {
        *part = rerandomised(ctx, part, &u, key);
    }
    let (mut b, mut a) = (c.b.into_coeff(basis), c.a.into_coeff(basis));
    for _ in ANSWER..FRESH {
        b.rescale(basis);
        a.rescale(basis);
    }
    let e2 = sample::error(secret, DEGREE);
    for i in 0..ANSWER {
        let m = basis.modulus(i);
        let c1 = a.residue(i).iter().zip(e2.iter()).map(|(&a, &e)| m.add(a, m.reduce_i64(e)));
        pack::pack(c1, m.bits(), out);
    }
    let c0 = public_c0(ctx, public);
    let residue = |i: usize, j: usize| basis.modulus(i).sub(b.residue(i)[j], c0.residue(i)[j]);
    let shares = (0..DEGREE).map(|j| plain.share([residue(0, j), residue(1, j)])).collect();
    plain.decode(ctx, shares)
}

/// Adds `u key` to a part of a ciphertext mod the primes of answers: mod q, a multiple of the other
/// primes.
fn rerandomised(ctx: &Context, part: &RnsPoly<Ntt>, u: &RnsPoly<Ntt>, key: &RnsPoly<Ntt>) -> RnsPoly<Ntt> {
    let mut product = u.clone();
    product.mul_assign(key, ctx.basis());
    let mut words = Vec::with_capacity(FRESH * DEGREE);
    for k in 0..FRESH {
        words.extend_from_slice(part.residue(k));
        if k < ANSWER {
            ctx.basis().table(k).pointwise().add(&mut words[k * DEGREE..], product.residue(k));
        }
    }
    RnsPoly::new(ctx.basis(), words)
}

fn public_c0(ctx: &Context, public: PublicSeed) -> RnsPoly<Coeff> {
    let mut words = vec![0; ANSWER * DEGREE];
    let mut stream = public.stream();
    for (i, residue) in words.chunks_exact_mut(DEGREE).enumerate() {
        sample::uniform(&mut stream, ctx.basis().modulus(i), residue);
    }
    RnsPoly::new(ctx.basis(), words)
}

/// The client's side of resharing.
pub struct Opener<'a> {
    ctx: &'a Context,
    key: &'a SecretKey,
}

impl<'a> Opener<'a> {
    /// Opens answers under `key`.
    pub fn new(ctx: &'a Context, key: &'a SecretKey) -> Self {
        Self { ctx, key }
    }

    /// The client's N shares mod p; `public` as in [`reshare`].
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`] for bad bytes.
    pub fn open(&self, plain: &Plain, answer: &[u8], public: PublicSeed) -> Result<Vec<u64>, HeError> {
        let basis = self.ctx.basis();
        if answer.len() != ANSWER_BYTES {
            return Err(HeError::Length { what: WHAT, got: answer.len(), expected: ANSWER_BYTES });
        }
        let mut c1 = Vec::with_capacity(ANSWER * DEGREE);
        for (i, part) in answer.chunks_exact(ANSWER_BYTES / ANSWER).enumerate() {
            let m = basis.modulus(i);
            c1.extend(pack::unpack(part, DEGREE, m.bits(), m.value() - 1).map_err(HeError::packed(WHAT))?);
        }
        let mut product = RnsPoly::<Coeff>::new(basis, c1).into_ntt(basis);
        product.mul_assign(self.key.s(), basis);
        let phase = Zeroizing::new(product.into_coeff(basis));
        let c0 = public_c0(self.ctx, public);
        let residue = |i: usize, j: usize| basis.modulus(i).add(phase.residue(i)[j], c0.residue(i)[j]);
        let shares = (0..DEGREE).map(|j| plain.share([residue(0, j), residue(1, j)])).collect();
        Ok(plain.decode(self.ctx, shares))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tacit_arith::prg::{Prg, Seed};

    /// The centred phase mod q' of an answer to `c`.
    pub fn phase(ctx: &Context, secret: &SecretKey, key: &PublicKey, c: Ciphertext) -> Vec<i128> {
        let plain = Plain::new(ctx, super::super::plain_prime(20.0).unwrap()).unwrap();
        let mut c = c;
        // `a` is the part that `reshare` sends, `b` the part from which the server's shares come.
        let public = PublicSeed::from_bytes([1; 16]);
        let mut answer = vec![];
        let streams = ReshareStreams { secret: &mut Prg::from_seed(Seed([4; 16])), public };
        let _ = reshare(ctx, &plain, key, c.clone(), streams, &mut answer);
        let mut secret_stream = Prg::from_seed(Seed([4; 16]));
        let dropped = (PRIMES[2] * PRIMES[3]) as i64;
        let scaled: Vec<i64> = sample::ternary(&mut secret_stream, DEGREE).iter().map(|&u| u * dropped).collect();
        let u = small(ctx.ring(), ANSWER, &scaled);
        c.b = rerandomised(ctx, &c.b, &u, key.parts().0);
        let mut b = c.b.into_coeff(ctx.basis());
        b.rescale(ctx.basis());
        b.rescale(ctx.basis());
        let words = answer
            .chunks_exact(ANSWER_BYTES / ANSWER)
            .flat_map(|part| pack::unpack(part, DEGREE, 50, u64::MAX).expect("an own answer"));
        let mut a = RnsPoly::<Coeff>::new(ctx.basis(), words.collect()).into_ntt(ctx.basis());
        a.mul_assign(secret.s(), ctx.basis());
        let a = a.into_coeff(ctx.basis());
        let lift = ctx.basis().lift::<ANSWER>();
        let q = i128::from(PRIMES[0]) * i128::from(PRIMES[1]);
        let residue = |i: usize, j: usize| ctx.basis().modulus(i).add(a.residue(i)[j], b.residue(i)[j]);
        let lifted = (0..DEGREE).map(|j| lift.apply([residue(0, j), residue(1, j)]) as i128);
        lifted.map(|v| if v > q / 2 { v - q } else { v }).collect()
    }
}
