//! Signed widening with dealt material: `n` to `n + extra` bits, for `|y| < 2^(n-2)`.
//!
//! `R = rho - c mod 2^n`, where the server draws `rho` from its stream and `c` is the client's share of
//! `y`. `y' = y + 2^(n-2)` has the top bit 0, so with `xh = y' + R mod 2^n` it is `xh - R + 2^n (1 - msb
//! xh) msb R`. The dealer gives the server its shares of `R`'s wrap and of `msb R`; the client
//! needs only the top bit of `xh`. The low bits of its share stay those of `c`.
//!
//! Cost per element: `2 extra` bits of material at the server; online 1 bit down, `extra` bits up; exact.

use tacit_arith::prg::Prg;
use tacit_net::Tag;
use zeroize::Zeroizing;

use super::DealtHalf;
use super::deal::wrap;
use crate::codec::Packed;
use crate::gate::WrapSpec;
use crate::planes::{self, bit_plane};
use crate::wire::PackedMessages;
use crate::{MpcError, Session, draw_words, low_mask};

const TOP: Tag = Tag::new(0x0354, "top bits of masked values");
const MOVE: Tag = Tag::new(0x0355, "widening difference");

/// Bytes of the server's material.
#[must_use]
pub fn widen_bytes(spec: &WrapSpec) -> usize {
    2 * Packed::len_bytes(spec.n, spec.extra)
}

/// The client's shares of the wraps and of the top bits of `R`.
fn client_words(spec: &WrapSpec, client: &Prg) -> [Zeroizing<Vec<u64>>; 2] {
    let mut stream = client.fork(0);
    [0; 2].map(|_| draw_words(&mut stream, spec.n, spec.extra))
}

/// The server's material for a client that shares the values as `c` (`[n]`, below `2^width`).
#[must_use]
pub fn deal_widen(spec: &WrapSpec, c: &[u64], client: &Prg, server: &Prg) -> Vec<u8> {
    let rho = draw_words(&mut server.fork(0), spec.n, spec.width);
    let [client_wraps, client_signs] = client_words(spec, client);
    let (mut wraps, mut signs) = (Vec::with_capacity(spec.n), Vec::with_capacity(spec.n));
    for (i, (&c, &rho)) in c.iter().zip(rho.iter()).enumerate() {
        let secret = rho.wrapping_sub(c) & low_mask(spec.width);
        wraps.push(wrap(rho, c, secret, spec.width).wrapping_sub(client_wraps[i]));
        signs.push((secret >> (spec.width - 1)).wrapping_sub(client_signs[i]));
    }
    let mut out = crate::codec::Writer::default();
    [wraps, signs].iter().for_each(|list| out.packed(&Packed::new(list, spec.extra)));
    out.finish().to_vec()
}

/// `part + 2^n ((1 - msb xh) sign - wrap)`.
fn widen_share(spec: &WrapSpec, part: u64, top: bool, wrap: u64, sign: u64) -> u64 {
    let top_clear = u64::from(!top);
    part.wrapping_add((top_clear * sign).wrapping_sub(wrap) << spec.width) & low_mask(spec.width + spec.extra)
}

/// The client's online part: its share changes from `c` to `target` (equal in the low bits).
///
/// # Errors
/// Channel errors.
pub fn client_widen(
    spec: &WrapSpec,
    c: &[u64],
    target: &[u64],
    prg: &Prg,
    session: &mut Session<'_>,
) -> Result<(), MpcError> {
    let [wraps, signs] = client_words(spec, prg);
    let tops = planes::recv(session.channel, TOP, 1, spec.n)?;
    let differences = tops[0].iter().zip(c).zip(target).enumerate().map(|(i, ((top, &c), &target))| {
        // Subtracts the client's term of R, `-c mod 2^n`.
        let part = (c.wrapping_neg() & low_mask(spec.width)).wrapping_neg();
        widen_share(spec, part, top, wraps[i], signs[i]).wrapping_sub(target) >> spec.width
    });
    let differences: Vec<u64> = differences.collect();
    Ok(session.channel.send_packed(MOVE, &differences, spec.extra)?)
}

/// The server's online part: its share (`[n]`) in the wider ring.
///
/// # Errors
/// Channel errors; `Material` if `half` does not belong to this widening.
pub fn server_widen(
    spec: &WrapSpec,
    s: &[u64],
    half: DealtHalf<'_>,
    session: &mut Session<'_>,
) -> Result<Vec<u64>, MpcError> {
    let rho = draw_words(&mut half.prg.fork(0), spec.n, spec.width);
    let mut reader = crate::codec::Reader::new(half.bytes);
    let (wraps, signs) = (reader.packed(spec.n, spec.extra)?.values(), reader.packed(spec.n, spec.extra)?.values());
    let offset = 1u64 << (spec.width - 2);
    let opened: Vec<u64> =
        s.iter().zip(rho.iter()).map(|(s, r)| s.wrapping_add(offset).wrapping_add(*r) & low_mask(spec.width)).collect();
    let tops = bit_plane(&opened, spec.width - 1);
    planes::send_one(session.channel, TOP, &tops)?;
    let differences = session.channel.recv_packed(MOVE, spec.n, spec.extra)?;
    let mask = low_mask(spec.width + spec.extra);
    let shares = tops.iter().zip(&opened).zip(rho.iter().zip(differences)).enumerate();
    Ok(shares
        .map(|(i, ((top, &xh), (&rho, difference)))| {
            let part = xh.wrapping_sub(rho).wrapping_sub(offset);
            widen_share(spec, part, top, wraps[i], signs[i]).wrapping_add(difference << spec.width) & mask
        })
        .collect())
}
