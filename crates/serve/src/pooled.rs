//! Halves of material that a dealer has dealt ahead of time, for no client in particular, and the dealer as a
//! connection reaches it: it gives out one of these first.
//!
//! A half is used once, and by one client: it is a value that is moved from the pool to a connection and read
//! there once, in a file that has no name and so ends with this process, however that ends. And nobody has to
//! believe that: the dealer binds its other half to one claim, once and for good, before this one is read.
use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tacit_backends::seam::{Claim, ConnectionResources, Dealer, Order, Piece, Seal, Seed, Stop, Ticket};
use tacit_backends::{BackendError, ServerModel};
use tacit_ids::MaterialId;
use tacit_store::Store;
use zeroize::Zeroizing;

/// Bytes of a half that are read at a time.
const PIECE: usize = 1 << 20;

/// The server's half of a material that is nobody's yet.
pub(crate) struct Pooled {
    /// The plan's digest for one input, and for how many inputs it is.
    of: ([u8; 32], u32),
    ticket: Ticket,
    /// In a file without a name, sealed if the folder is.
    half: Box<dyn Read + Send>,
    bytes: u64,
}

/// Has a material dealt for nobody yet, and puts the half of it away; how long that took.
///
/// # Errors
/// Of the dealer; [`BackendError::Spool`].
pub(crate) fn deal(
    store: &Store,
    resources: &ConnectionResources,
    model: &dyn ServerModel,
) -> Result<(Pooled, Duration), BackendError> {
    let (begun, failed) = (Instant::now(), |what: String| BackendError::Spool { what });
    let order = model.order().ok_or(BackendError::Misuse("pools are of models that a dealer deals for"))?;
    let id = MaterialId::random().map_err(|e| BackendError::Random(e.to_string()))?;
    let (mut spool, mut known) = (store.spool(id, order.server_bytes).map_err(|e| failed(e.to_string()))?, None);
    resources.dealer()?.deal_ahead(&order, &mut |piece| match piece {
        Piece::Ticket(ticket) => {
            known = Some(*ticket);
            Ok(())
        }
        Piece::Half(bytes) => spool.write_all(bytes).map_err(|e| failed(e.to_string())),
    })?;
    let ticket = known.ok_or(BackendError::Misuse("a dealer gives the ticket first"))?;
    let half = spool.finish().map_err(|e| failed(e.to_string()))?;
    Ok((Pooled { of: (order.digest, order.batch), ticket, half, bytes: order.server_bytes }, begun.elapsed()))
}

/// What a connection's next offline phase uses, if anything.
#[derive(Clone, Default)]
pub(crate) struct PooledSlot(Arc<Mutex<Option<Pooled>>>);

impl PooledSlot {
    /// In place of what was there, which nobody uses any more.
    pub(crate) fn hold(&self, pooled: Option<Pooled>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pooled;
    }

    fn take(&self, order: &Order<'_>) -> Option<Pooled> {
        let pooled = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        pooled.filter(|pooled| pooled.of == (order.digest, order.batch))
    }
}

/// A dealer that gives out what is in hand first.
pub(crate) struct FromPool {
    pub(crate) dealer: Arc<dyn Dealer>,
    pub(crate) hand: PooledSlot,
    /// Hears that the dealer has none of what was dealt ahead.
    pub(crate) lost: Arc<dyn Fn() + Send + Sync>,
}

impl Pooled {
    /// The half, as the dealer gave it.
    fn give(mut self, sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>) -> Result<(), BackendError> {
        sink(Piece::Ticket(&self.ticket))?;
        let mut piece = Zeroizing::new(vec![0; PIECE.min(self.bytes as usize)]);
        let mut left = self.bytes as usize;
        while left > 0 {
            let now = left.min(PIECE);
            self.half.read_exact(&mut piece[..now]).map_err(|e| BackendError::Spool { what: e.to_string() })?;
            sink(Piece::Half(&piece[..now]))?;
            left -= now;
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
        if let Some(pooled) = self.hand.take(order) {
            if self.dealer.bind(&pooled.ticket, seal)? {
                return pooled.give(sink);
            }
            // It was started anew, or has given up what nobody came for.
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
        Arc::new(Self { dealer, hand: self.hand.clone(), lost: Arc::clone(&self.lost) })
    }
}
