//! From one ciphertext of interleaved parts to a ciphertext of each part.
//!
//! With `B = 2^k` parts the plaintext is `sum_c X^c x_c(X^B)`. Step j halves: with `g = N / 2^(j-1) + 1`,
//! `sigma: X -> X^g` keeps `X^(2^j)` and negates `X^(2^(j-1))`, so that `m + sigma(m)` is twice the even part
//! of a polynomial m in `X^(2^(j-1))`, and `m - sigma(m)`, shifted, twice its odd part. The factors of two
//! are taken out beforehand: the client encrypts under `B s`, and the server multiplies b by `B^-1 mod q`.
//! So noise of fresh ciphertexts ends as it was. `sigma(ct)` decrypts under `sigma(s)`; digits of its second
//! half, base `2^14`, times a key bring it back under s.

use super::cipher::Ciphertext;
use super::context::{Context, DEGREE, DIGIT_BITS, DIGITS, FRESH};
use crate::HeError;
use crate::core::{SecretKey, put_polynomial, small, take_polynomial, uniform};
use tacit_arith::ntt::Galois;
use tacit_arith::prg::{PublicSeed, SplitPrg};
use tacit_arith::rns::{Ntt, RnsPoly};
use tacit_arith::sample;
use zeroize::Zeroizing;

const WHAT: &str = "expansion key";

/// What lets the server expand ciphertexts: a switching key for each step.
pub struct ExpansionKeys(Vec<Step>);

struct Step {
    galois: Galois,
    /// For each digit `(b, a)`.
    digits: Vec<[RnsPoly<Ntt>; 2]>,
    /// `X^-(2^(j-1))`.
    shift: RnsPoly<Ntt>,
}

/// The automorphism of step `index`, counted from 0.
fn galois(index: usize) -> Result<Galois, HeError> {
    Ok(Galois::new(DEGREE, (DEGREE >> index) as u64 + 1)?)
}

fn permuted(ctx: &Context, poly: &RnsPoly<Ntt>, galois: &Galois) -> RnsPoly<Ntt> {
    let mut words = vec![0; poly.level() * DEGREE];
    words.chunks_exact_mut(DEGREE).enumerate().for_each(|(i, to)| galois.apply(poly.residue(i), to));
    RnsPoly::new(ctx.basis(), words)
}

/// Bytes of serialized keys for so many steps: a seed for each, and for each of five digits N residues mod
/// both primes.
#[must_use]
pub const fn expansion_key_bytes(steps: u32) -> usize {
    // 50 and 16 bits.
    steps as usize * (PublicSeed::BYTES + DIGITS * DEGREE * (50 + 16) / 8)
}

/// Bytes that keys for so many steps take in memory.
#[must_use]
pub const fn expansion_key_memory(steps: u32) -> usize {
    steps as usize * (2 * DIGITS + 1) * FRESH * DEGREE * 8
}

/// Keys for `steps` steps as bytes: for each step and digit i `b_i = e - a_i s + 2^(14 i) sigma(s)`.
///
/// # Errors
/// None in practice.
pub fn expansion_keys(ctx: &Context, secret: &SecretKey, steps: u32, prg: &mut SplitPrg) -> Result<Vec<u8>, HeError> {
    let (ring, basis) = (ctx.ring(), ctx.basis());
    let mut out = Vec::with_capacity(expansion_key_bytes(steps));
    for index in 0..steps as usize {
        let turned = Zeroizing::new(permuted(ctx, secret.s(), &galois(index)?));
        let seed = prg.public_seed();
        out.extend_from_slice(&seed.to_bytes());
        for digit in 0..DIGITS {
            let mut product = Zeroizing::new(uniform(ring, FRESH, seed.fork(digit as u64)));
            product.mul_assign(secret.s(), basis);
            let mut b = small(ring, FRESH, &sample::error(prg.secret(), DEGREE));
            b.sub_assign(&product, basis);
            let scaled = Zeroizing::new(scaled(ctx, &turned, 1 << (DIGIT_BITS as usize * digit)));
            b.add_assign(&scaled, basis);
            put_polynomial(ring, &b, &mut out);
        }
    }
    Ok(out)
}

/// `factor` times a polynomial.
fn scaled(ctx: &Context, poly: &RnsPoly<Ntt>, factor: u64) -> RnsPoly<Ntt> {
    let words = (0..poly.level()).flat_map(|i| {
        let m = ctx.basis().modulus(i);
        let factor = m.shoup(m.reduce(factor));
        poly.residue(i).iter().map(move |&x| m.mul_shoup(x, factor))
    });
    RnsPoly::new(ctx.basis(), words.collect())
}

impl ExpansionKeys {
    /// Reads a peer's keys for `steps` steps, [`expansion_key_bytes`] of them.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`].
    pub fn from_bytes(ctx: &Context, steps: u32, bytes: &[u8]) -> Result<Self, HeError> {
        let expected = expansion_key_bytes(steps);
        if bytes.len() != expected {
            return Err(HeError::Length { what: WHAT, got: bytes.len(), expected });
        }
        let parts = bytes.chunks_exact(expansion_key_bytes(1)).enumerate();
        Ok(Self(parts.map(|(index, part)| Step::from_bytes(ctx, index, part)).collect::<Result<_, _>>()?))
    }

