//! Geometry: the contents of each coefficient.
//!
//! All layers of an upload have one stride `s`. Their padded inputs lie in one frame, which has the
//! largest padding at the top and left. The frame is split into `s.0 * s.1` phase planes; planes
//! without a kernel tap are dropped. A *virtual channel* is a pair (channel, phase). On phase
//! planes every layer has stride 1. Output rows and columns are cut into tiles; an input tile has
//! `A = rows * columns` elements with its halo. A part of a polynomial has `n = N / 2^steps`
//! coefficients and holds `ct` ([`Tiling::in_channels_per_part`]) virtual channels of one tile,
//!
//! `x[c A + i columns + j]`, and weights are
//! `w[m ct A + (ct - 1 - c) A + (span - d).row * columns + (span - d).column]` for output channel
//! `m < mt` ([`Tiling::out_channels_per_part`]) of a part of a block and tap shift `d`, with
//! `mt * ct * A <= n`. Output `(m, i, j)` is coefficient
//! `m ct A + (ct - 1) A + (i + span.row) columns + j + span.column` of the product. Products of
//! other channels land in other slots; coefficients that spill over a slot's end land below the
//! slot's first output, since a shift is at most `span`.
//!
//! Part p of a polynomial consists of the coefficients `k 2^steps + p`. An uploaded polynomial
//! holds `2^steps` parts of the tensor, in order. The server splits it and moves each part to the
//! place of part 0. A polynomial of weights, or of answers, then covers `2^steps` times `mt` output
//! channels.

use super::LinearError;
use std::sync::Arc;
use tacit_arith::ring::ConvSpec;
use tacit_he::coeff::DEGREE;

/// A linear layer that reads a tensor. All fields are public.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Consumer {
    /// Shape; a fully connected layer is [`ConvSpec::linear`].
    pub conv: ConvSpec,
    /// Width l of the ring of input and output, 1 to 45. Layers of one upload are computed in the
    /// widest of their rings.
    pub ring_bits: u32,
    /// Every output channel's weights have a Euclidean norm of at most `2^norm_log2`
    /// ([`weight_norm_log2`](super::weight_norm_log2)).
    pub norm_log2: u32,
}

/// The strides of `consumers`, each once, in order of first appearance.
///
/// # Errors
/// [`LinearError::Shape`]; [`LinearError::Group`] if there are no consumers, or one reads another
/// tensor than the first.
pub fn strides(consumers: &[Consumer]) -> Result<Vec<(usize, usize)>, LinearError> {
    let first = consumers.first().ok_or(LinearError::Group { consumer: 0 })?;
    let mut strides = vec![];
    for (k, c) in consumers.iter().enumerate() {
        c.conv.check()?;
        if input_shape(c) != input_shape(first) {
            return Err(LinearError::Group { consumer: k });
        }
        if !strides.contains(&c.conv.stride) {
            strides.push(c.conv.stride);
        }
    }
    Ok(strides)
}

/// Returns channels, height and width of a layer's input.
fn input_shape(c: &Consumer) -> (usize, usize, usize) {
    (c.conv.in_ch, c.conv.in_h, c.conv.in_w)
}

/// The common frame of the layers of one upload.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Channels of the tensor.
    pub channels: usize,
    /// Rows of the tensor.
    pub in_h: usize,
    /// Columns of the tensor.
    pub in_w: usize,
    /// Stride of all layers (rows, columns).
    pub stride: (usize, usize),
    /// Zeros above and to the left of the image.
    pub origin: (usize, usize),
    /// Smallest tap shift on a phase plane (rows, columns).
    pub first: (usize, usize),
    /// Largest tap shift minus the smallest.
    pub span: (usize, usize),
    /// Phases (row, column) in use, ascending.
    pub phases: Vec<(usize, usize)>,
    /// Largest output of the layers (rows, columns).
    pub out: (usize, usize),
}

/// One tap of a kernel on the phase planes.
#[derive(Clone, Copy, Debug)]
pub struct Tap {
    /// `ky * kernel.1 + kx`
    pub index: usize,
    /// Index into [`Frame::phases`].
    pub phase: usize,
    /// Shift relative to [`Frame::first`].
    pub shift: (usize, usize),
}

/// (index, phase, shift) of a tap on the frame.
type RawTap = (usize, (usize, usize), (usize, usize));

