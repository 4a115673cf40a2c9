//! The dealer: makes material for both parties and gives each its half once.
//!
//! A server orders material for a model that it has registered. Until the client has fetched its
//! half, the dealer stores only the number of a dealing: both halves follow from the number and a
//! secret that is drawn when the dealer starts. Numbers never repeat, also over restarts:
//! [`Dealings::new`] takes the first number.
//!
//! [`Dealings`] is the dealer without its network. Its operator knows the masks of every inference,
//! so neither party may run it.

mod budget;
mod in_process;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tacit_arith::prg::{Prg, Seed};

use self::budget::{MemoryBudget, Reservation};
pub use self::in_process::InProcessDealer;
use crate::Registry;
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::{self, Claim, DealerModel, Seal, Ticket};

/// The party of a request: the fingerprint of its certificate.
pub type Party = [u8; 32];

/// Most materials of one server that can be fetched or audited. Beyond that, the oldest burnt
/// material is forgotten, or the oldest other one is given up if none is burnt.
const MAX_OPEN: usize = 4096;
const MAX_MODELS: usize = 256;
/// Most random matrices that are remembered: 96 bytes each, never forgotten.
const MAX_MASKS: usize = 1 << 20;
const MAX_MASKS_OF_SERVER: usize = 1 << 16;
/// Most fetches of one client half. A client may fetch again after a broken connection.
const MAX_FETCHES: u32 = 3;
/// Bytes for making client halves. A larger half is made alone.
const MAX_HALVES: u64 = 1 << 30;
const MAX_HALVES_OF_CLIENT: u64 = 1 << 28;
/// Longest wait of a request for that memory: less than a client waits for an answer.
const MAX_MEMORY_WAIT: Duration = Duration::from_secs(60);

/// The state of a dealer.
pub struct Dealings {
    registry: Registry,
    /// Seeds of dealings, by number.
    secret: Prg,
    state: Mutex<State>,
    budget: MemoryBudget,
}

struct State {
    /// Number of the next material.
    next: u64,
    /// Models by registering server and plan digest, so that registering first takes no plan from its
    /// owner.
    models: HashMap<(Party, [u8; 32]), RegisteredModel>,
    open: HashMap<u64, OpenDealing>,
    /// The plan whose weights each random matrix hides: digests of plans by fingerprints of keys.
    masks: HashMap<[u8; 32], [u8; 32]>,
    mask_counts: HashMap<Party, usize>,
}

/// The record of a random matrix that every later run must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hidden {
    /// Fingerprint of its key.
    pub mask: [u8; 32],
    /// Digest of the plan whose weights it hides.
    pub digest: [u8; 32],
    /// The server that registered the matrix.
    pub server: Party,
}

impl State {
    fn remember(&mut self, hidden: Hidden) {
        if self.masks.insert(hidden.mask, hidden.digest).is_none() {
            *self.mask_counts.entry(hidden.server).or_default() += 1;
        }
    }

    /// Removes the least recently used model of the server with the most models.
    fn evict_model(&mut self) {
        let mut counts: HashMap<Party, usize> = HashMap::new();
        self.models.keys().for_each(|(server, _)| *counts.entry(*server).or_default() += 1);
        let max_count = counts.values().copied().max().unwrap_or(0);
        let oldest = self.models.iter().filter(|((server, _), _)| counts[server] == max_count);
        let oldest = oldest.min_by_key(|(_, registered)| registered.used).map(|(name, _)| *name);
        self.models.remove(&oldest.expect("there are many"));
    }
}

struct RegisteredModel {
    model: Arc<dyn DealerModel>,
    /// Digest of the dealer's part, which only a server with this model knows.
    part: [u8; 32],
    /// Number of the next material when the model was registered or last dealt for.
    used: u64,
}

/// A dealing whose client half may still be fetched or audited.
struct OpenDealing {
    model: Arc<dyn DealerModel>,
    server: Party,
    /// Digest of the ticket's secret.
    secret: [u8; 32],
    /// Seal of the claim of the client that may fetch the half; `None` until [`bind`](Dealings::bind).
    seal: Option<Seal>,
    /// Whether a request fetches the half or waits for memory.
    busy: bool,
    fetches: u32,
    /// The client has its half, or has given it up, so it is not given out again. The entry remains
    /// for a while because the material may be audited.
    burnt: bool,
    /// The client has given the material up for an audit.
    released_for_audit: bool,
}

