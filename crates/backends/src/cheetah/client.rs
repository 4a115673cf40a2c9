//! The client's side of the phases. Both phases walk the graph over the client's shares, which are the same
//! in both: offline it prepares for them, online it uses what was prepared.

use std::collections::VecDeque;
use std::sync::Arc;

use tacit_arith::prg::Prg;
use tacit_graph::{GraphError, Interpreter, NodeId, walk};
use tacit_he::coeff::Context;
use tacit_mpc::codec::Packed;
use tacit_mpc::gate::{ClientGate, ClientWrap, GateSpec, WrapSpec, slices};
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{Ots, Role, Session};
use tacit_net::Tag;

use super::cost;
use super::linear::{self, LinearClient, LinearError};
use super::local::{apply, gather};
use super::material::{ClientMaterial, MADE, Piece, check_plan, chosen_share};
use super::plan::{Plan, Step};
use super::reduce::Level;
use super::truncate;
use crate::BackendError;
use crate::ring::Node;
use crate::ring::fixed::{ring_mask, to_signed};

/// Message: the client's masked input.
pub(super) const INPUT: Tag = Tag::new(0x0410, "masked input");
/// Message: the server's share of the result.
pub(super) const RESULT: Tag = Tag::new(0x0411, "share of the result");
/// Message: the client's part of a signed widening.
pub(super) const WIDEN: Tag = Tag::new(0x0412, "widening difference");

/// What the client keeps of a connection's setup: its keys and the random OTs.
pub struct ClientKeys {
    linear: linear::ClientKeys,
    ots: Ots,
}

pub(super) fn setup(session: &mut Session<'_>, ots: Ots) -> Result<ClientKeys, BackendError> {
    let context = Arc::new(Context::new().map_err(LinearError::from)?);
    let keys = linear::ClientKeys::setup(&context, session.prg, session.channel)?;
    session.channel.flush()?;
    Ok(ClientKeys { linear: keys, ots })
}

pub(super) fn offline(
    plan: &Plan,
    keys: &mut ClientKeys,
    session: &mut Session<'_>,
) -> Result<ClientMaterial, BackendError> {
    let (client, server) = cost::rots(plan);
    keys.ots.reserve(Role::Client, client, server);
    let seed = session.prg.next_seed();
    let phase = Offline {
        plan,
        keys,
        answers: vec![VecDeque::new(); plan.groups.len()],
        linear: Vec::new(),
        pieces: Vec::new(),
    };
    let mut shares = Shares { plan, seed: Prg::from_seed(seed.clone()), session, phase, tap: &mut |_, _| {} };
    walk(&plan.graph, &mut shares)?;
    let Offline { linear, pieces, .. } = shares.phase;
    Ok(ClientMaterial { plan: plan.digest(), seed, linear, pieces })
}

/// The online phase; `tap` is shown the client's share of every node's tensor (`[elements]`, in the node's
/// ring).
///
/// # Errors
/// `InputLength`, `Misuse` if the material is of another plan, or channel and protocol errors.
pub fn online_traced(
    plan: &Plan,
    material: ClientMaterial,
    input: &[i64],
    session: &mut Session<'_>,
    tap: &mut dyn FnMut(NodeId, &[u64]),
) -> Result<Vec<i64>, BackendError> {
    let needed = plan.graph.input().elements();
    if input.len() != needed {
        return Err(BackendError::Graph(GraphError::Input {
            what: format!("{} integers, the model takes {needed}", input.len()),
        }));
    }
    let ClientMaterial { plan: made_for, seed, linear, pieces } = material;
    check_plan(plan, made_for)?;
    let phase = Online { input, linear: linear.into_iter(), pieces: pieces.into_iter() };
    let mut shares = Shares { plan, seed: Prg::from_seed(seed), session, phase, tap };
    let mine = walk(&plan.graph, &mut shares)?;
    let width = plan.graph.output().fixed.width;
    let theirs = session.channel.recv_packed(RESULT, mine.len(), width)?;
    Ok(mine.iter().zip(theirs).map(|(a, b)| to_signed(a.wrapping_add(b), width)).collect())
}

