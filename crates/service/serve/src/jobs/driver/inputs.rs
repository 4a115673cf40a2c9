//! Inputs that clients announce and watch without a connection of the protocol (over HTTP).
use super::Driver;
use crate::ServeError;
use crate::jobs::queue::{InputOrigin, InputStatus};
use tacit_client::wire::{Announce, InputId, Request};
use tacit_ids::ClientId;
use tokio::sync::oneshot;

/// A request that waits for an input's turn, or for a state other than `state`.
pub(super) struct Watcher {
    pub(super) client: ClientId,
    pub(super) name: InputId,
    pub(super) state: &'static str,
    pub(super) reply: oneshot::Sender<Option<InputStatus>>,
}

impl Driver {
    /// Answers watchers whose wait has ended, and drops those whose client has left.
    pub(super) fn tell_watchers(&mut self) {
        let (queue, limit) = (&self.queue, self.work.watchers.len());
        for i in (0..limit).rev() {
            let Watcher { client, name, state, reply } = &self.work.watchers[i];
            let status = queue.status(*client, *name);
            let is_over = status.is_none_or(|current| current.may_start || current.state != *state);
            if is_over || reply.is_closed() {
                // Fails only if the client has left.
                let _ = self.work.watchers.swap_remove(i).reply.send(status);
            }
        }
    }

    /// Takes a notice, under the same rules as a notice from a connection.
    pub(super) fn take_notice(&mut self, origin: &InputOrigin, announce: Announce) -> Result<InputStatus, ServeError> {
        let refused = ServeError::NotGranted;
        if self.ending.stopping.is_some() {
            return Err(refused("the server is being stopped".into()));
        }
        self.gate.check(origin.client, &Request::Announce(announce.clone()), Some(&origin.offered))?;
        self.queue.announce(None, origin, &announce).map_err(refused)?;
        let status = self.queue.status(origin.client, announce.name);
        status.ok_or_else(|| refused("the input ended as soon as it was announced".into()))
    }
}
