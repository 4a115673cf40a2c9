//! The server's half as it comes from the dealer, in pieces of any size, and the client's words as they are
//! needed: what the online phase reads goes on to where it is kept, the rest is used and dropped. So no more
//! than one linear layer of it is in memory.

use tacit_arith::prg::{Prg, Seed};
use tacit_arith::ring::ConvSpec;
use tacit_graph::NodeId;
use tacit_mpc::Role;
use tacit_mpc::codec::{Packed, Reader, Writer};
use tacit_mpc::fss::gate::Ledger;
use tacit_mpc::wire::PackedMessages;
use tacit_net::Channel;
use zeroize::Zeroizing;

use super::client::LINEAR;
use super::half::{self, DIGEST, Digesting, ServerHead, When};
use super::plan::{LinearBytes, Plan, Step};
use super::server::{self, NO_WEIGHTS};
use super::{Level, both};
use crate::BackendError;
use crate::dealt::audit::Sink;
use crate::dealt::statics;
use crate::ring::fixed::ring_mask;
use crate::ring::{Node, Weights};
use crate::seam::Stop;

/// What comes next of a half.
#[derive(Clone, Copy)]
enum Part<'a> {
    Head,
    Linear(NodeId, &'a ConvSpec, &'a Node),
    /// Kept as it is.
    Kept,
    Digest,
}

/// What the half begins with, and what is to be checked.
struct Opening {
    head: ServerHead,
    ledger: Ledger,
}

/// Takes a half.
pub(super) struct Intake<'a> {
    plan: &'a Plan,
    weights: &'a Weights,
    /// Of the linear layers, in node order.
    keys: std::slice::Iter<'a, Seed>,
    parts: Box<dyn Iterator<Item = (Part<'a>, usize)> + 'a>,
    part: Part<'a>,
    /// Bytes of this part that are still to come.
    left: usize,
    gathered: Zeroizing<Vec<u8>>,
    half: Digesting,
    kept: Digesting,
    opening: Option<Opening>,
    /// Where both parties are checked: the server's words, which it sends when it has all of the client's.
    pending: Vec<(Vec<u64>, u32)>,
    sink: &'a mut Sink<'a>,
    stop: &'a Stop,
}

impl<'a> Intake<'a> {
    /// Gives the material to `sink`.
    pub(super) fn new(
        plan: &'a Plan,
        (weights, keys): (&'a Weights, &'a [Seed]),
        sink: &'a mut Sink<'a>,
        stop: &'a Stop,
    ) -> Self {
        let of_step = move |(id, (step, node)): (NodeId, (&'a Step, &'a Node))| match step {
            Step::Linear(conv) => {
                (Part::Linear(id, conv, node), LinearBytes::of(step, node, (plan.level(), plan.batch)).dealt())
            }
            other => (Part::Kept, half::batch_bytes(other, plan.level())),
        };
        let ends = [(Part::Kept, half::reveal_bytes(plan)), (Part::Digest, DIGEST)];
        let steps = plan.steps.iter().zip(plan.graph.nodes()).enumerate().map(of_step);
        let parts = std::iter::once((Part::Head, half::head_bytes(plan))).chain(steps).chain(ends);
        let [half, kept] = [(); 2].map(|()| Digesting::new(&plan.binding(), Role::Server));
        Self {
            plan,
            weights,
            keys: keys.iter(),
            parts: Box::new(parts.filter(|(_, bytes)| *bytes > 0)),
            part: Part::Head,
            left: 0,
            gathered: Zeroizing::default(),
            half,
            kept,
            opening: None,
            pending: Vec::new(),
            sink,
            stop,
        }
    }

    /// The next bytes of the half.
    pub(super) fn take(&mut self, mut bytes: &[u8], channel: &mut Channel) -> Result<(), BackendError> {
        while !bytes.is_empty() {
            if self.left == 0 {
                self.begin()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.left));
            (bytes, self.left) = (later, self.left - now.len());
            if !matches!(self.part, Part::Digest) {
                self.half.update(now);
            }
            match self.part {
                Part::Kept => self.keep(now)?,
                Part::Head | Part::Linear(..) | Part::Digest => self.gathered.extend_from_slice(now),
            }
            if self.left == 0 {
                self.end(channel)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), BackendError> {
        self.stop.begin()?;
        (self.part, self.left) = self.parts.next().ok_or_else(|| half::length("more"))?;
        let gathered = if matches!(self.part, Part::Kept) { 0 } else { self.left };
        // All of it at once: what grows leaves its beginning behind in memory.
        self.gathered = Zeroizing::new(Vec::with_capacity(gathered));
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        self.kept.update(bytes);
        (self.sink)(bytes)
    }

    /// All of a part is there.
    fn end(&mut self, channel: &mut Channel) -> Result<(), BackendError> {
        match self.part {
            Part::Head => {
                let bytes = std::mem::take(&mut self.gathered);
                let head = ServerHead::read(self.plan, &mut Reader::new(&bytes))?;
                let session = half::session(self.plan, head.hash, When::Offline);
                let ledger = Ledger::new(Role::Server, &session, &head.delta);
                self.opening = Some(Opening { head, ledger });
                self.keep(&bytes)
            }
            Part::Linear(id, conv, node) => self.linear(id, conv, node, channel),
            Part::Kept | Part::Digest => Ok(()),
        }
    }

    /// `A r - t` and the client's V are kept as their sum.
    fn linear(&mut self, id: NodeId, conv: &ConvSpec, node: &Node, channel: &mut Channel) -> Result<(), BackendError> {
        let bytes = std::mem::take(&mut self.gathered);
        let (mut from, width, batch) = (Reader::new(&bytes), node.fixed.width, self.plan.batch);
        let mut known = Zeroizing::new(from.packed(self.plan.elements(node), width)?.values());
        let key = self.keys.next().ok_or(BackendError::Misuse("there is a key for each linear layer"))?;
        let masked = statics::masked(self.weights.get(id).ok_or(NO_WEIGHTS)?, key, width);
        let Opening { ledger, .. } = self.opening.as_mut().expect("the head comes before all layers");
        let words = match self.plan.level() {
            Level::L1 => server::received(&masked, (conv, width, batch), &mut from, channel, ledger)?,
            Level::L2 => {
                let (own, opened) = both::received(&masked, (conv, width, batch), &mut from, channel, ledger)?;
                self.pending.push((own, width));
                opened
            }
        };
        known.iter_mut().zip(&words).for_each(|(k, v)| *k = k.wrapping_add(*v) & ring_mask(width));
        let mut out = Writer::default();
        out.packed(&Packed::new(&known, width));
        self.keep(&out.finish())?;
        let step = Step::Linear(*conv);
        self.keep(from.bytes(LinearBytes::of(&step, node, (self.plan.level(), batch)).projected)?)
    }

    /// Nothing more comes from the dealer: checks what came, and what the client sent.
    pub(super) fn finish(mut self, channel: &mut Channel, prg: &mut Prg) -> Result<(), BackendError> {
        if self.left > 0 || self.parts.next().is_some() {
            return Err(half::length("fewer"));
        }
        self.half.check(&self.gathered)?;
        let Opening { head, ledger } = self.opening.expect("a half that has ended has begun");
        for (own, width) in self.pending {
            channel.send_packed(LINEAR, &own, width)?;
        }
        let [masks, _] = head.masks;
        match self.plan.level() {
            Level::L1 => ledger.verify(&head.key, masks, (channel, prg))?,
            Level::L2 => ledger.agree(&head.key, masks, (channel, prg))?,
        }
        (self.sink)(&self.kept.finish())
    }
}
