//! Rewrites of the float network before it is quantised. Each preserves the network's function (up
//! to float rounding) and reduces the work of a protocol: fewer linear layers, fewer comparisons,
//! no divisions.

mod affine;
mod order;

#[cfg(test)]
mod tests;

use crate::float::{FloatGraph, FloatOp};
use crate::{ChannelAffine, GraphError};

/// The rewritten network, and the maps that the rewrites moved to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewritten {
    /// The rewritten network, sorted.
    pub graph: FloatGraph,
    /// The map that the client applies to the input.
    pub input_affine: Option<ChannelAffine>,
    /// Positive factor on the output, applied by the client.
    pub output_multiplier: f64,
    /// One sentence for each kind of rewrite that was made.
    pub notes: Vec<String>,
}

/// Applies all rewrites until none applies.
///
/// # Errors
/// If the rewritten network is inconsistent (a cycle, shapes that do not fit), which would be a
/// defect of the rewrites.
pub fn simplify(graph: &FloatGraph) -> Result<Rewritten, GraphError> {
    let mut work = Work {
        graph: graph.clone(),
        input_affine: None,
        output_multiplier: 1.0,
        counts: std::collections::BTreeMap::new(),
    };
    loop {
        work.graph.sort()?;
        let before = work.counts.values().sum::<usize>();
        work.reorder()?;
        work.fold_affines()?;
        if work.counts.values().sum::<usize>() == before {
            break;
        }
    }
    work.affines_to_layers()?;
    work.graph.sort()?;
    let notes = work.counts.iter().map(|(rewrite, n)| format!("{rewrite}: {n}")).collect();
    Ok(Rewritten {
        graph: work.graph,
        input_affine: work.input_affine,
        output_multiplier: work.output_multiplier,
        notes,
    })
}

struct Work {
    graph: FloatGraph,
    input_affine: Option<ChannelAffine>,
    output_multiplier: f64,
    counts: std::collections::BTreeMap<&'static str, usize>,
}

impl Work {
    fn count(&mut self, rewrite: &'static str) {
        *self.counts.entry(rewrite).or_default() += 1;
    }

    /// Makes all readers of `old` read `new` instead (`new` itself excepted).
    fn redirect(&mut self, old: usize, new: usize) {
        for (id, node) in self.graph.nodes.iter_mut().enumerate() {
            if id != new {
                node.inputs.iter_mut().filter(|i| **i == old).for_each(|i| *i = new);
            }
        }
        if self.graph.output == old {
            self.graph.output = new;
        }
    }

    /// Removes a node with one input from the graph.
    fn bypass(&mut self, id: usize) {
        let source = self.graph.nodes[id].inputs[0];
        self.redirect(id, source);
        self.graph.nodes[id].inputs = vec![source];
    }

    /// Exchanges a node and its only reader, both with one input: `x -> a -> b` becomes
    /// `x -> b -> a`. Indices belong to positions, so readers of the pair do not change; shapes are
    /// inferred again.
    fn swap(&mut self, a: usize, b: usize) -> Result<(), GraphError> {
        let (op_a, name_a) = (self.graph.nodes[a].op.clone(), self.graph.nodes[a].name.clone());
        let (op_b, name_b) = (self.graph.nodes[b].op.clone(), self.graph.nodes[b].name.clone());
        let declared = self.graph.nodes[b].shape.clone();
        let source = self.graph.nodes[a].inputs[0];
        let inner = self.push(&name_b, op_b, &[source], &declared)?;
        let second = self.push(&name_a, op_a, &[inner], &declared)?;
        self.redirect(b, second);
        self.graph.nodes[b].inputs.clear();
        self.graph.nodes[a].inputs.clear();
        self.graph.nodes[a].op = FloatOp::Input;
        self.graph.nodes[b].op = FloatOp::Input;
        Ok(())
    }

    fn push(&mut self, name: &str, op: FloatOp, inputs: &[usize], shape: &[usize]) -> Result<usize, GraphError> {
        self.graph
            .push(name, op, inputs, shape)
            .map_err(|what| GraphError::OnnxNode { node: format!("`{name}`"), what })
    }
}
