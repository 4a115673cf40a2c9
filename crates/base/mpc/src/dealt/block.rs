//! The parts of one block: each party's draws from its own streams, and the dealer's bytes for the
//! server. Planes and arithmetic columns have separate streams, so that neither must be stored
//! while the other is drawn.

use rayon::prelude::*;
use tacit_arith::pack;
use tacit_arith::prg::Prg;
use zeroize::Zeroize;

use super::lane::Lane;
use super::{BLOCK, DealtGate};
use crate::{MpcError, low_mask, packed_bytes};

/// Blocks that are dealt together before they are handed over.
const BLOCKS_AT_ONCE: usize = 64;

/// Number of blocks of `n` elements.
pub(super) fn count(n: usize) -> usize {
    n.div_ceil(BLOCK)
}

/// Elements of block `index`.
pub(super) fn range(n: usize, index: usize) -> std::ops::Range<usize> {
    index * BLOCK..((index + 1) * BLOCK).min(n)
}

/// Makes the blocks of `n` elements, in parallel, and passes them to `sink`, in order.
pub(super) fn deal_blocks<B: AsRef<[u8]> + Send, E>(
    n: usize,
    deal: impl Fn(usize) -> B + Sync,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    for first in (0..count(n)).step_by(BLOCKS_AT_ONCE) {
        let last = (first + BLOCKS_AT_ONCE).min(count(n));
        let blocks: Vec<B> = (first..last).into_par_iter().map(&deal).collect();
        blocks.iter().try_for_each(|block| sink(block.as_ref()))?;
    }
    Ok(())
}

/// Words of one plane.
pub(super) fn words(len: usize) -> usize {
    len.div_ceil(64)
}

/// Bytes for the server for a block of `len` elements.
pub(super) fn bytes(gate: &DealtGate, len: usize) -> usize {
    8 * gate.planes() * words(len) + packed_bytes(len, &gate.all_columns())
}

/// A party's stream of planes (or masks) for a block.
pub(super) fn plane_stream(prg: &Prg, index: usize) -> Prg {
    prg.fork(2 * index as u64)
}

/// The client's stream of columns for a block.
pub(super) fn column_stream(prg: &Prg, index: usize) -> Prg {
    prg.fork(2 * index as u64 + 1)
}

/// One party's shares of a block's bits.
pub(super) struct Planes {
    pub(super) table: Vec<u64>,
    pub(super) sign: Vec<u64>,
    pub(super) masks: Vec<u64>,
    pub(super) products: Vec<u64>,
}

fn draw(prg: &mut Prg, count: usize) -> Vec<u64> {
    let mut out = vec![0; count];
    prg.fill_u64(&mut out);
    out
}

impl Planes {
    /// The client's planes: all random.
    pub(super) fn draw(gate: &DealtGate, len: usize, prg: &mut Prg) -> Self {
        let words = words(len);
        Self {
            table: draw(prg, gate.table_planes() * words),
            sign: draw(prg, words),
            masks: draw(prg, gate.masks() * words),
            products: draw(prg, gate.terms.xor_shared_monomials().len() * words),
        }
    }

    /// The server's planes, from its dealt bytes for the block and its own masks.
    pub(super) fn from_dealt(gate: &DealtGate, len: usize, bytes: &[u8], masks: Vec<u64>) -> Self {
        let words = words(len);
        let mut planes = bytes.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c));
        let mut take = |count: usize| planes.by_ref().take(count * words).collect::<Vec<u64>>();
        let (table, sign, products) =
            (take(gate.table_planes()), take(1), take(gate.terms.xor_shared_monomials().len()));
        Self { table, sign, masks, products }
    }
}

impl Drop for Planes {
    fn drop(&mut self) {
        for part in [&mut self.table, &mut self.sign, &mut self.masks, &mut self.products] {
            part.zeroize();
        }
    }
}

/// The server's masks for a block.
pub(super) struct ServerDraw {
    /// One list for each opened value, in the value's ring.
    pub(super) rho: Vec<Vec<u64>>,
    pub(super) masks: Vec<u64>,
}

impl ServerDraw {
    pub(super) fn new(gate: &DealtGate, len: usize, prg: &mut Prg) -> Self {
        let rho = gate.opened().into_iter().map(|width| {
            let mut rho = draw(prg, len);
            rho.iter_mut().for_each(|v| *v &= low_mask(width));
            rho
        });
        let rho = rho.collect();
        Self { rho, masks: draw(prg, gate.masks() * words(len)) }
    }
}

impl Drop for ServerDraw {
    fn drop(&mut self) {
        self.rho.zeroize();
        self.masks.zeroize();
    }
}

/// A party's shares of a block's columns, one after the other.
pub(super) enum Columns<'a> {
    /// The client's columns, drawn from a stream, still to be reduced into their rings.
    Drawn(Box<Prg>),
    /// The server's dealt bytes, and a buffer for one column.
    Given(&'a [u8], Vec<u64>),
}

impl<'a> Columns<'a> {
    /// The server's columns from its dealt bytes for a block.
    pub(super) fn from_dealt(gate: &DealtGate, len: usize, bytes: &'a [u8]) -> Self {
        Self::Given(&bytes[8 * gate.planes() * words(len)..], vec![0; len])
    }

    /// The next column, of `width` bits.
    pub(super) fn next<W: Lane>(&mut self, width: u32, out: &mut [W]) -> Result<(), MpcError> {
        match self {
            Self::Drawn(prg) => W::draw(prg, out),
            Self::Given(unread, values) => {
                let (column, later) = unread.split_at((out.len() * width as usize).div_ceil(8));
                *unread = later;
                let read = pack::unpack_into(column, width, u64::MAX, values);
                read.map_err(|e| MpcError::Material { what: e.to_string() })?;
                out.iter_mut().zip(values).for_each(|(o, v)| *o = W::of(*v));
            }
        }
        Ok(())
    }
}
