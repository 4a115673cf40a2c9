//! Sign test (DReLU) of additively shared values whose client share is known offline: [CF2-20] sec.
//! 3-4 and [Chee22] sec. 5, split into an offline and an online phase.
//!
//! Computes shares of `[y >= 0]` for `y = s + c mod 2^w`, `|y| < 2^(w-1)`; exact. With `lt = [!c < s]` on the
//! low `w - 1` bits, `msb(y) = msb(s) ^ msb(c) ^ lt`. The `w - 1` bits are cut into digits, lowest first; the
//! leaves (`direct` or `masked`) give shares of `(lt, eq)` per digit, and a tree of AND gates joins them
//! (`tree`).
//!
//! Cost per element with D digits: the leaves' cost, and for the tree `D - 1` ROTs in each
//! direction and about `3 (D - 1)` opened bits each way. `Leaves` selects the kind of leaves.

use tacit_arith::bits::{Bits, transpose};
use tacit_net::{Tag, TrafficModel};

use super::masked::LeafMaterial;
use super::node::Leaf;
use super::spec::CompareSpec;
use super::{direct, masked};
use crate::codec::{Reader, Writer};
use crate::ot::PlannedOts;
use crate::planes::{self, bit_plane};
use crate::{MpcError, Ots, Session};

const LEAVES: Tag = Tag::new(0x0311, "comparison leaves");

impl CompareSpec {
    fn message_planes(&self) -> usize {
        self.per_digit(direct::message_planes, |d| d.bits as usize)
    }

    fn plane_bytes(&self) -> usize {
        self.n.div_ceil(8)
    }

    /// Bytes of the leaf message, server to client, online.
    pub fn leaf_bytes(&self) -> usize {
        self.message_planes() * self.plane_bytes()
    }

    /// Bytes sent offline: (client to server, server to client).
    pub fn offline_bytes(&self) -> (usize, usize) {
        let (leaves, tree) = (self.per_digit(|d| d.bits as usize, masked::corrections), self.tree().corrections());
        ((leaves + tree) * self.plane_bytes(), tree * self.plane_bytes())
    }

    pub(super) fn add_offline_traffic(&self, ots: &mut PlannedOts, traffic: &mut TrafficModel) {
        let leaves = if self.is_direct() {
            self.digits().for_each(|digit| (0..digit.bits).for_each(|_| ots.client_receives(self.n, traffic)));
            self.width as usize - 1
        } else {
            let strings = self.digits().map(masked::draws).sum();
            (0..strings).for_each(|_| ots.server_receives(self.n, traffic));
            self.digits().map(masked::corrections).sum()
        };
        traffic.up(leaves * self.plane_bytes());
        self.tree().add_offline_traffic(ots, traffic);
    }

    /// Bytes of the stored material: (client, server).
    pub fn material_bytes(&self) -> (usize, usize) {
        let tree = self.tree().planes();
        let client = self.per_digit(direct::client_planes, masked::client_planes);
        let server = self.per_digit(direct::server_planes, masked::server_planes);
        ((client + tree) * self.plane_bytes(), (server + tree) * self.plane_bytes())
    }

    /// Random OTs used: (client is receiver, server is receiver).
    pub fn rots(&self) -> (usize, usize) {
        let tree = self.tree().ots();
        let [client, server] = [self.per_digit(|d| d.bits as usize, |_| 0), self.per_digit(|_| 0, masked::ots)]
            .map(|l| self.n * (l + tree));
        (client, server)
    }
}

/// The client's numbers: the complement of its share without the top bit, as planes, lowest first.
fn client_numbers(spec: &CompareSpec, c: &[u64]) -> Vec<Bits> {
    transpose::planes(c, spec.width as usize - 1).iter().map(Bits::not).collect()
}

/// One party's material for a batch of sign tests: planes for the leaves, then for the tree.
struct Material {
    leaves: Vec<Bits>,
    tree: Vec<Bits>,
}

impl Material {
    /// The leaves' material, joined with the tree's.
    fn new(
        spec: &CompareSpec,
        mut leaves: LeafMaterial,
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<Self, MpcError> {
        let tree = spec.tree().offline(&mut leaves.constants, session, ots)?;
        Ok(Self { leaves: leaves.planes(), tree })
    }

    fn write(&self, out: &mut Writer) {
        out.planes(&self.leaves);
        out.planes(&self.tree);
    }

    fn read(spec: &CompareSpec, leaves: usize, reader: &mut Reader<'_>) -> Result<Self, MpcError> {
        Ok(Self { leaves: reader.planes(leaves, spec.n)?, tree: reader.planes(spec.tree().planes(), spec.n)? })
    }
}

/// The client's material for a batch of sign tests.
pub(super) struct ClientCompare(Material);

/// The server's material for a batch of sign tests.
pub(super) struct ServerCompare(Material);

impl ClientCompare {
    /// Offline, with the client's share `c` (`[n]`, in `[0, 2^width)`).
    pub fn offline(spec: &CompareSpec, c: &[u64], session: &mut Session<'_>, ots: &mut Ots) -> Result<Self, MpcError> {
        let numbers = client_numbers(spec, c);
        let leaves = match spec.is_direct() {
            true => LeafMaterial::without_constants(
                direct::client_offline(spec, &numbers, session, ots)?,
                spec.digits().count(),
            ),
            false => masked::client_offline(spec, &numbers, session, ots)?,
        };
        Ok(Self(Material::new(spec, leaves, session, ots)?))
    }

