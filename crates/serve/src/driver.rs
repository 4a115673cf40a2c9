//! The one owner of everything that connections share: who is connected, which jobs there are, material in
//! memory, limits, counters and whether the server stops. Events come in one at a time; what follows from
//! each is carried out here and nowhere else.
use crate::control::places::Places;
use crate::door::{Door, Newcomer, Number, Ticket};
use crate::memory::InMemory;
use crate::policy::{self, Start};
use crate::record::{Measured, Record};
use crate::refusals::{Kind, Refusals};
use crate::snapshot::Snapshot;
use crate::{ServeError, ServerConfig};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tacit_backends::Material;
use tacit_client::wire::Request;
use tacit_ids::{ClientId, FolderId, MaterialId};
use tacit_sched::policy::PolicySpec;
use tacit_store::Binding;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout_at;

/// How long connections that were cut have to end.
const AFTER_CUT: Duration = Duration::from_secs(5);

/// What happened.
pub(crate) enum Event {
    /// Somebody connected; may it greet? The answer comes when it may, and never if the server stops.
    Accepted { number: Number, from: IpAddr, reply: oneshot::Sender<Option<Ticket>> },
    /// Its client is known; is there a place? `closer` ends it from here.
    Greeted { number: Number, client: ClientId, closer: TcpStream, reply: oneshot::Sender<bool> },
    /// Somebody was not served, or not granted something: for the log.
    Refused { kind: Kind, from: Option<IpAddr>, detail: String },
    /// A client asks; `binding` is that of the model it has open.
    Requested { number: Number, request: Request, binding: Option<Binding>, reply: oneshot::Sender<Decision> },
    /// A job has made material to be held in memory. Comes before the client is told.
    Made { id: MaterialId, binding: Binding, material: Material },
    /// A job is over; `served` says whether it answered an input, `measured` what phase it has run.
    Finished { number: Number, served: bool, measured: Option<Measured> },
    /// Somebody known speaks HTTP; is there a place?
    Visited { number: Number, client: ClientId, reply: oneshot::Sender<Result<(), &'static str>> },
    /// What is there to be seen?
    Snapshot { reply: oneshot::Sender<Snapshot> },
    /// Jobs are to start by this policy.
    SetPolicy { policy: PolicySpec, reply: oneshot::Sender<Result<(), String>> },
    /// A connection has ended, and its job if it had one.
    Gone { number: Number },
    /// Take no more requests; jobs have `grace` to end, then they are cut.
    Stop { grace: Duration },
}

/// What becomes of a request.
pub(crate) enum Decision {
    /// A worker carries it out.
    Start(Grant),
    /// The client is told why not.
    Refuse(String),
    /// The server stops.
    Close,
}

/// A job that may run.
pub(crate) struct Grant {
    /// What was asked.
    pub(crate) request: Request,
    /// Threads for its arithmetic.
    pub(crate) threads: usize,
    /// Material from memory; for an inference without, the store is asked.
    pub(crate) material: Option<Material>,
    /// Of material that is to be destroyed, what was in memory: it is destroyed.
    pub(crate) destroyed: Vec<MaterialId>,
}

/// A request between its arrival and its end.
pub(crate) struct Job {
    state: State,
}

enum State {
    Waits {
        request: Request,
        binding: Option<Binding>,
        reply: oneshot::Sender<Decision>,
        /// When it is refused if it still waits for a place in memory.
        until: Instant,
    },
    /// With the place that is reserved for what it makes.
    Runs { place: Option<MaterialId> },
}

impl Job {
    /// Nothing has been decided about it.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.state, State::Waits { .. })
    }

    fn waits_until(&self) -> Option<Instant> {
        match self.state {
            State::Waits { until, .. } => Some(until),
            State::Runs { .. } => None,
        }
    }
}

/// A connection whose client is known.
struct Connection {
    closer: TcpStream,
    client: ClientId,
    /// The client's folder of material that it uses.
    folder: Option<FolderId>,
}

