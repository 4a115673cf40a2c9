//! The client's side of the offline and online phases. Both walk the graph over the client's
//! shares, which are the same in both phases: offline prepares material for them, online uses it.

use std::collections::VecDeque;

use tacit_arith::prg::{Prg, Seed};
use tacit_graph::NodeId;
use tacit_mpc::codec::Packed;
use tacit_mpc::gate::{ClientGate, ClientWrap, GateSpec, WrapSpec};
use tacit_mpc::wire::PackedMessages;
use tacit_mpc::{Ots, Role, Session};
use tacit_net::Tag;

use super::cost;
use super::lattice::Lattice;
use super::material::{ClientMaterial, FOLLOWS_PLAN, Piece};
use super::plan::{CheetahStepTypes, Member, Plan};
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::{Stop, check_made_for};
use tacit_ring::Node;
use tacit_ring::fixed::ring_mask;
use tacit_ring::share::{
    ClientPhase, ClientShares, ClientWalk, GatePosition, NodeObserver, check_input, receive_result,
};

pub(super) const INPUT: Tag = Tag::new(0x0410, "masked input");
pub(super) const RESULT: Tag = Tag::new(0x0411, "share of the result");
/// Message: the client's part of a signed widening.
pub(super) const WIDEN: Tag = Tag::new(0x0412, "widening difference");

/// What a connection's setup leaves at the client: its keys and the random OTs.
pub struct ClientKeys<L: Lattice> {
    lattice: L::ClientKeys,
    ots: Ots,
}

/// Runs the lattice part of the setup, over OTs that are set up already.
pub(super) fn setup<L: Lattice>(
    plan: &Plan<L>,
    session: &mut Session<'_>,
    ots: Ots,
) -> Result<ClientKeys<L>, BackendError> {
    let lattice = L::client_setup(&plan.lattice(), session)?;
    session.channel.flush()?;
    Ok(ClientKeys { lattice, ots })
}

/// Makes the client's material. The shares that the client chooses itself follow from `seed`.
pub(super) fn offline<L: Lattice>(
    plan: &Plan<L>,
    keys: &mut ClientKeys<L>,
    seed: Seed,
    session: &mut Session<'_>,
    stop: &Stop,
) -> Result<ClientMaterial, BackendError> {
    let rots = cost::rots(plan);
    keys.ots.reserve(Role::Client, rots.client, rots.server);
    let generator = Prg::from_seed(seed.clone());
    L::send_public(&plan.lattice(), &generator, session)?;
    let phase = Offline {
        plan,
        keys,
        masks: Masks::new(plan, &generator)?,
        answers: vec![VecDeque::new(); plan.groups.len()],
        linear: Vec::new(),
        pieces: Vec::new(),
        session,
    };
    let Plan { graph, steps, batch, .. } = plan;
    let mut shares = ClientWalk { graph, steps, batch: *batch, seed: generator, phase, tap: &mut |_, _| {} };
    stop.walk(&**graph, &mut shares)?;
    let Offline { linear, pieces, .. } = shares.phase;
    Ok(ClientMaterial { plan: plan.digest(), seed, linear, pieces })
}

/// Runs the online phase. `tap` gets the client's share of every node's tensor (`[B, elements]`, in
/// the node's ring).
///
/// # Errors
/// `InputLength`, `Misuse` if the material belongs to another plan, or channel and protocol errors.
pub fn online_traced<L: Lattice>(
    plan: &Plan<L>,
    material: ClientMaterial,
    input: &[i64],
    session: &mut Session<'_>,
    tap: &mut NodeObserver<'_>,
    stop: &Stop,
) -> Result<Vec<i64>, BackendError> {
    check_input(&plan.graph, plan.batch, input)?;
    let ClientMaterial { plan: made_for, seed, linear, pieces } = material;
    check_made_for(&made_for, &plan.digest())?;
    let seed = Prg::from_seed(seed);
    let phase = Online {
        input,
        masks: Masks::new(plan, &seed)?,
        unread: &plan.unread,
        linear: linear.into_iter(),
        pieces: pieces.into_iter(),
        session: &mut *session,
    };
    let Plan { graph, steps, batch, .. } = plan;
    let mut shares = ClientWalk { graph, steps, batch: *batch, seed, phase, tap: &mut |id, share| tap(id, share) };
    let share = stop.walk(&**graph, &mut shares)?;
    receive_result(&plan.graph, &share, RESULT, session.channel)
}

/// The client's shares of encrypted tensors, as far as the client may choose them.
struct Masks<'a, L: Lattice> {
    plan: &'a Plan<L>,
    secret: L::Secret,
    /// The material's generator. Each tensor uses a child of it.
    seed: Prg,
}

/// A bit set in the numbers of the children of tensors. Shares that the walk chooses use lower
/// numbers.
const TENSOR_CHILD: u64 = 1 << 63;

impl<'a, L: Lattice> Masks<'a, L> {
    fn new(plan: &'a Plan<L>, seed: &Prg) -> Result<Self, BackendError> {
        Ok(Self { plan, secret: L::secret(&plan.lattice(), seed)?, seed: Prg::from_seed(seed.seed().clone()) })
    }

    fn tensor_prg(&self, tensor: NodeId) -> Prg {
        self.seed.fork(TENSOR_CHILD | tensor as u64)
    }

