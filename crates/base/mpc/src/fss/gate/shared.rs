//! Gates and widening if both parties are checked. Both parties hold the same masked value `x + R`;
//! the dealer alone knows R. Both hold tagged shares of all functions of R that a gate needs, so both
//! take the same steps. The parties open the bit q and then, for each value, a word
//! `(1 - 2q) lambda P + D`. D is the dealer's `(mask of the result) - (q ^ lambda) Q_m`. The masked
//! result is that word plus `q P`, and the masked base where the value has one.
//!
//! Notation: y is the tested value, `lambda` the dealer's random bit that masks its sign, and
//! `q = [y >= 0] ^ lambda`. A gate multiplies `[y >= 0]` by `X = P - Q_m`: P is public (a masked value
//! or -1), Q is its mask (0 for -1), which the dealer alone knows. Where the result's ring is wider
//! than y's, Q depends on m, the top bit of the masked y.

use rayon::prelude::*;
use tacit_arith::prg::Prg;
use tacit_net::{Channel, Tag};
use zeroize::Zeroizing;

use super::super::mac::ring::{Ring, Share};
use super::check_transcript::CheckTranscript;
use super::columns::Shared;
use super::deal::BatchId;
use super::party::{self, BITS, Columns, branch, check_len, public_factors};
use super::spec::ring;
use super::{FssGate, FssWiden, PIECE, widen};
use crate::dealt::ServerShares;
use crate::wire::PackedMessages;
use crate::{MpcError, Role, Session, low_mask};

/// A party's half of a batch.
#[derive(Clone, Copy)]
pub enum Half<'a> {
    /// The client: the stream of its seed for the batch, and correction words.
    Client(&'a Prg, &'a [u8]),
    /// The server: all material is dealt.
    Server(&'a [u8]),
}

/// Opens lists of words: sends the low bits of a party's shares, and enters the opened words into
/// the transcript. The client sends all of its own first.
///
/// # Errors
/// Channel errors.
pub fn open_words(
    words: &[(Ring, Zeroizing<Vec<Share>>)],
    tag: Tag,
    session: &mut Session<'_>,
    transcript: &mut CheckTranscript,
) -> Result<Vec<Vec<u64>>, MpcError> {
    let own_words = words.iter().map(|(ring, shares)| shares.iter().map(|share| ring.low(share)).collect());
    let own_words: Vec<Vec<u64>> = own_words.collect();
    let send = |channel: &mut Channel| {
        own_words.iter().zip(words).try_for_each(|(list, (ring, _))| channel.send_packed(tag, list, ring.width()))
    };
    if session.role == Role::Client {
        send(session.channel)?;
    }
    let mut received = Vec::new();
    for (ring, shares) in words {
        received.push(session.channel.recv_packed(tag, shares.len(), ring.width())?);
    }
    if session.role == Role::Server {
        send(session.channel)?;
        // Lets the client continue with the next step.
        session.channel.flush()?;
    }
    for (((ring, shares), own_words), received) in words.iter().zip(&own_words).zip(&mut received) {
        let sums =
            own_words.iter().zip(received.iter()).map(|(word, received)| u128::from(*word) + u128::from(*received));
        transcript.values(ring.width(), shares.iter().cloned(), sums);
        received.iter_mut().zip(own_words).for_each(|(r, word)| *r = r.wrapping_add(*word) & low_mask(ring.width()));
    }
    Ok(received)
}

fn columns<'a>(gate: &FssGate, half: Half<'a>, index: usize, len: usize) -> Columns<'a> {
    match half {
        Half::Client(prg, _) => party::draw_columns(gate, prg, index, len),
        Half::Server(material) => {
            let mut unread = gate.piece_words(material, index);
            let slope = Shared::take(&mut unread, gate.slope(), len);
            Columns::new(gate, slope, |ring| Shared::take(&mut unread, ring, len))
        }
    }
}

