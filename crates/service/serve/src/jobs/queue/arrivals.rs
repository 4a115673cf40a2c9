//! Arriving requests and notices.
use super::{InputOrigin, InputStatus, KnownMaterial, Queue, Refused};
use tacit_admission::ConnectionId;
use tacit_client::wire::{Announce, Ask, Deadline, InputId, Terms};
use tacit_ids::{ClientId, MaterialId};
use tacit_sched::{AdvanceNotice, DeadlineClass, Event, JobPhase, ModelId, NoticeId, Owner, RequestId, Span};

impl Queue {
    /// Takes a request. Returns why its notice was ignored, if it was.
    pub(crate) fn ask(
        &mut self,
        connection: ConnectionId,
        origin: &InputOrigin,
        ask: &Ask,
    ) -> Result<Option<String>, Refused> {
        self.check_name_free(origin.client, ask.name)?;
        let owner = self.request(connection, origin, Some(ask.name), ask.notice, ask.material, ask.terms)?;
        Ok(self.inputs.live.get_mut(&owner).and_then(|live| live.ignored.take()))
    }

    /// Adds a request to the scheduler. A valid notice passes on what was made for it.
    pub(super) fn request(
        &mut self,
        connection: ConnectionId,
        origin: &InputOrigin,
        name: Option<InputId>,
        notice: Option<InputId>,
        material: Option<MaterialId>,
        terms: Terms,
    ) -> Result<Owner, Refused> {
        let announced = notice.map(|name| self.owner_named(origin.client, name));
        let model = self.model_of(origin, announced.as_ref().and_then(|found| found.as_ref().ok()))?;
        let id = RequestId(self.next_id());
        if let Some(material) = material {
            // The scheduler knows it from here on; the ledger decides at its turn whether it is
            // usable.
            let event = Event::MaterialFound { material, model, client: Some(origin.client) };
            self.handle(event).map_err(|_| format!("material {material} belongs to another input"))?;
            self.materials.insert(material, KnownMaterial { client: origin.client, in_stock: true });
        }
        let request = tacit_sched::Request {
            id,
            client: origin.client,
            model,
            inputs: 1,
            // A notice that has ended is named nevertheless, so that the answer reports it.
            notice: announced.as_ref().map(|found| match found {
                Ok(Owner::Notice(notice)) => *notice,
                _ => NoticeId(0),
            }),
            timeout: terms.timeout_ms.map(Span::from_millis),
            deadline: class(terms.deadline),
            materials: material.into_iter().collect(),
            lanes: Some(0),
        };
        let owner = Owner::Request(id);
        self.track_input(owner, Some(connection), origin, name, model);
        if let Err(e) = self.handle(Event::Request(request)) {
            self.close(owner);
            material.into_iter().for_each(|material| self.forget(material));
            return Err(e.to_string());
        }
        if let Some(Ok(announced)) = &announced
            && let Some(notice) = self.inputs.live.get_mut(announced).filter(|_| matches!(announced, Owner::Notice(_)))
        {
            // The notice's token has paid for this request, and pays for no other.
            notice.flags.is_paid = false;
        }
        if material.is_some() {
            self.offers.use_one(origin.client, model);
        }
        self.pump();
        if let Some(Ok(notice @ Owner::Notice(_))) = announced
            && self.inputs.live.get(&owner).is_some_and(|live| live.ignored.is_none())
        {
            self.take_over(notice, owner);
        }
        Ok(owner)
    }

    /// Returns the model of the input that a connection stands ready for, if the plan is the same:
    /// a client may use another link or other threads than it announced.
    pub(super) fn model_of(
        &mut self,
        origin: &InputOrigin,
        expected_owner: Option<&Owner>,
    ) -> Result<ModelId, Refused> {
        let default_model = self.model(origin)?;
        let announced = expected_owner.and_then(|owner| self.inputs.live.get(owner)).map(|live| live.model);
        let matching = announced
            .filter(|model| self.is_served(*model) && self.models.by_id[model.0 as usize].plan == origin.offered.plan);
        Ok(matching.unwrap_or(default_model))
    }

