//! The session that all back ends with a dealer share: a model at client, server and dealer, and a
//! connection between client and server. A back end implements [`Scheme`], which says how a graph
//! is compiled, [`Correlation`], which says what the dealer makes, and the phases of both parties.
//!
//! `plan` compiles, `lattice` has the layers that need no dealer, `masked_weights` holds A and E, and
//! `setup` brings E to the client. `audit` orders material, `half` receives a party's half, and
//! `material` holds it until the online phase reads it from `source`. `compiled` is a model at each
//! party, and `model` implements the seam on it. `connection` is one at either party. `cost` has
//! what all costs share.

pub(crate) mod audit;
mod compiled;
mod connection;
mod correlation;
pub(crate) mod cost;
mod half;
pub(crate) mod lattice;
pub(crate) mod masked_weights;
mod material;
pub(crate) mod model;
mod plan;
mod setup;
mod source;

pub(crate) use correlation::{ClientOffline, ClientPhases, Correlation, Costed, Run, ServerOffline, ServerPhases};
pub(crate) use half::{HalfBytes, HalfDigest, StoredHalf};
pub(crate) use plan::{Choices, DealerOptions, LinearLayer, Plan, Scheme, steps};
pub(crate) use source::{Bytes, Sink, Source, packed_bytes};
#[cfg(test)]
pub(crate) use {
    compiled::{MAX_HALF, max_inputs},
    half::HalfReceiver,
    material::{check_half, with_digest},
};
