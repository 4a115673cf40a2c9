//! The check of opened bits.
//!
//! An opened bit `b` has tag shares `t ^ t' = b' * Delta` and key shares `D ^ D' = Delta`. The
//! parties hold `t ^ b D` and `t' ^ b D'`: equal if `b = b'`, otherwise differing by Delta. Each
//! party hashes its blocks of all opened bits, in the order of their opening, with a name of the
//! session, into a digest. One digest for each role follows from it. Each party sends its own and
//! compares the received digest with the other role's.
//!
//! **No sum of tags is ever sent.** A sum that is wrong by a known combination of flipped bits is a
//! multiple of Delta, and with Delta a party has the other's comparison keys. A digest of a value
//! that is off by Delta reveals nothing without a guess of Delta: 127 bits. A tag cut to 40 bits
//! would fall to 2^40 hashes, computed offline after the session.
//!
//! Soundness: a party that opened a wrong bit passes with probability at most
//! `(q + 1) / 2^127 + q^2 / 2^256` after `q` hashes (BLAKE3 as a random oracle). The party must
//! hash the other's blocks itself. The received digest differs from the required answer, as the roles
//! differ; so both may send at once, without commitments.
//!
//! Per check: 32 bytes each way, at once. Per opened bit: nothing sent, 16 bytes hashed.

use tacit_arith::bits::Bits;
use tacit_arith::block::Block;
use zeroize::{Zeroize, Zeroizing};

use super::super::delta::DeltaShare;
use crate::error::misbehaviour;
use crate::{MpcError, Role};

/// Bytes of a digest.
pub const DIGEST: usize = 32;

const CHUNK_BLOCKS: usize = 1024;

/// A running check of the bits that one session opens.
pub struct BitCheck {
    role: Role,
    share: Block,
    hash: blake3::Hasher,
    bits: u64,
}

/// The result of a check.
pub struct Digests {
    /// Digest for the peer.
    pub own: [u8; DIGEST],
    expected: [u8; DIGEST],
}

impl BitCheck {
    /// A check for a session name that both parties derive alike and that no other check uses:
    /// material, inference and connection.
    pub fn new(role: Role, session: &[u8; 32], share: &DeltaShare) -> Self {
        let mut hash = blake3::Hasher::new_derive_key("tacit fss check of opened bits 1");
        hash.update(session);
        Self { role, share: share.to_block(), hash, bits: 0 }
    }

    /// Adds opened bits with this party's tags, in the order in which they were opened. The
    /// division into calls has no effect.
    ///
    /// # Panics
    /// If there is not one tag for every bit.
    pub fn absorb(&mut self, tags: &[Block], opened: &Bits) {
        assert_eq!(tags.len(), opened.len(), "tags of opened bits");
        let mut bytes = Zeroizing::new(Vec::with_capacity(16 * CHUNK_BLOCKS.min(tags.len())));
        for (c, tags) in tags.chunks(CHUNK_BLOCKS).enumerate() {
            bytes.clear();
            for (i, tag) in (c * CHUNK_BLOCKS..).zip(tags) {
                let bit = opened.words()[i / 64] >> (i % 64) & 1;
                bytes.extend_from_slice(&(*tag ^ (self.share & Block::mask(bit))).to_bytes());
            }
            self.hash.update(&bytes);
        }
        self.bits += tags.len() as u64;
    }

    /// The digests of all added bits.
    pub fn finish(mut self) -> Digests {
        self.hash.update(&self.bits.to_le_bytes());
        let digest = Zeroizing::new(*self.hash.finalize().as_bytes());
        Digests { own: of_role(&digest, self.role), expected: of_role(&digest, self.role.peer()) }
    }
}

fn of_role(digest: &[u8; DIGEST], role: Role) -> [u8; DIGEST] {
    let mut hash = blake3::Hasher::new_derive_key("tacit fss check of opened bits 1, digest of a role");
    hash.update(digest);
    hash.update(&[u8::from(role == Role::Server)]);
    *hash.finalize().as_bytes()
}

impl Drop for BitCheck {
    fn drop(&mut self) {
        self.share.zeroize();
        self.hash.zeroize();
    }
}

impl Digests {
    /// Compares with the peer's digest.
    ///
    /// # Errors
    /// `Misbehaviour` if any opened bit or tag differs from the dealt one: the inference ends, and
    /// the material under this Delta is retired.
    pub fn accept(&self, received: &[u8; DIGEST]) -> Result<(), MpcError> {
        // Digests are public once sent, so the time of this comparison reveals nothing.
        let matches = self.expected == *received;
        let what = "an opened bit or its tag is not as dealt";
        if matches { Ok(()) } else { misbehaviour("the check of opened bits", what) }
    }
}
