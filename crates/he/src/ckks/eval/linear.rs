//! Linear transforms of the slots, by diagonals: `out[i] = sum_d D_d[i] v[i + d]`.
//!
//! Diagonals are grouped as baby and giant steps: `d = g (B j + i)` with `0 <= i < B`. Two ways to run:
//! *hoisted* ([BMTH21]): every baby step comes from one raised ciphertext, products are summed at
//! the primes of the key, and special primes are divided out once for a giant step and, together with the
//! rescaling, once at the end. *Chained*: baby steps follow one from another, giant steps are summed as in
//! Horner's rule: three keys do.

use super::super::cipher::{Ciphertext, same_slots};
use super::super::context::Context;
use super::super::encoder::{Complex, Encoder};
use super::super::keys::{KeyId, KeyKind};
use super::super::noise::rounding_deviation;
use super::super::poly::{Ntt, Poly};
use super::super::scale::Scale;
use super::super::shape::Shape;
use super::{Evaluator, Raised};
use crate::HeError;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How rotations are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// A key for every baby and every giant step; fewest transforms.
    Hoisted,
    /// Three keys: one baby step, one giant step, and where the chain starts.
    Chained,
}

/// What to compile.
pub struct TransformSpec<'a> {
    /// Diagonals of n values by their offset (any representative mod n).
    pub diagonals: &'a BTreeMap<i64, Vec<Complex>>,
    /// Level of the input; the output is one below.
    pub level: usize,
    /// Scale of the encoded diagonals.
    pub scale: Scale,
    /// How to run it.
    pub method: Method,
    /// Bytes of diagonals that may be kept transformed; the others are kept as integers and transformed at
    /// each use.
    pub cache_bytes: usize,
}

/// The steps of a transform, known without its values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransformPlan {
    slots: usize,
    level: usize,
    method: Method,
    /// g
    stride: i64,
    /// B
    babies: i64,
    /// Offsets, between -n/2 and n/2.
    offsets: Vec<i64>,
}

/// A diagonal, ready or to be transformed.
enum Diagonal {
    Ready(Poly<Ntt>),
    /// Coefficients at multiples of `N / len`.
    Compact(Vec<i64>),
}

/// The products that one giant step sums.
struct Giant {
    /// j
    step: i64,
    /// Baby step i and its diagonal, moved back by the giant step.
    terms: Vec<(i64, Diagonal)>,
}

