//! Residue number system: integers and polynomials mod a product of word-sized primes, as residues mod each
//! of them.
//!
//! A [`RnsBasis`] is a chain of primes `p_0, p_1, ..`. The *level* of a polynomial is how many of them it
//! uses, from the first: a polynomial at level L is an element of `Z_q[X]/(X^N + 1)` with
//! `q = p_0 * .. * p_(L-1)`. [`RnsPoly`] says in its type whether residues are coefficients ([`Coeff`]) or
//! values in the order of [`crate::ntt`] ([`Ntt`]). [`Conversion`] knows of no basis: it leads from any
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
