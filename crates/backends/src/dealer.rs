//! The dealer: makes material for both parties and gives each its half, once.
//!
//! A server orders material for a model that it has registered; the dealer keeps nothing of a dealing but
//! its number until the client has fetched its half: both halves follow from the number and a secret that is
//! drawn when the dealer starts. Numbers never repeat, also over restarts ([`Dealings::new`] is told where
//! to begin).
//!
//! [`Dealings`] is the dealer without its network. Whoever runs it knows the masks of every inference:
//! neither party may.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tacit_arith::prg::{Prg, Seed};
use zeroize::Zeroizing;

use crate::seam::{Claim, Dealer, DealerModel, Order, Seal, Ticket};
use crate::{BackendError, Registry};

/// Who asks: the fingerprint of a certificate.
pub type Party = [u8; 32];

/// Materials whose client half nobody has fetched yet, of one server, at most: the oldest are given up.
const MAX_OPEN: usize = 4096;
/// Models that are registered at a time.
const MAX_MODELS: usize = 256;

/// All that a dealer knows.
pub struct Dealings {
    registry: Registry,
    /// Seeds of dealings, by number.
    secret: Prg,
    state: Mutex<State>,
}

struct State {
    next: u64,
    models: HashMap<[u8; 32], Registered>,
    open: HashMap<u64, Open>,
    /// Whose weights each random matrix hides: digests of plans by fingerprints of keys.
    masks: HashMap<[u8; 32], [u8; 32]>,
}

/// A random matrix's fingerprint, and the digest of the plan whose weights it hides.
pub type Hidden = ([u8; 32], [u8; 32]);

struct Registered {
    model: Arc<dyn DealerModel>,
    /// Digest of the dealer's part: a server that knows it knows the model.
    part: [u8; 32],
    server: Party,
    used: u64,
}

/// A dealing whose client half was not fetched.
struct Open {
    model: Arc<dyn DealerModel>,
    server: Party,
    /// Digest of the ticket's secret.
    secret: [u8; 32],
    /// Whom it is for.
    seal: Seal,
}

/// A dealing under way: the server's half is still to be sent.
pub struct Started {
    /// The material's number.
    pub number: u64,
    /// For the client.
    pub ticket: Ticket,
    model: Arc<dyn DealerModel>,
    seed: Seed,
}

impl Started {
    /// Length of the server's half.
    #[must_use]
    pub fn server_bytes(&self) -> u64 {
        self.model.server_bytes()
    }

    /// The server's half, in pieces. The same each time.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn server_half(&self, sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>) -> Result<(), BackendError> {
        self.model.server_half(&self.seed, sink)
    }
}

fn refused<T>(what: impl Into<String>) -> Result<T, BackendError> {
    Err(BackendError::Dealer { what: what.into() })
}

fn fingerprint(secret: &[u8]) -> [u8; 32] {
    crate::seam::digest("tacit 2026-11 dealer ticket", &[secret])
}

impl Dealings {
    /// A dealer whose first material has the number `first`: above all that were ever given out.
    #[must_use]
    pub fn new(registry: Registry, secret: Prg, first: u64) -> Self {
        let state = State { next: first, models: HashMap::new(), open: HashMap::new(), masks: HashMap::new() };
        Self { registry, secret, state: Mutex::new(state) }
    }

    /// As [`new`](Self::new), with a secret that nobody had before.
    ///
    /// # Errors
    /// No randomness from the operating system.
    pub fn fresh(registry: Registry, first: u64) -> Result<Self, BackendError> {
        let secret = Prg::from_os().map_err(|e| BackendError::Random(e.to_string()))?;
        Ok(Self::new(registry, secret, first))
    }

    /// Nothing that happens under the lock leaves the state half changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `server` has registered the model.
    #[must_use]
    pub fn knows(&self, server: Party, digest: [u8; 32]) -> bool {
        self.state().models.get(&digest).is_some_and(|known| known.server == server)
    }

    /// What earlier runs have seen ([`register`](Self::register)).
    pub fn remember(&self, hidden: impl IntoIterator<Item = Hidden>) {
        self.state().masks.extend(hidden);
    }

