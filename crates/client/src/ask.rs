//! A request and its answer.
use crate::ClientError;
use crate::error::server_of;
use crate::wire::{REQUEST, Reply, Request, recv_reply, send};
use tacit_net::Channel;

/// Asks and waits for the answer; a refusal is an error.
pub(crate) fn ask(channel: &mut Channel, request: &Request) -> Result<Reply, ClientError> {
    send(channel, REQUEST, request).map_err(|e| ClientError::from(e).of(channel, request.name()))?;
    answered(channel, request.name())
}

/// The answer to `request`; a refusal is an error.
pub(crate) fn answered(channel: &mut Channel, request: &'static str) -> Result<Reply, ClientError> {
    match recv_reply(channel).map_err(|e| ClientError::from(e).of(channel, request))? {
        Reply::Refused { reason } => Err(ClientError::Refused { request, reason }),
        Reply::Goodbye { reason } => Err(ClientError::Ended { server: server_of(channel), reason }),
        reply => Ok(reply),
    }
}
