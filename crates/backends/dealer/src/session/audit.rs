//! Orders material and audits the dealer: the messages between the parties and with the dealer.
//!
//! ```text
//! client: seal of its claim
//! server: ticket, with the dealer's commitment to the seed;  commitment to its coin
//! both: get their halves from the dealer, store them, and report each megabyte to each other
//! client: its coin, once it has all of its half
//! server: its coin, once it has all of its own
//! audited: client gives the material up at the dealer and reports this; server has it opened and
//!          passes the seed on; each deals its half again and compares; then a new order begins
//! ```
//! **No party knows whether a material is audited before the dealer has given all of both halves.**
//! Until then the parties treat every material alike and wait only for the dealer. A dealer that
//! watches them, and deals correctly until it knows, learns nothing in time.
//!
//! A seed is opened only if both parties agree, and then neither uses the material. The seed makes
//! all masks and keys of that material and nothing else. The keys of the weight masks `A` (see
//! `masked_weights`) come from the owner. Of k wrongly
//! dealt materials, at least one is found with probability `1 - (1 - rate)^k`. A ticket binds the
//! dealer for both parties: the server gets it and passes it to the client, and the dealer gives
//! out halves for no other ticket.
//!
//! The cheating party is known only if no other party can be the cause: for a half from the dealer
//! that differs from what the committed seed makes, and at the server also for the seed. A missing
//! opening, or data that reaches the client through the server, can be the fault of either party,
//! and the error says so. Otherwise the other party could have an honest dealer blamed.

use tacit_arith::prg::{Prg, Seed};
use tacit_mpc::{Role, Session};
use tacit_net::{Channel, Tag, TrafficModel};
use zeroize::Zeroizing;

use super::correlation::Correlation;
use super::plan::{DealerOptions, Plan};
use super::source::Sink;
use tacit_backend_api::BackendError;
use tacit_backend_api::seam::{self, Claim, ConnectionResources, Order, Piece, Seal, Ticket};

/// Offline: the dealer's ticket, which names the material.
const TICKET: Tag = Tag::new(0x0425, "ticket for the dealer");
/// Offline: the seal of the claim for which the material is dealt.
const SEAL: Tag = Tag::new(0x0426, "seal of a claim to material");
/// Offline: the server's commitment to its coin.
const COMMITMENT: Tag = Tag::new(0x0427, "commitment to a coin");
/// Offline: a party's coin.
const COIN: Tag = Tag::new(0x0428, "coin");
/// Offline: the client has given an audited material up at the dealer.
const GIVEN_UP: Tag = Tag::new(0x0429, "a material is given up");
/// Offline: the seed that the dealer has opened, from server to client.
const OPENED: Tag = Tag::new(0x042a, "seed of an audited material");
/// Offline: the other party has received another megabyte of its half. Without this message, a
/// party on a slow link to the dealer would seem idle.
const FETCHED: Tag = Tag::new(0x042b, "a megabyte of a half has come");

/// Bytes of a half between two messages [`FETCHED`].
const PROGRESS_BYTES: u64 = 1 << 20;

const COIN_BYTES: usize = 32;

/// Default number of audited materials per thousand.
pub(crate) const DEFAULT_RATE: u32 = 10;
/// Allowed numbers of audited materials per thousand.
pub(crate) const ALLOWED_RATES: std::ops::RangeInclusive<u32> = 0..=900;

/// The traffic of ordering one material. An audited material needs more, and a new order.
pub(crate) fn traffic<C: Correlation>(plan: &Plan<C>) -> TrafficModel {
    let (mut traffic, rate) = (TrafficModel::default(), plan.options().audit_rate());
    traffic.up(size_of::<Seal>());
    traffic.down(size_of::<Ticket>());
    if rate > 0 {
        traffic.down(COIN_BYTES);
    }
    // Neither party waits for the other before it has its own half.
    traffic.downs(half_bytes(plan, Role::Server) / PROGRESS_BYTES, 1);
    traffic.ups(half_bytes(plan, Role::Client) / PROGRESS_BYTES, 1);
    if rate > 0 {
        traffic.up(COIN_BYTES);
        traffic.down(COIN_BYTES);
    }
    traffic
}

fn half_bytes<C: Correlation>(plan: &Plan<C>, role: Role) -> u64 {
    C::half_bytes(plan, role).dealt_len()
}

/// Draws random bytes, as a digest of the stream's output: coins are shown, and the same stream
/// makes secret nonces.
fn draw_bytes(prg: &mut Prg) -> [u8; COIN_BYTES] {
    let mut drawn = Zeroizing::new([0; COIN_BYTES]);
    prg.fill_bytes(&mut *drawn);
    seam::digest("tacit 2026-11 random bytes", &[&*drawn])
}

