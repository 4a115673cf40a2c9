//! Widening after the gate: from the server's share of a non-negative value to a share in a wider
//! ring.
//!
//! After a gate whose result is `0 <= z < 2^(w-1)` the server has `Z = z - r mod 2^w`. The client's share r
//! is uniform and known offline. The top bit of z is zero. So, with the top bits `mz` of Z and `mr` of r, as
//! integers,
//! ```text
//! z = Z + r - 2^w (mr or mz)
//! ```
//! The client's final share is `r + 2^w h` in the ring of `w + k` bits, h uniform of k bits. So the
//! server must learn exactly `h + (mr or mz) = h + mr + mz (1 - mr) mod 2^k`. This takes one OT
//! whose random choice `rho` is the server's. Offline the parties obtain shares of `rho (1 - mr) =
//! s + c mod 2^k`. Online the server opens `f = mz ^ rho`, so that `mz = f + (1 - 2 f) rho`. The
//! client answers `u = h + mr + f (1 - mr) + (1 - 2 f) c`, and the server adds `(1 - 2 f) s`.
//! Exact.
//!
//! f is masked by rho. The server's result is masked by h, which has no other use.
//!
//! Cost per element: 1 ROT (server receives); offline `k` bits client to server; online 1 bit
//! server to client and `k` bits back, one more round trip. Widening during the gate (`wrap`) needs
//! no extra round trip, but k more bits in the multiplexer, in the move and for the wrap itself.

use tacit_arith::bits::Bits;
use tacit_net::Tag;

use super::wrap::WrapSpec;
use crate::codec::{Packed, Reader, Writer};
use crate::ot::{ReceiverWords, SenderWords};
use crate::planes::{self, bit_plane};
use crate::wire::PackedMessages;
use crate::{MpcError, Ots, Session, low_mask};

const SHARES: Tag = Tag::new(0x0324, "growth shares");
const FLIP: Tag = Tag::new(0x0325, "growth flip");
const GROWTH: Tag = Tag::new(0x0326, "growth");

/// The client's material: its share of `rho (1 - mr)`.
pub(super) struct ClientGrow {
    share: Packed,
}

pub(super) struct ServerGrow {
    rho: Bits,
    /// The server's share of `rho (1 - mr)`.
    share: Packed,
}

/// `f ? -value : value` for a bit f.
fn signed(value: u64, f: u64) -> u64 {
    (value ^ f.wrapping_neg()).wrapping_add(f)
}

impl ClientGrow {
    /// Offline. `target` is the client's final share (`[n]`, in the wider ring).
    pub fn offline(
        spec: &WrapSpec,
        target: &[u64],
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<Self, MpcError> {
        let SenderWords { m0, m1 } = ots.sender.words(session.channel, spec.n)?;
        let strings = m0.iter().zip(&m1).zip(target);
        let message: Vec<u64> =
            strings.map(|((m0, m1), &r)| (1 - spec.top(r)).wrapping_add(*m0).wrapping_sub(*m1)).collect();
        session.channel.send_packed(SHARES, &message, spec.extra)?;
        let share: Vec<u64> = m0.iter().map(|m| m.wrapping_neg()).collect();
        Ok(Self { share: Packed::new(&share, spec.extra) })
    }

    /// Online, after the move of the low `width` bits of `target`.
    pub fn online(self, spec: &WrapSpec, target: &[u64], session: &mut Session<'_>) -> Result<(), MpcError> {
        let flips = planes::recv(session.channel, FLIP, 1, spec.n)?;
        let known = target.iter().zip(self.share.values()).zip(flips[0].masks());
        let growth = known.map(|((&r, share), flip)| {
            let (f, mr) = (flip & 1, spec.top(r));
            (r >> spec.width).wrapping_add(mr + f * (1 - mr)).wrapping_add(signed(share, f))
        });
        let growth: Vec<u64> = growth.collect();
        Ok(session.channel.send_packed(GROWTH, &growth, spec.extra)?)
    }

    pub fn write(&self, out: &mut Writer) {
        out.packed(&self.share);
    }

    pub fn read(spec: &WrapSpec, reader: &mut Reader<'_>) -> Result<Self, MpcError> {
        Ok(Self { share: reader.packed(spec.n, spec.extra)? })
    }
}

impl ServerGrow {
    pub fn offline(spec: &WrapSpec, session: &mut Session<'_>, ots: &mut Ots) -> Result<Self, MpcError> {
        let ReceiverWords { choice: rho, m: words } = ots.receiver.words(session.channel, spec.n)?;
        let message = session.channel.recv_packed(SHARES, spec.n, spec.extra)?;
        let received = words.iter().zip(message).zip(rho.masks());
        let share: Vec<u64> = received.map(|((m, e), chosen)| m.wrapping_add(e & chosen)).collect();
        Ok(Self { rho, share: Packed::new(&share, spec.extra) })
    }

    /// Online: computes the share in the wider ring (`[n]`) from the moved one (`[n]`, below
    /// `2^width`).
    pub fn online(self, spec: &WrapSpec, differences: &[u64], session: &mut Session<'_>) -> Result<Vec<u64>, MpcError> {
        let flip = self.rho.xor(&bit_plane(differences, spec.width - 1));
        planes::send_one(session.channel, FLIP, &flip)?;
        let growth = session.channel.recv_packed(GROWTH, spec.n, spec.extra)?;
        let zipped = differences.iter().zip(growth).zip(self.share.values()).zip(flip.masks());
        let widened = zipped.map(|(((&z, u), share), flip)| {
            let high = u.wrapping_add(signed(share, flip & 1)) & low_mask(spec.extra);
            z.wrapping_sub(high << spec.width) & spec.ring()
        });
        Ok(widened.collect())
    }

    pub fn write(&self, out: &mut Writer) {
        out.planes(std::slice::from_ref(&self.rho));
        out.packed(&self.share);
    }

    pub fn read(spec: &WrapSpec, reader: &mut Reader<'_>) -> Result<Self, MpcError> {
        Ok(Self { rho: reader.plane(spec.n)?, share: reader.packed(spec.n, spec.extra)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::run_sessions;
    use crate::tests::{add, subtract, with_all_shares};

    /// Every value, every share and every upper part of small rings.
    #[test]
    fn growing_is_exact_for_all_shares() {
        for (width, extra) in [(2u32, 1u32), (2, 3), (3, 2), (4, 1), (4, 3), (5, 2)] {
            let (z, target) = with_all_shares(0..1 << (width - 1), width + extra);
            let spec = WrapSpec { n: z.len(), width, extra };
            let differences = subtract(&z, &target, width);
            // Ideal OTs of several seeds, so that each element has both choices.
            for seed in 0..4 {
                let ((), server) = run_sessions(
                    seed,
                    |session, mut ots| {
                        let grow = ClientGrow::offline(&spec, &target, session, &mut ots).expect("client offline");
                        grow.online(&spec, &target, session).expect("client online");
                        session.channel.flush().expect("flush");
                    },
                    |session, mut ots| {
                        let grow = ServerGrow::offline(&spec, session, &mut ots).expect("server offline");
                        grow.online(&spec, &differences, session).expect("server online")
                    },
                );
                assert_eq!(add(&target, &server, width + extra), z, "{width}+{extra} bits");
            }
        }
    }
}
