//! Groups of trees that go through their levels together, so that many hashes are in flight under
//! one key.

use tacit_arith::bits::transpose::transpose64;
use tacit_arith::block::Block;
use zeroize::Zeroize;

/// Trees that share the hash key of a level. A larger group would save key schedules (0.3 ns a
/// level and tree at 256) at the cost of security: an attacker compares each guess with all trees
/// (`docs/parameters.md`).
pub const GROUP: usize = 256;

/// Comparison that a key is evaluated as; both cost nothing extra.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// `x < alpha`.
    Below,
    /// `x <= alpha`.
    AtMost,
}

/// The bits of up to [`GROUP`] numbers as planes: bit `i` of `self.0[j]` is bit `j` of number `i`. Wiped on
/// drop.
pub(super) struct Planes([[u64; GROUP / 64]; 64]);

impl Planes {
    /// The planes of up to [`GROUP`] numbers.
    pub(super) fn new(numbers: &[u64]) -> Self {
        let mut out = Self([[0; GROUP / 64]; 64]);
        for (word, chunk) in numbers.chunks(64).enumerate() {
            let mut m = [0; 64];
            m[..chunk.len()].copy_from_slice(chunk);
            transpose64(&mut m);
            for (plane, bits) in out.0.iter_mut().zip(&m) {
                plane[word] = *bits;
            }
            m.zeroize();
        }
        out
    }

    /// Plane `bit`, one bit for each number.
    pub(super) fn bit(&self, bit: u32) -> &[u64] {
        &self.0[bit as usize]
    }
}

impl Drop for Planes {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// All ones where the numbers are equal, all zeros elsewhere; no branch.
pub(super) fn equal(a: u64, b: u64) -> Block {
    let apart = a ^ b;
    Block::mask(1 ^ (apart | apart.wrapping_neg()) >> 63)
}
