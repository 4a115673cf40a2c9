//! How a linear transform groups its diagonals, known without their values.

use super::super::context::Context;
use super::super::keys::{KeyId, KeyKind};
use crate::HeError;
use std::collections::BTreeSet;

/// How rotations are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// A key for every baby and every giant step; fewest transforms.
    Hoisted,
    /// Three keys: one baby step, one giant step, and where the chain starts.
    Chained,
}

/// The steps of a transform, known without its values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransformPlan {
    pub(super) slots: usize,
    pub(super) level: usize,
    pub(super) method: Method,
    /// g
    pub(super) stride: i64,
    /// B
    babies: i64,
    /// Offsets, ascending: between -n/2 and n/2, or all multiples of the stride below n.
    pub(super) offsets: Vec<i64>,
}

/// What a transform takes: counted, not timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransformWork {
    /// Inner products of digits with a key.
    pub key_switches: usize,
    /// Number-theoretic transforms mod one prime, but for those of diagonals.
    pub ntts: usize,
    /// Those of diagonals, where none is kept transformed. One that repeats takes a part of a whole one.
    pub diagonal_ntts: usize,
    /// Products of N words: of digits with keys, of diagonals with both halves.
    pub products: usize,
}

impl TransformPlan {
    /// Chooses steps for diagonals at `offsets`.
    ///
    /// # Errors
    /// [`HeError::Circuit`] without diagonals or below level 2.
    pub fn new(
        slots: usize,
        level: usize,
        method: Method,
        offsets: impl Iterator<Item = i64>,
    ) -> Result<Self, HeError> {
        let choices = Self::choices(slots, level, method, offsets)?;
        Ok(choices.into_iter().min_by_key(Self::cost).expect("there is a choice"))
    }

    /// The same with baby steps below `2^log_babies`.
    ///
    /// # Errors
    /// As [`TransformPlan::new`], and where that passes the slots.
    pub fn with_babies(
        slots: usize,
        level: usize,
        method: Method,
        offsets: impl Iterator<Item = i64>,
        log_babies: u32,
    ) -> Result<Self, HeError> {
        let mut choices = Self::choices(slots, level, method, offsets)?;
        let why = || format!("2^{log_babies} baby steps among {slots} slots");
        match choices.len() > log_babies as usize {
            true => Ok(choices.swap_remove(log_babies as usize)),
            false => Err(HeError::Circuit { what: "linear transform", why: why() }),
        }
    }

    /// The plans for diagonals at `offsets` by their number of baby steps: 1, 2, 4, .. , n.
    ///
    /// # Errors
    /// As [`TransformPlan::new`].
    pub fn choices(
        slots: usize,
        level: usize,
        method: Method,
        offsets: impl Iterator<Item = i64>,
    ) -> Result<Vec<Self>, HeError> {
        let n = slots as i64;
        let centred = |d: i64| (d + n / 2 - 1).rem_euclid(n) - n / 2 + 1;
        let mut offsets: Vec<i64> = offsets.map(centred).collect::<BTreeSet<_>>().into_iter().collect();
        if offsets.is_empty() || level < 2 {
            let why = format!("{} diagonals at level {level}: at least one and level 2 are needed", offsets.len());
            return Err(HeError::Circuit { what: "linear transform", why });
        }
        let stride = offsets.iter().fold(n, |g, &d| gcd(g, d));
        if offsets.len() as i64 == n / stride {
            // All that there are: from 0 up, they begin with one that moves nothing.
            offsets = (0..n / stride).map(|d| d * stride).collect();
        }
        let plan = |babies: i64| Self { slots, level, method, stride, babies, offsets: offsets.clone() };
        Ok((0..=n.trailing_zeros()).map(|b| plan(1 << b)).collect())
    }

    /// Key switches, those of giant steps weighed double: they divide and raise again.
    pub(super) fn cost(&self) -> i64 {
        let [babies, giants] = self.steps();
        match self.method {
            Method::Hoisted => babies.len() as i64 + 2 * giants.len() as i64,
            Method::Chained => babies.last().map_or(0, |b| b + 1) + giants.last().map_or(0, |last| last - giants[0]),
        }
    }

    pub(super) fn split(&self, offset: i64) -> (i64, i64) {
        let d = offset / self.stride;
        (d.div_euclid(self.babies), d.rem_euclid(self.babies))
    }