/// A compiled transform.
pub struct LinearTransform {
    plan: TransformPlan,
    scale: Scale,
    shape: Shape,
    giants: Vec<Giant>,
    /// Mean over the slots of the sum of the diagonals' squares: what errors are multiplied with.
    gain: f64,
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
        let n = slots as i64;
        let centred = |d: i64| (d + n / 2 - 1).rem_euclid(n) - n / 2 + 1;
        let offsets: Vec<i64> = offsets.map(centred).collect::<BTreeSet<_>>().into_iter().collect();
        if offsets.is_empty() || level < 2 {
            let why = format!("{} diagonals at level {level}: at least one and level 2 are needed", offsets.len());
            return Err(HeError::Circuit { what: "linear transform", why });
        }
        let stride = offsets.iter().fold(n, |g, &d| gcd(g, d));
        let plan = |babies: i64| Self { slots, level, method, stride, babies, offsets: offsets.clone() };
        let choices = (0..=n.trailing_zeros()).map(|b| plan(1 << b));
        Ok(choices.min_by_key(Self::cost).expect("there is a choice"))
    }

    /// Key switches, those of giant steps weighed double: they divide and raise again.
    fn cost(&self) -> i64 {
        let [babies, giants] = self.steps();
        match self.method {
            Method::Hoisted => babies.len() as i64 + 2 * giants.len() as i64,
            Method::Chained => babies.last().map_or(0, |b| b + 1) + giants.last().map_or(0, |last| last - giants[0]),
        }
    }

    fn split(&self, offset: i64) -> (i64, i64) {
        let d = offset / self.stride;
        (d.div_euclid(self.babies), d.rem_euclid(self.babies))
    }

    /// Baby steps i and giant steps j that occur, ascending.
    fn steps(&self) -> [Vec<i64>; 2] {
        let (mut babies, mut giants) = (BTreeSet::new(), BTreeSet::new());
        for (j, i) in self.offsets.iter().map(|&d| self.split(d)) {
            giants.insert(j);
            babies.insert(i);
        }
        [babies, giants].map(|steps| steps.into_iter().collect())
    }

    /// Slots that giant step `j` moves.
    fn giant(&self, j: i64) -> i64 {
        self.stride * self.babies * j
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
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

/// The shortest power of two of values that repeats, at least 2.
fn period(values: &[Complex]) -> usize {
    let repeats = |p: &usize| values.iter().zip(&values[*p..]).all(|(a, b)| a == b);
    (1..usize::BITS).map(|b| 1 << b).take_while(|p| *p < values.len()).find(repeats).unwrap_or(values.len())
}

impl LinearTransform {
    /// Encodes the diagonals.
    ///
    /// # Errors
    /// [`HeError::Circuit`] for what [`TransformPlan::new`] refuses or a diagonal that has not n values;
    /// [`HeError::Level`] above the highest level; [`HeError::TooLarge`].
    pub fn new(encoder: &Encoder, spec: &TransformSpec<'_>) -> Result<Self, HeError> {
        let (context, n) = (encoder.context(), encoder.slots());
        let levels = context.parameters().levels();
        if spec.level > levels {
            return Err(HeError::Level { what: "linear transform", need: spec.level, have: levels });
        }
        if let Some((d, values)) = spec.diagonals.iter().find(|(_, values)| values.len() != n) {
            let why = format!("diagonal {d} has {} values for {n} slots", values.len());
            return Err(HeError::Circuit { what: "linear transform", why });
        }
        let plan = TransformPlan::new(n, spec.level, spec.method, spec.diagonals.keys().copied())?;
        let special = if spec.method == Method::Hoisted { context.parameters().alpha(spec.level) } else { 0 };
        let shape = Shape { level: spec.level, special };
        let mut by_giant: BTreeMap<i64, Vec<(i64, Vec<Complex>)>> = BTreeMap::new();
        for (&offset, values) in spec.diagonals {
            let centred = (offset + n as i64 / 2 - 1).rem_euclid(n as i64) - n as i64 / 2 + 1;
            let (j, i) = plan.split(centred);
            let mut moved = values.clone();
            moved.rotate_right(plan.giant(j).rem_euclid(n as i64) as usize);
            by_giant.entry(j).or_default().push((i, moved));
        }
        let mut left = spec.cache_bytes;
        let mut giants = Vec::with_capacity(by_giant.len());
        for (step, terms) in by_giant {
            let encode = |(i, values): (i64, Vec<Complex>)| {
                let compact = Diagonal::encode(context, &values, spec.scale)?;
                Ok((i, compact.kept_ready(context, shape, &mut left)))
            };
            let terms = terms.into_iter().map(encode).collect::<Result<_, HeError>>()?;
            giants.push(Giant { step, terms });
        }
        let squares = |values: &Vec<Complex>| values.iter().map(|v| v.re * v.re + v.im * v.im).sum::<f64>();
        let gain = spec.diagonals.values().map(squares).sum::<f64>() / n as f64;
        Ok(Self { plan, scale: spec.scale, shape, giants, gain })
    }

    /// Its steps.
    #[must_use]
    pub fn plan(&self) -> &TransformPlan {
        &self.plan
    }

    /// Scale of its diagonals.
    #[must_use]
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Bytes of its diagonals in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of = |(_, diagonal): &(i64, Diagonal)| match diagonal {
            Diagonal::Ready(poly) => 8 * poly.shape().limbs() * poly.limb(0).len(),
            Diagonal::Compact(coefficients) => 8 * coefficients.len(),
        };
        self.giants.iter().flat_map(|g| &g.terms).map(of).sum()
    }
}

