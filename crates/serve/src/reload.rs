//! Looking at files again while the server runs: rules of access, certificates, models, in this order, so
//! that nobody who is revoked waits for a model that is being lowered. Each of the three that is wrong stays
//! as it was, and is told.
use crate::ServeError;
use crate::access::Rules;
use crate::catalog::{Catalog, Changes};
use crate::event::Event;
use crate::shared::{Handshakes, Shared};
use crate::source::{AskReload, Reloaded, Source, Unusable};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, interval_at};

/// Reloads that wait for the one that runs: what they would find, one more finds as well.
pub(crate) const WAITING: usize = 1;

/// How often the end of the server's certificates is looked for.
const LOOKS: Duration = Duration::from_secs(3600);

/// The rules of access, if there is a file. Models that it names and nobody offers may be another server's.
pub(crate) fn read_rules(access: Option<&Path>, catalog: &Catalog) -> Result<Rules, ServeError> {
    let Some(path) = access else { return Ok(Rules::default()) };
    let rules = Rules::read(path)?;
    let offered: Vec<&str> = catalog.offers().map(|(name, _)| name).collect();
    for name in rules.models().into_iter().filter(|name| !offered.contains(name)) {
        tracing::warn!("access file {}: there is no model `{name}`", path.display());
    }
    Ok(rules)
}

/// Reads the access file again; whether there is one.
pub(crate) fn access(shared: &Shared) -> Result<bool, ServeError> {
    let Some(path) = &shared.config.access else { return Ok(false) };
    let rules = read_rules(Some(path), &shared.catalog())?;
    if rules.have_quotas() && shared.usage.is_none() {
        tracing::warn!("quotas begin anew with each start: no records are kept");
    }
    // A driver that is gone serves nobody.
    let _ = shared.events.send(Event::Access(Arc::new(rules)));
    Ok(true)
}

/// Answers those who ask for a reload, one after the other, until the server stops.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    mut source: Option<Box<dyn Source>>,
    mut asked: Receiver<AskReload>,
    mut stop: watch::Receiver<bool>,
) {
    let mut looks = interval_at(Instant::now() + LOOKS, LOOKS);
    loop {
        let reply = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            _ = looks.tick() => {
                advise(&shared);
                continue;
            }
            reply = asked.recv() => match reply {
                Some(reply) => reply,
                None => return,
            },
        };
        let told = reload(&shared, &mut source).await;
        if let Err(wrong) = &told {
            tracing::error!("{wrong}");
        }
        // Whoever asked may be gone.
        let _ = reply.send(told);
    }
}

/// Says in the log what is to be done about the certificates that are in use.
fn advise(shared: &Shared) {
    let certificates = shared.tls.borrow().certificates();
    for advice in certificates.into_iter().filter_map(|row| row.advice) {
        tracing::warn!("{advice}; then `tacit reload`");
    }
}

async fn reload(shared: &Arc<Shared>, source: &mut Option<Box<dyn Source>>) -> Result<Reloaded, String> {
    let mut done = Reloaded::default();
    let mut wrong = Vec::new();
    let of_rules = shared.clone();
    match in_thread(move || access(&of_rules)).await {
        Some(Ok(read)) => done.access = read,
        Some(Err(e)) => wrong.push(format!("the rules of access stay as they were: {e}")),
        None => wrong.push("the rules of access stay as they were: reading them broke down".into()),
    }
    if let Some(mut from) = source.take() {
        let read = in_thread(move || {
            let identity = from.identity();
            (from, identity)
        });
        // What breaks down is lost, and what it has read with it.
        let Some((mut from, identity)) = read.await else { return Err(broken(wrong)) };
        match identity {
            Ok(identity) => {
                shared.tls.send_replace(Handshakes::new(&identity, shared.config.max_control));
                done.certificates = true;
            }
            Err(e) => wrong.push(format!("the certificates stay as they were: {e}")),
        }
        let read = in_thread(move || {
            let catalog = from.catalog();
            (from, catalog)
        });
        let Some((from, catalog)) = read.await else { return Err(broken(wrong)) };
        *source = Some(from);
        match offer(shared, catalog).await {
            Ok(changes) => done.models = changes,
            Err(e) => wrong.push(format!("the models stay as they were: {e}")),
        }
    }
    if wrong.is_empty() { Ok(done) } else { Err(wrong.join("; ")) }
}

async fn offer(shared: &Shared, catalog: Result<Catalog, Unusable>) -> Result<Changes, Unusable> {
    let catalog = catalog?;
    if catalog.is_empty() {
        return Err("none would be left, and a server needs at least one".into());
    }
    let changes = shared.ask(|reply| Event::Models { catalog: Box::new(catalog), reply }).await;
    changes.ok_or_else(|| "the server is being stopped".into())
}

fn broken(mut wrong: Vec<String>) -> String {
    wrong.push(
        "reading certificates or models broke down, which is a bug in tacit; restart the server to read them".into(),
    );
    wrong.join("; ")
}

/// Runs in a thread of its own what may take long; `None` if there is none, or it panics.
pub(crate) async fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (reply, done) = oneshot::channel();
    let thread = thread::Builder::new().name("tacit-reload".into());
    let started = thread.spawn(move || drop(reply.send(work())));
    started.ok()?;
    done.await.ok()
}
