//! Limits of models whose weights a dealer's matrices mask: the public part alone determines what dealer and
//! client allocate and compute.

use tacit_arith::ring::ConvSpec;

use super::{Step, StepTypes};
use crate::{Node, Op, RingGraph};
use tacit_backend_api::{BackendError, Result};

/// Limits of a model: entries of all matrices, multiplications, and bytes of dealt material.
const MAX_WEIGHTS: u128 = 1 << 28;
const MAX_MACS: u128 = 1 << 36;
const MAX_MATERIAL: u128 = 8 << 30;

/// Costs that a back end adds to those of a graph's layers.
pub struct Added {
    /// Bytes of a step's material at the party with more of it.
    pub material: u128,
    /// Multiplications besides those of the layer.
    pub macs: u128,
}

/// Refuses larger models: a few bytes of a graph could demand more.
///
/// # Errors
/// `Unsupported` names the node that exceeds a limit.
pub fn check_sizes<K: StepTypes<Linear = ConvSpec>>(
    graph: &RingGraph,
    steps: &[Step<K>],
    added: impl Fn(&Step<K>, &Node) -> Added,
) -> Result<()> {
    let (mut weights, mut macs, mut material) = (0u128, 0u128, 0u128);
    for (id, (step, node)) in steps.iter().zip(graph.nodes()).enumerate() {
        let refuse = |what: String| {
            Err(BackendError::Unsupported { node: id, name: node.name.clone(), op: node.op.name(), what })
        };
        if let Step::Linear(conv) = step {
            if let Err(error) = conv.check() {
                return refuse(error.to_string());
            }
            let row = [conv.in_ch / conv.groups, conv.kernel.0, conv.kernel.1].map(|n| n as u128);
            let entries = conv.out_ch as u128 * row[0] * row[1] * row[2];
            weights += entries;
            macs += row[0] * row[1] * row[2] * node.elements() as u128;
        }
        if let Op::LookUp(table) = &node.op {
            // A look-up reads all entries.
            macs += node.elements() as u128 * table.entries.len() as u128;
        }
        let added = added(step, node);
        material += added.material;
        macs += added.macs;
        for (what, value, limit) in [
            ("weights", weights, MAX_WEIGHTS),
            ("multiplications", macs, MAX_MACS),
            ("bytes of material", material, MAX_MATERIAL),
        ] {
            if value > limit {
                return refuse(format!("up to here the model takes {value} {what}, and {limit} are allowed"));
            }
        }
    }
    Ok(())
}
