//! Stored material at both parties.
//!
//! A half without its other half is useless, and still takes a place in a quota. Each party's row
//! names the folder of the other party that got the other half. When a client connects, the parties
//! compare what they store for each other's folder, and each destroys the halves that the other has
//! lost. Material of other folders of this client, or from other servers, is left alone.
//!
//! Other processes may use the same folder meanwhile. A half here is lost at the server only if it
//! was ready here *before* the server was asked: the server stores its half first. A half at the
//! server is lost here only if it is neither ready nor being made here *after* the server was
//! asked: the id is reserved here first. A half that another connection has claimed and not yet
//! requested looks lost; the server does not destroy it while such a connection is open.
use crate::ClientError;
use crate::ask::expect_reply;
use crate::wire::{Half, MAX_IDS, Reply, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tacit_ids::{ClientId, FolderId, MaterialId};
use tacit_net::Channel;
use tacit_store::{Binding, Entry, Store};

/// Most ids in a list of all parts: what a client remembers of a list that never ends.
const MAX_LISTED: usize = 1 << 20;

/// Number of halves that were destroyed because the other party had lost theirs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Reconciled {
    /// Halves here that the server had lost.
    pub destroyed_here: usize,
    /// Halves at the server that this folder had lost.
    pub destroyed_there: usize,
}

/// Whether material can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usability {
    /// Both parties have their halves, and the model is on offer.
    Ready,
    /// The model is no longer on offer, or has changed.
    ModelGone,
    /// The server has its half; the other one is in another folder of the client, if it exists.
    Elsewhere,
    /// This folder has its half; the other one is at another server, or its folder is gone.
    OtherServer,
}

impl Usability {
    /// Whether the material can never be used from here but takes a place in the quota.
    #[must_use]
    pub const fn is_orphan(self) -> bool {
        matches!(self, Self::ModelGone | Self::Elsewhere)
    }
}

/// Stored material of this client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredMaterial {
    /// Its name.
    pub id: MaterialId,
    /// Digest of the model's public part.
    pub model: [u8; 32],
    /// Digest of the plan.
    pub plan: [u8; 32],
    /// When it was made, seconds since 1970.
    pub created: u64,
    /// Bytes of the half here, or else of the half at the server.
    pub bytes: u64,
    /// Whether it can be used.
    pub state: Usability,
}

/// This client's folder, and the server's folder that it is used with.
pub(crate) struct Stock {
    store: Arc<Store>,
    client: ClientId,
    /// The server's folder; `None` if the server stores nothing.
    peer: Option<FolderId>,
    settled: Reconciled,
}

impl Stock {
    /// Compares both parties' folders; destroys halves that the other party has lost, and expired
    /// material.
    pub(crate) fn reconcile(
        store: Store,
        client: ClientId,
        expire: Duration,
        channel: &mut Channel,
    ) -> Result<Self, ClientError> {
        let before = store.list_of(client)?;
        let (peer, theirs) = ids_at_server(store.folder(), channel)?;
        let unused = store.unused_ids()?;
        let mut settled = Reconciled::default();
        let ours = before.iter().filter(|entry| Some(entry.peer) == peer).map(|entry| entry.id);
        let (kept, lost): (Vec<_>, Vec<_>) = ours.partition(|id| theirs.contains(id));
        settled.destroyed_here = store.discard(&lost, Some(client))?.len();
        store.mark_wanted(&kept)?;
        store.expire(expire)?;
        let orphans: Vec<MaterialId> = theirs.difference(&unused).copied().collect();
        settled.destroyed_there = discard_at_server(&orphans, Some(store.folder()), channel)?.len();
        Ok(Self { store: Arc::new(store), client, peer, settled })
    }

