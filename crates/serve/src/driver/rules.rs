//! Rules of access that change while the server runs, and clients that are none any more.
use super::{Connection, Driver};
use crate::access::Rules;
use crate::closer::Closer;
use crate::event::TurnedAway;
use crate::gate::burn_revoked;
use std::collections::BTreeSet;
use std::sync::Arc;
use tacit_ids::{ClientId, MaterialId};
use tacit_store::Serial;
use tokio::task::spawn_blocking;

impl Driver {
    /// Takes in who shows this certificate for this client's key, or says why not.
    pub(super) fn greet(
        &mut self,
        number: u64,
        (client, serial): (ClientId, Serial),
        closer: Closer,
    ) -> Result<(), TurnedAway> {
        if let Some(reason) = self.gate.revokes(client, &serial) {
            return Err(TurnedAway { kind: "of clients that were revoked", reason });
        }
        if self.connections.len() >= self.max_connections {
            let reason = "all places are taken; try again later";
            return Err(TurnedAway { kind: "of clients that found no place", reason });
        }
        self.connections.insert(number, Connection { closer, client, serial, folder: None });
        self.record.connected(client);
        Ok(())
    }

    /// These rules hold from now on. Clients that they revoke are cut off, with all that they have here;
    /// connections that were made with a revoked certificate are cut, and what its client has here stays for
    /// another certificate of the same key.
    pub(super) fn set_rules(&mut self, rules: Arc<Rules>) {
        tracing::info!("the rules of access have changed");
        self.gate.set(Arc::clone(&rules));
        let connected = self.connections.values().map(|c| c.client);
        let known: BTreeSet<ClientId> = connected.chain(self.queue.clients()).collect();
        for client in known.into_iter().filter(|client| rules.of(*client).revoked) {
            tracing::warn!(%client, "client revoked: its connections are cut, and its material is destroyed");
            self.queue.revoked(client);
            self.memory.forget(client);
        }
        for connection in self.connections.values().filter(|c| rules.revokes(c.client, &c.serial).is_some()) {
            let Connection { client, serial, closer, .. } = connection;
            tracing::warn!(%client, "a connection of a client is cut: it, or its certificate {serial}, was revoked");
            closer.close();
        }
        if let Some(store) = self.store.clone() {
            spawn_blocking(move || {
                if let Err(e) = burn_revoked(&store, &rules) {
                    tracing::error!("material of revoked clients cannot be destroyed: {e}");
                }
            });
        }
    }

    /// The last connection of a client has ended.
    pub(super) fn gone(&mut self, client: ClientId) {
        self.memory.forget(client);
        let store = self.store.clone().filter(|_| self.gate.is_revoked(client));
        if let Some(store) = store {
            // What a job of it had almost made when it was cut.
            spawn_blocking(move || {
                let burnt = store.list_of(client).and_then(|entries| {
                    let ids: Vec<MaterialId> = entries.iter().map(|entry| entry.id).collect();
                    store.discard(&ids, Some(client))
                });
                if let Err(e) = burnt {
                    tracing::error!("material of a revoked client cannot be destroyed: {e}");
                }
            });
        }
    }
}
