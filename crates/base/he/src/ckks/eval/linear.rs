//! Linear transforms of the slots, by diagonals: `out[i] = sum_d D_d[i] v[i + d]`.
//!
//! Diagonals are grouped as baby and giant steps: `d = g (B j + i)` with B values of i from 0 or
//! around it. Five methods run a transform:
//! - *Flat* ([BMTH21]): all baby steps come from one raised ciphertext, and products are summed at
//!   the primes of the key. Special primes are divided out once for each giant step, and at the end
//!   with the rescaling.
//! - *Hoisted*: as flat, with blocks of C giant steps: `d = g (B (C k + j) + i)`. A block's sum is
//!   rotated by the block's distance, so that all blocks use the same keys.
//! - *Chained*: each baby step is computed from the one before, and giant steps are summed as in
//!   Horner's rule, with three keys.
//! - *Paired*: as chained, with baby steps two at a time.
//! - *Powers*: each step is a sequence of rotations by powers of two.

use super::super::cipher::{Ciphertext, same_slots};
use super::super::context::Context;
use super::super::encoder::{Complex, Encoder};
use super::super::limb::Limb;
use super::super::noise::rounding_deviation;
use super::super::poly::{Ntt, Poly};
use super::super::scale::Scale;
use super::super::shape::Shape;
use super::diagonal::{Diagonal, Words};
use super::rotate::HoistedStep;
use super::split::{Method, Split, THREADS, TransformPlan, powers};
use super::{Evaluator, Raised};
use crate::HeError;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Input of [`LinearTransform::new`].
pub struct TransformSpec<'a> {
    /// Diagonals of n values by their offset (any representative mod n).
    pub diagonals: &'a BTreeMap<i64, Vec<Complex>>,
    /// Level of the input; the output is one below.
    pub level: usize,
    /// Scale of the encoded diagonals.
    pub scale: Scale,
    /// How the transform rotates, and with which keys.
    pub method: Method,
    /// Bytes of diagonals that may be stored transformed; others are transformed at each use.
    /// Diagonals that repeat after an eighth of the slots or less take at most an eighth of a
    /// polynomial.
    pub cache_bytes: usize,
}

/// The products that one giant step sums.
struct Giant {
    /// Block k.
    block: i64,
    /// Giant step j.
    step: i64,
    /// Baby step i and its diagonal, rotated back by the distance of the giant step.
    terms: Vec<(i64, Diagonal)>,
}

/// A compiled transform.
pub struct LinearTransform {
    plan: TransformPlan,
    scale: Scale,
    shape: Shape,
    giants: Vec<Giant>,
    /// Mean over the slots of the diagonals' squares: the growth of error variances.
    gain: f64,
}

impl LinearTransform {
    /// Encodes the diagonals.
    ///
    /// # Errors
    /// [`HeError::Circuit`] if [`TransformPlan::new`] refuses the diagonals or one does not have n
    /// values; [`HeError::Level`] above the highest level; [`HeError::TooLarge`].
    pub fn new(encoder: &Encoder, spec: &TransformSpec<'_>) -> Result<Self, HeError> {
        let (n, offsets) = (encoder.slots(), spec.diagonals.keys().copied());
        Self::with_plan(encoder, spec, TransformPlan::new(n, spec.level, spec.method, offsets)?)
    }

    /// As [`LinearTransform::new`], with a plan for these diagonals, level and method.
    ///
    /// # Errors
    /// As [`LinearTransform::new`].
    pub fn with_plan(encoder: &Encoder, spec: &TransformSpec<'_>, plan: TransformPlan) -> Result<Self, HeError> {
        let (context, n) = (encoder.context(), encoder.slots());
        let levels = context.parameters().levels();
        if spec.level > levels {
            return Err(HeError::Level { what: "linear transform", need: spec.level, have: levels });
        }
        if let Some((d, values)) = spec.diagonals.iter().find(|(_, values)| values.len() != n) {
            let why = format!("diagonal {d} has {} values for {n} slots", values.len());
            return Err(HeError::Circuit { what: "linear transform", why });
        }
        let special = if spec.method.is_chained() { 0 } else { context.parameters().alpha(spec.level) };
        let shape = Shape { level: spec.level, special };
        let mut by_giant: BTreeMap<(i64, i64), Vec<Term>> = BTreeMap::new();
        for (&offset, values) in spec.diagonals {
            let Split { block, giant, baby } = plan.split(plan.representative(offset));
            let mut rotated = values.clone();
            rotated.rotate_right((plan.giant(giant) + plan.block(block)).rem_euclid(n as i64) as usize);
            by_giant.entry((block, giant)).or_default().push((baby, rotated));
        }
        let mut left = spec.cache_bytes;
        let mut giants = Vec::with_capacity(by_giant.len());
        for ((block, step), terms) in by_giant {
            let encoded = terms.into_par_iter().map(|(i, values)| {
                let diagonal = Diagonal::encode(context, &values, spec.scale)?;
                Ok((i, diagonal))
            });
            let encoded = encoded.collect::<Result<Vec<_>, HeError>>()?;
            let cached =
                encoded.into_iter().map(|(i, diagonal)| (i, diagonal.expand_within(context, shape, &mut left)));
            giants.push(Giant { block, step, terms: cached.collect() });
        }
        let diagonals = spec.diagonals.values();
        let squares = diagonals.map(|values| values.iter().map(|v| v.re * v.re + v.im * v.im).sum::<f64>());
        let gain = squares.sum::<f64>() / n as f64;
        Ok(Self { plan, scale: spec.scale, shape, giants, gain })
    }