/// What a phase does where the parties must talk.
trait Phase {
    /// The input is masked with `share`.
    fn input(&mut self, share: &[u64], width: u32, session: &mut Session<'_>) -> Result<(), BackendError>;
    /// The client's share of a linear layer's result; `x` is its share of the tensor that the layer's group
    /// reads.
    fn linear(&mut self, step: (usize, usize), x: &[u64], session: &mut Session<'_>) -> Result<Vec<u64>, BackendError>;
    fn gate(&mut self, spec: &GateSpec, gate: &GateShares, session: &mut Session<'_>) -> Result<(), BackendError>;
    /// The client's share goes from `c` to `to` in the wider ring.
    fn widen(&mut self, spec: &WrapSpec, c: &[u64], to: &[u64], session: &mut Session<'_>) -> Result<(), BackendError>;
}

/// The client's shares around a batch of gates.
struct GateShares<'a> {
    tested: &'a [u64],
    values: &'a [&'a [u64]],
    bases: &'a [&'a [u64]],
    targets: &'a [&'a [u64]],
}

/// The walk over the client's shares.
struct Shares<'a, 's, P> {
    plan: &'a Plan,
    seed: Prg,
    session: &'a mut Session<'s>,
    phase: P,
    tap: &'a mut dyn FnMut(NodeId, &[u64]),
}

impl<P: Phase> Interpreter for Shares<'_, '_, P> {
    type Node = Node;
    type Wire = Vec<u64>;
    type Error = BackendError;

    fn node(&mut self, id: NodeId, node: &Node, inputs: &[&Vec<u64>]) -> Result<Vec<u64>, BackendError> {
        let plan = self.plan;
        let share = match &plan.steps[id] {
            Step::Input => {
                let width = node.fixed.width;
                let share = chosen_share(&self.seed, id, 0, 0, node.elements(), width);
                self.phase.input(&share, width, self.session)?;
                share
            }
            Step::Linear { group, index } => self.phase.linear((*group, *index), inputs[0], self.session)?,
            Step::Relu(spec) => {
                let target = chosen_share(&self.seed, id, 0, 0, node.elements(), node.fixed.width);
                let shares = GateShares { tested: inputs[0], values: &[inputs[0]], bases: &[], targets: &[&target] };
                self.phase.gate(spec, &shares, self.session)?;
                target
            }
            Step::Reduce { levels, indexed } => self.reduce(id, node, levels, *indexed, inputs[0])?,
            Step::Widen(spec) => {
                let high = chosen_share(&self.seed, id, 0, 0, spec.n, spec.extra);
                let target: Vec<u64> = inputs[0].iter().zip(high).map(|(c, h)| c | h << spec.width).collect();
                self.phase.widen(spec, inputs[0], &target, self.session)?;
                target
            }
            Step::TruncateExact { bits, gate } => {
                let target = chosen_share(&self.seed, id, 0, 0, node.elements(), node.fixed.width);
                let parts = truncate::parts(Role::Client, inputs[0], *bits);
                let shares = GateShares {
                    tested: &parts.tested,
                    values: &[&parts.value],
                    bases: &[&parts.base],
                    targets: &[&target],
                };
                self.phase.gate(gate, &shares, self.session)?;
                target
            }
            Step::Local => {
                let shapes: Vec<&[usize]> = node.inputs.iter().map(|&i| &*plan.graph.nodes()[i].shape).collect();
                apply(Role::Client, node, inputs, &shapes)
            }
        };
        (self.tap)(id, &share);
        Ok(share)
    }
}

impl<P: Phase> Shares<'_, '_, P> {
    fn reduce(
        &mut self,
        id: NodeId,
        node: &Node,
        levels: &[(Level, GateSpec)],
        indexed: bool,
        input: &[u64],
    ) -> Result<Vec<u64>, BackendError> {
        let width = self.plan.graph.nodes()[node.inputs[0]].fixed.width;
        // The positions are public at first: the client's share of them is zero.
        let mut lists = vec![(input.to_vec(), width)];
        if indexed {
            lists.push((vec![0; input.len()], node.fixed.width));
        }
        for (round, (level, spec)) in levels.iter().enumerate() {
            let (mut values, mut bases, mut targets) = (Vec::new(), Vec::new(), Vec::new());
            for (part, (list, width)) in lists.iter().enumerate() {
                let right = gather(list, &level.right, ring_mask(*width));
                values.push(difference(list, level, *width));
                targets.push(chosen_share(&self.seed, id, round, part, right.len(), *width));
                bases.push(right);
            }
            if spec.n() > 0 {
                let [values, bases, targets] = [&values, &bases, &targets].map(|lists| slices(lists));
                let shares = GateShares { tested: values[0], values: &values, bases: &bases, targets: &targets };
                self.phase.gate(spec, &shares, self.session)?;
            }
            for ((list, _), target) in lists.iter_mut().zip(&targets) {
                *list = level.advance(target, list);
            }
        }
        Ok(lists.pop().expect("there is a list of values at least").0)
    }
}

