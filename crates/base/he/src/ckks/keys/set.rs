//! Sets of switching keys.

use super::super::context::Context;
use super::super::noise::fresh_deviation;
use super::super::poly::{Ntt, Poly};
use super::file::KeyFile;
use super::id::{KeyId, KeyKind, merge_needs};
use super::secret::SecretKey;
use super::switch::{KeyForm, Origin, SwitchKey};
use crate::HeError;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use tacit_arith::prg::SplitPrg;
use zeroize::Zeroizing;

/// Keys of a file, within a budget of bytes in memory.
struct Paged {
    context: Arc<Context>,
    file: KeyFile,
    places: BTreeMap<KeyId, usize>,
    budget: usize,
    /// Loaded keys, the most recently used last.
    loaded: Mutex<VecDeque<(usize, Arc<SwitchKey>)>>,
}

/// Keys of one client, in memory or in a file. Clones share them.
#[derive(Clone, Default)]
pub struct KeySet {
    keys: BTreeMap<KeyId, Arc<SwitchKey>>,
    paged: Option<Arc<Paged>>,
}

/// Makes the keys of one client, one at a time.
pub struct KeyMaker<'a> {
    secret: &'a SecretKey,
    /// The sparse secret of bootstrapping.
    sparse: Zeroizing<Poly<Ntt>>,
    prg: &'a mut SplitPrg,
}

impl<'a> KeyMaker<'a> {
    /// A maker of keys for `secret`.
    pub fn new(secret: &'a SecretKey, prg: &'a mut SplitPrg) -> Self {
        Self { secret, sparse: secret.sparse(), prg }
    }

    /// Makes the key `id`. The server may have named it, so a key with less than 128 bits of
    /// security is refused.
    ///
    /// # Errors
    /// [`HeError::InsecureKey`]; [`HeError::Circuit`] for a master without special primes.
    ///
    /// # Panics
    /// If the parameters have fewer primes than `id` asks for.
    pub fn make(&mut self, id: KeyId) -> Result<SwitchKey, HeError> {
        id.admit(self.secret.context().parameters())?;
        let (context, s, sparse) = (self.secret.context(), self.secret.s(), &*self.sparse);
        let mut switch_key =
            |old_secret, new_secret| SwitchKey::generate(old_secret, new_secret, context, id, self.prg);
        Ok(match id.kind {
            KeyKind::Relinearise => {
                let mut square = Zeroizing::new(s.clone());
                square.mul_assign(s, context);
                switch_key(&square, s)
            }
            // The automorphism follows the switch, on two polynomials rather than on every digit.
            KeyKind::Galois(element) | KeyKind::Master(element) => {
                let image = Zeroizing::new(s.automorphism(context, inverse_element(context, element)));
                switch_key(s, &image)
            }
            KeyKind::ToSparse => switch_key(s, sparse),
            KeyKind::FromSparse => switch_key(sparse, s),
            KeyKind::Zero => switch_key(&Poly::zero(context, s.shape()), s),
        })
    }
}

impl KeySet {
    /// Makes the keys `needs` of `secret` ([`merge_needs`]).
    ///
    /// # Errors
    /// As [`KeyMaker::make`].
    pub fn generate(secret: &SecretKey, needs: &[KeyId], prg: &mut SplitPrg) -> Result<Self, HeError> {
        let mut maker = KeyMaker::new(secret, prg);
        let mut set = Self::default();
        for id in merge_needs(needs) {
            set.insert(maker.make(id)?);
        }
        Ok(set)
    }

    /// The keys of a file, of which at most `budget` bytes stay in memory between uses.
    pub fn paged(context: &Arc<Context>, file: KeyFile, budget: usize) -> Self {
        let places = file.ids().enumerate().map(|(place, id)| (id, place)).collect();
        let loaded = Mutex::default();
        let paged = Paged { context: context.clone(), file, places, budget, loaded };
        Self { keys: BTreeMap::new(), paged: Some(Arc::new(paged)) }
    }

    /// Adds a key.
    pub fn insert(&mut self, key: SwitchKey) {
        self.keys.insert(key.id(), Arc::new(key));
    }

    /// Adds the keys that `other` has in memory.
    pub fn extend(&mut self, other: Self) {
        self.keys.extend(other.keys);
    }

    /// The party that made the key `id`, if present. Keys of files are uploaded.
    pub fn origin(&self, id: KeyId) -> Option<Origin> {
        let origin = self.keys.get(&id).map(|key| key.origin());
        origin.or_else(|| self.paged.as_ref().is_some_and(|p| p.places.contains_key(&id)).then_some(Origin::Uploaded))
    }

    /// Largest deviation of the keys that serve `needs`. A missing key counts as a fresh one.
    pub fn deviation(&self, needs: &[KeyId]) -> f64 {
        let serving = needs.iter().filter_map(|need| self.find(need.kind, need.level, Some(need.alpha)).ok());
        let deviations = serving.filter_map(|id| self.keys.get(&id)).map(|key| key.deviation());
        deviations.fold(fresh_deviation(), tacit_floats::larger)
    }

    /// The keys present, in memory or in the file.
    pub fn ids(&self) -> Vec<KeyId> {
        self.all().collect()
    }

    /// The keys in memory, then those of the file.
    fn all(&self) -> impl Iterator<Item = KeyId> {
        self.keys.keys().chain(self.paged.iter().flat_map(|p| p.places.keys())).copied()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.all().count()
    }

