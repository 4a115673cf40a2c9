//! Threads of a model: workers, each with a connection to the server, and one that makes material
//! ahead.
use crate::ApiError;
use crate::ahead::Ahead;
use crate::connector::Connector;
use crate::error::is_connection;
use crate::lane::{Job, JobResult, Key, Lane, Next};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tacit_backends::Preparation;
use tacit_client::{Answer, BatchPart, Client, ClientError};
use tacit_graph::Units;

/// Longest time without a message on an idle connection: servers end silent connections.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of checking an idle connection, so that the loss of a server is noticed before the next
/// request.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// First and longest pause between two attempts to connect.
const MIN_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Pauses that grow until a connection is useful.
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub(crate) fn new() -> Self {
        Self(MIN_PAUSE)
    }

    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (2 * pause).min(MAX_PAUSE);
        pause
    }
}

/// How much material to make ahead.
#[derive(Clone, Copy)]
pub(crate) struct ReadyLimits {
    pub(crate) inputs: usize,
    /// Largest batch.
    pub(crate) batch: usize,
}

/// Starts the workers of a model, and the thread that makes material ahead if it is to be made for
/// any input.
pub(crate) fn start(
    lane: &Arc<Lane>,
    connector: &Connector,
    labels: &[String],
    workers: usize,
    ahead: ReadyLimits,
) -> io::Result<()> {
    for number in 0..workers {
        let (lane, connector, labels) = (lane.clone(), connector.clone(), labels.to_vec());
        let thread = thread::Builder::new().name(format!("tacit-work-{number}"));
        thread.spawn(move || work(&lane, &connector, &labels))?;
    }
    if ahead.inputs > 0 {
        let (lane, connector) = (lane.clone(), connector.clone());
        thread::Builder::new().name("tacit-ready".into()).spawn(move || keep_ready(&lane, &connector, ahead))?;
    }
    Ok(())
}

/// Runs a worker until the lane stops: connects, and connects again after each loss.
fn work(lane: &Arc<Lane>, connector: &Connector, labels: &[String]) {
    let mut backoff = Backoff::new();
    loop {
        match connector.open(lane, labels) {
            Ok((client, metadata)) => {
                tracing::info!("model {} is open with {}", lane.name(), metadata.backend);
                lane.record_connected(metadata);
                let outcome = answer_all(lane, connector, client);
                lane.record_disconnected();
                match outcome {
                    Outcome::Stop => return,
                    Outcome::Lost => {}
                    // Reconnects at once.
                    Outcome::Useful => {
                        backoff = Backoff::new();
                        continue;
                    }
                }
            }
            Err(error) => {
                if lane.record_unreachable(&ApiError::from(&error)) {
                    tracing::warn!("model {}: {error}", lane.name());
                }
            }
        }
        if lane.pause(backoff.pause()) {
            return;
        }
    }
}

/// The end of a connection.
enum Outcome {
    Stop,
    /// Before any useful work.
    Lost,
    Useful,
}

/// Answers waiting inputs until the connection is lost.
fn answer_all(lane: &Arc<Lane>, connector: &Connector, mut client: Client) -> Outcome {
    let closer = client.closer();
    let (mut outcome, mut ahead) = (Outcome::Lost, Ahead::new(lane, connector));
    let (progress, mut last_contact) = (lane.new_progress(), Instant::now());
    client.set_progress(Some(progress.clone()));
    loop {
        if lane.waiting() == 0 {
            // The caller of the announced input has left: frees its place at the server for others.
            ahead.withdraw();
        }
        match lane.next(&closer, client.max_batch(), POLL_INTERVAL) {
            Next::Work(jobs) => {
                let result = answer_some(lane, &mut client, &mut ahead, jobs, &mut outcome);
                // Drops old steps: only running phases are shown.
                drop(progress.take());
                last_contact = Instant::now();
                if let Err(Unusable) = result {
                    return outcome;
                }
            }
            Next::Idle if last_contact.elapsed() < PING_INTERVAL && !closer.has_input() => {}
            Next::Idle if client.stored_at_server().is_ok() => {
                outcome = Outcome::Useful;
                last_contact = Instant::now();
            }
            Next::Idle => return outcome,
            Next::Stop => {
                // An error is ignored: the server notices the end of the connection.
                let _ = client.close();
                return Outcome::Stop;
            }
        }
    }
}

/// The connection is of no further use.
struct Unusable;

