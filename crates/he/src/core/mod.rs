//! What the lattice schemes of this crate share: the ring with its security check, keys, and the sampling of
//! small and of seeded uniform polynomials. A scheme (here [`coeff`](crate::coeff); later BFV and CKKS) adds
//! its encoding, its ciphertexts and what it does with them.
//!
//! | file | holds | BFV and CKKS will add |
//! | --- | --- | --- |
//! | `ring.rs` | degree and chain of primes, checked against 128-bit security | special primes (alpha of them at the end of the chain) |
//! | `sample.rs` | secrets, errors and uniform polynomials in NTT form | nothing |
//! | `keys.rs` | the secret key, the public key | conjugated and rotated secrets for switching keys |
//!
//! Beside them will come `gadget.rs` (decomposition into `dnum` digits; `mod_up` and `mod_down` go into
//! [`tacit_arith::rns`]), `switch.rs` (key-switching keys: one seeded encryption per digit, at the level of
//! the ciphertext or above) and `galois.rs` (automorphisms as permutations of the NTT order, with the key
//! that each needs).

mod keys;
mod ring;
mod sample;

pub use keys::{PublicKey, SecretKey};
pub use ring::{Ring, SECURITY_BITS};
pub use sample::{small, uniform};

#[cfg(test)]
mod tests;
