//! AES-128 on slices of blocks: counter mode (the PRG) and the hash of eprint 2019/074.
//!
//! Four kernels compute the same function: VAES with AVX-512 (32 blocks in flight) or AVX2 (16),
//! AES-NI (8), and the `aes` crate, with the ARMv8 cryptography extension if there is one. No kernel
//! branches or indexes on data.

/// Calls the function `$name` of the kernel of `$aes`.
macro_rules! dispatch {
    ($aes:expr, $name:ident($($argument:expr),*)) => {
        match &$aes.keys {
            Keys::Portable(cipher) => portable::$name(cipher, $($argument),*),
            #[cfg(target_arch = "x86_64")]
            Keys::X86(keys) => keys.$name($($argument),*),
        }
    };
}

mod hash;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use hash::CcrHash;

use crate::block::Block;
use crate::cpu::Cpu;

/// An expanded AES-128 key with the kernel that uses it. Wiped on drop.
#[derive(Clone)]
pub struct Aes128 {
    cpu: Cpu,
    keys: Keys,
}

#[derive(Clone)]
enum Keys {
    Portable(portable::Cipher),
    #[cfg(target_arch = "x86_64")]
    X86(x86::Keys),
}

impl Aes128 {
    /// Expands `key` for the fastest kernel of this CPU.
    pub fn new(key: Block) -> Self {
        Self::with_cpu(Cpu::best(), key)
    }

    /// As [`Self::new`], for the fastest kernel of `cpu`.
    pub fn with_cpu(cpu: Cpu, key: Block) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(keys) = x86::Keys::expand(cpu, key) {
            return Self { cpu, keys: Keys::X86(keys) };
        }
        Self { cpu, keys: Keys::Portable(portable::Cipher::new(key)) }
    }

    /// The instruction sets from which the kernel was chosen.
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// Encrypts every block in place.
    pub fn encrypt(&self, blocks: &mut [Block]) {
        match &self.keys {
            Keys::Portable(c) => c.encrypt(blocks),
            #[cfg(target_arch = "x86_64")]
            Keys::X86(k) => k.encrypt(blocks),
        }
    }

    /// `out[i] = AES(tweak || counter + i)`: `tweak` is the high half of the plaintext block, the
    /// counter (wrapping at 2^64) the low half.
    pub fn counter(&self, tweak: u64, counter: u64, out: &mut [Block]) {
        for (i, b) in out.iter_mut().enumerate() {
            *b = Block((tweak as u128) << 64 | counter.wrapping_add(i as u64) as u128);
        }
        self.encrypt(out);
    }

    /// Fills `out` from the front with blocks of [`Aes128::counter`] (tweak 0), low word first, by
    /// whole vectors of the kernel only. Returns the number of words filled, which may be 0.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
    pub(crate) fn stream(&self, counter: u64, out: &mut [u64]) -> usize {
        match &self.keys {
            Keys::Portable(_) => 0,
            #[cfg(target_arch = "x86_64")]
            Keys::X86(k) => k.stream(counter, out),
        }
    }
}

impl Drop for Aes128 {
    fn drop(&mut self) {
        match &mut self.keys {
            Keys::Portable(_) => {} // the `aes` crate wipes it (feature `zeroize`)
            #[cfg(target_arch = "x86_64")]
            Keys::X86(k) => k.wipe(),
        }
    }
}

#[cfg(test)]
mod tests;
