//! Ring widths, as narrow as values and readers allow.
//!
//! A node needs `|x| < 2^(width-2)` for its largest calibrated magnitude plus the guard, and [`limit`] for
//! less likely inputs. Linear and local operations may only narrow, so a reader's ring is required of its
//! inputs too, back to a ReLU (which may widen) or the input.

use tacit_graph::NodeId;

use crate::fixed::{MAX_WIDENING, MAX_WIDTH, MIN_COMPARED_WIDTH};
use crate::{Node, Op, RingError, RingGraph, Weights, reference};
use tacit_backend_api::Strain;

/// Bits of the narrowest ring in which magnitudes up to `largest` (of an integer) stay below a quarter if
/// `in_quarter`, else below a half.
pub(super) fn min_width(largest: f64, in_quarter: bool) -> u32 {
    (bits(largest) + 1 + u32::from(in_quarter)).max(MIN_COMPARED_WIDTH)
}

/// The smallest magnitude that a ring of `width` bits computes wrongly.
pub(super) fn limit(width: u32, in_quarter: bool) -> f64 {
    f64::from(width - 1 - u32::from(in_quarter)).exp2()
}

/// Whether each node must stay below a quarter of its ring, where others may use half: its readers subtract
/// values to compare them, or widen them.
pub(super) fn nodes_in_quarter(nodes: &[Node]) -> Vec<bool> {
    let mut in_quarter = vec![false; nodes.len()];
    for node in nodes {
        for &i in &node.inputs {
            in_quarter[i] |= match node.op {
                Op::MaxPool(_) | Op::ArgMax | Op::Widen => true,
                // Width 0: not assigned yet, so the ReLU may widen.
                Op::Relu => node.fixed.width == 0 || node.fixed.width > nodes[i].fixed.width,
                _ => false,
            };
        }
    }
    in_quarter
}

/// How near each tensor comes to its [`limit`] on an input.
///
/// # Errors
/// If the input's length is wrong.
pub fn strain(graph: &RingGraph, weights: &Weights, input: &[i64]) -> Result<Vec<Strain>, RingError> {
    let nodes = graph.nodes();
    let in_quarter = nodes_in_quarter(nodes);
    let magnitudes = reference::magnitudes(graph, weights, input)?;
    let strains = nodes.iter().zip(magnitudes).zip(in_quarter).map(|((node, largest), in_quarter)| {
        let share = largest as f64 / limit(node.fixed.width, in_quarter);
        Strain { node: node.name.clone(), share: if matches!(node.op, Op::ArgMax) { 0.0 } else { share } }
    });
    Ok(strains.collect())
}

fn bits(largest: f64) -> u32 {
    if largest < 1.0 { 1 } else { largest.log2().floor() as u32 + 1 }
}

/// Sets the widths of all nodes. `needs[i]` is the narrowest ring that holds node `i`'s values. Inserts
/// `Widen` behind truncations where a chain without ReLU would need a ring beyond [`MAX_WIDTH`]; `origin`
/// grows with the nodes. Returns the new index of each original node.
pub(super) fn assign(
    nodes: &mut Vec<Node>,
    mut needs: Vec<u32>,
    origin: &mut Vec<usize>,
) -> Result<Vec<NodeId>, RingError> {
    let mut new_ids: Vec<NodeId> = (0..nodes.len()).collect();
    loop {
        let widths = solve(nodes, &needs);
        let Some(worst) = (0..nodes.len()).find(|&i| widths[i] > MAX_WIDTH) else {
            for (node, w) in nodes.iter_mut().zip(widths) {
                node.fixed.width = w;
            }
            return Ok(new_ids);
        };
        // The last truncation whose readers need more than its values, and whose source is then too
        // wide.
        let cut = (worst..nodes.len()).rev().find(|&i| {
            matches!(nodes[i].op, Op::Truncate { .. })
                && widths[i] > needs[i]
                && widths[nodes[i].inputs[0]] > MAX_WIDTH
                && needs[nodes[i].inputs[0]] <= MAX_WIDTH
        });
        let Some(cut) = cut else {
            return Err(RingError::NoRing {
                what: format!(
                    "node `{}` ({}) needs a ring of {} bits, {MAX_WIDTH} are supported: fewer fraction bits, or smaller values",
                    nodes[worst].name,
                    nodes[worst].op.name(),
                    widths[worst]
                ),
            });
        };
        insert_widen(nodes, &mut needs, origin, &mut new_ids, cut);
    }
}

