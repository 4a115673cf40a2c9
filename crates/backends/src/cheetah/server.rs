//! The server's side of the phases. Offline it has no values, only material to make; online it walks the
//! graph over its shares.

use std::sync::Arc;

use tacit_arith::ring::conv2d;
use tacit_graph::{Interpreter, NodeId, walk};
use tacit_he::coeff::Context;
use tacit_he::core::PublicKey;
use tacit_mpc::codec::Packed;
use tacit_mpc::gate::{GateSpec, ServerGate, ServerWrap, slices};
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{Ots, Role, Session};

use super::client::{INPUT, RESULT, WIDEN, difference};
use super::cost;
use super::linear::{self, LinearError, LinearServer};
use super::local::{apply, gather};
use super::material::{MADE, Piece, ServerMaterial, check_plan};
use super::plan::{Plan, Step};
use super::reduce::Level;
use super::truncate;
use crate::BackendError;
use crate::ring::fixed::ring_mask;
use crate::ring::{LayerWeights, Node, Weights};

/// What the server keeps of a connection's setup: the client's public key and the random OTs.
pub struct ServerKeys {
    context: Arc<Context>,
    key: PublicKey,
    ots: Ots,
}

pub(super) fn setup(session: &mut Session<'_>, ots: Ots) -> Result<ServerKeys, BackendError> {
    let context = Arc::new(Context::new().map_err(LinearError::from)?);
    let key = linear::receive_public_key(&context, session.channel)?;
    Ok(ServerKeys { context, key, ots })
}

const NO_WEIGHTS: BackendError = BackendError::Misuse("the weights belong to another model");

pub(super) fn offline(
    plan: &Plan,
    keys: &mut ServerKeys,
    weights: &Weights,
    session: &mut Session<'_>,
) -> Result<ServerMaterial, BackendError> {
    let (client, server) = cost::rots(plan);
    keys.ots.reserve(Role::Server, client, server);
    let (mut linear, mut pieces) = (vec![None; plan.graph.nodes().len()], Vec::new());
    for step in &plan.steps {
        match step {
            Step::Linear { group, index: 0 } => {
                let group = &plan.groups[*group];
                let mut layers = Vec::with_capacity(group.nodes.len());
                for (index, &id) in group.nodes.iter().enumerate() {
                    let layer = weights.get(id).ok_or(NO_WEIGHTS)?;
                    layers.push(linear::CheckedWeights::new(&group.plan, index, &layer.weights)?);
                }
                let Session { channel, prg, .. } = session;
                let shares = LinearServer::run(&keys.context, &keys.key, &group.plan, &layers, prg, channel)?;
                for (&id, share) in group.nodes.iter().zip(&shares) {
                    linear[id] = Some(Packed::new(share, plan.graph.nodes()[id].fixed.width));
                }
            }
            Step::Relu(spec) | Step::TruncateExact { gate: spec, .. } => {
                pieces.push(Piece::Gate(ServerGate::offline(spec, session, &mut keys.ots)?))
            }
            Step::Reduce { levels, .. } => {
                for (_, spec) in levels.iter().filter(|(_, spec)| spec.n() > 0) {
                    pieces.push(Piece::Gate(ServerGate::offline(spec, session, &mut keys.ots)?));
                }
            }
            Step::Widen(spec) => pieces.push(Piece::Wrap(ServerWrap::offline(spec, session, &mut keys.ots)?)),
            Step::Linear { .. } | Step::Input | Step::Local => {}
        }
    }
    session.channel.flush()?;
    Ok(ServerMaterial { plan: plan.digest(), linear: linear.into_iter().flatten().collect(), pieces })
}

/// The online phase; `tap` is shown the server's share of every node's tensor (`[elements]`, in the node's
/// ring).
///
/// # Errors
/// `Misuse` if weights or material are of another model; channel and protocol errors.
pub fn online_traced(
    plan: &Plan,
    material: ServerMaterial,
    weights: &Weights,
    session: &mut Session<'_>,
    tap: &mut dyn FnMut(NodeId, &[u64]),
) -> Result<(), BackendError> {
    let ServerMaterial { plan: made_for, linear, pieces } = material;
    check_plan(plan, made_for)?;
    let mut shares = Shares { plan, weights, session, linear: linear.into_iter(), pieces: pieces.into_iter(), tap };
    let share = walk(&plan.graph, &mut shares)?;
    session.channel.send_packed(RESULT, &share, plan.graph.output().fixed.width)?;
    Ok(session.channel.flush()?)
}

/// The walk over the server's shares.
struct Shares<'a, 's> {
    plan: &'a Plan,
    weights: &'a Weights,
    session: &'a mut Session<'s>,
    linear: std::vec::IntoIter<Packed>,
    pieces: std::vec::IntoIter<Piece<ServerGate, ServerWrap>>,
    tap: &'a mut dyn FnMut(NodeId, &[u64]),
}