/// What the rest of the process may see.
#[derive(Clone, Copy, Default)]
pub(crate) struct Status {
    pub(crate) connections: usize,
    pub(crate) served: u64,
    pub(crate) ended: bool,
}

/// A [`Status`] that can be waited for without a runtime.
#[derive(Default)]
pub(crate) struct Published {
    status: Mutex<Status>,
    changed: Condvar,
}

impl Published {
    fn lock(&self) -> MutexGuard<'_, Status> {
        // A status is replaced as a whole.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Status {
        *self.lock()
    }

    fn set(&self, status: Status) {
        *self.lock() = status;
        self.changed.notify_all();
    }

    /// Waits until the server has ended, for `timeout` at most.
    pub(crate) fn wait_end(&self, timeout: Duration) {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |status| !status.ended);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// When a stopping server cuts what still runs, and when it no longer waits even for that.
#[derive(Clone, Copy)]
struct Stopping {
    cut_at: Instant,
    is_cut: bool,
}

pub(crate) struct Driver {
    max_connections: usize,
    threads: usize,
    door: Door,
    controls: Places,
    record: Record,
    memory_wait: Duration,
    connections: HashMap<Number, Connection>,
    jobs: BTreeMap<Number, Job>,
    memory: InMemory,
    refusals: Refusals,
    served: u64,
    stopping: Option<Stopping>,
    given_up: bool,
    published: Arc<Published>,
    stop: watch::Sender<bool>,
}

impl Driver {
    /// Nobody is connected. `places` may greet at a time; `stop` becomes true when the server stops.
    pub(crate) fn new(
        config: &ServerConfig,
        places: usize,
        record: Record,
        published: Arc<Published>,
        stop: watch::Sender<bool>,
    ) -> Self {
        Self {
            max_connections: config.max_connections,
            threads: config.threads,
            door: Door::new(places),
            controls: Places::new(config.max_control, config.control_per_client),
            record,
            memory_wait: config.memory_wait,
            connections: HashMap::new(),
            jobs: BTreeMap::new(),
            memory: InMemory::new(config.memory_per_client),
            refusals: Refusals::default(),
            served: 0,
            stopping: None,
            given_up: false,
            published,
            stop,
        }
    }

    /// Works until the server has stopped and everybody is gone.
    pub(crate) async fn run(mut self, mut events: UnboundedReceiver<Event>) {
        while !self.has_ended() {
            let event = match self.alarm() {
                None => events.recv().await,
                // What is due comes first, however many events there are.
                Some(at) if at <= Instant::now() => {
                    self.ring(Instant::now());
                    self.publish(false);
                    continue;
                }
                Some(at) => match timeout_at(at.into(), events.recv()).await {
                    Ok(event) => event,
                    Err(_) => continue,
                },
            };
            let Some(event) = event else { break };
            self.handle(event);
            self.let_in(Instant::now());
            self.publish(false);
        }
        if let Some(line) = self.refusals.told() {
            tracing::warn!("{line}");
        }
        self.publish(true);
    }

    fn publish(&self, ended: bool) {
        let connections = self.door.len() + self.connections.len() + self.controls.len();
        self.published.set(Status { connections, served: self.served, ended });
    }

    fn has_ended(&self) -> bool {
        let all_gone = self.connections.is_empty() && self.door.len() == 0 && self.controls.len() == 0;
        self.given_up || (self.stopping.is_some() && all_gone)
    }

    fn stopping_alarm(&self) -> Option<Instant> {
        self.stopping.map(|s| if s.is_cut { s.cut_at + AFTER_CUT } else { s.cut_at })
    }

    /// When something is to be done though nothing happens.
    fn alarm(&self) -> Option<Instant> {
        let waited = self.jobs.values().filter_map(Job::waits_until).min();
        [self.stopping_alarm(), self.door.alarm(), self.refusals.alarm(), waited].into_iter().flatten().min()
    }

