//! Reloading files while the server runs: access rules, certificates, models, in this order, so
//! that a revocation never waits for a model to be lowered. A faulty part stays as it was and is
//! reported.
use crate::ServeError;
use crate::accept::access::Rules;
use crate::jobs::event::Event;
use crate::models::catalog::{Catalog, Changes};
use crate::models::source::{AskReload, Reloaded, Source, Unusable};
use crate::shared::{ServingTls, Shared};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, interval_at};

/// Most reloads that wait for the running one: further ones would find nothing else.
pub(crate) const MAX_WAITING_RELOADS: usize = 1;

const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(3600);

/// Models that the rules name but that are not on offer may be another server's.
pub(crate) fn read_rules(access: Option<&Path>, catalog: &Catalog) -> Result<Rules, ServeError> {
    let Some(path) = access else { return Ok(Rules::default()) };
    let rules = Rules::read(path)?;
    let offered: Vec<&str> = catalog.offered_models().map(|offered| &*offered.name).collect();
    for name in rules.models().into_iter().filter(|name| !offered.contains(name)) {
        tracing::warn!("access file {}: there is no model `{name}`", path.display());
    }
    Ok(rules)
}

/// Reads the access file again. Returns whether there is one.
pub(crate) fn access(shared: &Shared) -> Result<bool, ServeError> {
    let Some(path) = &shared.config.access else { return Ok(false) };
    let rules = read_rules(Some(path), &shared.catalog())?;
    if rules.have_quotas() && shared.usage.is_none() {
        tracing::warn!("quotas begin anew with each start: no records are kept");
    }
    shared.tell(Event::Access(Arc::new(rules)));
    Ok(true)
}

/// Carries out reloads one after the other, until the server stops.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    mut source: Option<Box<dyn Source>>,
    mut requests: Receiver<AskReload>,
    mut stop: watch::Receiver<bool>,
) {
    let mut looks = interval_at(Instant::now() + EXPIRY_CHECK_INTERVAL, EXPIRY_CHECK_INTERVAL);
    loop {
        let reply = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            _ = looks.tick() => {
                advise(&shared);
                continue;
            }
            reply = requests.recv() => match reply {
                Some(reply) => reply,
                None => return,
            },
        };
        let result = reload(&shared, &mut source).await;
        if let Err(wrong) = &result {
            tracing::error!("{wrong}");
        }
        // The requester may be gone.
        let _ = reply.send(result);
    }
}

fn advise(shared: &Shared) {
    let certificates = shared.tls.borrow().certificates();
    for advice in certificates.into_iter().filter_map(|row| row.advice) {
        tracing::warn!("{advice}; then `tacit reload`");
    }
}

/// Reloads the access rules, the certificates and the models. A part that fails stays as it was.
async fn reload(shared: &Arc<Shared>, source: &mut Option<Box<dyn Source>>) -> Result<Reloaded, String> {
    let mut reloaded = Reloaded::default();
    let mut faults = Vec::new();
    let shared_for_rules = shared.clone();
    match in_thread(move || access(&shared_for_rules)).await {
        Some(Ok(result)) => reloaded.access = result,
        Some(Err(e)) => faults.push(format!("the rules of access stay as they were: {e}")),
        None => faults.push("the rules of access stay as they were: reading them broke down".into()),
    }
    if let Some(mut reader) = source.take() {
        let result = in_thread(move || {
            let identity = reader.identity();
            (reader, identity)
        });
        // A source that panics is lost, and what it has read with it.
        let Some((mut reader, identity)) = result.await else { return Err(broken(faults)) };
        match identity {
            Ok(identity) => {
                shared.tls.send_replace(ServingTls::new(&identity, shared.config.max_control));
                reloaded.certificates = true;
            }
            Err(e) => faults.push(format!("the certificates stay as they were: {e}")),
        }
        let result = in_thread(move || {
            let catalog = reader.catalog();
            (reader, catalog)
        });
        let Some((reader, catalog)) = result.await else { return Err(broken(faults)) };
        *source = Some(reader);
        match offer(shared, catalog).await {
            Ok(changes) => reloaded.models = changes,
            Err(e) => faults.push(format!("the models stay as they were: {e}")),
        }
    }
    if faults.is_empty() { Ok(reloaded) } else { Err(faults.join("; ")) }
}

async fn offer(shared: &Shared, catalog: Result<Catalog, Unusable>) -> Result<Changes, Unusable> {
    let catalog = catalog?;
    if catalog.is_empty() {
        return Err("none would be left, and a server needs at least one".into());
    }
    let changes = shared.ask(|reply| Event::Models { catalog: Box::new(catalog), reply }).await;
    changes.ok_or_else(|| "the server is being stopped".into())
}

fn broken(mut faults: Vec<String>) -> String {
    faults.push(
        "reading certificates or models broke down, which is a bug in tacit; restart the server to read them".into(),
    );
    faults.join("; ")
}

/// Runs slow work in a separate thread; `None` if the thread cannot start or panics.
pub(crate) async fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (reply, result) = oneshot::channel();
    let thread = thread::Builder::new().name("tacit-reload".into());
    let started = thread.spawn(move || drop(reply.send(work())));
    started.ok()?;
    result.await.ok()
}
