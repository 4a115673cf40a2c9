//! Multiplexer: shares of `b * X` for a shared bit `b` and additively shared values. The client
//! knows its shares offline.
//!
//! The parties open `b ^ lambda` for a random shared bit `lambda = lc ^ ls`, so `b = D ^ lc ^ ls` with `D`
//! public online. The client's part `b X_c` needs `ls (1 - 2 lc) X_c`: one OT offline with the server's
//! choice `ls`. The server's part `b X_s` needs `lc (1 - 2 ls) X_s`: one OT with the client's choice `lc`.
//! The only message of this OT is sent online, before `D` is known; `D` flips signs locally. This is
//! [ABY2]-style masked evaluation: the correlated-OT multiplexer of [Chee22] sec. 5, split into two phases.
//!
//! Several values may depend on one bit (`widths`); their strings share the two OTs. With a wrap
//! (see `wrap`) the client's value is `known + 2^w mc mu`: a further string of `extra` bits carries
//! `b mc`, without further online bytes.
//!
//! A value that both parties know, held by the server ([`MuxSpec::constant`]), has no client part.
//! Its server part needs no online value: the server sends it offline and chooses `ls` itself.
//!
//! Cost per element: 1 ROT in each direction; offline `sum(widths) + extra` bits client to server;
//! online `sum(widths)` bits server to client and 1 bit each way for `D`. For a constant: 1 ROT
//! (client receives), its width server to client offline, and 1 bit each way online.

use tacit_arith::bits::Bits;
use tacit_net::Tag;

use super::wrap::WrapSpec;
use crate::codec::{Packed, Reader, Writer};
use crate::error::check_max;
use crate::ot::{ReceiverWords, SenderWords};
use crate::planes;
use crate::wire::PackedMessages;
use crate::{MpcError, Ots, Role, Session, low_mask};

const CLIENT_PART: Tag = Tag::new(0x0330, "multiplexer, client's part");
const SERVER_PART: Tag = Tag::new(0x0331, "multiplexer, server's part");
const OPENING: Tag = Tag::new(0x0332, "multiplexer opening");

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MuxSpec {
    /// Elements.
    pub n: usize,
    /// Ring of each multiplied value, in bits; together with the wrap's bits at most 64.
    pub widths: Vec<u32>,
    /// The widening of the first value, if any.
    pub wrap: Option<WrapSpec>,
    /// The one value, equal for all elements and held by the server, if constant.
    pub constant: Option<u64>,
}

impl MuxSpec {
    /// Widths of all strings of the client's part.
    pub(super) fn client_strings(&self) -> Vec<u32> {
        let mut widths = self.widths.clone();
        widths.extend(self.wrap.map(|w| w.extra));
        widths
    }

    /// Widths of the values whose server's part is sent online.
    pub(super) fn server_parts(&self) -> &[u32] {
        if self.constant.is_some() { &[] } else { &self.widths }
    }

    /// Refuses strings of more than 64 bits in all. They are cut from one word of OT output, and
    /// further bits would be sent unmasked.
    fn check(&self) -> Result<(), MpcError> {
        let bits = self.client_strings().iter().map(|&w| w as usize).sum();
        check_max("bits of a multiplexer's strings", bits, u64::BITS as usize)
    }
}

/// Position of a string in words that hold strings of the given widths, one behind the other.
#[derive(Clone, Copy)]
struct Field {
    shift: u32,
    mask: u64,
}

impl Field {
    /// The position of string `index` among strings of the given widths.
    fn new(widths: &[u32], index: usize) -> Self {
        Self { shift: widths[..index].iter().sum(), mask: low_mask(widths[index]) }
    }

    fn get(self, word: u64) -> u64 {
        word >> self.shift & self.mask
    }
}

/// `value` or, where the mask is all ones, its negative.
fn negate_if(value: u64, mask: u64) -> u64 {
    (value ^ mask).wrapping_sub(mask)
}

pub(super) struct ClientMux {
    lambda: Bits,
    /// For each string, the client's share of `lambda * X_c`. For a value, plus the pad of the
    /// server's part: the two are only used together.
    shares: Vec<Packed>,
}

