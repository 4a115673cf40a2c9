//! The gate behind all non-linear layers: `z = base + [y >= 0] * X`, moved onto a share that the
//! client chooses.
//!
//! Every wire is shared additively, and the client knows its share offline. The gate tests `y`'s
//! sign (`compare`) and multiplies the bit onto one or more values (`mux`), the first of which may
//! be widened at the same time (`wrap`). Then the client sends the difference between its result
//! and its chosen share, so that the invariant holds for the next layer.
//!
//! Online messages: server -> client leaves, masked values (and wrap message); tree openings both
//! ways; server -> client opening; client -> server opening and differences. Widening after the
//! gate takes one more message each way (`grow`).

mod compare;
mod direct;
mod grow;
mod lift;
mod masked;
mod mux;
mod node;
mod program;
mod spec;
#[cfg(test)]
mod tests;
mod traffic;
mod tree;
mod wrap;

use std::borrow::Cow;

use tacit_net::Tag;

pub use lift::LiftSpec;
pub use spec::Leaves;
pub use wrap::{ClientWrap, ServerWrap, WrapSpec};

use self::compare::{ClientCompare, ServerCompare};
use self::grow::{ClientGrow, ServerGrow};
use self::mux::{ClientMux, MuxSpec, ServerMux};
use self::spec::CompareSpec;
use crate::codec::{Reader, Writer};
use crate::wire::PackedMessages;
use crate::{MpcError, Ots, Session, low_mask, packed_bytes};

const MOVE: Tag = Tag::new(0x0340, "share difference");

/// Public shape of a batch of gates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateSpec {
    compare: CompareSpec,
    drop: u32,
    mux: MuxSpec,
    /// The widening of the one value after the gate, if any.
    grow: Option<WrapSpec>,
}

/// Stage of a gate at which its value is widened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Widening {
    /// During the multiplication: no extra message, but every message is as wide as the result.
    OnTheWay,
    /// After the client's move: one more round trip and fewer bits (`grow`). The result must not be
    /// negative.
    Behind,
}

impl GateSpec {
    /// `n` gates. Each tests the sign of a value in a ring of `width` bits after dropping its
    /// `drop` lowest bits, and multiplies the bit onto values of the given widths. A result of `0
    /// <= y < 2^drop` may count as negative, never the other way round.
    pub fn new(n: usize, width: u32, drop: u32, leaves: Leaves, widths: Vec<u32>) -> Self {
        let compare = CompareSpec::new(n, width.saturating_sub(drop), leaves);
        Self { compare, drop, mux: MuxSpec { n, widths, wrap: None, constant: None }, grow: None }
    }

    /// A gate whose one value is the tested one, widened from `width` to `wide` bits (ReLU). A widened
    /// value is below `2^(width-2)` in magnitude, so its sign shows one bit lower.
    pub fn widening(n: usize, width: u32, drop: u32, leaves: Leaves, wide: u32, place: Widening) -> Self {
        if wide <= width {
            return Self::new(n, width, drop, leaves, vec![wide]);
        }
        // Dropped bits can move a value near the lower bound one unit below it.
        let narrow = width - u32::from(drop == 0);
        match place {
            Widening::OnTheWay => {
                let mut gate = Self::new(n, narrow, drop, leaves, vec![wide]);
                gate.mux.wrap = Some(WrapSpec { n, width, extra: wide - width });
                gate
            }
            Widening::Behind => {
                let grow = Some(WrapSpec { n, width: narrow, extra: wide - narrow });
                Self { grow, ..Self::new(n, narrow, drop, leaves, vec![narrow]) }
            }
        }
    }

    /// `base - [y >= 0]` for values y in a ring of `width` bits and bases in one of `ring_width` bits. The
    /// multiplied value is -1, held by the server.
    pub fn subtracting(n: usize, width: u32, leaves: Leaves, ring_width: u32) -> Self {
        let mut gate = Self::new(n, width, 0, leaves, vec![ring_width]);
        gate.mux.constant = Some(u64::MAX);
        gate
    }

    fn wraps(&mut self) -> impl Iterator<Item = &mut WrapSpec> {
        self.mux.wrap.iter_mut().chain(&mut self.grow)
    }