/// The permission to make a client's half. While it exists, it holds memory and blocks other
/// fetches with the same ticket.
pub struct Fetching<'a> {
    model: Arc<dyn DealerModel>,
    seed: Seed,
    _guards: (Reservation<'a>, Busy<'a>),
}

impl Fetching<'_> {
    /// Length of the half, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.model.client_bytes()
    }

    /// Makes the half and gives it to `sink` in pieces.
    ///
    /// # Errors
    /// Errors of `sink`.
    pub fn half(&self, sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>) -> Result<(), BackendError> {
        self.model.client_half(&self.seed, sink)
    }
}

/// Marks the request that fetches with a ticket, until it is dropped.
struct Busy<'a> {
    dealings: &'a Dealings,
    number: u64,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.dealings.state().open.get_mut(&self.number) {
            open.busy = false;
        }
    }
}

/// A dealing whose server half is still to be sent.
pub struct Started {
    /// The material's number.
    pub number: u64,
    /// The ticket, for the client.
    pub ticket: Ticket,
    model: Arc<dyn DealerModel>,
    seed: Seed,
}

impl Started {
    /// Length of the server's half, in bytes.
    #[must_use]
    pub fn server_bytes(&self) -> u64 {
        self.model.server_bytes()
    }

    /// Makes the server's half, the same each time, and gives it to `sink` in pieces.
    ///
    /// # Errors
    /// Errors of `sink`.
    pub fn server_half(&self, sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>) -> Result<(), BackendError> {
        self.model.server_half(&self.seed, sink)
    }
}

fn refuse<T>(what: impl Into<String>) -> Result<T, BackendError> {
    Err(BackendError::Dealer { what: what.into() })
}

/// The digest under which a ticket's secret or a dealer's part is stored.
fn fingerprint(secret: &[u8]) -> [u8; 32] {
    seam::digest("tacit 2026-11 dealer ticket", &[secret])
}

const NO_MATERIAL: &str = "there is no such material: it was fetched before, given up, or the dealer was restarted";

fn find_open<'a>(state: &'a mut State, ticket: &Ticket) -> Result<(u64, &'a mut OpenDealing), BackendError> {
    let (number, secret) = ticket.split_first_chunk().expect("a ticket has more than eight bytes");
    let number = u64::from_le_bytes(*number);
    match state.open.get_mut(&number).filter(|open| open.secret == fingerprint(secret)) {
        Some(open) => Ok((number, open)),
        None => refuse(NO_MATERIAL),
    }
}

fn check_claim(open: &OpenDealing, client: Party, claim: &Claim) -> Result<(), BackendError> {
    if open.seal != Some(claim.seal()) || open.model.digest() != claim.digest {
        return refuse("it was not dealt for this client's claim");
    }
    if open.server == client {
        return refuse("both halves of a material never go to one certificate");
    }
    Ok(())
}

impl Dealings {
    /// Creates a dealer whose first material has the number `first`, above all numbers ever given
    /// out.
    #[must_use]
    pub fn new(registry: Registry, secret: Prg, first: u64) -> Self {
        let (models, open) = (HashMap::new(), HashMap::new());
        let state = State { next: first, models, open, masks: HashMap::new(), mask_counts: HashMap::new() };
        let budget = MemoryBudget::new(MAX_HALVES, MAX_HALVES_OF_CLIENT, MAX_MEMORY_WAIT);
        Self { registry, secret, state: Mutex::new(state), budget }
    }

    /// As [`new`](Self::new), with a fresh random secret.
    ///
    /// # Errors
    /// [`BackendError::Random`] if the operating system gives no random bytes.
    pub fn fresh(registry: Registry, first: u64) -> Result<Self, BackendError> {
        let secret = seam::randomness()?;
        Ok(Self::new(registry, secret, first))
    }

    /// Locks the state. A poisoned lock is safe to use: no operation under it leaves the state half
    /// changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `server` has registered the model.
    #[must_use]
    pub fn knows(&self, server: Party, digest: [u8; 32]) -> bool {
        self.state().models.contains_key(&(server, digest))
    }

