//! Access to a dealer, and a store for data that a client gets only once.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tacit_arith::prg::Seed;
use tacit_graph::Watch;
use zeroize::Zeroizing;

use super::batch::ONE_BY_ONE;
use super::spool::{self, Spool, Spools};
use super::{Secrets, Stop, Uploads};
use crate::{BackendError, Result};

/// Names one dealt material to client, server and dealer, and binds the dealer: a number that the dealer
/// never reuses and the [`commitment`] to the dealing's seed, which no other party can guess.
pub type Ticket = [u8; 32];

/// The part of a ticket after the number.
pub type Commitment = [u8; 24];

/// Commits to the seed of a dealing for a plan. The seed is random, so the commitment hides it;
/// finding another seed for one commitment takes 2^96 tries.
#[must_use]
pub fn commitment(number: u64, digest: &[u8; 32], dealing: &Seed) -> Commitment {
    let parts: [&[u8]; 3] = [&number.to_le_bytes(), digest, &dealing.0];
    *super::digest("tacit 2026-11 dealing", &parts).first_chunk().expect("a digest is longer")
}

/// The digest of a [`Claim`], by which the server names the claim before the client shows it.
pub type Seal = [u8; 32];

/// A client's proof to the dealer when it fetches its half. The nonce, which the server has never seen, keeps
/// others from this half, and binds this client to material dealt for this claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Claim {
    /// Random, drawn for this material alone.
    pub nonce: [u8; 32],
    /// The plan's digest.
    pub digest: [u8; 32],
}

impl Claim {
    /// The seal that the server gets.
    #[must_use]
    pub fn seal(&self) -> Seal {
        super::digest("tacit 2026-11 dealer claim", &[&self.nonce, &self.digest])
    }
}

/// A server's order of material for a model.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// Id of the back end.
    pub backend: &'static str,
    /// Digest of the plan for one input, under which the model is registered.
    pub digest: [u8; 32],
    /// Inputs of one material.
    pub batch: u32,
    /// The public part.
    pub public: &'a [u8],
    /// Data for the dealer beyond the public part, secret from clients.
    pub part: &'a [u8],
    /// Length of the server's half, in bytes.
    pub server_bytes: u64,
}

/// A piece of a dealing for the server: first the ticket, then the server's half in pieces.
pub enum Piece<'a> {
    /// The ticket, which the server passes to the client.
    Ticket(&'a Ticket),
    /// The next bytes of the server's half.
    Half(&'a [u8]),
}

/// A party's access to the dealer.
pub trait Dealer: Send + Sync {
    /// At the server: orders new material for the client that can show the claim of `seal`. `sink`
    /// gets the ticket, then the server's half in pieces.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if the dealer fails or refuses; errors of `sink`.
    fn deal_into(&self, order: &Order<'_>, seal: &Seal, sink: &mut dyn FnMut(Piece<'_>) -> Result<()>) -> Result<()>;

    /// At the server: as [`deal_into`](Self::deal_into), for no client yet. The dealer gives out no client
    /// half before the server [binds](Self::bind) it.
    ///
    /// # Errors
    /// As [`deal_into`](Self::deal_into); [`BackendError::Dealer`] if the dealer deals nothing ahead.
    fn deal_ahead(&self, _: &Order<'_>, _: &mut dyn FnMut(Piece<'_>) -> Result<()>) -> Result<()> {
        Err(BackendError::Dealer { what: "it deals nothing ahead of time".into() })
    }

    /// At the server: names the client of material that was dealt ahead, for good. False if the dealer no
    /// longer has this material; the server's half is useless then.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if it is bound to another client, or the dealer cannot be reached.
    fn bind(&self, _: &Ticket, _: &Seal) -> Result<bool> {
        Ok(false)
    }

    /// As [`deal_into`](Self::deal_into), with the whole half in memory.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if the dealer fails or refuses.
    fn deal(&self, order: &Order<'_>, seal: &Seal) -> Result<(Ticket, Zeroizing<Vec<u8>>)> {
        let mut received = None;
        let mut half = Zeroizing::new(Vec::with_capacity(order.server_bytes as usize));
        self.deal_into(order, seal, &mut |piece| {
            match piece {
                Piece::Ticket(ticket) => received = Some(*ticket),
                Piece::Half(bytes) => half.extend_from_slice(bytes),
            }
            Ok(())
        })?;
        let ticket = received.ok_or(BackendError::Misuse("a dealer gives the ticket first"))?;
        Ok((ticket, half))
    }

    /// At the client: fetches the client's half and gives it to `sink` in pieces.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if there is no such material or it was dealt for another claim;
    /// errors of `sink`.
    fn fetch_into(&self, ticket: &Ticket, claim: &Claim, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// As [`fetch_into`](Self::fetch_into), with the whole half in memory.
    ///
    /// # Errors
    /// As [`fetch_into`](Self::fetch_into).
    fn fetch(&self, ticket: &Ticket, claim: &Claim) -> Result<Zeroizing<Vec<u8>>> {
        // A growing vector would leave unwiped copies in memory when it reallocates.
        let mut pieces: Vec<Zeroizing<Vec<u8>>> = Vec::new();
        self.fetch_into(ticket, claim, &mut |bytes| {
            pieces.push(Zeroizing::new(bytes.to_vec()));
            Ok(())
        })?;
        let mut half = Zeroizing::new(Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum()));
        pieces.iter().for_each(|piece| half.extend_from_slice(piece));
        Ok(half)
    }

    /// At the client: gives up material, so that the dealer may show the server its seed. The client must not
    /// use it afterwards, and the dealer gives out no half of it.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if there is no such material or it was dealt for another claim.
    fn consent(&self, ticket: &Ticket, claim: &Claim) -> Result<()>;

    /// At the server: returns the seed of burnt material that its client gave up.
    ///
    /// # Errors
    /// [`BackendError::Dealer`] if this server has no such material or the client may still use it.
    fn open(&self, ticket: &Ticket) -> Result<Seed>;

    /// The same dealer for one connection. Calls that wait for the dealer end with [`BackendError::Stopped`]
    /// once `stop` is raised.
    fn stopped_by(self: Arc<Self>, stop: &Stop) -> Arc<dyn Dealer>;
}

