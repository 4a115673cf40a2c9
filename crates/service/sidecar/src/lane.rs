//! The lane of one model: its queue, the waiting and running jobs, and its workers. The lane has no
//! clock of its own: callers that wait pass their time limit.
use crate::ApiError;
use crate::metadata::ModelMetadata;
use crate::stats::Stats;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tacit_client::{Answer, Closer, Progress, Step};
use tokio::sync::oneshot;

/// Position of a job: its rank, then its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    rank: u64,
    turn: u64,
}

pub(crate) struct JobResult {
    pub answer: Answer,
    pub queued: Duration,
    /// Time of the whole batch.
    pub worked: Duration,
}

/// One input to be answered.
pub(crate) struct Job {
    /// Normalised.
    pub input: Vec<f32>,
    pub reply: oneshot::Sender<Result<JobResult, ApiError>>,
    pub queued_at: Instant,
    /// Whether a connection was lost during it already.
    pub retried: bool,
    /// Number of its request.
    pub request: u64,
    /// Number of inputs of the request; `None` but for its first input.
    pub request_inputs: Option<usize>,
}

impl Job {
    /// Sends an error to the caller, who may have left.
    pub(crate) fn fail(self, error: &ApiError) {
        let _ = self.reply.send(Err(error.clone()));
    }
}

/// The next step of a worker.
pub(crate) enum Next {
    /// Inputs of one request.
    Work(Vec<(Key, Job)>),
    /// No input arrived in the given time.
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
    /// Progress of the workers' phases.
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
    /// Number of workers with a connection.
    workers: usize,
    /// Why the last attempt to connect failed, if no worker has a connection.
    fault: Option<String>,
    /// Whether there were answers since the thread that makes material ahead last looked.
    used: bool,
    stopping: bool,
}

struct Running {
    /// End the job: closers of its worker's connection and of others that work for it.
    closers: Vec<Arc<Closer>>,
    given_up: bool,
}

impl Lane {
    pub(crate) fn new(name: &str, backend: Option<&str>, capacity: usize) -> Self {
        let state = State { fault: Some("not connected yet".into()), used: true, ..State::default() };
        let (name, backend) = (name.into(), backend.map(str::to_owned));
        let (state, progress) = (Mutex::new(state), Mutex::default());
        Self { name, backend, capacity, state, changed: Condvar::new(), progress, stats: Stats::default() }
    }

    /// Makes a record in which a worker notes the progress of its phases.
    pub(crate) fn new_progress(&self) -> Arc<Progress> {
        let progress = Arc::<Progress>::default();
        let mut trackers = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        trackers.retain(|tracker| tracker.strong_count() > 0);
        trackers.push(Arc::downgrade(&progress));
        progress
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        let trackers = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        trackers.iter().filter_map(Weak::upgrade).flat_map(|tracker| tracker.now()).collect()
    }

