//! What the models of all back ends of this level share at the seam: the start of a public part, and answers
//! that follow from graph and weights alone.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{RingGraph, Weights, bound, lowering, public_bytes, reference};
use tacit_backend_api::seam::version;
use tacit_backend_api::{BackendError, Numerics, Result, Strain};

fn wrong(what: String) -> BackendError {
    BackendError::Public { what }
}

/// Encodes a public part: the back end's name and version, its own data, and the graph.
///
/// # Errors
/// If the public part would be too long.
pub fn write<T: Serialize>(name: &str, version: u32, parameters: &T, graph: &RingGraph) -> Result<Vec<u8>> {
    let mut public = postcard::to_stdvec(&(name, version, parameters)).map_err(|e| wrong(e.to_string()))?;
    public.extend(public_bytes(graph)?);
    Ok(public)
}

/// Decodes the back end's own data and returns the bytes of the graph behind it.
///
/// # Errors
/// Errors of [`version::check`], and [`BackendError::Public`] if the bytes are damaged.
pub fn read<'a, T: DeserializeOwned>(name: &'static str, version: u32, public: &'a [u8]) -> Result<(T, &'a [u8])> {
    let remainder = version::check(name, version, public)?;
    postcard::take_from_bytes(remainder).map_err(|e| wrong(format!("it is not one of {name}: {e}")))
}

/// Describes the public part, for users and scripts.
pub fn describe<T: Serialize>(graph: &RingGraph, options: &T) -> serde_json::Value {
    json!({ "nodes": graph.describe(), "options": options, "output": graph.spec().output })
}

/// Largest distance of an honest answer from the reference, in real units.
pub fn error_bound(graph: &RingGraph, weights: Option<&Weights>, numerics: &Numerics) -> f64 {
    bound::worst_case(graph, weights, numerics) * graph.output_unit()
}

/// The answer of the reference for an input.
///
/// # Errors
/// If the input does not fit the model.
pub fn reference(graph: &RingGraph, weights: &Weights, input: &[f32]) -> Result<Vec<f64>> {
    let integers = reference::run(graph, weights, &reference::quantize_input(graph, input)?)?;
    Ok(reference::dequantize_output(graph, &integers))
}

/// How near each tensor comes to its ring's limit.
///
/// # Errors
/// If the input does not fit the model.
pub fn strain(graph: &RingGraph, weights: &Weights, input: &[f32]) -> Result<Vec<Strain>> {
    Ok(lowering::strain(graph, weights, &reference::quantize_input(graph, input)?)?)
}

/// Implements the seam's plan for a party's model whose field `compiled` has `plan`, `digest()` and
/// `costs()`. The arguments are the model's generics, if any, the source of its material
/// ([`Preparation`](tacit_backend_api::Preparation)), and the weights, if the party has them.
#[macro_export]
macro_rules! seam_plan {
    ($(@[$($generics:tt)*])? $party:ty, $preparation:ident, |$self:ident| $weights:expr) => {
        impl$(<$($generics)*>)? $crate::api::seam::Plan for $party {
            fn interface(&self) -> &tacit_graph::Interface {
                &self.compiled.plan.graph().spec().interface
            }

            fn digest(&self) -> [u8; 32] {
                self.compiled.digest()
            }

            fn costs(&self) -> $crate::api::Costs {
                self.compiled.costs()
            }

            fn batch(&self) -> usize {
                self.compiled.batch()
            }

            fn max_batch(&self) -> usize {
                self.compiled.max_batch()
            }

            fn numerics(&self) -> $crate::api::Numerics {
                self.compiled.plan.numerics()
            }

            fn error_bound(&$self, _: &[f64]) -> f64 {
                let plan = &$self.compiled.plan;
                $crate::public::error_bound(plan.graph(), $weights, &plan.numerics())
            }

            fn preparation(&self) -> $crate::api::Preparation {
                $crate::api::Preparation::$preparation
            }

            fn setup(&self) -> $crate::api::Setup {
                $crate::api::Setup::BeforeOffline
            }

            fn output_unit(&self) -> Option<f64> {
                Some(self.compiled.plan.graph().output_unit())
            }

            fn input_unit(&self) -> Option<f64> {
                Some(self.compiled.plan.graph().input().fixed.dequantize(1))
            }

            fn describe(&self) -> $crate::Json {
                $crate::public::describe(self.compiled.plan.graph(), self.compiled.plan.options())
            }
        }
    };
}
