//! What back ends with a dealer need beside a channel: the dealer as a party reaches it, and a place for
//! what a client gets once.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tacit_arith::prg::Seed;
use tacit_graph::Watch;
use zeroize::Zeroizing;

use super::batch::ONE_BY_ONE;
use super::spool::{self, Spool, Spools};
use super::{Secrets, Stop, Uploads};
use crate::BackendError;

/// Names one material to all three, and binds the dealer to it: a number that the dealer never gives out
/// again, and the dealer's [`commitment`] to what it deals from, which nobody else could guess.
pub type Ticket = [u8; 32];

/// What follows the number in a ticket.
pub type Commitment = [u8; 24];

/// The commitment to the seed of a dealing for a plan. The seed is random, so this hides it; other seeds for
/// one commitment take 2^96 tries to find.
#[must_use]
pub fn commitment(number: u64, digest: &[u8; 32], dealing: &Seed) -> Commitment {
    let parts: [&[u8]; 3] = [&number.to_le_bytes(), digest, &dealing.0];
    *super::digest("tacit 2026-11 dealing", &parts).first_chunk().expect("a digest is longer")
}

/// What a [`Claim`]'s nonce is known by before it is shown.
pub type Seal = [u8; 32];

/// What a client shows the dealer: a nonce of its own, which the server has never seen, so that nobody else
/// gets this half, and this client no half that was dealt for anything else; and the plan that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Claim {
    /// Drawn for this material.
    pub nonce: [u8; 32],
    /// The plan's digest.
    pub digest: [u8; 32],
}

impl Claim {
    /// What the server is told of it.
    #[must_use]
    pub fn seal(&self) -> Seal {
        super::digest("tacit 2026-11 dealer claim", &[&self.nonce, &self.digest])
    }
}

/// A model for which a server orders material.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// Id of the back end.
    pub backend: &'static str,
    /// The digest of the plan for one input: what the model is registered by.
    pub digest: [u8; 32],
    /// Inputs that one material is for.
    pub batch: u32,
    /// The public part.
    pub public: &'a [u8],
    /// What else the dealer must know, and a client must not.
    pub part: &'a [u8],
    /// Length of the server's half.
    pub server_bytes: u64,
}