pub(super) struct ServerMux {
    lambda: Bits,
    /// For each string, the server's share of `lambda * X_c`. For a value, minus the pad `p0` of
    /// its own part.
    shares: Vec<Packed>,
    /// For each value `p0 - p1`, the mask of its own part.
    pad_differences: Vec<Packed>,
}

impl ClientMux {
    /// Makes the client's material and sends the masked part of `values`, the client's values: one
    /// `[n]` per string (with a wrap, the last is `mc`). For a constant, receives the server's masked
    /// part instead.
    ///
    /// # Errors
    /// `OutOfRange` for strings of more than 64 bits in all.
    pub fn offline(
        spec: &MuxSpec,
        values: &[&[u64]],
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<Self, MpcError> {
        spec.check()?;
        if spec.constant.is_some() {
            return Self::of_constant(spec, session, ots);
        }
        let widths = spec.client_strings();
        let SenderWords { m0: q0, m1: q1 } = ots.sender.words(session.channel, spec.n)?;
        let ReceiverWords { choice: lambda, m: pads } = ots.receiver.words(session.channel, spec.n)?;
        let flips = lambda.masks();
        let mut shares = Vec::with_capacity(widths.len());
        for (index, (&width, x)) in widths.iter().zip(values).enumerate() {
            let field = Field::new(&widths, index);
            // All ones for a value, zero for the string of the wrap, which has no server's part.
            let value_mask = u64::from(index < spec.widths.len()).wrapping_neg();
            let [message, share] = Packed::pairs(spec.n, [width; 2], |start, [message, share]| {
                let strings = q0[start..].iter().zip(&q1[start..]).zip(&pads[start..]);
                let inputs = x[start..].iter().zip(&flips[start..]).zip(strings);
                for ((message, share), ((x, flip), ((a, b), pad))) in message.iter_mut().zip(share).zip(inputs) {
                    let a = field.get(*a);
                    *message = negate_if(*x, *flip).wrapping_add(a).wrapping_sub(field.get(*b));
                    *share = (x & flip).wrapping_sub(a).wrapping_add(pad >> field.shift & value_mask);
                }
            });
            session.channel.send(CLIENT_PART, message.bytes())?;
            shares.push(share);
        }
        Ok(Self { lambda, shares })
    }

    fn of_constant(spec: &MuxSpec, session: &mut Session<'_>, ots: &mut Ots) -> Result<Self, MpcError> {
        let width = spec.widths[0];
        let ReceiverWords { choice: lambda, m: mut shares } = ots.receiver.words(session.channel, spec.n)?;
        let message = session.channel.recv_packed(SERVER_PART, spec.n, width)?;
        for ((pad, t), chosen) in shares.iter_mut().zip(message).zip(lambda.masks()) {
            *pad = pad.wrapping_add(t & chosen);
        }
        Ok(Self { lambda, shares: vec![Packed::new(&shares, width)] })
    }

    /// Online, first: receives the server's masked part (after the server's `start`), for
    /// [`finish`](Self::finish).
    pub fn start(&self, spec: &MuxSpec, session: &mut Session<'_>) -> Result<Vec<Vec<u64>>, MpcError> {
        if spec.constant.is_some() {
            return Ok(Vec::new());
        }
        let chosen = self.lambda.masks();
        let masked = spec.widths.iter().map(|&width| {
            let mut part = session.channel.recv_packed(SERVER_PART, spec.n, width)?;
            part.iter_mut().zip(&chosen).for_each(|(t, chosen)| *t &= chosen);
            Ok(part)
        });
        masked.collect()
    }

    /// Online, last: opens the bit (the client's share of it is `bit`) and returns the client's
    /// shares of `b X`, one `[n]` per value. `values` are those of `offline`, `masked` is the
    /// result of `start`, `mu` is the wrap's message. Sends the client's opening without a flush.
    pub fn finish(
        self,
        spec: &MuxSpec,
        bit: &Bits,
        values: &[&[u64]],
        masked: &[Vec<u64>],
        mu: Option<&[u64]>,
        session: &mut Session<'_>,
    ) -> Result<Vec<Vec<u64>>, MpcError> {
        let flips = open(bit.xor(&self.lambda), session)?;
        let mut parts: Vec<Vec<u64>> = self.shares.iter().map(Packed::values).collect();
        for (part, masked) in parts.iter_mut().zip(masked) {
            part.iter_mut().zip(masked).for_each(|(z, t)| *z = z.wrapping_add(*t));
        }
        // The share of `b X`: `X_c` minus the share of `lambda X` where the opened bit is 1.
        for (part, x) in parts.iter_mut().zip(values) {
            for ((z, x), flip) in part.iter_mut().zip(*x).zip(&flips) {
                *z = negate_if(*z, *flip).wrapping_add(x & flip);
            }
        }
        let times_top = spec.wrap.and_then(|_| parts.pop());
        add_wrap(spec, &mut parts, times_top, mu);
        Ok(parts)
    }

    pub fn write(&self, out: &mut Writer) {
        out.planes(std::slice::from_ref(&self.lambda));
        self.shares.iter().for_each(|p| out.packed(p));
    }

    pub fn read(spec: &MuxSpec, reader: &mut Reader<'_>) -> Result<Self, MpcError> {
        let lambda = reader.plane(spec.n)?;
        let shares = spec.client_strings().iter().map(|&w| reader.packed(spec.n, w)).collect::<Result<_, _>>()?;
        Ok(Self { lambda, shares })
    }
}

impl ServerMux {
    /// Makes the server's material from the client's masked part. For a constant, sends the server's
    /// masked part instead.
    ///
    /// # Errors
    /// `OutOfRange` for strings of more than 64 bits in all.
    pub fn offline(spec: &MuxSpec, session: &mut Session<'_>, ots: &mut Ots) -> Result<Self, MpcError> {
        spec.check()?;
        if let Some(constant) = spec.constant {
            return Self::of_constant(spec, constant, session, ots);
        }
        let widths = spec.client_strings();
        let ReceiverWords { choice: lambda, m: words } = ots.receiver.words(session.channel, spec.n)?;
        let SenderWords { m0: p0, m1: p1 } = ots.sender.words(session.channel, spec.n)?;
        let chosen = lambda.masks();
        let (mut shares, mut pad_differences) =
            (Vec::with_capacity(widths.len()), Vec::with_capacity(spec.widths.len()));
        for (index, &width) in widths.iter().enumerate() {
            let message = session.channel.recv_packed(CLIENT_PART, spec.n, width)?;
            let field = Field::new(&widths, index);
            // All ones for a value, zero for the string of the wrap, which has no server's part.
            let value_mask = u64::from(index < spec.widths.len()).wrapping_neg();
            let [share, difference] = Packed::pairs(spec.n, [width; 2], |start, [share, difference]| {
                let pads = p0[start..].iter().zip(&p1[start..]);
                let inputs = words[start..].iter().zip(&message[start..]).zip(&chosen[start..]).zip(pads);
                for ((share, difference), (((q, e), chosen), (a, b))) in share.iter_mut().zip(difference).zip(inputs) {
                    let a = field.get(*a) & value_mask;
                    *share = field.get(*q).wrapping_add(e & chosen).wrapping_sub(a);
                    *difference = a.wrapping_sub(field.get(*b));
                }
            });
            if index < spec.widths.len() {
                pad_differences.push(difference);
            }
            shares.push(share);
        }
        Ok(Self { lambda, shares, pad_differences })
    }

