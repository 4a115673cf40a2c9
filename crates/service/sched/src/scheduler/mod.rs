//! The state machine: events in, actions out, no clock, no threads, no I/O.

mod admit;
mod audit;
mod catalog;
mod classes;
mod clock;
mod dispatch;
mod faults;
mod inputs;
mod jobs;
mod lanes;
mod load;
mod machine;
mod models;
mod notices;
mod outbox;
mod recent;
mod refill;
mod same;
mod state;
mod stock;
mod two_queues;
mod work;

pub use state::Counts;

use crate::config::{BoundTo, Config, ModelSpec};
use crate::error::SchedError;
use crate::ids::{ClientId, InputId, JobId, MaterialId, ModelId};
use crate::message::{Action, Event, Rejected};
use crate::policy::Policy;
use crate::pool::PoolKey;
use crate::profile::ProfileTable;
use crate::queue::ClassQueues;
use crate::resources::Resources;
use crate::time::{Span, Time};
use catalog::Catalog;
use clock::Clock;
use load::Load;
use machine::Machine;
use notices::EndedNotices;
use outbox::Outbox;
use state::Lifecycle;
use stock::Stock;
use work::Work;

/// The scheduler. See the crate documentation for how to drive it.
#[derive(Clone, Debug)]
pub struct Scheduler<P> {
    policy: P,
    limits: Limits,
    lifecycle: Lifecycle,
    clock: Clock,
    catalog: Catalog,
    machine: Machine,
    work: Work,
    queues: ClassQueues,
    stock: Stock,
    notices: EndedNotices,
    load: Load,
    out: Outbox,
}

/// The part of [`Config`] that events need; the components own the rest.
#[derive(Clone, Debug)]
struct Limits {
    max_inputs: u32,
    max_queued: u32,
    notice_ttl: Span,
    pre_attempts: u32,
    batch_share: f64,
}

impl<P: Policy> Scheduler<P> {
    /// A scheduler at time zero. Models get ids in order, from 0.
    ///
    /// # Errors
    /// [`SchedError::OutOfRange`] names the setting outside its range.
    pub fn new(config: Config, models: Vec<ModelSpec>, policy: P) -> Result<Self, SchedError> {
        config.check()?;
        let limits = Limits {
            max_inputs: config.max_inputs,
            max_queued: config.max_queued,
            notice_ttl: config.notice_ttl,
            pre_attempts: config.pre_attempts,
            batch_share: config.batch_share,
        };
        let mut scheduler = Self {
            policy,
            limits,
            lifecycle: Lifecycle::Open,
            clock: Clock::default(),
            catalog: Catalog::new(models, config.pre_threads, config.on_threads),
            machine: Machine::new(config.capacity),
            work: Work::default(),
            queues: ClassQueues::default(),
            stock: Stock::new(config.pool),
            notices: EndedNotices::default(),
            load: Load::default(),
            out: Outbox::default(),
        };
        for model in scheduler.catalog.ids() {
            scheduler.seed_pool(model);
        }
        Ok(scheduler)
    }

    /// Replaces the profile table by one that was saved earlier for the same models.
    ///
    /// # Errors
    /// [`SchedError::OutOfRange`] when the number of models differs, or when a phase of a model has
    /// no measurement.
    pub fn restore_profile(&mut self, profile: ProfileTable) -> Result<(), SchedError> {
        self.catalog.restore(profile)?;
        for model in self.catalog.ids() {
            self.refresh_model(model);
        }
        Ok(())
    }

    /// Handles an event. Follow with [`Scheduler::poll_action`] until it returns `None`.
    ///
    /// # Errors
    /// [`Rejected`] says why the event has no effect (exception: [`Rejected::JobNotRunning`]).
    /// Timers due at `now` fire even then.
    pub fn handle(&mut self, now: Time, event: Event) -> Result<(), Rejected> {
        if now < self.clock.now() {
            return Err(Rejected::TimeWentBack { event: now, now: self.clock.now() });
        }
        self.advance(now);
        if self.lifecycle == Lifecycle::Stopped {
            return Err(Rejected::ShuttingDown);
        }
        match event {
            Event::Request(request) => self.handle_request(request),
            Event::Notice(notice) => self.handle_notice(notice),
            Event::JobFinished { job, usage, material } => self.handle_job_finished(job, usage, material),
            Event::JobFailed { job } => self.handle_job_failed(job),
            Event::JobStopped { job } => self.handle_job_stopped(job),
            Event::JobNotStarted { job } => self.handle_job_not_started(job),
            Event::Lanes { of: owner, lanes } => self.set_lanes(owner, lanes),
            Event::ClientGone { client } => self.handle_client_gone(client),
            Event::ClientRevoked { client } => self.handle_client_revoked(client),
            Event::Cancel { request } => self.cancel(request),
            Event::Withdraw { notice } => self.withdraw(notice),
            Event::Capacity(capacity) => self.set_capacity(capacity),
            Event::Shutdown(how) => self.shutdown(how),
            Event::ModelAdded(spec) => self.add_model(spec),
            Event::ModelRemoved { model } => self.remove_model(model),
            Event::Demand { model, inputs } => self.handle_demand(model, inputs),
            Event::MaterialGone { material } => self.handle_material_gone(material),
            Event::MaterialFound { material, model, client } => self.handle_material_found(material, model, client),
            Event::Tick => Ok(()),
        }
    }

