//! Operations on ciphertexts, run by the server.

mod basic;
mod diagonal;
mod linear;
mod polynomial;
mod reveal;
mod rotate;
mod split;
mod switch;

pub use linear::{LinearTransform, TransformSpec};
pub use polynomial::{Basis, Polynomial, Powers, relinearisation_needs};
pub use split::{Method, TransformPlan, TransformWork};
pub use switch::Raised;

use super::context::Context;
use super::keys::KeySet;
use std::sync::Arc;

/// Evaluates operations on ciphertexts with one client's keys.
#[derive(Clone, Copy)]
pub struct Evaluator<'a> {
    context: &'a Arc<Context>,
    keys: &'a KeySet,
}

impl<'a> Evaluator<'a> {
    /// Makes an evaluator with the keys `keys`.
    pub fn new(context: &'a Arc<Context>, keys: &'a KeySet) -> Self {
        Self { context, keys }
    }

    /// The keys.
    pub fn keys(&self) -> &'a KeySet {
        self.keys
    }
}

#[cfg(test)]
mod tests;