    /// Restores the records of earlier runs ([`register`](Self::register)).
    pub fn remember(&self, hidden: impl IntoIterator<Item = Hidden>) {
        let mut state = self.state();
        hidden.into_iter().for_each(|hidden| state.remember(hidden));
    }

    /// Registers a server's model. `note` gets the records that every later run must
    /// [`remember`](Self::remember). If `note` fails, the model is not registered.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if this server has registered the plan with other keys; if a key
    /// already hides the weights of another plan (both together would show their difference); or if
    /// too many random matrices are known. As
    /// [`Backend::open_dealer`](tacit_backend_api::Backend::open_dealer); errors of `note`.
    pub fn register(
        &self,
        server: Party,
        backend: &str,
        public: &[u8],
        part: &[u8],
        note: impl FnOnce(&[Hidden]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let model = self.registry.get(backend)?.open_dealer(public, part)?;
        let (digest, part) = (model.digest(), fingerprint(part));
        let hidden: Vec<Hidden> = model.masks().into_iter().map(|mask| Hidden { mask, digest, server }).collect();
        let mut state = self.state();
        if hidden.iter().any(|record| state.masks.get(&record.mask).is_some_and(|plan| *plan != digest)) {
            return refuse(
                "a key of this model hides the weights of another one already, and clients of both would learn \
                 how they differ: lower the model anew",
            );
        }
        let used = state.next;
        let name = (server, digest);
        if state.models.get(&name).is_some_and(|registered| registered.part != part) {
            return refuse("this model is registered already, with other keys");
        }
        let new_masks = hidden.iter().filter(|record| !state.masks.contains_key(&record.mask)).count();
        let server_masks = state.mask_counts.get(&server).copied().unwrap_or(0);
        let is_full = state.masks.len() + new_masks > MAX_MASKS || server_masks + new_masks > MAX_MASKS_OF_SERVER;
        if new_masks > 0 && is_full {
            return refuse("it has seen as many layers as it can remember: its operator must start it anew");
        }
        note(&hidden)?;
        if state.models.len() >= MAX_MODELS && !state.models.contains_key(&name) {
            state.evict_model();
        }
        state.models.insert(name, RegisteredModel { model, part, used });
        hidden.into_iter().for_each(|hidden| state.remember(hidden));
        Ok(())
    }

    /// Starts a dealing of material for `batch` inputs to a model of `server`, for the client that
    /// can show the claim of `seal`. Without a seal, [`bind`](Self::bind) names the client later.
    /// If there are too many unfetched materials, the oldest is given up.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if `server` has not registered the model; [`BackendError::Misuse`]
    /// if the back end does not run `batch` inputs as one.
    pub fn start(
        &self,
        server: Party,
        digest: [u8; 32],
        batch: u32,
        seal: Option<Seal>,
    ) -> Result<Started, BackendError> {
        let mut state = self.state();
        let number = state.next;
        let Some(registered) = state.models.get_mut(&(server, digest)) else {
            return refuse("register the model first");
        };
        registered.used = number;
        let model = match batch {
            1 => Arc::clone(&registered.model),
            batch => registered.model.batched(batch as usize)?,
        };
        let open = state.open.iter().filter(|(_, open)| open.server == server);
        let open: Vec<(bool, u64)> = open.map(|(number, open)| (!open.burnt, *number)).collect();
        if open.len() >= MAX_OPEN {
            // Its client did not fetch it during thousands of later dealings, so it is gone.
            let (_, oldest) = open.iter().min().expect("there are many");
            state.open.remove(oldest);
        }
        state.next += 1;
        let seed = self.secret.fork(number).fork(0).seed().clone();
        let commitment = seam::commitment(number, &model.digest(), &seed);
        let mut ticket = [0; size_of::<Ticket>()];
        ticket[..8].copy_from_slice(&number.to_le_bytes());
        ticket[8..].copy_from_slice(&commitment);
        let (secret, open_model) = (fingerprint(&commitment), Arc::clone(&model));
        let (busy, fetches, burnt, released_for_audit) = (false, 0, false, false);
        let open = OpenDealing { model: open_model, server, secret, seal, busy, fetches, burnt, released_for_audit };
        state.open.insert(number, open);
        Ok(Started { number, ticket, model, seed })
    }

    /// Binds material that `server` had dealt ahead to the claim of `seal`, for good. Repeated
    /// calls must have the same seal. Returns false if there is no material of this ticket, or if
    /// another server ordered it.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if it is bound to another claim.
    pub fn bind(&self, server: Party, ticket: &Ticket, seal: Seal) -> Result<bool, BackendError> {
        let mut state = self.state();
        let Ok((_, open)) = find_open(&mut state, ticket) else { return Ok(false) };
        if open.server != server {
            return Ok(false);
        }
        match *open.seal.get_or_insert(seal) == seal {
            true => Ok(true),
            false => refuse("this material was dealt for another claim, or is bound to one already"),
        }
    }

    /// Allows the client's half to be made, for the claim that it was dealt for. One request at a
    /// time may make it, at most three times and not after [`burn_received`](Self::burn_received).
    /// A further fetch burns the material. Waits up to a minute for memory that others use.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if the ticket is unknown or no longer valid, the claim is another
    /// one, the server itself asks, another request fetches the same half, or other halves use the
    /// memory.
    pub fn fetch(&self, client: Party, ticket: &Ticket, claim: &Claim) -> Result<Fetching<'_>, BackendError> {
        let (number, model, busy) = self.claim_half(client, ticket, claim)?;
        // Other requests can run while this half is made.
        let Some(reservation) = self.budget.reserve(client, model.client_memory()) else {
            return refuse("it deals for too many clients at once: come again");
        };
        if let Some(open) = self.state().open.get_mut(&number) {
            open.fetches += 1;
        }
        let seed = self.secret.fork(number).fork(0).seed().clone();
        Ok(Fetching { model, seed, _guards: (reservation, busy) })
    }

