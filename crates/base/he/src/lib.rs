//! Lattice cryptography without networking: keys, parameters, ciphertexts.
//!
//! [`ckks`] is approximate arithmetic on encrypted vectors, from parameters to bootstrapping.
//! [`bfv`] is exact arithmetic on encrypted vectors over a prime field, for the `sci-he` back end.
//! [`core`] holds the rings and keys that schemes share.
//!
//! [`coeff`] is the coefficient-packed scheme of the `cheetah` back end ([Chee22] sec. 3-4):
//! plaintexts are polynomials over `Z_{2^l}`, and the server multiplies ciphertexts by polynomials
//! with small integer coefficients. The result becomes additive shares mod `2^l`; neither party
//! decrypts it.
#![forbid(unsafe_code)]

pub mod bfv;
pub mod ckks;
pub mod coeff;
pub mod core;
mod error;

pub use error::HeError;
