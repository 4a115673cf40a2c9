//! The queue of inputs. It tells the scheduler which inputs were requested or announced, and which
//! connections stand ready for their phases. An input has a lane in the scheduler only while a
//! connection stands ready for its next phase. So no other job waits for a client that is busy
//! elsewhere.
mod arrivals;
mod ends;
mod handover;
mod messages;
mod models;
mod paid;
mod pools;
mod refill;
mod settings;

use crate::models::catalog::Offered;
use crate::ops::state::LearnedDurations;
pub(crate) use messages::{Effect, InputOrigin, InputStatus, JobEnd, OfferName, Planned};
use pools::Pools;
use refill::Offers;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_admission::ConnectionId;
use tacit_client::wire::{Device, InputId, Terms};
use tacit_ids::{ClientId, MaterialId};
use tacit_sched::demand::Demand;
use tacit_sched::policy::{Policy, PolicySpec};
use tacit_sched::{
    Action, Event, JobId, JobPhase, ModelId, Owner, Rejected, SchedError, Scheduler, Span, Start, Time, Usage, Work,
};

/// An input that has not ended.
struct PendingInput {
    /// When it was announced or asked for, whichever was first.
    known_since: Instant,
    client: ClientId,
    model: ModelId,
    /// The client's names for the input, from its request and its notice.
    names: Vec<InputId>,
    /// Connections that requested the input or run its phases.
    connections: BTreeSet<ConnectionId>,
    /// The connection that stands ready for its next phase.
    ready_connection: Option<ConnectionId>,
    job: Option<JobId>,
    /// Its client, while it is between the offline and the online phase.
    expected_client: Option<handover::ExpectedClient>,
    flags: InputFlags,
    ignored: Option<String>,
}

#[derive(Default)]
struct InputFlags {
    /// Whether its material is for stock.
    keep: bool,
    /// Whether it outlives its connections: a notice whose material is on disk.
    outlives_connections: bool,
    has_material: bool,
    /// Whether it has cost its client's rate a token: all of its phases together cost one.
    is_paid: bool,
}

/// Inputs and running job of a connection.
#[derive(Default)]
struct ConnectionInputs {
    /// Inputs that the connection requested or stands ready for.
    owners: BTreeSet<Owner>,
    job: Option<JobId>,
}

struct Job {
    owner: Owner,
    connection: ConnectionId,
    client: ClientId,
    memory: u64,
    used: Option<MaterialId>,
    model: ModelId,
    phase: JobPhase,
    threads: u32,
    expected: Span,
}

pub(crate) struct Queue {
    scheduler: Scheduler<PolicySpec>,
    policy: String,
    epoch: Instant,
    settings: Settings,
    models: Models,
    /// The last id that was given out.
    last: u64,
    inputs: Inputs,
    materials: HashMap<MaterialId, KnownMaterial>,
    effects: Vec<Effect>,
    /// Rates at which clients get answers.
    demand: Demand,
    offers: Offers,
    pools: Pools,
}

struct Settings {
    /// Threads of a job.
    threads: u32,
    /// Memory that jobs may take together, if other processes leave it.
    job_memory: u64,
    /// How long a lane is kept for a client between its two phases.
    handover_timeout: Duration,
    /// Longest time that a notice may ask the server to wait for its request, and longest time that
    /// it is kept after that.
    notice_ttl: Span,
}

/// What is known of the scheduler's models.
struct Models {
    /// By digest of the plan and class of device.
    ids: BTreeMap<([u8; 32], Device), ModelId>,
    /// By the scheduler's id, including withdrawn models.
    by_id: Vec<ScheduledModel>,
    learned: LearnedDurations,
}

/// What the scheduler does not know of inputs.
#[derive(Default)]
struct Inputs {
    names: HashMap<(ClientId, InputId), Owner>,
    live: HashMap<Owner, PendingInput>,
    connections: HashMap<ConnectionId, ConnectionInputs>,
    jobs: HashMap<JobId, Job>,
    /// Inputs whose turn came before their client, with the time when they lose it.
    handover_deadlines: BTreeSet<(Instant, Owner)>,
}

