//! The bootstrap: correlated OT by the semi-honest extension of Ishai, Kilian, Nissim and Petrank, in the
//! form of Asharov, Lindell, Schneider and Zohner (eprint 2016/602, protocol 4). The receiver sends one
//! message of 127 bits per OT.
//!
//! Base OT `i` gives the receiver two seeds and the sender the one chosen by bit `i + 1` of its `delta`. Bit
//! 0 of `delta` is fixed to 1, so column 0 needs no base OT: it is 0 at the sender and the choices at the
//! receiver. The output is a COT: `receiver = sender ^ choice * delta`, with bit 0 of the sender's block 0
//! and of the receiver's block the choice.

use tacit_arith::aes::Aes128;
use tacit_arith::bits::Bits;
use tacit_arith::bits::transpose::transpose64;
use tacit_arith::block::Block;
use tacit_arith::prg::Prg;
use tacit_net::{Channel, Tag};
use zeroize::Zeroizing;

use crate::MpcError;
use crate::wire::PackedMessages;

/// Base OTs needed: the free bits of `delta`.
pub(super) const BASE_OTS: usize = 127;
const COLUMNS: Tag = Tag::new(0x0203, "bootstrap columns");

/// `n` bits of the stream of a seed; `n` is a multiple of 64.
fn column(seed: Block, n: usize) -> Vec<u64> {
    let mut blocks = vec![Block::ZERO; n.div_ceil(128)];
    Aes128::new(seed).counter(0, 0, &mut blocks);
    let words = blocks.iter().flat_map(|b| [b.0 as u64, (b.0 >> 64) as u64]);
    words.take(n / 64).collect()
}

/// Rows of a 128-column bit matrix given by columns.
fn rows(columns: &[Vec<u64>]) -> Vec<Block> {
    let groups = 0..columns[0].len();
    let rows = groups.flat_map(|g| {
        let halves = half(columns, 0, g).into_iter().zip(half(columns, 64, g));
        halves.map(|(low, high)| Block((high as u128) << 64 | low as u128))
    });
    rows.collect()
}

/// Returns 64 half rows: group `g` of the 64 columns at `first`.
#[inline]
fn half(columns: &[Vec<u64>], first: usize, g: usize) -> [u64; 64] {
    let mut m = std::array::from_fn(|j| columns[first + j][g]);
    transpose64(&mut m);
    m
}

/// Bytes of the message for `n` OTs.
pub(super) const fn column_bytes(n: usize) -> usize {
    BASE_OTS * padded_len(n) / 8
}

/// `n` rounded up to a multiple of 64 rows.
const fn padded_len(n: usize) -> usize {
    n.next_multiple_of(64)
}

/// The receiver of `n` COTs: sends the columns, returns its blocks (bit 0 is the random choice).
pub(super) fn receive(ch: &mut Channel, prg: &mut Prg, seeds: &[[Block; 2]], n: usize) -> Result<Vec<Block>, MpcError> {
    let n_padded = padded_len(n);
    let choices = Bits::random(prg, n_padded);
    let mut columns = Zeroizing::new(vec![choices.words().to_vec()]);
    let mut message = Vec::with_capacity(seeds.len() * n_padded / 64);
    for [zero, one] in seeds {
        let own_column = column(*zero, n_padded);
        let masked_column = column(*one, n_padded);
        message.extend(own_column.iter().zip(&masked_column).zip(choices.words()).map(|((a, b), c)| a ^ b ^ c));
        columns.push(own_column);
    }
    ch.send_words(COLUMNS, &message)?;
    let mut out = rows(&columns);
    out.truncate(n);
    Ok(out)
}

/// The sender of `n` COTs: `seeds[i]` was chosen by bit `i + 1` of `delta`.
pub(super) fn send(ch: &mut Channel, delta: Block, seeds: &[Block], n: usize) -> Result<Vec<Block>, MpcError> {
    let n_padded = padded_len(n);
    let words = n_padded / 64;
    let received = ch.recv_words(COLUMNS, seeds.len() * words)?;
    let mut columns = Zeroizing::new(vec![vec![0; words]]);
    for (i, seed) in seeds.iter().enumerate() {
        let mask = ((delta.0 >> (i + 1) & 1) as u64).wrapping_neg();
        let masked_column = &received[i * words..][..words];
        columns.push(column(*seed, n_padded).iter().zip(masked_column).map(|(a, u)| a ^ u & mask).collect());
    }
    let mut out = rows(&columns);
    out.truncate(n);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_pair;
    use crate::tests::prg;

    #[test]
    fn outputs_are_correlated_by_delta() {
        let mut stream = prg(9);
        let delta = Block(stream.next_block().0 | 1);
        let pairs: Vec<[Block; 2]> = (0..BASE_OTS).map(|_| [stream.next_block(), stream.next_block()]).collect();
        let chosen: Vec<Block> = (0..BASE_OTS).map(|i| pairs[i][(delta.0 >> (i + 1) & 1) as usize]).collect();
        for n in [1, 64, 200] {
            let (r, s) =
                run_pair(|ch| receive(ch, &mut prg(4), &pairs, n).unwrap(), |ch| send(ch, delta, &chosen, n).unwrap());
            assert_eq!((r.len(), s.len()), (n, n));
            for (m, k) in r.iter().zip(&s) {
                assert!(k.lsb() == 0 && *m == *k ^ (delta & Block::mask(m.lsb())));
            }
            assert!(n < 64 || (r.iter().any(|m| m.lsb() == 1) && r.iter().any(|m| m.lsb() == 0)));
        }
        let (error, ()) = run_pair(|ch| send(ch, delta, &chosen, 64), |ch| ch.send(COLUMNS, &[0; 8]).unwrap());
        assert!(matches!(error, Err(MpcError::Net(_))));
    }
}
