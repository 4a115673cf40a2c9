//! The driver: the one owner of all state that connections share. It holds the connected clients,
//! jobs, material in memory, limits and counters, and knows whether the server stops. It handles
//! events one at a time and carries out their consequences itself.
mod inputs;
mod models;
mod pools;
mod rules;
mod stop;
mod tokens;
mod views;

use crate::accept::closer::Closer;
use crate::accept::identity::CertificateIdentity;
use crate::jobs::event::{Decision, Event, Grant, Turn};
use crate::jobs::gate::Gate;
use crate::jobs::job::{Admitted, Job, PendingRequest, Reservation};
use crate::jobs::memory::InMemory;
use crate::jobs::queue::{Effect, JobEnd, Planned, Queue};
use crate::ops::monitor::Limits;
use crate::ops::published::Published;
use crate::ops::record::Record;
use crate::ops::state::{LearnedDurations, Row};
use crate::session::pooled::Pooled;
use crate::session::worker::refuse;
use crate::{ServeError, ServerConfig};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tacit_admission::{Admission, ConnectionId};
use tacit_client::wire::Request;
use tacit_ids::{ClientId, FolderId, MaterialId};
use tacit_sched::JobPhase;
use tacit_store::Store;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;

struct Connection {
    closer: Closer,
    identity: CertificateIdentity,
    folder: Option<FolderId>,
}

pub(crate) struct Driver {
    admission: Admission,
    capacity: Capacity,
    store: Option<Arc<Store>>,
    queue: Queue,
    gate: Gate,
    record: Record,
    connections: HashMap<ConnectionId, Connection>,
    work: Work,
    pools: pools::Pools,
    served: u64,
    ending: stop::Ending,
    published: Arc<Published>,
}

/// What jobs may take.
struct Capacity {
    /// Threads of a job.
    threads: usize,
    limits: Limits,
    /// Threads that jobs had at the last report of the machine's load.
    busy_threads: u32,
    memory_wait: Duration,
    stored_per_client: u32,
}

/// Requests that are not answered, and the material that they made.
struct Work {
    jobs: BTreeMap<ConnectionId, Job>,
    /// Jobs that wait for a place in memory.
    waiting: BTreeSet<ConnectionId>,
    memory: InMemory,
    /// Requests that wait for an input to reach a state.
    watchers: Vec<inputs::Watcher>,
}

pub(crate) struct DriverParts {
    pub(crate) store: Option<Arc<Store>>,
    pub(crate) admission: Admission,
    pub(crate) gate: Gate,
    pub(crate) record: Record,
    pub(crate) learned: LearnedDurations,
    pub(crate) published: Arc<Published>,
    /// Takes the driver's own events.
    pub(crate) events: UnboundedSender<Event>,
    /// Becomes true when the server stops.
    pub(crate) stop: watch::Sender<bool>,
}

impl Driver {
    pub(crate) fn new(config: &ServerConfig, parts: DriverParts) -> Result<Self, ServeError> {
        let DriverParts { store, admission, gate, record, learned, published, events, stop } = parts;
        let (policy, ttl) = (config.policy.clone(), config.pool_ttl);
        let queue = Queue::new(config.scheduling(), policy, learned, config.handover_timeout, ttl);
        let capacity = Capacity {
            threads: config.threads,
            limits: config.limits(),
            busy_threads: 0,
            memory_wait: config.memory_wait,
            stored_per_client: u32::try_from(config.stored_per_client).unwrap_or(u32::MAX),
        };
        let work = Work {
            jobs: BTreeMap::new(),
            waiting: BTreeSet::new(),
            memory: InMemory::new(config.memory_per_client),
            watchers: Vec::new(),
        };
        Ok(Self {
            admission,
            capacity,
            store,
            queue: queue.map_err(|e| ServeError::Usage(e.to_string()))?,
            gate,
            record,
            connections: HashMap::new(),
            work,
            pools: pools::Pools::new(&config.resources, events),
            served: 0,
            ending: stop::Ending { stopping: None, given_up: false, stop },
            published,
        })
    }

    /// Handles events until the server has stopped and all connections have ended.
    pub(crate) async fn run(mut self, mut events: UnboundedReceiver<Event>) {
        self.open_pools();
        self.run_ready();
        while !self.has_ended() {
            let event = match self.alarm() {
                None => events.recv().await,
                // Due timers run before further events, however many there are.
                Some(due) if due <= Instant::now() => {
                    self.on_timer(Instant::now());
                    self.publish(false);
                    continue;
                }
                Some(due) => match timeout_at(due.into(), events.recv()).await {
                    Ok(event) => event,
                    Err(_) => continue,
                },
            };
            let Some(event) = event else { break };
            self.handle(event);
            self.publish(false);
        }
        self.admission.close();
        self.record.close();
        self.publish(true);
    }