    /// Steps that they are for.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.0.len() as u32
    }

    /// The `2^steps` parts of a ciphertext that was encrypted for so many steps.
    ///
    /// # Panics
    /// If there are no keys for them.
    #[must_use]
    pub fn expand(&self, ctx: &Context, ciphertext: Ciphertext, steps: u32) -> Vec<Ciphertext> {
        let (mut parts, mut room) = (vec![ciphertext], Room::new());
        for step in &self.0[..steps as usize] {
            // Bit j - 1 of a part's number is that of step j.
            let odd: Vec<Ciphertext> = parts.iter_mut().map(|part| step.halve(ctx, part, &mut room)).collect();
            parts.extend(odd);
        }
        parts
    }
}

/// What a halving needs beside its results: made once for all of them.
struct Room {
    /// `sigma(a)`, then its digits: `[DIGITS, FRESH, N]`.
    turned: Vec<u64>,
    digits: Vec<u64>,
    /// `sigma(ct)` under s: halves b and a, `[2, FRESH, N]`.
    switched: Vec<u64>,
}

impl Room {
    fn new() -> Self {
        let words = FRESH * DEGREE;
        Self { turned: vec![0; words], digits: vec![0; DIGITS * words], switched: vec![0; 2 * words] }
    }
}

impl Step {
    fn from_bytes(ctx: &Context, index: usize, bytes: &[u8]) -> Result<Self, HeError> {
        let (&seed, packed) = bytes.split_first_chunk().expect("the length was checked");
        let seed = PublicSeed::from_bytes(seed);
        let digit = |(i, part): (usize, &[u8])| {
            let b = take_polynomial(ctx.ring(), FRESH, part, WHAT)?;
            Ok([b, uniform(ctx.ring(), FRESH, seed.fork(i as u64))])
        };
        let digits = packed.chunks_exact(packed.len() / DIGITS).enumerate().map(digit);
        // X^-t is -X^(N - t).
        let mut shift = vec![0; DEGREE];
        shift[DEGREE - (1 << index)] = -1;
        Ok(Self {
            galois: galois(index)?,
            digits: digits.collect::<Result<_, HeError>>()?,
            shift: small(ctx.ring(), FRESH, &shift),
        })
    }

    /// Leaves twice the even part in `c`, and returns twice the odd part, shifted.
    fn halve(&self, ctx: &Context, c: &mut Ciphertext, room: &mut Room) -> Ciphertext {
        let basis = ctx.basis();
        self.switch(ctx, c, room);
        let (b, a) = room.switched.split_at(FRESH * DEGREE);
        let halves = [(&mut c.b, b), (&mut c.a, a)].map(|(half, turned)| {
            let mut odd = Vec::with_capacity(FRESH * DEGREE);
            let mut even = Vec::with_capacity(FRESH * DEGREE);
            for (i, turned) in turned.chunks_exact(DEGREE).enumerate() {
                let (words, from) = (basis.table(i).pointwise(), i * DEGREE);
                odd.extend_from_slice(half.residue(i));
                words.sub(&mut odd[from..], turned);
                words.mul(&mut odd[from..], self.shift.residue(i));
                even.extend_from_slice(half.residue(i));
                words.add(&mut even[from..], turned);
            }
            *half = RnsPoly::new(basis, even);
            RnsPoly::new(basis, odd)
        });
        let [b, a] = halves;
        Ciphertext { b, a }
    }

    /// `sigma(c)` under s.
    fn switch(&self, ctx: &Context, c: &Ciphertext, room: &mut Room) {
        let (basis, words) = (ctx.basis(), FRESH * DEGREE);
        let (b, a) = room.switched.split_at_mut(words);
        a.fill(0);
        for i in 0..FRESH {
            let at = i * DEGREE..(i + 1) * DEGREE;
            self.galois.apply(c.b.residue(i), &mut b[at.clone()]);
            self.galois.apply(c.a.residue(i), &mut room.turned[at.clone()]);
            basis.table(i).inverse(&mut room.turned[at]);
        }
        let (first, second) = room.turned.split_at(DEGREE);
        ctx.digits.of(basis, [first, second], &mut room.digits);
        for i in 0..FRESH {
            let at = i * DEGREE..(i + 1) * DEGREE;
            for digit in room.digits.chunks_exact_mut(words) {
                basis.table(i).forward(&mut digit[at.clone()]);
            }
            let digits: Vec<&[u64]> = room.digits.chunks_exact(words).map(|digit| &digit[at.clone()]).collect();
            let keys: Vec<[&[u64]; 2]> = self.digits.iter().map(|key| [key[0].residue(i), key[1].residue(i)]).collect();
            basis.table(i).pointwise().dot_pair(&digits, &keys, [&mut b[at.clone()], &mut a[at]]);
        }
    }
}
