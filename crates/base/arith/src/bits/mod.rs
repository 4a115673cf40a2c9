//! Bit vectors, and bit planes of words and of blocks.

mod lanes;
pub mod transpose;

pub use transpose::{from_planes, planes};

use std::fmt;

use zeroize::Zeroize;

use crate::prg::Prg;

/// A vector of bits in 64-bit words: bit `i` is bit `i % 64` of word `i / 64`. Unused bits of the
/// last word are 0.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bits {
    len: usize,
    words: Vec<u64>,
}

impl Bits {
    /// `n` zero bits.
    pub fn zeros(n: usize) -> Self {
        Self { len: n, words: vec![0; n.div_ceil(64)] }
    }

    /// `n` random bits; draws `ceil(n / 64)` words.
    pub fn random(prg: &mut Prg, n: usize) -> Self {
        let mut b = Self::zeros(n);
        prg.fill_u64(&mut b.words);
        b.clear_tail();
        b
    }

    /// `n` bits from `ceil(n / 64)` words, `None` for another number. Drops excess bits.
    pub fn from_words(n: usize, words: Vec<u64>) -> Option<Self> {
        if words.len() != n.div_ceil(64) {
            return None;
        }
        let mut b = Self { len: n, words };
        b.clear_tail();
        Some(b)
    }

    /// `n` bits from `ceil(n / 8)` bytes, `None` for another number: bit `i` is bit `i % 8` of byte
    /// `i / 8`. Drops excess bits.
    pub fn from_bytes(n: usize, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != n.div_ceil(8) {
            return None;
        }
        let mut b = Self::zeros(n);
        for (w, c) in b.words.iter_mut().zip(bytes.chunks(8)) {
            let mut le = [0; 8];
            le[..c.len()].copy_from_slice(c);
            *w = u64::from_le_bytes(le);
        }
        b.clear_tail();
        Some(b)
    }

    /// `ceil(len / 8)` bytes, see [`Bits::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out: Vec<u8> = self.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        out.truncate(self.len.div_ceil(8));
        out
    }

    /// Number of bits.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words; unused bits of the last are 0.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The words. After setting unused bits of the last word, call [`Bits::clear_tail`].
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Zeroes the unused bits of the last word.
    pub fn clear_tail(&mut self) {
        if !self.len.is_multiple_of(64)
            && let Some(last) = self.words.last_mut()
        {
            *last &= u64::MAX >> (64 - self.len % 64);
        }
    }

    /// Bit `i`. Panics if `i >= len`.
    pub fn get(&self, i: usize) -> bool {
        assert!(i < self.len, "bit {i} of {}", self.len);
        self.words[i / 64] >> (i % 64) & 1 == 1
    }

    /// Sets bit `i`. Panics if `i >= len`.
    pub fn set(&mut self, i: usize, bit: bool) {
        assert!(i < self.len, "bit {i} of {}", self.len);
        let w = &mut self.words[i / 64];
        *w = *w & !(1 << (i % 64)) | (bit as u64) << (i % 64);
    }

    /// `self ^= rhs`. Panics if the lengths differ.
    pub fn xor_assign(&mut self, rhs: &Self) {
        assert_eq!(self.len, rhs.len, "lengths of bit vectors");
        self.words.iter_mut().zip(&rhs.words).for_each(|(a, b)| *a ^= b);
    }

    /// `self ^ rhs`. Panics if the lengths differ.
    pub fn xor(&self, rhs: &Self) -> Self {
        let mut out = self.clone();
        out.xor_assign(rhs);
        out
    }

    /// `self & rhs`. Panics if the lengths differ.
    pub fn and(&self, rhs: &Self) -> Self {
        assert_eq!(self.len, rhs.len, "lengths of bit vectors");
        Self { len: self.len, words: self.words.iter().zip(&rhs.words).map(|(a, b)| a & b).collect() }
    }

    /// Complement of every bit.
    pub fn not(&self) -> Self {
        let mut out = Self { len: self.len, words: self.words.iter().map(|w| !w).collect() };
        out.clear_tail();
        out
    }

    /// Appends all bits of `other`.
    pub fn extend(&mut self, other: &Self) {
        let shift = self.len % 64;
        if shift == 0 {
            self.words.extend_from_slice(&other.words);
        } else {
            for w in &other.words {
                if let Some(last) = self.words.last_mut() {
                    *last |= w << shift;
                }
                self.words.push(w >> (64 - shift));
            }
        }
        self.len += other.len;
        self.words.truncate(self.len.div_ceil(64));
    }

    /// The bits `start..start + n`. Panics if the vector ends before them.
    pub fn slice(&self, start: usize, n: usize) -> Self {
        assert!(start.checked_add(n).is_some_and(|end| end <= self.len), "bits {start}+{n} of {}", self.len);
        let (word, shift) = (start / 64, start % 64);
        let words = (word..word + n.div_ceil(64))
            .map(|w| {
                let high = self.words.get(w + 1).copied().unwrap_or(0);
                self.words[w] >> shift | (high << 1) << (63 - shift)
            })
            .collect();
        let mut out = Self { len: n, words };
        out.clear_tail();
        out
    }

    /// Number of ones.
    pub fn count_ones(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// One word for each bit: all ones if the bit is set, else zero.
    pub fn masks(&self) -> Vec<u64> {
        let mut masks = vec![0; self.len];
        for (masks, word) in masks.chunks_mut(64).zip(&self.words) {
            for (i, mask) in masks.iter_mut().enumerate() {
                *mask = (word >> i & 1).wrapping_neg();
            }
        }
        masks
    }

    /// The bits in order.
    pub fn iter(&self) -> impl Iterator<Item = bool> + '_ {
        (0..self.len).map(|i| self.words[i / 64] >> (i % 64) & 1 == 1)
    }
}