    /// Steps of the transform.
    pub fn plan(&self) -> &TransformPlan {
        &self.plan
    }

    /// Bytes of the diagonals in memory.
    pub fn memory_bytes(&self) -> usize {
        self.giants.iter().flat_map(|g| &g.terms).map(|(_, diagonal)| diagonal.memory_bytes()).sum()
    }

    /// Adds limb `k` of products of baby steps to the sum of each giant step. `babies` are both
    /// halves of those from number `first` on; the first ones clear the sums.
    fn limb_sums(
        &self,
        context: &Context,
        k: usize,
        first: usize,
        babies: &[[&[u64]; 2]],
        sums: &mut [[&mut [u64]; 2]],
    ) {
        let steps = &self.plan.steps()[0];
        let place = |i: &i64| steps.binary_search(i).expect("each term has its baby step");
        let range = first..first + babies.len();
        let of_giant = self.giants.iter().map(|g| {
            let terms = g.terms.iter().map(|(i, d)| (place(i), d)).filter(|(place, _)| range.contains(place));
            terms.map(|(place, d)| (d.limb(context, self.shape, k), place - first)).unzip()
        });
        let giants: Vec<(Vec<Words<'_>>, Vec<usize>)> = of_giant.collect();
        let max_len = giants.iter().map(|(words, _)| words.len()).max().unwrap_or(0);
        let mut room = vec![0; PART * max_len];
        let op = context.pointwise(self.shape, k);
        // Part by part for all giant steps: baby steps are read once.
        for start in (0..context.degree()).step_by(PART) {
            let part = start..(start + PART).min(context.degree());
            for ((words, places), sums) in giants.iter().zip(&mut *sums) {
                let rooms = room.chunks_exact_mut(PART);
                let digits: Vec<&[u64]> = words.iter().zip(rooms).map(|(w, room)| w.part(part.clone(), room)).collect();
                let values: Vec<[&[u64]; 2]> =
                    places.iter().map(|&i| babies[i].map(|half| &half[part.clone()])).collect();
                let mut sums = sums.each_mut().map(|sum| &mut sum[part.clone()]);
                if first == 0 {
                    sums.iter_mut().for_each(|sum| sum.fill(0));
                }
                op.dot_pair(&digits, &values, sums);
            }
        }
    }
}

/// A baby step and the values of its diagonal.
type Term = (i64, Vec<Complex>);

/// A distance, and the part of a sum that is rotated by it.
type Turned = (i64, [Poly<Ntt>; 2]);

/// Words that are summed together: 16 diagonals fit in a first-level cache.
const PART: usize = 256;

fn split_by_limb(pairs: &mut [[Poly<Ntt>; 2]], limbs: usize) -> Vec<Vec<[&mut [u64]; 2]>> {
    let mut by_limb: Vec<Vec<[&mut [u64]; 2]>> = (0..limbs).map(|_| Vec::with_capacity(pairs.len())).collect();
    for [first, second] in pairs {
        let halves = first.slices_mut().zip(second.slices_mut());
        halves.zip(&mut by_limb).for_each(|((first, second), by_limb)| by_limb.push([first, second]));
    }
    by_limb
}

impl Evaluator<'_> {
    /// Applies a transform and rescales: the level falls by one.
    ///
    /// # Errors
    /// [`HeError::Level`] or [`HeError::SlotCount`] if the transform has a higher level or other
    /// slots; those of [`KeySet::get_with`](super::super::KeySet::get_with).
    pub fn transform(&self, a: &Ciphertext, transform: &LinearTransform) -> Result<Ciphertext, HeError> {
        const WHAT: &str = "linear transform";
        same_slots(WHAT, transform.plan.slots, a.slots())?;
        let level = transform.plan.level;
        if a.level() < level {
            return Err(HeError::Level { what: WHAT, need: level, have: a.level() });
        }
        let a = a.drop_to(level)?;
        let [c0, c1] = match transform.plan.method {
            Method::Flat | Method::Hoisted => self.apply_hoisted(&a, transform)?,
            Method::Paired | Method::Chained => self.apply_chained(&a, transform)?,
            Method::Powers => self.apply_by_powers(&a, transform)?,
        };
        let prime = self.context.parameters().primes()[level - 1];
        let factor = transform.scale.to_f64() / prime as f64;
        let alpha = self.context.parameters().alpha(level);
        let of_keys = self.keys.deviation(&transform.plan.keys(self.context));
        // Unchained methods round once, chained ones at every step, with half of the chain before
        // it on average.
        let steps = match transform.plan.method {
            Method::Flat | Method::Hoisted => self.digits_error(level, alpha, of_keys),
            Method::Paired | Method::Chained | Method::Powers => {
                self.switch_error(level, alpha, of_keys) * (transform.plan.hops() as f64 / 2.0).sqrt()
            }
        };
        let mut estimate = a.estimate;
        let switched = estimate.deviation.hypot(steps) * transform.gain.sqrt() * factor;
        let terms = transform.plan.offsets.len() as f64;
        let encoding = (terms / 12.0).sqrt() * estimate.magnitude * a.scale.to_f64() / prime as f64;
        estimate.deviation = switched.hypot(encoding).hypot(rounding_deviation(self.context.degree()));
        estimate.magnitude *= transform.gain.sqrt();
        Ok(Ciphertext { c0, c1, scale: a.scale.times(transform.scale).over_prime(prime), slots: a.slots, estimate })
    }