/// The widths may exceed the supported ones.
fn solve(nodes: &[Node], needs: &[u32]) -> Vec<u32> {
    let mut width = needs.to_vec();
    for (id, node) in nodes.iter().enumerate().rev() {
        for &i in &node.inputs {
            let demand = match node.op {
                // For impossible rings, each ReLU doubles the demand.
                Op::Truncate { bits } => width[id].saturating_add(bits),
                Op::Relu => width[id].saturating_mul(2).saturating_sub(MAX_WIDENING),
                Op::Widen | Op::ArgMax | Op::LookUp(_) => 0,
                _ => width[id],
            };
            width[i] = width[i].max(demand);
        }
    }
    for (id, node) in nodes.iter().enumerate() {
        let Some(&input) = node.inputs.first() else { continue };
        match node.op {
            Op::Truncate { bits } => width[id] = width[input] - bits,
            Op::MaxPool(_) => width[id] = width[input],
            Op::Relu | Op::Widen => width[id] = width[id].max(width[input]),
            _ => {}
        }
    }
    width
}

fn insert_widen(
    nodes: &mut Vec<Node>,
    needs: &mut Vec<u32>,
    origin: &mut Vec<usize>,
    new_ids: &mut [NodeId],
    after: NodeId,
) {
    let mut widen = nodes[after].clone();
    widen.op = Op::Widen;
    widen.name = format!("{}.widen", widen.name);
    widen.inputs = vec![after];
    for node in &mut nodes[after + 1..] {
        // Readers of the truncation read the wider copy; everything behind it moves by one.
        node.inputs.iter_mut().filter(|i| **i >= after).for_each(|i| *i += 1);
    }
    nodes.insert(after + 1, widen);
    needs.insert(after + 1, needs[after]);
    origin.insert(after + 1, origin[after]);
    new_ids.iter_mut().filter(|i| **i >= after).for_each(|i| *i += 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{node, spec};
    use crate::{Linear, RingGraph, WeightFacts};

    /// A value that no ring holds, behind 60 ReLUs: each of them doubles the demand.
    #[test]
    fn refuses_values_beyond_rings_behind_many_relus() {
        let node = |op, inputs: &[usize]| node(op, inputs, &[1], 0, 0);
        let mut nodes = vec![node(Op::Input, &[])];
        nodes.extend((0..60).map(|i| node(Op::Relu, &[i])));
        nodes.push(node(Op::Add, &[60, 60]));
        let mut needs = vec![8; nodes.len()];
        *needs.last_mut().unwrap() = 70;
        let mut origin: Vec<usize> = (0..nodes.len()).collect();
        let text = assign(&mut nodes, needs, &mut origin).unwrap_err().to_string();
        assert!(["bits", "smaller values"].iter().all(|words| text.contains(words)), "{text}");
    }

    #[test]
    fn chain_without_relu_gets_widening() {
        let linear = |frac_bits| {
            let weights = WeightFacts { frac_bits, magnitude_bits: 20, norm_bits: 22 };
            Op::Linear(Linear { out_features: 4, weights })
        };
        let node = |op, inputs: &[usize], frac_bits| node(op, inputs, &[4], 0, frac_bits);
        let mut nodes = vec![
            node(Op::Input, &[], 12),
            node(linear(12), &[0], 24),
            node(Op::Truncate { bits: 12 }, &[1], 12),
            node(linear(14), &[2], 26),
            node(Op::Truncate { bits: 14 }, &[3], 12),
            node(linear(12), &[4], 24),
        ];
        let needs = vec![16, 32, 20, 36, 22, 34];
        let mut origin: Vec<usize> = (0..6).collect();
        let new_ids = assign(&mut nodes, needs, &mut origin).unwrap();
        assert!(nodes.iter().any(|n| n.op == Op::Widen));
        assert_eq!(nodes[new_ids[5]].op, linear(12));
        assert!(nodes.iter().all(|n| n.fixed.width <= 40));
        RingGraph::new(spec(nodes)).unwrap();
    }
}
