//! The parts of one block: what each party draws from its own stream, and what the dealer gives the server.

use tacit_arith::pack;
use tacit_arith::prg::Prg;
use zeroize::Zeroize;

use super::{BLOCK, DealtGate};
use crate::{MpcError, low_mask};

/// Number of blocks of `n` elements.
pub(super) fn count(n: usize) -> usize {
    n.div_ceil(BLOCK)
}

/// Elements of block `index`.
pub(super) fn range(n: usize, index: usize) -> std::ops::Range<usize> {
    index * BLOCK..((index + 1) * BLOCK).min(n)
}

/// Words of one plane.
pub(super) fn words(len: usize) -> usize {
    len.div_ceil(64)
}

/// Bytes that the server is given for a block of `len` elements.
pub(super) fn bytes(gate: &DealtGate, len: usize) -> usize {
    let columns = gate.all_columns().into_iter().map(|width| (len * width as usize).div_ceil(8)).sum::<usize>();
    8 * gate.planes() * words(len) + columns
}

/// The client's random shares: all of its half.
pub(super) struct ClientDraw {
    pub(super) table: Vec<u64>,
    pub(super) sign: Vec<u64>,
    pub(super) masks: Vec<u64>,
    pub(super) products: Vec<u64>,
    /// Arithmetic columns, each to be taken modulo its ring.
    pub(super) columns: Vec<Vec<u64>>,
}

/// The server's masks.
pub(super) struct ServerDraw {
    /// One list for each value that is opened, in its ring.
    pub(super) rho: Vec<Vec<u64>>,
    pub(super) masks: Vec<u64>,
}

fn draw(prg: &mut Prg, count: usize) -> Vec<u64> {
    let mut out = vec![0; count];
    prg.fill_u64(&mut out);
    out
}

impl ClientDraw {
    pub(super) fn new(gate: &DealtGate, len: usize, prg: &mut Prg) -> Self {
        let words = words(len);
        Self {
            table: draw(prg, gate.table_planes() * words),
            sign: draw(prg, words),
            masks: draw(prg, (2 * gate.digits.len() - 1) * words),
            products: draw(prg, gate.terms.planes().len() * words),
            columns: gate.all_columns().iter().map(|_| draw(prg, len)).collect(),
        }
    }
}

impl ServerDraw {
    pub(super) fn new(gate: &DealtGate, len: usize, prg: &mut Prg) -> Self {
        let rho = gate.opened().into_iter().map(|width| {
            let mut rho = draw(prg, len);
            rho.iter_mut().for_each(|v| *v &= low_mask(width));
            rho
        });
        let rho = rho.collect();
        Self { rho, masks: draw(prg, (2 * gate.digits.len() - 1) * words(len)) }
    }
}

impl Drop for ClientDraw {
    fn drop(&mut self) {
        for part in [&mut self.table, &mut self.sign, &mut self.masks, &mut self.products] {
            part.zeroize();
        }
        self.columns.zeroize();
    }
}

impl Drop for ServerDraw {
    fn drop(&mut self) {
        self.rho.zeroize();
        self.masks.zeroize();
    }
}

/// What the server is given for one block, read.
pub(super) struct Given {
    pub(super) table: Vec<u64>,
    pub(super) sign: Vec<u64>,
    pub(super) products: Vec<u64>,
    pub(super) columns: Vec<Vec<u64>>,
}

/// Writes what the server is given: planes, then columns.
pub(super) fn write(gate: &DealtGate, planes: &[u64], columns: &[Vec<u64>], out: &mut Vec<u8>) {
    for word in planes {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for (column, width) in columns.iter().zip(gate.all_columns()) {
        pack::pack(column.iter().copied(), width, out);
    }
}

/// Reads what [`write`] wrote: `bytes(gate, len)` bytes.
pub(super) fn read(gate: &DealtGate, len: usize, from: &[u8]) -> Result<Given, MpcError> {
    let words = words(len);
    let (planes, mut rest) = from.split_at(8 * gate.planes() * words);
    let mut planes = planes.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c));
    let mut take = |count: usize| planes.by_ref().take(count * words).collect::<Vec<u64>>();
    let (table, sign, products) = (take(gate.table_planes()), take(1), take(gate.terms.planes().len()));
    let mut columns = Vec::new();
    for width in gate.all_columns() {
        let (column, next) = rest.split_at((len * width as usize).div_ceil(8));
        let values = pack::unpack(column, len, width, u64::MAX);
        columns.push(values.map_err(|e| MpcError::Material { what: e.to_string() })?);
        rest = next;
    }
    Ok(Given { table, sign, products, columns })
}