    /// Passes connections and jobs of a notice on to its request, which has arrived.
    fn take_over(&mut self, notice: Owner, request: Owner) {
        let Some(ended) = self.close(notice) else { return };
        ended.connections.iter().for_each(|&connection| self.attach_connection(request, connection));
        if let Some(job) = ended.job.and_then(|job| self.inputs.jobs.get_mut(&job)) {
            job.owner = request;
        }
        if let Some(live) = self.inputs.live.get_mut(&request) {
            (live.known_since, live.ready_connection, live.job, live.flags.has_material) =
                (ended.known_since, ended.ready_connection, ended.job, ended.flags.has_material);
            // Connections that name the notice now reach the request.
            self.inputs.names.extend(ended.names.iter().map(|&name| ((live.client, name), request)));
            live.names.extend(ended.names);
        }
        if ended.ready_connection.is_some() {
            self.set_lanes(request, 1);
        }
    }

    /// Takes a notice. Without a connection, it lasts for its time to live or until it is cancelled.
    pub(crate) fn announce(
        &mut self,
        connection: Option<ConnectionId>,
        origin: &InputOrigin,
        announce: &Announce,
    ) -> Result<(), Refused> {
        self.check_name_free(origin.client, announce.name)?;
        let limited = |ms: Option<u64>| ms.map(|ms| Span::from_millis(ms).min(self.settings.notice_ttl));
        let (expected, ttl) = (limited(announce.expected_ms), limited(announce.ttl_ms));
        let owner = self.notice(connection, origin, Some(announce.name), expected, ttl, false)?;
        if let Some(live) = self.inputs.live.get_mut(&owner).filter(|_| connection.is_none()) {
            live.flags.outlives_connections = true;
        }
        Ok(())
    }

    /// The state of a client's input; `None` if it has none of this name.
    pub(crate) fn status(&self, client: ClientId, name: InputId) -> Option<InputStatus> {
        let live = self.inputs.live.get(self.inputs.names.get(&(client, name))?)?;
        let phase = live.job.and_then(|job| self.inputs.jobs.get(&job)).map(|job| job.phase);
        let state = match phase {
            Some(JobPhase::Pre) => "offline",
            Some(JobPhase::On) => "online",
            None if live.flags.has_material => "ready",
            None => "announced",
        };
        let (have, used) = (self.scheduler.capacity(), self.scheduler.used());
        let is_idle = have.cores.saturating_sub(used.cores) >= self.settings.threads;
        let inputs = self.models.by_id[live.model.0 as usize].batch;
        Some(InputStatus { state, inputs, may_start: phase.is_none() && is_idle && self.scheduler.queued_jobs() == 0 })
    }

    pub(super) fn notice(
        &mut self,
        connection: Option<ConnectionId>,
        origin: &InputOrigin,
        name: Option<InputId>,
        expected: Option<Span>,
        ttl: Option<Span>,
        keep: bool,
    ) -> Result<Owner, Refused> {
        let model = self.model(origin)?;
        let id = NoticeId(self.next_id());
        let (client, owner) = (origin.client, Owner::Notice(id));
        let input_bytes = origin.offered.input_bytes();
        let notice = AdvanceNotice { id, client, model, inputs: 1, input_bytes, expected, ttl, lanes: Some(0), keep };
        self.track_input(owner, connection, origin, name, model);
        if let Err(e) = self.handle(Event::Notice(notice)) {
            self.close(owner);
            return Err(e.to_string());
        }
        if let Some(live) = self.inputs.live.get_mut(&owner) {
            live.flags.keep = keep;
        }
        Ok(owner)
    }
}

fn class(deadline: Deadline) -> DeadlineClass {
    match deadline {
        Deadline::Interactive => DeadlineClass::Interactive,
        Deadline::Normal => DeadlineClass::Normal,
        Deadline::Batch => DeadlineClass::Batch,
    }
}
