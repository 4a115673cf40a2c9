//! Function secret sharing from a dealer. With its key each of two parties evaluates its share of a
//! comparison or of a table on a public number. Checks detect a deviating party. This module has no
//! network code: the dealer makes keys, a party evaluates its half and prepares its messages.
//!
//! - [`compare`]: authenticated comparison: the shares of `[x < alpha] * Delta`, in 16 bytes a level.
//! - [`table`]: the same keys, evaluated everywhere: one-hot vectors times Delta, for look-ups with tags.
//! - [`dpf`]: semi-honest, trees that end at leaves of 128 bits: comparisons with many thresholds, and
//!   tables.
//! - [`gate`]: sign tests, multiplexers and widening for a server that checks its client.
//! - [`delta`]: the MAC key of bits, its shares, and dealt bits.
//! - [`mac`]: the checks of opened bits and opened ring elements.
//!
//! The argument for all of it is `docs/notes/fss.md`; the figures are in `docs/parameters.md`.

pub mod compare;
pub mod delta;
pub mod dpf;
mod expand;
pub mod gate;
mod group;
pub mod mac;
pub mod table;
pub mod tree_hash;

pub use group::{Bound, GROUP};

#[cfg(test)]
mod check_tests;
#[cfg(test)]
mod leak_tests;
#[cfg(test)]
mod tests;
