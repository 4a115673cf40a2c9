//! Rotation keys that the server derives ([LLKN23]) from a few masters.
//!
//! A rotation key for the automorphism g holds encryptions of `P g_j s` under `g^-1(s)`, mod `Q P`.
//! The master of h switches from s to `h^-1(s)` mod `Q P P'`. Applied to `g(b_j), g(a_j)`, which
//! are under s, and followed by `g^-1`, it gives encryptions of the same under `(g h)^-1(s)`: a key
//! for g h. The first step starts from `(0, P g_j)`, a key for the identity. Each step adds the
//! error of one switch: that of digits mod P', and the rounding by P'.

use super::super::context::Context;
use super::super::noise::{fresh_deviation, rounding_deviation, switched_deviation};
use super::super::poly::{Ntt, Poly};
use super::super::shape::Shape;
use super::gadget::Gadget;
use super::id::{KeyId, KeyKind, merge_needs};
use super::set::{KeySet, inverse_element};
use super::switch::SwitchKey;
use crate::HeError;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A derived key: its element is a master's times that of an earlier step (or of the identity).
#[derive(Clone, Copy, Debug)]
struct Step {
    element: u32,
    predecessor: Option<usize>,
    /// Index of the master.
    master: usize,
    is_needed: bool,
}

/// A plan that derives rotation keys from masters.
pub struct Derivation {
    masters: Vec<KeyId>,
    /// Steps by the level and special primes of the keys that they make.
    groups: BTreeMap<(usize, usize), Vec<Step>>,
}

/// Deviation of a key that `master` makes at `level` from one with the deviation `predecessor`
/// (`None`: from the identity).
pub fn derived_deviation(context: &Context, master: KeyId, level: usize, predecessor: Option<f64>) -> f64 {
    let (parameters, degree) = (context.parameters(), context.degree());
    let gadget = Gadget::of(master, parameters);
    let (mut digits, special) = (gadget.digit_log2(parameters, level), gadget.special_log2(parameters));
    let Some(predecessor) = predecessor else {
        // The one nonzero residue of the identity is a constant.
        digits.truncate(1);
        return switched_deviation(1, &digits, special, fresh_deviation()).hypot(rounding_deviation(degree));
    };
    let switched = switched_deviation(degree, &digits, special, fresh_deviation());
    predecessor.hypot(switched).hypot(rounding_deviation(degree))
}

impl Derivation {
    /// Plans the keys `needs` from `masters` by the fewest possible steps, which keys share.
    ///
    /// # Errors
    /// [`HeError::MissingKey`] for other keys than rotations, or whose element is no product of the
    /// masters'; [`HeError::KeyTooLow`] or [`HeError::KeyAlpha`] for lower levels or other special
    /// primes of the masters; errors of [`KeyId::admit`].
    pub fn new(context: &Context, needs: &[KeyId], masters: &[KeyId]) -> Result<Self, HeError> {
        masters.iter().try_for_each(|master| master.admit(context.parameters()))?;
        let mut needed: BTreeMap<(usize, usize), Vec<u32>> = BTreeMap::new();
        for need in merge_needs(needs) {
            let KeyKind::Galois(element) = need.kind else {
                return Err(HeError::MissingKey { key: need.kind.to_string(), level: need.level });
            };
            check_usable(masters, need)?;
            needed.entry((need.level, need.alpha)).or_default().push(element);
        }
        let mut groups = BTreeMap::new();
        for ((level, alpha), elements) in needed {
            groups.insert((level, alpha), steps(context, masters, level, alpha, &elements)?);
        }
        Ok(Self { masters: masters.to_vec(), groups })
    }

    /// Masters that derive keys at `level`, for rotations by `distances`.
    pub fn masters(context: &Context, level: usize, distances: &[i64]) -> Vec<KeyId> {
        let kinds = distances.iter().map(|&k| KeyKind::Master(context.rotation_element(k)));
        kinds.map(|kind| KeyId::for_level(context, kind, level)).collect()
    }

