//! Widening without a wrap error: the carry out of `w` bits of a value whose top bit is known to be zero.
//!
//! For `y = s + c mod 2^w` with `|y| < 2^(w-2)` the server adds `2^(w-2)` to its share. The top bit of the
//! sum is then zero. So, as integers, `y + 2^(w-2) = s' + c - 2^w (ms + mc - ms mc)` with the top bits `ms`
//! and `mc` of the two shares ([Chee22] sec. 5.2, known-MSB truncation; signed by the offset).
//!
//! The product `ms mc` is needed modulo 2^k only, `k = v - w` for a target ring of `v` bits. It takes one OT
//! with the client's choice `mc`, derandomised offline. The client's result is `h + mc mu`: the client knows
//! `h` offline, and `mu` is the one message of the online phase. The server's share is `-h0`. Exact.
//!
//! Cost per element: 1 ROT (client receives); offline 1 bit client to server; online `k` bits server to
//! client.

use tacit_net::Tag;

use crate::codec::{Packed, Reader, Writer};
use crate::ot::{ReceiverWords, SenderWords};
use crate::planes::{self, bit_plane};
use crate::wire::PackedMessages;
use crate::{MpcError, Ots, Session, low_mask};

const CHOICE: Tag = Tag::new(0x0320, "wrap choices");
const MESSAGE: Tag = Tag::new(0x0321, "wrap message");

/// Public shape of a batch of widenings from `width` to `width + extra` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrapSpec {
    /// Elements.
    pub n: usize,
    /// Ring of the input, in bits (at least 3).
    pub width: u32,
    /// Extra bits of the target ring.
    pub extra: u32,
}

impl WrapSpec {
    pub(super) fn ring(&self) -> u64 {
        low_mask(self.width + self.extra)
    }

    pub(super) fn top(&self, share: u64) -> u64 {
        (share >> (self.width - 1)) & 1
    }
}

/// The client's material.
pub struct ClientWrap {
    h: Packed,
}

/// The server's material.
pub struct ServerWrap {
    h0: Packed,
    step: Packed,
}

impl ClientWrap {
    /// Offline, with the client's share `c` (`[n]`, in `[0, 2^width)`).
    ///
    /// # Errors
    /// Channel and OT errors.
    pub fn offline(spec: &WrapSpec, c: &[u64], session: &mut Session<'_>, ots: &mut Ots) -> Result<Self, MpcError> {
        let ReceiverWords { choice, m: words } = ots.receiver.words(session.channel, spec.n)?;
        let top = bit_plane(c, spec.width - 1);
        planes::send(session.channel, CHOICE, &[choice.xor(&top)])?;
        Ok(Self { h: Packed::new(&words, spec.extra) })
    }

    /// The offline part of the client's widened share: `c - 2^w mc + 2^w h`, `[n]`, in the target
    /// ring. The rest is `2^w mc mu`.
    pub fn known(&self, spec: &WrapSpec, c: &[u64]) -> Vec<u64> {
        let pairs = c.iter().zip(self.h.values());
        pairs
            .map(|(&c, h)| c.wrapping_sub(spec.top(c) << spec.width).wrapping_add(h << spec.width) & spec.ring())
            .collect()
    }

    /// Online, without a multiplexer: the client's widened share, `[n]` in the target ring. Its low
    /// `width` bits are those of `c`.
    ///
    /// # Errors
    /// Channel errors.
    pub fn online(self, spec: &WrapSpec, c: &[u64], session: &mut Session<'_>) -> Result<Vec<u64>, MpcError> {
        let mu = Self::message(spec, session)?;
        let known = self.known(spec, c).into_iter().zip(c).zip(mu);
        Ok(known.map(|((k, &c), mu)| k.wrapping_add((spec.top(c) * mu) << spec.width) & spec.ring()).collect())
    }

    /// Online: receives `mu` (`[n]`, below `2^extra`).
    ///
    /// # Errors
    /// Channel errors.
    pub fn message(spec: &WrapSpec, session: &mut Session<'_>) -> Result<Vec<u64>, MpcError> {
        Ok(session.channel.recv_packed(MESSAGE, spec.n, spec.extra)?)
    }

    /// Writes the material.
    pub fn write(&self, out: &mut Writer) {
        out.packed(&self.h);
    }

    /// Reads the material.
    ///
    /// # Errors
    /// `Material` if too few bytes are left.
    pub fn read(spec: &WrapSpec, reader: &mut Reader<'_>) -> Result<Self, MpcError> {
        Ok(Self { h: reader.packed(spec.n, spec.extra)? })
    }
}

impl ServerWrap {
    /// Offline.
    ///
    /// # Errors
    /// Channel and OT errors.
    pub fn offline(spec: &WrapSpec, session: &mut Session<'_>, ots: &mut Ots) -> Result<Self, MpcError> {
        let SenderWords { mut m0, mut m1 } = ots.sender.words(session.channel, spec.n)?;
        let swap = planes::recv(session.channel, CHOICE, 1, spec.n)?;
        for ((a, b), swap) in m0.iter_mut().zip(&mut m1).zip(swap[0].masks()) {
            let t = (*a ^ *b) & swap;
            *a ^= t;
            *b ^= t;
        }
        let step: Vec<u64> = m0.iter().zip(&m1).map(|(a, b)| a.wrapping_sub(*b)).collect();
        Ok(Self { h0: Packed::new(&m0, spec.extra), step: Packed::new(&step, spec.extra) })
    }

    /// Online: sends `mu` and returns it with the server's widened share (`[n]`, in the target
    /// ring).
    ///
    /// # Errors
    /// Channel errors.
    pub fn online(
        &self,
        spec: &WrapSpec,
        s: &[u64],
        session: &mut Session<'_>,
    ) -> Result<(Vec<u64>, Vec<u64>), MpcError> {
        let offset = 1u64 << (spec.width - 2);
        let (mut mu, mut share) = (Vec::with_capacity(spec.n), Vec::with_capacity(spec.n));
        for ((&s, h0), step) in s.iter().zip(self.h0.values()).zip(self.step.values()) {
            let shifted = s.wrapping_add(offset) & low_mask(spec.width);
            let top = spec.top(shifted);
            mu.push(top.wrapping_add(step) & low_mask(spec.extra));
            let high = top.wrapping_add(h0) << spec.width;
            share.push(shifted.wrapping_sub(high).wrapping_sub(offset) & spec.ring());
        }
        session.channel.send_packed(MESSAGE, &mu, spec.extra)?;
        Ok((mu, share))
    }

    /// Writes the material.
    pub fn write(&self, out: &mut Writer) {
        out.packed(&self.h0);
        out.packed(&self.step);
    }

    /// Reads the material.
    ///
    /// # Errors
    /// `Material` if too few bytes are left.
    pub fn read(spec: &WrapSpec, reader: &mut Reader<'_>) -> Result<Self, MpcError> {
        Ok(Self { h0: reader.packed(spec.n, spec.extra)?, step: reader.packed(spec.n, spec.extra)? })
    }
}
