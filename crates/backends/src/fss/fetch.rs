//! The client's half as it comes from the dealer, while the client's offline phase runs: that needs what the
//! half begins with alone. So the server, which takes its own half with the client's words, waits for
//! neither, and no half is in memory as a whole.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use tacit_mpc::Role;
use zeroize::Zeroizing;

use super::half::{self, ClientHead, DIGEST, Digesting};
use super::plan::Plan;
use crate::BackendError;
use crate::dealt::audit::Sink;

/// Where material goes, from any thread.
pub(super) type Place<'a> = dyn FnMut(&[u8]) -> Result<(), BackendError> + Send + 'a;

/// Takes a half.
struct Taking<'a> {
    plan: &'a Plan,
    head: Zeroizing<Vec<u8>>,
    heads: Option<SyncSender<ClientHead>>,
    /// Bytes before the digest that are still to come.
    left: usize,
    stated: Vec<u8>,
    digesting: Digesting,
    place: &'a mut Place<'a>,
}

impl<'a> Taking<'a> {
    fn new(plan: &'a Plan, heads: SyncSender<ClientHead>, place: &'a mut Place<'a>) -> Self {
        let (head, [left, _]) = (half::client_head(plan), half::client_bytes(plan));
        let digesting = Digesting::new(&plan.binding(), Role::Client);
        let head = Zeroizing::new(Vec::with_capacity(head));
        Self { plan, head, heads: Some(heads), left, stated: Vec::with_capacity(DIGEST), digesting, place }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        let (content, stated) = bytes.split_at(bytes.len().min(self.left));
        self.left -= content.len();
        if self.stated.len() + stated.len() > DIGEST {
            return Err(half::length("more"));
        }
        self.stated.extend_from_slice(stated);
        self.digesting.update(content);
        let missing = half::client_head(self.plan) - self.head.len();
        self.head.extend_from_slice(&content[..content.len().min(missing)]);
        if self.head.len() == half::client_head(self.plan)
            && let Some(heads) = self.heads.take()
        {
            // Nobody may wait for it any more: whoever is gone says why.
            let _ = heads.send(ClientHead::read(self.plan, &self.head)?);
        }
        (self.place)(content)
    }

    /// The digest of the half, if it is what the half states.
    fn finish(self) -> Result<Digesting, BackendError> {
        if self.left > 0 || self.stated.len() < DIGEST {
            return Err(half::length("fewer"));
        }
        self.digesting.check(&self.stated)?;
        Ok(self.digesting)
    }
}

/// Gives `place` what `fetch` gives, then what `work` makes meanwhile, and a digest.
pub(super) fn beside(
    plan: &Plan,
    fetch: impl FnOnce(&mut Sink<'_>) -> Result<(), BackendError> + Send,
    place: &mut Place<'_>,
    work: impl FnOnce(ClientHead) -> Result<Zeroizing<Vec<u8>>, BackendError>,
) -> Result<(), BackendError> {
    let (gone, (sender, heads)) = (AtomicBool::new(false), sync_channel(1));
    let (fetched, made) = thread::scope(|scope| {
        let fetching = || {
            let mut taking = Taking::new(plan, sender, &mut *place);
            fetch(&mut |bytes| {
                if gone.load(Ordering::Relaxed) { Err(BackendError::Stopped) } else { taking.take(bytes) }
            })?;
            taking.finish()
        };
        let fetching = thread::Builder::new().name("tacit-fetch".into()).spawn_scoped(scope, fetching);
        let fetching = match fetching {
            Ok(fetching) => fetching,
            Err(e) => return (Err(BackendError::Spool { what: format!("starting a thread: {e}") }), None),
        };
        // No head comes from a half that cannot be had: what ended it says why.
        let made = heads.recv().ok().map(work);
        gone.store(matches!(made, Some(Err(_))), Ordering::Relaxed);
        (fetching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), made)
    });
    let (mut digesting, more) = match (fetched, made) {
        (Err(BackendError::Stopped), Some(Err(error))) | (Ok(_), Some(Err(error))) | (Err(error), _) => {
            return Err(error);
        }
        (Ok(digesting), Some(Ok(more))) => (digesting, more),
        (Ok(_), None) => unreachable!("a half that came has a head"),
    };
    digesting.update(&more);
    place(&more)?;
    place(&digesting.finish())
}