    /// The time of an alarm has come.
    fn ring(&mut self, now: Instant) {
        if let Some(line) = self.refusals.sum_up(now) {
            tracing::warn!("{line}");
        }
        self.let_in(now);
        self.start_jobs();
        if self.stopping_alarm().is_some_and(|at| at <= now) {
            match &mut self.stopping {
                Some(stopping) if !stopping.is_cut => {
                    stopping.is_cut = true;
                    // Closed already is as good.
                    self.connections.values().for_each(|c| drop(c.closer.shutdown(Shutdown::Both)));
                }
                _ => self.given_up = true,
            }
        }
    }

    /// Lets in who waits at the door, if there is room for it or somebody gives way.
    fn let_in(&mut self, now: Instant) {
        if let Some(from) = self.door.let_in(now) {
            let detail =
                format!("a connection from {from} had to give way to a newer one before it had said who it is");
            self.refuse(now, "that gave way to newer ones", Some(from), detail);
        }
    }

    fn refuse(&mut self, now: Instant, kind: Kind, from: Option<IpAddr>, detail: String) {
        tracing::debug!("refused: {detail}");
        self.record.refused(kind);
        if let Some(line) = self.refusals.count(now, kind, from, detail) {
            tracing::warn!("{line}");
        }
    }

    /// Replies go to tasks; one that is gone has ended, and says so with an event of its own.
    fn handle(&mut self, event: Event) {
        match event {
            Event::Accepted { number, from, reply } => {
                self.door.knock(Newcomer { number, from, reply });
                if self.stopping.is_some() {
                    self.door.close();
                }
            }
            Event::Greeted { number, client, closer, reply } => {
                self.door.leave(number);
                let free = self.connections.len() < self.max_connections;
                if free {
                    self.connections.insert(number, Connection { closer, client, folder: None });
                    self.record.connected(client);
                }
                let _ = reply.send(free);
            }
            Event::Refused { kind, from, detail } => self.refuse(Instant::now(), kind, from, detail),
            Event::Requested { number, request, binding, reply } => self.request(number, request, binding, reply),
            Event::Made { id, binding, material } => self.memory.fill(id, binding, material),
            Event::Finished { number, served, measured } => {
                self.served += u64::from(served);
                self.record.finished(number, measured.as_ref(), served);
                self.end_job(number);
            }
            Event::Visited { number, client, reply } => {
                self.door.leave(number);
                let _ = reply.send(self.controls.enter(number, client));
            }
            Event::Snapshot { reply } => drop(reply.send(self.snapshot())),
            Event::SetPolicy { policy, reply } => {
                tracing::debug!("not set: {policy:?}");
                let _ = reply.send(Err("not scheduled yet: every job starts at once".into()));
            }
            Event::Gone { number } => self.leave(number),
            Event::Stop { grace } => self.stop(grace),
        }
        self.start_jobs();
    }

    fn start_jobs(&mut self) {
        for start in
            policy::starts(self.jobs.iter().filter(|(_, job)| job.waits()).map(|(&number, _)| number), self.threads)
        {
            self.start(&start);
        }
    }

    fn request(
        &mut self,
        number: Number,
        request: Request,
        binding: Option<Binding>,
        reply: oneshot::Sender<Decision>,
    ) {
        if self.stopping.is_some() {
            let _ = reply.send(Decision::Close);
            return;
        }
        if let Some(connection) = self.connections.get(&number) {
            self.record.asked(number, connection.client, &request, binding);
        }
        let until = Instant::now() + self.memory_wait;
        self.jobs.insert(number, Job { state: State::Waits { request, binding, reply, until } });
    }

    /// Whether a job must wait for a place in memory. Those who use what is there need no further place, so
    /// one comes free.
    fn must_wait(&self, job: &Job) -> bool {
        let State::Waits { request: Request::Prepare { folder: None, .. }, binding: Some(binding), until, .. } =
            &job.state
        else {
            return false;
        };
        self.memory.is_full(binding.client) && Instant::now() < *until
    }