impl Diagonal {
    /// As integers, in the smallest subring that holds it.
    fn encode(context: &Arc<Context>, values: &[Complex], scale: Scale) -> Result<Self, HeError> {
        let period = period(values);
        let coefficients = Encoder::new(context, period)?.small_coefficients(&values[..period], scale)?;
        Ok(Self::Compact(coefficients.to_vec()))
    }

    /// Transformed for good if the budget allows.
    fn kept_ready(self, context: &Context, shape: Shape, left: &mut usize) -> Self {
        let bytes = 8 * shape.limbs() * context.degree();
        match self {
            Self::Compact(coefficients) if *left >= bytes => {
                *left -= bytes;
                Self::Ready(expand(context, shape, &coefficients))
            }
            other => other,
        }
    }

    /// At the primes of `shape`.
    fn at(&self, context: &Context, shape: Shape) -> std::borrow::Cow<'_, Poly<Ntt>> {
        match self {
            Self::Ready(poly) => std::borrow::Cow::Borrowed(poly),
            Self::Compact(coefficients) => std::borrow::Cow::Owned(expand(context, shape, coefficients)),
        }
    }
}

fn expand(context: &Context, shape: Shape, coefficients: &[i64]) -> Poly<Ntt> {
    let mut all = vec![0; context.degree()];
    let gap = all.len() / coefficients.len();
    coefficients.iter().enumerate().for_each(|(k, &c)| all[k * gap] = c);
    Poly::from_signed(context, shape, &all).into_ntt(context)
}

/// `sum diagonal * value` for both halves of the values.
fn dot(context: &Context, shape: Shape, diagonals: &[&Poly<Ntt>], values: &[&[Poly<Ntt>; 2]]) -> [Poly<Ntt>; 2] {
    let mut sums = [Poly::zero(context, shape), Poly::zero(context, shape)];
    let [first, second] = &mut sums;
    first.limbs_mut().zip(second.limbs_mut()).for_each(|((k, sum0), (_, sum1))| {
        let digits: Vec<&[u64]> = diagonals.iter().map(|d| d.limb(k)).collect();
        let pairs: Vec<[&[u64]; 2]> = values.iter().map(|v| [v[0].limb(k), v[1].limb(k)]).collect();
        context.pointwise(shape, k).dot_pair(&digits, &pairs, [sum0, sum1]);
    });
    sums
}

