//! The queue of one model: what waits, what runs, and who works on it. No clock decides here; whoever waits
//! brings the time that it has.
use crate::ApiError;
use crate::facts::Facts;
use crate::stats::Stats;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tacit_client::{Answer, Closer};
use tokio::sync::oneshot;

/// Where a job stands: its rank, then its turn.
pub(crate) type Key = (u64, u64);

/// What came of one input.
pub(crate) struct Done {
    pub answer: Answer,
    pub queued: Duration,
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
}

/// What a worker does next.
pub(crate) enum Next {
    Work(Key, Job),
    /// Nothing came in the time given.
    Idle,
    Stop,
}

/// The queue of one model.
pub struct Pool {
    name: String,
    backend: Option<String>,
    capacity: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// Counts of requests.
    pub(crate) stats: Stats,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<Key, Job>,
    running: HashMap<Key, Running>,
    turns: u64,
    facts: Option<Arc<Facts>>,
    /// Workers with a connection.
    workers: usize,
    /// Why there are none, and the last attempt to connect has failed.
    down: Option<String>,
    /// Answers since the last look of whoever keeps material ready.
    used: bool,
    stopping: bool,
}

struct Running {
    closer: Arc<Closer>,
    given_up: bool,
}

impl Pool {
    pub(crate) fn new(name: &str, backend: Option<&str>, capacity: usize) -> Self {
        let state = State { down: Some("not connected yet".into()), used: true, ..State::default() };
        let (name, backend) = (name.into(), backend.map(str::to_owned));
        Self { name, backend, capacity, state: Mutex::new(state), changed: Condvar::new(), stats: Stats::default() }
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
    pub fn facts(&self) -> Result<Arc<Facts>, ApiError> {
        let state = self.lock();
        state.facts.clone().ok_or_else(|| self.unavailable(&state))
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
        for input in inputs {
            let (reply, answer) = oneshot::channel();
            state.turns += 1;
            let key = (rank, state.turns);
            state.waiting.insert(key, Job { input, reply, asked: Instant::now(), retried: false });
            keys.push(key);
            answers.push(answer);
        }
        drop(state);
        self.changed.notify_all();
        Ok(Asked { answers, ticket: Ticket { pool: self.clone(), keys } })
    }

    /// The next job, for a worker whose connection `closer` ends.
    pub(crate) fn next(&self, closer: &Arc<Closer>, patience: Duration) -> Next {
        let state = self.lock();
        let waits = |s: &mut State| s.waiting.is_empty() && !s.stopping;
        let (mut state, _) =
            self.changed.wait_timeout_while(state, patience, waits).unwrap_or_else(PoisonError::into_inner);
        if state.stopping {
            return Next::Stop;
        }
        let Some((key, job)) = state.waiting.pop_first() else { return Next::Idle };
        state.running.insert(key, Running { closer: closer.clone(), given_up: false });
        Next::Work(key, job)
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

    /// Puts a job back to where it stood, for another connection.
    pub(crate) fn again(&self, key: Key, job: Job) {
        let mut state = self.lock();
        if !state.stopping {
            state.waiting.insert(key, Job { retried: true, ..job });
        }
    }

    /// A worker has a connection.
    pub(crate) fn connected(&self, facts: Facts) {
        let mut state = self.lock();
        state.workers += 1;
        state.down = None;
        state.facts = Some(Arc::new(facts));
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
        state.running.values().for_each(|running| running.closer.close());
        drop(state);
        self.changed.notify_all();
    }

    /// Takes jobs out of the queue; with `at_once`, ends the connections of those that run.
    fn give_up(&self, keys: &[Key], at_once: bool) {
        let mut state = self.lock();
        for key in keys {
            state.waiting.remove(key);
            if let Some(running) = state.running.get_mut(key) {
                running.given_up = true;
                if at_once {
                    running.closer.close();
                }
            }
        }
    }
}

/// Inputs in the queue.
pub(crate) struct Asked {
    pub answers: Vec<oneshot::Receiver<Result<Done, ApiError>>>,
    pub ticket: Ticket,
}

/// A right to answers; whoever drops it no longer waits for what has not begun.
pub(crate) struct Ticket {
    pool: Arc<Pool>,
    keys: Vec<Key>,
}

impl Ticket {
    /// No longer waits for what has not begun.
    pub(crate) fn forget_waiting(&self) {
        self.pool.give_up(&self.keys, false);
    }

    /// Ends what runs for this ticket as well.
    pub(crate) fn expire(&self) {
        self.pool.give_up(&self.keys, true);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.forget_waiting();
    }
}