/// What a server gets of a dealing: first the ticket, then its half in pieces.
pub enum Piece<'a> {
    /// For the client.
    Ticket(&'a Ticket),
    /// The next bytes of the server's half.
    Half(&'a [u8]),
}

/// The dealer, as a party reaches it.
pub trait Dealer: Send + Sync {
    /// At the server: has new material dealt, for the client that can show what `seal` was made of. `sink` is
    /// given the ticket, then all of the server's half as it comes.
    ///
    /// # Errors
    /// [`BackendError::Dealer`]; those of `sink`.
    fn deal_into(
        &self,
        order: &Order<'_>,
        seal: &Seal,
        sink: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError>;

    /// At the server: as [`deal_into`](Self::deal_into), for nobody yet. No half of it is given to a client
    /// before it is [bound](Self::bind).
    ///
    /// # Errors
    /// As there; this dealer may deal nothing ahead of time.
    fn deal_ahead(
        &self,
        _: &Order<'_>,
        _: &mut dyn FnMut(Piece<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        Err(BackendError::Dealer { what: "it deals nothing ahead of time".into() })
    }

    /// At the server: says whose a material is that was dealt for nobody yet, once and for good. False if
    /// the dealer has none of this ticket (any more): its half is of no use then.
    ///
    /// # Errors
    /// [`BackendError::Dealer`]: it is another's already, or the dealer cannot be asked.
    fn bind(&self, _: &Ticket, _: &Seal) -> Result<bool, BackendError> {
        Ok(false)
    }

    /// As [`deal_into`](Self::deal_into), with all of the half in memory.
    ///
    /// # Errors
    /// [`BackendError::Dealer`].
    fn deal(&self, order: &Order<'_>, seal: &Seal) -> Result<(Ticket, Zeroizing<Vec<u8>>), BackendError> {
        let mut got = None;
        let mut half = Zeroizing::new(Vec::with_capacity(order.server_bytes as usize));
        self.deal_into(order, seal, &mut |piece| {
            match piece {
                Piece::Ticket(ticket) => got = Some(*ticket),
                Piece::Half(bytes) => half.extend_from_slice(bytes),
            }
            Ok(())
        })?;
        let ticket = got.ok_or(BackendError::Misuse("a dealer gives the ticket first"))?;
        Ok((ticket, half))
    }

    /// At the client: its half, given to `sink` as it comes.
    ///
    /// # Errors
    /// [`BackendError::Dealer`]: there is no such material, or it was not dealt for this claim; those of
    /// `sink`.
    fn fetch_into(
        &self,
        ticket: &Ticket,
        claim: &Claim,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError>;

    /// As [`fetch_into`](Self::fetch_into), with all of the half in memory.
    ///
    /// # Errors
    /// As there.
    fn fetch(&self, ticket: &Ticket, claim: &Claim) -> Result<Zeroizing<Vec<u8>>, BackendError> {
        // What grows leaves its beginning behind in memory.
        let mut pieces: Vec<Zeroizing<Vec<u8>>> = Vec::new();
        self.fetch_into(ticket, claim, &mut |bytes| {
            pieces.push(Zeroizing::new(bytes.to_vec()));
            Ok(())
        })?;
        let mut half = Zeroizing::new(Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum()));
        pieces.iter().for_each(|piece| half.extend_from_slice(piece));
        Ok(half)
    }

    /// At the client: gives a material up, so that the server may be shown what it was dealt from. It must
    /// not be used any more, and no half of it is given out again.
    ///
    /// # Errors
    /// [`BackendError::Dealer`]: there is no such material, or it was not dealt for this claim.
    fn consent(&self, ticket: &Ticket, claim: &Claim) -> Result<(), BackendError>;

    /// At the server: what a material was dealt from, once its client has given it up. It must not be used.
    ///
    /// # Errors
    /// [`BackendError::Dealer`]: there is no such material of this server's, or its client may use it.
    fn open(&self, ticket: &Ticket) -> Result<Seed, BackendError>;

    /// The same dealer for one connection: what waits for it ends with [`BackendError::Stopped`] when `stop`
    /// is raised.
    fn stopped_by(self: Arc<Self>, stop: &Stop) -> Arc<dyn Dealer>;
}

/// Where a client keeps what a model's clients get once. Whatever comes back is checked.
pub trait KeyStore: Send + Sync {
    /// What was kept under `key`, if it is still there.
    fn load(&self, key: [u8; 32]) -> Option<Box<dyn Read>>;
    /// A place for so many bytes under `key`, if there is room.
    fn place(&self, key: [u8; 32], bytes: u64) -> Option<Box<dyn Place>>;
}

/// Takes the bytes that are kept. Nothing is kept of one that is dropped.
pub trait Place: Write {
    /// All bytes are written, and are what they should be.
    fn keep(self: Box<Self>);
}

/// What a connection may use beside its channel.
#[derive(Clone, Default)]
pub struct ConnectionResources {
    /// The dealer that this party has chosen.
    pub dealer: Option<Arc<dyn Dealer>>,
    /// Where it keeps what is the same for every connection.
    pub keep: Option<Arc<dyn KeyStore>>,
    /// Where it puts what is too large for memory until a phase is over; without it, it is in memory.
    pub spools: Option<Arc<dyn Spools>>,
    /// At a client: where it keeps the secrets of what it sends once.
    pub secrets: Option<Arc<dyn Secrets>>,
    /// At a server: where it keeps what this connection's client sends once.
    pub uploads: Option<Arc<dyn Uploads>>,
    /// At a server: whom this connection is with, by the fingerprint of its certificate; zeros where nobody
    /// asks for one.
    pub client: [u8; 32],
    /// Bytes of the phase under way that the peer had already, and that do not move.
    pub spared: Arc<AtomicU64>,
    /// What ends its phases before their time.
    pub stop: Stop,
    /// At a server that computes for long: is told of each part of it as it is done.
    pub watch: Watch,
}

impl ConnectionResources {
    /// The same, with what ends the phases of one connection.
    #[must_use]
    pub fn stopped_by(&self, stop: &Stop) -> Self {
        let dealer = self.dealer.as_ref().map(|dealer| Arc::clone(dealer).stopped_by(stop));
        Self { dealer, spared: Arc::default(), stop: stop.clone(), ..self.clone() }
    }

    /// A place for so many bytes until a phase is over.
    ///
    /// # Errors
    /// [`BackendError::Spool`].
    pub(crate) fn spool(&self, bytes: u64) -> Result<Box<dyn Spool>, BackendError> {
        spool::spool(self.spools.as_deref(), bytes)
    }

    /// The dealer.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] without one.
    pub fn dealer(&self) -> Result<&dyn Dealer, BackendError> {
        let none = || BackendError::Dealer { what: "this party was told of none".into() };
        self.dealer.as_deref().ok_or_else(none)
    }
}

/// The seed of a dealing that nobody has made yet.
///
/// # Errors
/// No randomness from the operating system.
pub fn fresh_seed() -> Result<Seed, BackendError> {
    Seed::from_os().map_err(|e| BackendError::Random(e.to_string()))
}

/// A model as the dealer has it. Dealing is a function of the dealing's seed.
pub trait DealerModel: Send + Sync {
    /// The plan's digest.
    fn digest(&self) -> [u8; 32];

    /// The same for material of `batch` inputs at once, 2 to what the plan runs as one.
    ///
    /// # Errors
    /// [`BackendError::Misuse`]: so many it does not.
    fn batched(&self, _batch: usize) -> Result<Arc<dyn DealerModel>, BackendError> {
        Err(ONE_BY_ONE)
    }

    /// Fingerprints of the keys of random matrices that hide weights from clients: one must never hide two
    /// sets.
    fn masks(&self) -> Vec<[u8; 32]>;

    /// Length of the client's half.
    fn client_bytes(&self) -> u64;

    /// Memory that making the client's half takes, about.
    fn client_memory(&self) -> u64;

    /// The client's half, in pieces.
    ///
    /// # Errors
    /// Those of `sink`.
    fn client_half(
        &self,
        dealing: &Seed,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError>;

    /// Length of the server's half.
    fn server_bytes(&self) -> u64;

    /// The server's half, in pieces.
    ///
    /// # Errors
    /// Those of `sink`.
    fn server_half(
        &self,
        dealing: &Seed,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError>;
}