    /// Keys that the plan makes for the circuit.
    pub fn keys(&self) -> impl Iterator<Item = KeyId> {
        self.groups.iter().flat_map(|(&(level, alpha), steps)| {
            let needed = steps.iter().filter(|step| step.is_needed);
            needed.map(move |step| KeyId { kind: KeyKind::Galois(step.element), level, alpha })
        })
    }

    /// Bytes of the masters, as sent and in memory.
    pub fn upload_bytes(&self, context: &Context) -> usize {
        self.masters.iter().map(|&id| SwitchKey::packed_bytes(context, id)).sum()
    }

    /// Bytes in memory of the keys that the plan makes.
    pub fn memory_bytes(&self, context: &Context) -> usize {
        self.keys().map(|id| SwitchKey::derived_bytes(context, id)).sum()
    }

    /// Number of steps, including those to intermediate keys.
    pub fn steps(&self) -> usize {
        self.groups.values().map(Vec::len).sum()
    }

    /// Number-theoretic transforms of a run.
    pub fn transforms(&self, context: &Context) -> usize {
        let groups = self.groups.iter();
        let steps = groups.flat_map(|(&(level, alpha), steps)| steps.iter().map(move |step| (level, alpha, step)));
        steps.map(|(level, alpha, step)| self.step_transforms(context, level, alpha, step)).sum()
    }

    fn step_transforms(&self, context: &Context, level: usize, alpha: usize, step: &Step) -> usize {
        let master = Gadget::of(self.masters[step.master], context.parameters());
        let digits = master.digits_at(level).count();
        // Transforms of the digits and of both sums.
        Gadget::plain(level, alpha).len() * (digits + 2) * master.at(level).shape.limbs()
    }

    /// Makes the keys. Only those that later steps start from are in memory beside the result.
    ///
    /// # Errors
    /// [`HeError::MissingKey`], [`HeError::KeyTooLow`] or [`HeError::KeyAlpha`] if `masters` lacks
    /// one, before anything is computed; errors of reading a master.
    pub fn run(&self, context: &Context, masters: &KeySet) -> Result<KeySet, HeError> {
        masters.check(&self.masters)?;
        let mut set = KeySet::default();
        for (&(level, alpha), steps) in &self.groups {
            let mut keys: Vec<Option<SwitchKey>> = Vec::with_capacity(steps.len());
            let mut readers = vec![0usize; steps.len()];
            steps.iter().filter_map(|step| step.predecessor).for_each(|predecessor| readers[predecessor] += 1);
            for step in steps {
                let id = KeyId { kind: KeyKind::Galois(step.element), level, alpha };
                let predecessor =
                    step.predecessor.map(|i| keys[i].as_ref().expect("it is kept while others follow from it"));
                let master = self.masters[step.master];
                let master = masters.get_with(master.kind, master.level, alpha)?;
                let key = derive(context, id, predecessor, &master)?;
                keys.push(Some(key));
                if let Some(i) = step.predecessor {
                    readers[i] -= 1;
                }
                // A key that no later step starts from moves to the set or is dropped.
                for (i, step) in steps.iter().enumerate().take(keys.len()).filter(|(i, _)| readers[*i] == 0) {
                    if let Some(key) = keys[i].take().filter(|_| step.is_needed) {
                        set.insert(key);
                    }
                }
            }
        }
        Ok(set)
    }
}

fn check_usable(masters: &[KeyId], need: KeyId) -> Result<(), HeError> {
    let key = need.kind.to_string();
    let highest = masters.iter().filter(|m| m.alpha == need.alpha).map(|m| m.level).max();
    match (highest, masters.first()) {
        (Some(have), _) if have < need.level => Err(HeError::KeyTooLow { key, level: need.level, have }),
        (Some(_), _) => Ok(()),
        (None, Some(other)) => Err(HeError::KeyAlpha { key, need: need.alpha, have: other.alpha }),
        (None, None) => Err(HeError::MissingKey { key, level: need.level }),
    }
}