    fn of_constant(spec: &MuxSpec, constant: u64, session: &mut Session<'_>, ots: &mut Ots) -> Result<Self, MpcError> {
        let width = spec.widths[0];
        let SenderWords { m0: mut p0, m1: p1 } = ots.sender.words(session.channel, spec.n)?;
        let lambda = Bits::random(session.prg, spec.n);
        let pads = p0.iter().zip(&p1).zip(lambda.masks());
        let message: Vec<u64> =
            pads.map(|((p0, p1), flip)| p0.wrapping_sub(*p1).wrapping_add(negate_if(constant, flip))).collect();
        session.channel.send_packed(SERVER_PART, &message, width)?;
        p0.iter_mut().for_each(|p| *p = p.wrapping_neg());
        Ok(Self { lambda, shares: vec![Packed::new(&p0, width)], pad_differences: Vec::new() })
    }

    /// Online, first: sends the masked part of the server's values, one `[n]` per value, unless
    /// they are constant.
    pub fn start(&self, spec: &MuxSpec, values: &[&[u64]], session: &mut Session<'_>) -> Result<(), MpcError> {
        let flips = self.lambda.masks();
        for ((x, differences), &width) in values.iter().zip(&self.pad_differences).zip(&spec.widths) {
            let mut masked = differences.values();
            for ((word, x), flip) in masked.iter_mut().zip(*x).zip(&flips) {
                *word = word.wrapping_add(negate_if(*x, *flip));
            }
            session.channel.send_packed(SERVER_PART, &masked, width)?;
        }
        Ok(())
    }

