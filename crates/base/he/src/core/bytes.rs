//! Serialization of polynomials in NTT form: prime by prime, N words packed to the prime's bits.

use super::Ring;
use crate::HeError;
use tacit_arith::pack;
use tacit_arith::prg::PublicSeed;
use tacit_arith::rns::{Ntt, RnsPoly};

/// Bytes of a serialized polynomial at `level`.
///
/// # Panics
/// If the ring has fewer than `level` primes.
pub fn polynomial_bytes(ring: &Ring, level: usize) -> usize {
    (0..level).map(|i| residue_bytes(ring, i)).sum()
}

/// Appends a serialized polynomial: [`polynomial_bytes`] of its level.
pub fn put_polynomial(ring: &Ring, poly: &RnsPoly<Ntt>, out: &mut Vec<u8>) {
    for i in 0..poly.level() {
        pack::pack(poly.residue(i).iter().copied(), ring.basis().modulus(i).bits(), out);
    }
}

/// Reads a peer's polynomial at `level`; `what` names the message.
///
/// # Errors
/// [`HeError::Length`] for a wrong number of bytes, [`HeError::Range`] for a word that is not below
/// its prime, [`HeError::Padding`] for padding bits that are set.
///
/// # Panics
/// If the ring has fewer than `level` primes.
pub fn take_polynomial(ring: &Ring, level: usize, bytes: &[u8], what: &'static str) -> Result<RnsPoly<Ntt>, HeError> {
    let expected = polynomial_bytes(ring, level);
    if bytes.len() != expected {
        return Err(HeError::Length { what, got: bytes.len(), expected });
    }
    let mut unread = bytes;
    let mut words = Vec::with_capacity(level * ring.degree());
    for i in 0..level {
        let (part, behind) = unread.split_at(residue_bytes(ring, i));
        let m = ring.basis().modulus(i);
        words.extend(pack::unpack(part, ring.degree(), m.bits(), m.value() - 1).map_err(HeError::packed(what))?);
        unread = behind;
    }
    Ok(RnsPoly::new(ring.basis(), words))
}

/// Splits a message of `expected` bytes into its seed and what follows.
pub(crate) fn take_seed<'a>(
    bytes: &'a [u8],
    expected: usize,
    what: &'static str,
) -> Result<(PublicSeed, &'a [u8]), HeError> {
    match bytes.split_first_chunk() {
        Some((&seed, packed)) if bytes.len() == expected => Ok((PublicSeed::from_bytes(seed), packed)),
        _ => Err(HeError::Length { what, got: bytes.len(), expected }),
    }
}

/// Bytes of N packed words mod `p_i`.
fn residue_bytes(ring: &Ring, i: usize) -> usize {
    let bits = ring.basis().modulus(i).bits();
    pack::packed_len(ring.degree(), bits).expect("a residue fits one word")
}
