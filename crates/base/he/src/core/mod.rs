//! Ring, keys and sampling of schemes over one chain of primes, the last of them special:
//! [`coeff`](crate::coeff) and [`bfv`](crate::bfv).
//!
//! [`ckks`](crate::ckks) has a ring and keys of its own, with several special primes and a security
//! check for every key.
//!
//! | file | holds |
//! | --- | --- |
//! | `ring.rs` | degree and chain of primes, checked against 128-bit security |
//! | `sample.rs` | secrets, errors and uniform polynomials in NTT form |
//! | `keys.rs` | the secret key, the public key |
//! | `switch.rs` | key switching |
//! | `reshare.rs` | the randomness of an answer |
//! | `to_ring.rs` | shares mod a prime become shares mod a power of two |

mod bytes;
mod keys;
mod reshare;
mod ring;
mod sample;
mod switch;
mod to_ring;

pub(crate) use bytes::take_seed;
pub use bytes::{polynomial_bytes, put_polynomial, take_polynomial};
pub use keys::{PublicKey, SecretKey};
pub use reshare::ReshareStreams;
pub use ring::{Ring, SECURITY_BITS};
pub use sample::{small, uniform};
pub use switch::{Raised, SwitchScratch, Switching, SwitchingKey, permute};
pub use to_ring::ToRing;

#[cfg(test)]
mod tests;
