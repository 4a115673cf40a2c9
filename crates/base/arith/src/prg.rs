//! Pseudo-random generator: AES-128 in counter mode, seeded from the operating system or from a given
//! seed. The output is one stream of bytes, however calls cut it. `fork` derives independent child
//! generators from plaintext blocks that the stream never uses.
//!
//! Published values must not come from a stream that also makes secrets: they would be known plaintext
//! of the key that hides the secrets. [`SplitPrg`] draws [`PublicSeed`]s from a generator with a
//! separate key, and code that expands public randomness takes no other type.

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::aes::Aes128;
use crate::block::Block;

/// The operating system's random source failed.
#[derive(Debug, thiserror::Error)]
#[error("the operating system's random source failed: {0}")]
pub struct OsRandomness(#[from] getrandom::Error);

/// A 128-bit secret seed. Wiped on drop; prints no content.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Seed(pub [u8; 16]);

impl Seed {
    /// A fresh seed from the operating system.
    pub fn from_os() -> Result<Self, OsRandomness> {
        let mut seed = Self([0; 16]);
        getrandom::fill(&mut seed.0)?;
        Ok(seed)
    }
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed(..)")
    }
}

const BUFFER: usize = 32; // blocks
const STREAM: u64 = 0;
const FORK: u64 = 1;
const PUBLIC: u64 = 2;

/// AES-CTR generator. Not `Clone`: a copied stream would repeat masks.
pub struct Prg {
    seed: Seed,
    aes: Aes128,
    counter: u64, // next block of the stream
    buffer: [Block; BUFFER],
    used: usize, // bytes of the buffer already given out
}

impl Prg {
    /// A generator seeded by the operating system, without a fallback.
    pub fn from_os() -> Result<Self, OsRandomness> {
        Ok(Self::from_seed(Seed::from_os()?))
    }

    /// The stream of `seed`.
    pub fn from_seed(seed: Seed) -> Self {
        let aes = Aes128::new(Block::from_bytes(seed.0));
        Self { seed, aes, counter: 0, buffer: [Block::ZERO; BUFFER], used: BUFFER * 16 }
    }

    /// The seed this generator was built from.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// Child generator number `domain`. It depends only on the seed and `domain`.
    pub fn fork(&self, domain: u64) -> Self {
        Self::from_seed(self.child(FORK, domain))
    }

    fn child(&self, kind: u64, domain: u64) -> Seed {
        let mut child = [Block::ZERO];
        self.aes.counter(kind, domain, &mut child);
        let seed = Seed(child[0].to_bytes());
        child[0].zeroize();
        seed
    }

    /// The next 16 bytes as a seed.
    pub fn next_seed(&mut self) -> Seed {
        let mut seed = Seed([0; 16]);
        self.fill_bytes(&mut seed.0);
        seed
    }

    /// The next 16 bytes as a block.
    pub fn next_block(&mut self) -> Block {
        let mut bytes = [0; 16];
        self.fill_bytes(&mut bytes);
        Block::from_bytes(bytes)
    }

    /// The next 8 bytes, little-endian.
    pub fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_bytes(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Fills with the next `out.len()` bytes of the stream.
    pub fn fill_bytes(&mut self, out: &mut [u8]) {
        let mut filled = 0;
        while filled < out.len() {
            if self.used == BUFFER * 16 {
                self.refill();
            }
            let block = self.buffer[self.used / 16].to_bytes();
            let n = (16 - self.used % 16).min(out.len() - filled);
            out[filled..filled + n].copy_from_slice(&block[self.used % 16..][..n]);
            self.used += n;
            filled += n;
        }
    }

    /// Fills with the next `8 * out.len()` bytes of the stream, each word little-endian.
    pub fn fill_u64(&mut self, out: &mut [u64]) {
        let mut out = out;
        if self.used == BUFFER * 16 && out.len() >= 2 * BUFFER {
            let filled = self.aes.stream(self.counter, out);
            self.counter = self.counter.wrapping_add(filled as u64 / 2);
            out = &mut out[filled..];
        }
        while !out.is_empty() {
            if self.used == BUFFER * 16 {
                self.refill();
            }
            if !self.used.is_multiple_of(16) || out.len() == 1 {
                out[0] = self.next_u64();
                out = &mut out[1..];
                continue;
            }
            let (pairs, _) = out.as_chunks_mut::<2>();
            let n = pairs.len().min(BUFFER - self.used / 16);
            for (p, b) in pairs[..n].iter_mut().zip(&self.buffer[self.used / 16..]) {
                *p = [b.0 as u64, (b.0 >> 64) as u64];
            }
            self.used += 16 * n;
            out = &mut out[2 * n..];
        }
    }

    /// Fills with the next `16 * out.len()` bytes of the stream.
    pub fn fill_blocks(&mut self, out: &mut [Block]) {
        if self.used == BUFFER * 16 {
            self.aes.counter(STREAM, self.counter, out);
            self.counter = self.counter.wrapping_add(out.len() as u64);
        } else {
            out.iter_mut().for_each(|b| *b = self.next_block());
        }
    }

    fn refill(&mut self) {
        self.aes.counter(STREAM, self.counter, &mut self.buffer);
        self.counter = self.counter.wrapping_add(BUFFER as u64);
        self.used = 0;
    }
}

impl Drop for Prg {
    fn drop(&mut self) {
        self.buffer.zeroize();
    }
}

/// A 128-bit seed that is published, so not secret: both parties expand it to the same stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublicSeed([u8; 16]);

impl PublicSeed {
    /// Bytes of a seed.
    pub const BYTES: usize = 16;