    /// The next timer; `None` if only events matter.
    fn alarm(&self) -> Option<Instant> {
        let waited = self.work.waiting.iter().filter_map(|number| self.work.jobs.get(number)?.waits_until()).min();
        [self.stopping_alarm(), self.admission.alarm(), self.queue.alarm(), waited].into_iter().flatten().min()
    }

    fn on_timer(&mut self, now: Instant) {
        self.admission.sum_up();
        self.run_ready();
        self.cut_when_due(now);
    }

    /// A reply whose receiver is gone is dropped: that task reports its end itself.
    fn handle(&mut self, event: Event) {
        match event {
            // Nothing to do: `publish` runs after each event.
            Event::HttpConnected => {}
            Event::Accepted { reply } => drop(reply.send(())),
            Event::Greeted { number, identity, closer, reply } => {
                let _ = reply.send(self.admit_connection(number, identity, closer));
            }
            Event::Refused { kind } => self.record.record_refusal(kind),
            Event::Requested { number, request, open, reply } => {
                self.request(number, PendingRequest { request, open, tokens: 0, reply })
            }
            Event::Load(load) => {
                let running = self.queue.used().cores;
                let cores = self.capacity.limits.cores(&load, running.min(self.capacity.busy_threads));
                self.capacity.busy_threads = running;
                let memory = self.capacity.limits.memory(&load, self.queue.used().memory, self.queue.largest_job());
                self.queue.set_machine(cores, memory);
            }
            Event::Queued { reply } => {
                let counts = self.queue.counts();
                let _ = reply.send(counts.pre + counts.waiting + counts.ready);
            }
            Event::Made { id, binding, material } => self.work.memory.fill(id, binding, material),
            Event::Pooled { job, result } => self.take_pooled(job, result),
            Event::PoolLost => self.queue.lose_pools(),
            Event::Over { number, end } => self.queue.finish_job(number, end),
            Event::Deviated { number, fault } => self.record.record_deviation(number, fault),
            Event::Finished { number, measured } => {
                self.record.record_end(number, measured.as_ref());
                self.end_job(number);
            }
            Event::Snapshot { reply } => drop(reply.send(self.snapshot())),
            Event::Announced { origin, announce, reply } => drop(reply.send(self.take_notice(&origin, announce))),
            Event::Status { client, name, reply } => drop(reply.send(self.queue.status(client, name))),
            Event::Watched { client, name, state, reply } => {
                self.work.watchers.push(inputs::Watcher { client, name, state, reply });
            }
            Event::TakenBack { client, name, reply } => drop(reply.send(self.queue.cancel(client, name).is_ok())),
            Event::SetPolicy { policy, reply } => {
                self.queue.set_policy(policy);
                tracing::info!("the policy is {} from now on", self.queue.policy());
                let _ = reply.send(());
            }
            Event::Access(rules) => self.set_rules(rules),
            Event::Models { catalog, reply } => drop(reply.send(self.set_models(*catalog))),
            Event::Cold { reply } => drop(reply.send(self.cold_models())),
            Event::Warmed(learned) => self.take_warm_up(learned),
            Event::Gone { number } => self.leave(number),
            Event::Stop { grace } => self.stop(grace),
        }
        self.run_ready();
    }

    /// Checks a request against all limits, and lets it wait for its turn.
    fn request(&mut self, number: ConnectionId, mut ask: PendingRequest) {
        if self.ending.stopping.is_some() {
            let _ = ask.reply.send(Decision::Close);
            return;
        }
        if let Some(connection) = self.connections.get(&number) {
            let binding = ask.open.as_ref().map(|open| open.binding);
            let identity = connection.identity.clone();
            self.record.record_request(number, identity.client, &ask.request, binding);
            let offered = ask.open.as_ref().map(|open| &open.origin.offered);
            if let Some(reason) = self.gate.reason_to_refuse(&identity) {
                return self.refuse_job(number, ask, ServeError::NotGranted(reason.into()));
            }
            let pass = identity.check(&ask.request, offered);
            let pass = pass.and_then(|()| self.gate.check(identity.client, &ask.request, offered));
            match pass.and_then(|()| self.take_tokens(identity.client, &ask)) {
                Ok(tokens) => ask.tokens = tokens,
                Err(e) => return self.refuse_job(number, ask, e),
            }
        }
        let deadline = Instant::now() + self.capacity.memory_wait;
        self.work.jobs.insert(number, Job::Waits { ask, deadline });
        self.work.waiting.insert(number);
        self.admit(number);
    }

