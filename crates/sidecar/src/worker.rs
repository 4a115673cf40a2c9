//! The threads of a model: workers, each with a connection to the server, and one that keeps material ready.
use crate::ApiError;
use crate::error::is_connection;
use crate::facts::Facts;
use crate::pool::{Done, Next, Pool};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tacit_backends::{Preparation, Registry};
use tacit_client::{Client, ClientConfig, ClientError, Lobby};
use tacit_graph::Units;
use tacit_store::keys;

/// How long a connection that nobody needs is left alone. Servers end those that are silent for long, and a
/// server that is gone should be noticed before it is needed.
const PING: Duration = Duration::from_secs(30);
/// First and longest pause between two attempts to connect.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(10)];

/// How connections are made.
#[derive(Clone)]
pub(crate) struct Connector {
    pub registry: Registry,
    pub config: ClientConfig,
    /// Where the client's certificate comes from: folder and name.
    pub keys: Option<(PathBuf, String)>,
}

impl Connector {
    pub(crate) fn lobby(&self) -> Result<Lobby, ClientError> {
        let mut config = self.config.clone();
        // It may have been renewed since; a process that runs for months must not need a restart for that.
        if let Some((folder, name)) = &self.keys {
            match keys::load_client(folder, name) {
                Ok(identity) => config.identity = identity,
                Err(e) => tracing::warn!("the certificate is used that was read before: {e}"),
            }
        }
        Lobby::connect(self.registry.clone(), config)
    }

    fn open(&self, pool: &Pool, labels: &[String]) -> Result<(Client, Facts), ClientError> {
        let client = self.lobby()?.open(pool.name(), pool.backend())?;
        let (interface, backend) = (client.interface().clone(), client.backend().to_owned());
        let trust = self.registry.get(&backend)?.trust();
        let prepares = client.model().preparation() != Preparation::Nothing;
        Ok((client, Facts { interface, backend, trust, prepares, labels: labels.to_vec() }))
    }
}

/// Pauses that grow until something works again.
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub(crate) fn new() -> Self {
        Self(PAUSES[0])
    }

    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (2 * pause).min(PAUSES[1]);
        pause
    }
}

/// Starts the workers of a model, and the thread that keeps `ready` inputs of material.
pub(crate) fn start(
    pool: &Arc<Pool>,
    connector: &Connector,
    labels: &[String],
    workers: usize,
    ready: usize,
) -> io::Result<()> {
    for number in 0..workers {
        let (pool, connector, labels) = (pool.clone(), connector.clone(), labels.to_vec());
        let thread = thread::Builder::new().name(format!("tacit-work-{number}"));
        thread.spawn(move || work(&pool, &connector, &labels))?;
    }
    if ready > 0 {
        let (pool, connector) = (pool.clone(), connector.clone());
        thread::Builder::new().name("tacit-ready".into()).spawn(move || keep_ready(&pool, &connector, ready))?;
    }
    Ok(())
}

fn work(pool: &Pool, connector: &Connector, labels: &[String]) {
    let mut backoff = Backoff::new();
    loop {
        match connector.open(pool, labels) {
            Ok((client, facts)) => {
                tracing::info!("model {} is open with {}", pool.name(), facts.backend);
                pool.connected(facts);
                let ended = answer_all(pool, client);
                pool.disconnected();
                match ended {
                    Ended::Stop => return,
                    Ended::Lost => {}
                    // Made anew at once.
                    Ended::Useful => {
                        backoff = Backoff::new();
                        continue;
                    }
                }
            }
            Err(error) => {
                if pool.unreachable(&ApiError::from(&error)) {
                    tracing::warn!("model {}: {error}", pool.name());
                }
            }
        }
        if pool.pause(backoff.pause()) {
            return;
        }
    }
}

/// How a connection ended.
enum Ended {
    Stop,
    /// Before it was of any use.
    Lost,
    Useful,
}

/// Answers what waits, until the connection is lost.
fn answer_all(pool: &Pool, mut client: Client) -> Ended {
    let closer = client.closer();
    let mut ended = Ended::Lost;
    loop {
        let (key, job) = match pool.next(&closer, PING) {
            Next::Work(key, job) => (key, job),
            Next::Idle if client.stored_at_server().is_ok() => {
                ended = Ended::Useful;
                continue;
            }
            Next::Idle => return ended,
            Next::Stop => {
                // The server notices the end of the connection in any case.
                let _ = client.close();
                return Ended::Stop;
            }
        };
        let begun = Instant::now();
        let answer = catch_unwind(AssertUnwindSafe(|| client.infer_in(Units::Normalised, &job.input)));
        let given_up = pool.ended(key);
        let Ok(answer) = answer else {
            // What is left of the connection goes with it; the log has the panic.
            let _ = job.reply.send(Err(ApiError::Internal("the inference broke down".into())));
            return ended;
        };
        let error = match answer {
            Ok(answer) => {
                let (queued, worked) = (begun - job.asked, begun.elapsed());
                let (input, waited) = (answer.name, queued.as_secs_f64());
                tracing::info!(%input, model = pool.name(), "answered in {:.3} s, after {waited:.3} s", worked.as_secs_f64());
                // Whoever asked may be gone.
                let _ = job.reply.send(Ok(Done { answer, queued, worked }));
                ended = Ended::Useful;
                continue;
            }
            Err(error) => error,
        };
        let lost = is_connection(&error) || closer.is_closed();
        if lost && !given_up && !job.retried {
            // Its material is burnt here. Another connection takes other material: nothing is used twice.
            pool.again(key, job);
        } else {
            let _ = job.reply.send(Err(ApiError::from(&error)));
        }
        if lost || !is_refusal(&error) {
            return ended;
        }
    }
}

/// Whether the connection can be used after an error: nothing was sent, or the server said no.
fn is_refusal(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { .. } | ClientError::Graph(_))
}

/// Keeps material ready, for `wanted` inputs at most, made on a connection of its own. When, and how much of
/// it, is the server's to say: it knows how often this client asks, and when its cores are idle.
fn keep_ready(pool: &Pool, connector: &Connector, wanted: usize) {
    let (mut backoff, mut client, mut said) = (Backoff::new(), None, String::new());
    while !pool.idle_after_use() {
        match fill(pool, connector, &mut client, wanted) {
            Ok(()) => backoff = Backoff::new(),
            Err(error) => {
                let why = error.to_string();
                if why != said {
                    tracing::warn!("material of model {} is not made ahead: {why}", pool.name());
                    said = why;
                }
                client = None;
                pool.look_again();
                if pool.pause(backoff.pause()) {
                    return;
                }
            }
        }
    }
}

fn fill(pool: &Pool, connector: &Connector, client: &mut Option<Client>, wanted: usize) -> Result<(), ClientError> {
    let mut open = match client.take() {
        Some(open) => open,
        None => connector.open(pool, &[])?.0,
    };
    let mut stored = match open.stored() {
        Ok(stored) => stored.len(),
        // The server ends connections that are silent for long.
        Err(error) if is_connection(&error) => {
            open = connector.open(pool, &[])?.0;
            open.stored()?.len()
        }
        Err(error) => return Err(error),
    };
    if open.model().preparation() == Preparation::Nothing {
        *client = Some(open);
        return Ok(());
    }
    let most = u32::try_from(wanted).unwrap_or(u32::MAX);
    while stored < wanted && !pool.is_stopping() {
        open.refill(most)?;
        stored += 1;
    }
    *client = Some(open);
    Ok(())
}
