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

use crate::seam::{Claim, Dealer, DealerModel, Order, Piece, Seal, Ticket};
use crate::{BackendError, Registry};

/// Who asks: the fingerprint of a certificate.
pub type Party = [u8; 32];

/// Materials whose client half nobody has fetched yet, of one server, at most: the oldest are given up.
const MAX_OPEN: usize = 4096;
/// Models that are registered at a time.
const MAX_MODELS: usize = 256;
/// Random matrices that are remembered, of one server and of all: 96 bytes each, never forgotten.
const MAX_MASKS: [usize; 2] = [1 << 16, 1 << 20];

/// All that a dealer knows.
pub struct Dealings {
    registry: Registry,
    /// Seeds of dealings, by number.
    secret: Prg,
    state: Mutex<State>,
}

struct State {
    next: u64,
    /// By who registered them, and the plan's digest: nobody can take a plan from its owner by being first.
    models: HashMap<(Party, [u8; 32]), Registered>,
    open: HashMap<u64, Open>,
    /// Whose weights each random matrix hides: digests of plans by fingerprints of keys.
    masks: HashMap<[u8; 32], [u8; 32]>,
    /// How many of these each server has registered.
    mask_counts: HashMap<Party, usize>,
}

/// What every later run must know of a random matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hidden {
    /// Fingerprint of its key.
    pub mask: [u8; 32],
    /// Digest of the plan whose weights it hides.
    pub digest: [u8; 32],
    /// Who registered it.
    pub server: Party,
}

impl State {
    fn remember(&mut self, hidden: Hidden) {
        if self.masks.insert(hidden.mask, hidden.digest).is_none() {
            *self.mask_counts.entry(hidden.server).or_default() += 1;
        }
    }

    /// Makes room for one more model: the one that its server has used least of late goes, of the server that
    /// has most.
    fn make_room(&mut self) {
        let mut counts: HashMap<Party, usize> = HashMap::new();
        self.models.keys().for_each(|(server, _)| *counts.entry(*server).or_default() += 1);
        let most = counts.values().copied().max().unwrap_or(0);
        let oldest = self.models.iter().filter(|((server, _), _)| counts[server] == most);
        let oldest = oldest.min_by_key(|(_, known)| known.used).map(|(name, _)| *name);
        self.models.remove(&oldest.expect("there are many"));
    }
}