    pub(crate) fn settled(&self) -> Reconciled {
        self.settled
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub(crate) fn peer(&self) -> Option<FolderId> {
        self.peer
    }

    /// Material that is ready here and has its other half at this server, oldest first.
    pub(crate) fn ready(&self, binding: Binding) -> Result<Vec<Entry>, ClientError> {
        let entries = self.store.list(Some(binding))?;
        Ok(entries.into_iter().filter(|entry| Some(entry.peer) == self.peer).collect())
    }

    /// All of this client's material at either party, oldest first, except what another process
    /// claims or makes at this moment.
    pub(crate) fn list(&self, channel: &mut Channel) -> Result<Vec<StoredMaterial>, ClientError> {
        let ours = self.store.list_of(self.client)?;
        let theirs = halves_at_server(channel)?;
        let mut held = Vec::new();
        for entry in ours {
            let is_at_server = Some(entry.peer) == self.peer;
            let state = match theirs.get(&entry.id) {
                _ if !is_at_server => Usability::OtherServer,
                Some(half) if half.offered => Usability::Ready,
                Some(_) => Usability::ModelGone,
                None => continue,
            };
            let Entry { id, binding, created, bytes, .. } = entry;
            held.push(StoredMaterial { id, model: binding.model, plan: binding.plan, created, bytes, state });
        }
        for half in theirs.into_values().filter(|half| half.folder != self.store.folder()) {
            let state = if half.offered { Usability::Elsewhere } else { Usability::ModelGone };
            let Half { id, model, plan, created, bytes, .. } = half;
            held.push(StoredMaterial { id, model, plan, created, bytes, state });
        }
        held.sort_by_key(|h| h.created);
        Ok(held)
    }
}

/// Destroys this client's material at both parties; returns how many of the ids either party had.
pub(crate) fn discard(stock: Option<&Stock>, ids: &[MaterialId], channel: &mut Channel) -> Result<usize, ClientError> {
    let mut gone = discard_at_server(ids, None, channel)?;
    if let Some(stock) = stock {
        gone.extend(stock.store.discard(ids, Some(stock.client))?);
    }
    Ok(gone.len())
}

/// Destroys the server's halves, in parts; returns the ids that are destroyed. Other ids in an
/// answer are an error.
fn discard_at_server(
    ids: &[MaterialId],
    lost_by: Option<FolderId>,
    channel: &mut Channel,
) -> Result<BTreeSet<MaterialId>, ClientError> {
    let asked: BTreeSet<MaterialId> = ids.iter().copied().collect();
    let mut gone = BTreeSet::new();
    for part in ids.chunks(MAX_IDS) {
        let request = Request::Discard { ids: part.to_vec(), lost_by };
        let name = request.name();
        gone.extend(expect_reply!(channel, request, Reply::Ids(ids) => ids));
        let foreign = gone.difference(&asked).count();
        if foreign > 0 {
            let detail = format!("{foreign} ids to {name} that were not asked for");
            return Err(ClientError::Unexpected { what: "reply", detail });
        }
    }
    Ok(gone)
}

/// The ids that the server stores for a folder of this client, and the server's own folder.
fn ids_at_server(
    folder: FolderId,
    channel: &mut Channel,
) -> Result<(Option<FolderId>, BTreeSet<MaterialId>), ClientError> {
    let mut all = BTreeSet::new();
    loop {
        let request = Request::Reconcile { folder, after: all.last().copied() };
        let name = request.name();
        let (peer, ids) = expect_reply!(channel, request, Reply::Reconciled { folder, ids } => (folder, ids));
        let before = all.len();
        all.extend(&ids);
        if is_last(ids.len(), before, all.len(), name)? {
            return Ok((peer, all));
        }
    }
}

fn halves_at_server(channel: &mut Channel) -> Result<BTreeMap<MaterialId, Half>, ClientError> {
    let mut all = BTreeMap::new();
    loop {
        let request = Request::Halves { after: all.last_key_value().map(|(&id, _)| id) };
        let name = request.name();
        let halves = expect_reply!(channel, request, Reply::Halves(halves) => halves);
        let (before, came) = (all.len(), halves.len());
        all.extend(halves.into_iter().map(|half| (half.id, half)));
        if is_last(came, before, all.len(), name)? {
            return Ok(all);
        }
    }
}

/// Whether a list has ended with this answer of `came` ids to `request`, by the number of known ids
/// `before` and `after` it. A list that repeats itself or grows beyond [`MAX_LISTED`] would never
/// end.
fn is_last(came: usize, before: usize, after: usize, request: &str) -> Result<bool, ClientError> {
    let new = after - before;
    let detail = if came > MAX_IDS || (came == MAX_IDS && new < came) {
        format!("{came} ids to {request}, {new} of them new")
    } else if came == MAX_IDS && after >= MAX_LISTED {
        format!("{after} ids to {request}, and more to come")
    } else {
        return Ok(came < MAX_IDS);
    };
    Err(ClientError::Unexpected { what: "reply", detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_stops_at_limit() {
        let ends = |came, before, after| is_last(came, before, after, Request::Halves { after: None }.name());
        assert!(ends(3, MAX_LISTED, MAX_LISTED + 3).unwrap());
        assert!(!ends(MAX_IDS, 0, MAX_IDS).unwrap());
        // Each part is new, so the list does not repeat itself.
        let mut parts = (1..).map(|part| ends(MAX_IDS, (part - 1) * MAX_IDS, part * MAX_IDS));
        let error = parts.find_map(Result::err).unwrap().to_string();
        assert!(error.contains("1048576 ids to the list of material, and more to come"), "{error}");
    }
}
