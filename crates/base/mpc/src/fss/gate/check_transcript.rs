//! The opened values of a session, and the final check if only the client is checked. The server
//! draws the subsets after all values are opened, the client answers, and the server compares
//! before it sends anything else. If both are checked, [`CheckTranscript::agree`] is the final
//! check.

use std::collections::BTreeMap;

use tacit_arith::bits::Bits;
use tacit_arith::block::Block;
use tacit_arith::prg::{Prg, PublicSeed, SplitPrg};
use tacit_net::{Channel, Sides, Tag};
use zeroize::Zeroizing;

use super::super::delta::{self, DeltaShare};
use super::super::mac::bits::{BitCheck, DIGEST};
use super::super::mac::ring::{self, Check, KeyShare, Masks, ROWS, SIGMA, Share};
use super::spec;
use crate::codec::Packed;
use crate::wire::PackedMessages;
use crate::{MpcError, Role, Session, planes};

const SUBSETS: Tag = Tag::new(0x0363, "subsets of a check");
pub(super) const HIGHS: Tag = Tag::new(0x0364, "combined high bits");
pub(super) const DIGESTS: Tag = Tag::new(0x0365, "digests of a check");

/// The values of one ring: shares with tags, and opened values.
#[derive(Default)]
pub(super) struct Opened {
    shares: Zeroizing<Vec<Share>>,
    opened: Vec<u128>,
}

impl Opened {
    /// Moves a full list to one of twice the size and wipes the old one; `Vec` growth would leave
    /// its shares in memory.
    fn push(&mut self, share: Share) {
        if self.shares.len() == self.shares.capacity() {
            let mut wider = Zeroizing::new(Vec::with_capacity((2 * self.shares.len()).max(1024)));
            wider.extend(self.shares.iter().cloned());
            self.shares = wider;
        }
        self.shares.push(share);
    }
}

/// All opened values of one session, at one party.
pub struct CheckTranscript {
    pub(super) role: Role,
    pub(super) session: [u8; 32],
    pub(super) bits: BitCheck,
    pub(super) values: BTreeMap<u32, Opened>,
    pub(super) projections: blake3::Hasher,
}

impl CheckTranscript {
    /// A transcript for a session name that both parties derive alike and that is used once.
    #[must_use]
    pub fn new(role: Role, session: &[u8; 32], delta: &DeltaShare) -> Self {
        let mut projections = blake3::Hasher::new_derive_key("tacit 2026-11 fss projections");
        projections.update(session);
        let bits = BitCheck::new(role, session, delta);
        Self { role, session: *session, bits, values: BTreeMap::new(), projections }
    }

    /// Opens the bits of which `tags` are this party's, and adds them. The server sends first; the client
    /// answers without a flush, because its next message follows.
    pub(super) fn open_bits(&mut self, tags: &[Block], tag: Tag, session: &mut Session<'_>) -> Result<Bits, MpcError> {
        let own_bits = delta::bits(tags);
        if session.role == Role::Server {
            planes::send_one(session.channel, tag, &own_bits)?;
        }
        let peer_bits = planes::recv_one(session.channel, tag, own_bits.len())?;
        if session.role == Role::Client {
            planes::send_one(session.channel, tag, &own_bits)?;
        }
        let bits = own_bits.xor(&peer_bits);
        self.bits.absorb(tags, &bits);
        Ok(bits)
    }

    /// Adds values of `width` bits (1 to 64), in the same order at both parties. If only the client
    /// is checked, `opened` holds the client's messages; the client adds the words and their tags,
    /// the server 0 and the negated keys of the tags. Otherwise `opened` is the sum of both
    /// parties' messages, carry included, with the party's own shares and tags. Shares and opened
    /// values may be added by separate calls.
    pub fn values<O: Into<u128>>(
        &mut self,
        width: u32,
        shares: impl Iterator<Item = Share>,
        opened: impl Iterator<Item = O>,
    ) {
        let list = self.values.entry(width).or_default();
        shares.for_each(|share| list.push(share));
        list.opened.extend(opened.map(Into::into));
    }

