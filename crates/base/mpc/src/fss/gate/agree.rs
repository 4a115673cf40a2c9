//! The check at the end of a session in which both parties are checked.
//!
//! ```text
//! server: commitment to its coin                    client: its coin
//! server: its coin, combined high bits              client: the same, commitment to its digests
//! server: its digests, and that of projections      client: its digests
//! ```
//! The subsets follow from both coins, so neither party can choose them, and neither knows them
//! before all is opened. The server shows its digests to a client that has committed to its own,
//! and the client shows its own only if the server's are right. Three exchanges.

use tacit_arith::prg::{Prg, PublicSeed};
use tacit_net::{Channel, Tag};
use zeroize::Zeroizing;

use super::super::mac::bits::DIGEST;
use super::super::mac::ring::{self, Check, KeyShare, Masks, ROWS, SIGMA};
use super::check_transcript::{CheckTranscript, DIGESTS, HIGHS, check};
use crate::error::misbehaviour;
use crate::wire::PackedMessages;
use crate::{MpcError, Role};

const COMMITMENT: Tag = Tag::new(0x0368, "commitment of a check");
const COIN: Tag = Tag::new(0x0369, "coin of a check");

/// Bytes of a coin and of a nonce.
pub(super) const COIN_BYTES: usize = 32;

fn hash_for_commitment(session: &[u8; 32], value: &[u8]) -> [u8; DIGEST] {
    let mut hash = blake3::Hasher::new_derive_key("tacit 2026-11 fss what is committed to");
    hash.update(session).update(value);
    *hash.finalize().as_bytes()
}

/// Random bytes for publication. They are hashed, because the same stream also makes secrets.
fn random(prg: &mut Prg) -> [u8; COIN_BYTES] {
    let mut bytes = Zeroizing::new([0; COIN_BYTES]);
    prg.fill_bytes(&mut *bytes);
    *blake3::Hasher::new_derive_key("tacit 2026-11 fss coin").update(&*bytes).finalize().as_bytes()
}

/// Tosses the seed of the subsets from both parties' coins.
fn toss(role: Role, session: &[u8; 32], channel: &mut Channel, prg: &mut Prg) -> Result<PublicSeed, MpcError> {
    let (own_coin, nonce) = (random(prg), random(prg));
    let (of_server, of_client) = match role {
        Role::Server => {
            channel.send(COMMITMENT, &ring::commit(role, session, &hash_for_commitment(session, &own_coin), &nonce))?;
            channel.flush()?;
            let peer_coin = receive_digest(channel, COIN)?;
            channel.send(COIN, &[own_coin, nonce].concat())?;
            (own_coin, peer_coin)
        }
        Role::Client => {
            let commitment = receive_digest(channel, COMMITMENT)?;
            channel.send(COIN, &own_coin)?;
            channel.flush()?;
            let opening = channel.recv(COIN, 2 * COIN_BYTES)?;
            let (peer_coin, nonce) = opening.split_at(COIN_BYTES);
            let [peer_coin, nonce] = [peer_coin, nonce].map(|part| *part.first_chunk().expect("that many bytes came"));
            ring::open(Role::Server, session, &commitment, &hash_for_commitment(session, &peer_coin), &nonce)?;
            (peer_coin, own_coin)
        }
    };
    let mut hash = blake3::Hasher::new_derive_key("tacit 2026-11 fss coin toss");
    hash.update(session).update(&of_server).update(&of_client);
    Ok(PublicSeed::from_bytes(*hash.finalize().as_bytes().first_chunk().expect("a digest is longer")))
}

fn receive_digest(channel: &mut Channel, tag: Tag) -> Result<[u8; DIGEST], MpcError> {
    Ok(*channel.recv(tag, DIGEST)?.first_chunk().expect("that many bytes came"))
}

