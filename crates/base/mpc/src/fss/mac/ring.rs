//! The check of opened ring elements, in the line of SPDZ2k ([CDESX18], eprint 2018/482). Shares carry more
//! bits than values. Online only the low bits of a value travel, and a batch is checked at once.
//!
//! A value `x` of w bits is shared with s more: `x_0 + x_1 = X mod 2^(w + s)`, `X = x mod 2^w`, with tags
//! `m_0 + m_1 = k X mod 2^(w + s)`. The key `k` is the sum, over the integers, of two shares of s random
//! bits: to each party, s bits of it are unknown. Opening sends the low w bits of the shares; both hold their
//! sum `o_i` over the integers, carry included. Then a coin toss draws [`ROWS`] random subsets of the batch,
//! and for each subset S, with a dealt random mask R of s bits:
//!
//! 1. each party sends `h = sum over S of (the high s bits of its share) + (its share of R) mod 2^s`;
//! 2. both compute `y = sum over S of o_i + 2^w (h_0 + h_1)`, which is
//!    `sum over S of X_i + 2^w R mod 2^(w + s)`;
//! 3. each computes `z = sum over S of its m_i + 2^w (its tag of R) - y (its share of k)`: `z_0 + z_1 = 0`.
//!
//! The parties compare digests of all `z_0` and all `-z_1`, and commit to them first: a party that
//! has seen the other's digest can find k in 2^s hashes and forge the answer. If only one party
//! checks, the other just sends.
//!
//! **Why subsets and not one sum with random coefficients of s bits.** The high parts are combined
//! after the coefficients are known, and nothing binds a party to its own. A party that has opened
//! a value wrong by `2^(w - 1)` shifts its `h` by half of that value's coefficient, whenever this
//! is even: the two errors cancel, and the check passes, with probability **1/2**. A subset holds
//! the wrong value or not; high parts cannot cancel an error in the low w bits.
//!
//! Soundness: a wrong opening passes with probability at most `2^-ROWS + 2^-s` = 2^-40.98. Of two
//! subsets that differ in one wrong value at most one has an error sum that is 0 modulo 2^w, so all
//! sums are 0 with probability at most `2^-ROWS`. Otherwise the cheater must know `k` times an
//! error with fewer than w trailing zeros modulo 2^(w + s): that is s bits of k. **After a failed
//! check a cheater may know k**: every value under it is retired.
//!
//! Per check: `ROWS s` bits (`h`), a commitment and its opening (32 + 64 bytes) each way, in three exchanges
//! after the coin toss; `2 ROWS s` bits of material at the party without the seed. Per opened value: w bits
//! each way, six additions; `2 (w + s)` bits of material at the party without the seed.

use tacit_arith::prg::{Prg, PublicSeed};
use zeroize::{DefaultIsZeroes, Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::error::{beyond, misbehaviour};
use crate::{MpcError, Role};

/// Extra bits of shares over values, and unknown bits of the key.
pub const SIGMA: u32 = 41;

/// Random subsets of a check, in whole bytes of coefficients.
pub const ROWS: usize = 8 * COEFFICIENT_BYTES;

const COEFFICIENT_BYTES: usize = 6;

/// The rings of a batch: values of `width` bits, shares of `width + SIGMA`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ring {
    width: u32,
    sigma: u32,
}

/// The MAC key, at the dealer only. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Key {
    shares: [u64; 2],
}

/// A party's share of the MAC key. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct KeyShare(u64);

/// A party's share of a value and of its tag, both modulo `2^(width + SIGMA)`; for a mask, both
/// modulo `2^SIGMA`. Wiped on drop.
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
pub struct Share {
    /// Share of the value.
    pub value: u128,
    /// Share of the key times the value.
    pub tag: u128,
}

impl Ring {
    /// Values of `width` bits, 1 to 64.
    ///
    /// # Errors
    /// `OutOfRange` for other widths.
    pub fn new(width: u32) -> Result<Self, MpcError> {
        if !(1..=64).contains(&width) {
            return beyond("the width of a checked ring, which is at least 1,", width as usize, 64);
        }
        Ok(Self { width, sigma: SIGMA })
    }

    /// Bits of a value.
    pub fn width(self) -> u32 {
        self.width
    }

    /// Bits of a share or a tag.
    pub fn share_bits(self) -> u32 {
        self.width + self.sigma
    }

    /// Bytes of a value's shares in material: share and tag, each in whole bytes.
    pub fn share_bytes(self) -> usize {
        2 * self.share_bits().div_ceil(8) as usize
    }

