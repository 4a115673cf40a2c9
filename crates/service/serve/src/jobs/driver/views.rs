//! Views of the driver's state.
use super::Driver;
use crate::ops::published::Status;
use crate::ops::snapshot::{PeerCounts, Scheduling, Snapshot};
use crate::shared::{CONTROL_POOL, OPERATOR_POOL};

impl Driver {
    pub(super) fn publish(&self, ended: bool) {
        let connections = self.connection_count();
        self.published.set(Status { connections, served: self.served, ended });
    }

    pub(super) fn connection_count(&self) -> usize {
        let counts = self.admission.counts();
        counts.handshakes + counts.pools.iter().sum::<usize>()
    }

    /// The state for operators, with client names from the access rules.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.base_snapshot();
        let rules = self.gate.rules();
        let rules = rules.borrow();
        let jobs = snapshot.jobs.iter_mut().map(|row| (row.client, &mut row.client_name));
        let clients = snapshot.clients.iter_mut().map(|row| (row.client, &mut row.client_name));
        for (client, row_name) in jobs.chain(clients) {
            if let Some(name) = rules.rule_for(client).name.as_deref() {
                name.clone_into(row_name);
            }
        }
        snapshot
    }

    /// The state with the names that the certificates give.
    fn base_snapshot(&self) -> Snapshot {
        let (recorded, counts) = (self.record.snapshot(), self.admission.counts());
        let scheduling = Scheduling {
            policy: self.queue.policy(),
            capacity: self.queue.capacity().into(),
            used: self.queue.used().into(),
            queues: self.queue.counts().into(),
        };
        let peers = PeerCounts {
            connections: self.connections.len(),
            control_connections: counts.pools[CONTROL_POOL] + counts.pools[OPERATOR_POOL],
            greetings: counts.handshakes,
            greeting_places: counts.handshake_slots,
            ..recorded.peers
        };
        Snapshot {
            stopping: self.ending.stopping.is_some(),
            scheduling,
            pools: self.queue.pool_rows(),
            profile: self.queue.profile(),
            peers,
            ..recorded
        }
    }
}