    /// The model's name at the server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn backend(&self) -> Option<&str> {
        self.backend.as_deref()
    }

    /// Most waiting inputs.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of waiting inputs.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Number of inputs that a worker which takes at most `max` would get next.
    pub(crate) fn upcoming(&self, max: usize) -> usize {
        let state = self.lock();
        let first = state.waiting.values().next().map(|job| job.request);
        state.waiting.values().take_while(|job| Some(job.request) == first).take(max).count()
    }

    /// Number of running inputs.
    #[must_use]
    pub fn running(&self) -> usize {
        self.lock().running.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No change of the state can panic half-way, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server's description of the model.
    ///
    /// # Errors
    /// No worker has received it yet.
    pub fn metadata(&self) -> Result<Arc<ModelMetadata>, ApiError> {
        let state = self.lock();
        state.metadata.clone().ok_or_else(|| self.unavailable(&state))
    }

    /// Checks that inputs are answered.
    ///
    /// # Errors
    /// The reason why not.
    pub fn ready(&self) -> Result<(), String> {
        self.lock().fault.clone().map_or(Ok(()), Err)
    }

    fn unavailable(&self, state: &State) -> ApiError {
        let why = state.fault.as_deref().unwrap_or("the sidecar is stopping");
        ApiError::Unavailable(format!("model `{}` is not ready: {why}", self.name))
    }

    /// Queues all inputs or none; returns the receivers of their results.
    pub(crate) fn enqueue(self: &Arc<Self>, inputs: Vec<Vec<f32>>, rank: u64) -> Result<QueuedInputs, ApiError> {
        let mut state = self.lock();
        if state.stopping || state.fault.is_some() {
            return Err(self.unavailable(&state));
        }
        if state.waiting.len() + inputs.len() > self.capacity {
            return Err(ApiError::Full(self.name.clone()));
        }
        let (mut keys, mut answers) = (Vec::new(), Vec::new());
        let (count, request) = (inputs.len(), state.turns + 1);
        for (index, input) in inputs.into_iter().enumerate() {
            let (reply, answer) = oneshot::channel();
            state.turns += 1;
            let key = Key { rank, turn: state.turns };
            let request_inputs = (index == 0).then_some(count);
            let job = Job { input, reply, queued_at: Instant::now(), retried: false, request, request_inputs };
            state.waiting.insert(key, job);
            keys.push(key);
            answers.push(answer);
        }
        drop(state);
        self.changed.notify_all();
        Ok(QueuedInputs { answers, ticket: Ticket { lane: self.clone(), keys } })
    }

    /// Takes the next jobs, at most `max_jobs` of one request, for a worker whose connection `closer`
    /// ends.
    pub(crate) fn next(&self, closer: &Arc<Closer>, max_jobs: usize, patience: Duration) -> Next {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, patience, |s| s.waiting.is_empty() && !s.stopping);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.stopping {
            return Next::Stop;
        }
        let mut jobs: Vec<(Key, Job)> = Vec::new();
        while let Some(next) = state.waiting.first_entry()
            && jobs.len() < max_jobs
            && jobs.first().is_none_or(|(_, first)| first.request == next.get().request)
        {
            jobs.push(next.remove_entry());
        }
        if jobs.is_empty() {
            return Next::Idle;
        }
        let running = jobs.iter().map(|(key, _)| (*key, Running { closers: vec![closer.clone()], given_up: false }));
        state.running.extend(running);
        Next::Work(jobs)
    }

    /// Ends a running job; returns whether its caller has given it up.
    pub(crate) fn end_job(&self, key: Key) -> bool {
        let mut state = self.lock();
        let given_up = state.running.remove(&key).is_none_or(|running| running.given_up);
        state.used = true;
        drop(state);
        self.changed.notify_all();
        given_up
    }

    /// Adds a connection that works for a running job: giving up the job ends it as well.
    pub(crate) fn add_closer(&self, key: Key, closer: Arc<Closer>) {
        match self.lock().running.get_mut(&key) {
            Some(running) if !running.given_up => running.closers.push(closer),
            _ => closer.close(),
        }
    }

    /// Whether the caller of a running job has given it up.
    pub(crate) fn is_given_up(&self, key: Key) -> bool {
        self.lock().running.get(&key).is_none_or(|running| running.given_up)
    }

    /// Puts a job back at its position, for another connection.
    pub(crate) fn requeue(&self, key: Key, job: Job) {
        let mut state = self.lock();
        if !state.stopping {
            state.waiting.insert(key, Job { retried: true, ..job });
        }
    }

    /// Fails the waiting inputs of a request of which one input has failed.
    pub(crate) fn fail_others(&self, request: u64, error: &ApiError) {
        let mut state = self.lock();
        let siblings: Vec<Key> = state.waiting.iter().filter(|(_, j)| j.request == request).map(|(k, _)| *k).collect();
        let siblings: Vec<Job> = siblings.iter().filter_map(|key| state.waiting.remove(key)).collect();
        drop(state);
        siblings.into_iter().for_each(|job| job.fail(error));
    }

    pub(crate) fn record_connected(&self, metadata: ModelMetadata) {
        let mut state = self.lock();
        state.workers += 1;
        state.fault = None;
        state.metadata = Some(Arc::new(metadata));
    }

    /// Records that a worker has lost its connection and makes another; requests may wait for that.
    pub(crate) fn record_disconnected(&self) {
        self.lock().workers -= 1;
    }

    /// Records that a worker cannot connect. If no other worker has a connection, fails all waiting
    /// jobs. Returns whether the reason is new.
    pub(crate) fn record_unreachable(&self, error: &ApiError) -> bool {
        let mut state = self.lock();
        if state.workers > 0 {
            return false;
        }
        let reason = Some(error.to_string());
        let news = state.fault != reason;
        state.fault = reason;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().for_each(|job| job.fail(error));
        news
    }

    /// Waits until `pause` is over; returns whether the lane is stopping.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let state = self.lock();
        let (state, _) =
            self.changed.wait_timeout_while(state, pause, |s| !s.stopping).unwrap_or_else(PoisonError::into_inner);
        state.stopping
    }

    /// Waits until no job waits or runs, and there was an answer since the last call; returns
    /// whether the lane is stopping.
    pub(crate) fn wait_until_idle(&self) -> bool {
        let state = self.lock();
        let idle = self
            .changed
            .wait_while(state, |s| !s.stopping && (!s.used || !s.waiting.is_empty() || !s.running.is_empty()));
        let mut state = idle.unwrap_or_else(PoisonError::into_inner);
        state.used = false;
        state.stopping
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Asks the thread that makes material ahead to look again.
    pub(crate) fn request_refill(&self) {
        self.lock().used = true;
    }

    /// Ends all working connections and all waiting.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        state.waiting.clear();
        state.running.values().flat_map(|running| &running.closers).for_each(|closer| closer.close());
        drop(state);
        self.changed.notify_all();
    }

    /// Removes waiting jobs, and ends the connections of running ones: all inputs that a connection
    /// works on at a time belong to one request.
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

pub(crate) struct QueuedInputs {
    pub answers: Vec<oneshot::Receiver<Result<JobResult, ApiError>>>,
    /// Dropping it gives up the inputs: waiting ones are removed, running ones are ended.
    pub ticket: Ticket,
}

/// The right to answers of queued inputs.
pub(crate) struct Ticket {
    lane: Arc<Lane>,
    keys: Vec<Key>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.lane.give_up(&self.keys);
    }
}
