//! Run-time tables of parameters: transforms, conversions and permutations.

use super::counters::Counters;
use super::limb::Spares;
use super::params::Parameters;
use super::shape::Shape;
use crate::HeError;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use tacit_arith::modulus::{Modulus, Shoup};
use tacit_arith::ntt::{Galois, NttTable};
use tacit_arith::pack;
use tacit_arith::pointwise::Pointwise;
use tacit_arith::rns::{Conversion, RnsBasis};

/// Tables for one set of parameters; only caches and counters change.
pub struct Context {
    parameters: Parameters,
    basis: RnsBasis,
    permutations: RwLock<HashMap<u32, Arc<Galois>>>,
    raises: RwLock<HashMap<(Shape, usize, usize), Arc<Conversion>>>,
    divisions: RwLock<HashMap<(Shape, usize), Arc<Division>>>,
    /// By the index of the prime and the gap.
    subrings: RwLock<HashMap<(usize, usize), Arc<Subring>>>,
    counters: Counters,
    spares: Arc<Spares>,
}

/// Transform of polynomials in `X^gap`, mod one prime.
pub(super) struct Subring {
    /// Table of the ring of `N / gap` coefficients, or of the smallest one with a transform.
    pub(super) table: NttTable,
    /// The full transform repeats the small one's values. For each row of eight places, until the rows
    /// repeat: where its eight values are in the small transform.
    pub(super) rows: Vec<u32>,
}

impl Subring {
    /// The smallest degree of a transform, and a block in its order.
    const BLOCK: usize = 64;

    fn new(degree: usize, modulus: &Modulus, gap: usize) -> Self {
        let gap = gap.min(degree / Self::BLOCK);
        let table = NttTable::new(degree / gap, *modulus).expect("a prime of the ring is one of each subring");
        let every = Self::BLOCK * (gap / Self::BLOCK).max(1);
        let (firsts, inside) = ((0..degree).step_by(every), (0..8).step_by(gap));
        let rows = firsts.flat_map(|first| inside.clone().flat_map(move |a| (0..8).map(move |b| first + a + 8 * b)));
        Self { table, rows: rows.map(|i| place(i / gap) as u32).collect() }
    }
}

/// Place 8 a + b of a block has the value of number 8 b + a.
fn place(i: usize) -> usize {
    i / 64 * 64 + 8 * (i % 8) + i % 64 / 8
}

/// Division by the last primes of a shape.
pub(super) struct Division {
    pub(super) conversion: Conversion,
    /// Minus the inverse of the product of the removed primes, mod each remaining prime.
    pub(super) factors: Vec<Shoup>,
}

fn get_or_insert<K: std::hash::Hash + Eq, V>(
    cache: &RwLock<HashMap<K, Arc<V>>>,
    key: K,
    make: impl FnOnce() -> V,
) -> Arc<V> {
    const NOT_POISONED: &str = "nothing panics while it holds the cache";
    if let Some(entry) = cache.read().expect(NOT_POISONED).get(&key) {
        return entry.clone();
    }
    let value = Arc::new(make());
    cache.write().expect(NOT_POISONED).entry(key).or_insert(value).clone()
}

fn conversion(source_moduli: &[Modulus], target_moduli: &[Modulus]) -> Conversion {
    Conversion::new(source_moduli, target_moduli)
        .expect("shapes have distinct primes, and fewer than 64 of them are raised or divided by")
}

impl Context {
    /// Builds the transforms.
    ///
    /// # Errors
    /// None in practice: the parameters are checked.
    pub fn new(parameters: &Parameters) -> Result<Self, HeError> {
        let primes = [parameters.primes(), parameters.special_primes()].concat();
        let basis = RnsBasis::new(parameters.degree(), &primes)?;
        Ok(Self {
            parameters: parameters.clone(),
            basis,
            permutations: RwLock::default(),
            raises: RwLock::default(),
            divisions: RwLock::default(),
            subrings: RwLock::default(),
            counters: Counters::default(),
            spares: Spares::new(parameters.degree()),
        })
    }

    /// The parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Ring degree N.
    pub fn degree(&self) -> usize {
        self.basis.degree()
    }

    /// Counts of the operations so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Frees the memory that is stored for reuse.
    pub fn give_up_spares(&self) {
        self.spares.clear();
    }

    pub(super) fn spares(&self) -> &Arc<Spares> {
        &self.spares
    }

    /// Index in the whole chain of limb `k` of a shape.
    pub(super) fn index(&self, shape: Shape, k: usize) -> usize {
        if k < shape.level { k } else { self.parameters.levels() + k - shape.level }
    }

