//! The ring, keys and sampling of schemes over one chain of primes without special ones: of
//! [`coeff`](crate::coeff). [`ckks`](crate::ckks) has its own, with special primes, keys for switching and
//! parameters of which each key is checked; both stand on [`tacit_arith`].
//!
//! | file | holds |
//! | --- | --- |
//! | `ring.rs` | degree and chain of primes, checked against 128-bit security |
//! | `sample.rs` | secrets, errors and uniform polynomials in NTT form |
//! | `keys.rs` | the secret key, the public key |
//! | `to_ring.rs` | shares mod a prime become shares mod a power of two |

mod bytes;
mod keys;
mod ring;
mod sample;
mod to_ring;

pub use bytes::{polynomial_bytes, put_polynomial, take_polynomial};
pub use keys::{PublicKey, SecretKey};
pub use ring::{Ring, SECURITY_BITS};
pub use sample::{small, uniform};
pub use to_ring::ToRing;

#[cfg(test)]
mod tests;
