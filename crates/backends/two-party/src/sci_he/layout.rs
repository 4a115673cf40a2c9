//! Geometry: the contents of each slot.
//!
//! All layers of an upload have one stride and lie in one frame of phase planes, as in the
//! coefficient encoding ([`Frame`]). Output rows and columns are cut into tiles. A ciphertext holds
//! 2C virtual channels of one tile: channel c of row r at position p is slot `p C + c + C - 1` of
//! that row, with channels side by side. An output of class c at position p is slot `p C + c` of
//! its row.
//!
//! For a kernel tap that lies `t` positions ahead, input class i and output class o, the row is
//! therefore turned by `t C + i - o + C - 1`. One turn serves all pairs of classes and taps with
//! this sum at once, and neighbouring taps share most of their turns. The weights of a product
//! select the pair: there is one weight for each output class, repeated along the row.

use tacit_he::bfv::{DEGREE, ROW};

use crate::cheetah::linear::tiling::{Consumer, Frame, Tap};

/// A frame cut into tiles and blocks of channels.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub frame: Frame,
    /// Output rows and columns of a full tile.
    pub tile_out: (usize, usize),
    /// Virtual channels in a row, C: a power of two.
    pub classes: usize,
}

/// Weights of all products from one input block to one output block.
pub(super) struct Products {
    /// For each turn and each half (rows in place, rows swapped): `[2, C]` weights, if any pair of
    /// channels uses the turn, judged by shape alone.
    pub weights: Vec<[Option<Vec<i32>>; 2]>,
}

impl Layout {
    /// Columns of an input tile, with its halo.
    fn columns(&self) -> usize {
        self.tile_out.1 + self.frame.span.1
    }

    /// Tiles (down, across).
    fn grid(&self) -> (usize, usize) {
        (self.frame.out.0.div_ceil(self.tile_out.0), self.frame.out.1.div_ceil(self.tile_out.1))
    }

    pub fn tiles(&self) -> usize {
        self.grid().0 * self.grid().1
    }

    /// Number of input blocks, each the virtual channels of one ciphertext.
    pub fn in_blocks(&self) -> usize {
        self.frame.virtual_channels().div_ceil(2 * self.classes)
    }

    /// Number of output blocks of a consumer, each the output channels of one answer.
    pub fn out_blocks(&self, consumer: &Consumer) -> usize {
        consumer.conv.out_ch.div_ceil(2 * self.classes)
    }

    /// Output rows and columns of `tile` for a consumer; empty for a tile outside the consumer's
    /// output.
    fn outputs(&self, consumer: &Consumer, tile: usize) -> [std::ops::Range<usize>; 2] {
        let place = [tile / self.grid().1, tile % self.grid().1];
        let sizes = [(self.tile_out.0, consumer.conv.out_h()), (self.tile_out.1, consumer.conv.out_w())];
        [0, 1].map(|axis| {
            let (size, out) = sizes[axis];
            (place[axis] * size).min(out)..((place[axis] + 1) * size).min(out)
        })
    }

    /// Whether the consumer has outputs in a tile.
    pub fn has_outputs(&self, consumer: &Consumer, tile: usize) -> bool {
        self.outputs(consumer, tile).iter().all(|range| !range.is_empty())
    }

    /// The virtual channels of a block: (row, class, channel, phase).
    fn channels(&self, block: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> + '_ {
        let (first, phases) = (block * 2 * self.classes, self.frame.phases.len());
        let end = (first + 2 * self.classes).min(self.frame.virtual_channels());
        (first..end).map(move |v| {
            let slot = v - first;
            (slot / self.classes, slot % self.classes, v / phases, v % phases)
        })
    }

