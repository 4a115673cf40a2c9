//! The lane of one model: its queue, what waits, what runs, and who works on it. No clock decides here;
//! whoever waits brings the time that it has.
use crate::ApiError;
use crate::metadata::ModelMetadata;
use crate::stats::Stats;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tacit_client::{Answer, Closer, Progress, Step};
use tokio::sync::oneshot;

/// Where a job stands: its rank, then its turn.
pub(crate) type Key = (u64, u64);

/// What came of one input.
pub(crate) struct Done {
    pub answer: Answer,
    pub queued: Duration,
    /// With those that were run as one with it.
    pub worked: Duration,
}

/// One input that wants an answer.
pub(crate) struct Job {
    /// What the model computes on.
    pub input: Vec<f32>,
    pub reply: oneshot::Sender<Result<Done, ApiError>>,
    pub asked: Instant,
    /// Whether a connection was lost over it already.
    pub retried: bool,
    /// The request that it is of, by number.
    pub request: u64,
    /// How many inputs that has, for the first of them.
    pub first_of: Option<usize>,
}

/// What a worker does next.
pub(crate) enum Next {
    /// Inputs of one request.
    Work(Vec<(Key, Job)>),
    /// Nothing came in the time given.
    Idle,
    Stop,
}

/// The queue of one model.
pub struct Lane {
    name: String,
    backend: Option<String>,
    capacity: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// What workers note of the phases that they run.
    progress: Mutex<Vec<Weak<Progress>>>,
    /// Counts of requests.
    pub(crate) stats: Stats,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<Key, Job>,
    running: HashMap<Key, Running>,
    turns: u64,
    metadata: Option<Arc<ModelMetadata>>,
    /// Workers with a connection.
    workers: usize,
    /// Why there are none, and the last attempt to connect has failed.
    down: Option<String>,
    /// Answers since the last look of whoever keeps material ready.
    used: bool,
    stopping: bool,
}

struct Running {
    /// What ends it: its worker's connection, and whatever else works for it.
    closers: Vec<Arc<Closer>>,
    given_up: bool,
}

impl Lane {
    pub(crate) fn new(name: &str, backend: Option<&str>, capacity: usize) -> Self {
        let state = State { down: Some("not connected yet".into()), used: true, ..State::default() };
        let (name, backend) = (name.into(), backend.map(str::to_owned));
        let (state, progress) = (Mutex::new(state), Mutex::default());
        Self { name, backend, capacity, state, changed: Condvar::new(), progress, stats: Stats::default() }
    }