    /// Reads the seed that a peer sent.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The seed as it is sent.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The seed's stream.
    pub fn stream(self) -> Prg {
        Prg::from_seed(Seed(self.0))
    }

    /// The seed's stream after its first `blocks` blocks of 16 bytes.
    pub fn stream_from(self, blocks: u64) -> Prg {
        let mut following = self.stream();
        following.counter = blocks;
        following
    }

    /// Child seed number `domain`, public like this one.
    pub fn fork(self, domain: u64) -> Self {
        Self(self.stream().child(FORK, domain).0)
    }
}

/// A generator of secrets, and a second one for seeds to publish, whose key is derived once from the
/// first one's: no published block is a block of the secret stream.
pub struct SplitPrg {
    secret: Prg,
    public: Prg,
}

impl SplitPrg {
    /// Splits a generator. Takes it by value: splitting one twice would repeat public seeds.
    pub fn new(secret: Prg) -> Self {
        let public = Prg::from_seed(secret.child(PUBLIC, 0));
        Self { secret, public }
    }

    /// Splits a generator seeded with the next 16 bytes of a secret one.
    pub fn draw(prg: &mut Prg) -> Self {
        Self::new(Prg::from_seed(prg.next_seed()))
    }

    /// The secret generator.
    pub fn secret(&mut self) -> &mut Prg {
        &mut self.secret
    }

    /// A fresh seed to publish.
    pub fn public_seed(&mut self) -> PublicSeed {
        PublicSeed(self.public.next_seed().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prg(seed: u8) -> Prg {
        Prg::from_seed(Seed([seed; 16]))
    }

    #[test]
    fn stream_is_aes_of_the_counter() {
        let mut out = [Block::ZERO; 40];
        prg(3).fill_blocks(&mut out);
        let mut expected: Vec<Block> = (0..40).map(Block).collect();
        Aes128::new(Block::from_bytes([3; 16])).encrypt(&mut expected);
        assert_eq!(out.to_vec(), expected);
    }

    #[test]
    fn forks_depend_on_seed_and_domain_only() {
        let mut a = prg(1);
        let first = a.fork(9).next_u64();
        a.next_u64();
        assert_eq!(a.fork(9).next_u64(), first);
        assert_ne!(a.fork(8).next_u64(), first);
        assert_ne!(prg(2).fork(9).next_u64(), first);
        assert_ne!(prg(1).next_u64(), first);
        assert_eq!(a.seed().0, [1; 16]);
    }

    /// Neither the secret stream nor a fork of it contains a published seed.
    #[test]
    fn published_seeds_are_no_blocks_of_the_secret_stream() {
        let mut split = SplitPrg::new(prg(7));
        let first = split.public_seed();
        split.secret().next_block();
        let mut seeds = vec![first];
        seeds.extend((0..63).map(|_| split.public_seed()));
        let mut secret = vec![Block::ZERO; 1 << 14];
        prg(7).fill_blocks(&mut secret);
        secret.extend((0..64).map(|domain| prg(7).fork(domain).next_block()));
        secret.extend((0..64).map(|domain| Block::from_bytes(prg(7).fork(domain).seed().0)));
        for (i, seed) in seeds.iter().enumerate() {
            assert!(!secret.contains(&Block::from_bytes(seed.to_bytes())), "seed {i}");
            assert!(!seeds[..i].contains(seed), "seed {i} is an earlier one");
        }
        let mut repeat = SplitPrg::new(prg(7));
        assert_eq!(seeds, (0..64).map(|_| repeat.public_seed()).collect::<Vec<_>>());
        assert_ne!(SplitPrg::draw(&mut prg(7)).public_seed(), first);
    }

    #[test]
    fn public_seeds_expand_and_fork_like_secret_ones() {
        let seed = PublicSeed::from_bytes([9; 16]);
        assert_eq!(seed.to_bytes(), [9; 16]);
        assert_eq!(seed.stream().next_u64(), prg(9).next_u64());
        assert_eq!(seed.fork(5).stream().next_u64(), prg(9).fork(5).next_u64());
    }

    #[test]
    fn os_seeds_differ_and_print_nothing() {
        let (a, b) = (Seed::from_os().unwrap(), Seed::from_os().unwrap());
        assert_ne!(a.0, b.0);
        assert_eq!(format!("{a:?}"), "Seed(..)");
        assert_ne!(Prg::from_os().unwrap().next_u64(), Prg::from_os().unwrap().next_u64());
    }

    proptest! {
        #[test]
        fn streams_do_not_depend_on_the_cut(cuts in proptest::collection::vec((0u8..4, 0usize..300), 1..12)) {
            let mut uncut = vec![0u8; 12 * 300 * 16];
            prg(5).fill_bytes(&mut uncut);
            let mut p = prg(5);
            let mut offset = 0;
            for (kind, n) in cuts {
                let mut actual = Vec::new();
                match kind {
                    0 => { actual.resize(n, 0); p.fill_bytes(&mut actual); }
                    1 => { let mut w = vec![0u64; n]; p.fill_u64(&mut w); actual = w.iter().flat_map(|w| w.to_le_bytes()).collect(); }
                    2 => { let mut b = vec![Block::ZERO; n]; p.fill_blocks(&mut b); actual = crate::block::to_bytes(&b); }
                    _ => actual.extend(p.next_u64().to_le_bytes()),
                }
                prop_assert_eq!(&actual[..], &uncut[offset..offset + actual.len()]);
                offset += actual.len();
            }
        }
    }
}
