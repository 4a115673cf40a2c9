//! Bootstrapping of real slots, SlotToCoeff first ([CHK18] with [CH18]'s order of steps, [BTH22]'s
//! sparse secret):
//!
//! 1. *SlotToCoeff* at the lowest levels: the slots' values become coefficients, down to level 1.
//! 2. *Raise*: under a sparse secret, residues mod `q_0` are read as integers at every prime,
//!    `q_0 I + m`, and switched back to the client's secret. With fewer than N/2 slots, a trace
//!    maps to the subring.
//! 3. *CoeffToSlot*: coefficients become slots, of which the real part is used.
//! 4. *EvalMod*: `sin(2 pi x)` of `x = I + m / q_0` by a cosine and double angles; optionally its
//!    arcsine.
//!
//! Levels, keys, precision and the probability of failure are known before a run
//! (`docs/notes/ckks.md`).

mod plan;
mod run;
mod sine;
mod stages;

pub use plan::{BootstrapSpec, Bootstrapper, MESSAGE_RATIO_BITS};

#[cfg(test)]
mod tests;