    /// Online: the client's share of `[y >= 0]`. `c` is the share given to `offline`.
    pub fn online(self, spec: &CompareSpec, c: &[u64], session: &mut Session<'_>) -> Result<Bits, MpcError> {
        let numbers = client_numbers(spec, c);
        let message = planes::recv(session.channel, LEAVES, spec.message_planes(), spec.n)?;
        let (mut message, mut material) = (&message[..], &self.0.leaves[..]);
        let mut leaves = Vec::new();
        for digit in spec.digits() {
            leaves.push(match spec.is_direct() {
                true => {
                    let pads = take(&mut material, direct::client_planes(digit)).to_vec();
                    direct::client_leaf(digit, &numbers, pads, take(&mut message, direct::message_planes(digit)))
                }
                false => {
                    let planes = take(&mut material, masked::client_planes(digit));
                    masked::client_leaf(digit, &numbers, planes, take(&mut message, digit.bits as usize))
                }
            });
        }
        let lt = spec.tree().online(leaves, self.0.tree, session)?;
        Ok(lt.xor(&bit_plane(c, spec.width - 1)))
    }

    pub fn write(&self, out: &mut Writer) {
        self.0.write(out);
    }

    pub fn read(spec: &CompareSpec, reader: &mut Reader<'_>) -> Result<Self, MpcError> {
        Ok(Self(Material::read(spec, spec.per_digit(direct::client_planes, masked::client_planes), reader)?))
    }
}

/// The next `count` planes of a list whose length follows from the spec.
fn take<'a>(list: &mut &'a [Bits], count: usize) -> &'a [Bits] {
    let (head, tail) = list.split_at(count);
    *list = tail;
    head
}

impl ServerCompare {
    /// Offline; independent of the server's values.
    pub fn offline(spec: &CompareSpec, session: &mut Session<'_>, ots: &mut Ots) -> Result<Self, MpcError> {
        let leaves = match spec.is_direct() {
            true => LeafMaterial::without_constants(direct::server_offline(spec, session, ots)?, spec.digits().count()),
            false => masked::server_offline(spec, session, ots)?,
        };
        Ok(Self(Material::new(spec, leaves, session, ots)?))
    }

    /// Online, first message: sends leaves for the server's share `s` (`[n]`, in `[0, 2^width)`).
    /// Follow with `finish`.
    pub fn start(self, spec: &CompareSpec, s: &[u64], session: &mut Session<'_>) -> Result<StartedCompare, MpcError> {
        let numbers = transpose::planes(s, spec.width as usize - 1);
        let mut material = &self.0.leaves[..];
        let (mut message, mut leaves) = (Vec::with_capacity(spec.message_planes()), Vec::new());
        for digit in spec.digits() {
            let (leaf, mut planes) = match spec.is_direct() {
                true => direct::server_leaf(digit, &numbers, take(&mut material, direct::server_planes(digit))),
                false => masked::server_leaf(digit, &numbers, take(&mut material, masked::server_planes(digit))),
            };
            leaves.push(leaf);
            message.append(&mut planes);
        }
        planes::send(session.channel, LEAVES, &message)?;
        Ok(StartedCompare { leaves, tree: self.0.tree, top: bit_plane(s, spec.width - 1).not() })
    }

    pub fn write(&self, out: &mut Writer) {
        self.0.write(out);
    }

    pub fn read(spec: &CompareSpec, reader: &mut Reader<'_>) -> Result<Self, MpcError> {
        Ok(Self(Material::read(spec, spec.per_digit(direct::server_planes, masked::server_planes), reader)?))
    }
}

/// A server's sign test whose leaf message has been sent.
pub(super) struct StartedCompare {
    leaves: Vec<Leaf>,
    tree: Vec<Bits>,
    top: Bits,
}

impl StartedCompare {
    /// Online, the rest: the server's share of `[y >= 0]`.
    pub fn finish(self, spec: &CompareSpec, session: &mut Session<'_>) -> Result<Bits, MpcError> {
        let lt = spec.tree().online(self.leaves, self.tree, session)?;
        Ok(lt.xor(&self.top))
    }
}
