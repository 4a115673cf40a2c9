//! All models of the sidecar, and the path of a request to its answer.
use crate::ApiError;
use crate::connector::Connector;
use crate::energy::EnergyModel;
use crate::lane::{JobResult, Lane, QueuedInputs};
use crate::metadata::{FRAME_BYTES, ModelMetadata, Wanted};
use crate::stats::{Counts, Times};
use crate::tensor::{Tensor, short};
use crate::worker::{self, Backoff, ReadyLimits};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread;
use std::time::{Duration, Instant};
use tacit_backends::Registry;
use tacit_client::{Answer, BatchPart, ClientConfig};

/// The one version that every model has.
pub const VERSION: &str = "1";

/// Configuration of a sidecar.
#[derive(Clone)]
pub struct FleetConfig {
    /// Back ends of this program.
    pub registry: Registry,
    /// Configuration of connections to the server.
    pub client: ClientConfig,
    /// Folder and name of the client's certificate, which is read again for each connection;
    /// `None`: the certificate in `client` is always used.
    pub keys: Option<(PathBuf, String)>,
    /// Models with the back end of each; empty: all of the server's models.
    pub models: Vec<(String, Option<String>)>,
    /// Names of classes by model.
    pub labels: BTreeMap<String, Vec<String>>,
    /// Connections for each model.
    pub workers: usize,
    /// Most waiting inputs of each model; also the largest batch.
    pub queue: usize,
    /// For each model, most inputs for which material is made ahead.
    pub ready: usize,
    /// Largest batch size of each of these materials; the server may allow less.
    pub ready_batch: usize,
    /// Model for joules from processor time and bytes; `None`: joules are not reported.
    pub energy: Option<EnergyModel>,
}

/// An inference request of either protocol.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// Id of the answer.
    pub id: String,
    /// The inputs.
    pub inputs: Vec<Tensor>,
    /// The wanted outputs; empty: all.
    pub outputs: Vec<Wanted>,
    /// Limit on the time to the answer.
    pub timeout: Option<Duration>,
    /// Priority: lower numbers first, from 1; 0 is after all others.
    pub priority: u64,
    /// Whether outputs are sent as bytes by default.
    pub binary: bool,
}

/// Answers to a batch, and their waiting time.
pub(crate) struct BatchAnswers {
    pub answers: Vec<Answer>,
    pub queued: Duration,
    /// Batch size and duration of each run.
    pub runs: Vec<(usize, Duration)>,
}

/// All models.
pub struct Fleet {
    config: FleetConfig,
    lanes: RwLock<BTreeMap<String, Arc<Lane>>>,
    /// Why the models are not known yet; `None` once they are.
    unknown: Mutex<Option<String>>,
}

