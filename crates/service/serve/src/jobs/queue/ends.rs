//! Ends of inputs, and reports of them.
use super::{Effect, PendingInput, Queue};
use crate::jobs::gate::WITHDRAWN;
use tacit_ids::MaterialId;
use tacit_sched::{Cause, Event, InputReport, Outcome, Owner, Span};

impl Queue {
    /// Counts an answered input for demand and metrics; ignores inputs that ended otherwise.
    pub(super) fn record_answer(&mut self, owner: Owner, report: &InputReport) {
        if report.outcome == Outcome::Done {
            let Some(live) = self.inputs.live.get(&owner) else { return };
            let client = live.client;
            self.demand.record_answer(client, live.model, self.now());
            let kind = &self.models.by_id[report.model.0 as usize];
            let (offer, inputs) = (kind.offer(), kind.batch);
            let delay = report.ended.since(report.arrived);
            let waiting = report.on.started.map_or(Span::ZERO, |started| started.since(report.arrived));
            self.effects.push(Effect::Answered { client, offer, inputs, delay, waiting });
        }
    }

    /// Forgets material that is gone, and tells the scheduler.
    pub(super) fn forget(&mut self, material: MaterialId) {
        self.materials.remove(&material);
        self.handle_or_ignore(Event::MaterialGone { material });
    }

    /// Refuses the connection that stands ready for this input, if any.
    pub(super) fn turn_away(&mut self, owner: Owner, reason: &str) {
        if let Some(connection) = self.inputs.live.get_mut(&owner).and_then(|live| live.ready_connection.take()) {
            self.effects.push(Effect::Refuse { connection, reason: reason.into() });
        }
    }

    /// Removes an input with its names and connections, and returns it.
    pub(super) fn close(&mut self, owner: Owner) -> Option<PendingInput> {
        self.offers.forget(owner);
        let live = self.inputs.live.remove(&owner)?;
        for &name in &live.names {
            self.inputs.names.remove(&(live.client, name));
        }
        for connection in &live.connections {
            if let Some(entry) = self.inputs.connections.get_mut(connection) {
                entry.owners.remove(&owner);
            }
        }
        Some(live)
    }
}

/// Why an input that ended with this outcome takes no more connections, for people.
pub(super) fn reason(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "it is answered already",
        Outcome::Failed => "one of its phases failed",
        Outcome::TimedOut => "the time for its answer is over",
        Outcome::Cancelled(Cause::CannotFit) => "it needs more than this machine has",
        Outcome::Cancelled(Cause::ModelGone) => WITHDRAWN,
        Outcome::Cancelled(Cause::Shutdown) => "the server is being stopped",
        Outcome::Cancelled(_) => "it was taken back",
    }
}