    /// Starts a job, refuses it for what the pool says, or leaves it waiting.
    fn start(&mut self, start: &Start) {
        let number = start.number;
        if self.jobs.get(&number).is_some_and(|job| self.must_wait(job)) {
            return;
        }
        let Some(Job { state: State::Waits { mut request, binding, reply, .. } }) = self.jobs.remove(&number) else {
            return;
        };
        let decision = match self.take(number, &mut request, binding) {
            Ok((place, material, destroyed)) => {
                self.jobs.insert(number, Job { state: State::Runs { place } });
                self.record.started(number, start.threads);
                Decision::Start(Grant { request, threads: start.threads, material, destroyed })
            }
            Err(e) => {
                self.record.finished(number, None, false);
                Decision::Refuse(e.to_string())
            }
        };
        let _ = reply.send(decision);
    }

    /// What a job needs of what connections share: a place in memory for what it makes, material that it uses
    /// or destroys, the name of its client's folder.
    fn take(&mut self, number: Number, request: &mut Request, binding: Option<Binding>) -> Result<Taken, ServeError> {
        match (request, binding) {
            (Request::Prepare { id, folder: None }, Some(binding)) => {
                self.memory.reserve(*id, binding.client)?;
                Ok((Some(*id), None, vec![]))
            }
            (Request::Infer { id: Some(id) }, Some(binding)) => Ok((None, self.memory.take(*id, binding)?, vec![])),
            (Request::Discard { ids, lost_by }, _) => {
                let Some(client) = self.connections.get(&number).map(|c| c.client) else {
                    return Ok((None, None, vec![]));
                };
                if lost_by.is_some_and(|folder| self.others_use(number, client, folder)) {
                    ids.clear();
                }
                Ok((None, None, self.memory.discard(ids, client)))
            }
            (Request::Reconcile { folder, .. }, _) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.folder = Some(*folder);
                }
                Ok((None, None, vec![]))
            }
            _ => Ok((None, None, vec![])),
        }
    }

    /// Whether another connection of a client uses its folder: it may have taken material out and not asked
    /// to use it yet.
    fn others_use(&self, number: Number, client: ClientId, folder: FolderId) -> bool {
        let uses = |c: &Connection| c.client == client && c.folder == Some(folder);
        self.connections.iter().any(|(&other, connection)| other != number && uses(connection))
    }

    fn end_job(&mut self, number: Number) {
        if let Some(Job { state: State::Runs { place: Some(id) } }) = self.jobs.remove(&number) {
            self.memory.give_back(id);
        }
    }

    fn leave(&mut self, number: Number) {
        self.door.leave(number);
        self.controls.leave(number);
        self.end_job(number);
        let Some(Connection { client, .. }) = self.connections.remove(&number) else { return };
        self.record.broke_off(number);
        self.record.disconnected(client);
        if !self.connections.values().any(|c| c.client == client) {
            self.memory.forget(client);
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            stopping: self.stopping.is_some(),
            policy: policy::NAME.into(),
            connections: self.connections.len(),
            control_connections: self.controls.len(),
            greetings: self.door.len(),
            greeting_places: self.door.places(),
            ..self.record.snapshot()
        }
    }

    fn stop(&mut self, grace: Duration) {
        let cut_at = Instant::now() + grace;
        // Asked again, it only becomes more urgent.
        if self.stopping.is_none_or(|s| !s.is_cut && cut_at < s.cut_at) {
            self.stopping = Some(Stopping { cut_at, is_cut: false });
        }
        self.door.close();
        self.stop.send_replace(true);
        // What waits for a place begins no more.
        let waiting: Vec<Number> = self.jobs.iter().filter(|(_, job)| job.waits()).map(|(&number, _)| number).collect();
        for number in waiting {
            if let Some(Job { state: State::Waits { reply, .. } }) = self.jobs.remove(&number) {
                let _ = reply.send(Decision::Close);
            }
        }
    }
}

/// A place in memory, material to use, and what was destroyed.
type Taken = (Option<MaterialId>, Option<Material>, Vec<MaterialId>);
