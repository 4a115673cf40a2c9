//! A dealer without a network.

use std::sync::Arc;

use tacit_arith::prg::Seed;

use super::{Dealings, Party};
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::{Claim, Dealer, Order, Piece, Seal, Stop, Ticket};

/// A dealer in the process of a party, for tests, benchmarks and warm-ups without secrets.
pub struct InProcessDealer {
    dealings: Arc<Dealings>,
    party: Party,
}

impl InProcessDealer {
    /// Creates the access of `party` to the dealer.
    #[must_use]
    pub fn new(dealings: Arc<Dealings>, party: Party) -> Self {
        Self { dealings, party }
    }
}

impl InProcessDealer {
    fn register_and_deal(
        &self,
        order: &Order<'_>,
        seal: Option<Seal>,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let dealings = &self.dealings;
        if !dealings.knows(self.party, order.digest) {
            dealings.register(self.party, order.backend, order.public, order.part, |_| Ok(()))?;
        }
        let started = dealings.start(self.party, order.digest, order.batch, seal)?;
        sink(Piece::Ticket(&started.ticket))?;
        started.server_half(&mut |bytes| sink(Piece::Half(bytes)))
    }
}

impl Dealer for InProcessDealer {
    fn deal_into(
        &self,
        order: &Order<'_>,
        seal: &Seal,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.register_and_deal(order, Some(*seal), sink)
    }

    fn deal_ahead(
        &self,
        order: &Order<'_>,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.register_and_deal(order, None, sink)
    }

    fn bind(&self, ticket: &Ticket, seal: &Seal) -> Result<bool, BackendError> {
        self.dealings.bind(self.party, ticket, *seal)
    }

    fn fetch_into(
        &self,
        ticket: &Ticket,
        claim: &Claim,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        self.dealings.fetch(self.party, ticket, claim)?.half(sink)?;
        self.dealings.burn_received(ticket);
        Ok(())
    }

    fn consent(&self, ticket: &Ticket, claim: &Claim) -> Result<(), BackendError> {
        self.dealings.consent(self.party, ticket, claim)
    }

    fn open(&self, ticket: &Ticket) -> Result<Seed, BackendError> {
        self.dealings.reveal_seed(self.party, ticket)
    }

    fn stopped_by(self: Arc<Self>, _: &Stop) -> Arc<dyn Dealer> {
        // This dealer never waits.
        self
    }
}
