//! The walk over the client's shares, which are the same in all phases: offline prepares material for them,
//! online uses it. A dealer does the same walk over the shares that it knows.

use std::borrow::Cow;
use std::sync::Arc;

use tacit_arith::prg::Prg;
use tacit_graph::{GraphError, Interpreter, NodeId};
use tacit_mpc::Role;
use tacit_mpc::dealt::{ClientShares, LookUp};
use tacit_mpc::gate::slices;
use tacit_mpc::wire::PackedMessages;
use tacit_net::{Channel, Tag};

use super::local::apply;
use super::truncate;
use super::{Batch, Level, NodeObserver, Step, StepTypes};
use crate::fixed::{ring_mask, to_signed};
use crate::{Node, RingGraph};
use tacit_backend_api::{BackendError, Result};

/// The place of a batch of gates in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatePosition {
    /// The node.
    pub node: NodeId,
    /// Round of a reduction, else 0.
    pub level: usize,
}

/// The error of a look-up in a back end that plans none.
pub(super) const NO_TABLES: BackendError = BackendError::Misuse("this back end plans no look-ups");

/// The actions of a phase at the steps that a party cannot compute alone.
pub trait ClientPhase<K: StepTypes> {
    /// Called before the client takes the random `share` as that of a node's tensor. The phase may replace
    /// it, by the same value in all phases.
    fn choose(&mut self, _id: NodeId, _share: &mut [u64]) -> Result<()> {
        Ok(())
    }
    /// Masks the input with `share`.
    fn input(&mut self, share: &[u64], width: u32) -> Result<()>;
    /// The client's share of a linear layer's result; `x` is its share of the tensor that the layer reads.
    fn linear(&mut self, layer: &K::Linear, id: NodeId, x: &[u64]) -> Result<Vec<u64>>;
    /// Handles a batch of gates.
    fn gate(&mut self, position: GatePosition, gate: &K::Gate, shares: &ClientShares<'_>) -> Result<()>;
    /// Changes the client's share from `c` to `to`, which is in the wider ring.
    fn widen(&mut self, id: NodeId, widen: &K::Widen, c: &[u64], to: &[u64]) -> Result<()>;
    /// Handles look-ups: `c` is the client's share of the index, `to` the share of the results that it must
    /// end with.
    fn look_up(&mut self, _id: NodeId, _table: &LookUp, _c: &[u64], _to: &[u64]) -> Result<()> {
        Err(NO_TABLES)
    }
    /// Processes the share of a node's tensor, and returns the one that later nodes read.
    fn settle(&mut self, id: NodeId, node: &Node, share: Vec<u64>) -> Result<Vec<u64>>;
}

/// The walk over the client's shares.
pub struct ClientWalk<'a, K: StepTypes, P> {
    /// The graph.
    pub graph: &'a RingGraph,
    /// Steps of the graph, one for each node.
    pub steps: &'a [Step<K>],
    /// Inputs at once. Tensors, and the arguments of the phase, hold them concatenated.
    pub batch: usize,
    /// Generator of all shares that the client chooses itself.
    pub seed: Prg,
    /// The actions of the phase.
    pub phase: P,
    /// Sees each share.
    pub tap: &'a mut NodeObserver<'a>,
}

/// Checks the inputs of a batch before anything about them is sent.
///
/// # Errors
/// If their length is wrong.
pub fn check_input(graph: &RingGraph, batch: usize, input: &[i64]) -> Result<()> {
    let needed = batch * graph.input().elements();
    if input.len() == needed {
        return Ok(());
    }
    let what = format!("{} integers, {needed} are taken", input.len());
    Err(BackendError::Graph(GraphError::Input { what }))
}

/// Ends the client's online phase: adds its share to the server's share of the result, from the message
/// `tag`.
///
/// # Errors
/// Channel errors.
pub fn receive_result(graph: &RingGraph, client_share: &[u64], tag: Tag, channel: &mut Channel) -> Result<Vec<i64>> {
    let width = graph.output().fixed.width;
    let server_share = channel.recv_packed(tag, client_share.len(), width)?;
    Ok(client_share.iter().zip(server_share).map(|(a, b)| to_signed(a.wrapping_add(b), width)).collect())
}

/// The share that the client chooses for result `part` of a round: `n` elements of `width` bits.
pub fn chosen(seed: &Prg, position: GatePosition, part: u8, n: usize, width: u32) -> Vec<u64> {
    let mut values = vec![0; n];
    stream(seed, position, part).fill_u64(&mut values);
    values.iter_mut().for_each(|v| *v &= ring_mask(width));
    values
}