/// Answers inputs of one request, in batches as large as the server allows.
fn answer_some(
    lane: &Lane,
    client: &mut Client,
    ahead: &mut Ahead,
    mut jobs: Vec<(Key, Job)>,
    outcome: &mut Outcome,
) -> Result<(), Unusable> {
    while let Some((key, job)) = jobs.first_mut() {
        let key = *key;
        if lane.is_given_up(key) {
            for (key, _) in &jobs {
                lane.end_job(*key);
            }
            return Ok(());
        }
        let request_inputs = job.request_inputs.take();
        let inputs: Vec<Vec<f32>> = jobs.iter().map(|(_, job)| job.input.clone()).collect();
        let begun = Instant::now();
        let answers = catch_unwind(AssertUnwindSafe(|| {
            client.begin_call(request_inputs.unwrap_or(0))?;
            if ahead.should_announce(client, inputs.len())? {
                let keys: Vec<Key> = jobs.iter().map(|(key, _)| *key).collect();
                return ahead.infer(client, &keys, &inputs);
            }
            client.infer_next(Units::Normalised, &inputs)
        }));
        match answers {
            Ok(Ok(answers)) => {
                *outcome = Outcome::Useful;
                let answered = jobs.drain(..answers.len());
                for (answer, (key, job)) in answers.into_iter().zip(answered) {
                    lane.end_job(key);
                    send_answer(lane, answer, job, begun);
                }
            }
            Ok(Err(error)) if error.refuses_answer() => {
                *outcome = Outcome::Useful;
                // The other inputs of the request are still asked for, so that the server sees no
                // difference.
                let (key, job) = jobs.remove(0);
                lane.end_job(key);
                job.fail(&ApiError::from(&error));
            }
            Ok(Err(error)) => return handle_failure(lane, client, jobs, &error),
            Err(_) => {
                // The connection is dropped; the panic is in the log.
                refuse(lane, jobs, &ApiError::Internal("the inference broke down".into()));
                return Err(Unusable);
            }
        }
    }
    Ok(())
}

/// Logs an answer and sends it to its caller.
fn send_answer(lane: &Lane, answer: Answer, job: Job, begun: Instant) {
    let (queued, worked) = (begun - job.queued_at, begun.elapsed());
    let (input, waited, BatchPart { index, inputs }) = (answer.name, queued.as_secs_f64(), answer.part);
    if index == 0 {
        let seconds = worked.as_secs_f64();
        tracing::info!(%input, model = lane.name(), inputs, "answered in {seconds:.3} s, after {waited:.3} s");
    }
    // The caller may have left.
    let _ = job.reply.send(Ok(JobResult { answer, queued, worked }));
}

/// Handles inputs that were not answered. Other inputs of their request are not begun. If the
/// connection was lost, another connection tries these inputs once.
fn handle_failure(lane: &Lane, client: &Client, jobs: Vec<(Key, Job)>, error: &ClientError) -> Result<(), Unusable> {
    let lost = is_connection(error) || client.closer().is_closed();
    let can_go_on = !lost && is_refusal(error);
    if lost && jobs.iter().all(|(_, job)| !job.retried) {
        for (key, job) in jobs {
            // The material is burnt here. Another connection takes other material: none is used
            // twice.
            if !lane.end_job(key) {
                lane.requeue(key, job);
            }
        }
    } else {
        refuse(lane, jobs, &ApiError::from(error));
    }
    if can_go_on { Ok(()) } else { Err(Unusable) }
}

/// Sends an error to the callers of these inputs, and of the waiting ones of their request.
fn refuse(lane: &Lane, jobs: Vec<(Key, Job)>, error: &ApiError) {
    if let Some((_, first)) = jobs.first() {
        lane.fail_others(first.request, error);
    }
    for (key, job) in jobs {
        lane.end_job(key);
        job.fail(error);
    }
}

/// Whether the connection stays usable after an error: nothing was sent, or the server refused.
fn is_refusal(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { .. } | ClientError::Graph(_))
}

/// Makes material ahead on a connection of its own, within the limits of `wanted`. The server
/// decides when and how much: it knows this client's rate of requests and its own idle time.
fn keep_ready(lane: &Lane, connector: &Connector, wanted: ReadyLimits) {
    let (mut backoff, mut client, mut last_reason) = (Backoff::new(), None, String::new());
    while !lane.wait_until_idle() {
        match refill(lane, connector, &mut client, wanted) {
            Ok(()) => backoff = Backoff::new(),
            Err(error) => {
                let why = error.to_string();
                if why != last_reason {
                    tracing::warn!("material of model {} is not made ahead: {why}", lane.name());
                    last_reason = why;
                }
                client = None;
                lane.request_refill();
                if lane.pause(backoff.pause()) {
                    return;
                }
            }
        }
    }
}

/// Makes material until it suffices for `inputs` inputs.
fn refill(
    lane: &Lane,
    connector: &Connector,
    client: &mut Option<Client>,
    ReadyLimits { inputs, batch }: ReadyLimits,
) -> Result<(), ClientError> {
    let mut open = match client.take() {
        Some(open) => open,
        None => connect(lane, connector, batch.min(inputs))?,
    };
    let mut stored = match open.list_stored() {
        Ok(stored) => stored.len(),
        // The server ends connections that are silent for long.
        Err(error) if is_connection(&error) => {
            open = connect(lane, connector, batch.min(inputs))?;
            open.list_stored()?.len()
        }
        Err(error) => return Err(error),
    };
    if open.model().preparation() == Preparation::Nothing {
        *client = Some(open);
        return Ok(());
    }
    let wanted = inputs.div_ceil(open.model().batch());
    let max_stored = u32::try_from(wanted).unwrap_or(u32::MAX);
    while stored < wanted && !lane.is_stopping() {
        open.refill(max_stored)?;
        stored += 1;
    }
    *client = Some(open);
    Ok(())
}

/// Connects, and asks for a batch of this size.
fn connect(lane: &Lane, connector: &Connector, batch: usize) -> Result<Client, ClientError> {
    let mut open = connector.open(lane, &[])?.0;
    open.ask_batch(batch)?;
    Ok(open)
}