#[derive(Clone, Copy)]
struct KnownMaterial {
    client: ClientId,
    /// Whether both halves are on disk and unused: the material stays usable when its input ends.
    in_stock: bool,
}

/// A model of the scheduler's: a model on offer for a class of devices and a batch size.
struct ScheduledModel {
    name: Arc<str>,
    backend: &'static str,
    plan: [u8; 32],
    /// The plan for one input.
    single_plan: [u8; 32],
    batch: u32,
    device: Device,
    /// Whether a dealer makes all of its material.
    dealt: bool,
}

impl ScheduledModel {
    /// Copies names, so that a withdrawn model does not stay in memory.
    fn new(offered: &Arc<Offered>, device: Device, dealt: bool) -> Self {
        Self {
            name: offered.name.as_str().into(),
            backend: offered.backend,
            plan: offered.plan,
            single_plan: offered.single().plan,
            batch: offered.batch(),
            device,
            dealt,
        }
    }

    fn offer(&self) -> OfferName {
        OfferName { model: Arc::clone(&self.name), backend: self.backend }
    }
}

type Refused = String;

impl Queue {
    pub(crate) fn new(
        config: tacit_sched::Config,
        policy: PolicySpec,
        learned: LearnedDurations,
        handover_timeout: Duration,
        pool_ttl: Duration,
    ) -> Result<Self, SchedError> {
        let pools = Pools::new(config.pool.is_some(), pool_ttl);
        let settings = Settings {
            threads: config.on_threads.first().copied().unwrap_or(1),
            job_memory: config.capacity.memory,
            handover_timeout,
            notice_ttl: config.notice_ttl,
        };
        Ok(Self {
            policy: policy.name(),
            scheduler: Scheduler::new(config, vec![], policy)?,
            epoch: Instant::now(),
            settings,
            models: Models { ids: BTreeMap::new(), by_id: Vec::new(), learned },
            last: 0,
            inputs: Inputs::default(),
            materials: HashMap::new(),
            effects: Vec::new(),
            demand: Demand::default(),
            offers: Offers::default(),
            pools,
        })
    }

    fn now(&self) -> Time {
        Time::from_secs(self.epoch.elapsed().as_secs_f64())
    }

    fn handle(&mut self, event: Event) -> Result<(), Rejected> {
        let now = self.now();
        self.scheduler.handle(now, event)
    }

    /// Sends an event that the scheduler cannot refuse, or whose refusal makes no difference.
    fn handle_or_ignore(&mut self, event: Event) {
        // The input may have ended meanwhile.
        let _ = self.handle(event);
    }

    /// An input has a lane only while a connection stands ready for its next phase.
    fn set_lanes(&mut self, owner: Owner, lanes: u32) {
        self.handle_or_ignore(Event::Lanes { of: owner, lanes });
    }

    fn next_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn owner_named(&self, client: ClientId, name: InputId) -> Result<Owner, Refused> {
        let owner = self.inputs.names.get(&(client, name)).copied();
        owner.ok_or_else(|| "nothing is asked or announced under this name, or it has ended".to_owned())
    }

    /// Keeps what the scheduler does not know of an input: its client, names and connections.
    fn track_input(
        &mut self,
        owner: Owner,
        connection: Option<ConnectionId>,
        origin: &InputOrigin,
        name: Option<InputId>,
        model: ModelId,
    ) {
        if let Some(name) = name {
            self.inputs.names.insert((origin.client, name), owner);
        }
        let (client, names, connections) = (origin.client, name.into_iter().collect(), BTreeSet::new());
        let live = PendingInput {
            known_since: Instant::now(),
            client,
            model,
            names,
            connections,
            ready_connection: None,
            job: None,
            expected_client: None,
            flags: InputFlags::default(),
            ignored: None,
        };
        self.inputs.live.insert(owner, live);
        connection.into_iter().for_each(|connection| self.attach_connection(owner, connection));
    }

    fn attach_connection(&mut self, owner: Owner, connection: ConnectionId) {
        if let Some(live) = self.inputs.live.get_mut(&owner) {
            live.connections.insert(connection);
            self.inputs.connections.entry(connection).or_default().owners.insert(owner);
        }
    }