/// Exchanges the combined high bits of the checks of all widths; returns the peer's.
fn exchange(role: Role, checks: &[(Check<'_>, [u8; 32])], channel: &mut Channel) -> Result<Vec<Vec<u64>>, MpcError> {
    let send = |channel: &mut Channel| {
        checks.iter().try_for_each(|(check, _)| channel.send_packed(HIGHS, &check.highs(), SIGMA))
    };
    if role == Role::Server {
        send(channel)?;
    }
    let received = checks.iter().map(|_| channel.recv_packed(HIGHS, ROWS, SIGMA)).collect::<Result<_, _>>()?;
    if role == Role::Client {
        send(channel)?;
    }
    Ok(received)
}

/// The digests that a party shows, or expects from the peer.
struct Digests {
    /// Digests of words, width by width, and of bits.
    words_and_bits: Zeroizing<Vec<u8>>,
    bits: super::super::mac::bits::Digests,
    projections: [u8; DIGEST],
}

impl Digests {
    /// Compares with the peer's digests, in the same order.
    fn accept(&self, received: &[u8]) -> Result<(), MpcError> {
        let (digests, _) = self.words_and_bits.as_chunks::<DIGEST>();
        let (received, _) = received.as_chunks::<DIGEST>();
        let (words, bits) = (digests.len() - 1, received.last().expect("there is one of bits"));
        digests[..words].iter().zip(received).try_for_each(|(digest, received)| ring::accept(digest, received))?;
        self.bits.accept(bits)
    }
}

impl CheckTranscript {
    /// Checks all opened values of both parties, and at the client the results that the server
    /// alone computed.
    ///
    /// # Errors
    /// Channel errors; `Misbehaviour` if the peer sent a wrong value; `Material` if words of some
    /// width have no masks.
    pub fn agree(
        self,
        key: &KeyShare,
        masks: Vec<(u32, Masks)>,
        channel: &mut Channel,
        prg: &mut Prg,
    ) -> Result<(), MpcError> {
        self.check_covered(&masks)?;
        let Self { role, session, bits, mut values, projections } = self;
        let seed = toss(role, &session, channel, prg)?;
        let checks = masks
            .into_iter()
            .map(|(width, masks)| check(key, &session, seed, width, values.remove(&width), masks))
            .collect::<Vec<_>>();
        let received = exchange(role, &checks, channel)?;
        let mut words_and_bits = Zeroizing::new(Vec::new());
        for ((check, name), received) in checks.into_iter().zip(&received) {
            words_and_bits.extend(check.digest(role, &name, received)?);
        }
        let bits = bits.finish();
        words_and_bits.extend(bits.own);
        let digests = Digests { words_and_bits, bits, projections: *projections.finalize().as_bytes() };
        match role {
            Role::Client => exchange_digests_as_client(&digests, &session, channel, prg),
            Role::Server => exchange_digests_as_server(&digests, &session, channel),
        }
    }
}

fn exchange_digests_as_client(
    digests: &Digests,
    session: &[u8; 32],
    channel: &mut Channel,
    prg: &mut Prg,
) -> Result<(), MpcError> {
    let nonce = random(prg);
    channel.send(
        COMMITMENT,
        &ring::commit(Role::Client, session, &hash_for_commitment(session, &digests.words_and_bits), &nonce),
    )?;
    channel.flush()?;
    let received = channel.recv(DIGESTS, digests.words_and_bits.len() + DIGEST)?;
    let (received, projections) = received.split_at(digests.words_and_bits.len());
    digests.accept(received)?;
    if projections != digests.projections {
        return misbehaviour("the check of linear layers", "the result of a linear layer is not that of its weights");
    }
    channel.send(DIGESTS, &[&digests.words_and_bits[..], &nonce].concat())?;
    Ok(channel.flush()?)
}

fn exchange_digests_as_server(digests: &Digests, session: &[u8; 32], channel: &mut Channel) -> Result<(), MpcError> {
    let commitment = receive_digest(channel, COMMITMENT)?;
    channel.send(DIGESTS, &[&digests.words_and_bits[..], &digests.projections].concat())?;
    channel.flush()?;
    let received = channel.recv(DIGESTS, digests.words_and_bits.len() + COIN_BYTES)?;
    let (opened, nonce) = received.split_at(digests.words_and_bits.len());
    let nonce = nonce.first_chunk().expect("that many bytes came");
    ring::open(Role::Client, session, &commitment, &hash_for_commitment(session, opened), nonce)?;
    digests.accept(opened)
}
