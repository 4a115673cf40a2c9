//! What is seen of the driver from outside.
use super::Driver;
use crate::published::Status;
use crate::snapshot::Snapshot;

impl Driver {
    pub(super) fn publish(&self, ended: bool) {
        let connections = self.door.len() + self.connections.len() + self.controls.len();
        self.published.set(Status { connections, served: self.served, ended });
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            stopping: self.stopping.is_some(),
            policy: self.queue.policy(),
            capacity: self.queue.capacity().into(),
            used: self.queue.used().into(),
            queues: self.queue.counts().into(),
            pools: self.queue.pool_rows(),
            profile: self.queue.profile(),
            connections: self.connections.len(),
            control_connections: self.controls.len(),
            greetings: self.door.len(),
            greeting_places: self.door.places(),
            ..self.record.snapshot()
        }
    }
}