    /// Whether the set has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the keys in memory now.
    pub fn memory_bytes(&self) -> usize {
        let resident: usize = self.keys.values().map(|key| key.memory_bytes()).sum();
        resident + self.paged.as_ref().map_or(0, |paged| paged.memory_bytes())
    }

    /// Converts every key in memory to `form`. Expanded keys stay expanded.
    ///
    /// # Errors
    /// [`HeError::Range`] if packed bytes are not residues.
    pub fn hold_as(&mut self, context: &Context, form: KeyForm) -> Result<(), HeError> {
        if form == KeyForm::Expanded {
            for key in self.keys.values_mut() {
                *key = Arc::new(key.expanded(context)?);
            }
        }
        Ok(())
    }

    /// The lowest key for `kind` that reaches the level, with `alpha` special primes if given, else
    /// with the fewest.
    fn find(&self, kind: KeyKind, level: usize, alpha: Option<usize>) -> Result<KeyId, HeError> {
        let of_kind: Vec<KeyId> = self.all().filter(|id| id.kind == kind).collect();
        let reach = || of_kind.iter().filter(|id| id.level >= level);
        if let Some(id) = reach().filter(|id| alpha.is_none_or(|alpha| id.alpha == alpha)).min_by_key(|id| id.level) {
            return Ok(*id);
        }
        Err(match (reach().next(), of_kind.iter().map(|id| id.level).max(), alpha) {
            (Some(other), _, Some(need)) => HeError::KeyAlpha { key: kind.to_string(), need, have: other.alpha },
            (_, Some(have), _) => HeError::KeyTooLow { key: kind.to_string(), level, have },
            (_, None, _) => HeError::MissingKey { key: kind.to_string(), level },
        })
    }

    fn get_by_id(&self, id: KeyId) -> Result<Arc<SwitchKey>, HeError> {
        match (self.keys.get(&id), &self.paged) {
            (Some(key), _) => Ok(key.clone()),
            (None, Some(paged)) => paged.load(id),
            (None, None) => Err(HeError::MissingKey { key: id.kind.to_string(), level: id.level }),
        }
    }

    /// The lowest key for `kind` that reaches `level`.
    ///
    /// # Errors
    /// [`HeError::MissingKey`], [`HeError::KeyTooLow`]; errors of reading the key from a file.
    pub fn get(&self, kind: KeyKind, level: usize) -> Result<Arc<SwitchKey>, HeError> {
        self.get_by_id(self.find(kind, level, None)?)
    }

    /// As [`KeySet::get`], with `alpha` special primes: keys of one hoisted step share digits.
    ///
    /// # Errors
    /// Those of [`KeySet::get`]; [`HeError::KeyAlpha`] for another number of special primes.
    pub fn get_with(&self, kind: KeyKind, level: usize, alpha: usize) -> Result<Arc<SwitchKey>, HeError> {
        self.get_by_id(self.find(kind, level, Some(alpha))?)
    }

    /// Checks that all keys are present, before a circuit runs.
    ///
    /// # Errors
    /// [`HeError::MissingKey`], [`HeError::KeyTooLow`] or [`HeError::KeyAlpha`] for the first unmet
    /// need.
    pub fn check(&self, needs: &[KeyId]) -> Result<(), HeError> {
        needs.iter().try_for_each(|need| self.find(need.kind, need.level, Some(need.alpha)).map(|_| ()))
    }
}

impl Paged {
    const NOT_POISONED: &str = "nothing panics while it holds the list of keys";

    fn memory_bytes(&self) -> usize {
        self.loaded.lock().expect(Self::NOT_POISONED).iter().map(|(_, key)| key.memory_bytes()).sum()
    }

    /// Loads a key, or finds it among those loaded before.
    fn load(&self, id: KeyId) -> Result<Arc<SwitchKey>, HeError> {
        let place =
            *self.places.get(&id).ok_or_else(|| HeError::MissingKey { key: id.kind.to_string(), level: id.level })?;
        {
            let mut loaded = self.loaded.lock().expect(Self::NOT_POISONED);
            if let Some(position) = loaded.iter().position(|(p, _)| *p == place) {
                let entry = loaded.remove(position).expect("it has just been found");
                let key = entry.1.clone();
                loaded.push_back(entry);
                return Ok(key);
            }
        }
        // The lock is free meanwhile: two threads may read the same key, which costs only time.
        let key = Arc::new(self.file.load(&self.context, place)?);
        if key.memory_bytes() > self.budget {
            // Such a key would evict all others.
            return Ok(key);
        }
        let mut loaded = self.loaded.lock().expect(Self::NOT_POISONED);
        loaded.push_back((place, key.clone()));
        let mut bytes: usize = loaded.iter().map(|(_, key)| key.memory_bytes()).sum();
        while bytes > self.budget {
            let Some((_, evicted)) = loaded.pop_front() else { break };
            bytes -= evicted.memory_bytes();
        }
        Ok(key)
    }
}

pub(in super::super) fn inverse_element(context: &Context, element: u32) -> u32 {
    let mask = 2 * context.degree() as u32 - 1;
    // Newton's iteration for the inverse of an odd number mod a power of two: 5 steps from 3 bits.
    (0..5).fold(element, |x, _| x.wrapping_mul(2u32.wrapping_sub(element.wrapping_mul(x)))) & mask
}

#[cfg(test)]
mod tests;