    /// Adds projections of results that the server alone computed: the server adds its computed
    /// ones, the client the expected ones.
    pub fn project(&mut self, words: &[u64]) {
        for word in words {
            self.projections.update(&word.to_le_bytes());
        }
    }

    /// Bytes that each party sends for a check of the client, with values in rings of `widths`
    /// different widths.
    #[must_use]
    pub fn bytes(widths: usize) -> Sides<usize> {
        Sides { client: widths * (Packed::len_bytes(ROWS, SIGMA) + DIGEST) + DIGEST, server: 16 }
    }

    pub(super) fn check_covered(&self, masks: &[(u32, Masks)]) -> Result<(), MpcError> {
        for (width, values) in &self.values {
            if !values.opened.is_empty() && !masks.iter().any(|(masked, _)| masked == width) {
                return Err(MpcError::Material { what: format!("no masks for words of {width} bits") });
            }
        }
        Ok(())
    }

    /// The client's part of the check, with the masks for the rings of each width.
    ///
    /// # Errors
    /// Channel errors; `Material` if words of some width have no masks.
    pub fn answer(self, masks: Vec<(u32, Masks)>, channel: &mut Channel) -> Result<(), MpcError> {
        self.check_covered(&masks)?;
        let seed = channel.recv(SUBSETS, 16)?;
        let seed = PublicSeed::from_bytes(*seed.first_chunk().expect("that many bytes came"));
        let key = KeyShare::new(0).expect("0 is a short number");
        let mut digests = Vec::new();
        let Self { role, session, bits, mut values, .. } = self;
        for (width, masks) in masks {
            let (check, session) = check(&key, &session, seed, width, values.remove(&width), masks);
            channel.send_packed(HIGHS, &check.highs(), SIGMA)?;
            // The server's high bits count times this party's share of the key, which is 0.
            digests.extend(check.digest(role, &session, &[0; ROWS])?);
        }
        digests.extend(bits.finish().own);
        channel.send(DIGESTS, &digests)?;
        Ok(channel.flush()?)
    }

    /// The server's part of the check. Draws the subsets from `prg` now that all values are opened.
    ///
    /// # Errors
    /// Channel errors; `Misbehaviour` if the client sent a value other than dealt; `Material` if
    /// words of some width have no masks.
    pub fn verify(
        self,
        key: &KeyShare,
        masks: Vec<(u32, Masks)>,
        channel: &mut Channel,
        prg: &mut Prg,
    ) -> Result<(), MpcError> {
        self.check_covered(&masks)?;
        let seed = SplitPrg::draw(prg).public_seed();
        channel.send(SUBSETS, &seed.to_bytes())?;
        let count = masks.len();
        let Self { role, session, bits, mut values, .. } = self;
        let mut digests = Vec::with_capacity(count);
        for (width, masks) in masks {
            let (check, session) = check(key, &session, seed, width, values.remove(&width), masks);
            let highs = channel.recv_packed(HIGHS, ROWS, SIGMA)?;
            digests.push(check.digest(role, &session, &highs)?);
        }
        let received = channel.recv(DIGESTS, (count + 1) * DIGEST)?;
        let (received, _) = received.as_chunks::<DIGEST>();
        digests.iter().zip(received).try_for_each(|(digest, received)| ring::accept(digest, received))?;
        bits.finish().accept(received.last().expect("that many bytes came"))
    }
}

/// The check of the values of one width, with its session name.
pub(super) fn check<'a>(
    key: &'a KeyShare,
    session: &[u8; 32],
    subsets: PublicSeed,
    width: u32,
    values: Option<Opened>,
    masks: Masks,
) -> (Check<'a>, [u8; 32]) {
    let Opened { shares, opened } = values.unwrap_or_default();
    let subsets = subsets.fork(u64::from(width));
    let mut name = blake3::Hasher::new_derive_key("tacit fss check of one width 1");
    name.update(session).update(&width.to_le_bytes());
    (Check::new(spec::ring(width), key, subsets, &shares, &opened, masks), *name.finalize().as_bytes())
}
