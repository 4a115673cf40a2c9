//! Keys to send where the server derives keys ([LLKN23]): a few masters in place of rotation keys.

use std::collections::BTreeMap;

use tacit_he::ckks::{Context, Derivation, KeyId, KeyKind, KeySet, SwitchKey};

use super::hops::{Hops, signed_powers};
use super::levelled_program::backend_error;
use tacit_backend_api::Result;

/// Most steps from a master to a derived key, unless signed powers of two need more: each adds noise.
const MAX_STEPS: u32 = 3;

/// The keys that the client sends, of which the server derives others.
#[derive(Default)]
pub(super) struct SentKeys {
    pub keys: Vec<KeyId>,
    /// How the server derives other keys from them.
    pub derivations: Vec<Derivation>,
}

impl SentKeys {
    pub fn without_derivation(keys: Vec<KeyId>) -> Self {
        Self { keys, derivations: Vec::new() }
    }

    /// Replaces rotation keys by masters, where the parameters leave special primes for masters and bytes are
    /// saved.
    pub fn with_derivation(context: &Context, keys: Vec<KeyId>) -> Result<Self> {
        let n = context.degree() / 2;
        let distances: BTreeMap<u32, i64> = (1..n as i64).map(|k| (context.rotation_element(k), k)).collect();
        // Grouped by the number of special primes: a master serves keys with as many, up to its
        // level.
        let mut groups: BTreeMap<usize, Vec<(KeyId, i64)>> = BTreeMap::new();
        for id in &keys {
            let KeyKind::Galois(element) = id.kind else { continue };
            let Some(&k) = distances.get(&element) else { continue };
            if master(context, id, 1).admit(context.parameters()).is_ok() {
                groups.entry(id.alpha).or_default().push((*id, k));
            }
        }
        let mut sent = Self::without_derivation(keys);
        for group in groups.values() {
            let level = group.iter().map(|(id, _)| id.level).max().unwrap_or(1);
            let generators = generators(n, &group.iter().map(|(_, k)| *k).collect::<Vec<_>>());
            let masters: Vec<KeyId> =
                generators.iter().map(|&k| master(context, &KeyId { level, ..group[0].0 }, k)).collect();
            let needs: Vec<KeyId> = group.iter().map(|(id, _)| *id).collect();
            let derivation = Derivation::new(context, &needs, &masters).map_err(backend_error)?;
            let direct_bytes: usize = needs.iter().map(|&id| SwitchKey::packed_bytes(context, id)).sum();
            if derivation.upload_bytes(context) < direct_bytes {
                sent.keys.retain(|id| !needs.contains(id));
                sent.keys.extend(masters);
                sent.derivations.push(derivation);
            }
        }
        Ok(sent)
    }

    /// Bytes of the keys that the server computes with: sent keys without masters, and both halves of derived
    /// keys.
    pub fn resident_bytes(&self, context: &Context) -> u64 {
        let resident = self.keys.iter().filter(|id| !matches!(id.kind, KeyKind::Master(_)));
        let bytes: usize = resident.map(|&id| SwitchKey::packed_bytes(context, id)).sum();
        bytes as u64 + self.derived_bytes(context)
    }

    pub fn derived_bytes(&self, context: &Context) -> u64 {
        self.derivations.iter().map(|derivation| derivation.memory_bytes(context) as u64).sum()
    }

    /// Number-theoretic transforms of the derivation.
    pub fn transforms(&self, context: &Context) -> u64 {
        self.derivations.iter().map(|derivation| derivation.transforms(context) as u64).sum()
    }

    /// Returns `sent` with all derived keys.
    ///
    /// # Errors
    /// An error in reading a master from a file.
    pub fn complete(&self, context: &Context, sent: &KeySet) -> Result<KeySet> {
        let mut keys = sent.clone();
        for derivation in &self.derivations {
            keys.extend(derivation.run(context, sent).map_err(backend_error)?);
        }
        Ok(keys)
    }
}

/// The master for distance `k`, with the level and primes of a key.
fn master(context: &Context, id: &KeyId, k: i64) -> KeyId {
    KeyId { kind: KeyKind::Master(context.rotation_element(k)), ..*id }
}

/// Few distances whose sums give all of `needs`: the signed powers of two, without those that can be
/// left out while no sum takes more than [`MAX_STEPS`] terms.
fn generators(n: usize, needs: &[i64]) -> Vec<i64> {
    let mut generators = signed_powers(n);
    let max_steps = max_hops(n, needs, &generators).max(MAX_STEPS);
    for generator in generators.clone() {
        let without: Vec<i64> = generators.iter().copied().filter(|k| *k != generator).collect();
        if max_hops(n, needs, &without) <= max_steps {
            generators = without;
        }
    }
    generators
}

/// The most terms of a sum of `generators` that gives one of `needs`.
fn max_hops(n: usize, needs: &[i64], generators: &[i64]) -> u32 {
    let hops = Hops::new(n, generators.iter().copied());
    needs.iter().map(|&k| hops.count_to(k)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_are_minimal() {
        let needs = [3, 33, 1, 1056, 16_383, 5 * 32];
        let generators = generators(1 << 14, &needs);
        let reach = |generators: &[i64]| {
            let hops = Hops::new(1 << 14, generators.iter().copied());
            needs.iter().all(|&k| hops.count_to(k) <= MAX_STEPS)
        };
        assert!(reach(&generators), "{generators:?}");
        assert!(generators.len() < 12, "{generators:?}");
        for k in &generators {
            assert!(!reach(&generators.iter().copied().filter(|g| g != k).collect::<Vec<_>>()), "{k} is idle");
        }
    }
}