/// A batch of gates: the masked results, one `[n]` for each value, of the masked values `shares`,
/// the same at both parties. `batch` must be that of the dealing.
///
/// # Errors
/// Channel errors; `Material` if the half does not belong to this gate.
pub fn shared_online(
    gate: &FssGate,
    batch: BatchId,
    shares: ServerShares<'_>,
    half: Half<'_>,
    session: &mut Session<'_>,
    transcript: &mut CheckTranscript,
) -> Result<Vec<Vec<u64>>, MpcError> {
    let (n, cost) = (gate.n(), gate.cost());
    match half {
        Half::Client(_, corrections) => check_len(corrections, cost.client_material)?,
        Half::Server(material) => check_len(material, cost.server_material)?,
    }
    let ServerShares { tested, values, bases } = shares;
    let masked: Vec<Vec<u64>> = gate.inputs(tested, values).map(<[u64]>::to_vec).collect();
    let shape = gate.comparison().0;
    let tags = party::blocks(gate, batch, &masked[0], |index, len| match half {
        Half::Client(prg, corrections) => party::client_keys(shape, prg, corrections, index, len, len),
        Half::Server(material) => party::server_keys(shape, gate.piece(material, index), len, len),
    })?;
    let bits = transcript.open_bits(&tags, BITS, session)?;
    let pieces = (0..n.div_ceil(PIECE))
        .into_par_iter()
        .map(|index| party::words(gate, &masked, &bits, index, |len| columns(gate, half, index, len)));
    let pieces: Vec<Vec<Zeroizing<Vec<Share>>>> = pieces.collect();
    let shares = |k: usize| Zeroizing::new(pieces.iter().flat_map(|piece| piece[k].iter().cloned()).collect());
    let words: Vec<_> = gate.values().iter().enumerate().map(|(k, v)| (ring(v.width()), shares(k))).collect();
    let mut words = open_words(&words, party::WORDS, session, transcript)?;
    for i in 0..n {
        for (k, p) in public_factors(gate.values(), &masked, i).enumerate() {
            let value = gate.values()[k];
            let (q, _) = branch(gate, value, &bits, masked[0][i], i);
            let addend = if q { p } else { 0 }.wrapping_add(bases.get(k).map_or(0, |base| base[i]));
            words[k][i] = words[k][i].wrapping_add(addend) & low_mask(value.width());
        }
    }
    Ok(words)
}

/// Widening: the masked results (`[n]`) of masked values, the same at both parties.
///
/// # Errors
/// Channel errors; `Material` if the half does not belong to this widening.
pub fn shared_widen(
    spec: &FssWiden,
    masked: &[u64],
    half: Half<'_>,
    session: &mut Session<'_>,
    transcript: &mut CheckTranscript,
) -> Result<Vec<u64>, MpcError> {
    let constants = match half {
        Half::Client(prg, _) => widen::constants(spec, prg).map(Shared::Drawn),
        Half::Server(material) => {
            check_len(material, spec.server_bytes())?;
            let mut unread = material;
            [0, 1].map(|_| Shared::take(&mut unread, spec.ring(), spec.n))
        }
    };
    let (offset, wide) = (1u64 << (spec.width - 2), spec.width + spec.extra);
    let masked: Vec<u64> = masked.iter().map(|xh| xh.wrapping_add(offset) & low_mask(spec.width)).collect();
    let words = masked.iter().map(|xh| (xh >> (spec.width - 1)) as usize).enumerate();
    let words: Vec<Share> = words.map(|(i, top)| constants[top].get(i)).collect();
    let words = [(spec.ring(), Zeroizing::new(words))];
    let mut opened = open_words(&words, widen::WORDS, session, transcript)?.pop().expect("one list was opened");
    let pairs = opened.iter_mut().zip(&masked);
    pairs.for_each(|(word, xh)| *word = xh.wrapping_sub(offset).wrapping_add(*word) & low_mask(wide));
    Ok(opened)
}