    /// The message with which a party opens a value.
    pub fn low(self, share: &Share) -> u64 {
        share.value as u64 & crate::low_mask(self.width)
    }

    /// An opened value, from both parties' messages, with its carry for the check.
    ///
    /// # Errors
    /// `Misbehaviour` if the peer's part has more than `width` bits.
    pub fn sum_parts(self, own: u64, received: u64) -> Result<u128, MpcError> {
        if received > crate::low_mask(self.width) {
            return misbehaviour("the opening of a value", "a part is wider than the ring");
        }
        Ok(u128::from(own) + u128::from(received))
    }

    pub(in crate::fss) fn mask(self) -> u128 {
        u128::MAX >> (128 - self.share_bits())
    }

    /// The low `sigma` bits of a word, all set.
    fn high_mask(self) -> u64 {
        crate::low_mask(self.sigma)
    }
}

impl Key {
    /// A fresh key. The seeded party draws its share from the stream `seeded`, as [`KeyShare::draw`].
    pub fn draw(dealer: &mut Prg, seeded: &mut Prg) -> Self {
        Self { shares: [KeyShare::draw(seeded).0, KeyShare::draw(dealer).0] }
    }

    /// A fresh key that the party without the seed holds whole, with the peer's share 0: for checks
    /// by this party only, which follows the protocol.
    pub fn one_sided(dealer: &mut Prg) -> Self {
        Self { shares: [0, KeyShare::draw(dealer).0] }
    }

    /// For a word that one party holds with its tag: the tag minus the key times the word. The
    /// holder of the key stores it.
    pub fn key_of(&self, ring: Ring, held: &Share) -> u128 {
        held.tag.wrapping_sub(self.whole_key().wrapping_mul(held.value)) & ring.mask()
    }

    fn whole_key(&self) -> u128 {
        u128::from(self.shares[0]) + u128::from(self.shares[1])
    }

    /// The share of the party without the seed.
    pub fn unseeded_share(&self) -> KeyShare {
        KeyShare(self.shares[1])
    }

    /// The shares, for the party without the seed, of values modulo `2^(width + SIGMA)`. The seeded
    /// party's come from its stream, as [`draw_shares`].
    pub fn deal(&self, ring: Ring, values: &[u128], seeded: &mut Prg) -> Vec<Share> {
        self.deal_in(ring.mask(), values, seeded)
    }

    /// The shares, for the party without the seed, of the random masks for one check. The seeded
    /// party's come from its stream, as [`draw_masks`].
    pub fn deal_masks(&self, ring: Ring, dealer: &mut Prg, seeded: &mut Prg) -> Masks {
        let values = Zeroizing::new([(); ROWS].map(|()| u128::from(dealer.next_u64())));
        Zeroizing::new(self.deal_in(u128::from(ring.high_mask()), &values[..], seeded))
    }

    /// The share, for the party without the seed, of a value whose other share is `peer`.
    pub fn other_share(&self, ring: Ring, value: u128, peer: &Share) -> Share {
        self.other_share_in(ring.mask(), value, peer)
    }

    fn other_share_in(&self, mask: u128, value: u128, peer: &Share) -> Share {
        Share {
            value: value.wrapping_sub(peer.value) & mask,
            tag: self.whole_key().wrapping_mul(value).wrapping_sub(peer.tag) & mask,
        }
    }

    fn deal_in(&self, mask: u128, values: &[u128], seeded: &mut Prg) -> Vec<Share> {
        let seeded_shares = Zeroizing::new(draw(mask, values.len(), seeded));
        values
            .iter()
            .zip(seeded_shares.iter())
            .map(|(value, seeded_share)| self.other_share_in(mask, *value, seeded_share))
            .collect()
    }
}

impl KeyShare {
    /// The seeded party's share.
    pub fn draw(seeded: &mut Prg) -> Self {
        Self(seeded.next_u64() & crate::low_mask(SIGMA))
    }

    /// The share that the dealer sent.
    ///
    /// # Errors
    /// `Material` if it has more than [`SIGMA`] bits.
    pub fn new(share: u64) -> Result<Self, MpcError> {
        if share > crate::low_mask(SIGMA) {
            return Err(MpcError::Material { what: format!("a key share of more than {SIGMA} bits") });
        }
        Ok(Self(share))
    }

    /// The share's bytes, [`SIGMA`] bits, for sending to its owner.
    pub fn to_u64(&self) -> u64 {
        self.0
    }
}

fn draw(mask: u128, n: usize, seeded: &mut Prg) -> Vec<Share> {
    let mut next = || seeded.next_block().0 & mask;
    (0..n).map(|_| Share { value: next(), tag: next() }).collect()
}