/// Frame row or column, on one axis, of tap `k`: (phase, shift).
fn axis(pad: usize, origin: usize, k: usize, dilation: usize, stride: usize) -> (usize, usize) {
    let d = origin - pad + k * dilation;
    (d % stride, d / stride)
}

fn largest(consumers: &[Consumer], size: impl Fn(&Consumer) -> usize) -> usize {
    consumers.iter().map(size).max().expect("a frame has a layer")
}

impl Frame {
    /// The frame of `consumers`. The list must be checked and not empty; its layers must read one
    /// tensor and have one stride.
    pub fn new(consumers: &[Consumer]) -> Self {
        let conv = &consumers[0].conv;
        let origin = (largest(consumers, |c| c.conv.pads[0]), largest(consumers, |c| c.conv.pads[1]));
        let mut frame = Self {
            channels: conv.in_ch,
            in_h: conv.in_h,
            in_w: conv.in_w,
            stride: conv.stride,
            origin,
            first: (usize::MAX, usize::MAX),
            span: (0, 0),
            phases: vec![],
            out: (largest(consumers, |c| c.conv.out_h()), largest(consumers, |c| c.conv.out_w())),
        };
        let mut last = (0, 0);
        for consumer in consumers {
            for (_, phase, shift) in frame.raw_taps(consumer) {
                frame.first = (frame.first.0.min(shift.0), frame.first.1.min(shift.1));
                last = (last.0.max(shift.0), last.1.max(shift.1));
                if let Err(position) = frame.phases.binary_search(&phase) {
                    frame.phases.insert(position, phase);
                }
            }
        }
        frame.span = (last.0 - frame.first.0, last.1 - frame.first.1);
        frame
    }

    /// The taps of a consumer, before shifts are made relative.
    fn raw_taps(&self, consumer: &Consumer) -> Vec<RawTap> {
        let c = &consumer.conv;
        let mut taps = Vec::with_capacity(c.kernel.0 * c.kernel.1);
        for ky in 0..c.kernel.0 {
            let row = axis(c.pads[0], self.origin.0, ky, c.dilation.0, c.stride.0);
            for kx in 0..c.kernel.1 {
                let column = axis(c.pads[1], self.origin.1, kx, c.dilation.1, c.stride.1);
                taps.push((ky * c.kernel.1 + kx, (row.0, column.0), (row.1, column.1)));
            }
        }
        taps
    }

    /// The taps of a consumer of this frame.
    pub fn taps(&self, consumer: &Consumer) -> Vec<Tap> {
        let taps = self.raw_taps(consumer).into_iter().map(|(index, phase, shift)| {
            let phase = self.phases.binary_search(&phase).expect("the frame has every phase of its layers");
            Tap { index, phase, shift: (shift.0 - self.first.0, shift.1 - self.first.1) }
        });
        taps.collect()
    }

    /// Channels times phases in use.
    pub fn virtual_channels(&self) -> usize {
        self.channels * self.phases.len()
    }
}

/// The content of an upload's coefficient.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Any value: no output depends on it.
    Unread,
    /// A zero.
    Zero,
    /// Element `index` of the tensor `[C, H, W]`; `is_first` if no earlier tile contains the element.
    Element { index: u32, is_first: bool },
}

impl Place {
    /// Whether the encryption may choose the value.
    pub fn is_free(self) -> bool {
        matches!(self, Self::Unread | Self::Element { is_first: true, .. })
    }

    pub fn value(self, tensor: &[u64]) -> u64 {
        if let Self::Element { index, .. } = self { tensor[index as usize] } else { 0 }
    }
}

/// A frame cut into tiles and blocks.
#[derive(Clone, Debug)]
pub(super) struct Tiling {
    pub frame: Arc<Frame>,
    /// Output rows and columns of a full tile.
    pub tile_out: (usize, usize),
    /// Virtual channels in one part of an input polynomial.
    pub in_channels_per_part: usize,
    /// Output channels in one part of an answer polynomial.
    pub out_channels_per_part: usize,
    /// log2 of the parts of a polynomial.
    pub steps: u32,
}

impl Tiling {
    /// Tiles (down, across).
    pub fn grid(&self) -> (usize, usize) {
        (self.frame.out.0.div_ceil(self.tile_out.0), self.frame.out.1.div_ceil(self.tile_out.1))
    }

    pub fn tiles(&self) -> usize {
        self.grid().0 * self.grid().1
    }

