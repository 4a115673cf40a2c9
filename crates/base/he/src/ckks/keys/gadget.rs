//! How the primes of a key are cut into digits.

use super::super::params::Parameters;
use super::super::shape::Shape;
use super::id::{KeyId, KeyKind};
use std::ops::Range;

/// The primes of a key: those of the ciphertexts that it switches, in digits of `special` primes,
/// then its special primes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Gadget {
    /// All primes of the key.
    pub(in super::super) shape: Shape,
    /// How many of the last primes are the special modulus of the key.
    pub(in super::super) special: usize,
}

impl Gadget {
    /// The primes of a key for ciphertexts at `level`, with alpha special primes.
    pub(in super::super) fn plain(level: usize, alpha: usize) -> Self {
        Self { shape: Shape { level, special: alpha }, special: alpha }
    }

    /// The primes of the key `id`. A master switches halves of keys, whose special primes it treats
    /// like any other; the remaining special primes are its own.
    ///
    /// # Panics
    /// If [`KeyId::admit`] refuses `id`.
    pub(in super::super) fn of(id: KeyId, parameters: &Parameters) -> Self {
        match id.kind {
            KeyKind::Master(_) => {
                let special = parameters.special_primes().len();
                assert!(id.alpha < special, "admitted masters have special primes");
                Self { shape: Shape { level: id.level, special }, special: special - id.alpha }
            }
            _ => Self::plain(id.level, id.alpha),
        }
    }

    /// The primes that the key switches.
    pub(in super::super) fn switched(self) -> Shape {
        Shape { special: self.shape.special - self.special, ..self.shape }
    }

    /// The primes that are left of the key at `level`.
    pub(in super::super) fn at(self, level: usize) -> Self {
        Self { shape: Shape { level, ..self.shape }, ..self }
    }

    /// The key's special primes, as a range of those of the parameters.
    pub(in super::super) fn own(self) -> Range<usize> {
        self.switched().special..self.shape.special
    }

    pub(in super::super) fn len(self) -> usize {
        self.switched().limbs().div_ceil(self.special)
    }

    pub(in super::super) fn digit(self, j: usize) -> Range<usize> {
        j * self.special..((j + 1) * self.special).min(self.switched().limbs())
    }

    /// The digits with primes left at `level`: their numbers and limbs there.
    pub(in super::super) fn digits_at(self, level: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let dropped = self.shape.level - level;
        let moved = move |limb: usize| limb.min(level).max(limb.saturating_sub(dropped));
        let digits = (0..self.len()).map(move |j| (j, moved(self.digit(j).start)..moved(self.digit(j).end)));
        digits.filter(|(_, limbs)| !limbs.is_empty())
    }

    /// log2 of the modulus of each digit at `level`.
    pub(in super::super) fn digit_log2(self, parameters: &Parameters, level: usize) -> Vec<f64> {
        let chain = [&parameters.primes()[..level], &parameters.special_primes()[..self.switched().special]].concat();
        let digits = self.digits_at(level);
        digits.map(|(_, limbs)| chain[limbs].iter().map(|&p| (p as f64).log2()).sum::<f64>()).collect()
    }

    /// log2 of the key's special modulus.
    pub(in super::super) fn special_log2(self, parameters: &Parameters) -> f64 {
        parameters.special_primes()[self.own()].iter().map(|&p| (p as f64).log2()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_lose_primes_from_the_middle() {
        // Primes q0 .. q5, p0, p1 in digits of 3. At level 2 the first has two, the last the
        // special ones.
        let master = Gadget { shape: Shape { level: 6, special: 5 }, special: 3 };
        assert_eq!((master.len(), master.own(), master.switched()), (3, 2..5, Shape { level: 6, special: 2 }));
        assert_eq!(master.digits_at(6).collect::<Vec<_>>(), [(0, 0..3), (1, 3..6), (2, 6..8)]);
        assert_eq!(master.digits_at(4).collect::<Vec<_>>(), [(0, 0..3), (1, 3..4), (2, 4..6)]);
        assert_eq!(master.digits_at(2).collect::<Vec<_>>(), [(0, 0..2), (2, 2..4)]);
        assert_eq!(Gadget::plain(7, 3).digits_at(4).collect::<Vec<_>>(), [(0, 0..3), (1, 3..4)]);
    }
}
