//! Fresh ciphertexts, sent by the client to the server.

use super::context::{Context, DEGREE, FRESH, P1, P2, Q};
use super::params::Params;
use crate::HeError;
use crate::core::{SecretKey, take_seed, uniform};
use tacit_arith::pack;
use tacit_arith::prg::{PublicSeed, SplitPrg};
use tacit_arith::rns::{Coeff, Ntt, RnsPoly};
use tacit_arith::sample;
use zeroize::Zeroizing;

const WHAT: &str = "ciphertext";

/// The client's symmetric encryption.
pub struct Encryptor<'a> {
    ctx: &'a Context,
    key: &'a SecretKey,
    params: Params,
}

/// A received ciphertext `(b, a)` in the NTT domain, mod P1 and mod P2.
pub struct Ciphertext {
    pub(super) b: RnsPoly<Ntt>,
    pub(super) a: RnsPoly<Ntt>,
}

/// A ciphertext without a message: `t = e - B a s mod q` from secret, seed and error.
pub struct Blank<'a> {
    ctx: &'a Context,
    params: Params,
    seed: PublicSeed,
    /// `t` mod P1 and mod P2.
    residues: [Zeroizing<Vec<u64>>; FRESH],
    /// `t / q` in units of 2^-64, too low by up to six units.
    fractions: Zeroizing<Vec<u64>>,
}

/// `2^(63 + b) / p` for each prime p of b bits; a word of 64 bits.
const RECIPROCALS: [u64; FRESH] = [((1u128 << 113) / P1 as u128) as u64, ((1u128 << 79) / P2 as u128) as u64];

/// `2^64 y / p` for `y < p` and the first or second prime p, at most two too low.
#[inline(always)]
fn fraction(y: u64, prime: usize) -> u64 {
    ((u128::from(y) * u128::from(RECIPROCALS[prime])) >> [49, 15][prime]) as u64
}

impl<'a> Encryptor<'a> {
    /// Encryption under `key` with the roundings of `params`.
    pub fn new(ctx: &'a Context, key: &'a SecretKey, params: Params) -> Self {
        Self { ctx, key, params }
    }

    /// Draws the seed and error of a ciphertext, the same for generators in one state.
    #[must_use]
    pub fn blank(&self, prg: &mut SplitPrg) -> Blank<'a> {
        let params = self.params;
        let seed = prg.public_seed();
        let error = Zeroizing::new(sample::error(prg.secret(), DEGREE));
        let basis = self.ctx.basis();
        let mut product = uniform(self.ctx.ring(), FRESH, seed);
        product.mul_assign(self.key.s(), basis);
        let product = Zeroizing::new(product.into_coeff(basis));
        // A ciphertext of B = `2^steps` parts is encrypted under `B s` (see `expand`).
        let residue = |i: usize| {
            let (m, words) = (basis.modulus(i), basis.table(i).pointwise());
            let mut scaled = Zeroizing::new(product.residue(i).to_vec());
            words.scale(&mut scaled, m.shoup(m.neg(1 << params.steps())));
            let mut noise = Zeroizing::new(vec![0; DEGREE]);
            words.reduce_signed(&error, &mut noise);
            words.add(&mut scaled, &noise);
            scaled
        };
        let residues = [residue(0), residue(1)];
        // With `y_i = t (q / p_i)^-1 mod p_i`, `t / q` is `y_1 / p_1 + y_2 / p_2` up to an integer.
        let scaled = |i: usize| {
            let (m, other_prime) = (basis.modulus(i), [P2, P1][i]);
            let mut y = Zeroizing::new(residues[i].to_vec());
            basis.table(i).pointwise().scale(&mut y, m.shoup(m.inv(m.reduce(other_prime))));
            y
        };
        let sums = scaled(0)
            .iter()
            .zip(scaled(1).iter())
            .map(|(&y1, &y2)| fraction(y1, 0).wrapping_add(fraction(y2, 1)))
            .collect();
        Blank { ctx: self.ctx, params, seed, residues, fractions: Zeroizing::new(sums) }
    }

    /// Encrypts N values mod `2^l` (higher bits are ignored) to the seed and the packed `b`:
    /// [`Params::up_bytes`]`(0)` bytes.
    ///
    /// # Panics
    /// If there are not N values.
    #[must_use]
    pub fn encrypt(&self, message: &[u64], prg: &mut SplitPrg) -> Vec<u8> {
        self.blank(prg).encrypt(message, &[false; DEGREE])
    }
}