/// The random stream of `part` of a round.
pub fn stream(seed: &Prg, position: GatePosition, part: u8) -> Prg {
    seed.fork((position.node as u64) << 24 | (position.level as u64) << 8 | u64::from(part))
}

impl<K: StepTypes, P: ClientPhase<K>> Interpreter for ClientWalk<'_, K, P> {
    type Node = Node;
    type Wire = Vec<u64>;
    type Error = BackendError;

    fn node(&mut self, id: NodeId, node: &Node, inputs: &[&Vec<u64>]) -> Result<Vec<u64>> {
        let chosen = |seed: &Prg, n, width| chosen(seed, GatePosition { node: id, level: 0 }, 0, n, width);
        let (position, elements) = (GatePosition { node: id, level: 0 }, self.batch * node.elements());
        let share = match &self.steps[id] {
            Step::Input => {
                let width = node.fixed.width;
                let mut share = chosen(&self.seed, elements, width);
                self.phase.choose(id, &mut share)?;
                self.phase.input(&share, width)?;
                share
            }
            Step::Linear(layer) => self.phase.linear(layer, id, inputs[0])?,
            Step::Relu(gate) => {
                let mut target = chosen(&self.seed, elements, node.fixed.width);
                self.phase.choose(id, &mut target)?;
                let shares = ClientShares { tested: inputs[0], values: &[inputs[0]], bases: &[], targets: &[&target] };
                self.phase.gate(position, gate, &shares)?;
                target
            }
            Step::Reduce { levels, indexed } => self.reduce(id, node, levels, *indexed, inputs[0])?,
            Step::Widen(widen) => {
                let (old_width, new_width) = (self.graph.nodes()[node.inputs[0]].fixed.width, node.fixed.width);
                let high = chosen(&self.seed, elements, new_width - old_width);
                let target: Vec<u64> = inputs[0].iter().zip(high).map(|(c, h)| c | h << old_width).collect();
                self.phase.widen(id, widen, inputs[0], &target)?;
                target
            }
            Step::LookUp(table) => {
                let target = chosen(&self.seed, elements, node.fixed.width);
                self.phase.look_up(id, table, inputs[0], &target)?;
                target
            }
            Step::TruncateExact { bits, gate } => {
                let target = chosen(&self.seed, elements, node.fixed.width);
                let parts = truncate::parts(Role::Client, inputs[0], *bits);
                let shares = ClientShares {
                    tested: &parts.tested,
                    values: &[&parts.value],
                    bases: &[&parts.base],
                    targets: &[&target],
                };
                self.phase.gate(position, gate, &shares)?;
                target
            }
            Step::Local => {
                let shapes: Vec<&[usize]> = node.inputs.iter().map(|&i| &*self.graph.nodes()[i].shape).collect();
                apply(Role::Client, node, inputs, &shapes, self.batch)
            }
        };
        let share = self.phase.settle(id, node, share)?;
        (self.tap)(id, &share);
        Ok(share)
    }
}

impl<K: StepTypes, P: ClientPhase<K>> ClientWalk<'_, K, P> {
    fn reduce(
        &mut self,
        id: NodeId,
        node: &Node,
        levels: &[(Arc<Level>, K::Gate)],
        indexed: bool,
        input: &[u64],
    ) -> Result<Vec<u64>> {
        let width = self.graph.nodes()[node.inputs[0]].fixed.width;
        // The positions are public at first: the client's share of them is zero. The input may be large, and
        // is not copied.
        let mut lists = vec![(Cow::Borrowed(input), width)];
        if indexed {
            lists.push((Cow::Owned(vec![0; input.len()]), node.fixed.width));
        }
        for (round, (level, gate)) in levels.iter().enumerate() {
            let position = GatePosition { node: id, level: round };
            let (mut values, mut bases, mut targets) = (Vec::new(), Vec::new(), Vec::new());
            for (part, (list, width)) in lists.iter().enumerate() {
                let right = level.rights(list, *width, self.batch);
                values.push(level.difference(list, *width, self.batch));
                targets.push(chosen(&self.seed, position, part as u8, right.len(), *width));
                bases.push(right);
            }
            if gate.n() > 0 {
                let [values, bases, targets] = [&values, &bases, &targets].map(|lists| slices(lists));
                let shares = ClientShares { tested: values[0], values: &values, bases: &bases, targets: &targets };
                self.phase.gate(position, gate, &shares)?;
            }
            for ((list, _), target) in lists.iter_mut().zip(&targets) {
                *list = Cow::Owned(level.advance(target, list, self.batch));
            }
        }
        Ok(lists.pop().expect("there is a list of values at least").0.into_owned())
    }
}
