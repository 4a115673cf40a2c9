//! One party's material for one input or a batch: shares of the linear outputs and the gates'
//! material, in node order.

use tacit_arith::prg::Seed;
use tacit_mpc::MpcError;
use tacit_mpc::codec::{Packed, Reader, Writer};
use tacit_mpc::gate::{ClientGate, ClientWrap, GateSpec, ServerGate, ServerWrap, WrapSpec};

use super::lattice::Lattice;
use super::plan::{Plan, Step};
use zeroize::Zeroizing;

use tacit_backend_api::BackendError;
use tacit_backend_api::seam::MaterialSeed;
use tacit_ring::Op;

/// Material of one non-linear step.
pub(super) enum Piece<G, W> {
    Gate(G),
    Wrap(W),
}

/// The client's material, for one use. The online phase consumes it.
pub struct ClientMaterial {
    /// Digest of the plan that the material was made for.
    pub(super) plan: [u8; 32],
    /// Seed of all shares that the client chooses itself.
    pub(super) seed: Seed,
    /// The client's shares of the linear outputs, without the low bits that nothing reads.
    pub(super) linear: Vec<Packed>,
    pub(super) pieces: Vec<Piece<ClientGate, ClientWrap>>,
}

/// The server's material, for one use.
pub struct ServerMaterial {
    /// Digest of the plan that the material was made for.
    pub(super) plan: [u8; 32],
    /// The server's shares of `W r` for the linear layers, without the low bits that rounding
    /// removes.
    pub(super) linear: Vec<Packed>,
    pub(super) pieces: Vec<Piece<ServerGate, ServerWrap>>,
}

/// States why the online walk always finds the piece it needs.
pub(super) const FOLLOWS_PLAN: &str = "material is made and read along its plan's steps, and the plan was checked";

enum PieceSpec<'a> {
    Gate(&'a GateSpec),
    Wrap(&'a WrapSpec),
}

fn piece_specs<L: Lattice>(plan: &Plan<L>) -> impl Iterator<Item = PieceSpec<'_>> {
    plan.steps.iter().flat_map(|step| -> Box<dyn Iterator<Item = PieceSpec<'_>>> {
        match step {
            Step::Relu(gate) | Step::TruncateExact { gate, .. } => Box::new(std::iter::once(PieceSpec::Gate(gate))),
            Step::Reduce { levels, .. } => {
                Box::new(levels.iter().filter(|(_, gate)| gate.n() > 0).map(|(_, gate)| PieceSpec::Gate(gate)))
            }
            Step::Widen(wrap) => Box::new(std::iter::once(PieceSpec::Wrap(wrap))),
            _ => Box::new(std::iter::empty()),
        }
    })
}

/// Numbers of elements of the linear layers' results, and the bits that a party stores of each
/// element; `omitted_bits` are the low bits of each node that are not stored.
fn linear_shares<'a, L: Lattice>(
    plan: &'a Plan<L>,
    omitted_bits: &'a [u32],
) -> impl Iterator<Item = (usize, u32)> + 'a {
    let nodes = plan.graph.nodes().iter().zip(omitted_bits);
    let linear = nodes.filter(|(node, _)| matches!(node.op, Op::Conv2d(_) | Op::Linear(_)));
    linear.map(|(node, omitted_bits)| (plan.batch * node.elements(), node.fixed.width - omitted_bits))
}

/// Writes the content common to both halves: the shares of the linear outputs, then the pieces.
fn write<G, W>(
    out: &mut Writer,
    linear: &[Packed],
    pieces: &[Piece<G, W>],
    gate: fn(&G, &mut Writer),
    wrap: fn(&W, &mut Writer),
) {
    linear.iter().for_each(|p| out.packed(p));
    for piece in pieces {
        match piece {
            Piece::Gate(g) => gate(g, out),
            Piece::Wrap(w) => wrap(w, out),
        }
    }
}

type Read<S, T> = fn(&S, &mut Reader<'_>) -> Result<T, MpcError>;

type Parts<G, W> = (Vec<Packed>, Vec<Piece<G, W>>);

/// Reads the output of `write`, to the end.
fn read<L: Lattice, G, W>(
    plan: &Plan<L>,
    mut reader: Reader<'_>,
    omitted_bits: &[u32],
    gate: Read<GateSpec, G>,
    wrap: Read<WrapSpec, W>,
) -> Result<Parts<G, W>, MpcError> {
    let linear =
        linear_shares(plan, omitted_bits).map(|(n, width)| reader.packed(n, width)).collect::<Result<_, _>>()?;
    let mut pieces = Vec::new();
    for spec in piece_specs(plan) {
        pieces.push(match spec {
            PieceSpec::Gate(spec) => Piece::Gate(gate(spec, &mut reader)?),
            PieceSpec::Wrap(spec) => Piece::Wrap(wrap(spec, &mut reader)?),
        });
    }
    reader.finish()?;
    Ok((linear, pieces))
}

impl ClientMaterial {
    /// Encodes the material for storage; all lengths follow from the plan.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Writer::default();
        out.bytes(&self.seed.0);
        self.write_rest(&mut out);
        out.finish()
    }

    /// Encodes the material without the seed: the parts that depend on the server's messages and
    /// the OTs.
    pub fn rest_to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Writer::default();
        self.write_rest(&mut out);
        out.finish()
    }

    fn write_rest(&self, out: &mut Writer) {
        write(out, &self.linear, &self.pieces, ClientGate::write, ClientWrap::write);
    }

    /// Decodes stored material.
    ///
    /// # Errors
    /// [`BackendError::Material`] if the bytes do not fit the plan.
    pub fn from_bytes<L: Lattice>(plan: &Plan<L>, bytes: &[u8]) -> Result<Self, BackendError> {
        let mut reader = Reader::new(bytes);
        let mut seed = Seed([0; 16]);
        seed.0.copy_from_slice(reader.bytes(16)?);
        Self::read_rest(plan, seed, reader)
    }

    /// Restores material from a seed and the bytes of [`rest_to_bytes`](Self::rest_to_bytes).
    ///
    /// # Errors
    /// [`BackendError::Material`] if the bytes do not fit the plan.
    pub fn from_seed<L: Lattice>(plan: &Plan<L>, seed: MaterialSeed, rest: &[u8]) -> Result<Self, BackendError> {
        Self::read_rest(plan, seed.into_seed(), Reader::new(rest))
    }

    fn read_rest<L: Lattice>(plan: &Plan<L>, seed: Seed, reader: Reader<'_>) -> Result<Self, BackendError> {
        let (linear, pieces) = read(plan, reader, &plan.unread, ClientGate::read, ClientWrap::read)?;
        Ok(Self { plan: plan.digest(), seed, linear, pieces })
    }
}

impl ServerMaterial {
    /// Encodes the material for storage; all lengths follow from the plan.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Writer::default();
        write(&mut out, &self.linear, &self.pieces, ServerGate::write, ServerWrap::write);
        out.finish()
    }

    /// Decodes stored material.
    ///
    /// # Errors
    /// [`BackendError::Material`] if the bytes do not fit the plan.
    pub fn from_bytes<L: Lattice>(plan: &Plan<L>, bytes: &[u8]) -> Result<Self, BackendError> {
        let (linear, pieces) = read(plan, Reader::new(bytes), &plan.rounded, ServerGate::read, ServerWrap::read)?;
        Ok(Self { plan: plan.digest(), linear, pieces })
    }
}