impl Fleet {
    /// Starts the workers. If no models are configured, first asks the server for its models.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(config: FleetConfig) -> io::Result<Arc<Self>> {
        let models = config.models.clone();
        let unknown = models.is_empty().then(|| "the server was not asked yet".to_owned());
        let fleet = Arc::new(Self { config, lanes: RwLock::default(), unknown: Mutex::new(unknown) });
        if models.is_empty() {
            let weak = Arc::downgrade(&fleet);
            thread::Builder::new().name("tacit-models".into()).spawn(move || find_models(&weak))?;
        } else {
            fleet.open(models)?;
        }
        Ok(fleet)
    }

    pub(crate) fn energy(&self) -> Option<&EnergyModel> {
        self.config.energy.as_ref()
    }

    fn connector(&self) -> Connector {
        let FleetConfig { registry, client, keys, .. } = &self.config;
        Connector { registry: registry.clone(), config: client.clone(), keys: keys.clone() }
    }

    fn open(&self, models: Vec<(String, Option<String>)>) -> io::Result<()> {
        let FleetConfig { queue, workers, ready, ready_batch, labels, .. } = &self.config;
        let connector = self.connector();
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        for (name, backend) in models {
            let lane = Arc::new(Lane::new(&name, backend.as_deref(), *queue));
            let labels = labels.get(&name).map_or(&[][..], Vec::as_slice);
            worker::start(&lane, &connector, labels, *workers, ReadyLimits { inputs: *ready, batch: *ready_batch })?;
            lanes.insert(name, lane);
        }
        drop(lanes);
        *self.lock_unknown() = None;
        Ok(())
    }

    fn lock_unknown(&self) -> MutexGuard<'_, Option<String>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All models.
    #[must_use]
    pub fn lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Checks that every model is ready.
    ///
    /// # Errors
    /// The reason why one is not.
    pub fn ready(&self) -> Result<(), ApiError> {
        self.check_known()?;
        self.lanes().iter().try_for_each(|lane| {
            lane.ready().map_err(|why| ApiError::Unavailable(format!("model `{}` is not ready: {why}", lane.name())))
        })
    }

    fn check_known(&self) -> Result<(), ApiError> {
        match &*self.lock_unknown() {
            Some(why) => Err(ApiError::Unavailable(format!("the server's models are not known yet: {why}"))),
            None => Ok(()),
        }
    }

    /// Finds a model; an empty version matches any.
    ///
    /// # Errors
    /// There is no model of this name and version, or models are not known yet.
    pub fn lane(&self, name: &str, version: &str) -> Result<Arc<Lane>, ApiError> {
        let lane = self.lanes.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        let Some(lane) = lane else {
            self.check_known()?;
            return Err(ApiError::NotFound(format!("there is no model `{}`", short(name))));
        };
        if version.is_empty() || version == VERSION {
            return Ok(lane);
        }
        let message = format!("model `{name}` has no version `{}`: {VERSION} is the only one", short(version));
        Err(ApiError::NotFound(message))
    }

    /// Most bytes of a request for any of the models.
    #[must_use]
    pub fn body_limit(&self) -> usize {
        let limits =
            self.lanes().into_iter().filter_map(|lane| Some(lane.metadata().ok()?.body_limit(lane.capacity())));
        limits.max().unwrap_or(FRAME_BYTES)
    }

    /// Counts of one model, or of all.
    ///
    /// # Errors
    /// As [`lane`](Self::lane).
    pub fn counts(&self, model: Option<(&str, &str)>) -> Result<Vec<(String, Counts)>, ApiError> {
        let lanes = match model {
            Some((name, version)) => vec![self.lane(name, version)?],
            None => self.lanes(),
        };
        Ok(lanes.iter().map(|lane| (lane.name().to_owned(), lane.stats.counts())).collect())
    }

    /// Stops all work.
    pub fn stop(&self) {
        self.lanes().iter().for_each(|lane| lane.stop());
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Asks the server for its models until it answers.
fn find_models(fleet: &Weak<Fleet>) {
    let mut backoff = Backoff::new();
    while let Some(fleet) = fleet.upgrade() {
        match fleet.connector().connection().and_then(|mut connection| connection.models()) {
            Ok(models) => {
                if let Err(error) = fleet.open(models.into_iter().map(|m| (m.name, None)).collect()) {
                    tracing::error!("starting threads: {error}");
                }
                return;
            }
            Err(error) => {
                let mut unknown = fleet.lock_unknown();
                if unknown.replace(error.to_string()).as_deref() != Some(&error.to_string()) {
                    tracing::warn!("the server's models are not known yet: {error}");
                }
            }
        }
        drop(fleet);
        thread::sleep(backoff.pause());
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Reply {
    /// The outputs, each with the request for it.
    pub outputs: Vec<(Tensor, Wanted)>,
    /// Reasons for refused rows, by row.
    pub refused: BTreeMap<usize, String>,
}

/// Answers a request.
///
/// # Errors
/// As [`ApiError`] describes.
pub async fn infer(lane: &Arc<Lane>, request: Request) -> Result<Reply, ApiError> {
    let begun = Instant::now();
    let result = infer_timed(lane, request, begun).await;
    match &result {
        Ok((_, times)) => lane.stats.record_success(times),
        Err(_) => lane.stats.record_failure(begun.elapsed()),
    }
    result.map(|(reply, _)| reply)
}

async fn infer_timed(lane: &Arc<Lane>, request: Request, begun: Instant) -> Result<(Reply, Times), ApiError> {
    let metadata: Arc<ModelMetadata> = lane.metadata()?;
    let Request { inputs, outputs, timeout, priority, .. } = request;
    metadata.check_wanted(&outputs)?;
    let mut rows = metadata.accept(inputs, lane.capacity())?;
    let (count, accepted) = (rows.inputs.len() as u64, begun.elapsed());
    let answered = collect_answers(lane, rows.inputs.clone(), priority, timeout).await?;
    let finishing = Instant::now();
    let outputs = metadata.reply(&outputs, &rows.in_row_order(&answered.answers))?;
    let reply = Reply { outputs, refused: std::mem::take(&mut rows.refused) };
    let BatchAnswers { queued, runs, .. } = answered;
    let times = Times { inputs: count, accepted, queued, runs, finished: finishing.elapsed(), total: begun.elapsed() };
    Ok((reply, times))
}

/// Queues inputs and waits for their answers, for at most `timeout`.
pub(crate) async fn collect_answers(
    lane: &Arc<Lane>,
    inputs: Vec<Vec<f32>>,
    priority: u64,
    timeout: Option<Duration>,
) -> Result<BatchAnswers, ApiError> {
    let rank = priority.checked_sub(1).unwrap_or(u64::MAX);
    // Dropping the ticket ends the work, on a time-out as well as when the caller has disconnected.
    let QueuedInputs { answers, ticket: _ticket } = lane.enqueue(inputs, rank)?;
    let collected = async {
        let mut answered = BatchAnswers { answers: Vec::new(), queued: Duration::ZERO, runs: Vec::new() };
        for answer in answers {
            let JobResult { answer, queued, worked } = answer.await.unwrap_or_else(|_| {
                Err(ApiError::Unavailable("the sidecar is stopping, or its worker has failed".into()))
            })?;
            answered.queued = answered.queued.max(queued);
            if let Some(faint) = answer.faint {
                tracing::warn!("{faint}");
            }
            if let BatchPart { index: 0, inputs } = answer.part {
                answered.runs.push((inputs, worked));
            }
            answered.answers.push(answer);
        }
        Ok(answered)
    };
    match timeout {
        None => collected.await,
        Some(timeout) => tokio::time::timeout(timeout, collected).await.unwrap_or(Err(ApiError::Timeout)),
    }
}

/// Runs a decoder on a thread that may block.
///
/// # Errors
/// Errors of `read`; [`ApiError::Internal`] if `read` panics.
pub(crate) async fn decode<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(read).await.map_err(|e| ApiError::Internal(e.to_string()))?
}
