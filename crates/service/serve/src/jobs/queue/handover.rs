//! From an input's offline phase to its online phase. Its client learns that the first has ended
//! and asks for the second, which takes half a millisecond on a fast link and a round trip on a
//! slow one. If the input lost its lane meanwhile, its core would go to another job, and a short
//! online phase would wait for a long offline phase. So the lane stays for a moment. If the input's
//! turn comes before its client does, the core stays idle for that moment.
use super::{InputOrigin, Owner, Queue, Refused};
use std::time::Instant;
use tacit_admission::ConnectionId;
use tacit_sched::{Event, JobId, Start};

/// A client between its offline and its online phase.
pub(super) struct ExpectedClient {
    deadline: Instant,
    /// The job that starts when the client arrives.
    waiting_start: Option<Start>,
}

impl Queue {
    /// A connection stands ready for the next phase of an input.
    pub(super) fn stand_ready(
        &mut self,
        number: ConnectionId,
        origin: &InputOrigin,
        owner: Owner,
        on_disk: bool,
    ) -> Result<(), Refused> {
        let model = self.model_of(origin, Some(&owner))?;
        let live = self.inputs.live.get_mut(&owner).ok_or("it has ended")?;
        if live.model != model {
            return Err("it was asked for with another model, or for another number of inputs".into());
        }
        if live.ready_connection.is_some() || live.job.is_some() {
            return Err("another connection comes for it".into());
        }
        live.ready_connection = Some(number);
        // Material on disk can wait for another connection. Stock waits without its notice.
        live.flags.outlives_connections |= on_disk && !live.flags.keep && matches!(owner, Owner::Notice(_));
        self.attach_connection(owner, number);
        self.set_lanes(owner, 1);
        // The input's time may have just ended: the scheduler must stop the waiting job before it
        // starts.
        self.pump();
        let expected = self.inputs.live.get_mut(&owner).and_then(|live| live.expected_client.take());
        if let Some(start) = expected.and_then(|expected| expected.waiting_start) {
            self.start(&start);
        }
        Ok(())
    }

    /// Confirms that a job without a connection was stopped.
    pub(super) fn confirm_stopped(&mut self, job: JobId) {
        let mut coming = self.inputs.live.values_mut().filter_map(|live| live.expected_client.as_mut());
        if let Some(expected) =
            coming.find(|expected| expected.waiting_start.as_ref().is_some_and(|start| start.job == job))
        {
            expected.waiting_start = None;
        }
        self.handle_or_ignore(Event::JobStopped { job });
    }

    /// Keeps the lane after an offline phase: the client may ask for the online phase at once.
    pub(super) fn keep_lane(&mut self, owner: Owner) {
        let deadline = Instant::now() + self.settings.handover_timeout;
        match self.inputs.live.get_mut(&owner) {
            // A notice has no online phase of its own.
            Some(live) if matches!(owner, Owner::Request(_)) => {
                live.expected_client = Some(ExpectedClient { deadline, waiting_start: None });
            }
            _ => self.set_lanes(owner, 0),
        }
    }

    /// Puts off a job whose connection has not arrived.
    pub(super) fn put_off(&mut self, owner: Owner, start: &Start) {
        let expected = self.inputs.live.get_mut(&owner).and_then(|live| live.expected_client.as_mut());
        match expected.filter(|expected| expected.deadline > Instant::now()) {
            Some(expected) => {
                expected.waiting_start = Some(start.clone());
                self.inputs.handover_deadlines.insert((expected.deadline, owner));
            }
            None => self.give_back(owner, start),
        }
    }

    /// Returns jobs to the scheduler's queue if their client did not arrive in time.
    pub(super) fn give_up_waiting(&mut self) {
        let now = Instant::now();
        while let Some(&(deadline, owner)) =
            self.inputs.handover_deadlines.first().filter(|(deadline, _)| *deadline <= now)
        {
            self.inputs.handover_deadlines.remove(&(deadline, owner));
            // The client may have arrived, or the input has ended.
            let expected = self
                .inputs
                .live
                .get_mut(&owner)
                .and_then(|live| live.expected_client.take_if(|expected| expected.deadline == deadline));
            if let Some(start) = expected.and_then(|expected| expected.waiting_start) {
                self.give_back(owner, &start);
            }
        }
    }

    fn give_back(&mut self, owner: Owner, start: &Start) {
        self.set_lanes(owner, 0);
        self.handle_or_ignore(Event::JobNotStarted { job: start.job });
    }
}
