//! How a linear transform groups its diagonals, whatever their values.

use super::super::context::Context;
use super::super::keys::{KeyId, KeyKind};
use crate::HeError;
use std::collections::BTreeSet;

/// Number of threads whose memory [`TransformPlan::held_limbs`] counts.
pub(super) const THREADS: usize = 4;

/// How a transform rotates, and with which keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// One key for each baby and each giant step: fewest number-theoretic transforms.
    Flat,
    /// One key for each baby step, each giant step of a block and each block: few more transforms
    /// than `Flat`, and half of its keys for convolutions.
    Hoisted,
    /// Four keys. As `Chained`, but each raised ciphertext gives two baby steps.
    Paired,
    /// Three keys: one baby step, one giant step, and the start of the chain.
    Chained,
    /// Keys for powers of two in both directions, as libraries make by default. Each step is as few
    /// such rotations as it allows.
    Powers,
}

impl Method {
    /// Whether each step is computed from the step before.
    pub fn is_chained(self) -> bool {
        matches!(self, Self::Paired | Self::Chained | Self::Powers)
    }

    /// Baby steps that one raised ciphertext of a chain gives.
    pub(super) fn at_once(self) -> usize {
        if self == Self::Paired { 2 } else { 1 }
    }
}

/// The steps of a transform.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransformPlan {
    pub(super) slots: usize,
    pub(super) level: usize,
    pub(super) method: Method,
    /// Stride g.
    pub(super) stride: i64,
    /// Number of baby steps B.
    babies: i64,
    /// Giant steps per block C; `None` without blocks.
    block: Option<i64>,
    /// Whether i and j are centred on 0 rather than start there.
    centred: bool,
    /// Offsets in ascending order: between -n/2 and n/2, or all multiples of the stride below n.
    pub(super) offsets: Vec<i64>,
}

/// Place of a diagonal: block k, giant step j and baby step i.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Split {
    pub block: i64,
    pub giant: i64,
    pub baby: i64,
}

