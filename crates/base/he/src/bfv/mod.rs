//! BFV on slots: encrypted vectors over a prime field, for linear layers whose answer is a pair of
//! exact shares ([CF2-20] sec. 6; [Delphi20] splits such a scheme into phases).
//!
//! A plaintext is a vector of N values mod p, `p = 1 mod 2N`: two rows of N/2 slots. A ciphertext
//! of the plaintext polynomial `m` is `(b, a)` mod q with `b + a s = round(q m / p) + e`.
//!
//! The server rotates rows (automorphisms `X -> X^(5^k)`) and swaps rows (`X -> X^-1`) with keys of
//! the client, multiplies slot by slot with its weights, and adds up. [`reshare`] turns the result
//! into additive shares mod p; neither party decrypts it.
//!
//! Slot i of a row holds the weight of *class* `i mod C`. The polynomial of such a vector has only
//! 2C nonzero coefficients, so a small transform encodes it and it adds little noise
//! ([`WeightPoly`]).
//!
//! Bounds, failure probabilities and the security argument: `docs/notes/noise.md`.

mod cipher;
mod context;
mod galois;
mod params;
mod plain;
mod reshare;
mod weights;

pub use crate::core::Raised;
pub use cipher::{Ciphertext, Encryptor};
pub use context::{ANSWER_BYTES, Context, DEGREE, FRESH_BYTES, PRIMES, PUBLIC_KEY_BYTES, ROW};
pub use galois::{GALOIS_KEY_BYTES, GaloisKey, Turn, galois_key, raise, turn_slots};
pub use params::{Noise, largest_plain_log2};
pub use plain::{Plain, plain_prime};
pub use reshare::{Opener, Sum, add_products, reshare};
pub use weights::{Classes, MAX_CLASSES, WeightPoly};

#[cfg(test)]
mod tests;
