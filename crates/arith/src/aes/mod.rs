//! AES-128 on slices of blocks: counter mode (the PRG) and the fixed-key hash of eprint 2019/074.
//!
//! Three kernels compute the same function: AVX-512 with VAES (32 blocks in flight), AES-NI (8 in flight), and a
//! portable one on the `aes` crate, which itself uses the ARMv8 cryptography extension where there is one. A
//! [`Kernel`] value is proof that its instructions exist on this CPU. None branches or indexes on data.

mod hash;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use hash::CcrHash;

use crate::block::Block;

/// A set of instructions known to be present on this CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernel(Kind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    AesNi,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Kernel {
    /// All kernels this CPU can run, the portable one first, the fastest last.
    pub fn available() -> Vec<Kernel> {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut all = vec![Kernel(Kind::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            if x86::has_aes_ni() {
                all.push(Kernel(Kind::AesNi));
            }
            if x86::has_avx512() {
                all.push(Kernel(Kind::Avx512));
            }
        }
        all
    }

    /// The fastest kernel on this CPU.
    pub fn best() -> Kernel {
        #[cfg(target_arch = "x86_64")]
        {
            if x86::has_avx512() {
                return Kernel(Kind::Avx512);
            }
            if x86::has_aes_ni() {
                return Kernel(Kind::AesNi);
            }
        }
        Kernel(Kind::Portable)
    }

    pub(crate) fn kind(self) -> Kind {
        self.0
    }
}

/// An expanded AES-128 key with the kernel that uses it. Wiped on drop.
#[derive(Clone)]
pub struct Aes128 {
    kernel: Kernel,
    keys: Keys,
}

#[derive(Clone)]
enum Keys {
    Portable(portable::Cipher),
    #[cfg(target_arch = "x86_64")]
    X86([Block; 11]),
}

impl Aes128 {
    /// Expands `key` for the fastest kernel of this CPU.
    pub fn new(key: Block) -> Aes128 {
        Aes128::with_kernel(Kernel::best(), key)
    }

    /// Expands `key` for a chosen kernel (tests and benchmarks compare them).
    pub fn with_kernel(kernel: Kernel, key: Block) -> Aes128 {
        let keys = match kernel.kind() {
            Kind::Portable => Keys::Portable(portable::Cipher::new(key)),
            #[cfg(target_arch = "x86_64")]
            Kind::AesNi | Kind::Avx512 => Keys::X86(x86::expand_key(kernel, key)),
        };
        Aes128 { kernel, keys }
    }

    /// The kernel in use.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Encrypts every block in place.
    pub fn encrypt(&self, blocks: &mut [Block]) {
        match &self.keys {
            Keys::Portable(c) => c.encrypt(blocks),
            #[cfg(target_arch = "x86_64")]
            Keys::X86(k) => x86::encrypt(self.kernel, k, blocks),
        }
    }

    /// `out[i] = AES(tweak || counter + i)`: the 64-bit `tweak` is the high half of the plaintext block, the counter
    /// (wrapping at 2^64) the low half.
    pub fn counter(&self, tweak: u64, counter: u64, out: &mut [Block]) {
        for (i, b) in out.iter_mut().enumerate() {
            *b = Block((tweak as u128) << 64 | counter.wrapping_add(i as u64) as u128);
        }
        self.encrypt(out);
    }

    /// `dst[i] = AES(s) ^ s` with `s = sigma(src[i] ^ mask)`. Slices of unequal length: the shorter counts.
    fn hash(&self, src: &[Block], mask: Block, dst: &mut [Block]) {
        match &self.keys {
            Keys::Portable(c) => portable::hash(c, src, mask, dst),
            #[cfg(target_arch = "x86_64")]
            Keys::X86(k) => x86::hash(self.kernel, k, src, mask, dst),
        }
    }

    /// See [`CcrHash::double`].
    fn double(&self, nodes: &mut [Block]) -> Block {
        let half = nodes.len() / 2;
        let (left, right) = nodes.split_at_mut(half);
        match &self.keys {
            Keys::Portable(c) => portable::double(c, left, right),
            #[cfg(target_arch = "x86_64")]
            Keys::X86(k) => x86::double(self.kernel, k, left, right),
        }
    }
}

impl Drop for Aes128 {
    fn drop(&mut self) {
        match &mut self.keys {
            Keys::Portable(_) => {} // the `aes` crate wipes it (feature `zeroize`)
            #[cfg(target_arch = "x86_64")]
            Keys::X86(k) => zeroize::Zeroize::zeroize(k),
        }
    }
}

#[cfg(test)]
mod tests;