/// Operations of a transform, counted from its plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransformWork {
    /// Inner products of digits with a key.
    pub key_switches: usize,
    /// Number-theoretic transforms mod one prime, without those of diagonals.
    pub ntts: usize,
    /// Number-theoretic transforms of diagonals if none is cached; those of repeating diagonals
    /// cost less.
    pub diagonal_ntts: usize,
    /// Products of N words: of digits with keys, and of diagonals with both halves.
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
        let plain = Self::plain(slots, level, method, offsets)?;
        let sizes = || (0..=slots.trailing_zeros()).map(|b| 1i64 << b);
        let plan = |babies: i64, block: Option<i64>, centred: bool| Self { babies, block, centred, ..plain.clone() };
        let flat = sizes().map(|b| plan(b, None, false));
        let choices: Vec<Self> = match method {
            Method::Paired | Method::Chained | Method::Powers => flat.collect(),
            Method::Flat => flat.chain(sizes().map(|b| plan(b, None, true))).collect(),
            Method::Hoisted => {
                let blocks =
                    |b: i64| sizes().skip(1).take_while(move |c| b * c < slots as i64).map(move |c| (b, Some(c)));
                let shapes = sizes().flat_map(|b| std::iter::once((b, None)).chain(blocks(b)));
                shapes.flat_map(|(b, c)| [plan(b, c, false), plan(b, c, true)]).collect()
            }
        };
        Ok(choices.into_iter().min_by_key(Self::cost).expect("there is a choice"))
    }

    /// As [`TransformPlan::new`], with up to `2^log_babies` baby steps from 0 and no blocks.
    ///
    /// # Errors
    /// As [`TransformPlan::new`]; [`HeError::Circuit`] if `2^log_babies` exceeds the slots.
    pub fn with_babies(
        slots: usize,
        level: usize,
        method: Method,
        offsets: impl Iterator<Item = i64>,
        log_babies: u32,
    ) -> Result<Self, HeError> {
        let mut choices = Self::choices(slots, level, method, offsets)?;
        if choices.len() > log_babies as usize {
            return Ok(choices.swap_remove(log_babies as usize));
        }
        let why = format!("2^{log_babies} baby steps among {slots} slots");
        Err(HeError::Circuit { what: "linear transform", why })
    }

    /// The plans of [`TransformPlan::with_babies`] by their number of baby steps: 1, 2, 4, .. , n.
    ///
    /// # Errors
    /// As [`TransformPlan::new`].
    pub fn choices(
        slots: usize,
        level: usize,
        method: Method,
        offsets: impl Iterator<Item = i64>,
    ) -> Result<Vec<Self>, HeError> {
        let plain = Self::plain(slots, level, method, offsets)?;
        Ok((0..=slots.trailing_zeros()).map(|b| Self { babies: 1 << b, ..plain.clone() }).collect())
    }

    fn plain(slots: usize, level: usize, method: Method, offsets: impl Iterator<Item = i64>) -> Result<Self, HeError> {
        let n = slots as i64;
        let centred = offsets.map(|d| (d + n / 2 - 1).rem_euclid(n) - n / 2 + 1);
        let mut offsets: Vec<i64> = centred.collect::<BTreeSet<_>>().into_iter().collect();
        if offsets.is_empty() || level < 2 {
            let why = format!("{} diagonals at level {level}: at least one and level 2 are needed", offsets.len());
            return Err(HeError::Circuit { what: "linear transform", why });
        }
        let stride = offsets.iter().fold(n, |g, &d| gcd(g, d));
        if offsets.len() as i64 == n / stride {
            // All offsets occur. From 0 up, the first needs no rotation.
            offsets = (0..n / stride).map(|d| d * stride).collect();
        }
        Ok(Self { slots, level, method, stride, babies: 1, block: None, centred: false, offsets })
    }

    /// Counts key switches; those of giant steps count double, because each divides and raises
    /// again. For [`Method::Hoisted`] each key adds two: blocks exist to save keys.
    pub(super) fn cost(&self) -> i64 {
        let [babies, giants] = self.steps();
        match self.method {
            Method::Flat => babies.len() as i64 + 2 * giants.len() as i64,
            Method::Hoisted => {
                let splits: BTreeSet<[i64; 2]> =
                    self.splits().map(|Split { block, giant, .. }| [block, giant]).collect();
                let blocks: BTreeSet<i64> = splits.iter().map(|[block, _]| *block).collect();
                let switches = babies.len() + 2 * splits.len() + if blocks.len() > 1 { 2 * blocks.len() } else { 0 };
                (switches + 2 * (babies.len() + giants.len() + blocks.len())) as i64
            }
            Method::Paired | Method::Chained => {
                babies.last().map_or(0, |b| b + 1) + giants.last().map_or(0, |last| last - giants[0])
            }
            Method::Powers => self.all_hops().len() as i64,
        }
    }

    fn all_hops(&self) -> Vec<i64> {
        self.moves().iter().flatten().flat_map(|&k| powers(k, self.slots)).collect()
    }

    pub(super) fn split(&self, offset: i64) -> Split {
        let (giant, baby) = self.divide_centred(offset / self.stride, self.babies);
        let (block, giant) = self.block.map_or((0, giant), |size| self.divide_centred(giant, size));
        Split { block, giant, baby }
    }

    /// Quotient and rest of `d` by `size`; centred plans have rests around 0.
    fn divide_centred(&self, d: i64, size: i64) -> (i64, i64) {
        let least = if self.centred { -(size / 2) } else { 0 };
        let remainder = (d - least).rem_euclid(size) + least;
        ((d - remainder) / size, remainder)
    }

    fn splits(&self) -> impl Iterator<Item = Split> {
        self.offsets.iter().map(|&d| self.split(d))
    }

    /// The representative of an offset among [`TransformPlan::offsets`].
    pub(super) fn representative(&self, offset: i64) -> i64 {
        let n = self.slots as i64;
        let first = self.offsets[0];
        first + (offset - first).rem_euclid(n)
    }

    /// The baby steps i and giant steps j, ascending.
    pub(super) fn steps(&self) -> [Vec<i64>; 2] {
        let (mut babies, mut giants) = (BTreeSet::new(), BTreeSet::new());
        for Split { giant, baby, .. } in self.splits() {
            giants.insert(giant);
            babies.insert(baby);
        }
        [babies, giants].map(|steps| steps.into_iter().collect())
    }

    /// Slots by which giant step `j` rotates.
    pub(super) fn giant(&self, j: i64) -> i64 {
        self.stride * self.babies * j
    }

    /// Slots by which block `k` rotates.
    pub(super) fn block(&self, k: i64) -> i64 {
        self.giant(self.block.unwrap_or(0) * k)
    }

    pub(in super::super) fn first(&self) -> i64 {
        self.offsets[0]
    }

    /// Rotations that need a key.
    pub fn rotations(&self) -> Vec<i64> {
        let [babies, giants] = self.steps();
        let first = self.giant(giants[0]);
        let distances: Vec<i64> = match self.method {
            Method::Flat | Method::Hoisted => {
                let blocks = self.splits().map(|split| self.block(split.block));
                let giants = giants.iter().map(|&j| self.giant(j));
                babies.iter().map(|i| self.stride * i).chain(giants).chain(blocks).collect()
            }
            Method::Paired | Method::Chained => {
                let last = *babies.last().expect("there is a diagonal");
                let babies = (1..=last.min(self.method.at_once() as i64)).map(|i| self.stride * i);
                let giant = (giants.len() > 1).then(|| self.giant(1));
                babies.chain(giant).chain([first]).collect()
            }
            Method::Powers => self.all_hops(),
        };
        let n = self.slots as i64;
        distances
            .into_iter()
            .map(|k| k.rem_euclid(n))
            .filter(|&k| k != 0)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// The keys that the transform needs.
    pub fn keys(&self, context: &Context) -> Vec<KeyId> {
        let elements = self.rotations().into_iter().map(|k| context.rotation_element(k));
        elements.map(|element| KeyId::for_level(context, KeyKind::Galois(element), self.level)).collect()
    }

    /// Number of diagonals.
    pub fn diagonals(&self) -> usize {
        self.offsets.len()
    }

    /// Distances other than 0 of baby steps, and of the rotations after them: giant steps of each
    /// block, then blocks.
    pub fn moves(&self) -> [Vec<i64>; 2] {
        let n = self.slots as i64;
        let nonzero = |k: i64| Some(k.rem_euclid(n)).filter(|&k| k != 0);
        let parts: BTreeSet<[i64; 2]> = self.splits().map(|s| [s.block, s.giant]).collect();
        let blocks: BTreeSet<i64> = parts.iter().map(|[block, _]| *block).collect();
        let giants = parts.iter().map(|[_, giant]| self.giant(*giant));
        let giant_moves = giants.chain(blocks.into_iter().map(|block| self.block(block)));
        let [babies, _] = self.steps();
        [babies.iter().filter_map(|i| nonzero(self.stride * i)).collect(), giant_moves.filter_map(nonzero).collect()]
    }

    /// Level of the input.
    pub fn level(&self) -> usize {
        self.level
    }

    /// How the transform rotates, and with which keys.
    pub fn method(&self) -> Method {
        self.method
    }

    /// log2 of the most baby steps.
    pub fn log_babies(&self) -> u32 {
        self.babies.trailing_zeros()
    }

    /// Key switches of a run.
    pub fn switches(&self) -> usize {
        match self.method {
            Method::Flat | Method::Hoisted => self.moves().iter().map(Vec::len).sum(),
            Method::Paired | Method::Chained => {
                let [babies, giants] = self.chain();
                babies + giants
            }
            Method::Powers => self.all_hops().len(),
        }
    }

    fn chain(&self) -> [usize; 2] {
        let [babies, giants] = self.steps();
        let span = (giants[giants.len() - 1] - giants[0]) as usize;
        let start = usize::from(self.giant(giants[0]).rem_euclid(self.slots as i64) != 0);
        [*babies.last().expect("there is a diagonal") as usize, span + start]
    }

    fn raises(&self) -> usize {
        if self.method == Method::Powers {
            return self.switches();
        }
        let [babies, giants] = self.chain();
        babies.div_ceil(self.method.at_once()) + giants
    }

    /// Number of successive key switches behind the last step of a chain.
    pub(super) fn hops(&self) -> usize {
        if self.method == Method::Powers {
            let moves = self.moves();
            let max_hops =
                moves.iter().map(|moves| moves.iter().map(|&k| powers(k, self.slots).len()).max().unwrap_or(0));
            return max_hops.sum::<usize>() + 1;
        }
        self.raises() + 1
    }

    /// The most limbs (of N words) that a run holds beside its input, keys and stored diagonals:
    /// the baby steps of a chain, the sums of giant steps and the memory of one switch. Without a
    /// chain, each of four threads holds all baby steps mod one prime. Each thread also holds the
    /// diagonals that the run transforms, of `diagonal_words` words (0 if they are stored
    /// transformed), mod one prime.
    pub fn held_limbs(&self, context: &Context, diagonal_words: usize) -> usize {
        let alpha = context.parameters().alpha(self.level);
        let (level, raised) = (self.level, self.level + alpha);
        let of_switch = (self.level.div_ceil(alpha) + 4) * raised;
        let parts: BTreeSet<[i64; 2]> = self.splits().map(|split| [split.block, split.giant]).collect();
        let of_run = match self.method {
            Method::Flat | Method::Hoisted => {
                let [babies, _] = self.steps();
                2 * raised * (parts.len() + 1) + of_switch.max(2 * THREADS * (babies.len() + 1))
            }
            Method::Paired | Method::Chained => {
                let [babies, _] = self.chain();
                2 * level * (babies + parts.len()).max(1) + of_switch
            }
            Method::Powers => {
                let [babies, _] = self.steps();
                2 * level * (babies.len() + parts.len()) + of_switch
            }
        };
        of_run + (THREADS * self.offsets.len() * diagonal_words).div_ceil(context.degree())
    }

    /// Operations of a run with keys of `alpha` special primes.
    pub fn work(&self, alpha: usize) -> TransformWork {
        let (level, digits, key_switches) = (self.level, self.level.div_ceil(alpha), self.switches());
        let raised = level + alpha;
        match self.method {
            Method::Flat | Method::Hoisted => {
                let turned = self.moves()[1].len();
                TransformWork {
                    key_switches,
                    ntts: (digits + turned * (digits + 1) + 2) * raised,
                    diagonal_ntts: self.offsets.len() * raised,
                    products: 2 * raised * (digits * key_switches + self.offsets.len()),
                }
            }
            Method::Paired | Method::Chained | Method::Powers => TransformWork {
                key_switches,
                ntts: (self.raises() * digits + 2 * key_switches) * raised + 2 * level,
                diagonal_ntts: self.offsets.len() * level,
                products: 2 * (digits * key_switches * raised + self.offsets.len() * level),
            },
        }
    }
}

