//! Halves of material that a dealer made ahead of time, for no client yet, and the dealer as
//! connections see it: it gives out pooled material first.
//!
//! A half is used once, by one client. It is a value that moves from the pool to a connection and
//! is read there once. Its file has no name, so it ends with this process, however that ends.
//! Clients need not trust this: the dealer binds its other half to one claim, once and for good,
//! before this half is read.
use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tacit_backends::seam::{Claim, ConnectionResources, Dealer, Order, Piece, Seal, Seed, Stop, Ticket};
use tacit_backends::{BackendError, ServerModel};
use tacit_ids::MaterialId;
use tacit_store::Store;
use zeroize::Zeroizing;

const PIECE_BYTES: usize = 1 << 20;

/// The server's half of a material that is for no client yet.
pub(crate) struct Pooled {
    /// Digest of the plan for one input, and the number of inputs.
    plan_and_inputs: ([u8; 32], u32),
    ticket: Ticket,
    /// The contents, in a file without a name, sealed if the folder is.
    half: Box<dyn Read + Send>,
    bytes: u64,
}

/// Has a material dealt for no client yet, and spools the server's half. Returns how long that
/// took, too.
pub(crate) fn deal(
    store: &Store,
    resources: &ConnectionResources,
    model: &dyn ServerModel,
) -> Result<(Pooled, Duration), BackendError> {
    let (begun, spool_error) = (Instant::now(), |what: String| BackendError::Spool { what });
    let order = model.order().ok_or(BackendError::Misuse("pools are of models that a dealer deals for"))?;
    let id = MaterialId::random().map_err(|e| BackendError::Random(e.to_string()))?;
    let (mut spool, mut announced) =
        (store.spool(id, order.server_bytes).map_err(|e| spool_error(e.to_string()))?, None);
    resources.dealer()?.deal_ahead(&order, &mut |piece| match piece {
        Piece::Ticket(ticket) => {
            announced = Some(*ticket);
            Ok(())
        }
        Piece::Half(bytes) => spool.write_all(bytes).map_err(|e| spool_error(e.to_string())),
    })?;
    let ticket = announced.ok_or(BackendError::Misuse("a dealer gives the ticket first"))?;
    let half = spool.finish().map_err(|e| spool_error(e.to_string()))?;
    Ok((
        Pooled { plan_and_inputs: (order.digest, order.batch), ticket, half, bytes: order.server_bytes },
        begun.elapsed(),
    ))
}

/// The pooled material for a connection's next offline phase, if any.
#[derive(Clone, Default)]
pub(crate) struct PooledSlot(Arc<Mutex<Option<Pooled>>>);

impl PooledSlot {
    /// Replaces the slot's material; the old one is never used.
    pub(crate) fn hold(&self, pooled: Option<Pooled>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pooled;
    }

    fn take(&self, order: &Order<'_>) -> Option<Pooled> {
        let pooled = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        pooled.filter(|pooled| pooled.plan_and_inputs == (order.digest, order.batch))
    }
}

/// A dealer that gives out the slot's material first.
pub(crate) struct FromPool {
    pub(crate) dealer: Arc<dyn Dealer>,
    pub(crate) pooled_slot: PooledSlot,
    /// Called when the dealer no longer has what it made ahead of time.
    pub(crate) lost: Arc<dyn Fn() + Send + Sync>,
}

impl Pooled {
    fn give(mut self, sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>) -> Result<(), BackendError> {
        sink(Piece::Ticket(&self.ticket))?;
        let mut piece = Zeroizing::new(vec![0; PIECE_BYTES.min(self.bytes as usize)]);
        let mut remaining = self.bytes as usize;
        while remaining > 0 {
            let len = remaining.min(PIECE_BYTES);
            self.half.read_exact(&mut piece[..len]).map_err(|e| BackendError::Spool { what: e.to_string() })?;
            sink(Piece::Half(&piece[..len]))?;
            remaining -= len;
        }
        Ok(())
    }
}

impl Dealer for FromPool {
    fn deal_into(
        &self,
        order: &Order<'_>,
        seal: &Seal,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        if let Some(pooled) = self.pooled_slot.take(order) {
            if self.dealer.bind(&pooled.ticket, seal)? {
                return pooled.give(sink);
            }
            // The dealer was restarted, or has given up material that stayed unused.
            (self.lost)();
        }
        self.dealer.deal_into(order, seal, sink)
    }

    fn deal_ahead(
        &self,
        order: &Order<'_>,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.dealer.deal_ahead(order, sink)
    }

    fn bind(&self, ticket: &Ticket, seal: &Seal) -> Result<bool, BackendError> {
        self.dealer.bind(ticket, seal)
    }

    fn fetch_into(
        &self,
        ticket: &Ticket,
        claim: &Claim,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.dealer.fetch_into(ticket, claim, sink)
    }

    fn consent(&self, ticket: &Ticket, claim: &Claim) -> Result<(), BackendError> {
        self.dealer.consent(ticket, claim)
    }

    fn open(&self, ticket: &Ticket) -> Result<Seed, BackendError> {
        self.dealer.open(ticket)
    }

    fn stopped_by(self: Arc<Self>, stop: &Stop) -> Arc<dyn Dealer> {
        let dealer = Arc::clone(&self.dealer).stopped_by(stop);
        Arc::new(Self { dealer, pooled_slot: self.pooled_slot.clone(), lost: Arc::clone(&self.lost) })
    }
}