    /// Retries jobs that wait for memory, then carries out the scheduler's effects until there are
    /// none.
    fn run_ready(&mut self) {
        let waiting: Vec<ConnectionId> = self.work.waiting.iter().copied().collect();
        waiting.into_iter().for_each(|number| self.admit(number));
        loop {
            let effects = self.queue.poll();
            if effects.is_empty() {
                break;
            }
            effects.into_iter().for_each(|effect| self.carry_out(effect));
        }
        self.tell_watchers();
    }

    /// Whether a job must wait for a place in memory. Jobs that use material need no place, so they
    /// free places meanwhile.
    fn must_wait(&self, job: &Job) -> bool {
        let Job::Waits {
            ask: PendingRequest { request: Request::Prepare { folder: None, .. }, open: Some(open), .. },
            deadline,
        } = job
        else {
            return false;
        };
        !self.work.memory.has_room(open.binding.client, open.origin.offered.batch()) && Instant::now() < *deadline
    }

    /// Starts, queues or refuses a job, or leaves it waiting.
    fn admit(&mut self, number: ConnectionId) {
        if self.work.jobs.get(&number).is_none_or(|job| self.must_wait(job)) {
            return;
        }
        self.work.waiting.remove(&number);
        let Some(Job::Waits { mut ask, .. }) = self.work.jobs.remove(&number) else { return };
        let placed = self.place(number, &mut ask);
        self.settle_tokens(number, &ask, placed.is_ok());
        match placed {
            Ok(Admitted::Queued(reservation)) => drop(self.work.jobs.insert(number, Job::Queued { ask, reservation })),
            Ok(Admitted::Now { destroyed, notice_ignored }) => {
                self.work.jobs.insert(number, Job::Runs { place: None });
                self.record.record_start(number, self.capacity.threads, None);
                let (request, turn) = (ask.request, Turn::now(self.capacity.threads));
                let (material, pooled, charge) = (None, None, None);
                let grant = Grant { request, turn, material, pooled, charge, destroyed, notice_ignored };
                let _ = ask.reply.send(Decision::Start(Box::new(grant)));
            }
            Err(e) => self.refuse_job(number, ask, e),
        }
    }