    /// Rotates all baby steps from one set of raised digits. Returns both halves.
    fn apply_hoisted(&self, a: &Ciphertext, transform: &LinearTransform) -> Result<[Poly<Ntt>; 2], HeError> {
        let (context, plan, shape) = (self.context, &transform.plan, transform.shape);
        let raised: Raised = self.raise(a, shape.special);
        let [steps, _] = plan.steps();
        let babies = steps.iter().map(|i| self.hoisted_step(a, plan.stride * i, shape.special));
        let babies: Vec<HoistedStep> = babies.collect::<Result<_, _>>()?;
        let mut inner = self.giants(transform);
        // All threads together hold what `THREADS` would of all baby steps.
        let at_once = babies.len().div_ceil(rayon::current_num_threads().div_ceil(THREADS)).max(1);
        split_by_limb(&mut inner, shape.limbs()).into_par_iter().enumerate().for_each(|(k, mut sums)| {
            let digit_limbs: Vec<&[u64]> = raised.digits().iter().map(|digit| digit.limb(k)).collect();
            for (i, chunk) in babies.chunks(at_once).enumerate() {
                let limbs = chunk.iter().map(|baby| self.hoisted_limb(a, shape, k, &digit_limbs, baby));
                let limbs: Vec<[Limb; 2]> = limbs.collect();
                let limbs: Vec<[&[u64]; 2]> = limbs.iter().map(|pair| pair.each_ref().map(|half| &**half)).collect();
                transform.limb_sums(context, k, i * at_once, &limbs, &mut sums);
            }
        });
        babies.iter().filter_map(|baby| baby.key.as_ref()).for_each(|key| key.count_use(context, shape));
        drop(raised);
        let mut blocks: BTreeMap<i64, Vec<Turned>> = BTreeMap::new();
        for (inner, giant) in inner.into_iter().zip(&transform.giants) {
            blocks.entry(plan.block(giant.block)).or_default().push((plan.giant(giant.step), inner));
        }
        let blocks = blocks.into_iter();
        let blocks = blocks.map(|(distance, parts)| Ok((distance, self.sum_turned(a.slots, shape, parts)?)));
        let blocks = blocks.collect::<Result<Vec<_>, HeError>>()?;
        let sum = self.sum_turned(a.slots, shape, blocks)?;
        Ok(sum.map(|half| context.divide(&half, 1)))
    }