    /// Returns number and model of a ticket's material, and blocks other fetches of it.
    fn claim_half(
        &self,
        client: Party,
        ticket: &Ticket,
        claim: &Claim,
    ) -> Result<(u64, Arc<dyn DealerModel>, Busy<'_>), BackendError> {
        let mut state = self.state();
        let (number, open) = find_open(&mut state, ticket)?;
        if open.burnt {
            return refuse(NO_MATERIAL);
        }
        check_claim(open, client, claim)?;
        if open.busy {
            return refuse("another request fetches this half: come again");
        }
        if open.fetches >= MAX_FETCHES {
            state.open.remove(&number);
            return refuse(format!("this half was fetched {MAX_FETCHES} times, and nobody has taken it: it is burnt"));
        }
        open.busy = true;
        Ok((number, Arc::clone(&open.model), Busy { dealings: self, number }))
    }

    /// Burns a material whose half the client has received.
    pub fn burn_received(&self, ticket: &Ticket) {
        if let Ok((_, open)) = find_open(&mut self.state(), ticket) {
            open.burnt = true;
        }
    }

    /// Burns a material that its client gives up for an audit, so that the server may see its seed.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if the ticket is unknown or no longer valid, the claim is another
    /// one, or the server itself asks.
    pub fn consent(&self, client: Party, ticket: &Ticket, claim: &Claim) -> Result<(), BackendError> {
        let mut state = self.state();
        let (_, open) = find_open(&mut state, ticket)?;
        check_claim(open, client, claim)?;
        (open.burnt, open.released_for_audit) = (true, true);
        Ok(())
    }

    /// Returns the seed of a given-up material to the server that ordered it. Repeated calls
    /// succeed, in case an answer was lost, until the entry is removed for others.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if this server has no such material, or the client may still use
    /// it.
    pub fn reveal_seed(&self, server: Party, ticket: &Ticket) -> Result<Seed, BackendError> {
        let mut state = self.state();
        let (number, open) = find_open(&mut state, ticket)?;
        if open.server != server {
            return refuse(NO_MATERIAL);
        }
        if !open.released_for_audit {
            return refuse("its client has not given this material up: it would show the client's input");
        }
        Ok(self.secret.fork(number).fork(0).seed().clone())
    }

    /// Removes material whose server half was not delivered, so that it is useless.
    pub fn remove_undelivered(&self, server: Party, number: u64) {
        let mut state = self.state();
        if state.open.get(&number).is_some_and(|open| open.server == server) {
            state.open.remove(&number);
        }
    }

    /// Number of the next material.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.state().next
    }
}

#[cfg(test)]
mod tests;
