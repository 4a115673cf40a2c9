//! Coefficient-packed RLWE over `Z_{2^l}` with one-bit approximate resharing ([Chee22] sec. 3.2 and
//! 4).
//!
//! - **Fresh ciphertexts.** A fresh ciphertext of `m` is `(b, a)` mod `q = p1 p2` with `b + a s = q
//!   m / 2^l + e`. The client sends a seed for `a` and drops the low bits of `b`. It may hold
//!   several polynomials, which the server separates first (`expand`).
//! - **Products.** The server forms `sum W_i ct_i` with small integer polynomials `W_i`, drops
//!   `p2`, and adds an encryption of zero under the client's public key.
//! - **Resharing.** A uniform mask `R` mod `p1` splits the phase `p1 y / 2^l + E` into the server's
//!   part `R = c0 - c0'` and the client's part `c0' + c1 s`. Each party scales its part to
//!   `Z_{2^l}` and rounds. `R` is uniform exactly if `c0' = c0 - R` is, so the parties draw `c0'`
//!   from a public seed, and **the server sends `c1` alone**, without its low bits.
//!
//! Bounds, failure probabilities and the security argument: `docs/notes/noise.md`.

mod cipher;
mod context;
mod expand;
mod params;
mod products;
mod reshare;

pub use cipher::{Blank, Ciphertext, Encryptor};
pub use context::{Context, DEGREE, MAX_STEPS, P1, P2, P3};
pub use expand::{ExpansionKeys, HALVING_NTTS, expansion_key_bytes, expansion_key_memory, expansion_keys};
pub use params::{FAILURE_LOG2, MAX_RING_BITS, Params, ParamsSpec};
pub use products::{Ciphertexts, Sums, Weights};
pub use reshare::{Opener, Sum};

/// Bytes of a serialized public key: a 16-byte seed and N coefficients of 50 bits.
pub const PUBLIC_KEY_BYTES: usize = 16 + DEGREE * 50 / 8;

#[cfg(test)]
mod tests;