/// Steps to all of `elements`, in order, by breadth-first search over products of the masters'
/// elements.
fn steps(
    context: &Context,
    masters: &[KeyId],
    level: usize,
    alpha: usize,
    elements: &[u32],
) -> Result<Vec<Step>, HeError> {
    let mask = 2 * context.degree() as u32 - 1;
    let factors: Vec<(usize, u32)> = masters
        .iter()
        .enumerate()
        .filter(|(_, m)| m.alpha == alpha && m.level >= level)
        .filter_map(|(i, m)| if let KeyKind::Master(element) = m.kind { Some((i, element)) } else { None })
        .collect();
    // For each element reached: the element before it, and the master.
    let mut reached: HashMap<u32, (u32, usize)> = HashMap::new();
    let mut missing: Vec<u32> = elements.to_vec();
    let mut next = VecDeque::from([1u32]);
    while let Some(reached_element) = next.pop_front() {
        if missing.is_empty() {
            break;
        }
        for &(master, factor) in &factors {
            let element = reached_element.wrapping_mul(factor) & mask;
            if element != 1 && !reached.contains_key(&element) {
                reached.insert(element, (reached_element, master));
                missing.retain(|e| *e != element);
                next.push_back(element);
            }
        }
    }
    if let Some(&element) = missing.first() {
        return Err(HeError::MissingKey { key: KeyKind::Galois(element).to_string(), level });
    }
    let mut steps: Vec<Step> = Vec::new();
    let mut places: HashMap<u32, usize> = HashMap::new();
    for &element in elements {
        let path = std::iter::successors(Some(element), |e| Some(reached[e].0).filter(|predecessor| *predecessor != 1));
        let new: Vec<u32> = path.take_while(|e| !places.contains_key(e)).collect();
        for e in new.into_iter().rev() {
            let (reached_element, master) = reached[&e];
            places.insert(e, steps.len());
            steps.push(Step {
                element: e,
                predecessor: places.get(&reached_element).copied(),
                master,
                is_needed: elements.contains(&e),
            });
        }
    }
    Ok(steps)
}

/// Makes the key `id` from its predecessor (or the identity) and the master between them.
fn derive(
    context: &Context,
    id: KeyId,
    predecessor: Option<&SwitchKey>,
    master: &SwitchKey,
) -> Result<SwitchKey, HeError> {
    let gadget = Gadget::of(id, context.parameters());
    let element = predecessor.map_or(1, |key| match key.id().kind {
        KeyKind::Galois(element) => element,
        _ => unreachable!("steps make keys of rotations"),
    });
    let inverse = inverse_element(context, element);
    let mut pairs = Vec::with_capacity(gadget.len());
    for j in 0..gadget.len() {
        let [b, a] = match predecessor {
            Some(key) => key.pair(context, j)?.map(|half| half.automorphism(context, element)),
            None => identity(context, gadget, j),
        };
        let [mut sum, second] =
            master.inner_product(context, &a, [None; 2]).map(|half| context.divide_to(&half, gadget.shape));
        sum.add_assign(&b, context);
        pairs.push([sum, second].map(|half| half.automorphism(context, inverse)));
    }
    let deviation = derived_deviation(context, master.id(), id.level, predecessor.map(SwitchKey::deviation));
    Ok(SwitchKey::derived(context, id, deviation, &pairs))
}

/// `(0, P g_j)`: an encryption of `P g_j s` under s.
fn identity(context: &Context, gadget: Gadget, j: usize) -> [Poly<Ntt>; 2] {
    let shape: Shape = gadget.shape;
    let digit_limbs = gadget.digit(j);
    let mut a = Poly::zero(context, shape);
    a.add_constant(
        context,
        |k| if digit_limbs.contains(&k) { context.special_product(shape, gadget.own(), k) } else { 0 },
    );
    [Poly::zero(context, shape), a]
}

#[cfg(test)]
mod tests;