/// The seeded party's shares of `n` values.
pub fn draw_shares(ring: Ring, n: usize, seeded: &mut Prg) -> Vec<Share> {
    draw(ring.mask(), n, seeded)
}

/// The seeded party's shares of the masks of one check.
pub fn draw_masks(ring: Ring, seeded: &mut Prg) -> Masks {
    Zeroizing::new(draw(u128::from(ring.high_mask()), ROWS, seeded))
}

/// The masks of one check, one for each subset.
pub type Masks = Zeroizing<Vec<Share>>;

/// Sums over part of a batch. Wiped with the rest of a [`Check`].
#[derive(Clone, Copy, Default)]
struct Sums {
    opened: u128,
    tags: u128,
    high: u64,
}

impl Sums {
    fn add(&mut self, rhs: &Self) {
        self.opened = self.opened.wrapping_add(rhs.opened);
        self.tags = self.tags.wrapping_add(rhs.tags);
        self.high = self.high.wrapping_add(rhs.high);
    }
}

impl DefaultIsZeroes for Sums {}

/// The check of a batch, at one party.
pub struct Check<'a> {
    ring: Ring,
    key: &'a KeyShare,
    masks: Masks,
    rows: Zeroizing<Vec<Sums>>,
}

impl<'a> Check<'a> {
    /// Takes in a batch of opened values: this party's shares, and the opened values
    /// ([`Ring::sum_parts`]). The seed of the subsets is a coin toss of both parties, or the choice of
    /// the one that checks, made **after** the whole batch was opened. The masks serve this check
    /// alone.
    ///
    /// # Panics
    /// If there is not one opened value for every share, and one mask for every subset.
    pub fn new(
        ring: Ring,
        key: &'a KeyShare,
        subsets: PublicSeed,
        shares: &[Share],
        opened: &[u128],
        masks: Masks,
    ) -> Self {
        assert_eq!(shares.len(), opened.len(), "shares of opened values");
        assert_eq!(masks.len(), ROWS, "masks of a check");
        // The bits of a value's coefficients select its subsets. Each value is added once per byte
        // of its coefficients, to the sum of the values with the same byte.
        let mut buckets = Zeroizing::new(vec![Sums::default(); 256 * COEFFICIENT_BYTES]);
        let mut stream = subsets.stream();
        for (share, opened) in shares.iter().zip(opened) {
            let value = Sums { opened: *opened, tags: share.tag, high: (share.value >> ring.width) as u64 };
            let coefficients = stream.next_u64().to_le_bytes();
            for (byte, buckets) in coefficients.iter().zip(buckets.chunks_exact_mut(256)) {
                buckets[usize::from(*byte)].add(&value);
            }
        }
        let mut rows = Zeroizing::new(vec![Sums::default(); ROWS]);
        for (k, row) in rows.iter_mut().enumerate() {
            let of_byte = buckets[256 * (k / 8)..][..256].iter().enumerate();
            of_byte.filter(|(byte, _)| byte >> (k % 8) & 1 == 1).for_each(|(_, sums)| row.add(sums));
        }
        Self { ring, key, masks, rows }
    }

    /// This party's first message: its masked part of the combined high bits of each subset,
    /// [`SIGMA`] bits each.
    pub fn highs(&self) -> Vec<u64> {
        let rows = self.rows.iter().zip(self.masks.iter());
        rows.map(|(row, mask)| row.high.wrapping_add(mask.value as u64) & self.ring.high_mask()).collect()
    }

    /// The digest that this party commits to and then shows; an honest peer's is the same.
    /// `received` is the peer's [`Self::highs`].
    ///
    /// # Errors
    /// `Misbehaviour` if there is not one number for every subset.
    pub fn digest(self, role: Role, session: &[u8; 32], received: &[u64]) -> Result<[u8; 32], MpcError> {
        if received.len() != ROWS {
            return misbehaviour(STEP, "another number of subsets");
        }
        let mut hash = blake3::Hasher::new_derive_key("tacit fss check of opened values 1");
        hash.update(session);
        for z in self.residues(received).iter() {
            let signed = if role == Role::Client { *z } else { z.wrapping_neg() & self.ring.mask() };
            hash.update(&signed.to_le_bytes());
        }
        let digest = *hash.finalize().as_bytes();
        hash.zeroize();
        Ok(digest)
    }