    /// Number of gates.
    pub fn n(&self) -> usize {
        self.mux.n
    }

    /// `factor` times as many gates of the same kind.
    #[must_use]
    pub fn times(&self, factor: usize) -> Self {
        let mut gate = self.clone();
        let n = factor * self.n();
        (gate.compare.n, gate.mux.n) = (n, n);
        gate.wraps().for_each(|wrap| wrap.n = n);
        gate
    }

    /// Cost of the whole batch: bytes by direction and phase, random OTs, exchanges.
    pub fn cost(&self) -> GateCost {
        let n = self.n();
        let plane = n.div_ceil(8);
        let (mut client_rots, mut server_rots) = self.compare.rots();
        client_rots += n;
        let (up, down) = self.compare.offline_bytes();
        let (opened, levels) = self.compare.tree().opened();
        // For values that are not constant, the client's part is sent offline, the server's online.
        let (values, secret) = (packed_bytes(n, &self.mux.widths), packed_bytes(n, self.mux.server_parts()));
        if self.mux.constant.is_none() {
            server_rots += n;
        }
        let strings = plane + packed_bytes(n, &self.mux.client_strings());
        let (client, server) = self.compare.material_bytes();
        let mut cost = GateCost {
            offline_up: up + secret,
            offline_down: down + values - secret,
            online_up: plane * (opened + 1) + values,
            online_down: self.compare.leaf_bytes() + plane * (opened + 1) + secret,
            client_rots,
            server_rots,
            exchanges: 1 + levels.div_ceil(2),
            client_material: client + strings,
            server_material: server + strings + secret,
        };
        if let Some(wrap) = self.mux.wrap {
            let extra = packed_bytes(n, &[wrap.extra]);
            cost.offline_up += plane + extra;
            cost.online_down += extra;
            cost.client_material += extra;
            cost.server_material += 2 * extra;
            cost.client_rots += n;
        }
        if let Some(grow) = self.grow {
            let extra = packed_bytes(n, &[grow.extra]);
            cost.offline_up += extra;
            cost.online_up += extra;
            cost.online_down += plane;
            cost.client_material += extra;
            cost.server_material += plane + extra;
            cost.server_rots += n;
            cost.exchanges += 1;
        }
        cost
    }
}

/// Costs of a batch of gates. Bytes are payload bytes without frame headers and without those of
/// the OT extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GateCost {
    /// Client to server, offline, in bytes.
    pub offline_up: usize,
    /// Server to client, offline, in bytes.
    pub offline_down: usize,
    /// Client to server, online, in bytes.
    pub online_up: usize,
    /// Server to client, online, in bytes.
    pub online_down: usize,
    /// Random OTs with the client as receiver.
    pub client_rots: usize,
    /// Random OTs with the server as receiver.
    pub server_rots: usize,
    /// Online round trips, each starting and ending at the server.
    pub exchanges: usize,
    /// Size of the client's material, in bytes.
    pub client_material: usize,
    /// Size of the server's material, in bytes.
    pub server_material: usize,
}

/// The client's material for a batch of gates.
pub struct ClientGate {
    wrap: Option<ClientWrap>,
    compare: ClientCompare,
    mux: ClientMux,
    grow: Option<ClientGrow>,
}

/// The server's material for a batch of gates.
pub struct ServerGate {
    wrap: Option<ServerWrap>,
    compare: ServerCompare,
    mux: ServerMux,
    grow: Option<ServerGrow>,
}

/// `offline` and `read`, the two sources of a gate's material, both follow the spec.
const WRAP: &str = "the material of a widening gate holds a wrap";

fn dropped(share: &[u64], bits: u32) -> Cow<'_, [u64]> {
    if bits == 0 { share.into() } else { share.iter().map(|v| v >> bits).collect() }
}

/// The client's strings for the multiplexer. With a wrap: the known part of its widened share, and
/// its top bit.
fn client_values<'a>(spec: &GateSpec, wrap: Option<&ClientWrap>, values: &[&'a [u64]]) -> Vec<Cow<'a, [u64]>> {
    let Some(shape) = spec.mux.wrap else { return values.iter().map(|&v| v.into()).collect() };
    let wrap = wrap.expect(WRAP);
    vec![wrap.known(&shape, values[0]).into(), values[0].iter().map(|&c| shape.top(c)).collect()]
}

