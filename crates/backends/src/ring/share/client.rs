//! The walk over the client's shares, which are the same in all phases: offline it prepares for them, online
//! it uses what was prepared. A dealer walks the same way, over what it knows of them.

use std::borrow::Cow;
use std::sync::Arc;

use tacit_arith::prg::Prg;
use tacit_graph::{GraphError, Interpreter, NodeId};
use tacit_mpc::Role;
use tacit_mpc::dealt::LookUp;
use tacit_mpc::gate::slices;
use tacit_mpc::wire::PackedMessages;
use tacit_net::{Channel, Tag};

use super::local::apply;
use super::truncate;
use super::{Batch, Kind, Level, NodeObserver, Step};
use crate::BackendError;
use crate::ring::fixed::{ring_mask, to_signed};
use crate::ring::{Node, RingGraph};

/// Where in the graph a batch of gates stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) node: NodeId,
    /// Round of a reduction, else 0.
    pub(crate) level: usize,
}

/// The client's shares around a batch of gates.
pub(crate) struct GateShares<'a> {
    pub(crate) tested: &'a [u64],
    pub(crate) values: &'a [&'a [u64]],
    pub(crate) bases: &'a [&'a [u64]],
    pub(crate) targets: &'a [&'a [u64]],
}

/// A back end that plans no look-ups meets none.
pub(super) const NO_TABLES: BackendError = BackendError::Misuse("this back end plans no look-ups");

/// What a phase does where the client does not simply compute.
pub(crate) trait ClientPhase<K: Kind> {
    /// The client is about to choose `share`, which is random, as its share of a node's tensor: another may
    /// take its place, the same in all phases.
    fn choose(&mut self, _id: NodeId, _share: &mut [u64]) -> Result<(), BackendError> {
        Ok(())
    }
    /// The input is masked with `share`.
    fn input(&mut self, share: &[u64], width: u32) -> Result<(), BackendError>;
    /// The client's share of a linear layer's result; `x` is its share of the tensor that the layer reads.
    fn linear(&mut self, layer: &K::Linear, id: NodeId, x: &[u64]) -> Result<Vec<u64>, BackendError>;
    /// A batch of gates.
    fn gate(&mut self, at: At, gate: &K::Gate, shares: &GateShares<'_>) -> Result<(), BackendError>;
    /// The client's share goes from `c` to `to` in the wider ring.
    fn widen(&mut self, id: NodeId, widen: &K::Widen, c: &[u64], to: &[u64]) -> Result<(), BackendError>;
    /// Look-ups: the client's share of the index is `c`, that of the results ends as `to`.
    fn look_up(&mut self, _id: NodeId, _table: &LookUp, _c: &[u64], _to: &[u64]) -> Result<(), BackendError> {
        Err(NO_TABLES)
    }
    /// What becomes of the share of a node's tensor.
    fn settle(&mut self, id: NodeId, node: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError>;
}

/// The walk over the client's shares.
pub(crate) struct ClientWalk<'a, K: Kind, P> {
    pub(crate) graph: &'a RingGraph,
    pub(crate) steps: &'a [Step<K>],
    /// Inputs at once. A tensor has them one behind the other, and so has what the phase is given.
    pub(crate) batch: usize,
    /// All shares that the client chooses itself follow from it.
    pub(crate) seed: Prg,
    pub(crate) phase: P,
    pub(crate) tap: &'a mut NodeObserver<'a>,
}

/// Checks the inputs of a batch before anything of them is sent.
///
/// # Errors
/// Their length.
pub(crate) fn check_input(graph: &RingGraph, batch: usize, input: &[i64]) -> Result<(), BackendError> {
    let needed = batch * graph.input().elements();
    if input.len() == needed {
        return Ok(());
    }
    let what = format!("{} integers, {needed} are taken", input.len());
    Err(BackendError::Graph(GraphError::Input { what }))
}

/// The end of the client's online phase: the server's share of the result comes, in the message `tag`, and
/// makes the result of the client's.
///
/// # Errors
/// Of the channel.
pub(crate) fn revealed(
    graph: &RingGraph,
    mine: &[u64],
    tag: Tag,
    channel: &mut Channel,
) -> Result<Vec<i64>, BackendError> {
    let width = graph.output().fixed.width;
    let theirs = channel.recv_packed(tag, mine.len(), width)?;
    Ok(mine.iter().zip(theirs).map(|(a, b)| to_signed(a.wrapping_add(b), width)).collect())
}

/// The share that the client chooses for result `part` of round `level` of a node: `n` elements of `width`
/// bits.
pub(crate) fn chosen(seed: &Prg, at: At, part: u8, n: usize, width: u32) -> Vec<u64> {
    let mut values = vec![0; n];
    stream(seed, at, part).fill_u64(&mut values);
    values.iter_mut().for_each(|v| *v &= ring_mask(width));
    values
}

/// The stream of `part` of round `level` of a node.
pub(crate) fn stream(seed: &Prg, at: At, part: u8) -> Prg {
    seed.fork((at.node as u64) << 24 | (at.level as u64) << 8 | u64::from(part))
}

impl<K: Kind, P: ClientPhase<K>> Interpreter for ClientWalk<'_, K, P> {
    type Node = Node;
    type Wire = Vec<u64>;
    type Error = BackendError;