impl Evaluator<'_> {
    /// Applies a transform and rescales: the level falls by one.
    ///
    /// # Errors
    /// [`HeError::Level`], [`HeError::SlotCount`] if the ciphertext is not what it was compiled for;
    /// missing keys.
    pub fn transform(&self, a: &Ciphertext, transform: &LinearTransform) -> Result<Ciphertext, HeError> {
        const WHAT: &str = "linear transform";
        same_slots(WHAT, transform.plan.slots, a.slots())?;
        let level = transform.plan.level;
        if a.level() < level {
            return Err(HeError::Level { what: WHAT, need: level, have: a.level() });
        }
        let a = a.drop_to(level)?;
        let [c0, c1] = match transform.plan.method {
            Method::Hoisted => self.hoisted(&a, transform)?,
            Method::Chained => self.chained(&a, transform)?,
        };
        let prime = self.context.parameters().primes()[level - 1];
        let factor = transform.scale.to_f64() / prime as f64;
        let alpha = self.context.parameters().alpha(level);
        let of_keys = self.keys.deviation(&transform.plan.keys(self.context));
        // Hoisted steps round once, at the end; chained ones at every step, and half of the chain is behind
        // the mean.
        let steps = match transform.plan.method {
            Method::Hoisted => self.digits_error(level, alpha, of_keys),
            Method::Chained => self.switch_error(level, alpha, of_keys) * (transform.plan.cost() as f64 / 2.0).sqrt(),
        };
        let mut estimate = a.estimate;
        let switched = estimate.deviation.hypot(steps) * transform.gain.sqrt() * factor;
        let terms = transform.plan.offsets.len() as f64;
        let encoding = (terms / 12.0).sqrt() * estimate.magnitude * a.scale.to_f64() / prime as f64;
        estimate.deviation = switched.hypot(encoding).hypot(rounding_deviation(self.context.degree()));
        estimate.magnitude *= transform.gain.sqrt();
        Ok(Ciphertext { c0, c1, scale: a.scale.times(transform.scale).over_prime(prime), slots: a.slots, estimate })
    }

    fn hoisted(&self, a: &Ciphertext, transform: &LinearTransform) -> Result<[Poly<Ntt>; 2], HeError> {
        let (context, plan, shape) = (self.context, &transform.plan, transform.shape);
        let raised: Raised = self.raise(a, shape.special);
        let mut babies: BTreeMap<i64, [Poly<Ntt>; 2]> = BTreeMap::new();
        for i in &plan.steps()[0] {
            babies.insert(*i, self.rotate_lazily(a, &raised, plan.stride * i)?);
        }
        drop(raised);
        let mut sum = [Poly::zero(context, shape), Poly::zero(context, shape)];
        for giant in &transform.giants {
            let diagonals: Vec<_> = giant.terms.iter().map(|(_, d)| d.at(context, shape)).collect();
            let diagonals: Vec<&Poly<Ntt>> = diagonals.iter().map(|d| &**d).collect();
            let values: Vec<&[Poly<Ntt>; 2]> = giant.terms.iter().map(|(i, _)| &babies[i]).collect();
            let mut inner = dot(context, shape, &diagonals, &values);
            if giant.step != 0 {
                inner = self.rotate_sum(a.slots(), &inner[0], &inner[1], shape.special, plan.giant(giant.step))?;
            }
            sum.iter_mut().zip(&inner).for_each(|(sum, inner)| sum.add_assign(inner, context));
        }
        Ok(sum.map(|half| context.divide(&half, 1)))
    }

    fn chained(&self, a: &Ciphertext, transform: &LinearTransform) -> Result<[Poly<Ntt>; 2], HeError> {
        let (context, plan, shape) = (self.context, &transform.plan, transform.shape);
        let [steps, _] = plan.steps();
        let mut babies = vec![a.clone()];
        for _ in 0..*steps.last().expect("there is a diagonal") {
            let next = self.rotate(babies.last().expect("it begins with the input"), plan.stride)?;
            babies.push(next);
        }
        let pairs: Vec<[Poly<Ntt>; 2]> = babies.into_iter().map(|b| [b.c0, b.c1]).collect();
        let with = |[c0, c1]: [Poly<Ntt>; 2]| Ciphertext { c0, c1, ..*a };
        let first = transform.giants[0].step;
        let last = transform.giants[transform.giants.len() - 1].step;
        let mut sum: Option<Ciphertext> = None;
        for step in (first..=last).rev() {
            sum = sum.map(|sum| self.rotate(&sum, plan.giant(1))).transpose()?;
            let Some(giant) = transform.giants.iter().find(|g| g.step == step) else { continue };
            let diagonals: Vec<_> = giant.terms.iter().map(|(_, d)| d.at(context, shape)).collect();
            let diagonals: Vec<&Poly<Ntt>> = diagonals.iter().map(|d| &**d).collect();
            let values: Vec<&[Poly<Ntt>; 2]> = giant.terms.iter().map(|(i, _)| &pairs[*i as usize]).collect();
            let inner = with(dot(context, shape, &diagonals, &values));
            sum = Some(match sum {
                Some(sum) => self.add(&sum, &inner)?,
                None => inner,
            });
        }
        let sum = self.rotate(&sum.expect("there is a giant step"), plan.giant(first))?;
        Ok([context.rescaled(&sum.c0), context.rescaled(&sum.c1)])
    }
}