/// `left - right` of a level's pairs.
pub(super) fn difference(list: &[u64], level: &Level, width: u32) -> Vec<u64> {
    let pairs = level.left.iter().zip(&level.right);
    pairs.map(|(&a, &b)| list[a as usize].wrapping_sub(list[b as usize]) & ring_mask(width)).collect()
}

struct Offline<'a> {
    plan: &'a Plan,
    keys: &'a mut ClientKeys,
    /// Per group, shares of members that come later in the walk.
    answers: Vec<VecDeque<Vec<u64>>>,
    linear: Vec<Packed>,
    pieces: Vec<Piece<ClientGate, ClientWrap>>,
}

impl Phase for Offline<'_> {
    fn input(&mut self, _: &[u64], _: u32, _: &mut Session<'_>) -> Result<(), BackendError> {
        Ok(())
    }

    fn linear(
        &mut self,
        (group, index): (usize, usize),
        x: &[u64],
        session: &mut Session<'_>,
    ) -> Result<Vec<u64>, BackendError> {
        let members = &self.plan.groups[group];
        if index == 0 {
            let Session { channel, prg, .. } = session;
            let client = LinearClient::new(&self.keys.linear, &members.plan);
            self.answers[group] = client.run(x, prg, channel)?.into();
        }
        let width = self.plan.graph.nodes()[members.nodes[index]].fixed.width;
        let mut share = self.answers[group].pop_front().expect("the walk comes to each member of a group once");
        share.iter_mut().for_each(|v| *v &= ring_mask(width));
        self.linear.push(Packed::new(&share, width));
        Ok(share)
    }

    fn gate(&mut self, spec: &GateSpec, gate: &GateShares, session: &mut Session<'_>) -> Result<(), BackendError> {
        self.pieces.push(Piece::Gate(ClientGate::offline(
            spec,
            gate.tested,
            gate.values,
            session,
            &mut self.keys.ots,
        )?));
        Ok(())
    }

    fn widen(&mut self, spec: &WrapSpec, c: &[u64], _: &[u64], session: &mut Session<'_>) -> Result<(), BackendError> {
        self.pieces.push(Piece::Wrap(ClientWrap::offline(spec, c, session, &mut self.keys.ots)?));
        Ok(())
    }
}

struct Online<'a> {
    input: &'a [i64],
    linear: std::vec::IntoIter<Packed>,
    pieces: std::vec::IntoIter<Piece<ClientGate, ClientWrap>>,
}

impl Phase for Online<'_> {
    fn input(&mut self, share: &[u64], width: u32, session: &mut Session<'_>) -> Result<(), BackendError> {
        let masked: Vec<u64> = self.input.iter().zip(share).map(|(&x, r)| (x as u64).wrapping_sub(*r)).collect();
        Ok(session.channel.send_packed(INPUT, &masked, width)?)
    }

    fn linear(&mut self, _: (usize, usize), _: &[u64], _: &mut Session<'_>) -> Result<Vec<u64>, BackendError> {
        Ok(self.linear.next().expect(MADE).values())
    }

    fn gate(&mut self, spec: &GateSpec, gate: &GateShares, session: &mut Session<'_>) -> Result<(), BackendError> {
        let Some(Piece::Gate(piece)) = self.pieces.next() else { unreachable!("{MADE}") };
        Ok(piece.online(spec, gate.tested, gate.values, gate.bases, gate.targets, session)?)
    }

    fn widen(
        &mut self,
        spec: &WrapSpec,
        c: &[u64],
        target: &[u64],
        session: &mut Session<'_>,
    ) -> Result<(), BackendError> {
        let Some(Piece::Wrap(piece)) = self.pieces.next() else { unreachable!("{MADE}") };
        let share = piece.online(spec, c, session)?;
        let moved: Vec<u64> = share.iter().zip(target).map(|(z, r)| z.wrapping_sub(*r) >> spec.width).collect();
        Ok(session.channel.send_packed(WIDEN, &moved, spec.extra)?)
    }
}
