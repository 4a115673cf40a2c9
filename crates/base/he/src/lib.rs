//! Lattice cryptography without any network: keys, parameters, ciphertexts.
//!
//! [`ckks`] is approximate arithmetic on encrypted vectors, from parameters to bootstrapping.
//! [`bfv`] is exact arithmetic on encrypted vectors over a prime field, for the `sci-he` back end.
//! [`core`] is what schemes share: rings and keys. [`coeff`] is the coefficient-packed scheme of the
//! `cheetah` back end ([Chee22] sec. 3-4): plaintexts are polynomials over `Z_{2^l}`, the server multiplies
//! by polynomials with small integer coefficients, and the result is turned into additive shares mod `2^l`
//! without being decrypted in one place.
#![forbid(unsafe_code)]

pub mod bfv;
pub mod ckks;
pub mod coeff;
pub mod core;
mod error;

pub use error::HeError;
