//! `ckks`: the client sends one ciphertext, the server computes on it and answers with one.
//!
//! The network becomes linear maps of slots and polynomials of each slot, in approximate arithmetic
//! (RNS-CKKS, [`tacit_he::ckks`]). Convolutions are single linear transforms of multiplexed images,
//! activations are polynomials, and bootstraps refill levels. The setup uploads switching keys, once for a
//! model; inputs have no offline phase. Answers have an error, a share of their range that the model states.
//! In mode top-1 an arg max on shares (`argmax`) reveals the class alone.
#![forbid(unsafe_code)]

mod activations;
mod argmax;
#[cfg(test)]
mod campaign_tests;
mod circuit;
mod client;
mod derive;
mod emit;
mod expr;
mod fit;
mod hops;
mod intervals;
mod judge;
#[cfg(test)]
mod kept_tests;
mod key_cache;
mod key_requirements;
pub mod keyset;
mod lanes;
mod layout;
mod levelled_program;
mod levels;
mod maps;
mod model;
#[cfg(test)]
mod networks_for_tests;
mod noise;
mod noisy_simulation;
mod options;
mod plan;
mod probes;
mod program;
mod public;
mod refusal;
#[cfg(test)]
mod refusal_tests;
mod refused_cost;
mod report;
mod rotation_method;
mod server;
mod setting;
mod settle;
mod sparse;
#[cfg(test)]
mod tests;
mod wire;

pub use model::Ckks;
pub use public::StepRecord;

use tacit_backend_api::{BackendError, Material, Result};

const NO_SETUP: BackendError = BackendError::Misuse("the setup comes first");
const NOTHING: BackendError = BackendError::Misuse("the back end ckks has nothing to prepare");

fn no_material(bytes: &[u8]) -> Result<Material> {
    match bytes {
        [] => Ok(Material::nothing()),
        _ => Err(BackendError::Material { what: format!("{} bytes for a back end that has none", bytes.len()) }),
    }
}

fn wrong<T>(what: String) -> Result<T> {
    Err(BackendError::Public { what })
}
