//! Orders material and audits the dealer: the messages between the parties and with the dealer, for
//! every back end with a dealer.
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
//! all masks and keys of that material and nothing else: A's keys are the owner's. Of k wrongly
//! dealt materials, at least one is found with probability `1 - (1 - rate)^k`. A ticket binds the
//! dealer for both parties: the server gets it and passes it to the client, and the dealer gives
//! out halves for no other ticket.
//!
//! The cheating party is known only if no other party can be the cause: for a half from the dealer
//! that differs from what the committed seed makes, and at the server also for the seed. A missing
//! opening, or data that reaches the client through the server, can be the fault of either party,
//! and the error says so. Otherwise the other party could have an honest dealer blamed.

use tacit_arith::prg::{Prg, Seed};
use tacit_net::{Channel, Tag, TrafficModel};
use zeroize::Zeroizing;

use tacit_backend_api::BackendError;
use tacit_backend_api::seam::{self, Claim, ConnectionResources, Order, Piece, Seal, Ticket};

/// Offline: names the material.
const TICKET: Tag = Tag::new(0x0425, "ticket for the dealer");
/// Offline: the seal of the claim for which the material is dealt.
const SEAL: Tag = Tag::new(0x0426, "seal of a claim to material");
const COMMITMENT: Tag = Tag::new(0x0427, "commitment to a coin");
const COIN: Tag = Tag::new(0x0428, "coin");
const GIVEN_UP: Tag = Tag::new(0x0429, "a material is given up");
const OPENED: Tag = Tag::new(0x042a, "seed of an audited material");
/// Offline: the other party has received another megabyte of its half. Without this message, a
/// party on a slow link to the dealer would seem idle.
const FETCHED: Tag = Tag::new(0x042b, "a megabyte of a half has come");

/// Bytes of a half between two of these messages.
const STEP: u64 = 1 << 20;

/// Bytes of a coin and of a commitment.
const COIN_BYTES: usize = 32;

/// Default number of audited materials per thousand.
pub(crate) const DEFAULT: u32 = 10;
/// Allowed numbers of audited materials per thousand.
pub(crate) const RATES: std::ops::RangeInclusive<u32> = 0..=900;

/// Takes the pieces of a half.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), BackendError> + 'a;

/// Adds the traffic of ordering one material whose halves have these lengths, the client's first.
/// An audited material needs more, and a new order.
pub(crate) fn talk(rate: u32, halves: [u64; 2], talk: &mut TrafficModel) {
    talk.up(size_of::<Seal>());
    talk.down(size_of::<Ticket>());
    if rate > 0 {
        talk.down(COIN_BYTES);
    }
    // Neither party waits for the other before it has its own half.
    let [up, down] = halves.map(|half| half / STEP);
    talk.downs(down, 1);
    talk.ups(up, 1);
    if rate > 0 {
        talk.up(COIN_BYTES);
        talk.down(COIN_BYTES);
    }
}

/// Random bytes, as a digest of the stream's output: coins are shown, and the same stream makes
/// secret nonces.
fn random(prg: &mut Prg) -> [u8; COIN_BYTES] {
    let mut drawn = Zeroizing::new([0; COIN_BYTES]);
    prg.fill_bytes(&mut *drawn);
    seam::digest("tacit 2026-11 random bytes", &[&*drawn])
}

/// Commits to a coin. A coin has enough randomness for its digest to hide it.
fn committed(ticket: &Ticket, coin: &[u8]) -> [u8; 32] {
    seam::digest("tacit 2026-11 coin of an audit", &[ticket, coin])
}

