//! Ordering material, and auditing the dealer: what the parties say to each other and to it, for every back
//! end with a dealer.
//!
//! ```text
//! client: seal of its claim
//! server: ticket, with the dealer's commitment to the seed;  commitment to its coin
//! client: its coin                                           server: its coin
//! both get their halves from the dealer, which knows nothing of the coins
//! audited: client gives the material up at the dealer, says so; server has it opened, and passes the seed on;
//!          each deals its half again and compares; then all begins anew
//! ```
//! A seed is opened only if both agree, and neither uses the material then. It makes all of that material's
//! masks and keys, and nothing else: A's keys are the owner's. Of k materials that are dealt wrongly one is
//! found with `1 - (1 - rate)^k`. A ticket binds the dealer for both parties: it is the server's and, by the
//! server, the client's, and the dealer gives a half for no other.

use tacit_arith::prg::{Prg, Seed};
use tacit_net::{Channel, Tag};
use zeroize::Zeroizing;

use crate::BackendError;
use crate::seam::{self, Aids, Claim, Order, Piece, Seal, Ticket};

/// Offline: which material.
const TICKET: Tag = Tag::new(0x0425, "ticket for the dealer");
/// Offline: for whom material is to be dealt.
const SEAL: Tag = Tag::new(0x0426, "seal of a claim to material");
const COMMITMENT: Tag = Tag::new(0x0427, "commitment to a coin");
const COIN: Tag = Tag::new(0x0428, "coin");
const GIVEN_UP: Tag = Tag::new(0x0429, "a material is given up");
const OPENED: Tag = Tag::new(0x042a, "seed of an audited material");

/// Bytes of a coin and of a commitment.
const COIN_BYTES: usize = 32;

/// Materials of a thousand that are audited, unless the options say so.
pub(crate) const DEFAULT: u32 = 10;
/// What they may say.
pub(crate) const RATES: std::ops::RangeInclusive<u32> = 0..=900;

/// Takes pieces of a half.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), BackendError> + 'a;

/// Takes pieces of a half, with the channel to the client.
pub(crate) type Intake<'a> = dyn FnMut(&[u8], &mut Channel) -> Result<(), BackendError> + 'a;

/// Bytes that the client sends for a material and those that the server sends, and exchanges.
pub(crate) fn costs(rate: u32) -> ([u64; 2], u64) {
    let tossed = if rate > 0 { COIN_BYTES as u64 } else { 0 };
    ([size_of::<Seal>() as u64 + tossed, size_of::<Ticket>() as u64 + 2 * tossed], 1 + u64::from(rate > 0))
}

/// Random bytes, as a digest of the stream's: coins are shown, and the stream makes nonces that are not.
fn random(prg: &mut Prg) -> [u8; COIN_BYTES] {
    let mut drawn = Zeroizing::new([0; COIN_BYTES]);
    prg.fill_bytes(&mut *drawn);
    seam::digest("tacit 2026-11 random bytes", &[&*drawn])
}

/// A coin is random enough to be hidden by its digest.
fn committed(ticket: &Ticket, coin: &[u8]) -> [u8; 32] {
    seam::digest("tacit 2026-11 coin of an audit", &[ticket, coin])
}

/// Whether both coins say that the material is audited.
fn is_audited(rate: u32, ticket: &Ticket, of_server: &[u8], of_client: &[u8]) -> bool {
    let digest = seam::digest("tacit 2026-11 audit", &[ticket, of_server, of_client]);
    let drawn = u32::from_le_bytes(*digest.first_chunk().expect("a digest is longer"));
    u64::from(drawn) * 1000 < u64::from(rate) << 32
}

fn cheated<T>(ticket: &Ticket, what: &str) -> Result<T, BackendError> {
    let number = u64::from_le_bytes(*ticket.first_chunk().expect("a ticket has more than eight bytes"));
    Err(BackendError::Dealer { what: format!("an audit of material {number} failed: {what}. Use no material of it") })
}

/// Holds what was dealt against what the seed makes.
fn compare(
    (ticket, plan): (&Ticket, &[u8; 32]),
    seed: &Seed,
    got: &blake3::Hasher,
    again: impl FnOnce(&Seed, &mut Sink<'_>) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let number = u64::from_le_bytes(*ticket.first_chunk().expect("a ticket has more than eight bytes"));
    if ticket[8..] != seam::commitment(number, plan, seed) {
        return cheated(ticket, "the seed is not the one that the dealer has committed to");
    }
    let mut hasher = blake3::Hasher::new();
    again(seed, &mut |bytes| {
        hasher.update(bytes);
        Ok(())
    })?;
    if hasher.finalize() != got.finalize() {
        return cheated(ticket, "the half that came is not what its seed makes");
    }
    Ok(())
}

/// What a party orders by.
pub(crate) struct Ordering<'a> {
    pub(crate) aids: &'a Aids,
    /// Materials of a thousand that are audited.
    pub(crate) rate: u32,
    /// The plan's digest.
    pub(crate) plan: [u8; 32],
}

