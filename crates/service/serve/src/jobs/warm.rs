//! Warm-up: one made-up input for each model whose durations are unknown, run in this process with
//! a client of the server's own. The scheduler then knows the durations before the first client's
//! jobs. Warm-ups run beside the service, one model after the other.
use crate::jobs::estimates;
use crate::jobs::event::Event;
use crate::models::catalog::Offered;
use crate::ops::reload::in_thread;
use crate::ops::state::Learned;
use crate::shared::Shared;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tacit_backends::dealer::{Dealings, InProcessDealer};
use tacit_backends::seam::Dealer;
use tacit_backends::{Backend, BackendError, ConnectionResources, Material, Preparation, Registry, Setup, Sides};
use tacit_measure::usage::{ProcessLimits, Roots};
use tacit_net::{Channel, Phase, mem_pair};
use tacit_sched::JobPhase;
use tokio::sync::watch;

pub(crate) async fn watch(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut catalog = shared.catalog.clone();
    loop {
        // Changes after this are seen in the next round.
        catalog.borrow_and_update();
        let cold = shared.ask(|reply| Event::Cold { reply }).await.unwrap_or_default();
        for offered in cold {
            let Some(backend) = shared.catalog().backend_to_warm_up(offered.backend) else { continue };
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                () = warm_up(&shared, offered, backend) => {}
            }
        }
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            changed = catalog.changed() => if changed.is_err() { return },
        }
    }
}

/// Runs a model before its first client comes, and reports what its phases cost.
async fn warm_up(shared: &Shared, offered: Arc<Offered>, backend: Arc<dyn Backend>) {
    let (threads, max_bytes) = (shared.config.threads, shared.config.job_memory.min(shared.config.resident));
    let (offer, started) = (offered.clone(), Instant::now());
    let run = in_thread(move || {
        let (needed, max_bytes) = (
            memory_needed(&offer),
            ProcessLimits::read(&Roots::default()).available_bytes.unwrap_or(0).min(max_bytes) / 2,
        );
        if needed > max_bytes {
            return Err(format!("it may need {} MiB, and {} may be used for that", needed >> 20, max_bytes >> 20));
        }
        let learned = run(&offer, &backend, threads);
        // This client's keys will not be used again.
        offer.model.free_idle_memory();
        learned
    });
    let (model, backend) = (&offered.name, offered.backend);
    match run.await {
        Some(Ok(learned)) => {
            let seconds = started.elapsed().as_secs_f64();
            tracing::info!(%model, %backend, "warmed up in {seconds:.1} s");
            shared.tell(Event::Warmed(learned));
        }
        Some(Err(why)) => {
            tracing::warn!(%model, %backend, "not warmed up, its first jobs are estimated from counts: {why}")
        }
        None => tracing::error!(%model, %backend, "not warmed up: the run broke down, which is a bug in tacit"),
    }
}

/// Most bytes of memory that both parties and a dealer take together.
fn memory_needed(offered: &Offered) -> u64 {
    let costs = offered.model.costs();
    let phases = [costs.setup, costs.offline, costs.online];
    let totals = phases.iter().map(|p| p.server.peak_memory_bytes.saturating_add(p.client.peak_memory_bytes));
    totals.max().unwrap_or(0).saturating_add(costs.dealing.peak_memory_bytes)
}

/// Resources of client and server. Dealt material comes from a dealer in this process: the input is
/// made up, and no other party gets the material.
fn resources(offered: &Offered, backend: &Arc<dyn Backend>) -> Result<Sides<ConnectionResources>, BackendError> {
    if offered.model.preparation() != Preparation::Dealt {
        return Ok(Sides::default());
    }
    let dealings = Arc::new(Dealings::fresh(Registry::new(vec![Arc::clone(backend)]), 1)?);
    Ok(Sides { client: 1, server: 2 }.map(|party| {
        let dealer = Arc::new(InProcessDealer::new(Arc::clone(&dealings), [party; 32])) as Arc<dyn Dealer>;
        ConnectionResources { dealer: Some(dealer), ..ConnectionResources::default() }
    }))
}

/// Runs one input through all phases. Returns the durations of the server's.
fn run(offered: &Offered, backend: &Arc<dyn Backend>, threads: usize) -> Result<Vec<Learned>, String> {
    let Sides { client: client_aids, server: server_aids } = resources(offered, backend).map_err(|e| e.to_string())?;
    let (mut server_channel, mut client_channel) = mem_pair();
    let (pool, client_pool) = (thread_pool(threads)?, thread_pool(1)?);
    let took = thread::scope(|scope| {
        let client = scope
            .spawn(move || client_pool.install(|| as_client(offered, &**backend, &client_aids, &mut client_channel)));
        let took = pool.install(|| as_server(offered, &server_aids, &mut server_channel));
        // Otherwise the client would wait for a server that has failed.
        drop(server_channel);
        match (took, client.join().map_err(|_| "the client's part panicked".to_owned())?) {
            (Ok(took), Ok(())) => Ok(took),
            // A network error only means that the other party has failed.
            (Err(BackendError::Net(_)), Err(e)) | (Err(e), _) | (Ok(_), Err(e)) => Err(e.to_string()),
        }
    })?;
    let costs = offered.model.costs();
    let phases = [(JobPhase::Pre, costs.offline), (JobPhase::On, costs.online)];
    let learned = phases.into_iter().zip(took).filter_map(|((phase, cost), took)| {
        Some(Learned {
            plan: offered.plan,
            device: estimates::class_name(estimates::LOCAL_DEVICE),
            phase: estimates::phase_name(phase),
            threads: threads as u32,
            seconds: took?.as_secs_f64(),
            memory: cost.server.peak_memory_bytes,
        })
    });
    Ok(learned.collect())
}

fn thread_pool(threads: usize) -> Result<ThreadPool, String> {
    ThreadPoolBuilder::new().num_threads(threads).build().map_err(|e| e.to_string())
}

/// The client's part, with a blank input.
fn as_client(
    offered: &Offered,
    backend: &dyn Backend,
    resources: &ConnectionResources,
    channel: &mut Channel,
) -> Result<(), BackendError> {
    let model = backend.open(offered.model.public_bytes())?;
    let input = model.interface().blank();
    let mut side = Arc::clone(&model).connect(resources)?;
    if model.setup() != Setup::Nothing {
        channel.set_phase(Phase::Setup);
        side.setup(channel)?;
    }
    let mut material = Material::nothing();
    if model.preparation() != Preparation::Nothing {
        channel.set_phase(Phase::Offline);
        material = side.offline(channel)?;
        channel.flush()?;
    }
    channel.set_phase(Phase::Online);
    side.online(channel, material, &input).map(drop)
}

/// The server's part. Returns the durations of its offline and online phases.
fn as_server(
    offered: &Offered,
    resources: &ConnectionResources,
    channel: &mut Channel,
) -> Result<[Option<Duration>; 2], BackendError> {
    let model = &offered.model;
    let mut side = Arc::clone(model).connect(resources)?;
    if model.setup() != Setup::Nothing {
        channel.set_phase(Phase::Setup);
        side.setup(channel)?;
        channel.flush()?;
    }
    let (mut material, mut offline) = (Material::nothing(), None);
    if model.preparation() != Preparation::Nothing {
        channel.set_phase(Phase::Offline);
        let began = Instant::now();
        material = side.offline(channel)?;
        channel.flush()?;
        offline = Some(began.elapsed());
    }
    channel.set_phase(Phase::Online);
    let began = Instant::now();
    side.online(channel, material)?;
    channel.flush()?;
    Ok([offline, Some(began.elapsed())])
}