    /// The N slots of input block `block` of `tile`, from the tensor `[C, H, W]`.
    pub fn encode(&self, tensor: &[u64], tile: usize, block: usize) -> Vec<u64> {
        let f = &self.frame;
        let mut out = vec![0; DEGREE];
        let (ty, tx) = (tile / self.grid().1, tile % self.grid().1);
        let first = (ty * self.tile_out.0 + f.first.0, tx * self.tile_out.1 + f.first.1);
        for (row, class, channel, phase) in self.channels(block) {
            let phase = f.phases[phase];
            for i in 0..self.tile_out.0 + f.span.0 {
                let y = ((first.0 + i) * f.stride.0 + phase.0).wrapping_sub(f.origin.0);
                if y >= f.in_h {
                    continue;
                }
                let line = &tensor[(channel * f.in_h + y) * f.in_w..][..f.in_w];
                for j in 0..self.columns() {
                    let x = ((first.1 + j) * f.stride.1 + phase.1).wrapping_sub(f.origin.1);
                    let slot = ((i * self.columns() + j) * self.classes + class + self.classes - 1) % ROW;
                    // Outside the image there are zeros.
                    out[row * ROW + slot] = line.get(x).copied().unwrap_or(0);
                }
            }
        }
        out
    }

    /// For output block `block` of `tile`: (slot, index into `[O, OH, OW]`) of every output.
    pub fn places(&self, consumer: &Consumer, tile: usize, block: usize) -> Vec<(usize, usize)> {
        let [rows, columns] = self.outputs(consumer, tile);
        let (out_h, out_w) = (consumer.conv.out_h(), consumer.conv.out_w());
        let first = block * 2 * self.classes;
        let mut places = Vec::new();
        for o in first..(first + 2 * self.classes).min(consumer.conv.out_ch) {
            let (row, class) = ((o - first) / self.classes, (o - first) % self.classes);
            for y in rows.clone() {
                for x in columns.clone() {
                    let (i, j) = (y % self.tile_out.0, x % self.tile_out.1);
                    let slot = row * ROW + (i * self.columns() + j) * self.classes + class;
                    places.push((slot, (o * out_h + y) * out_w + x));
                }
            }
        }
        places
    }

    /// The turn of a row for a tap, an input class and an output class.
    fn turn(&self, tap: &Tap, input: usize, output: usize) -> usize {
        ((tap.shift.0 * self.columns() + tap.shift.1 + 1) * self.classes + input - output - 1) % ROW
    }

    /// The turns of input block `block` for a consumer, ascending.
    pub fn turns(&self, consumer: &Consumer, taps: &[Tap], block: usize) -> Vec<usize> {
        let outputs = self.classes.min(consumer.conv.out_ch);
        let mut is_needed = vec![false; ROW];
        let mut seen = std::collections::BTreeSet::new();
        for (_, class, _, phase) in self.channels(block) {
            if !seen.insert((class, phase)) {
                continue;
            }
            for tap in taps.iter().filter(|tap| tap.phase == phase) {
                (0..outputs).for_each(|output| is_needed[self.turn(tap, class, output)] = true);
            }
        }
        (0..ROW).filter(|&turn| is_needed[turn]).collect()
    }

    /// The products from input block `input` to output block `output`, for the given turns.
    /// `weight(o, inner, tap)` is the weight of an output channel, a channel of its group and a
    /// tap.
    pub fn products(
        &self,
        consumer: &Consumer,
        taps: &[Tap],
        turns: &[usize],
        output: usize,
        input: usize,
        weight: impl Fn(usize, usize, usize) -> i32,
    ) -> Products {
        let (conv, classes) = (&consumer.conv, self.classes);
        let mut index = vec![u32::MAX; ROW];
        turns.iter().enumerate().for_each(|(position, &turn)| index[turn] = position as u32);
        let mut weights: Vec<[Option<Vec<i32>>; 2]> = turns.iter().map(|_| [None, None]).collect();
        let first = output * 2 * classes;
        for (row, class, channel, phase) in self.channels(input) {
            let (group, inner) = (channel / conv.group_in(), channel % conv.group_in());
            let group_outputs = group * conv.group_out()..(group + 1) * conv.group_out();
            for o in group_outputs.start.max(first)..group_outputs.end.min(first + 2 * classes) {
                let (out_row, out_class) = ((o - first) / classes, (o - first) % classes);
                for tap in taps.iter().filter(|tap| tap.phase == phase) {
                    let position = index[self.turn(tap, class, out_class)] as usize;
                    let half =
                        weights[position][usize::from(out_row != row)].get_or_insert_with(|| vec![0; 2 * classes]);
                    half[row * classes + out_class] = weight(o, inner, tap.index);
                }
            }
        }
        Products { weights }
    }
}

impl Products {
    pub fn count(&self) -> usize {
        self.weights.iter().flatten().flatten().count()
    }
}