impl Interpreter for Shares<'_, '_> {
    type Node = Node;
    type Wire = Vec<u64>;
    type Error = BackendError;

    fn node(&mut self, id: NodeId, node: &Node, inputs: &[&Vec<u64>]) -> Result<Vec<u64>, BackendError> {
        let plan = self.plan;
        let share = match &plan.steps[id] {
            Step::Input => self.session.channel.recv_packed(INPUT, node.elements(), node.fixed.width)?,
            Step::Linear { group, index } => {
                let layer = self.weights.get(id).ok_or(NO_WEIGHTS)?;
                let known = self.linear.next().expect(MADE).values();
                linear_online(&plan.groups[*group].plan, *index, layer, inputs[0], &known, node.fixed.width)?
            }
            Step::Relu(spec) => {
                let tested = inputs[0].as_slice();
                let mut shares = self.gate(spec, tested, &[tested], &[])?;
                shares.pop().expect("a ReLU has one value")
            }
            Step::Reduce { levels, indexed } => self.reduce(node, levels, *indexed, inputs[0])?,
            Step::Widen(spec) => {
                let Some(Piece::Wrap(piece)) = self.pieces.next() else { unreachable!("{MADE}") };
                let (_, share) = piece.online(spec, inputs[0], self.session)?;
                let moved = self.session.channel.recv_packed(WIDEN, spec.n, spec.extra)?;
                let mask = ring_mask(node.fixed.width);
                share.iter().zip(moved).map(|(s, d)| s.wrapping_add(d << spec.width) & mask).collect()
            }
            Step::TruncateExact { bits, gate } => {
                let parts = truncate::parts(Role::Server, inputs[0], *bits);
                let mut shares = self.gate(gate, &parts.tested, &[&parts.value], &[&parts.base])?;
                shares.pop().expect("a truncation has one value")
            }
            Step::Local => {
                let shapes: Vec<&[usize]> = node.inputs.iter().map(|&i| &*plan.graph.nodes()[i].shape).collect();
                apply(Role::Server, node, inputs, &shapes)
            }
        };
        (self.tap)(id, &share);
        Ok(share)
    }
}

impl Shares<'_, '_> {
    fn gate(
        &mut self,
        spec: &GateSpec,
        tested: &[u64],
        values: &[&[u64]],
        bases: &[&[u64]],
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        let Some(Piece::Gate(piece)) = self.pieces.next() else { unreachable!("{MADE}") };
        Ok(piece.online(spec, tested, values, bases, self.session)?)
    }

    fn reduce(
        &mut self,
        node: &Node,
        levels: &[(Level, GateSpec)],
        indexed: bool,
        input: &[u64],
    ) -> Result<Vec<u64>, BackendError> {
        let width = self.plan.graph.nodes()[node.inputs[0]].fixed.width;
        let mut lists = vec![(input.to_vec(), width)];
        if indexed {
            lists.push(((0..input.len() as u64).collect(), node.fixed.width));
        }
        for (level, spec) in levels {
            let mut results = vec![Vec::new(); lists.len()];
            if spec.n() > 0 {
                let values: Vec<Vec<u64>> = lists.iter().map(|(list, width)| difference(list, level, *width)).collect();
                let bases: Vec<Vec<u64>> =
                    lists.iter().map(|(list, width)| gather(list, &level.right, ring_mask(*width))).collect();
                let (values, bases) = (slices(&values), slices(&bases));
                results = self.gate(spec, values[0], &values, &bases)?;
            }
            for ((list, _), result) in lists.iter_mut().zip(&results) {
                *list = level.advance(result, list);
            }
        }
        Ok(lists.pop().expect("there is a list of values at least").0)
    }
}

/// `W u + bias + known` in the ring: the online half of a linear layer, on the server's share `u` alone.
fn linear_online(
    plan: &linear::LinearPlan,
    index: usize,
    layer: &LayerWeights,
    u: &[u64],
    known: &[u64],
    width: u32,
) -> Result<Vec<u64>, BackendError> {
    let conv = &plan.consumers()[index].conv;
    let mut out = conv2d(conv, &layer.weights, u, width).map_err(LinearError::from)?;
    if layer.bias.len() != conv.out_ch {
        return Err(NO_WEIGHTS);
    }
    let (per_channel, mask) = (out.len() / conv.out_ch, ring_mask(width));
    for ((out, known), bias) in out.chunks_mut(per_channel).zip(known.chunks(per_channel)).zip(&layer.bias) {
        for (y, s) in out.iter_mut().zip(known) {
            *y = y.wrapping_add(*bias as u64).wrapping_add(*s) & mask;
        }
    }
    Ok(out)
}
