//! The server's side of the phases. Offline the server has no values and makes material; online it
//! walks the graph over its shares.

use tacit_graph::NodeId;
use tacit_mpc::codec::Packed;
use tacit_mpc::gate::{GateSpec, ServerGate, ServerWrap, WrapSpec};
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{Ots, Role, Session};

use super::client::{INPUT, RESULT, WIDEN};
use super::cost;
use super::lattice::Lattice;
use super::material::{FOLLOWS_PLAN, Piece, ServerMaterial};
use super::plan::{CheetahStepTypes, Member, Plan, Step};
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::{Stop, check_made_for};
use tacit_ring::fixed::ring_mask;
use tacit_ring::share::{GatePosition, NodeObserver, ServerPhase, ServerShares, ServerWalk, linear_online};
use tacit_ring::slack::rounding_error;
use tacit_ring::{Node, Weights};

/// What a connection's setup leaves at the server: the client's keys and the random OTs.
pub struct ServerKeys<L: Lattice> {
    lattice: L::ServerKeys,
    ots: Ots,
}

/// Runs the lattice part of the setup, over OTs that are set up already.
pub(super) fn setup<L: Lattice>(
    plan: &Plan<L>,
    session: &mut Session<'_>,
    ots: Ots,
) -> Result<ServerKeys<L>, BackendError> {
    Ok(ServerKeys { lattice: L::server_setup(&plan.lattice(), session)?, ots })
}

const NO_WEIGHTS: BackendError = BackendError::Misuse("the weights belong to another model");

pub(super) fn offline<L: Lattice>(
    plan: &Plan<L>,
    keys: &mut ServerKeys<L>,
    weights: &Weights,
    session: &mut Session<'_>,
    stop: &Stop,
) -> Result<ServerMaterial, BackendError> {
    let rots = cost::rots(plan);
    keys.ots.reserve(Role::Server, rots.client, rots.server);
    let public = L::receive_public(&plan.lattice(), session)?;
    let (mut linear, mut pieces) = (vec![None; plan.graph.nodes().len()], Vec::new());
    for step in &plan.steps {
        stop.begin()?;
        match step {
            Step::Linear(Member { group, index: 0 }) => {
                let group = &plan.groups[*group];
                let layers = group.nodes.iter().map(|&id| Ok(&*weights.get(id).ok_or(NO_WEIGHTS)?.weights));
                let layers: Vec<&[i32]> = layers.collect::<Result<_, BackendError>>()?;
                let ServerKeys { lattice, ots } = &mut *keys;
                let shares = L::server(&group.plan, lattice, &public, &layers, session, ots)?;
                for (&id, share) in group.nodes.iter().zip(&shares) {
                    let (width, bits) = (plan.graph.nodes()[id].fixed.width, plan.rounded(id));
                    let half = u64::from(rounding_error(bits));
                    let stored: Vec<u64> = share.iter().map(|s| s.wrapping_add(half) >> bits).collect();
                    linear[id] = Some(Packed::new(&stored, width - bits));
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
            // Plans of this back end have no look-ups.
            Step::Linear(_) | Step::Input | Step::Local | Step::LookUp(_) => {}
        }
    }
    session.channel.flush()?;
    Ok(ServerMaterial { plan: plan.digest(), linear: linear.into_iter().flatten().collect(), pieces })
}

/// Runs the online phase. `tap` gets the server's share of every node's tensor (`[B, elements]`, in
/// the node's ring). The server may have a share `server_share` of the input: the input is then the sum of
/// `server_share` and the client's values.
///
/// # Errors
/// `Misuse` if weights or material belong to another model; channel and protocol errors.
pub fn online_traced<L: Lattice>(
    plan: &Plan<L>,
    material: ServerMaterial,
    weights: &Weights,
    server_share: Option<&[u64]>,
    session: &mut Session<'_>,
    tap: &mut NodeObserver<'_>,
    stop: &Stop,
) -> Result<(), BackendError> {
    let ServerMaterial { plan: made_for, linear, pieces } = material;
    check_made_for(&made_for, &plan.digest())?;
    let (linear, pieces) = (linear.into_iter(), pieces.into_iter());
    let phase = Online { plan, weights, server_share, session: &mut *session, linear, pieces };
    let Plan { graph, steps, batch, .. } = plan;
    let mut shares = ServerWalk { graph, steps, batch: *batch, phase, tap: &mut |id, share| tap(id, share) };
    let share = stop.walk(&**graph, &mut shares)?;
    session.channel.send_packed(RESULT, &share, plan.graph.output().fixed.width)?;
    Ok(session.channel.flush()?)
}

struct Online<'a, 's, L: Lattice> {
    plan: &'a Plan<L>,
    weights: &'a Weights,
    server_share: Option<&'a [u64]>,
    session: &'a mut Session<'s>,
    linear: std::vec::IntoIter<Packed>,
    pieces: std::vec::IntoIter<Piece<ServerGate, ServerWrap>>,
}

impl<L: Lattice> ServerPhase<CheetahStepTypes> for Online<'_, '_, L> {
    fn input(&mut self, node: &Node) -> Result<Vec<u64>, BackendError> {
        let mut share = self.session.channel.recv_packed(INPUT, self.plan.batch * node.elements(), node.fixed.width)?;
        if let Some(server_share) = self.server_share {
            share.iter_mut().zip(server_share).for_each(|(x, s)| *x = x.wrapping_add(*s) & ring_mask(node.fixed.width));
        }
        Ok(share)
    }

    fn linear(
        &mut self,
        &Member { group, index }: &Member,
        id: NodeId,
        node: &Node,
        x: &[u64],
    ) -> Result<Vec<u64>, BackendError> {
        let layer = self.weights.get(id).ok_or(NO_WEIGHTS)?;
        let mut known = self.linear.next().expect(FOLLOWS_PLAN).values();
        known.iter_mut().for_each(|s| *s <<= self.plan.rounded(id));
        let conv = &L::consumers(&self.plan.groups[group].plan)[index].conv;
        linear_online(conv, layer, x, &known, node.fixed.width)
    }

    fn gate(
        &mut self,
        _: GatePosition,
        spec: &GateSpec,
        shares: &ServerShares<'_>,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        let Some(Piece::Gate(piece)) = self.pieces.next() else { unreachable!("{FOLLOWS_PLAN}") };
        Ok(piece.online(spec, shares.tested, shares.values, shares.bases, self.session)?)
    }

    fn widen(&mut self, _: NodeId, spec: &WrapSpec, node: &Node, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let Some(Piece::Wrap(piece)) = self.pieces.next() else { unreachable!("{FOLLOWS_PLAN}") };
        let (_, share) = piece.online(spec, x, self.session)?;
        let difference = self.session.channel.recv_packed(WIDEN, spec.n, spec.extra)?;
        let mask = ring_mask(node.fixed.width);
        Ok(share.iter().zip(difference).map(|(s, d)| s.wrapping_add(d << spec.width) & mask).collect())
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}
