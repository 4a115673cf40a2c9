//! The state machine: events in, actions out, no clock, no threads, no I/O.

mod admit;
mod audit;
mod classes;
mod dispatch;
mod faults;
mod inputs;
mod jobs;
mod refill;
mod state;

pub use state::Counts;

use crate::config::{Binding, Config, ModelSpec};
use crate::error::SchedError;
use crate::ids::{ClientId, InputId, JobId, MaterialId, ModelId, NoticeId, Phase};
use crate::message::{Action, Event, NoticeProblem, Rejected};
use crate::policy::{Policy, ThreadOption};
use crate::pool::{PoolKey, Pools, Rate};
use crate::profile::ProfileTable;
use crate::queue::{ClassQueues, InputKey};
use crate::resources::Resources;
use crate::time::{Span, Time};
use state::{Client, Group, GroupId, Input, Job, Lifecycle, Reservation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Ended notices that are remembered, so that a late request is told what became of its notice.
const NOTICES_REMEMBERED: usize = 4096;
/// Time constant of the load estimate that policies see.
const LOAD_WINDOW: Span = Span::from_millis(120_000);

/// The scheduler. See the crate documentation for how to drive it.
#[derive(Clone, Debug)]
pub struct Scheduler<P> {
    policy: P,
    config: Config,
    models: Vec<ModelSpec>,
    profile: ProfileTable,
    lifecycle: Lifecycle,
    now: Time,
    capacity: Resources,
    used: Resources,
    inputs: BTreeMap<InputKey, Input>,
    next_input: InputKey,
    groups: BTreeMap<GroupId, Group>,
    clients: BTreeMap<ClientId, Client>,
    /// What became of notices that ended, oldest first in `ended_order`.
    ended: BTreeMap<NoticeId, NoticeProblem>,
    ended_order: VecDeque<NoticeId>,
    jobs: BTreeMap<JobId, Job>,
    next_job: u64,
    /// Every live material, from the start of its T_pre, with its model.
    materials: BTreeMap<MaterialId, ModelId>,
    next_material: u64,
    /// Every material found on start-up, so that none is taken over twice.
    found: BTreeSet<MaterialId>,
    queues: ClassQueues,
    reservation: Option<Reservation>,
    pools: Option<Pools>,
    /// Requests' inputs with T_pre queued, by the pool that could serve them.
    needy: BTreeMap<PoolKey, BTreeSet<InputKey>>,
    timers: BTreeSet<(Time, GroupId)>,
    out: VecDeque<Action>,
    /// Something changed since nothing more could be started.
    dirty: bool,
    counts: Counts,
    load: Rate,
    arrivals: Rate,
    scratch: Vec<ThreadOption>,
}

impl<P: Policy> Scheduler<P> {
    /// A scheduler at time zero. Models get ids in order, from 0.
    ///
    /// # Errors
    /// [`SchedError::OutOfRange`] names the setting that is out of its range.
    pub fn new(config: Config, models: Vec<ModelSpec>, policy: P) -> Result<Scheduler<P>, SchedError> {
        config.check()?;
        let mut profile = ProfileTable::new();
        for model in &models {
            profile.add_model((model.pre.speedup, model.pre.first), (model.on.speedup, model.on.first));
        }
        let capacity = config.capacity;
        let next_material = config.first_material.0;
        let pools = config.pool.clone().map(|pool| Pools::new(pool, Time::ZERO));
        let mut scheduler = Scheduler {
            policy,
            config,
            models,
            profile,
            lifecycle: Lifecycle::Open,
            now: Time::ZERO,
            capacity,
            used: Resources::default(),
            inputs: BTreeMap::new(),
            next_input: 0,
            groups: BTreeMap::new(),
            clients: BTreeMap::new(),
            ended: BTreeMap::new(),
            ended_order: VecDeque::new(),
            jobs: BTreeMap::new(),
            next_job: 0,
            materials: BTreeMap::new(),
            next_material,
            found: BTreeSet::new(),
            queues: ClassQueues::default(),
            reservation: None,
            pools,
            needy: BTreeMap::new(),
            timers: BTreeSet::new(),
            out: VecDeque::new(),
            dirty: true,
            counts: Counts::default(),
            load: Rate::default(),
            arrivals: Rate::default(),
            scratch: Vec::new(),
        };
        scheduler.seed_pools();
        Ok(scheduler)
    }

    /// Replaces the profile table by one that was saved earlier for the same models.
    ///
    /// # Errors
    /// [`SchedError::OutOfRange`] when the table has another number of models.
    pub fn restore_profile(&mut self, profile: ProfileTable) -> Result<(), SchedError> {
        if profile.models() != self.models.len() {
            return Err(SchedError::OutOfRange {
                what: "models in the saved profile",
                value: profile.models().to_string(),
                allowed: "the number of models served",
            });
        }
        self.profile = profile;
        for model in 0..self.models.len() {
            self.refresh_model(ModelId(model as u32));
        }
        Ok(())
    }

    /// Takes note of an event. Follow with [`Scheduler::poll_action`] until it returns `None`.
    ///
    /// # Errors
    /// [`Rejected`] says why the event has no effect; timers due at `now` have fired all the same.
    pub fn handle(&mut self, now: Time, event: Event) -> Result<(), Rejected> {
        if now < self.now {
            return Err(Rejected::TimeWentBack { event: now, now: self.now });
        }
        self.advance(now);
        if self.lifecycle == Lifecycle::Stopped {
            return Err(Rejected::ShuttingDown);
        }
        match event {
            Event::Request(request) => self.request(request),
            Event::Notice(notice) => self.notice(notice),
            Event::JobFinished { job, usage } => self.job_finished(job, usage),
            Event::JobFailed { job } => self.job_failed(job),
            Event::ClientGone { client } => self.client_gone(client),
            Event::Cancel { request } => self.cancel(request),
            Event::Capacity(capacity) => self.set_capacity(capacity),
            Event::Shutdown(how) => self.shutdown(how),
            Event::MaterialFound { material, model, client } => self.material_found(material, model, client),
            Event::Tick => Ok(()),
        }
    }

    /// The next thing to do, if any. `now` may be later than the last event, never earlier (it is then taken as that event's time).
    pub fn poll_action(&mut self, now: Time) -> Option<Action> {
        self.advance(now);
        if self.out.is_empty() && self.lifecycle != Lifecycle::Stopped {
            self.dispatch();
            if self.out.is_empty()
                && self.lifecycle == Lifecycle::Draining
                && self.groups.is_empty()
                && self.jobs.is_empty()
            {
                self.lifecycle = Lifecycle::Stopped;
                self.out.push_back(Action::Stopped);
            }
        }
        self.out.pop_front()
    }

    /// When to call [`Scheduler::poll_action`] again even if nothing happens: the next timeout or expiry. Valid once `poll_action` returned `None`.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.timers.first().map(|&(time, _)| time)
    }

    /// Fires timers that are due.
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(&(time, group)) = self.timers.first() {
            if time > self.now {
                break;
            }
            self.timers.pop_first();
            self.group_ends(group);
        }
    }

    /// Queue lengths.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What running jobs and live material hold.
    pub fn used(&self) -> Resources {
        self.used
    }

    /// The machine as last told.
    pub fn capacity(&self) -> Resources {
        self.capacity
    }

    /// Materials in stock, of all pools.
    pub fn stock(&self) -> usize {
        self.pools.as_ref().map_or(0, Pools::stock_total)
    }

    /// Jobs that wait in the class queues.
    pub fn queued_jobs(&self) -> usize {
        self.queues.len()
    }

    /// True after [`Action::Stopped`] was queued: no further action, every event is refused.
    pub fn stopped(&self) -> bool {
        self.lifecycle == Lifecycle::Stopped
    }

    /// What has been learned; save it and give it to [`Scheduler::restore_profile`] after a restart.
    pub fn profile(&self) -> &ProfileTable {
        &self.profile
    }

    /// The policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// The models, by id.
    pub fn models(&self) -> &[ModelSpec] {
        &self.models
    }

    /// The input that a running job works for now, if any (a notice's or a refill's T_pre can be claimed while it runs).
    pub fn job_input(&self, job: JobId) -> Option<InputId> {
        self.input_id(self.jobs.get(&job)?.owner?)
    }

    fn input_id(&self, key: InputKey) -> Option<InputId> {
        let input = self.inputs.get(&key)?;
        match input.group {
            GroupId::Request(request) => Some(InputId { request, index: input.index }),
            GroupId::Notice(_) => None,
        }
    }

    fn window(&self) -> u32 {
        if self.config.batch_share >= 1.0 {
            return u32::MAX;
        }
        ((f64::from(self.capacity.cores) * self.config.batch_share) as u32).max(1)
    }

    fn pool_key(&self, model: ModelId, client: ClientId) -> Option<PoolKey> {
        let pools = self.pools.as_ref()?;
        match self.models[model.0 as usize].binding {
            Binding::Unbound => Some(PoolKey { model, client: None }),
            Binding::Client if pools.config.per_client => Some(PoolKey { model, client: Some(client) }),
            Binding::Client => None,
        }
    }

    fn free(&self) -> Resources {
        self.capacity.minus(&self.used)
    }

    fn thread_counts(&self, phase: Phase) -> &[u32] {
        match phase {
            Phase::Pre => &self.config.pre_threads,
            Phase::On => &self.config.on_threads,
        }
    }
}