    /// Replaces the share of a node's tensor with the encryption's choice, where the client may choose it.
    fn choose(&self, id: NodeId, share: &mut [u64]) -> Result<(), BackendError> {
        let Some(group) = self.plan.free[id] else { return Ok(()) };
        L::choose(&self.plan.groups[group].plan, &self.secret, &self.tensor_prg(id), share)
    }
}

struct Offline<'a, 's, L: Lattice> {
    plan: &'a Plan<L>,
    keys: &'a mut ClientKeys<L>,
    masks: Masks<'a, L>,
    /// Per group, the shares of members that the walk reaches later.
    answers: Vec<VecDeque<Vec<u64>>>,
    linear: Vec<Packed>,
    pieces: Vec<Piece<ClientGate, ClientWrap>>,
    session: &'a mut Session<'s>,
}

impl<L: Lattice> ClientPhase<CheetahStepTypes> for Offline<'_, '_, L> {
    fn choose(&mut self, id: NodeId, share: &mut [u64]) -> Result<(), BackendError> {
        self.masks.choose(id, share)
    }

    fn input(&mut self, _: &[u64], _: u32) -> Result<(), BackendError> {
        Ok(())
    }

    fn linear(&mut self, &Member { group, index }: &Member, _: NodeId, x: &[u64]) -> Result<Vec<u64>, BackendError> {
        let members = &self.plan.groups[group];
        if index == 0 {
            let ClientKeys { lattice, ots } = &mut *self.keys;
            let (secret, random) = (&self.masks.secret, self.masks.tensor_prg(members.tensor));
            let shares = L::client(&members.plan, lattice, secret, x, &random, self.session, ots)?;
            self.answers[group] = shares.into();
        }
        let id = members.nodes[index];
        let (width, unread) = (self.plan.graph.nodes()[id].fixed.width, self.plan.unread[id]);
        let share = self.answers[group].pop_front().expect("the walk comes to each member of a group once");
        let stored: Vec<u64> = share.iter().map(|v| (v & ring_mask(width)) >> unread).collect();
        self.linear.push(Packed::new(&stored, width - unread));
        Ok(stored.iter().map(|v| v << unread).collect())
    }

    fn gate(&mut self, _: GatePosition, spec: &GateSpec, gate: &ClientShares<'_>) -> Result<(), BackendError> {
        let ClientShares { tested, values, targets, .. } = *gate;
        let piece = ClientGate::offline(spec, tested, values, targets, self.session, &mut self.keys.ots)?;
        self.pieces.push(Piece::Gate(piece));
        Ok(())
    }

    fn widen(&mut self, _: NodeId, spec: &WrapSpec, c: &[u64], _: &[u64]) -> Result<(), BackendError> {
        self.pieces.push(Piece::Wrap(ClientWrap::offline(spec, c, self.session, &mut self.keys.ots)?));
        Ok(())
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}

struct Online<'a, 's, L: Lattice> {
    input: &'a [i64],
    masks: Masks<'a, L>,
    unread: &'a [u32],
    linear: std::vec::IntoIter<Packed>,
    pieces: std::vec::IntoIter<Piece<ClientGate, ClientWrap>>,
    session: &'a mut Session<'s>,
}

impl<L: Lattice> ClientPhase<CheetahStepTypes> for Online<'_, '_, L> {
    fn choose(&mut self, id: NodeId, share: &mut [u64]) -> Result<(), BackendError> {
        self.masks.choose(id, share)
    }

    fn input(&mut self, share: &[u64], width: u32) -> Result<(), BackendError> {
        let masked: Vec<u64> = self.input.iter().zip(share).map(|(&x, r)| (x as u64).wrapping_sub(*r)).collect();
        Ok(self.session.channel.send_packed(INPUT, &masked, width)?)
    }

    fn linear(&mut self, _: &Member, id: NodeId, _: &[u64]) -> Result<Vec<u64>, BackendError> {
        let mut share = self.linear.next().expect(FOLLOWS_PLAN).values();
        share.iter_mut().for_each(|v| *v <<= self.unread[id]);
        Ok(share)
    }

    fn gate(&mut self, _: GatePosition, spec: &GateSpec, gate: &ClientShares<'_>) -> Result<(), BackendError> {
        let Some(Piece::Gate(piece)) = self.pieces.next() else { unreachable!("{FOLLOWS_PLAN}") };
        Ok(piece.online(spec, gate.tested, gate.values, gate.bases, gate.targets, self.session)?)
    }

    fn widen(&mut self, _: NodeId, spec: &WrapSpec, c: &[u64], target: &[u64]) -> Result<(), BackendError> {
        let Some(Piece::Wrap(piece)) = self.pieces.next() else { unreachable!("{FOLLOWS_PLAN}") };
        let share = piece.online(spec, c, self.session)?;
        let difference: Vec<u64> = share.iter().zip(target).map(|(z, r)| z.wrapping_sub(*r) >> spec.width).collect();
        Ok(self.session.channel.send_packed(WIDEN, &difference, spec.extra)?)
    }

    fn settle(&mut self, _: NodeId, _: &Node, share: Vec<u64>) -> Result<Vec<u64>, BackendError> {
        Ok(share)
    }
}