    /// Number of input blocks, each the virtual channels of one part.
    pub fn in_blocks(&self) -> usize {
        self.frame.virtual_channels().div_ceil(self.in_channels_per_part)
    }

    /// Number of output blocks of a consumer, each the output channels of one answer.
    pub fn out_blocks(&self, consumer: &Consumer) -> usize {
        consumer.conv.out_ch.div_ceil(self.outputs_at_once())
    }

    /// Output channels in one answer polynomial.
    pub fn outputs_at_once(&self) -> usize {
        self.out_channels_per_part << self.steps
    }

    /// Parts of the tensor: input blocks of all tiles.
    pub fn parts(&self) -> usize {
        self.tiles() * self.in_blocks()
    }

    /// Polynomials that are uploaded for one tensor.
    pub fn uploads(&self) -> usize {
        self.parts().div_ceil(1 << self.steps)
    }

    /// Rows of an input tile, with its halo.
    fn rows(&self) -> usize {
        self.tile_out.0 + self.frame.span.0
    }

    fn columns(&self) -> usize {
        self.tile_out.1 + self.frame.span.1
    }

    fn area(&self) -> usize {
        self.rows() * self.columns()
    }

    /// Output range of a tile on one axis, clipped to `out`.
    fn range(index: usize, size: usize, out: usize) -> (usize, usize) {
        ((index * size).min(out), ((index + 1) * size).min(out))
    }

    /// Output rows and columns of `tile` for a consumer: ((first, end), (first, end)). Both are
    /// empty for a tile outside the consumer's output.
    fn outputs(&self, consumer: &Consumer, tile: usize) -> ((usize, usize), (usize, usize)) {
        let (ty, tx) = (tile / self.grid().1, tile % self.grid().1);
        let rows = Self::range(ty, self.tile_out.0, consumer.conv.out_h());
        (rows, Self::range(tx, self.tile_out.1, consumer.conv.out_w()))
    }

    /// Tiles in which the consumer has outputs.
    pub fn output_tiles(&self, consumer: &Consumer) -> Vec<usize> {
        let used = (0..self.tiles()).filter(|&tile| {
            let (rows, columns) = self.outputs(consumer, tile);
            rows.0 < rows.1 && columns.0 < columns.1
        });
        used.collect()
    }

    /// The content of each of the N coefficients of uploaded polynomial number `upload`.
    pub fn places(&self, upload: usize) -> Vec<Place> {
        // The server discards parts beyond those of the tensor.
        let mut out = vec![Place::Unread; DEGREE];
        for (place, part) in ((upload << self.steps)..self.parts()).take(1 << self.steps).enumerate() {
            self.write_part(part, out[place..].iter_mut().step_by(1 << self.steps));
        }
        out
    }