/// Whether both coins together select the material for an audit.
fn is_audited(rate: u32, ticket: &Ticket, of_server: &[u8], of_client: &[u8]) -> bool {
    let digest = seam::digest("tacit 2026-11 audit", &[ticket, of_server, of_client]);
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

fn cheated(ticket: &Ticket, suspect: Suspect, what: &str) -> BackendError {
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
    BackendError::Dealer { what: format!("an audit of material {number} failed: {what}. {advice}") }
}

/// Blames `suspect` if the dealer does not open a material.
fn opened<T>(ticket: &Ticket, suspect: Suspect, done: Result<T, BackendError>) -> Result<T, BackendError> {
    done.map_err(|error| match error {
        BackendError::Dealer { what } => cheated(ticket, suspect, &format!("it was not opened ({what})")),
        other => other,
    })
}

/// A half while it arrives.
struct Got {
    hasher: blake3::Hasher,
    /// Bytes received, and bytes in all.
    bytes: [u64; 2],
}

impl Got {
    fn new(bytes: u64) -> Self {
        Self { hasher: blake3::Hasher::new(), bytes: [0, bytes] }
    }

    /// Adds bytes, and reports progress to the other party.
    fn update(&mut self, bytes: &[u8], channel: &mut Channel) -> Result<(), BackendError> {
        let [come, all] = self.bytes;
        let now = come + bytes.len() as u64;
        if now > all {
            return Err(length("more"));
        }
        self.bytes[0] = now;
        self.hasher.update(bytes);
        for _ in come / STEP..now / STEP {
            channel.send(FETCHED, &[1])?;
            channel.flush()?;
        }
        Ok(())
    }

    fn whole(self) -> Result<blake3::Hash, BackendError> {
        let [come, all] = self.bytes;
        if come < all { Err(length("fewer")) } else { Ok(self.hasher.finalize()) }
    }
}

/// Waits until the other party has its whole half, as long as it reports progress.
fn wait_for(half: u64, channel: &mut Channel) -> Result<(), BackendError> {
    (0..half / STEP).try_for_each(|_| channel.recv(FETCHED, 1).map(drop))?;
    Ok(())
}

fn length(what: &str) -> BackendError {
    BackendError::Material { what: format!("{what} bytes from the dealer than its half has") }
}

/// Compares a dealt half with what the seed makes. The seed comes from `source`.
fn compare(
    ticket: &Ticket,
    plan: &[u8; 32],
    seed: &Seed,
    source: Suspect,
    got: blake3::Hash,
    again: impl FnOnce(&Seed, &mut Sink<'_>) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let number = u64::from_le_bytes(*ticket.first_chunk().expect("a ticket has more than eight bytes"));
    if ticket[8..] != seam::commitment(number, plan, seed) {
        return Err(cheated(ticket, source, "the seed is not the one that the dealer has committed to"));
    }
    let mut hasher = blake3::Hasher::new();
    again(seed, &mut |bytes| {
        hasher.update(bytes);
        Ok(())
    })?;
    if hasher.finalize() != got {
        return Err(cheated(ticket, Suspect::Dealer, "the half that came is not what its seed makes"));
    }
    Ok(())
}

/// The parameters of a party's orders.
pub(crate) struct Ordering<'a> {
    pub(crate) resources: &'a ConnectionResources,
    /// Audited materials per thousand.
    pub(crate) rate: u32,
    /// The plan's digest.
    pub(crate) plan: [u8; 32],
    /// Lengths of the client's half and of the server's, in bytes.
    pub(crate) halves: [u64; 2],
}

impl Ordering<'_> {
    /// At the client: orders a material and streams its half to `sink`. Returns false if the
    /// material was audited and found right: it must not be used, and another one must be ordered.
    /// `again` deals a half from a seed.
    ///
    /// # Errors
    /// Errors of the channel; [`BackendError::Dealer`] if the dealer gives no material or an audit
    /// failed; errors of `sink`.
    pub(crate) fn fetch(
        &self,
        (channel, prg): (&mut Channel, &mut Prg),
        again: impl Fn(&Seed, &mut Sink<'_>) -> Result<(), BackendError>,
        sink: &mut Sink<'_>,
    ) -> Result<bool, BackendError> {
        let claim = Claim { nonce: random(prg), digest: self.plan };
        channel.send(SEAL, &claim.seal())?;
        channel.flush()?;
        let ticket: Ticket = *channel.recv(TICKET, size_of::<Ticket>())?.first_chunk().expect("so many came");
        let commitment = if self.rate > 0 { Some(channel.recv(COMMITMENT, 32)?) } else { None };
        let (dealer, mut got) = (self.resources.dealer()?, Got::new(self.halves[0]));
        dealer.fetch_into(&ticket, &claim, &mut |bytes| {
            got.update(bytes, channel)?;
            sink(bytes)
        })?;
        let got = got.whole()?;
        let Some(commitment) = commitment else { return wait_for(self.halves[1], channel).map(|()| true) };
        if !self.toss(&ticket, &commitment, channel, prg)? {
            return Ok(true);
        }
        opened(&ticket, Suspect::DealerOrServer, dealer.consent(&ticket, &claim))?;
        channel.send(GIVEN_UP, &[1])?;
        channel.flush()?;
        let seed = Seed(*channel.recv(OPENED, 16)?.first_chunk().expect("that many bytes came"));
        compare(&ticket, &self.plan, &seed, Suspect::DealerOrServer, got, &again).map(|()| false)
    }

    /// The client's part of the coin toss.
    fn toss(
        &self,
        ticket: &Ticket,
        commitment: &[u8],
        channel: &mut Channel,
        prg: &mut Prg,
    ) -> Result<bool, BackendError> {
        let own = random(prg);
        channel.send(COIN, &own)?;
        channel.flush()?;
        wait_for(self.halves[1], channel)?;
        let theirs = channel.recv(COIN, COIN_BYTES)?;
        if committed(ticket, &theirs) != *commitment {
            let (step, what) = ("the toss for an audit", "the coin is not the one that was committed to");
            return Err(tacit_mpc::MpcError::Misbehaviour { step, what }.into());
        }
        Ok(is_audited(self.rate, ticket, &theirs, &own))
    }

    /// At the server: as [`fetch`](Self::fetch), for the server's half. When this returns, both
    /// parties have their whole halves.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub(crate) fn order(
        &self,
        order: &Order<'_>,
        (channel, prg): (&mut Channel, &mut Prg),
        again: impl Fn(&Seed, &mut Sink<'_>) -> Result<(), BackendError>,
        sink: &mut Sink<'_>,
    ) -> Result<bool, BackendError> {
        let seal: Seal = *channel.recv(SEAL, size_of::<Seal>())?.first_chunk().expect("that many bytes came");
        let (dealer, own) = (self.resources.dealer()?, random(prg));
        let (mut known, mut got) = (None, Got::new(self.halves[1]));
        dealer.deal_into(order, &seal, &mut |piece| match piece {
            // The client fetches its half in the meantime.
            Piece::Ticket(ticket) => {
                channel.send(TICKET, ticket)?;
                if self.rate > 0 {
                    channel.send(COMMITMENT, &committed(ticket, &own))?;
                }
                known = Some(*ticket);
                Ok(channel.flush()?)
            }
            Piece::Half(bytes) => {
                got.update(bytes, channel)?;
                sink(bytes)
            }
        })?;
        let (ticket, got) = (known.ok_or(BackendError::Misuse("a dealer gives the ticket first"))?, got.whole()?);
        wait_for(self.halves[0], channel)?;
        if self.rate == 0 {
            return Ok(true);
        }
        let theirs = channel.recv(COIN, COIN_BYTES)?;
        channel.send(COIN, &own)?;
        channel.flush()?;
        if !is_audited(self.rate, &ticket, &own, &theirs) {
            return Ok(true);
        }
        channel.recv(GIVEN_UP, 1)?;
        let seed = opened(&ticket, Suspect::DealerOrClient, dealer.open(&ticket))?;
        channel.send(OPENED, &seed.0)?;
        channel.flush()?;
        compare(&ticket, &self.plan, &seed, Suspect::Dealer, got, &again).map(|()| false)
    }
}
