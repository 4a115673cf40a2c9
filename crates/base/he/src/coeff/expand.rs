//! Expansion of one ciphertext of interleaved parts into a ciphertext of each part.
//!
//! With `B = 2^k` parts the plaintext is `sum_c X^c x_c(X^B)`. Each of the k steps splits every
//! ciphertext into two. In step j, with `g = N / 2^(j-1) + 1`, the automorphism `sigma: X -> X^g`
//! preserves `X^(2^j)` and negates `X^(2^(j-1))`. For m in `X^(2^(j-1))`, `m + sigma(m)` is twice
//! the even part, and `m - sigma(m)`, shifted, twice the odd part.
//!
//! The factors of two are removed beforehand: the client encrypts under `B s`, and the server
//! multiplies b by `B^-1 mod q`, so noise keeps its size. `sigma(ct)` decrypts under `sigma(s)`; a
//! key switch makes it decrypt under s.

use super::cipher::Ciphertext;
use super::context::{Context, DEGREE, FRESH, FULL};
use crate::HeError;
use crate::core::{Raised, SecretKey, SwitchScratch, SwitchingKey, permute, small};
use tacit_arith::ntt::Galois;
use tacit_arith::prg::{PublicSeed, SplitPrg};
use tacit_arith::rns::{Ntt, RnsPoly};
use zeroize::Zeroizing;

const WHAT: &str = "expansion key";

/// The server's keys: a switching key for each step.
pub struct ExpansionKeys(Vec<Step>);

struct Step {
    galois: Galois,
    key: SwitchingKey,
    /// `X^-(2^(j-1))`.
    shift: RnsPoly<Ntt>,
}

/// The automorphism of step `index`, counted from 0.
fn galois(index: usize) -> Result<Galois, HeError> {
    Ok(Galois::new(DEGREE, (DEGREE >> index) as u64 + 1)?)
}

/// Transforms of one step on one ciphertext: 2 of the switched half, 4 of its two digits at the
/// other primes, and 6 to divide both halves by the special prime.
pub const HALVING_NTTS: u64 = 2 + 4 + 6;

/// Bytes of serialized keys: for each step a seed, and for each of two digits N residues mod all
/// three primes.
pub const fn expansion_key_bytes(steps: u32) -> usize {
    steps as usize * (PublicSeed::BYTES + FRESH * DEGREE * (50 + 16 + 43) / 8)
}

/// Bytes of keys for `steps` steps in memory.
pub const fn expansion_key_memory(steps: u32) -> usize {
    steps as usize * (2 * FRESH * FULL + FRESH) * DEGREE * 8
}

/// Serializes new keys for `steps` steps: for each step from `sigma(s)` to s.
///
/// # Errors
/// None in practice; there are automorphisms for [`MAX_STEPS`](super::MAX_STEPS) steps.
pub fn expansion_keys(ctx: &Context, secret: &SecretKey, steps: u32, prg: &mut SplitPrg) -> Result<Vec<u8>, HeError> {
    let mut out = Vec::with_capacity(expansion_key_bytes(steps));
    for index in 0..steps as usize {
        let turned = Zeroizing::new(permute(ctx.basis(), secret.s(), &galois(index)?));
        ctx.switching.put_key(ctx.ring(), &turned, secret.s(), prg, &mut out);
    }
    Ok(out)
}

impl ExpansionKeys {
    /// Reads a peer's keys for `steps` steps: [`expansion_key_bytes`] bytes.
    ///
    /// # Errors
    /// [`HeError::Length`], [`HeError::Range`] or [`HeError::Padding`] for bad bytes.
    pub fn from_bytes(ctx: &Context, steps: u32, bytes: &[u8]) -> Result<Self, HeError> {
        let expected = expansion_key_bytes(steps);
        if bytes.len() != expected {
            return Err(HeError::Length { what: WHAT, got: bytes.len(), expected });
        }
        let parts = bytes.chunks_exact(expansion_key_bytes(1)).enumerate();
        Ok(Self(parts.map(|(index, part)| Step::from_bytes(ctx, index, part)).collect::<Result<_, _>>()?))
    }

