//! Automorphisms `X -> X^g` of `Z_p[X]/(X^N + 1)`, on values in the order of the NTT domain and on
//! coefficients.
//!
//! Index i of the NTT domain holds the value at `root^e` with an odd exponent `e < 2N`, and the
//! automorphism moves the value at `root^(g e)` there.
//!
//! Before the transposition inside blocks, the order is bit-reversed. The 64 exponents of a block
//! agree in their low bits, so their sources are in one block. There, the six high bits `t` of an
//! exponent become `g t + c mod 64` with a carry `c` of the low bits. A table therefore has one
//! source and one carry for each block, and 64 permutations of 64 elements.

use crate::LatticeError;
use crate::modulus::Modulus;

const BLOCK: usize = 64;

/// The permutation of one automorphism, for every prime. Immutable.
#[derive(Clone)]
pub struct Galois {
    degree: usize,
    element: u64,
    /// For each block of the result: its source block, and its permutation in `inside`.
    sources: Vec<(u32, u8)>,
    /// `inside[c][i]`: the place in the source block of element i of a block with carry c.
    inside: Box<[[u8; BLOCK]; BLOCK]>,
}

impl Galois {
    /// Builds the tables for `X -> X^element` at `degree`, a power of two from 64 to 2^17.
    ///
    /// # Errors
    /// [`LatticeError::Degree`]; [`LatticeError::Galois`] if `element` is even or not below
    /// `2 * degree`.
    pub fn new(degree: usize, element: u64) -> Result<Self, LatticeError> {
        if !degree.is_power_of_two() || !(64..=1 << 17).contains(&degree) {
            return Err(LatticeError::Degree { degree });
        }
        let order = 2 * degree as u64;
        if element.is_multiple_of(2) || element >= order {
            return Err(LatticeError::Galois { element, order });
        }
        let blocks = degree / BLOCK;
        let block_bits = blocks.trailing_zeros();
        let low = order / BLOCK as u64; // exponents of a block are equal mod this
        let sources = (0..blocks as u64).map(|b| {
            let product = (2 * reverse_bits(b, block_bits) + 1) * element;
            (reverse_bits(product % low / 2, block_bits) as u32, (product / low % BLOCK as u64) as u8)
        });
        let mut inside = Box::new([[0; BLOCK]; BLOCK]);
        for (carry, row) in inside.iter_mut().enumerate() {
            for t in 0..BLOCK as u64 {
                let image = (element * t + carry as u64) % BLOCK as u64;
                row[inside_block(t as usize)] = inside_block(image as usize) as u8;
            }
        }
        Ok(Self { degree, element, sources: sources.collect(), inside })
    }

    /// The exponent g.
    pub fn element(&self) -> u64 {
        self.element
    }

    /// Number of coefficients N.
    pub fn degree(&self) -> usize {
        self.degree
    }

    fn check(&self, source_len: usize, target_len: usize) {
        assert!(
            source_len == self.degree && target_len == self.degree,
            "{source_len} to {target_len} words, degree {}",
            self.degree
        );
    }

    /// Applies the automorphism to N values in the order of [`crate::ntt`].
    ///
    /// # Panics
    /// If a buffer does not have N elements.
    pub fn apply(&self, input: &[u64], output: &mut [u64]) {
        self.check(input.len(), output.len());
        let input = input.as_chunks::<BLOCK>().0;
        for (out, &(source, carry)) in output.as_chunks_mut::<BLOCK>().0.iter_mut().zip(&self.sources) {
            let (block, inside) = (&input[source as usize], &self.inside[usize::from(carry) % BLOCK]);
            for (v, &i) in out.iter_mut().zip(inside) {
                *v = block[usize::from(i) % BLOCK];
            }
        }
    }

    /// Applies the automorphism to N coefficients in `[0, p)`.
    ///
    /// # Panics
    /// If a buffer does not have N elements.
    pub fn apply_coefficients(&self, modulus: &Modulus, input: &[u64], output: &mut [u64]) {
        self.scatter(input, output, |v, negative| if negative { modulus.neg(v) } else { v });
    }

    /// Applies the automorphism to N small signed coefficients, such as secrets or errors.
    ///
    /// # Panics
    /// If a buffer does not have N elements.
    pub fn apply_signed(&self, input: &[i64], output: &mut [i64]) {
        self.scatter(input, output, |v, negative| if negative { -v } else { v });
    }

    /// Moves coefficient i to `g i mod N`, negated if `g i mod 2N >= N`.
    fn scatter<T: Copy>(&self, input: &[T], output: &mut [T], value: impl Fn(T, bool) -> T) {
        self.check(input.len(), output.len());
        let mut position = 0;
        for &v in input {
            output[position % self.degree] = value(v, position >= self.degree);
            position = (position + self.element as usize) % (2 * self.degree);
        }
    }
}

fn reverse_bits(b: u64, bits: u32) -> u64 {
    if bits == 0 { 0 } else { b.reverse_bits() >> (u64::BITS - bits) }
}

/// The place inside its block of the element with the high exponent bits `t`.
fn inside_block(t: usize) -> usize {
    let natural = (t as u8).reverse_bits() as usize >> 2;
    (natural & 7) << 3 | natural >> 3
}