/// A client's store for data that a model's clients get only once. The caller checks loaded data.
pub trait KeyStore: Send + Sync {
    /// Opens the data stored under `key`, if there is any.
    fn load(&self, key: [u8; 32]) -> Option<Box<dyn Read>>;
    /// Opens a place for `bytes` bytes under `key`, if there is room.
    fn place(&self, key: [u8; 32], bytes: u64) -> Option<Box<dyn Place>>;
}

/// Takes bytes to store. A place dropped before `keep` stores nothing.
pub trait Place: Write {
    /// Stores the bytes: all are written and checked.
    fn keep(self: Box<Self>);
}

/// Resources of a connection beside its channel.
#[derive(Clone, Default)]
pub struct ConnectionResources {
    /// The dealer that this party has chosen.
    pub dealer: Option<Arc<dyn Dealer>>,
    /// Store for data that is the same on every connection.
    pub keep: Option<Arc<dyn KeyStore>>,
    /// Store for data of one phase that is too large for memory.
    pub spools: Option<Arc<dyn Spools>>,
    /// At a client: store for the secrets behind data that it sends once.
    pub secrets: Option<Arc<dyn Secrets>>,
    /// At a server: store for data that this connection's client sends once.
    pub uploads: Option<Arc<dyn Uploads>>,
    /// At a server: the fingerprint of the client's certificate; zeros without certificates.
    pub client: [u8; 32],
    /// Bytes of the current phase that the peer already has, so that they are not sent.
    pub spared: Arc<AtomicU64>,
    /// Ends the connection's phases early.
    pub stop: Stop,
    /// At a server with long computations: gets the progress.
    pub watch: Watch,
}

impl ConnectionResources {
    /// The same resources for one connection, whose phases `stop` ends.
    #[must_use]
    pub fn stopped_by(&self, stop: &Stop) -> Self {
        let dealer = self.dealer.as_ref().map(|dealer| Arc::clone(dealer).stopped_by(stop));
        Self { dealer, spared: Arc::default(), stop: stop.clone(), ..self.clone() }
    }

    /// Opens a place for `bytes` bytes until a phase is over.
    ///
    /// # Errors
    /// [`BackendError::Spool`] if the place cannot be made.
    pub fn spool(&self, bytes: u64) -> Result<Box<dyn Spool>> {
        spool::spool(self.spools.as_deref(), bytes)
    }

    /// An error if this party has none.
    ///
    /// # Errors
    /// [`BackendError::Dealer`].
    pub fn dealer(&self) -> Result<&dyn Dealer> {
        self.dealer.as_deref().ok_or_else(|| BackendError::Dealer { what: "this party was told of none".into() })
    }
}

/// Draws the seed of a new dealing.
///
/// # Errors
/// [`BackendError::Random`] if the operating system gives no random bytes.
pub fn fresh_seed() -> Result<Seed> {
    Seed::from_os().map_err(|e| BackendError::Random(e.to_string()))
}

/// A model at the dealer. Both halves are functions of the dealing's seed.
pub trait DealerModel: Send + Sync {
    /// The plan's digest.
    fn digest(&self) -> [u8; 32];

    /// The model for batches of `batch` inputs, 2 to the most of the plan.
    ///
    /// # Errors
    /// [`BackendError::Misuse`] if `batch` is more than the back end runs as one.
    fn batched(&self, _batch: usize) -> Result<Arc<dyn DealerModel>> {
        Err(ONE_BY_ONE)
    }

    /// Fingerprints of the keys of random matrices that hide weights from clients. One key must
    /// never hide two sets of weights.
    fn masks(&self) -> Vec<[u8; 32]>;

    /// Length of the client's half, in bytes.
    fn client_bytes(&self) -> u64;

    /// Estimate of the memory for making the client's half, in bytes.
    fn client_memory(&self) -> u64;

    /// Makes the client's half and gives it to `sink` in pieces.
    ///
    /// # Errors
    /// Errors of `sink`.
    fn client_half(&self, dealing: &Seed, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// Length of the server's half, in bytes.
    fn server_bytes(&self) -> u64;

    /// Makes the server's half and gives it to `sink` in pieces.
    ///
    /// # Errors
    /// Errors of `sink`.
    fn server_half(&self, dealing: &Seed, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}