    pub(super) fn table(&self, shape: Shape, k: usize) -> &NttTable {
        self.basis.table(self.index(shape, k))
    }

    /// The transform of polynomials in `X^gap` mod a limb.
    pub(super) fn subring(&self, shape: Shape, k: usize, gap: usize) -> Arc<Subring> {
        get_or_insert(&self.subrings, (self.index(shape, k), gap), || {
            Subring::new(self.degree(), self.modulus(shape, k), gap)
        })
    }

    pub(super) fn modulus(&self, shape: Shape, k: usize) -> &Modulus {
        self.basis.modulus(self.index(shape, k))
    }

    pub(super) fn pointwise(&self, shape: Shape, k: usize) -> &Pointwise {
        self.table(shape, k).pointwise()
    }

    /// The permutation of `X -> X^element`.
    pub(super) fn galois(&self, element: u32) -> Arc<Galois> {
        get_or_insert(&self.permutations, element, || {
            Galois::new(self.degree(), element.into()).expect("callers make odd elements below 2N")
        })
    }

    fn moduli(&self, shape: Shape) -> Vec<Modulus> {
        (0..shape.limbs()).map(|k| *self.modulus(shape, k)).collect()
    }

    /// Bytes of packed limb `k` of a shape.
    pub(super) fn limb_bytes(&self, shape: Shape, k: usize) -> usize {
        pack::packed_len(self.degree(), self.modulus(shape, k).bits()).expect("a residue fits one word")
    }

    /// Bytes of a packed polynomial.
    pub(super) fn packed_bytes(&self, shape: Shape) -> usize {
        (0..shape.limbs()).map(|k| self.limb_bytes(shape, k)).sum()
    }

    /// Unpacks limb `k` of a shape.
    pub(super) fn unpack_limb(
        &self,
        shape: Shape,
        k: usize,
        bytes: &[u8],
        what: &'static str,
        out: &mut [u64],
    ) -> Result<(), HeError> {
        let m = self.modulus(shape, k);
        pack::unpack_into(bytes, m.bits(), m.value() - 1, out).map_err(HeError::packed(what))
    }

    /// Product of the special primes `special` mod limb `k`.
    pub(super) fn special_product(&self, shape: Shape, special: std::ops::Range<usize>, k: usize) -> u64 {
        let m = self.modulus(shape, k);
        self.parameters.special_primes()[special].iter().fold(1, |product, &p| m.mul(product, m.reduce(p)))
    }

    /// Mod up: takes coefficients mod limbs `first .. first + digit.len()` to those of the same
    /// centred integer mod `others`, the other limbs of `shape` in order.
    pub(super) fn raise(&self, shape: Shape, first: usize, digit: &[&[u64]], others: &mut [&mut [u64]]) {
        let digit_range = first..first + digit.len();
        let raise = get_or_insert(&self.raises, (shape, first, digit.len()), || {
            let moduli = self.moduli(shape);
            let others: Vec<Modulus> =
                (0..moduli.len()).filter(|k| !digit_range.contains(k)).map(|k| moduli[k]).collect();
            conversion(&moduli[digit_range.clone()], &others)
        });
        raise.apply(digit, others);
    }

    /// The tables to divide by all primes of `shape` after the first `kept`.
    pub(super) fn division(&self, shape: Shape, kept: usize) -> Arc<Division> {
        get_or_insert(&self.divisions, (shape, kept), || {
            let moduli = self.moduli(shape);
            let (stay, go) = moduli.split_at(kept);
            let factors = stay.iter().map(|m| {
                let product = go.iter().fold(1, |product, d| m.mul(product, m.reduce(d.value())));
                m.shoup(m.neg(m.inv(product)))
            });
            Division { conversion: conversion(go, stay), factors: factors.collect() }
        })
    }

    /// The Galois element that rotates `k` places to the left (to the right if negative).
    pub fn rotation_element(&self, k: i64) -> u32 {
        let (order, mask) = (self.degree() as i64 / 2, 2 * self.degree() as u64 - 1);
        let (mut exponent, mut base, mut element) = (k.rem_euclid(order) as u64, 5u64, 1u64);
        while exponent > 0 {
            if exponent & 1 == 1 {
                element = (element * base) & mask;
            }
            base = (base * base) & mask;
            exponent >>= 1;
        }
        element as u32
    }

    /// The Galois element of complex conjugation.
    pub fn conjugation_element(&self) -> u32 {
        2 * self.degree() as u32 - 1
    }
}