/// The fewest positive or negative powers of two that add up to `k` among `n` slots (the
/// non-adjacent form).
pub(super) fn powers(k: i64, n: usize) -> Vec<i64> {
    let n = n as i64;
    let mut remainder = (k + n / 2).rem_euclid(n) - n / 2;
    let (mut steps, mut power) = (Vec::new(), 1);
    while remainder != 0 {
        if remainder % 2 != 0 {
            // The sign that leaves a multiple of four.
            let digit = 2 - (remainder & 3);
            steps.push(digit * power);
            remainder -= digit;
        }
        (remainder, power) = (remainder / 2, 2 * power);
    }
    steps
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_few_powers_of_two() {
        let n = 1 << 9;
        // Breadth first.
        let generators: Vec<i64> = (0..9).flat_map(|b| [1i64 << b, -(1i64 << b)]).collect();
        let (mut fewest, mut reached) = (vec![None; n], vec![0i64]);
        fewest[0] = Some(0);
        for hops in 1.. {
            let next: BTreeSet<i64> = reached.iter().flat_map(|k| generators.iter().map(move |g| k + g)).collect();
            reached =
                next.into_iter().map(|k| k.rem_euclid(n as i64)).filter(|&k| fewest[k as usize].is_none()).collect();
            reached.iter().for_each(|&k| fewest[k as usize] = Some(hops));
            if reached.is_empty() {
                break;
            }
        }
        for k in -600..600i64 {
            let steps = powers(k, n);
            assert!(steps.iter().all(|p| generators.contains(p)), "{k}: {steps:?}");
            assert_eq!(steps.iter().sum::<i64>().rem_euclid(n as i64), k.rem_euclid(n as i64));
            assert_eq!(Some(steps.len()), fewest[k.rem_euclid(n as i64) as usize], "{k}: {steps:?}");
        }
    }
}
