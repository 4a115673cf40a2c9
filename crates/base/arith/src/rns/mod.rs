//! Residue number system (RNS): integers and polynomials as residues mod each of several word-sized
//! primes.
//!
//! A [`RnsBasis`] is a chain of primes `p_0, p_1, ..`. The *level* L of a polynomial is the number
//! of primes in use, from the first: it is an element of `Z_q[X]/(X^N + 1)` with `q = p_0 * .. *
//! p_(L-1)`. The type of an [`RnsPoly`] says whether its residues are coefficients ([`Coeff`]) or
//! values in the order of [`crate::ntt`] ([`Ntt`]). A [`Conversion`] takes residues modulo any
//! primes to any others.

mod accumulator;
mod basis;
mod conversion;
mod poly;

pub use accumulator::Accumulator;
pub use basis::{Lift, Rescale, RnsBasis};
pub use conversion::{Conversion, MAX_SOURCES};
pub use poly::{Coeff, Ntt, RnsPoly};

#[cfg(test)]
mod tests;
