//! Back ends of private inference behind one interface.
//!
//! [`seam`] defines the interface of a back end, and [`Registry`] holds all back ends. [`ring`]
//! lowers float models to fixed point for the back ends that compute on shares. [`lowered`] stores
//! lowerings in files.
//!
//! | back end | how it computes |
//! | --- | --- |
//! | [`cheetah`] | two parties: lattices for linear layers, oblivious transfer for the rest |
//! | [`sci_he`] | two parties: slots of BFV for linear layers, exact truncation |
//! | [`dealt`] | material from a third party ([`dealer`]) |
//! | [`fss`] | material from a third party, with tags that find a party that deviates |
//! | [`ckks`] | one ciphertext each way, on approximate numbers |
//! | [`clear`] | not private: the server sees the input; a lower bound to compare with |
#![forbid(unsafe_code)]

// The toy back end of the tests uses this crate by its external name.
#[cfg(feature = "test-util")]
extern crate self as tacit_backends;

pub mod clear;
pub mod dealer;
mod registry;
#[cfg(feature = "test-util")]
#[path = "../tests/toy/mod.rs"]
pub mod toy;

pub use registry::{DEFAULT, LOWER_BOUND, Registry};
pub use tacit_backend_api::*;
pub use tacit_ckks as ckks;
pub use tacit_dealer_backends::{dealt, fss};
pub use tacit_ring as ring;
pub use tacit_two_party::{cheetah, sci_he};