    /// Writes the places of one part, which is an input block of a tile.
    fn write_part<'a>(&self, part: usize, mut out: impl Iterator<Item = &'a mut Place>) {
        let (tile, block) = (part / self.in_blocks(), part % self.in_blocks());
        let f = &self.frame;
        let (ty, tx) = (tile / self.grid().1, tile % self.grid().1);
        let first = (ty * self.tile_out.0 + f.first.0, tx * self.tile_out.1 + f.first.1);
        let mut put = |place| *out.next().expect("channels fit a part") = place;
        for v in (block * self.in_channels_per_part..).take(self.in_channels_per_part) {
            if v >= f.virtual_channels() {
                // No weights belong to this channel: its values reach no output.
                (0..self.area()).for_each(|_| put(Place::Unread));
                continue;
            }
            let (channel, phase) = (v / f.phases.len(), f.phases[v % f.phases.len()]);
            for i in 0..self.rows() {
                let y = ((first.0 + i) * f.stride.0 + phase.0).wrapping_sub(f.origin.0);
                if y >= f.in_h {
                    // Outside the image there are zeros.
                    (0..self.columns()).for_each(|_| put(Place::Zero));
                    continue;
                }
                let row = (channel * f.in_h + y) * f.in_w;
                for j in 0..self.columns() {
                    let x = ((first.1 + j) * f.stride.1 + phase.1).wrapping_sub(f.origin.1);
                    // Neighbouring tiles overlap by the rows and columns of the halo.
                    let is_first = (ty == 0 || i >= f.span.0) && (tx == 0 || j >= f.span.1);
                    put(if x < f.in_w {
                        let index = u32::try_from(row + x).expect("a tensor of fewer than 2^32 elements");
                        Place::Element { index, is_first }
                    } else {
                        Place::Zero
                    });
                }
            }
        }
        // Coefficients behind the channels meet the weights of further outputs, if a part has
        // several outputs. Otherwise they do not reach the last slot, which holds the outputs.
        let rest = if self.out_channels_per_part == 1 { Place::Unread } else { Place::Zero };
        out.for_each(|place| *place = rest);
    }

    /// For output block `block` of `tile`: (coefficient, index into `[O, OH, OW]`) of every output.
    pub fn positions(&self, consumer: &Consumer, tile: usize, block: usize) -> (Vec<usize>, Vec<usize>) {
        let (rows, columns) = self.outputs(consumer, tile);
        let (ty, tx) = (tile / self.grid().1, tile % self.grid().1);
        let (out_h, out_w) = (consumer.conv.out_h(), consumer.conv.out_w());
        let (mut coefficients, mut indices) = (vec![], vec![]);
        let first = block * self.outputs_at_once();
        for m in 0..self.outputs_at_once().min(consumer.conv.out_ch - first) {
            let (part, slot) = (
                m / self.out_channels_per_part,
                (m % self.out_channels_per_part * self.in_channels_per_part + self.in_channels_per_part - 1)
                    * self.area(),
            );
            for y in rows.0..rows.1 {
                for x in columns.0..columns.1 {
                    let (i, j) = (y - ty * self.tile_out.0, x - tx * self.tile_out.1);
                    let coefficient = slot + (i + self.frame.span.0) * self.columns() + j + self.frame.span.1;
                    coefficients.push((coefficient << self.steps) + part);
                    indices.push(((first + m) * out_h + y) * out_w + x);
                }
            }
        }
        (coefficients, indices)
    }

    /// Output channels of a block: (first, end).
    fn out_channels(&self, consumer: &Consumer, block: usize) -> (usize, usize) {
        Self::range(block, self.outputs_at_once(), consumer.conv.out_ch)
    }

    /// Whether any weight joins input block `input` and output block `output` (by shape alone).
    pub fn connects(&self, consumer: &Consumer, taps: &[Tap], output: usize, input: usize) -> bool {
        let (first, end) = self.out_channels(consumer, output);
        let (group_in, group_out) = (consumer.conv.group_in(), consumer.conv.group_out());
        let groups = first / group_out..=(end - 1) / group_out;
        let phases = self.frame.phases.len();
        (input * self.in_channels_per_part
            ..((input + 1) * self.in_channels_per_part).min(self.frame.virtual_channels()))
            .any(|v| groups.contains(&(v / phases / group_in)) && taps.iter().any(|t| t.phase == v % phases))
    }

    /// Writes the weight polynomial of (output block, input block) into `out`, as (coefficient,
    /// weight) pairs.
    pub fn encode_weights(
        &self,
        consumer: &Consumer,
        taps: &[Tap],
        weights: &[i32],
        output: usize,
        input: usize,
        out: &mut Vec<(usize, i32)>,
    ) {
        out.clear();
        let conv = &consumer.conv;
        let (first, end) = self.out_channels(consumer, output);
        let (phases, kernel) = (self.frame.phases.len(), conv.kernel.0 * conv.kernel.1);
        for slot in 0..self.in_channels_per_part {
            let v = input * self.in_channels_per_part + slot;
            if v >= self.frame.virtual_channels() {
                break;
            }
            let (channel, phase) = (v / phases, v % phases);
            let (group, inner) = (channel / conv.group_in(), channel % conv.group_in());
            let first_channel = first.max(group * conv.group_out());
            let end_channel = end.min((group + 1) * conv.group_out());
            for tap in taps.iter().filter(|t| t.phase == phase) {
                let (row, column) = (self.frame.span.0 - tap.shift.0, self.frame.span.1 - tap.shift.1);
                let within = (self.in_channels_per_part - 1 - slot) * self.area() + row * self.columns() + column;
                for o in first_channel..end_channel {
                    let weight = weights[(o * conv.group_in() + inner) * kernel + tap.index];
                    let (part, slot) = (
                        (o - first) / self.out_channels_per_part,
                        (o - first) % self.out_channels_per_part * self.in_channels_per_part * self.area(),
                    );
                    out.push((((slot + within) << self.steps) + part, weight));
                }
            }
        }
    }
}