    /// Reserves what a request needs of the shared state.
    fn place(&mut self, number: ConnectionId, ask: &mut PendingRequest) -> Result<Admitted, ServeError> {
        let refused = ServeError::NotGranted;
        let (mut destroyed, mut notice_ignored) = (vec![], None);
        match (&mut ask.request, &ask.open) {
            (Request::Prepare { id, folder, of: input }, Some(open)) => {
                let place = folder.is_none().then_some(*id);
                if let Some(id) = place {
                    self.work.memory.reserve(id, open.binding.client, open.origin.offered.batch())?;
                }
                if let Err(reason) = self.queue.prepare(number, &open.origin, *input, folder.is_some()) {
                    self.release(Reservation { place, charge: None });
                    return Err(refused(reason));
                }
                return Ok(Admitted::Queued(Reservation { place, charge: None }));
            }
            (Request::Refill { held: stock, most: max_stock, .. }, Some(open)) => {
                let max_stock = self.gate.useful_stock(open.origin.client, &open.origin.offered.name, *max_stock);
                let max_stock = max_stock.min(self.capacity.stored_per_client);
                self.queue.refill(number, &open.origin, *stock, max_stock).map_err(refused)?;
                return Ok(Admitted::Queued(Reservation::default()));
            }
            (Request::Infer { id, of: input }, Some(open)) => {
                let charge = self.gate.charge(open.origin.client, &open.origin.offered)?;
                if let Err(reason) = self.queue.infer(number, &open.origin, *input, *id) {
                    self.gate.give_back(charge);
                    return Err(refused(reason));
                }
                return Ok(Admitted::Queued(Reservation { place: None, charge }));
            }
            (Request::Ask(ask), Some(open)) => {
                notice_ignored = self.queue.ask(number, &open.origin, ask).map_err(refused)?;
            }
            (Request::Announce(announce), Some(open)) => {
                self.queue.announce(Some(number), &open.origin, announce).map_err(refused)?;
            }
            (Request::Cancel { name }, Some(open)) => {
                self.queue.cancel(open.binding.client, *name).map_err(refused)?;
            }
            (Request::Discard { ids, lost_by }, _) => {
                if let Some(client) = self.connections.get(&number).map(|c| c.identity.client) {
                    if lost_by.is_some_and(|folder| self.others_use(number, client, folder)) {
                        ids.clear();
                    }
                    destroyed = self.work.memory.discard(ids, client);
                }
            }
            (Request::Reconcile { folder, .. }, _) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.folder = Some(*folder);
                }
            }
            _ => {}
        }
        Ok(Admitted::Now { destroyed, notice_ignored })
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start { connection, phase, threads, planned, material, from_pool } => {
                let pooled = from_pool.and_then(|from_pool| self.pools.take(from_pool));
                self.start(connection, phase, threads as usize, planned, material, pooled);
            }
            Effect::Deal { job, offered } => self.deal(job, offered),
            Effect::Drop { material } => drop(self.pools.take(material)),
            Effect::Drawn { offer, found } => self.record.record_draw(&offer, found),
            Effect::Refuse { connection, reason } => {
                if let Some(ask) = self.end_job(connection) {
                    self.refuse_job(connection, ask, ServeError::NotGranted(reason));
                }
            }
            Effect::Cut { connection } => {
                self.connections.get(&connection).into_iter().for_each(|c| c.closer.close());
            }
            Effect::Burn { material, client } => self.burn(material, client),
            Effect::Learned(learned) => self.record.keep(Row::Learned(learned)),
            Effect::Compared { offer, phase, expected, took } => {
                self.record.record_duration(&offer, phase, expected, took)
            }
            Effect::Answered { client, offer, inputs, delay, waiting } => {
                self.served += u64::from(inputs);
                for _ in 0..inputs {
                    self.record.record_answer(client, &offer, delay.secs(), waiting.secs());
                }
            }
        }
    }

    fn refuse_job(&mut self, number: ConnectionId, ask: PendingRequest, why: ServeError) {
        self.record.record_end(number, None);
        let _ = ask.reply.send(Decision::Refuse(why));
    }

    fn start(
        &mut self,
        number: ConnectionId,
        phase: JobPhase,
        threads: usize,
        planned: Planned,
        planned_id: Option<MaterialId>,
        pooled: Option<Pooled>,
    ) {
        let Some(Job::Queued { ask, reservation: Reservation { place, charge } }) = self.work.jobs.remove(&number)
        else {
            return self.queue.finish_job(number, JobEnd::Failed);
        };
        let material = match (&ask.request, &ask.open, phase) {
            (Request::Infer { id, .. }, Some(_), JobPhase::On) if *id != planned_id => {
                refuse("this is not the material of that input")
            }
            (Request::Infer { id: Some(id), .. }, Some(open), JobPhase::On) => self.work.memory.take(*id, open.binding),
            (Request::Infer { .. }, Some(_), JobPhase::On)
            | (Request::Prepare { .. } | Request::Refill { .. }, Some(_), JobPhase::Pre) => Ok(None),
            _ => refuse("another phase of that input comes next"),
        };
        match material {
            Ok(material) => {
                self.work.jobs.insert(number, Job::Runs { place });
                self.record.record_start(number, threads, Some(planned));
                let (destroyed, notice_ignored) = (vec![], None);
                let (request, turn) = (ask.request, Turn::now(threads));
                let grant = Grant { request, turn, material, pooled, charge, destroyed, notice_ignored };
                let _ = ask.reply.send(Decision::Start(Box::new(grant)));
            }
            Err(e) => {
                self.release(Reservation { place, charge });
                self.queue.finish_job(number, JobEnd::Failed);
                self.refuse_job(number, ask, e);
            }
        }
    }

    fn burn(&mut self, material: MaterialId, client: ClientId) {
        self.work.memory.discard(&[material], client);
        if let Some(store) = self.store.clone() {
            spawn_blocking(move || {
                if let Err(e) = store.discard(&[material], Some(client)) {
                    tracing::error!("material {material} cannot be destroyed: {e}");
                }
            });
        }
    }

    /// Whether another connection of the client uses this folder: it may have claimed material
    /// there and not yet asked to use it.
    fn others_use(&self, number: ConnectionId, client: ClientId, folder: FolderId) -> bool {
        self.connections.iter().any(|(&id, c)| id != number && c.identity.client == client && c.folder == Some(folder))
    }

    /// Removes a job and returns its request if the job had not started.
    fn end_job(&mut self, number: ConnectionId) -> Option<PendingRequest> {
        self.work.waiting.remove(&number);
        let mut job = self.work.jobs.remove(&number)?;
        let reservation = job.take_reservation();
        self.release(reservation);
        job.into_pending()
    }

    /// Gives back what a request has reserved and will not use.
    fn release(&mut self, Reservation { place, charge }: Reservation) {
        place.into_iter().for_each(|id| self.work.memory.give_back(id));
        self.gate.give_back(charge);
    }

    fn leave(&mut self, number: ConnectionId) {
        self.end_job(number);
        self.queue.disconnect(number);
        let Some(Connection { identity: CertificateIdentity { client, helper, .. }, .. }) =
            self.connections.remove(&number)
        else {
            return;
        };
        self.record.record_failure(number);
        self.record.record_disconnection(client);
        helper.into_iter().for_each(|helper| self.on_helper_gone(helper));
        if !self.connections.values().any(|c| c.identity.client == client) {
            self.on_client_gone(client);
        }
    }
}
