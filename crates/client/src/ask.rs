//! A request and its answer.
use crate::ClientError;
use crate::error::server_of;
use crate::wire::{REQUEST, Reply, Request, gather, misplaced, recv_reply, reply_instead, send};
use std::time::Duration;
use tacit_net::Channel;

/// Asks and waits for the answer; a refusal is an error.
pub(crate) fn ask(channel: &mut Channel, request: &Request) -> Result<Reply, ClientError> {
    send(channel, REQUEST, request).map_err(|e| ClientError::from(e).of(channel, request.name()))?;
    answered(channel, request.name())
}

/// The answer to `request`, when the server has come to it; a refusal is an error.
pub(crate) fn answered(channel: &mut Channel, request: &'static str) -> Result<Reply, ClientError> {
    loop {
        match recv_reply(channel).map_err(|e| ClientError::from(e).of(channel, request))? {
            Reply::Waiting { .. } => {}
            Reply::Refused { reason, again_s } => {
                return Err(ClientError::Refused { request, reason, again: again_s.map(Duration::from_secs) });
            }
            Reply::Goodbye { reason } => return Err(ClientError::Ended { server: server_of(channel), reason }),
            reply => return Ok(reply),
        }
    }
}

/// Why a phase failed: in the server's words, where it has ended the connection with some.
pub(crate) fn broken_off(channel: &mut Channel, error: ClientError, phase: &'static str) -> ClientError {
    match reply_instead(channel) {
        Some(Reply::Goodbye { reason }) => ClientError::Ended { server: server_of(channel), reason },
        _ => error.of(channel, phase),
    }
}

/// Asks for a phase. An input whose phase is refused is taken back: nobody comes for it, and the server need
/// not keep its place and its material.
pub(crate) fn ask_for(channel: &mut Channel, request: &Request) -> Result<Reply, ClientError> {
    let reply = ask(channel, request);
    took_back(channel, request, reply)
}

fn took_back(
    channel: &mut Channel,
    request: &Request,
    reply: Result<Reply, ClientError>,
) -> Result<Reply, ClientError> {
    if let (Err(ClientError::Refused { .. }), Some(name)) = (&reply, request.input()) {
        // It may have ended, and so may the connection: the refusal is what counts.
        let _ = ask(channel, &Request::Cancel { name });
    }
    reply
}

/// Asks for `first`, of which only a refusal matters, and for `second` without waiting in between; the answer
/// to the second.
pub(crate) fn ask_both(channel: &mut Channel, first: &Request, second: &Request) -> Result<Reply, ClientError> {
    // In one write: after a goodbye that has crossed it, a second one would fail before that is heard.
    let said = gather(channel, REQUEST, first).and_then(|()| send(channel, REQUEST, second));
    said.map_err(|e| ClientError::from(e).of(channel, first.name()))?;
    match answered(channel, first.name()) {
        Ok(Reply::Noted { .. }) => {
            let reply = answered(channel, second.name());
            took_back(channel, second, reply)
        }
        Ok(other) => Err(misplaced(first.name(), &other).into()),
        Err(refused @ ClientError::Refused { .. }) => match answered(channel, second.name()) {
            Err(ClientError::Refused { .. }) => Err(refused),
            Err(other) => Err(other),
            Ok(other) => Err(misplaced(second.name(), &other).into()),
        },
        Err(other) => Err(other),
    }
}