/// Borrows lists of values as gates need them.
pub fn slices<T: AsRef<[u64]>>(lists: &[T]) -> Vec<&[u64]> {
    lists.iter().map(AsRef::as_ref).collect()
}

/// Adds the shares of the addends, one list for each of the first results.
fn add_bases(shares: &mut [Vec<u64>], bases: &[&[u64]]) {
    for (share, base) in shares.iter_mut().zip(bases) {
        share.iter_mut().zip(*base).for_each(|(z, b)| *z = z.wrapping_add(*b));
    }
}

/// The client's part of a move: sends the differences of its results, with their addends, to its final
/// shares `targets`.
pub(crate) fn send_differences(
    tag: Tag,
    mut shares: Vec<Vec<u64>>,
    widths: &[u32],
    bases: &[&[u64]],
    targets: &[&[u64]],
    session: &mut Session<'_>,
) -> Result<(), MpcError> {
    add_bases(&mut shares, bases);
    for ((share, target), &width) in shares.iter_mut().zip(targets).zip(widths) {
        share.iter_mut().zip(*target).for_each(|(z, r)| *z = z.wrapping_sub(*r));
        session.channel.send_packed(tag, share, width)?;
    }
    Ok(())
}

/// The server's part of a move: adds the addends and the client's differences, and reduces.
pub(crate) fn add_differences(
    tag: Tag,
    shares: &mut [Vec<u64>],
    widths: &[u32],
    bases: &[&[u64]],
    session: &mut Session<'_>,
) -> Result<(), MpcError> {
    add_bases(shares, bases);
    for (share, &width) in shares.iter_mut().zip(widths) {
        let differences = session.channel.recv_packed(tag, share.len(), width)?;
        share.iter_mut().zip(differences).for_each(|(z, d)| *z = z.wrapping_add(d) & low_mask(width));
    }
    Ok(())
}

impl ClientGate {
    /// Offline. `y` is the client's share of the tested value, `values` its shares of the
    /// multiplied ones, `targets` its final shares (all `[n]`).
    ///
    /// # Errors
    /// Channel and OT errors.
    pub fn offline(
        spec: &GateSpec,
        y: &[u64],
        values: &[&[u64]],
        targets: &[&[u64]],
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<Self, MpcError> {
        let wrap = spec.mux.wrap.map(|shape| ClientWrap::offline(&shape, values[0], session, ots)).transpose()?;
        let compare = ClientCompare::offline(&spec.compare, &dropped(y, spec.drop), session, ots)?;
        let strings = client_values(spec, wrap.as_ref(), values);
        let mux = ClientMux::offline(&spec.mux, &slices(&strings), session, ots)?;
        let grow = spec.grow.map(|shape| ClientGrow::offline(&shape, targets[0], session, ots)).transpose()?;
        Ok(Self { wrap, compare, mux, grow })
    }

    /// Online. `y`, `values` and `targets` as offline; `bases` are the client's shares of the
    /// addends (one `[n]` per value, each reduced into its ring).
    ///
    /// # Errors
    /// Channel errors.
    pub fn online(
        self,
        spec: &GateSpec,
        y: &[u64],
        values: &[&[u64]],
        bases: &[&[u64]],
        targets: &[&[u64]],
        session: &mut Session<'_>,
    ) -> Result<(), MpcError> {
        let strings = client_values(spec, self.wrap.as_ref(), values);
        let mu = spec.mux.wrap.map(|shape| ClientWrap::message(&shape, session)).transpose()?;
        let masked = self.mux.start(&spec.mux, session)?;
        let bit = self.compare.online(&spec.compare, &dropped(y, spec.drop), session)?;
        let strings = slices(&strings);
        let shares = self.mux.finish(&spec.mux, &bit, &strings, &masked, mu.as_deref(), session)?;
        send_differences(MOVE, shares, &spec.mux.widths, bases, targets, session)?;
        if let (Some(grow), Some(shape)) = (self.grow, spec.grow) {
            grow.online(&shape, targets[0], session)?;
        }
        Ok(())
    }

    /// Writes the material.
    pub fn write(&self, out: &mut Writer) {
        self.wrap.iter().for_each(|wrap| wrap.write(out));
        self.compare.write(out);
        self.mux.write(out);
        self.grow.iter().for_each(|grow| grow.write(out));
    }

    /// Reads the material.
    ///
    /// # Errors
    /// `Material` if too few bytes are left.
    pub fn read(spec: &GateSpec, reader: &mut Reader<'_>) -> Result<Self, MpcError> {
        let wrap = spec.mux.wrap.map(|shape| ClientWrap::read(&shape, reader)).transpose()?;
        let compare = ClientCompare::read(&spec.compare, reader)?;
        let mux = ClientMux::read(&spec.mux, reader)?;
        let grow = spec.grow.map(|shape| ClientGrow::read(&shape, reader)).transpose()?;
        Ok(Self { wrap, compare, mux, grow })
    }
}

impl ServerGate {
    /// Offline; independent of the server's values.
    ///
    /// # Errors
    /// Channel and OT errors.
    pub fn offline(spec: &GateSpec, session: &mut Session<'_>, ots: &mut Ots) -> Result<Self, MpcError> {
        let wrap = spec.mux.wrap.map(|shape| ServerWrap::offline(&shape, session, ots)).transpose()?;
        let compare = ServerCompare::offline(&spec.compare, session, ots)?;
        let mux = ServerMux::offline(&spec.mux, session, ots)?;
        let grow = spec.grow.map(|shape| ServerGrow::offline(&shape, session, ots)).transpose()?;
        Ok(Self { wrap, compare, mux, grow })
    }

