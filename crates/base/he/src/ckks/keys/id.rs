//! Identity of a key: its purpose, its level and its special primes.

use super::super::context::Context;
use super::super::params::{Parameters, Secret};
use crate::HeError;
use std::collections::BTreeMap;

/// Purpose of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum KeyKind {
    /// Switches from `s^2` to `s`.
    Relinearise,
    /// Serves the automorphism `X -> X^element`.
    Galois(u32),
    /// Switches from the client's secret to the sparse one.
    ToSparse,
    /// Switches from the sparse secret to the client's.
    FromSparse,
    /// A master: derives the key of an automorphism times `X -> X^element`.
    Master(u32),
    /// Switches from zero to `s`: an encryption of zero, to encrypt ciphertexts anew.
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

/// One key: its purpose, its highest level and its number of special primes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyId {
    /// Purpose of the key.
    pub kind: KeyKind,
    /// The highest level that the key serves.
    pub level: usize,
    /// Number of special primes; for a master, those of the keys that it derives.
    pub alpha: usize,
}

impl KeyId {
    /// The key for `kind` at `level`, with the special primes that the parameters give that level.
    pub fn for_level(context: &Context, kind: KeyKind, level: usize) -> Self {
        let alpha = match kind {
            // The modulus under the sparse secret must stay small. A key that switches nothing
            // needs no special prime, but every key has one.
            KeyKind::ToSparse | KeyKind::Zero => 1,
            _ => context.parameters().alpha(level),
        };
        Self { kind, level, alpha }
    }

    /// Checks that the parameters admit such a key.
    ///
    /// # Errors
    /// [`HeError::InsecureKey`]; [`HeError::Circuit`] for a master without special primes.
    pub fn admit(&self, parameters: &Parameters) -> Result<(), HeError> {
        let secret = if self.kind == KeyKind::ToSparse { Secret::Sparse } else { Secret::Ternary };
        let special_primes = parameters.special_primes().len();
        let special = match self.kind {
            KeyKind::Master(_) if self.alpha < special_primes => special_primes,
            KeyKind::Master(_) => {
                let why =
                    format!("keys with {} of {special_primes} special primes leave none for their masters", self.alpha);
                return Err(HeError::Circuit { what: "derivation of keys", why });
            }
            _ => self.alpha,
        };
        parameters.admit(&self.kind.to_string(), secret, self.level, special)
    }
}

/// The keys of `needs`, of each kind and number of special primes only the highest.
pub fn merge_needs(needs: &[KeyId]) -> Vec<KeyId> {
    let mut highest: BTreeMap<(KeyKind, usize), usize> = BTreeMap::new();
    for need in needs {
        let level = highest.entry((need.kind, need.alpha)).or_default();
        *level = need.level.max(*level);
    }
    highest.into_iter().map(|((kind, alpha), level)| KeyId { kind, level, alpha }).collect()
}
