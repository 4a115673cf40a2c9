//! Conversion of shares over a prime field to shares in a ring, for values that are small in the
//! field.
//!
//! For `y = c + s mod p` with `|y| <= p / 4` the server adds `p / 4` to its share. The sum then
//! stands for a value of at most `(p - 1) / 2`. So, as an integer, it is
//! `c + s' - p (mc + ms - mc ms)`, where `mc` and `ms` say whether a share is above `(p - 1) / 2`.
//! Two shares above must wrap, two below cannot, and one above without a wrap would be too large.
//!
//! A wrap needs a comparison in general ([CF2-20] sec. 5). Here it needs one product of two known
//! bits, times p in the ring: one OT with the client's choice `mc`. Exact.
//!
//! The parties know both shares before the input if the client knows its share of a tensor. Then
//! everything runs offline and leaves no material.
//!
//! Cost per element: 1 ROT (client receives), 1 bit client to server, `width` bits server to client.

use tacit_net::{Sides, Tag};

use crate::ot::{ReceiverWords, SenderWords};
use crate::planes;
use crate::wire::PackedMessages;
use crate::{MpcError, Ots, Session, low_mask};

const CHOICE: Tag = Tag::new(0x0322, "lift choices");
const MESSAGE: Tag = Tag::new(0x0323, "lift message");

/// Public shape of a batch of lifts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiftSpec {
    /// Elements.
    pub n: usize,
    /// The field: an odd prime below 2^62.
    pub prime: u64,
    /// Ring of the results, in bits.
    pub width: u32,
}

impl LiftSpec {
    /// 1 for shares above `(p - 1) / 2`.
    fn top_bit(&self, share: u64) -> u64 {
        ((self.prime / 2).wrapping_sub(share)) >> 63
    }

    /// Payload bytes that each party sends.
    #[must_use]
    pub fn bytes(&self) -> Sides<usize> {
        Sides { client: self.n.div_ceil(8), server: (self.n * self.width as usize).div_ceil(8) }
    }

    /// The client's shares in the ring (`[n]`), from its shares in the field (`[n]`, reduced).
    ///
    /// # Errors
    /// Channel and OT errors.
    pub fn client(&self, c: &[u64], session: &mut Session<'_>, ots: &mut Ots) -> Result<Vec<u64>, MpcError> {
        let ReceiverWords { choice, m: words } = ots.receiver.words(session.channel, self.n)?;
        let tops: Vec<u64> = c.iter().map(|&c| self.top_bit(c)).collect();
        planes::send(session.channel, CHOICE, &[choice.xor(&planes::bit_plane(&tops, 0))])?;
        session.channel.flush()?;
        let message = session.channel.recv_packed(MESSAGE, self.n, self.width)?;
        let known = c.iter().zip(&tops).zip(words.iter().zip(message));
        Ok(known
            .map(|((c, &top), (pad, mu))| {
                let product = pad.wrapping_add(top * mu);
                c.wrapping_add(self.prime.wrapping_mul(product.wrapping_sub(top))) & low_mask(self.width)
            })
            .collect())
    }

    /// The server's shares in the ring (`[n]`), from its shares in the field (`[n]`, reduced).
    ///
    /// # Errors
    /// Channel and OT errors.
    pub fn server(&self, s: &[u64], session: &mut Session<'_>, ots: &mut Ots) -> Result<Vec<u64>, MpcError> {
        let SenderWords { m0, m1 } = ots.sender.words(session.channel, self.n)?;
        let swap = planes::recv(session.channel, CHOICE, 1, self.n)?;
        let offset = self.prime / 4;
        let (mut message, mut share) = (Vec::with_capacity(self.n), Vec::with_capacity(self.n));
        for (((&s, m0), m1), swap) in s.iter().zip(m0).zip(m1).zip(swap[0].masks()) {
            let t = (m0 ^ m1) & swap;
            let (k0, k1) = (m0 ^ t, m1 ^ t);
            // s + offset mod p, without a branch.
            let shifted = s + offset;
            let shifted = shifted.min(shifted.wrapping_sub(self.prime));
            let top = self.top_bit(shifted);
            message.push(top.wrapping_add(k0).wrapping_sub(k1));
            let wrapped = self.prime.wrapping_mul(top.wrapping_add(k0));
            share.push(shifted.wrapping_sub(wrapped).wrapping_sub(offset) & low_mask(self.width));
        }
        session.channel.send_packed(MESSAGE, &message, self.width)?;
        session.channel.flush()?;
        Ok(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::run_sessions;
    use crate::tests::{add, assert_sent};
    use proptest::prelude::*;
    use tacit_net::Phase;

    fn run_lift(spec: LiftSpec, c: &[u64], s: &[u64]) -> Vec<u64> {
        let (client_result, server_result) = run_sessions(
            7,
            |session, mut ots| {
                let share = spec.client(c, session, &mut ots).expect("the client");
                (share, session.channel.traffic(Phase::Setup).sent)
            },
            |session, mut ots| {
                let share = spec.server(s, session, &mut ots).expect("the server");
                (share, session.channel.traffic(Phase::Setup).sent)
            },
        );
        assert_sent(client_result.1, spec.bytes().client, 2);
        assert_sent(server_result.1, spec.bytes().server, 2);
        add(&client_result.0, &server_result.0, spec.width)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn lifts_are_exact(
            prime in prop::sample::select(vec![13u64, 65_537, 137_439_510_529, 1_125_899_906_826_241]),
            width in 2u32..=48,
            values in prop::collection::vec(any::<(u64, u64)>(), 1..200),
        ) {
            let bound = (prime / 4) as i64;
            let edges = [(0, 0), (0, prime - 1), (bound, prime / 2), (-bound, prime / 2 + 1), (bound, 0), (-bound, prime - 1)];
            let random = values.iter().map(|&(v, c)| (v as i64 % (bound + 1), c % prime));
            let cases: Vec<(i64, u64)> = edges.into_iter().chain(random).collect();
            let c: Vec<u64> = cases.iter().map(|(_, c)| *c).collect();
            let s: Vec<u64> = cases.iter().map(|(y, c)| (y - *c as i64).rem_euclid(prime as i64) as u64).collect();
            let actual = run_lift(LiftSpec { n: cases.len(), prime, width }, &c, &s);
            for ((y, c), actual) in cases.iter().zip(actual) {
                prop_assert_eq!(actual, *y as u64 & low_mask(width), "{} shared with {}", y, c);
            }
        }
    }
}
