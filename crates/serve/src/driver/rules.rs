//! Rules of access that change while the server runs, and clients that are none any more.
use super::{Connection, Driver};
use crate::access::Rules;
use crate::closer::Closer;
use crate::event::TurnedAway;
use crate::gate::{REVOKED, burn_revoked};
use std::collections::BTreeSet;
use std::sync::Arc;
use tacit_ids::{ClientId, MaterialId};
use tokio::task::spawn_blocking;

impl Driver {
    /// Takes a client in, or says why not.
    pub(super) fn greet(&mut self, number: u64, client: ClientId, closer: Closer) -> Result<(), TurnedAway> {
        if self.gate.is_revoked(client) {
            return Err(TurnedAway { kind: "of clients that were revoked", reason: REVOKED });
        }
        if self.connections.len() >= self.max_connections {
            let reason = "all places are taken; try again later";
            return Err(TurnedAway { kind: "of clients that found no place", reason });
        }
        self.connections.insert(number, Connection { closer, client, folder: None });
        self.record.connected(client);
        Ok(())
    }

    /// These rules hold from now on. Clients that they revoke are cut off, with all that they have here.
    pub(super) fn set_rules(&mut self, rules: Arc<Rules>) {
        tracing::info!("the rules of access have changed");
        self.gate.set(Arc::clone(&rules));
        let connected = self.connections.values().map(|c| c.client);
        let known: BTreeSet<ClientId> = connected.chain(self.queue.clients()).collect();
        for client in known.into_iter().filter(|client| rules.of(*client).revoked) {
            tracing::warn!(%client, "client revoked: its connections are cut, and its material is destroyed");
            self.queue.revoked(client);
            self.memory.forget(client);
            for connection in self.connections.values().filter(|c| c.client == client) {
                connection.closer.close();
            }
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
