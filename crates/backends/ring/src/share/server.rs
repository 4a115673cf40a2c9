//! The online walk over the server's shares. Offline the server has no values.

use std::sync::Arc;

use tacit_graph::{Interpreter, NodeId};
use tacit_mpc::Role;
use tacit_mpc::dealt::{LookUp, ServerShares};
use tacit_mpc::gate::slices;

use super::client::NO_TABLES;
use super::local::apply;
use super::truncate;
use super::{Batch, GatePosition, Level, NodeObserver, Step, StepTypes};
use crate::{Node, RingGraph};
use tacit_backend_api::{BackendError, Result};

/// The actions of the online phase at the steps that the server cannot compute alone.
pub trait ServerPhase<K: StepTypes> {
    /// The masked input.
    fn input(&mut self, node: &Node) -> Result<Vec<u64>>;
    /// The share of a linear layer's result.
    fn linear(&mut self, layer: &K::Linear, id: NodeId, node: &Node, x: &[u64]) -> Result<Vec<u64>>;
    /// Handles a batch of gates and returns the shares of its values.
    fn gate(&mut self, position: GatePosition, gate: &K::Gate, shares: &ServerShares<'_>) -> Result<Vec<Vec<u64>>>;
    /// The share in the wider ring.
    fn widen(&mut self, id: NodeId, widen: &K::Widen, node: &Node, x: &[u64]) -> Result<Vec<u64>>;
    /// Handles look-ups: the shares of the results for the shares of the indices.
    fn look_up(&mut self, _id: NodeId, _table: &LookUp, _x: &[u64]) -> Result<Vec<u64>> {
        Err(NO_TABLES)
    }
    /// Processes the share of a node's tensor, and returns the one that later nodes read.
    fn settle(&mut self, id: NodeId, node: &Node, share: Vec<u64>) -> Result<Vec<u64>>;
}

/// The walk over the server's shares.
pub struct ServerWalk<'a, K: StepTypes, P> {
    /// The graph.
    pub graph: &'a RingGraph,
    /// Steps of the graph, one for each node.
    pub steps: &'a [Step<K>],
    /// Inputs at once. Tensors, and the arguments of the phase, hold them concatenated.
    pub batch: usize,
    /// The actions of the phase.
    pub phase: P,
    /// Sees each share.
    pub tap: &'a mut NodeObserver<'a>,
}

impl<K: StepTypes, P: ServerPhase<K>> Interpreter for ServerWalk<'_, K, P> {
    type Node = Node;
    type Wire = Vec<u64>;
    type Error = BackendError;

    fn node(&mut self, id: NodeId, node: &Node, inputs: &[&Vec<u64>]) -> Result<Vec<u64>> {
        let position = GatePosition { node: id, level: 0 };
        let share = match &self.steps[id] {
            Step::Input => self.phase.input(node)?,
            Step::Linear(layer) => self.phase.linear(layer, id, node, inputs[0])?,
            Step::Relu(gate) => {
                let shares = ServerShares { tested: inputs[0], values: &[inputs[0]], bases: &[] };
                self.phase.gate(position, gate, &shares)?.pop().expect("a ReLU has one value")
            }
            Step::Reduce { levels, indexed } => self.reduce(id, node, levels, *indexed, inputs[0])?,
            Step::Widen(widen) => self.phase.widen(id, widen, node, inputs[0])?,
            Step::LookUp(table) => self.phase.look_up(id, table, inputs[0])?,
            Step::TruncateExact { bits, gate } => {
                let parts = truncate::parts(Role::Server, inputs[0], *bits);
                let shares = ServerShares { tested: &parts.tested, values: &[&parts.value], bases: &[&parts.base] };
                self.phase.gate(position, gate, &shares)?.pop().expect("a truncation has one value")
            }
            Step::Local => {
                let shapes: Vec<&[usize]> = node.inputs.iter().map(|&i| &*self.graph.nodes()[i].shape).collect();
                apply(Role::Server, node, inputs, &shapes, self.batch)
            }
        };
        let share = self.phase.settle(id, node, share)?;
        (self.tap)(id, &share);
        Ok(share)
    }
}

impl<K: StepTypes, P: ServerPhase<K>> ServerWalk<'_, K, P> {
    fn reduce(
        &mut self,
        id: NodeId,
        node: &Node,
        levels: &[(Arc<Level>, K::Gate)],
        indexed: bool,
        input: &[u64],
    ) -> Result<Vec<u64>> {
        let width = self.graph.nodes()[node.inputs[0]].fixed.width;
        let mut lists = vec![(input.to_vec(), width)];
        if indexed {
            let positions = 0..(input.len() / self.batch) as u64;
            lists.push(((0..self.batch).flat_map(|_| positions.clone()).collect(), node.fixed.width));
        }
        for (round, (level, gate)) in levels.iter().enumerate() {
            let mut results = vec![Vec::new(); lists.len()];
            if gate.n() > 0 {
                let lists = || lists.iter().map(|(list, width)| (list, *width));
                let values: Vec<Vec<u64>> =
                    lists().map(|(list, width)| level.difference(list, width, self.batch)).collect();
                let bases: Vec<Vec<u64>> = lists().map(|(list, width)| level.rights(list, width, self.batch)).collect();
                let (values, bases) = (slices(&values), slices(&bases));
                let shares = ServerShares { tested: values[0], values: &values, bases: &bases };
                results = self.phase.gate(GatePosition { node: id, level: round }, gate, &shares)?;
            }
            for ((list, _), result) in lists.iter_mut().zip(&results) {
                *list = level.advance(result, list, self.batch);
            }
        }
        Ok(lists.pop().expect("there is a list of values at least").0)
    }
}