    /// Where a worker notes how far its phases are.
    pub(crate) fn shows(&self) -> Arc<Progress> {
        let progress = Arc::<Progress>::default();
        let mut all = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&progress));
        progress
    }

    /// The phases that run now.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let all = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).flat_map(|one| one.now()).collect()
    }

    /// The model's name at the server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The back end that was asked for.
    pub(crate) fn backend(&self) -> Option<&str> {
        self.backend.as_deref()
    }

    /// Inputs that may wait.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Inputs that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Inputs that a worker gets next who takes `most` at once.
    pub(crate) fn upcoming(&self, most: usize) -> usize {
        let state = self.lock();
        let first = state.waiting.values().next().map(|job| job.request);
        state.waiting.values().take_while(|job| Some(job.request) == first).take(most).count()
    }

    /// Inputs that are worked on.
    #[must_use]
    pub fn running(&self) -> usize {
        self.lock().running.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole: nothing between two of its lines panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server says of the model.
    ///
    /// # Errors
    /// Nobody has told yet.
    pub fn metadata(&self) -> Result<Arc<ModelMetadata>, ApiError> {
        let state = self.lock();
        state.metadata.clone().ok_or_else(|| self.unavailable(&state))
    }

    /// Says whether inputs are answered.
    ///
    /// # Errors
    /// Says why not.
    pub fn ready(&self) -> Result<(), String> {
        self.lock().down.clone().map_or(Ok(()), Err)
    }

    fn unavailable(&self, state: &State) -> ApiError {
        let why = state.down.as_deref().unwrap_or("the sidecar is stopping");
        ApiError::Unavailable(format!("model `{}` is not ready: {why}", self.name))
    }

    /// Queues all inputs or none; what comes of each.
    pub(crate) fn ask(self: &Arc<Self>, inputs: Vec<Vec<f32>>, rank: u64) -> Result<Asked, ApiError> {
        let mut state = self.lock();
        if state.stopping || state.down.is_some() {
            return Err(self.unavailable(&state));
        }
        if state.waiting.len() + inputs.len() > self.capacity {
            return Err(ApiError::Full(self.name.clone()));
        }
        let (mut keys, mut answers) = (Vec::new(), Vec::new());
        let (count, request) = (inputs.len(), state.turns + 1);
        for (place, input) in inputs.into_iter().enumerate() {
            let (reply, answer) = oneshot::channel();
            state.turns += 1;
            let key = (rank, state.turns);
            let first_of = (place == 0).then_some(count);
            let job = Job { input, reply, asked: Instant::now(), retried: false, request, first_of };
            state.waiting.insert(key, job);
            keys.push(key);
            answers.push(answer);
        }
        drop(state);
        self.changed.notify_all();
        Ok(Asked { answers, ticket: Ticket { lane: self.clone(), keys } })
    }

    /// The next jobs, for a worker whose connection `closer` ends: of one request, `most` of them.
    pub(crate) fn next(&self, closer: &Arc<Closer>, most: usize, patience: Duration) -> Next {
        let state = self.lock();
        let waits = |s: &mut State| s.waiting.is_empty() && !s.stopping;
        let (mut state, _) =
            self.changed.wait_timeout_while(state, patience, waits).unwrap_or_else(PoisonError::into_inner);
        if state.stopping {
            return Next::Stop;
        }
        let mut jobs: Vec<(Key, Job)> = Vec::new();
        while let Some(next) = state.waiting.first_entry()
            && jobs.len() < most
            && jobs.first().is_none_or(|(_, first)| first.request == next.get().request)
        {
            jobs.push(next.remove_entry());
        }
        if jobs.is_empty() {
            return Next::Idle;
        }
        let running = |(key, _): &(Key, Job)| (*key, Running { closers: vec![closer.clone()], given_up: false });
        state.running.extend(jobs.iter().map(running));
        Next::Work(jobs)
    }

    /// A job is no longer worked on; whether nobody wants its answer any more.
    pub(crate) fn ended(&self, key: Key) -> bool {
        let mut state = self.lock();
        let given_up = state.running.remove(&key).is_none_or(|running| running.given_up);
        state.used = true;
        drop(state);
        self.changed.notify_all();
        given_up
    }

    /// Another connection works for a running job: it is ended with it.
    pub(crate) fn also_ends(&self, key: Key, closer: Arc<Closer>) {
        match self.lock().running.get_mut(&key) {
            Some(running) if !running.given_up => running.closers.push(closer),
            _ => closer.close(),
        }
    }

    /// Whether nobody wants the answer of a running job any more.
    pub(crate) fn is_given_up(&self, key: Key) -> bool {
        self.lock().running.get(&key).is_none_or(|running| running.given_up)
    }

    /// Puts a job back to where it stood, for another connection.
    pub(crate) fn again(&self, key: Key, job: Job) {
        let mut state = self.lock();
        if !state.stopping {
            state.waiting.insert(key, Job { retried: true, ..job });
        }
    }

    /// One input of a request has failed, so none of the others need be answered.
    pub(crate) fn fail_others(&self, request: u64, error: &ApiError) {
        let mut state = self.lock();
        let others: Vec<Key> = state.waiting.iter().filter(|(_, j)| j.request == request).map(|(k, _)| *k).collect();
        let others: Vec<Job> = others.iter().filter_map(|key| state.waiting.remove(key)).collect();
        drop(state);
        for job in others {
            // Whoever asked may be gone.
            let _ = job.reply.send(Err(error.clone()));
        }
    }

    /// A worker has a connection.
    pub(crate) fn connected(&self, metadata: ModelMetadata) {
        let mut state = self.lock();
        state.workers += 1;
        state.down = None;
        state.metadata = Some(Arc::new(metadata));
    }

    /// A worker has lost its connection, and makes another; requests may wait for that.
    pub(crate) fn disconnected(&self) {
        self.lock().workers -= 1;
    }

    /// A worker gets no connection: where no other has one, what waits is not made to wait for nothing.
    /// Whether the reason is news.
    pub(crate) fn unreachable(&self, error: &ApiError) -> bool {
        let mut state = self.lock();
        if state.workers > 0 {
            return false;
        }
        let reason = Some(error.to_string());
        let news = state.down != reason;
        state.down = reason;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for job in waiting.into_values() {
            // Whoever asked may be gone.
            let _ = job.reply.send(Err(error.clone()));
        }
        news
    }

    /// Waits until `pause` is over; whether this is the end.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let state = self.lock();
        let (state, _) =
            self.changed.wait_timeout_while(state, pause, |s| !s.stopping).unwrap_or_else(PoisonError::into_inner);
        state.stopping
    }

    /// Waits until nothing waits and nothing runs, and something was used since the last time; whether this
    /// is the end.
    pub(crate) fn idle_after_use(&self) -> bool {
        let state = self.lock();
        let busy = |s: &mut State| !s.stopping && (!s.used || !s.waiting.is_empty() || !s.running.is_empty());
        let mut state = self.changed.wait_while(state, busy).unwrap_or_else(PoisonError::into_inner);
        state.used = false;
        state.stopping
    }

    /// Whether this is the end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Whoever keeps material ready looks again.
    pub(crate) fn look_again(&self) {
        self.lock().used = true;
    }

    /// Ends all connections that work, and all waiting.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        state.waiting.clear();
        state.running.values().flat_map(|running| &running.closers).for_each(|closer| closer.close());
        drop(state);
        self.changed.notify_all();
    }

    /// Takes jobs out of the queue, and ends the connections of those that run: all inputs that a connection
    /// works on at a time are of one request.
    fn give_up(&self, keys: &[Key]) {
        let mut state = self.lock();
        for key in keys {
            state.waiting.remove(key);
            if let Some(running) = state.running.get_mut(key) {
                running.given_up = true;
                running.closers.iter().for_each(|closer| closer.close());
            }
        }
    }
}

/// Inputs in the queue.
pub(crate) struct Asked {
    pub answers: Vec<oneshot::Receiver<Result<Done, ApiError>>>,
    /// Whoever drops it wants no answer any more: what waits is taken out, what runs is ended.
    pub ticket: Ticket,
}

/// A right to answers.
pub(crate) struct Ticket {
    lane: Arc<Lane>,
    keys: Vec<Key>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.lane.give_up(&self.keys);
    }
}