struct Registered {
    model: Arc<dyn DealerModel>,
    /// Digest of the dealer's part: a server that knows it knows the model.
    part: [u8; 32],
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
        let (models, open) = (HashMap::new(), HashMap::new());
        let state = State { next: first, models, open, masks: HashMap::new(), mask_counts: HashMap::new() };
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
        self.state().models.contains_key(&(server, digest))
    }

    /// What earlier runs have seen ([`register`](Self::register)).
    pub fn remember(&self, hidden: impl IntoIterator<Item = Hidden>) {
        let mut state = self.state();
        hidden.into_iter().for_each(|hidden| state.remember(hidden));
    }

    /// Takes a server's model. `note` is given what every later run must [`remember`](Self::remember); if it
    /// fails, the model is not taken.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if this server has the same plan under other keys, a key hides the weights of
    /// another plan already (both together would show their difference), or as many random matrices are known
    /// as may be; as [`Backend::dealing`](crate::Backend::dealing); those of `note`.
    pub fn register(
        &self,
        server: Party,
        backend: &str,
        (public, part): (&[u8], &[u8]),
        note: impl FnOnce(&[Hidden]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let model = self.registry.get(backend)?.dealing(public, part)?;
        let (digest, part) = (model.digest(), fingerprint(part));
        let hidden: Vec<Hidden> = model.masks().into_iter().map(|mask| Hidden { mask, digest, server }).collect();
        let mut state = self.state();
        if hidden.iter().any(|new| state.masks.get(&new.mask).is_some_and(|known| *known != digest)) {
            return refused(
                "a key of this model hides the weights of another one already, and clients of both would learn \
                 how they differ: lower the model anew",
            );
        }
        let used = state.next;
        let name = (server, digest);
        if state.models.get(&name).is_some_and(|known| known.part != part) {
            return refused("this model is registered already, with other keys");
        }
        let new = hidden.iter().filter(|new| !state.masks.contains_key(&new.mask)).count();
        let known = [state.mask_counts.get(&server).copied().unwrap_or(0), state.masks.len()];
        if new > 0 && known.iter().zip(MAX_MASKS).any(|(known, most)| known + new > most) {
            return refused("it has seen as many layers as it can remember: its operator must start it anew");
        }
        note(&hidden)?;
        if state.models.len() >= MAX_MODELS && !state.models.contains_key(&name) {
            state.make_room();
        }
        state.models.insert(name, Registered { model, part, used });
        hidden.into_iter().for_each(|hidden| state.remember(hidden));
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
        let Some(known) = state.models.get_mut(&(server, digest)) else {
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
    fn deal_into(
        &self,
        order: &Order<'_>,
        seal: &Seal,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let dealings = &self.dealings;
        if !dealings.knows(self.party, order.digest) {
            dealings.register(self.party, order.backend, (order.public, order.part), |_| Ok(()))?;
        }
        let started = dealings.start(self.party, order.digest, *seal)?;
        sink(Piece::Ticket(&started.ticket))?;
        started.server_half(&mut |bytes| sink(Piece::Half(bytes)))
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
    /// A model of one layer: public part and dealer's.
    fn model(seed: u8) -> (Vec<u8>, Vec<u8>) {
        use crate::ring::reference::tests::spec;
        use crate::ring::{FixedPoint, Linear, Node, Op, RingGraph, WeightFacts, public};
        let fixed = FixedPoint { width: 20, frac_bits: 4 };
        let node = |op, inputs| Node { name: "n".into(), op, inputs, shape: vec![3], fixed };
        let facts = WeightFacts { frac_bits: 0, magnitude_bits: 8, norm_bits: 11 };
        let dense = Op::Linear(Linear { out_features: 3, weights: facts });
        let graph = RingGraph::new(spec(vec![node(Op::Input, vec![]), node(dense, vec![0])])).unwrap();
        let options = crate::dealt::Options { rtt_ms: u32::from(seed), ..Default::default() };
        (public::write(("dealt", 1), &(options, [seed; 32]), &graph).unwrap(), vec![seed; 16])
    }

    #[test]
    fn nobody_takes_a_model_from_its_owner() {
        let dealings = Dealings::fresh(Registry::standard(), 1).unwrap();
        let (public, part) = model(7);
        let digest = Registry::standard().get("dealt").unwrap().dealing(&public, &part).unwrap().digest();
        // A client, who has the public part, is a server elsewhere, and faster.
        dealings.register([2; 32], "dealt", (&public, &[9; 16]), |_| Ok(())).unwrap();
        dealings.register([1; 32], "dealt", (&public, &part), |_| Ok(())).unwrap();
        assert!(dealings.knows([1; 32], digest) && dealings.knows([2; 32], digest));
        assert!(dealings.start([1; 32], digest, [0; 32]).is_ok());
        assert!(dealings.register([1; 32], "dealt", (&public, &[8; 16]), |_| Ok(())).is_err(), "other keys");
        // What hid this model hides no other.
        let other = model(6).0;
        assert!(dealings.register([3; 32], "dealt", (&other, &part), |_| Ok(())).is_err());
        // What cannot be written down is not taken.
        let lost = |_: &[Hidden]| Err(BackendError::Dealer { what: "a full disk".into() });
        assert!(dealings.register([3; 32], "dealt", (&other, &[6; 16]), lost).is_err());
        assert!(
            !dealings
                .knows([3; 32], Registry::standard().get("dealt").unwrap().dealing(&other, &[6; 16]).unwrap().digest())
        );
    }

    #[test]
    fn one_server_crowds_out_itself_alone() {
        let dealings = Dealings::fresh(Registry::standard(), 1).unwrap();
        let (public, part) = model(200);
        dealings.register([1; 32], "dealt", (&public, &part), |_| Ok(())).unwrap();
        let digest = *dealings.state().models.keys().next().map(|(_, digest)| digest).unwrap();
        for k in 0..=255u8 {
            let (public, mut part) = model(k);
            part[1..].fill(0x55);
            dealings.register([2; 32], "dealt", (&public, &part), |_| Ok(())).unwrap();
        }
        assert_eq!(dealings.state().models.len(), MAX_MODELS);
        assert!(dealings.knows([1; 32], digest));
        // What it can remember of one server is bounded.
        let hidden = (0..MAX_MASKS[0] as u64).map(|i| {
            let mut mask = [0xab; 32];
            mask[..8].copy_from_slice(&i.to_le_bytes());
            Hidden { mask, digest: [0; 32], server: [4; 32] }
        });
        dealings.remember(hidden);
        let (public, part) = model(99);
        let error = dealings.register([4; 32], "dealt", (&public, &part), |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("remember"), "{error}");
    }
}
