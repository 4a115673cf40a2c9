//! From an input's offline phase to its online phase. Its client learns that the first has ended
//! and asks for the second, which takes half a millisecond on a fast link and a round trip on a
//! slow one. If the input lost its lane meanwhile, its core would go to another job, and a short
//! online phase would wait for a long offline phase. So the lane stays for a moment. If the input's
//! turn comes before its client does, the core stays idle for that moment.
use super::{Owner, Queue, Refused, Whose};
use std::time::Instant;
use tacit_admission::ConnectionId as Number;
use tacit_sched::{Event, JobId, Start};

/// A client between its offline and its online phase.
pub(super) struct ExpectedClient {
    /// When the client is no longer expected.
    until: Instant,
    /// The job that starts when the client arrives.
    due: Option<Start>,
}

impl Queue {
    /// A connection stands ready for the next phase of an input.
    pub(super) fn stand_ready(
        &mut self,
        number: Number,
        whose: &Whose,
        owner: Owner,
        on_disk: bool,
    ) -> Result<(), Refused> {
        let model = self.model_of(whose, Some(&owner))?;
        let live = self.live.get_mut(&owner).ok_or("it has ended")?;
        if live.model != model {
            return Err("it was asked for with another model, or for another number of inputs".into());
        }
        if live.waits.is_some() || live.job.is_some() {
            return Err("another connection comes for it".into());
        }
        live.waits = Some(number);
        live.lasts |= on_disk && !live.keep && matches!(owner, Owner::Notice(_));
        self.attach_connection(owner, number);
        self.handle_or_ignore(Event::Lanes { of: owner, lanes: 1 });
        // The input's time may have just ended: the scheduler must stop the due job before it
        // starts.
        self.pump();
        let comes = self.live.get_mut(&owner).and_then(|live| live.comes.take());
        if let Some(start) = comes.and_then(|comes| comes.due) {
            self.start(&start);
        }
        Ok(())
    }

    /// Confirms that a job without a connection was stopped.
    pub(super) fn stopped_before_it_began(&mut self, job: JobId) {
        let mut coming = self.live.values_mut().filter_map(|live| live.comes.as_mut());
        if let Some(comes) = coming.find(|comes| comes.due.as_ref().is_some_and(|start| start.job == job)) {
            comes.due = None;
        }
        self.handle_or_ignore(Event::JobStopped { job });
    }

    /// Keeps the lane after an offline phase: the client may ask for the online phase at once.
    pub(super) fn keep_lane(&mut self, owner: Owner) {
        let until = Instant::now() + self.on_the_way;
        match self.live.get_mut(&owner) {
            // A notice has no online phase of its own.
            Some(live) if matches!(owner, Owner::Request(_)) => {
                live.comes = Some(ExpectedClient { until, due: None });
            }
            _ => self.handle_or_ignore(Event::Lanes { of: owner, lanes: 0 }),
        }
    }

    /// Puts off a job whose connection has not arrived.
    pub(super) fn put_off(&mut self, owner: Owner, start: &Start) {
        let comes = self.live.get_mut(&owner).and_then(|live| live.comes.as_mut());
        match comes.filter(|comes| comes.until > Instant::now()) {
            Some(comes) => {
                comes.due = Some(start.clone());
                self.due.insert((comes.until, owner));
            }
            None => self.give_back(owner, start),
        }
    }

    /// Returns jobs to the scheduler's queue if their client did not arrive in time.
    pub(super) fn give_up_waiting(&mut self) {
        let now = Instant::now();
        while let Some(&(until, owner)) = self.due.first().filter(|(until, _)| *until <= now) {
            self.due.remove(&(until, owner));
            // The client may have arrived, or the input has ended.
            let comes = self.live.get_mut(&owner).and_then(|live| live.comes.take_if(|comes| comes.until == until));
            if let Some(start) = comes.and_then(|comes| comes.due) {
                self.give_back(owner, &start);
            }
        }
    }

    fn give_back(&mut self, owner: Owner, start: &Start) {
        self.handle_or_ignore(Event::Lanes { of: owner, lanes: 0 });
        self.handle_or_ignore(Event::JobNotStarted { job: start.job });
    }
}
