//! Networks lowered at a plain price, for tests of parts of the lowering.
use super::{RingModel, RingOptions, lower};
use crate::RingGraph;
use tacit_backend_api::Result;
use tacit_graph::Model;

fn price(graph: &RingGraph) -> Result<f64> {
    Ok(graph.nodes().iter().map(|node| (node.elements() * node.fixed.width as usize) as f64).sum())
}

/// Lowers `model` at that price.
pub fn lowered(model: &Model, options: &RingOptions) -> RingModel {
    lower(model, options, &price).unwrap()
}