/// Commits to a coin. A coin has enough randomness for its digest to hide it.
fn commit(ticket: &Ticket, coin: &[u8]) -> [u8; 32] {
    seam::digest("tacit 2026-11 coin of an audit", &[ticket, coin])
}

/// Whether both coins together select the material for an audit.
fn is_audited(rate: u32, ticket: &Ticket, server_coin: &[u8], client_coin: &[u8]) -> bool {
    let digest = seam::digest("tacit 2026-11 audit", &[ticket, server_coin, client_coin]);
    let drawn = u32::from_le_bytes(*digest.first_chunk().expect("a digest is longer"));
    u64::from(drawn) * 1000 < u64::from(rate) << 32
}

/// The parties that may have cheated.
#[derive(Clone, Copy)]
enum Suspect {
    Dealer,
    /// The dealer or the other party.
    DealerOrClient,
    DealerOrServer,
}

/// The error of an audit that failed: what was wrong, and who can be the cause.
fn cheating_error(ticket: &Ticket, suspect: Suspect, reason: &str) -> BackendError {
    let number = u64::from_le_bytes(*ticket.first_chunk().expect("a ticket has more than eight bytes"));
    let advice = match suspect {
        Suspect::Dealer => "The dealer has dealt wrongly: use no material of it",
        Suspect::DealerOrClient => {
            "The dealer or this client has deviated, or one of them was lost: this is no proof of either"
        }
        Suspect::DealerOrServer => {
            "The dealer or the server has deviated, or one of them was lost: this is no proof of either"
        }
    };
    BackendError::Dealer { what: format!("an audit of material {number} failed: {reason}. {advice}") }
}

/// Blames `suspect` if the dealer does not open a material.
fn blame_if_unopened<T>(ticket: &Ticket, suspect: Suspect, result: Result<T, BackendError>) -> Result<T, BackendError> {
    result.map_err(|error| match error {
        BackendError::Dealer { what } => cheating_error(ticket, suspect, &format!("it was not opened ({what})")),
        error => error,
    })
}

struct ArrivingHalf {
    hasher: blake3::Hasher,
    received: u64,
    whole: u64,
}

impl ArrivingHalf {
    /// Adds bytes, and reports progress to the other party.
    fn update(&mut self, bytes: &[u8], channel: &mut Channel) -> Result<(), BackendError> {
        let before = self.received;
        self.received += bytes.len() as u64;
        if self.received > self.whole {
            return Err(length_error("more"));
        }
        self.hasher.update(bytes);
        for _ in before / PROGRESS_BYTES..self.received / PROGRESS_BYTES {
            channel.send(FETCHED, &[1])?;
            channel.flush()?;
        }
        Ok(())
    }

    /// Returns the hash of the half, which must be complete.
    fn finish(self) -> Result<blake3::Hash, BackendError> {
        if self.received < self.whole { Err(length_error("fewer")) } else { Ok(self.hasher.finalize()) }
    }
}

fn length_error(difference: &str) -> BackendError {
    BackendError::Material { what: format!("{difference} bytes from the dealer than its half has") }
}

/// A party's orders of material of a plan.
pub(crate) struct Ordering<'a, C: Correlation> {
    pub(crate) role: Role,
    pub(crate) resources: &'a ConnectionResources,
    pub(crate) plan: &'a Plan<C>,
    /// The server's keys of the masked layers.
    pub(crate) keys: &'a [Seed],
}