    /// The representative of an offset that is among [`TransformPlan::offsets`].
    pub(super) fn representative(&self, offset: i64) -> i64 {
        let n = self.slots as i64;
        let first = self.offsets[0];
        first + (offset - first).rem_euclid(n)
    }

    /// Baby steps i and giant steps j that occur, ascending.
    pub(super) fn steps(&self) -> [Vec<i64>; 2] {
        let (mut babies, mut giants) = (BTreeSet::new(), BTreeSet::new());
        for (j, i) in self.offsets.iter().map(|&d| self.split(d)) {
            giants.insert(j);
            babies.insert(i);
        }
        [babies, giants].map(|steps| steps.into_iter().collect())
    }

    /// Slots that giant step `j` moves.
    pub(super) fn giant(&self, j: i64) -> i64 {
        self.stride * self.babies * j
    }

    /// The first offset.
    pub(in super::super) fn first(&self) -> i64 {
        self.offsets[0]
    }

    /// Rotations that a key must be there for.
    #[must_use]
    pub fn rotations(&self) -> Vec<i64> {
        let [babies, giants] = self.steps();
        let first = self.giant(giants[0]);
        let all: Vec<i64> = match self.method {
            Method::Hoisted => {
                babies.iter().map(|i| self.stride * i).chain(giants.iter().map(|&j| self.giant(j))).collect()
            }
            Method::Chained => {
                let baby = (babies.last() > Some(&0)).then_some(self.stride);
                let giant = (giants.len() > 1).then(|| self.giant(1));
                baby.into_iter().chain(giant).chain([first]).collect()
            }
        };
        let n = self.slots as i64;
        all.into_iter().map(|k| k.rem_euclid(n)).filter(|&k| k != 0).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The keys it needs.
    #[must_use]
    pub fn keys(&self, context: &Context) -> Vec<KeyId> {
        let key = |&k: &i64| KeyId::at(context, KeyKind::Galois(context.rotation_element(k)), self.level);
        self.rotations().iter().map(key).collect()
    }

    /// Number of diagonals.
    #[must_use]
    pub fn diagonals(&self) -> usize {
        self.offsets.len()
    }

    /// Distances of baby and of giant steps, 0 left out.
    #[must_use]
    pub fn moves(&self) -> [Vec<i64>; 2] {
        let [babies, giants] = self.steps();
        let moved = |k: i64| Some(k.rem_euclid(self.slots as i64)).filter(|&k| k != 0);
        [
            babies.iter().filter_map(|i| moved(self.stride * i)).collect(),
            giants.iter().filter_map(|&j| moved(self.giant(j))).collect(),
        ]
    }

    /// Level of the input.
    #[must_use]
    pub fn level(&self) -> usize {
        self.level
    }

    /// How rotations are made.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// log2 of the bound of baby steps.
    #[must_use]
    pub fn log_babies(&self) -> u32 {
        self.babies.trailing_zeros()
    }

    /// What it takes with keys of `alpha` special primes.
    #[must_use]
    pub fn work(&self, alpha: usize) -> TransformWork {
        let [babies, giants] = self.steps();
        let moves = |k: i64| usize::from(k.rem_euclid(self.slots as i64) != 0);
        let (level, digits) = (self.level, self.level.div_ceil(alpha));
        let raised = level + alpha;
        match self.method {
            Method::Hoisted => {
                let moved = babies.iter().map(|i| moves(self.stride * i)).sum::<usize>();
                let turned = giants.iter().map(|&j| usize::from(j != 0)).sum::<usize>();
                TransformWork {
                    key_switches: moved + turned,
                    ntts: (digits + turned * (digits + 1) + 2) * raised,
                    diagonal_ntts: self.offsets.len() * raised,
                    products: 2 * raised * (digits * (moved + turned) + self.offsets.len()),
                }
            }
            Method::Chained => {
                let last = *babies.last().expect("there is a diagonal") as usize;
                let span = (giants[giants.len() - 1] - giants[0]) as usize;
                let key_switches = last + span + moves(self.giant(giants[0]));
                TransformWork {
                    key_switches,
                    ntts: key_switches * (digits + 2) * raised + 2 * level,
                    diagonal_ntts: self.offsets.len() * level,
                    products: 2 * (digits * key_switches * raised + self.offsets.len() * level),
                }
            }
        }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}
