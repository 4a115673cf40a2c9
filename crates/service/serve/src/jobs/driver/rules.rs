//! Changes of the access rules while the server runs, and revoked clients.
use super::{Connection, Driver};
use crate::accept::access::Rules;
use crate::accept::closer::Closer;
use crate::accept::identity::CertificateIdentity;
use crate::accept::refusal_reasons::NO_ROOM;
use crate::jobs::event::TurnedAway;
use crate::jobs::gate::burn_revoked;
use crate::shared::CLIENT_POOL;
use std::collections::BTreeSet;
use std::sync::Arc;
use tacit_admission::Full;
use tacit_ids::ClientId;
use tokio::task::spawn_blocking;

fn no_room(full: Full) -> &'static str {
    match full {
        Full::Pool => "all places are taken; try again later",
        Full::Peer => {
            "you have as many connections as one client may (see `tacit serve --connections-per-client`); close some"
        }
        Full::Evicted => "this connection gave way to newer ones; connect again",
    }
}

impl Driver {
    pub(super) fn admit_connection(
        &mut self,
        number: u64,
        identity: CertificateIdentity,
        closer: Closer,
    ) -> Result<(), TurnedAway> {
        if let Some(reason) = self.gate.reason_to_refuse(&identity) {
            return Err(TurnedAway { kind: "of clients that were revoked", reason });
        }
        let certificate = identity.helper.unwrap_or(identity.client);
        if let Err(full) = self.admission.authenticate(number, CLIENT_POOL, certificate.0) {
            return Err(TurnedAway { kind: NO_ROOM, reason: no_room(full) });
        }
        // A name in the access rules takes precedence.
        let given_name = self.gate.rules().borrow().rule_for(identity.client).name.clone();
        let name = given_name.or_else(|| identity.helper.is_none().then(|| Arc::clone(&identity.name)));
        self.record.record_connection(identity.client, name);
        self.connections.insert(number, Connection { closer, identity, folder: None });
        Ok(())
    }

    /// Disconnects revoked clients and destroys their material, and the unused material that
    /// revoked helpers made. Connections with a revoked certificate are cut, but their client's
    /// material stays for another certificate of the same key.
    pub(super) fn set_rules(&mut self, rules: Arc<Rules>) {
        tracing::info!("the rules of access have changed");
        self.gate.set_rules(Arc::clone(&rules));
        let connected = self.connections.values().map(|c| c.identity.client);
        let clients: BTreeSet<ClientId> = connected.chain(self.queue.clients()).collect();
        for client in clients.into_iter().filter(|client| rules.rule_for(*client).revoked) {
            let client_is = self.record.label_of(client);
            tracing::warn!(client = %client_is, "client revoked: its connections are cut, and its material is destroyed");
            self.queue.revoke_client(client);
            self.work.memory.forget(client);
        }
        for connection in self.connections.values().filter(|c| rules.reason_to_refuse(&c.identity).is_some()) {
            let Connection { identity, closer, .. } = connection;
            let serial = &identity.serial;
            tracing::warn!(client = %identity, "a connection of a client is cut: it, its helper, or the certificate {serial}, was revoked");
            closer.close();
        }
        self.destroy_revoked(None);
    }

    pub(super) fn on_helper_gone(&self, helper: ClientId) {
        if self.gate.is_revoked(helper) {
            self.destroy_revoked(Some(helper));
        }
    }

    pub(super) fn on_client_gone(&mut self, client: ClientId) {
        self.work.memory.forget(client);
        if self.gate.is_revoked(client) {
            // A job that was cut may have finished material or begun to store some.
            self.destroy_revoked(Some(client));
        }
    }

    /// Destroys stored material of one client, or of all, if it is revoked. The rules at the time
    /// of the work count: a client that is served again by then keeps its material.
    fn destroy_revoked(&self, client_filter: Option<ClientId>) {
        let Some(store) = self.store.clone() else { return };
        let rules = self.gate.rules();
        spawn_blocking(move || {
            let burnt = burn_revoked(&store, |client| {
                client_filter.is_none_or(|client_filter| client_filter == client)
                    && rules.borrow().rule_for(client).revoked
            });
            if let Err(e) = burnt {
                tracing::error!("what is stored of revoked clients cannot be destroyed: {e}");
            }
        });
    }
}