    /// Online. `y` is the server's share of the tested value, `values` its shares of the multiplied
    /// ones, `bases` of the addends. Returns the server's shares of the results, one `[n]` per
    /// value.
    ///
    /// # Errors
    /// Channel errors.
    pub fn online(
        self,
        spec: &GateSpec,
        y: &[u64],
        values: &[&[u64]],
        bases: &[&[u64]],
        session: &mut Session<'_>,
    ) -> Result<Vec<Vec<u64>>, MpcError> {
        let wrap = || self.wrap.as_ref().expect(WRAP);
        let widened = spec.mux.wrap.map(|shape| wrap().online(&shape, values[0], session)).transpose()?;
        let widened_share = widened.as_ref().map(|(_, share)| [share.as_slice()]);
        let values = widened_share.as_ref().map_or(values, |one| &one[..]);
        let mu = widened.as_ref().map(|(mu, _)| mu.as_slice());
        self.mux.start(&spec.mux, values, session)?;
        let started = self.compare.start(&spec.compare, &dropped(y, spec.drop), session)?;
        let bit = started.finish(&spec.compare, session)?;
        let mut shares = self.mux.finish(&spec.mux, &bit, values, mu, session)?;
        add_differences(MOVE, &mut shares, &spec.mux.widths, bases, session)?;
        if let (Some(grow), Some(shape)) = (self.grow, spec.grow) {
            shares[0] = grow.online(&shape, &shares[0], session)?;
        }
        Ok(shares)
    }

    /// Writes the material.
    pub fn write(&self, out: &mut Writer) {
        self.wrap.iter().for_each(|wrap| wrap.write(out));
        self.compare.write(out);
        self.mux.write(out);
        self.grow.iter().for_each(|grow| grow.write(out));
    }

    /// Reads the material.
    ///
    /// # Errors
    /// `Material` if too few bytes are left.
    pub fn read(spec: &GateSpec, reader: &mut Reader<'_>) -> Result<Self, MpcError> {
        let wrap = spec.mux.wrap.map(|shape| ServerWrap::read(&shape, reader)).transpose()?;
        let compare = ServerCompare::read(&spec.compare, reader)?;
        let mux = ServerMux::read(&spec.mux, reader)?;
        let grow = spec.grow.map(|shape| ServerGrow::read(&shape, reader)).transpose()?;
        Ok(Self { wrap, compare, mux, grow })
    }
}