    fn residues(&self, received: &[u64]) -> Zeroizing<Vec<u128>> {
        let (ring, key) = (self.ring, u128::from(self.key.0));
        let rows = self.rows.iter().zip(self.masks.iter()).zip(self.highs().into_iter().zip(received));
        let residues = rows.map(|((row, mask), (own, received))| {
            let high = u128::from(own.wrapping_add(*received) & ring.high_mask());
            let y = row.opened.wrapping_add(high << ring.width);
            let tags = row.tags.wrapping_add(mask.tag << ring.width);
            tags.wrapping_sub(y.wrapping_mul(key)) & ring.mask()
        });
        Zeroizing::new(residues.collect())
    }
}

const STEP: &str = "the check of opened values";

/// Compares the two parties' digests.
///
/// # Errors
/// `Misbehaviour` if they differ: an opened value or a tag differs from the dealt one. The
/// inference ends, and all material under this key is retired.
pub fn accept(own: &[u8; 32], received: &[u8; 32]) -> Result<(), MpcError> {
    // Digests are public once both are shown, so the time of this comparison reveals nothing.
    if own == received { Ok(()) } else { misbehaviour(STEP, "an opened value or its tag is not as dealt") }
}

/// The commitment of `role` to its digest, with 32 fresh random bytes.
pub fn commit(role: Role, session: &[u8; 32], digest: &[u8; 32], nonce: &[u8; 32]) -> [u8; 32] {
    let mut hash = blake3::Hasher::new_derive_key("tacit fss commitment to a check 1");
    hash.update(session);
    hash.update(&[u8::from(role == Role::Server)]);
    hash.update(digest);
    hash.update(nonce);
    *hash.finalize().as_bytes()
}

/// Compares the peer's shown digest with its commitment in that role.
///
/// # Errors
/// `Misbehaviour` if they do not match.
pub fn open(
    role: Role,
    session: &[u8; 32],
    commitment: &[u8; 32],
    digest: &[u8; 32],
    nonce: &[u8; 32],
) -> Result<(), MpcError> {
    let matches = commit(role, session, digest, nonce) == *commitment;
    if matches { Ok(()) } else { misbehaviour(STEP, "what is shown is not what was committed to") }
}

/// The check with so few bits and subsets that a cheater often passes.
#[cfg(test)]
pub(in crate::fss) mod small {
    use super::*;
    use tacit_arith::prg::Seed;

    /// Two of three values are opened wrong by half of the ring, in the first `rows` subsets. If a
    /// subset has both or neither, the answer can compensate the sum of errors; for the others the
    /// cheater guesses the key.
    pub(in crate::fss) fn cheat_passes(rows: usize, sigma: u32, trial: u64) -> bool {
        let ring = Ring { width: 5, sigma };
        let [mut dealer, mut seeded, mut repeat] = [1, 2, 2].map(|i| Prg::from_seed(Seed([i; 16])).fork(trial));
        let key = Key { shares: [0; 2].map(|_| dealer.next_u64() & ring.high_mask()) };
        let values = [0; 3].map(|_| dealer.next_block().0 & ring.mask());
        let peer_key_shares = key.deal(ring, &values, &mut seeded);
        let masks = key.deal_masks(ring, &mut dealer, &mut seeded);
        let own_shares = draw_shares(ring, 3, &mut repeat);
        let mut opened: Vec<u128> = own_shares
            .iter()
            .zip(&peer_key_shares)
            .map(|(a, b)| ring.sum_parts(ring.low(a), ring.low(b)).unwrap())
            .collect();
        opened[0] += 16;
        opened[2] += 16;
        let toss = PublicSeed::from_bytes(dealer.next_seed().0);
        let keys = key.shares.map(KeyShare);
        let client = Check::new(ring, &keys[0], toss, &own_shares, &opened, draw_masks(ring, &mut repeat));
        let server = Check::new(ring, &keys[1], toss, &peer_key_shares, &opened, masks);
        let guess = u128::from(key.shares[0] + (dealer.next_u64() & ring.high_mask()));
        let mut coefficients = toss.stream();
        let [first, _, third] = [0; 3].map(|_| coefficients.next_u64());
        let mut highs = client.highs();
        for (k, h) in highs.iter_mut().enumerate() {
            *h = h.wrapping_sub((first & third) >> k & 1);
        }
        let error = |k: usize| u128::from(((first ^ third) >> k & 1) << 4);
        let z_server = server.residues(&highs);
        // The cheater's own high parts, as sent, are part of both sums.
        let shift: Vec<u64> =
            server.highs().iter().enumerate().map(|(k, h)| h.wrapping_sub((first & third) >> k & 1)).collect();
        let z_client = client.residues(&shift);
        (0..rows).all(|k| {
            let sum = z_client[k].wrapping_add(guess.wrapping_mul(error(k))).wrapping_add(z_server[k]);
            sum & ring.mask() == 0
        })
    }
}