impl Blank<'_> {
    /// The value mod `2^l` whose encryption at coefficient `position` has a `b` below about `q /
    /// 2^l`: `-t 2^l / q`, as pseudorandom as the high bits of an RLWE sample.
    ///
    /// # Panics
    /// If `position` is not below N.
    pub fn mask(&self, position: usize) -> u64 {
        let l = self.params.ring_bits();
        (self.fractions[position] >> (u64::BITS - l)).wrapping_neg() & ((1 << l) - 1)
    }

    /// As [`Encryptor::encrypt`], with [`Blank::mask`] in place of the values where `chosen` is
    /// set. Returns [`Params::up_bytes`] bytes, for the number of chosen coefficients.
    ///
    /// # Panics
    /// If `message` or `chosen` does not have N elements.
    #[must_use]
    pub fn encrypt(&self, message: &[u64], chosen: &[bool]) -> Vec<u8> {
        assert!(message.len() == DEGREE && chosen.len() == DEGREE, "one value per coefficient");
        let params = &self.params;
        let (mask, half) = ((1 << params.ring_bits()) - 1, 1u128 << (params.ring_bits() - 1));
        let packed = |position: usize, value: u64| {
            // q * m / 2^l, rounded: at most q, so the sum with t is below 2q.
            let scaled = (Q * u128::from(value & mask) + half) >> params.ring_bits();
            let t = self.ctx.lift.apply([self.residues[0][position], self.residues[1][position]]);
            let b = reduce_once(reduce_once(t + scaled, Q), Q);
            ((b + (1 << (params.up_drop() - 1))) >> params.up_drop()) as u64
        };
        // The choice of coefficients is public.
        let places = |is_masked: bool| (0..DEGREE).filter(move |&position| chosen[position] == is_masked);
        let unmasked: Vec<u64> = places(false).map(|position| packed(position, message[position])).collect();
        let masked: Vec<u64> = places(true).map(|position| packed(position, self.mask(position))).collect();
        let mut out = Vec::with_capacity(params.up_bytes(masked.len()));
        out.extend_from_slice(&self.seed.to_bytes());
        pack::pack(unmasked.into_iter(), params.up_bits(), &mut out);
        pack::pack(masked.into_iter(), params.chosen_bits(), &mut out);
        out
    }
}

/// `x mod q` for `x < 2q < 2^127`, without a branch.
#[inline(always)]
fn reduce_once(x: u128, q: u128) -> u128 {
    x.min(x.wrapping_sub(q))
}

impl Ciphertext {
    /// Reads a peer's ciphertext that has masks at the coefficients in `chosen`.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`] for bad bytes.
    ///
    /// # Panics
    /// If `chosen` does not have N elements.
    pub fn from_bytes(ctx: &Context, params: &Params, bytes: &[u8], chosen: &[bool]) -> Result<Self, HeError> {
        assert_eq!(chosen.len(), DEGREE, "one place per coefficient");
        let masked_count = chosen.iter().filter(|&&c| c).count();
        let (seed, packed) = take_seed(bytes, params.up_bytes(masked_count), WHAT)?;
        let unmasked_len =
            pack::packed_len(DEGREE - masked_count, params.up_bits()).expect("a coefficient fits one word");
        let (unmasked, short) = packed.split_at(unmasked_len);
        let unmasked = pack::unpack(unmasked, DEGREE - masked_count, params.up_bits(), params.up_max());
        let short = pack::unpack(short, masked_count, params.chosen_bits(), params.chosen_max());
        let [unmasked, short] = [unmasked, short].map(|values| values.map_err(HeError::packed(WHAT)));
        let (mut unmasked, mut short) = (unmasked?.into_iter(), short?.into_iter());
        let values = chosen.iter().map(|&chosen| if chosen { short.next() } else { unmasked.next() });
        let values: Vec<u64> = values.map(|v| v.expect("as many as were counted")).collect();
        let a = uniform(ctx.ring(), FRESH, seed);
        let mut words = Vec::with_capacity(FRESH * DEGREE);
        for i in 0..FRESH {
            let m = ctx.basis().modulus(i);
            let step = m.mul(m.reduce(1 << params.up_drop()), m.inv(m.reduce(1 << params.steps())));
            words.extend(values.iter().map(|&v| m.mul(m.reduce(v), step)));
        }
        let b = RnsPoly::<Coeff>::new(ctx.basis(), words).into_ntt(ctx.basis());
        Ok(Self { b, a })
    }
}
