//! Back ends of two parties alone: `cheetah` and `sci-he`. Both make their non-linear layers of one
//! gate from oblivious transfer; they differ in the lattice half ([`cheetah::Lattice`]).
#![forbid(unsafe_code)]

pub mod cheetah;
pub mod sci_he;