    fn check_name_free(&self, client: ClientId, name: InputId) -> Result<(), Refused> {
        match self.inputs.names.contains_key(&(client, name)) {
            true => Err("this name is in use".into()),
            false => Ok(()),
        }
    }

    /// Ends an input or notice at its client's request.
    pub(crate) fn cancel(&mut self, client: ClientId, name: InputId) -> Result<(), Refused> {
        let owner = self.owner_named(client, name)?;
        self.end(owner);
        Ok(())
    }

    fn end(&mut self, owner: Owner) {
        self.handle_or_ignore(match owner {
            Owner::Request(request) => Event::Cancel { request },
            Owner::Notice(notice) => Event::Withdraw { notice },
        });
    }

    /// A connection stands ready to make material, for a named input or for stock.
    pub(crate) fn prepare(
        &mut self,
        connection: ConnectionId,
        origin: &InputOrigin,
        input: Option<InputId>,
        on_disk: bool,
    ) -> Result<(), Refused> {
        let owner = match input {
            None => self.notice(Some(connection), origin, None, None, None, true)?,
            Some(name) => self.owner_named(origin.client, name)?,
        };
        if let Some(live) = self.inputs.live.get_mut(&owner).filter(|_| !on_disk) {
            // Material in memory is lost when its connections end.
            live.flags.outlives_connections = false;
        }
        self.stand_ready(connection, origin, owner, on_disk)
    }

    /// A connection stands ready for the online phase of a named input, or of a new input.
    pub(crate) fn infer(
        &mut self,
        connection: ConnectionId,
        origin: &InputOrigin,
        input: Option<InputId>,
        material: Option<MaterialId>,
    ) -> Result<(), Refused> {
        let owner = match input {
            None => self.request(connection, origin, None, None, material, Terms::default())?,
            Some(name) => self.owner_named(origin.client, name)?,
        };
        self.stand_ready(connection, origin, owner, false)
    }

    /// Ends a connection's job if the scheduler started it.
    pub(crate) fn finish_job(&mut self, connection: ConnectionId, end: JobEnd) {
        let Some(id) = self.inputs.connections.get_mut(&connection).and_then(|entry| entry.job.take()) else { return };
        let Some(job) = self.inputs.jobs.remove(&id) else { return };
        let Job { owner, client, memory, used, .. } = job;
        let mut keep = false;
        if let Some(live) = self.inputs.live.get_mut(&owner) {
            live.job = None;
            keep = live.flags.keep;
            live.flags.has_material |= matches!(end, JobEnd::Done { material: Some(_), .. });
        }
        // A connection must stand ready again for the next phase.
        match (&end, job.phase) {
            (JobEnd::Done { .. }, JobPhase::Pre) if !keep => self.keep_lane(owner),
            _ => self.set_lanes(owner, 0),
        }
        match end {
            JobEnd::Done { took, material: made_id, memory: counted } => {
                // Without a count, the estimate stands. A job that held more than all jobs may take
                // has run nevertheless: its kind then runs alone, and is not refused.
                let peak_memory = counted.map_or(memory, |peak| peak.min(self.settings.job_memory));
                self.make_room(peak_memory);
                let usage = Usage { time: Span::from_secs(took.as_secs_f64()), peak_memory };
                if let Some(used) = used {
                    self.materials.remove(&used);
                }
                let is_taken = self.handle(Event::JobFinished { job: id, usage, material: made_id }).is_ok();
                self.record_estimate(&job, is_taken.then_some(usage.time));
                if made_id.is_some() && is_taken {
                    let now = self.now();
                    self.offers.record_made(owner, now);
                }
                match made_id {
                    None => {}
                    // The input ended while the job did, or its model was withdrawn.
                    Some(material) if !is_taken || !self.is_served(job.model) => {
                        self.effects.push(Effect::Burn { material, client })
                    }
                    // From here on the ledger manages this stock.
                    Some(material) if keep => self.forget(material),
                    Some(material) => drop(self.materials.insert(material, KnownMaterial { client, in_stock: false })),
                }
            }
            JobEnd::Failed => self.handle_or_ignore(Event::JobFailed { job: id }),
        }
    }