impl<C: Correlation> Ordering<'_, C> {
    fn rate(&self) -> u32 {
        self.plan.options().audit_rate()
    }

    fn start_half(&self) -> ArrivingHalf {
        ArrivingHalf { hasher: blake3::Hasher::new(), received: 0, whole: half_bytes(self.plan, self.role) }
    }

    /// Waits until the other party has its whole half, as long as it reports progress.
    fn wait_for_peer(&self, channel: &mut Channel) -> Result<(), BackendError> {
        let peer = if self.role == Role::Client { Role::Server } else { Role::Client };
        (0..half_bytes(self.plan, peer) / PROGRESS_BYTES).try_for_each(|_| channel.recv(FETCHED, 1).map(drop))?;
        Ok(())
    }

    /// Compares a dealt half with what the seed makes. The seed comes from `source`.
    fn compare(&self, ticket: &Ticket, seed: &Seed, source: Suspect, hash: blake3::Hash) -> Result<(), BackendError> {
        let number = u64::from_le_bytes(*ticket.first_chunk().expect("a ticket has more than eight bytes"));
        if ticket[8..] != seam::commitment(number, &self.plan.binding(), seed) {
            return Err(cheating_error(ticket, source, "the seed is not the one that the dealer has committed to"));
        }
        let mut hasher = blake3::Hasher::new();
        C::deal(self.role, self.plan, self.keys, seed, &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        if hasher.finalize() != hash {
            return Err(cheating_error(ticket, Suspect::Dealer, "the half that came is not what its seed makes"));
        }
        Ok(())
    }

    /// At the client: orders a material and streams its half to `sink`. Returns false if the
    /// material was audited and found right: it must not be used, and another one must be ordered.
    ///
    /// # Errors
    /// Errors of the channel; [`BackendError::Dealer`] if the dealer gives no material or an audit
    /// failed; errors of `sink`.
    pub(crate) fn fetch(&self, session: &mut Session<'_>, sink: &mut Sink<'_>) -> Result<bool, BackendError> {
        let Session { channel, prg, .. } = session;
        let claim = Claim { nonce: draw_bytes(prg), digest: self.plan.binding() };
        channel.send(SEAL, &claim.seal())?;
        channel.flush()?;
        let ticket: Ticket = *channel.recv(TICKET, size_of::<Ticket>())?.first_chunk().expect("so many came");
        let commitment = if self.rate() > 0 { Some(channel.recv(COMMITMENT, 32)?) } else { None };
        let (dealer, mut half) = (self.resources.dealer()?, self.start_half());
        dealer.fetch_into(&ticket, &claim, &mut |bytes| {
            half.update(bytes, channel)?;
            sink(bytes)
        })?;
        let hash = half.finish()?;
        let Some(commitment) = commitment else { return self.wait_for_peer(channel).map(|()| true) };
        if !self.toss(&ticket, &commitment, channel, prg)? {
            return Ok(true);
        }
        blame_if_unopened(&ticket, Suspect::DealerOrServer, dealer.consent(&ticket, &claim))?;
        channel.send(GIVEN_UP, &[1])?;
        channel.flush()?;
        let seed = Seed(*channel.recv(OPENED, 16)?.first_chunk().expect("that many bytes came"));
        self.compare(&ticket, &seed, Suspect::DealerOrServer, hash).map(|()| false)
    }

    fn toss(
        &self,
        ticket: &Ticket,
        commitment: &[u8],
        channel: &mut Channel,
        prg: &mut Prg,
    ) -> Result<bool, BackendError> {
        let client_coin = draw_bytes(prg);
        channel.send(COIN, &client_coin)?;
        channel.flush()?;
        self.wait_for_peer(channel)?;
        let server_coin = channel.recv(COIN, COIN_BYTES)?;
        if commit(ticket, &server_coin) != *commitment {
            let (step, what) = ("the toss for an audit", "the coin is not the one that was committed to");
            return Err(tacit_mpc::MpcError::Misbehaviour { step, what }.into());
        }
        Ok(is_audited(self.rate(), ticket, &server_coin, &client_coin))
    }

    /// At the server: as [`fetch`](Self::fetch), for the server's half. When this returns, both
    /// parties have their whole halves.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub(crate) fn order(
        &self,
        order: &Order<'_>,
        session: &mut Session<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<bool, BackendError> {
        let Session { channel, prg, .. } = session;
        let seal: Seal = *channel.recv(SEAL, size_of::<Seal>())?.first_chunk().expect("that many bytes came");
        let (dealer, server_coin) = (self.resources.dealer()?, draw_bytes(prg));
        let (mut received_ticket, mut half) = (None, self.start_half());
        dealer.deal_into(order, &seal, &mut |piece| match piece {
            // The client fetches its half in the meantime.
            Piece::Ticket(ticket) => {
                channel.send(TICKET, ticket)?;
                if self.rate() > 0 {
                    channel.send(COMMITMENT, &commit(ticket, &server_coin))?;
                }
                received_ticket = Some(*ticket);
                Ok(channel.flush()?)
            }
            Piece::Half(bytes) => {
                half.update(bytes, channel)?;
                sink(bytes)
            }
        })?;
        let (ticket, hash) =
            (received_ticket.ok_or(BackendError::Misuse("a dealer gives the ticket first"))?, half.finish()?);
        self.wait_for_peer(channel)?;
        if self.rate() == 0 {
            return Ok(true);
        }
        let client_coin = channel.recv(COIN, COIN_BYTES)?;
        channel.send(COIN, &server_coin)?;
        channel.flush()?;
        if !is_audited(self.rate(), &ticket, &server_coin, &client_coin) {
            return Ok(true);
        }
        channel.recv(GIVEN_UP, 1)?;
        let seed = blame_if_unopened(&ticket, Suspect::DealerOrClient, dealer.open(&ticket))?;
        channel.send(OPENED, &seed.0)?;
        channel.flush()?;
        self.compare(&ticket, &seed, Suspect::Dealer, hash).map(|()| false)
    }
}