    /// Number of steps with a key.
    pub fn steps(&self) -> u32 {
        self.0.len() as u32
    }

    /// Expands a ciphertext that was encrypted for `steps` steps into `2^steps` parts.
    ///
    /// # Panics
    /// If there are keys for fewer than `steps` steps.
    #[must_use]
    pub fn expand(&self, ctx: &Context, ciphertext: Ciphertext, steps: u32) -> Vec<Ciphertext> {
        let (mut parts, mut buffers) = (vec![ciphertext], Buffers::new());
        for step in &self.0[..steps as usize] {
            // Step j determines bit j - 1 of a part's number.
            let odd: Vec<Ciphertext> = parts.iter_mut().map(|part| step.halve(ctx, part, &mut buffers)).collect();
            parts.extend(odd);
        }
        parts
    }
}

struct Buffers {
    /// `sigma(a)`, `[FRESH, N]`; `raised` holds its digits.
    turned: Vec<u64>,
    raised: Raised,
    /// `sigma(ct)` under s: halves b and a, `[2, FRESH, N]`.
    switched: Vec<u64>,
    scratch: SwitchScratch,
}

impl Buffers {
    fn new() -> Self {
        let words = FRESH * DEGREE;
        Self {
            turned: vec![0; words],
            raised: Raised::default(),
            switched: vec![0; 2 * words],
            scratch: SwitchScratch::default(),
        }
    }
}

impl Step {
    fn from_bytes(ctx: &Context, index: usize, bytes: &[u8]) -> Result<Self, HeError> {
        // X^-t is -X^(N - t).
        let mut shift = vec![0; DEGREE];
        shift[DEGREE - (1 << index)] = -1;
        Ok(Self {
            galois: galois(index)?,
            key: ctx.switching.read_key(ctx.ring(), bytes, expansion_key_bytes(1), WHAT)?,
            shift: small(ctx.ring(), FRESH, &shift),
        })
    }

    /// Leaves twice the even part in `c`, and returns twice the odd part, shifted.
    fn halve(&self, ctx: &Context, c: &mut Ciphertext, buffers: &mut Buffers) -> Ciphertext {
        let basis = ctx.basis();
        self.switch(ctx, c, buffers);
        let (b, a) = buffers.switched.split_at(FRESH * DEGREE);
        let halves = [(&mut c.b, b), (&mut c.a, a)].map(|(half, turned)| {
            let mut odd = Vec::with_capacity(FRESH * DEGREE);
            let mut even = Vec::with_capacity(FRESH * DEGREE);
            for (i, turned) in turned.chunks_exact(DEGREE).enumerate() {
                let (words, offset) = (basis.table(i).pointwise(), i * DEGREE);
                odd.extend_from_slice(half.residue(i));
                words.sub(&mut odd[offset..], turned);
                words.mul(&mut odd[offset..], self.shift.residue(i));
                even.extend_from_slice(half.residue(i));
                words.add(&mut even[offset..], turned);
            }
            *half = RnsPoly::new(basis, even);
            RnsPoly::new(basis, odd)
        });
        let [b, a] = halves;
        Ciphertext { b, a }
    }

    /// Writes `sigma(c)`, switched to s, to `buffers.switched`.
    fn switch(&self, ctx: &Context, c: &Ciphertext, buffers: &mut Buffers) {
        let Buffers { turned, raised, switched, scratch } = buffers;
        let (b, a) = switched.split_at_mut(FRESH * DEGREE);
        a.fill(0);
        for i in 0..FRESH {
            let range = i * DEGREE..(i + 1) * DEGREE;
            self.galois.apply(c.b.residue(i), &mut b[range.clone()]);
            self.galois.apply(c.a.residue(i), &mut turned[range]);
        }
        ctx.switching.raise(ctx.basis(), turned, raised);
        ctx.switching.switch_and_add(ctx.basis(), raised, &self.key, [b, a], scratch);
    }
}
