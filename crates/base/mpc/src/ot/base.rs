//! Base OT of random keys over Ristretto255: the protocol of Chou and Orlandi (eprint 2015/267, figure 1),
//! used as a random OT. It is secure against semi-honest parties under CDH in the random-oracle model.
//!
//! Sender: `a`, `A = aG`. Receiver with choice `c`: `B = bG + cA`, key `H(i, A, B, bA)`. Sender:
//! keys `H(i, A, B, aB)` and `H(i, A, B, a(B - A))`. One round, 32 bytes to the receiver and 32 per
//! OT back. `B` is uniform for any `c`; the other key is the hash of a Diffie-Hellman value that
//! the receiver cannot compute.

use curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity;
use tacit_arith::bits::Bits;
use tacit_arith::block::Block;
use tacit_arith::prg::Prg;
use tacit_net::{Channel, Tag};
use zeroize::{Zeroize, Zeroizing};

use super::POINT_BYTES;
use crate::MpcError;
use crate::error::misbehaviour;
use crate::hash::hash;

const KEY: Tag = Tag::new(0x0201, "base OT key");
const CHOICES: Tag = Tag::new(0x0202, "base OT choices");

fn scalar(prg: &mut Prg) -> Zeroizing<Scalar> {
    let mut wide = Zeroizing::new([0; 64]);
    prg.fill_bytes(&mut *wide);
    Zeroizing::new(Scalar::from_bytes_mod_order_wide(&wide))
}

/// Reads a group element of the peer.
fn point(bytes: &[u8]) -> Result<RistrettoPoint, MpcError> {
    let wrong = MpcError::Misbehaviour { step: "base OT", what: "bytes that are not a group element" };
    CompressedRistretto::from_slice(bytes).ok().and_then(|c| c.decompress()).ok_or(wrong)
}

/// Hashes the shared element of OT `index` with the transcript.
fn key(context: u8, index: usize, a: &[u8], b: &[u8], shared: &RistrettoPoint) -> Block {
    let (index, shared) = ((index as u64).to_le_bytes(), shared.compress());
    hash(&[b"tacit base OT 1", &[context], &index, a, b, shared.as_bytes()])
}

/// The sender between its two steps.
pub(super) struct Sender {
    secret: Zeroizing<Scalar>,
    public: RistrettoPoint,
    context: u8,
}

impl Sender {
    /// Step 1: sends `A`. `context` separates instances; both parties give the same.
    pub(super) fn start(ch: &mut Channel, prg: &mut Prg, context: u8) -> Result<Self, MpcError> {
        let secret = scalar(prg);
        let public = &*secret * RISTRETTO_BASEPOINT_TABLE;
        ch.send(KEY, public.compress().as_bytes())?;
        Ok(Self { secret, public, context })
    }

    /// Step 3: receives `n` choices and returns both keys of every OT.
    pub(super) fn finish(self, ch: &mut Channel, n: usize) -> Result<Vec<[Block; 2]>, MpcError> {
        let bytes = ch.recv(CHOICES, n * POINT_BYTES)?;
        let a = self.public.compress();
        let mut square = *self.secret * self.public;
        let keys = bytes.chunks(POINT_BYTES).enumerate().map(|(i, b)| {
            let mut shared = *self.secret * point(b)?;
            let keys = [
                key(self.context, i, a.as_bytes(), b, &shared),
                key(self.context, i, a.as_bytes(), b, &(shared - square)),
            ];
            shared.zeroize();
            Ok(keys)
        });
        let keys = keys.collect();
        square.zeroize();
        keys
    }
}

/// Step 2, the receiver's only one: receives `A`, sends one element per choice, and returns the
/// chosen keys.
pub(super) fn receive(ch: &mut Channel, prg: &mut Prg, choices: &Bits, context: u8) -> Result<Vec<Block>, MpcError> {
    let a = ch.recv(KEY, POINT_BYTES)?;
    let public = point(&a)?;
    if public == RistrettoPoint::identity() {
        return misbehaviour("base OT", "the neutral element as a key");
    }
    let mut message = Vec::with_capacity(choices.len() * POINT_BYTES);
    let mut keys = Vec::with_capacity(choices.len());
    for (i, choice) in choices.iter().enumerate() {
        let b = scalar(prg);
        // The choice is a scalar 0 or 1 of a constant-time multiplication: no branch depends on it.
        let mut choice = Scalar::from(choice as u8);
        let sum = (&*b * RISTRETTO_BASEPOINT_TABLE + choice * public).compress();
        choice.zeroize();
        let mut shared = *b * public;
        keys.push(key(context, i, &a, sum.as_bytes(), &shared));
        shared.zeroize();
        message.extend_from_slice(sum.as_bytes());
    }
    ch.send(CHOICES, &message)?;
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_pair;
    use crate::tests::prg;

    #[test]
    fn receiver_gets_the_chosen_keys_only() {
        let choices = Bits::random(&mut prg(3), 20);
        let (keys, chosen) = run_pair(
            |ch| {
                let sender = Sender::start(ch, &mut prg(1), 5).unwrap();
                sender.finish(ch, 20).unwrap()
            },
            |ch| receive(ch, &mut prg(2), &choices, 5).unwrap(),
        );
        for (i, (pair, actual)) in keys.iter().zip(&chosen).enumerate() {
            assert!(pair[choices.get(i) as usize] == *actual && pair[!choices.get(i) as usize] != *actual);
        }
        assert_eq!(keys.len(), 20);
    }

    #[test]
    fn bad_elements_are_errors() {
        let bad = |bytes: Vec<u8>| {
            run_pair(|ch| receive(ch, &mut prg(2), &Bits::zeros(2), 0), move |ch| ch.send(KEY, &bytes).unwrap()).0
        };
        for byte in [0xff, 0] {
            assert!(matches!(bad(vec![byte; 32]), Err(MpcError::Misbehaviour { .. })), "{byte}");
        }
        assert!(matches!(bad(vec![0; 31]), Err(MpcError::Net(_))));
        let (result, ()) = run_pair(
            |ch| Sender::start(ch, &mut prg(1), 0).unwrap().finish(ch, 1),
            |ch| {
                // Reads the key first: a disconnected peer would cause another error.
                ch.recv(KEY, 32).unwrap();
                ch.send(CHOICES, &[0xff; 32]).unwrap();
            },
        );
        assert!(matches!(result, Err(MpcError::Misbehaviour { .. })));
    }
}
