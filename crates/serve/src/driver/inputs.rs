//! Inputs of clients that hold no connection of the protocol.
use super::Driver;
use crate::ServeError;
use crate::queue::{Standing, Whose};
use std::time::Instant;
use tacit_client::wire::{Announce, Request};

impl Driver {
    /// Takes a notice in, under the same rules as one that comes over a connection.
    pub(super) fn announced(&mut self, whose: &Whose, announce: Announce) -> Result<Standing, ServeError> {
        let refused = ServeError::NotGranted;
        if self.stopping.is_some() {
            return Err(refused("the server is being stopped".into()));
        }
        let (client, name) = (whose.client, announce.name);
        let request = Request::Announce(announce);
        self.gate.pass(client, &request, Some(&whose.offered), Instant::now())?;
        let Request::Announce(announce) = request else { unreachable!("it was made so") };
        self.queue.announce_alone(whose, &announce).map_err(refused)?;
        let standing = self.queue.standing(client, name);
        standing.ok_or_else(|| refused("the input ended as soon as it was announced".into()))
    }
}