    /// The next action, if any. `now` must not be earlier than the last event; an earlier `now`
    /// counts as the time of that event.
    pub fn poll_action(&mut self, now: Time) -> Option<Action> {
        self.advance(now);
        if self.out.is_empty() && self.lifecycle != Lifecycle::Stopped {
            self.dispatch();
            if self.out.is_empty()
                && self.lifecycle == Lifecycle::Draining
                && self.work.groups().len() == 0
                && self.machine.busy() == 0
            {
                self.lifecycle = Lifecycle::Stopped;
                self.out.push(Action::Stopped);
            }
        }
        self.out.pop()
    }

    /// When to call [`Scheduler::poll_action`] again without an event: the next timeout or expiry,
    /// or the end of a reservation for recent clients. Valid once `poll_action` returned `None`.
    pub fn next_wakeup(&self) -> Option<Time> {
        let keeps_room = self.policy.keeps_room() && self.lifecycle != Lifecycle::Stopped;
        let room = if keeps_room { self.work.recent().next_expiry() } else { None };
        self.clock.next_timer().into_iter().chain(room).min()
    }

    /// Fires timers that are due.
    fn advance(&mut self, now: Time) {
        self.clock.advance(now);
        while let Some(group) = self.clock.take_due() {
            self.expire_group(group);
        }
        // Jobs start only at events and wake-ups, so that a replay repeats the run.
        if self.work.forget(self.clock.now()) && self.policy.keeps_room() {
            self.out.stir();
        }
    }

    /// Queue lengths.
    pub fn counts(&self) -> Counts {
        self.work.counts()
    }

    /// Resources of jobs and live material. A stopping job counts until it has stopped.
    pub fn used(&self) -> Resources {
        self.machine.used()
    }

    /// The present capacity.
    pub fn capacity(&self) -> Resources {
        self.machine.capacity()
    }

    /// Materials in stock, of all pools.
    pub fn stock(&self) -> usize {
        self.stock.len()
    }

    /// Kept material of a client and model, in order of names.
    pub fn kept(&self, client: ClientId, model: ModelId) -> impl Iterator<Item = MaterialId> {
        self.stock.kept_materials(client, model)
    }

    /// Changes the policy: requeues all queued jobs, with their present ages.
    pub fn set_policy(&mut self, policy: P) {
        self.policy = policy;
        self.refile();
    }

    /// Jobs in the class queues.
    pub fn queued_jobs(&self) -> usize {
        self.queues.len()
    }

    /// True after [`Action::Stopped`] was queued: no further action, every event is refused.
    pub fn is_stopped(&self) -> bool {
        self.lifecycle == Lifecycle::Stopped
    }

    /// The learned profile; save it and pass it to [`Scheduler::restore_profile`] after a restart.
    pub fn profile(&self) -> &ProfileTable {
        self.catalog.profile()
    }

    /// The input that a running job works for, if any. A request can claim a notice's or a refill's
    /// T_pre while it runs. `None` for a stopping job.
    pub fn job_input(&self, job: JobId) -> Option<InputId> {
        let input = self.machine.job(job)?.task.input()?;
        self.work.input(input).id()
    }

    /// Most cores that one request or notice may hold.
    fn window(&self) -> u32 {
        self.machine.window(self.limits.batch_share)
    }

    fn pool_for(&self, model: ModelId, client: ClientId) -> Option<PoolKey> {
        let has_pre = self.catalog.has_pre(model);
        has_pre.then(|| self.stock.pool_for(model, self.catalog.binding(model), client)).flatten()
    }

    /// Sets the smallest target for the pool of an unbound model.
    fn seed_pool(&mut self, model: ModelId) {
        if let Some(pool) = self.pool_of_all(model) {
            self.stock.arrival(pool, self.clock.now(), 0, Span::ZERO);
        }
    }

    /// The pool of an unbound model.
    fn pool_of_all(&self, model: ModelId) -> Option<PoolKey> {
        let is_unbound = self.catalog.binding(model) == BoundTo::Unbound && self.catalog.has_pre(model);
        (is_unbound && self.stock.has_pools()).then_some(PoolKey { model, client: None })
    }
}
