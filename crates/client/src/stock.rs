//! Stored material at both parties.
//!
//! A half without its other half is of no use, and takes its place in a quota all the same. Each party's row
//! names the folder of the other that got the other half. When a client connects, the two compare what they
//! have for each other's folder, and each destroys what the other has lost. Nothing else is touched: what
//! lies in other folders of this client, or came from other servers, is none of theirs.
//!
//! Other processes may use the same folder meanwhile. So what the server has lost is judged by what was ready
//! here *before* it was asked (the server's half is there first), and what was lost here by what is ready or
//! being made *after* it was asked (an id is taken here first). What another connection has taken out and not
//! asked to use yet looks lost; the server leaves it while such a connection is open.
use crate::ClientError;
use crate::ask::ask;
use crate::wire::{Half, MAX_IDS, Reply, Request, misplaced};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tacit_ids::{ClientId, FolderId, MaterialId};
use tacit_net::Channel;
use tacit_store::{Binding, Entry, Store};

/// What was found out of step between both parties' folders, and destroyed.
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
    /// The model is no longer on offer as it was.
    ModelGone,
    /// The server's half is there; the other one is in another folder than this, if it still is anywhere.
    Elsewhere,
    /// This folder's half is here; the other one is at another server, or was in a folder that this one no
    /// longer has.
    OtherServer,
}

impl Usability {
    /// Whether it can never be used from here, and takes a place in the quota.
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
    /// Bytes of the half here, or else of the one at the server.
    pub bytes: u64,
    /// Whether it can be used.
    pub state: Usability,
}

/// This client's folder, and the server's that it is used with.
pub(crate) struct Stock {
    store: Arc<Store>,
    client: ClientId,
    /// The server's folder; none where it stores nothing.
    peer: Option<FolderId>,
    settled: Reconciled,
}

impl Stock {
    /// Compares both parties' folders, and destroys what the other has lost, and what expires.
    pub(crate) fn reconciled(
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
        store.still_wanted(&kept)?;
        store.expire(expire)?;
        let orphans: Vec<MaterialId> = theirs.difference(&unused).copied().collect();
        settled.destroyed_there = discard_at_server(&orphans, Some(store.folder()), channel)?.len();
        Ok(Self { store: Arc::new(store), client, peer, settled })
    }

    /// What [`reconciled`](Self::reconciled) destroyed.
    pub(crate) fn settled(&self) -> Reconciled {
        self.settled
    }

    /// The folder.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The server's folder; none where it stores nothing.
    pub(crate) fn peer(&self) -> Option<FolderId> {
        self.peer
    }

    /// What is ready here, with its other half at this server when that was asked last, oldest first.
    pub(crate) fn ready(&self, binding: Binding) -> Result<Vec<Entry>, ClientError> {
        let entries = self.store.list(Some(binding))?;
        Ok(entries.into_iter().filter(|entry| Some(entry.peer) == self.peer).collect())
    }

    /// All of this client's material at either party, oldest first. What another process takes out or makes
    /// at this moment is left out.
    pub(crate) fn list(&self, channel: &mut Channel) -> Result<Vec<StoredMaterial>, ClientError> {
        let ours = self.store.list_of(self.client)?;
        let theirs = halves_at_server(channel)?;
        let mut held = Vec::new();
        for entry in ours {
            let there = theirs.get(&entry.id).filter(|_| Some(entry.peer) == self.peer);
            let state = match there {
                Some(half) if half.offered => Usability::Ready,
                Some(_) => Usability::ModelGone,
                None if Some(entry.peer) == self.peer => continue,
                None => Usability::OtherServer,
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

/// Destroys this client's material at both parties; how many of them either party had.
pub(crate) fn discard(stock: Option<&Stock>, ids: &[MaterialId], channel: &mut Channel) -> Result<usize, ClientError> {
    let mut gone: BTreeSet<MaterialId> = discard_at_server(ids, None, channel)?.into_iter().collect();
    if let Some(stock) = stock {
        gone.extend(stock.store.discard(ids, Some(stock.client))?);
    }
    Ok(gone.len())
}

/// Destroys the server's halves, in parts; the ids that are gone.
fn discard_at_server(
    ids: &[MaterialId],
    lost_by: Option<FolderId>,
    channel: &mut Channel,
) -> Result<Vec<MaterialId>, ClientError> {
    let mut gone = Vec::new();
    for part in ids.chunks(MAX_IDS) {
        let request = Request::Discard { ids: part.to_vec(), lost_by };
        match ask(channel, &request)? {
            Reply::Ids(ids) => gone.extend(ids),
            other => return Err(misplaced(request.name(), &other).into()),
        }
    }
    Ok(gone)
}

/// What the server has for a folder of this client, and in which of its own.
fn ids_at_server(
    folder: FolderId,
    channel: &mut Channel,
) -> Result<(Option<FolderId>, BTreeSet<MaterialId>), ClientError> {
    let mut all = BTreeSet::new();
    loop {
        let request = Request::Reconcile { folder, after: all.last().copied() };
        let (peer, ids) = match ask(channel, &request)? {
            Reply::Reconciled { folder, ids } => (folder, ids),
            other => return Err(misplaced(request.name(), &other).into()),
        };
        let before = all.len();
        all.extend(&ids);
        if is_last(ids.len(), all.len() - before, &request)? {
            return Ok((peer, all));
        }
    }
}

fn halves_at_server(channel: &mut Channel) -> Result<BTreeMap<MaterialId, Half>, ClientError> {
    let mut all = BTreeMap::new();
    loop {
        let request = Request::Halves { after: all.last_key_value().map(|(&id, _)| id) };
        let halves = match ask(channel, &request)? {
            Reply::Halves(halves) => halves,
            other => return Err(misplaced(request.name(), &other).into()),
        };
        let (before, came) = (all.len(), halves.len());
        all.extend(halves.into_iter().map(|half| (half.id, half)));
        if is_last(came, all.len() - before, &request)? {
            return Ok(all);
        }
    }
}

/// Whether a list has ended with this answer. One that repeats itself would have no end.
fn is_last(came: usize, new: usize, request: &Request) -> Result<bool, ClientError> {
    if came > MAX_IDS || (came == MAX_IDS && new < came) {
        let detail = format!("{came} ids to {}, {new} of them new", request.name());
        return Err(ClientError::Unexpected { what: "reply", detail });
    }
    Ok(came < MAX_IDS)
}