    /// Takes a server's model. `note` is given what every later run must [`remember`](Self::remember); if it
    /// fails, the model is not taken.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if another server has registered the same plan, this one has other keys under
    /// it, or a key hides the weights of another plan already (both together would show their difference); as
    /// [`Backend::dealing`](crate::Backend::dealing); those of `note`.
    pub fn register(
        &self,
        server: Party,
        backend: &str,
        (public, part): (&[u8], &[u8]),
        note: impl FnOnce(&[Hidden]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let model = self.registry.get(backend)?.dealing(public, part)?;
        let (digest, part) = (model.digest(), fingerprint(part));
        let hidden: Vec<Hidden> = model.masks().into_iter().map(|mask| (mask, digest)).collect();
        let mut state = self.state();
        if hidden.iter().any(|(mask, _)| state.masks.get(mask).is_some_and(|known| *known != digest)) {
            return refused(
                "a key of this model hides the weights of another one already, and clients of both would learn \
                 how they differ: lower the model anew",
            );
        }
        let used = state.next;
        if let Some(known) = state.models.get(&digest)
            && (known.server != server || known.part != part)
        {
            return refused("this model is registered already, by another server or with other keys");
        }
        if state.models.len() >= MAX_MODELS && !state.models.contains_key(&digest) {
            let oldest = state.models.iter().min_by_key(|(_, known)| known.used).map(|(digest, _)| *digest);
            state.models.remove(&oldest.expect("there are many"));
        }
        note(&hidden)?;
        state.models.insert(digest, Registered { model, part, server, used });
        state.masks.extend(hidden);
        Ok(())
    }

    /// Starts a dealing for a model of `server`'s, for whoever can show what `seal` was made of. Of too many
    /// materials that no client has fetched its half of, the oldest is given up.
    ///
    /// # Errors
    /// [`BackendError::Dealer`]: it has not registered the model.
    pub fn start(&self, server: Party, digest: [u8; 32], seal: Seal) -> Result<Started, BackendError> {
        let mut state = self.state();
        let number = state.next;
        let Some(known) = state.models.get_mut(&digest).filter(|known| known.server == server) else {
            return refused("register the model first");
        };
        known.used = number;
        let model = Arc::clone(&known.model);
        let open = state.open.iter().filter(|(_, open)| open.server == server).map(|(number, _)| *number);
        let open: Vec<u64> = open.collect();
        if open.len() >= MAX_OPEN {
            // Nobody has come for it for thousands of materials: its client is gone.
            let oldest = open.iter().min().expect("there are many");
            state.open.remove(oldest);
        }
        state.next += 1;
        let dealing = self.secret.fork(number);
        let (seed, secret) = (dealing.fork(0).seed().clone(), dealing.fork(1).seed().clone());
        let mut ticket = [0; size_of::<Ticket>()];
        ticket[..8].copy_from_slice(&number.to_le_bytes());
        ticket[8..].copy_from_slice(&secret.0);
        state.open.insert(number, Open { model: Arc::clone(&model), server, secret: fingerprint(&secret.0), seal });
        Ok(Started { number, ticket, model, seed })
    }

    /// The client's half of a material, for the claim that it was dealt for; not again once it is
    /// [`taken`](Self::taken).
    ///
    /// # Errors
    /// [`BackendError::Dealer`]: there is no such ticket (any more), the claim is another one, or the server
    /// itself asks.
    pub fn fetch(&self, client: Party, ticket: &Ticket, claim: &Claim) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        let (number, secret) = ticket.split_first_chunk().expect("a ticket has more than eight bytes");
        let number = u64::from_le_bytes(*number);
        let state = self.state();
        let Some(open) = state.open.get(&number).filter(|open| open.secret == fingerprint(secret)) else {
            return refused("there is no such material: it was fetched before, given up, or the dealer was restarted");
        };
        if open.seal != claim.seal() || open.model.digest() != claim.digest {
            return refused("it was not dealt for this client's claim");
        }
        if open.server == client {
            return refused("both halves of a material never go to one certificate");
        }
        let model = Arc::clone(&open.model);
        // Others need not wait while it is made.
        drop(state);
        model.client_half(self.secret.fork(number).fork(0).seed())
    }

    /// The client has its half: burns it.
    pub fn taken(&self, ticket: &Ticket) {
        let (number, secret) = ticket.split_first_chunk().expect("a ticket has more than eight bytes");
        let number = u64::from_le_bytes(*number);
        let mut state = self.state();
        if state.open.get(&number).is_some_and(|open| open.secret == fingerprint(secret)) {
            state.open.remove(&number);
        }
    }

    /// Material of which the server did not get its half: nobody can use it.
    pub fn give_up(&self, server: Party, number: u64) {
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

/// A dealer in the process of a party: for tests and benchmarks, where nothing is secret from anybody.
pub struct Nearby {
    dealings: Arc<Dealings>,
    party: Party,
}

impl Nearby {
    /// The same dealer as `party` reaches it.
    #[must_use]
    pub fn new(dealings: Arc<Dealings>, party: Party) -> Self {
        Self { dealings, party }
    }
}

impl Dealer for Nearby {
    fn deal(&self, order: &Order<'_>, seal: &Seal) -> Result<(Ticket, Zeroizing<Vec<u8>>), BackendError> {
        let dealings = &self.dealings;
        if !dealings.knows(self.party, order.digest) {
            dealings.register(self.party, order.backend, (order.public, order.part), |_| Ok(()))?;
        }
        let started = dealings.start(self.party, order.digest, *seal)?;
        let mut half = Zeroizing::new(Vec::with_capacity(order.server_bytes as usize));
        started.server_half(&mut |bytes| {
            half.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok((started.ticket, half))
    }

    fn fetch(&self, ticket: &Ticket, claim: &Claim) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        let half = self.dealings.fetch(self.party, ticket, claim)?;
        self.dealings.taken(ticket);
        Ok(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_dealt_for_strangers() {
        let dealings = Dealings::fresh(Registry::standard(), 5).unwrap();
        assert!(dealings.start([1; 32], [9; 32], [0; 32]).is_err(), "not registered");
        assert!(dealings.register([1; 32], "cheetah", (&[], &[]), |_| Ok(())).is_err(), "nobody deals for cheetah");
        assert!(dealings.register([1; 32], "dealt", (&[1, 2, 3], &[]), |_| Ok(())).is_err());
        assert!(dealings.fetch([2; 32], &[0; 24], &Claim { nonce: [1; 32], digest: [9; 32] }).is_err());
        dealings.taken(&[0; 24]);
        dealings.give_up([1; 32], 5);
        assert_eq!(dealings.next(), 5, "a refused dealing takes no number");
    }
}