impl Ordering<'_> {
    /// Orders material until one is not audited: what the client fetches its half of it by. `again` deals a
    /// half from a seed.
    ///
    /// # Errors
    /// Of the channel; [`BackendError::Dealer`]: it gives none, or an audit failed.
    pub(crate) fn claim(
        &self,
        (channel, prg): (&mut Channel, &mut Prg),
        again: impl Fn(&Seed, &mut Sink<'_>) -> Result<(), BackendError>,
    ) -> Result<(Ticket, Claim), BackendError> {
        loop {
            let claim = Claim { nonce: random(prg), digest: self.plan };
            channel.send(SEAL, &claim.seal())?;
            channel.flush()?;
            let ticket: Ticket = *channel.recv(TICKET, size_of::<Ticket>())?.first_chunk().expect("so many came");
            if self.rate == 0 || !self.toss(&ticket, channel, prg)? {
                return Ok((ticket, claim));
            }
            let (dealer, mut got) = (self.aids.dealer()?, blake3::Hasher::new());
            dealer.fetch_into(&ticket, &claim, &mut |bytes| {
                got.update(bytes);
                Ok(())
            })?;
            dealer.consent(&ticket, &claim)?;
            channel.send(GIVEN_UP, &[1])?;
            channel.flush()?;
            let seed = Seed(*channel.recv(OPENED, 16)?.first_chunk().expect("that many bytes came"));
            compare((&ticket, &self.plan), &seed, &got, &again)?;
        }
    }

    /// The client's part of the toss.
    fn toss(&self, ticket: &Ticket, channel: &mut Channel, prg: &mut Prg) -> Result<bool, BackendError> {
        let commitment = channel.recv(COMMITMENT, 32)?;
        let own = random(prg);
        channel.send(COIN, &own)?;
        channel.flush()?;
        let theirs = channel.recv(COIN, COIN_BYTES)?;
        if committed(ticket, &theirs) != *commitment {
            let (step, what) = ("the toss for an audit", "the coin is not the one that was committed to");
            return Err(tacit_mpc::MpcError::Misbehaviour { step, what }.into());
        }
        Ok(is_audited(self.rate, ticket, &theirs, &own))
    }

    /// The server's: orders material until one is not audited, whose half `sink` is given as it comes,
    /// with the channel. `again` deals a half from a seed.
    ///
    /// # Errors
    /// As [`claim`](Self::claim); those of `sink`.
    pub(crate) fn order(
        &self,
        order: &Order<'_>,
        (channel, prg): (&mut Channel, &mut Prg),
        again: impl Fn(&Seed, &mut Sink<'_>) -> Result<(), BackendError>,
        sink: &mut Intake<'_>,
    ) -> Result<(), BackendError> {
        loop {
            let seal: Seal = *channel.recv(SEAL, size_of::<Seal>())?.first_chunk().expect("that many bytes came");
            let (mut known, mut audited, mut got) = (None, false, blake3::Hasher::new());
            self.aids.dealer()?.deal_into(order, &seal, &mut |piece| match piece {
                // The client works while the dealer does.
                Piece::Ticket(ticket) => {
                    channel.send(TICKET, ticket)?;
                    if self.rate > 0 {
                        let own = random(prg);
                        channel.send(COMMITMENT, &committed(ticket, &own))?;
                        channel.flush()?;
                        let theirs = channel.recv(COIN, COIN_BYTES)?;
                        channel.send(COIN, &own)?;
                        audited = is_audited(self.rate, ticket, &own, &theirs);
                    }
                    known = Some(*ticket);
                    Ok(channel.flush()?)
                }
                Piece::Half(bytes) if audited => {
                    got.update(bytes);
                    Ok(())
                }
                Piece::Half(bytes) => sink(bytes, channel),
            })?;
            if !audited {
                return Ok(());
            }
            let ticket = known.ok_or(BackendError::Misuse("a dealer gives the ticket first"))?;
            channel.recv(GIVEN_UP, 1)?;
            let seed = self.aids.dealer()?.open(&ticket)?;
            channel.send(OPENED, &seed.0)?;
            channel.flush()?;
            compare((&ticket, &self.plan), &seed, &got, &again)?;
        }
    }
}
