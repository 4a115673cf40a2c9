//! What the models of all back ends of this level have in common at the seam: how a public part begins, and
//! what graph and weights alone answer.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{RingGraph, Weights, bound, lowering, public_bytes, reference};
use crate::seam::version;
use crate::{BackendError, Numerics, Strain};

fn wrong(what: String) -> BackendError {
    BackendError::Public { what }
}

/// A public part: the back end's name and version, what it says itself, and the graph.
///
/// # Errors
/// It would be too long.
pub(crate) fn write<T: Serialize>(
    (name, version): (&str, u32),
    own: &T,
    graph: &RingGraph,
) -> Result<Vec<u8>, BackendError> {
    let mut public = postcard::to_stdvec(&(name, version, own)).map_err(|e| wrong(e.to_string()))?;
    public.extend(public_bytes(graph)?);
    Ok(public)
}

/// What a back end says itself, and the bytes of the graph behind it.
///
/// # Errors
/// Those of [`version::check`], and [`BackendError::Public`]: it is damaged.
pub(crate) fn read<'a, T: DeserializeOwned>(
    of: (&'static str, u32),
    public: &'a [u8],
) -> Result<(T, &'a [u8]), BackendError> {
    let rest = version::check(of, public)?;
    postcard::take_from_bytes(rest).map_err(|e| wrong(format!("it is not one of {}: {e}", of.0)))
}

/// The public part for people and scripts.
pub(crate) fn describe<T: Serialize>(graph: &RingGraph, options: &T) -> serde_json::Value {
    json!({ "nodes": graph.describe(), "options": options, "output": graph.spec().output })
}

/// Largest distance of an honest answer from the reference, in real units.
pub(crate) fn error_bound(graph: &RingGraph, weights: Option<&Weights>, numerics: &Numerics) -> f64 {
    bound::worst_case(graph, weights, numerics) * graph.output_unit()
}

/// The answer that a run should give.
///
/// # Errors
/// The input does not fit the model.
pub(crate) fn reference(graph: &RingGraph, weights: &Weights, input: &[f32]) -> Result<Vec<f64>, BackendError> {
    let integers = reference::run(graph, weights, &reference::quantize_input(graph, input)?)?;
    Ok(reference::dequantize_output(graph, &integers))
}

/// How near each tensor comes to its ring's limit.
///
/// # Errors
/// The input does not fit the model.
pub(crate) fn strain(graph: &RingGraph, weights: &Weights, input: &[f32]) -> Result<Vec<Strain>, BackendError> {
    Ok(lowering::strain(graph, weights, &reference::quantize_input(graph, input)?)?)
}

/// The seam's plan of a party's model that has a field `compiled` with `plan`, `digest()` and `costs()`.
/// Named are its generics, if it has any, where its material comes from
/// ([`Preparation`](crate::Preparation)), and the weights, where the party has them.
macro_rules! seam_plan {
    ($(@[$($generics:tt)*])? $party:ty, $preparation:ident, |$self:ident| $weights:expr) => {
        impl$(<$($generics)*>)? $crate::seam::Plan for $party {
            fn interface(&self) -> &tacit_graph::Interface {
                &self.compiled.plan.graph().spec().interface
            }

            fn digest(&self) -> [u8; 32] {
                self.compiled.digest()
            }

            fn costs(&self) -> $crate::Costs {
                self.compiled.costs()
            }

            fn batch(&self) -> usize {
                self.compiled.batch()
            }

            fn max_batch(&self) -> usize {
                self.compiled.max_batch()
            }

            fn numerics(&self) -> $crate::Numerics {
                self.compiled.plan.numerics()
            }

            fn error_bound(&$self, _: &[f64]) -> f64 {
                let plan = &$self.compiled.plan;
                $crate::ring::public::error_bound(plan.graph(), $weights, &plan.numerics())
            }

            fn preparation(&self) -> $crate::Preparation {
                $crate::Preparation::$preparation
            }

            fn setup(&self) -> $crate::Setup {
                $crate::Setup::BeforeOffline
            }

            fn output_unit(&self) -> Option<f64> {
                Some(self.compiled.plan.graph().output_unit())
            }

            fn input_unit(&self) -> Option<f64> {
                Some(self.compiled.plan.graph().input().fixed.dequantize(1))
            }

            fn describe(&self) -> serde_json::Value {
                $crate::ring::public::describe(self.compiled.plan.graph(), self.compiled.plan.options())
            }
        }
    };
}

pub(crate) use seam_plan;