    /// Sums parts at the primes of a key, each rotated by its distance.
    fn sum_turned(&self, slots: usize, shape: Shape, parts: Vec<Turned>) -> Result<[Poly<Ntt>; 2], HeError> {
        let (still, turned): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(k, _)| k.rem_euclid(slots as i64) == 0);
        let zero = || [(); 2].map(|()| Poly::zero(self.context, shape));
        let mut sum = still.into_iter().map(|(_, part)| part).reduce(|mut sum, part| {
            sum.iter_mut().zip(&part).for_each(|(sum, part)| sum.add_assign(part, self.context));
            sum
        });
        for (k, part) in turned {
            self.add_rotated(slots, &part, shape.special, k, sum.get_or_insert_with(zero))?;
        }
        Ok(sum.unwrap_or_else(zero))
    }

    fn giants(&self, transform: &LinearTransform) -> Vec<[Poly<Ntt>; 2]> {
        transform.giants.iter().map(|_| [(); 2].map(|()| Poly::scratch(self.context, transform.shape))).collect()
    }

    /// The sums of all giant steps, from baby steps that are ciphertexts.
    fn products(&self, transform: &LinearTransform, babies: &[&Ciphertext]) -> Vec<[Poly<Ntt>; 2]> {
        let mut inner = self.giants(transform);
        split_by_limb(&mut inner, transform.shape.limbs()).into_par_iter().enumerate().for_each(|(k, mut sums)| {
            let babies: Vec<[&[u64]; 2]> = babies.iter().map(|b| [b.c0.limb(k), b.c1.limb(k)]).collect();
            transform.limb_sums(self.context, k, 0, &babies, &mut sums);
        });
        inner
    }

    /// As `apply_hoisted`, by rotations by powers of two.
    fn apply_by_powers(&self, a: &Ciphertext, transform: &LinearTransform) -> Result<[Poly<Ntt>; 2], HeError> {
        let (context, plan) = (self.context, &transform.plan);
        let moved =
            |a: Ciphertext, k: i64| powers(k, plan.slots).into_iter().try_fold(a, |a, hop| self.rotate(&a, hop));
        let [steps, _] = plan.steps();
        let babies = steps.iter().map(|i| moved(a.clone(), plan.stride * i));
        let babies = babies.collect::<Result<Vec<_>, HeError>>()?;
        let inner = self.products(transform, &babies.iter().collect::<Vec<_>>());
        drop(babies);
        let mut sum: Option<Ciphertext> = None;
        for ([c0, c1], giant) in inner.into_iter().zip(&transform.giants) {
            let part = moved(Ciphertext { c0, c1, ..*a }, plan.giant(giant.step))?;
            sum = Some(match sum {
                Some(sum) => self.add(&sum, &part)?,
                None => part,
            });
        }
        let sum = sum.expect("there is a giant step");
        Ok([context.rescaled(&sum.c0), context.rescaled(&sum.c1)])
    }

    /// As `apply_hoisted`, with each baby step from the step before.
    fn apply_chained(&self, a: &Ciphertext, transform: &LinearTransform) -> Result<[Poly<Ntt>; 2], HeError> {
        let (context, plan) = (self.context, &transform.plan);
        let [steps, _] = plan.steps();
        let mut babies = vec![a.clone()];
        let count = *steps.last().expect("there is a diagonal") as usize + 1;
        while babies.len() < count {
            let last_baby = babies.last().expect("it begins with the input");
            let next = match plan.method.at_once().min(count - babies.len()) {
                1 => vec![self.rotate(last_baby, plan.stride)?],
                limit => {
                    self.rotate_many(last_baby, &(1..=limit as i64).map(|i| plan.stride * i).collect::<Vec<_>>())?
                }
            };
            babies.extend(next);
        }
        let used: Vec<&Ciphertext> = steps.iter().map(|&i| &babies[i as usize]).collect();
        let inner = self.products(transform, &used);
        drop(babies);
        let first = transform.giants[0].step;
        let mut sum: Option<(i64, Ciphertext)> = None;
        for ([c0, c1], giant) in inner.into_iter().zip(&transform.giants).rev() {
            let inner = Ciphertext { c0, c1, ..*a };
            sum = Some(match sum {
                None => (giant.step, inner),
                Some((last_step, mut sum)) => {
                    for _ in giant.step..last_step {
                        sum = self.rotate(&sum, plan.giant(1))?;
                    }
                    (giant.step, self.add(&sum, &inner)?)
                }
            });
        }
        let (_, sum) = sum.expect("there is a giant step");
        let sum = self.rotate(&sum, plan.giant(first))?;
        Ok([context.rescaled(&sum.c0), context.rescaled(&sum.c1)])
    }
}
