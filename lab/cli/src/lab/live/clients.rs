//! The clients of a cell: ready connections, and requests at their planned times.
use super::dealer::Dealer;
use anyhow::Context;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tacit_backends::{ConnectionResources, Preparation, Registry};
use tacit_client::{Client, ClientConfig, Closer, Connection};
use tacit_graph::Units;
use tacit_sim::Arrival;
use tacit_store::keys;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the name of a request's client in the key folder.
pub fn name(request: usize) -> String {
    format!("r{request:04}")
}

/// A request's connections, after setup.
pub struct ReadyClient {
    client: Client,
    /// The connection that makes the material, if the request is announced.
    maker: Option<Client>,
    input: Vec<f32>,
    /// Planned times of notice and request, in seconds after the start.
    notice_s: f64,
    at_s: f64,
}

/// The outcome of a request. Times are seconds since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClientReport {
    pub asked_s: f64,
    pub answered_s: f64,
    pub failure: Option<String>,
}

/// Connects a client for each request, and a second time for each announced one; opens its model
/// and makes its keys. Returns none if stopped.
pub fn connect(
    address: &str,
    keys_dir: &Path,
    nets: &[String],
    backend: &str,
    dealer: Option<&Dealer>,
    arrivals: &[Arrival],
    stop: &AtomicBool,
) -> anyhow::Result<Option<Vec<ReadyClient>>> {
    let mut ready = Vec::with_capacity(arrivals.len());
    for (i, arrival) in arrivals.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let config = ClientConfig {
            stall_timeout: Duration::from_secs(600),
            connect_timeout: Duration::from_secs(60),
            resources: dealer
                .map_or_else(|| Ok(ConnectionResources::default()), |dealer| dealer.resources(&name(i)))?,
            ..ClientConfig::new(address, keys::load_client(keys_dir, &name(i))?)
        };
        let net = &nets[arrival.model as usize];
        let mut client = Connection::connect(Registry::standard(), config)?.open(net, Some(backend))?;
        client.setup()?;
        let is_announced = arrival.lead.is_some() && client.model().preparation() != Preparation::Nothing;
        let mut maker = is_announced.then(|| client.connect_again()).transpose()?;
        if let Some(maker) = &mut maker {
            maker.setup()?;
        }
        let at_s = arrival.at.secs();
        let notice_s = (at_s - arrival.lead.map_or(0.0, |lead| lead.secs())).max(0.0);
        let input = tacit_cli::bench::seeded_input(client.interface());
        ready.push(ReadyClient { client, maker, input, notice_s, at_s });
    }
    Ok(Some(ready))
}

/// Runs each request at its time after `start`, in a thread of its own; returns the outcomes in
/// order. Setting `stop` ends all connections.
pub fn drive(
    ready: Vec<ReadyClient>,
    start: Instant,
    stop: &AtomicBool,
    done: &AtomicUsize,
) -> anyhow::Result<Vec<ClientReport>> {
    let closers =
        ready.iter().flat_map(|ready| [Some(ready.client.closer()), ready.maker.as_ref().map(Client::closer)]);
    let closers: Vec<Arc<Closer>> = closers.flatten().collect();
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(ready.len());
        for request in ready {
            let builder = thread::Builder::new().name("tacit-request".into());
            let spawned = builder.spawn_scoped(scope, move || request.run(start, stop, done));
            match spawned.context("starting a thread for each request") {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    closers.iter().for_each(|closer| closer.close());
                    return Err(error);
                }
            }
        }
        while threads.iter().any(|thread| !thread.is_finished()) {
            if stop.load(Ordering::Relaxed) {
                closers.iter().for_each(|closer| closer.close());
            }
            thread::sleep(POLL_INTERVAL);
        }
        let results = threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        Ok(results.collect())
    })
}

/// Runs each request after the previous answer.
pub fn drive_in_turn(
    ready: Vec<ReadyClient>,
    start: Instant,
    stop: &AtomicBool,
    done: &AtomicUsize,
) -> anyhow::Result<Vec<ClientReport>> {
    Ok(ready.into_iter().map(|request| request.run(start, stop, done)).collect())
}

impl ReadyClient {
    fn run(self, start: Instant, stop: &AtomicBool, done: &AtomicUsize) -> ClientReport {
        let mut report = ClientReport::default();
        if let Err(error) = self.ask(start, stop, &mut report) {
            report.failure = Some(format!("{error:#}"));
        }
        done.fetch_add(1, Ordering::Relaxed);
        report
    }

    fn ask(self, start: Instant, stop: &AtomicBool, report: &mut ClientReport) -> anyhow::Result<()> {
        let Self { mut client, maker, input, notice_s, at_s } = self;
        let announced = match maker {
            Some(maker) => {
                wait(start, notice_s, stop)?;
                let lead = Duration::from_secs_f64((at_s - notice_s).max(0.0));
                Some(client.announce_over(maker, Some(lead)).context("announcing")?)
            }
            None => None,
        };
        wait(start, at_s, stop)?;
        report.asked_s = start.elapsed().as_secs_f64();
        match announced {
            Some(announced) => client.infer_announced(announced, Units::Normalised, &input)?,
            None => client.infer_in(Units::Normalised, &input)?,
        };
        report.answered_s = start.elapsed().as_secs_f64();
        Ok(client.close()?)
    }
}

/// Waits until `at_s` seconds of the cell have passed.
fn wait(start: Instant, at_s: f64, stop: &AtomicBool) -> anyhow::Result<()> {
    let until = start + Duration::from_secs_f64(at_s);
    loop {
        anyhow::ensure!(!stop.load(Ordering::Relaxed), "the campaign was stopped");
        match until.checked_duration_since(Instant::now()) {
            Some(remaining) if !remaining.is_zero() => thread::sleep(remaining.min(POLL_INTERVAL)),
            _ => return Ok(()),
        }
    }
}
