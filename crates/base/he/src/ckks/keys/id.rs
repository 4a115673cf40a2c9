//! What a key is for.

use super::super::context::Context;
use super::super::params::{Parameters, Secret};
use crate::HeError;
use std::collections::BTreeMap;

/// What a key does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum KeyKind {
    /// From `s^2` to `s`.
    Relinearise,
    /// For the automorphism `X -> X^element`.
    Galois(u32),
    /// From the client's secret to the sparse one.
    ToSparse,
    /// From the sparse secret to the client's.
    FromSparse,
    /// Derives keys: from that of an automorphism to that of it and `X -> X^element`.
    Master(u32),
    /// From nothing to `s`, an encryption of zero: with it anybody encrypts a ciphertext anew.
    Zero,
}

impl std::fmt::Display for KeyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Relinearise => f.write_str("relinearisation"),
            Self::Galois(element) => write!(f, "Galois element {element}"),
            Self::ToSparse => f.write_str("switching to the sparse secret"),
            Self::FromSparse => f.write_str("switching from the sparse secret"),
            Self::Master(element) => write!(f, "derivation by Galois element {element}"),
            Self::Zero => f.write_str("encrypting anew"),
        }
    }
}

/// One key: what it does, up to which level, with how many special primes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyId {
    /// What it does.
    pub kind: KeyKind,
    /// The highest level it serves.
    pub level: usize,
    /// Its special primes; of a master those of the keys that are derived with it.
    pub alpha: usize,
}

impl KeyId {
    /// The key for `kind` at `level`, with the special primes that the parameters give to that level.
    #[must_use]
    pub fn at(context: &Context, kind: KeyKind, level: usize) -> Self {
        let alpha = match kind {
            // The key under the sparse secret has one, whatever its level: its modulus must stay small. What
            // switches nothing needs none, and every key has one.
            KeyKind::ToSparse | KeyKind::Zero => 1,
            _ => context.parameters().alpha(level),
        };
        Self { kind, level, alpha }
    }

    /// Whether such a key may exist with these parameters.
    ///
    /// # Errors
    /// [`HeError::InsecureKey`]; [`HeError::Circuit`] for a master where the keys that it is to derive leave
    /// it no special primes.
    pub fn admit(&self, parameters: &Parameters) -> Result<(), HeError> {
        let secret = if self.kind == KeyKind::ToSparse { Secret::Sparse } else { Secret::Ternary };
        let all = parameters.special_primes().len();
        let special = match self.kind {
            KeyKind::Master(_) if self.alpha < all => all,
            KeyKind::Master(_) => {
                let why = format!("keys with {} of {all} special primes leave none for their masters", self.alpha);
                return Err(HeError::Circuit { what: "derivation of keys", why });
            }
            _ => self.alpha,
        };
        parameters.admit(&self.kind.to_string(), secret, self.level, special)
    }
}

/// The keys of `needs` with those left out that another of the list does the work of: the same kind and
/// special primes at a higher level.
#[must_use]
pub fn merged(needs: &[KeyId]) -> Vec<KeyId> {
    let mut highest: BTreeMap<(KeyKind, usize), usize> = BTreeMap::new();
    for need in needs {
        let level = highest.entry((need.kind, need.alpha)).or_default();
        *level = need.level.max(*level);
    }
    highest.into_iter().map(|((kind, alpha), level)| KeyId { kind, level, alpha }).collect()
}