impl FromIterator<bool> for Bits {
    fn from_iter<I: IntoIterator<Item = bool>>(iter: I) -> Self {
        let mut b = Self::default();
        for bit in iter {
            if b.len % 64 == 0 {
                b.words.push(0);
            }
            if let Some(last) = b.words.last_mut() {
                *last |= (bit as u64) << (b.len % 64);
            }
            b.len += 1;
        }
        b
    }
}

impl Zeroize for Bits {
    fn zeroize(&mut self) {
        self.words.zeroize();
        self.len = 0;
    }
}

/// Planes hold masks, OT strings and shares.
impl Drop for Bits {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}

impl fmt::Debug for Bits {
    /// Prints the length only: bits may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bits({})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prg::Seed;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_vector_of_bools(a in proptest::collection::vec(any::<bool>(), 0..300), seed: u8, cut in 0usize..300) {
            let bits: Bits = a.iter().copied().collect();
            prop_assert_eq!(bits.len(), a.len());
            prop_assert_eq!(bits.iter().collect::<Vec<_>>(), a.clone());
            prop_assert_eq!(Bits::from_bytes(a.len(), &bits.to_bytes()), Some(bits.clone()));
            prop_assert_eq!(Bits::from_words(a.len(), bits.words().to_vec()), Some(bits.clone()));
            prop_assert_eq!(bits.count_ones(), a.iter().filter(|b| **b).count());
            let r = Bits::random(&mut Prg::from_seed(Seed([seed; 16])), a.len());
            for (i, bit) in a.iter().enumerate() {
                prop_assert_eq!(bits.xor(&r).get(i), bit ^ r.get(i));
                prop_assert_eq!(bits.and(&r).get(i), bit & r.get(i));
                prop_assert_eq!(bits.not().get(i), !bit);
            }
            prop_assert_eq!(bits.not().not(), bits.clone());
            let cut = cut.min(a.len());
            let (mut head, tail) = (bits.slice(0, cut), bits.slice(cut, a.len() - cut));
            prop_assert_eq!(tail.iter().collect::<Vec<_>>(), a[cut..].to_vec());
            head.extend(&tail);
            prop_assert_eq!(&head, &bits);
            let mut set = Bits::zeros(a.len());
            a.iter().enumerate().for_each(|(i, b)| { set.set(i, !b); set.set(i, *b) });
            prop_assert_eq!(set, bits);
        }
    }

    #[test]
    fn wrong_lengths_and_excess_bits() {
        assert!(Bits::from_bytes(9, &[0]).is_none());
        assert!(Bits::from_words(64, vec![0, 0]).is_none());
        assert_eq!(Bits::from_bytes(3, &[0xff]).map(|b| b.words().to_vec()), Some(vec![7]));
        assert_eq!(Bits::from_words(3, vec![u64::MAX]).map(|b| b.count_ones()), Some(3));
        assert_eq!(Bits::zeros(0).to_bytes(), Vec::<u8>::new());
    }
}
