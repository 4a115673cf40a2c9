//! Tokens of a client's rate: one for each input, taken once, before material is made for it.
use super::Driver;
use crate::ServeError;
use crate::jobs::job::PendingRequest;
use std::time::Instant;
use tacit_admission::ConnectionId;
use tacit_client::wire::Request;
use tacit_ids::ClientId;

impl Driver {
    /// Takes the tokens that a request costs its client's rate. Returns how many.
    pub(super) fn take_tokens(&mut self, client: ClientId, ask: &PendingRequest) -> Result<u32, ServeError> {
        let costs = matches!(ask.request, Request::Ask(_)) || ask.request.is_phase();
        if !costs || self.queue.is_paid(client, &ask.request) || self.gate.is_paid(client, &ask.request) {
            return Ok(0);
        }
        let inputs = ask.open.as_ref().map_or(1, |open| open.origin.offered.batch());
        self.gate.take_tokens(client, inputs, Instant::now())
    }

    /// After admission, records that the request's input has paid; after a refusal, gives the
    /// tokens back.
    pub(super) fn settle_tokens(&mut self, number: ConnectionId, ask: &PendingRequest, is_placed: bool) {
        let Some(client) = self.connections.get(&number).map(|connection| connection.identity.client) else { return };
        match is_placed {
            true => {
                self.queue.pay(client, &ask.request);
                self.gate.record_paid(client, &ask.request);
            }
            false => self.gate.give_tokens_back(client, ask.tokens),
        }
    }
}