    /// Online, last: opens the bit and returns the server's shares of `b X`. Arguments as for the
    /// client.
    pub fn finish(
        self,
        spec: &MuxSpec,
        bit: &Bits,
        values: &[&[u64]],
        mu: Option<&[u64]>,
        session: &mut Session<'_>,
    ) -> Result<Vec<Vec<u64>>, MpcError> {
        let (flips, chosen) = (open(bit.xor(&self.lambda), session)?, self.lambda.masks());
        let mut parts: Vec<Vec<u64>> = self.shares.iter().map(Packed::values).collect();
        for (part, x) in parts.iter_mut().zip(values) {
            part.iter_mut().zip(*x).zip(&chosen).for_each(|((z, x), chosen)| *z = z.wrapping_add(x & chosen));
        }
        for part in &mut parts {
            part.iter_mut().zip(&flips).for_each(|(z, flip)| *z = negate_if(*z, *flip));
        }
        let times_top = spec.wrap.and_then(|_| parts.pop());
        for (part, x) in parts.iter_mut().zip(values) {
            part.iter_mut().zip(*x).zip(&flips).for_each(|((z, x), flip)| *z = z.wrapping_add(x & flip));
        }
        add_wrap(spec, &mut parts, times_top, mu);
        Ok(parts)
    }

    pub fn write(&self, out: &mut Writer) {
        out.planes(std::slice::from_ref(&self.lambda));
        self.shares.iter().chain(&self.pad_differences).for_each(|p| out.packed(p));
    }

    pub fn read(spec: &MuxSpec, reader: &mut Reader<'_>) -> Result<Self, MpcError> {
        let lambda = reader.plane(spec.n)?;
        let shares = spec.client_strings().iter().map(|&w| reader.packed(spec.n, w)).collect::<Result<_, _>>()?;
        let pad_differences =
            spec.server_parts().iter().map(|&w| reader.packed(spec.n, w)).collect::<Result<_, _>>()?;
        Ok(Self { lambda, shares, pad_differences })
    }
}

/// Opens a bit of each element; returns all ones where it is 1. The server sends first.
fn open(own_bits: Bits, session: &mut Session<'_>) -> Result<Vec<u64>, MpcError> {
    let (n, own_bits, sends_first) = (own_bits.len(), [own_bits], session.role == Role::Server);
    let peer_bits = planes::exchange(session.channel, OPENING, &own_bits, n, sends_first)?;
    Ok(own_bits[0].xor(&peer_bits[0]).masks())
}

/// Adds `2^w mu (b mc)` to the first value and reduces all values into their rings.
fn add_wrap(spec: &MuxSpec, parts: &mut [Vec<u64>], times_top: Option<Vec<u64>>, mu: Option<&[u64]>) {
    if let (Some(wrap), Some(top), Some(mu), Some(first)) = (spec.wrap, times_top, mu, parts.first_mut()) {
        for ((z, t), m) in first.iter_mut().zip(top).zip(mu) {
            *z = z.wrapping_add(t.wrapping_mul(*m) << wrap.width);
        }
    }
    for (part, &width) in parts.iter_mut().zip(&spec.widths) {
        part.iter_mut().for_each(|z| *z &= low_mask(width));
    }
}