    fn node(&mut self, id: NodeId, node: &Node, inputs: &[&Vec<u64>]) -> Result<Vec<u64>, BackendError> {
        let chosen = |seed: &Prg, n, width| chosen(seed, At { node: id, level: 0 }, 0, n, width);
        let (at, elements) = (At { node: id, level: 0 }, self.batch * node.elements());
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
                let shares = GateShares { tested: inputs[0], values: &[inputs[0]], bases: &[], targets: &[&target] };
                self.phase.gate(at, gate, &shares)?;
                target
            }
            Step::Reduce { levels, indexed } => self.reduce(id, node, levels, *indexed, inputs[0])?,
            Step::Widen(widen) => {
                let (from, to) = (self.graph.nodes()[node.inputs[0]].fixed.width, node.fixed.width);
                let high = chosen(&self.seed, elements, to - from);
                let target: Vec<u64> = inputs[0].iter().zip(high).map(|(c, h)| c | h << from).collect();
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
                let shares = GateShares {
                    tested: &parts.tested,
                    values: &[&parts.value],
                    bases: &[&parts.base],
                    targets: &[&target],
                };
                self.phase.gate(at, gate, &shares)?;
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

impl<K: Kind, P: ClientPhase<K>> ClientWalk<'_, K, P> {
    fn reduce(
        &mut self,
        id: NodeId,
        node: &Node,
        levels: &[(Arc<Level>, K::Gate)],
        indexed: bool,
        input: &[u64],
    ) -> Result<Vec<u64>, BackendError> {
        let width = self.graph.nodes()[node.inputs[0]].fixed.width;
        // The positions are public at first: the client's share of them is zero.
        // The input is not copied: it may be large.
        let mut lists = vec![(Cow::Borrowed(input), width)];
        if indexed {
            lists.push((Cow::Owned(vec![0; input.len()]), node.fixed.width));
        }
        for (round, (level, gate)) in levels.iter().enumerate() {
            let at = At { node: id, level: round };
            let (mut values, mut bases, mut targets) = (Vec::new(), Vec::new(), Vec::new());
            for (part, (list, width)) in lists.iter().enumerate() {
                let right = level.rights(list, *width, self.batch);
                values.push(level.difference(list, *width, self.batch));
                targets.push(chosen(&self.seed, at, part as u8, right.len(), *width));
                bases.push(right);
            }
            if gate.n() > 0 {
                let [values, bases, targets] = [&values, &bases, &targets].map(|lists| slices(lists));
                let shares = GateShares { tested: values[0], values: &values, bases: &bases, targets: &targets };
                self.phase.gate(at, gate, &shares)?;
            }
            for ((list, _), target) in lists.iter_mut().zip(&targets) {
                *list = Cow::Owned(level.advance(target, list, self.batch));
            }
        }
        Ok(lists.pop().expect("there is a list of values at least").0.into_owned())
    }
}