    pub(crate) fn clients(&self) -> BTreeSet<ClientId> {
        self.inputs
            .live
            .values()
            .map(|live| live.client)
            .chain(self.materials.values().map(|owned| owned.client))
            .collect()
    }

    pub(crate) fn revoke_client(&mut self, client: ClientId) {
        self.handle_or_ignore(Event::ClientRevoked { client });
    }

    pub(crate) fn disconnect(&mut self, connection: ConnectionId) {
        self.finish_job(connection, JobEnd::Failed);
        for owner in self.inputs.connections.remove(&connection).unwrap_or_default().owners {
            let Some(live) = self.inputs.live.get_mut(&owner) else { continue };
            live.connections.remove(&connection);
            let is_alone = live.connections.is_empty() && !live.flags.outlives_connections;
            if live.ready_connection.take_if(|waiting| *waiting == connection).is_some() {
                self.set_lanes(owner, 0);
            }
            if is_alone {
                self.end(owner);
            }
        }
    }

    pub(crate) fn poll(&mut self) -> Vec<Effect> {
        self.give_up_waiting();
        self.expire_pools();
        self.pump();
        while self.fill() {
            self.pump();
        }
        std::mem::take(&mut self.effects)
    }

    /// Carries out all that the scheduler has decided by now.
    fn pump(&mut self) {
        let now = self.now();
        while let Some(action) = self.scheduler.poll_action(now) {
            match action {
                Action::Start(start) => self.start(&start),
                Action::Stop { job } => match self.inputs.jobs.get(&job) {
                    Some(&Job { connection, .. }) => self.effects.push(Effect::Cut { connection }),
                    None => self.confirm_stopped(job),
                },
                Action::Burn { material } => match self.materials.remove(&material) {
                    Some(KnownMaterial { client, in_stock: false }) => {
                        self.effects.push(Effect::Burn { material, client })
                    }
                    Some(KnownMaterial { in_stock: true, .. }) => {}
                    None => self.drop_half(material),
                },
                Action::Reject { request, reason } => self.turn_away(Owner::Request(request), &reason.to_string()),
                Action::NoticeIgnored { request, why, .. } => {
                    if let Some(live) = self.inputs.live.get_mut(&Owner::Request(request)) {
                        live.ignored = Some(why.to_string());
                    }
                }
                Action::NoticeEnded { notice, why } => {
                    self.turn_away(Owner::Notice(notice), &why.to_string());
                    self.close(Owner::Notice(notice));
                }
                Action::Report(report) => {
                    let owner = Owner::Request(report.input.request);
                    self.turn_away(owner, ends::reason(report.outcome));
                    self.record_answer(owner, &report);
                    self.close(owner);
                }
                Action::Stopped => {}
            }
        }
    }

    /// Starts a job on the connection that stands ready for it. If there is none, it is put off.
    fn start(&mut self, start: &Start) {
        let owner = match start.work {
            Work::Request(input) => Owner::Request(input.request),
            Work::Notice(notice) => Owner::Notice(notice),
            Work::Pool => return self.deal(start),
        };
        let job = start.job;
        match self.inputs.live.get_mut(&owner).and_then(|live| Some((live.ready_connection.take()?, live))) {
            Some((connection, live)) => {
                live.job = Some(job);
                let Start { model, phase, threads, memory, material, estimate: expected, .. } = *start;
                let (client, used, planned) =
                    (live.client, material, Planned { expected, known_since: live.known_since });
                self.inputs
                    .jobs
                    .insert(job, Job { owner, connection, client, memory, used, model, phase, threads, expected });
                self.inputs.connections.entry(connection).or_default().job = Some(job);
                if let Some(owned) = material.and_then(|material| self.materials.get_mut(&material)) {
                    owned.in_stock = false;
                }
                let from_pool = self.draw(owner, model, phase);
                self.effects.push(Effect::Start { connection, phase, threads, planned, material, from_pool });
            }
            None => self.put_off(owner, start),
        }
    }
}
