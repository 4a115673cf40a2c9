//! Signed widening: brings shares of a signed value from a ring of n bits into one of n + extra
//! bits, without a comparison.
//!
//! Let y be the value, with `|y| < 2^(n-2)`, shared as `y = c + s` by client and server. The server
//! has a mask rho and computes `xh = s + 2^(n-2) + rho mod 2^n`. With `R = rho - c mod 2^n` and m
//! the top bit of xh,
//! ```text
//! y + 2^(n-2) = xh - R + 2^n (1 - m) msb(R)
//! ```
//! holds in the wider ring. The server opens m. The right side without xh depends on m alone: the
//! client has a constant for either m and sends that for the opened one, with which the server gets
//! its share. If both parties are checked, both have xh, and R is the dealer's alone
//! ([`shared_widen`](super::shared_widen)).

use tacit_arith::prg::Prg;
use tacit_net::{Sides, Tag};
use zeroize::Zeroizing;

use super::super::mac::ring::{Key, Share};
use super::check_transcript::CheckTranscript;
use super::columns::{self, Constants, ServerConstants};
use super::deal::wrapped;
use super::party::check_len;
use super::{Checked, FssWiden};
use crate::dealt::DealtHalf;
use crate::planes::{self, bit_plane};
use crate::wire::PackedMessages;
use crate::{MpcError, Session, draw_words, low_mask};

const TOPS: Tag = Tag::new(0x0366, "top bits of masked values");
pub(super) const WORDS: Tag = Tag::new(0x0367, "checked words of a widening");

fn rho(spec: &FssWiden, server: &Prg) -> Zeroizing<Vec<u64>> {
    draw_words(&mut server.fork(0), spec.n, spec.width)
}

/// The client's constants for top bits 0 and 1.
pub(super) fn constants(spec: &FssWiden, client: &Prg) -> [Constants; 2] {
    let mut stream = client.fork(0);
    [0, 1].map(|_| Constants::draw(&mut stream, spec.ring(), spec.n))
}

/// The server's material for values that the client shares as `c` and ends with as `target`, each
/// `[n]`.
#[must_use]
pub fn deal_widen(spec: &FssWiden, key: &Key, streams: Sides<&Prg>, c: &[u64], target: &[u64]) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(spec.server_bytes()));
    let rho = match spec.checked {
        Checked::Client => rho(spec, streams.server),
        Checked::Both => Zeroizing::new(vec![0; spec.n]),
    };
    for (top, constants) in constants(spec, streams.client).iter().enumerate() {
        let needed = |i: usize| {
            let secret = rho[i].wrapping_sub(c[i]) & low_mask(spec.width);
            wrapped(secret, spec.width, top == 0).wrapping_add(target[i]).wrapping_neg()
        };
        columns::write(constants, key, spec.checked, needed, &mut out);
    }
    out
}

/// The client's online part; its share of the results is the dealt target.
///
/// # Errors
/// Channel errors.
pub fn client_widen(
    spec: &FssWiden,
    prg: &Prg,
    session: &mut Session<'_>,
    transcript: &mut CheckTranscript,
) -> Result<(), MpcError> {
    let constants = constants(spec, prg);
    let tops = planes::recv_one(session.channel, TOPS, spec.n)?;
    let words = tops.iter().enumerate().map(|(i, top)| constants[usize::from(top)].get(i));
    let words: Zeroizing<Vec<Share>> = Zeroizing::new(words.collect());
    let wide = spec.width + spec.extra;
    let low: Vec<u64> = words.iter().map(|w| w.value as u64 & low_mask(wide)).collect();
    session.channel.send_packed(WORDS, &low, wide)?;
    transcript.values(wide, words.iter().cloned(), low.iter().copied());
    Ok(())
}

/// The server's online part: its share (`[n]`) in the wider ring, of values that it shares as `s`.
///
/// # Errors
/// Channel errors; `Material` if `half` does not belong to this widening.
pub fn server_widen(
    spec: &FssWiden,
    s: &[u64],
    half: DealtHalf<'_>,
    session: &mut Session<'_>,
    transcript: &mut CheckTranscript,
) -> Result<Vec<u64>, MpcError> {
    check_len(half.bytes, spec.server_bytes())?;
    let (mut unread, wide) = (half.bytes, spec.width + spec.extra);
    let constants = [0, 1].map(|_| ServerConstants::take(&mut unread, spec.ring(), spec.n));
    let offset = 1u64 << (spec.width - 2);
    let rho = rho(spec, half.prg);
    let masked = s.iter().zip(rho.iter()).map(|(s, r)| s.wrapping_add(offset).wrapping_add(*r));
    let masked: Vec<u64> = masked.map(|xh| xh & low_mask(spec.width)).collect();
    let tops = bit_plane(&masked, spec.width - 1);
    planes::send_one(session.channel, TOPS, &tops)?;
    let received = session.channel.recv_packed(WORDS, spec.n, wide)?;
    let known: Vec<(u64, u128)> = tops.iter().enumerate().map(|(i, top)| constants[usize::from(top)].get(i)).collect();
    let mask = spec.ring().mask();
    let shares = known.iter().map(|(_, key)| Share { value: 0, tag: key.wrapping_neg() & mask });
    transcript.values(wide, shares, received.iter().copied());
    let results = masked.iter().zip(&known).zip(&received).map(|((xh, (known, _)), word)| {
        xh.wrapping_sub(offset).wrapping_add(*known).wrapping_add(*word) & low_mask(wide)
    });
    Ok(results.collect())
}
