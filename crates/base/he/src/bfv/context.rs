//! The fixed ring of the scheme and the places of its slots: one set of keys serves a whole
//! network.

use crate::HeError;
use crate::core::{PublicKey, Ring, SecretKey, Switching};
use tacit_arith::modulus::Modulus;
use tacit_arith::ntt::NttTable;
use tacit_arith::prg::{Prg, PublicSeed, SplitPrg};
use tacit_arith::rns::RnsBasis;

/// Ring degree N.
pub const DEGREE: usize = 8192;
/// Slots in a row.
pub const ROW: usize = DEGREE / 2;
/// The moduli: two primes of 50 bits that answers keep, two of 30 bits by which answers are
/// divided, and the special prime of 50 bits. All are 1 mod `2^14`. Together they have 210 bits;
/// 218 are secure at this degree.
pub const PRIMES: [u64; 5] =
    [1_125_899_906_826_241, 1_125_899_906_629_633, 1_073_692_673, 1_073_643_521, 1_125_899_905_744_897];

/// Level of answers and of the public key.
pub(super) const ANSWER: usize = 2;
/// Level of all other ciphertexts.
pub(super) const FRESH: usize = 4;
/// Level of switching keys, which includes the special prime.
pub(super) const FULL: usize = 5;

/// Bytes of a fresh ciphertext: a 16-byte seed and N residues mod each of the first four primes.
pub const FRESH_BYTES: usize = PublicSeed::BYTES + DEGREE * (50 + 50 + 30 + 30) / 8;
/// Bytes of an answer: N residues mod the first two primes.
pub const ANSWER_BYTES: usize = DEGREE * (50 + 50) / 8;
/// Bytes of a serialized public key.
pub const PUBLIC_KEY_BYTES: usize = PublicSeed::BYTES + ANSWER_BYTES;

/// Smallest degree of a transform.
pub(super) const SMALLEST: usize = 64;

/// Transforms and constants. Immutable.
pub struct Context {
    ring: Ring,
    /// Entry `row * ROW + i`: the place of that slot among the values of a transform.
    pub(super) places: Vec<u32>,
    pub(super) switching: Switching,
    /// Transforms of weights mod each prime of a fresh ciphertext, at degrees 64 and 128.
    pub(super) small: [Small; 2],
}

pub(super) struct Small {
    pub degree: usize,
    /// For each place, the odd exponent of its root, mod 2D.
    pub exponents: Vec<usize>,
    pub tables: Vec<NttTable>,
    /// For each run of N / D places of the large transform, the place of its value here.
    pub runs: Vec<u32>,
}

impl Context {
    /// Builds the tables (some milliseconds).
    ///
    /// # Errors
    /// None in practice; the moduli are constant.
    pub fn new() -> Result<Self, HeError> {
        let ring = Ring::new(DEGREE, &PRIMES)?;
        let moduli: Vec<Modulus> = (0..FULL).map(|k| *ring.basis().modulus(k)).collect();
        let exponents = exponents(ring.basis().table(0))?;
        let small = [Small::new(&moduli, SMALLEST, &exponents)?, Small::new(&moduli, 2 * SMALLEST, &exponents)?];
        Ok(Self { places: places(&exponents), switching: Switching::new(&ring)?, ring, small })
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(super) fn basis(&self) -> &RnsBasis {
        self.ring.basis()
    }

    /// The transforms for weights that repeat after `classes` slots.
    pub(super) fn small(&self, classes: usize) -> &Small {
        &self.small[usize::from(2 * classes > SMALLEST)]
    }

    /// Draws a secret key.
    #[must_use]
    pub fn secret_key(&self, prg: &mut Prg) -> SecretKey {
        SecretKey::generate(&self.ring, prg)
    }

    /// Draws a public key for `secret`.
    #[must_use]
    pub fn public_key(&self, secret: &SecretKey, prg: &mut SplitPrg) -> PublicKey {
        secret.public_key(&self.ring, ANSWER, prg)
    }

    /// Reads a peer's public key: [`PUBLIC_KEY_BYTES`].
    ///
    /// # Errors
    /// [`HeError::Length`] or [`HeError::Range`] for bad bytes.
    pub fn read_public_key(&self, bytes: &[u8]) -> Result<PublicKey, HeError> {
        PublicKey::from_bytes(&self.ring, ANSWER, bytes)
    }
}

impl Small {
    fn new(moduli: &[Modulus], degree: usize, large: &[usize]) -> Result<Self, HeError> {
        let tables: Vec<NttTable> =
            moduli[..FRESH].iter().map(|m| NttTable::new(degree, *m)).collect::<Result<_, _>>()?;
        let exponents = exponents(&tables[0])?;
        let mut place = vec![0; 2 * degree];
        exponents.iter().enumerate().for_each(|(slot, &e)| place[e] = slot as u32);
        let runs = large.chunks(DEGREE / degree).map(|run| place[run[0] % (2 * degree)]).collect();
        Ok(Self { degree, exponents, tables, runs })
    }
}

/// For each place of a transform, the odd exponent e of its value: the value at `root^e`, for every
/// prime.
fn exponents(table: &NttTable) -> Result<Vec<usize>, HeError> {
    let (m, order) = (table.modulus(), 2 * table.degree());
    let root = m.primitive_root(order as u64)?;
    let mut power = 1;
    let mut known = std::collections::HashMap::with_capacity(order);
    for e in 0..order {
        known.insert(power, e);
        power = m.mul(power, root);
    }
    let mut x = vec![0; table.degree()];
    x[1] = 1;
    table.forward(&mut x);
    Ok(x.iter().map(|value| known[value]).collect())
}

/// Places of all slots. Slot i of row 0 is the value at `root^(5^i)`, slot i of row 1 the value at
/// the inverse of that root.
fn places(exponents: &[usize]) -> Vec<u32> {
    let order = 2 * DEGREE;
    let mut place = vec![0; order];
    exponents.iter().enumerate().for_each(|(slot, &e)| place[e] = slot as u32);
    let powers: Vec<usize> = std::iter::successors(Some(1), |e| Some(e * 5 % order)).take(ROW).collect();
    let inverses = powers.iter().map(|&e| 2 * DEGREE - e);
    powers.iter().copied().chain(inverses).map(|e| place[e]).collect()
}
