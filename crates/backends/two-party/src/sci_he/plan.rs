//! Planning: chooses the layers that share an upload, the tiles of tensors, and the field.

use std::collections::{BTreeSet, HashMap};

use tacit_he::HeError;
use tacit_he::bfv::{ANSWER_BYTES, FRESH_BYTES, MAX_CLASSES, Noise, ROW, Turn, largest_plain_log2, plain_prime};

use super::chain::{self, Step};
use super::layout::Layout;
use crate::cheetah::linear::LinearError;
use crate::cheetah::linear::tiling::{Consumer, Frame, Tap, strides};

/// The worth, in bytes, of uploads, answers, products and rotations, besides the bytes that they
/// send. It is processor time at 100 Mbit/s (80 ns a byte; about 1 ms, 1 ms, 50 us and 0.4 ms,
/// estimated).
const POLY_WORTH: usize = 12_000;
const PRODUCT_WORTH: usize = 600;
const TURN_WORTH: usize = 5000;
/// Tail factor: a variable as wide as a mask's limb exceeds this many times its width with
/// probability at most 2^-40. It is 7.54 deviations of `1 / sqrt(12)`.
const UNIFORM_TAIL: f64 = 2.177;
/// Largest number of parts of a mask.
const MAX_LIMBS: u32 = 8;

/// Layers with one stride that share one encryption of the tensor.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    /// How the tensor is cut into ciphertexts.
    pub layout: Layout,
    /// The layers, by index.
    pub members: Vec<usize>,
    /// Turns of each input block that any of the layers needs, ascending.
    pub turns: Vec<Vec<usize>>,
    /// The field.
    pub prime: u64,
    /// The mask is `sum_l d_l 2^(l * limb_bits)` mod `2^ring_bits`, with a ciphertext for each
    /// digit.
    pub limbs: u32,
    /// Bits of a digit.
    pub limb_bits: u32,
    /// The widest ring of the layers.
    pub ring_bits: u32,
}

/// Plan for all linear layers that read one tensor. Both parties derive the same plan from public
/// data.
#[derive(Clone, Debug)]
pub struct SlotPlan {
    consumers: Vec<Consumer>,
    pub(super) uploads: Vec<Upload>,
    pub(super) taps: Vec<Vec<Tap>>,
    /// Number of tensors in one exchange.
    pub(super) batch: usize,
}

impl SlotPlan {
    /// Plans `consumers`, which all read the same tensor `[C, H, W]`.
    ///
    /// # Errors
    /// [`LinearError::Shape`], [`LinearError::Group`], [`LinearError::Tile`], or
    /// [`LinearError::He`] if no field fits the rings and norms.
    pub fn new(consumers: &[Consumer]) -> Result<Self, LinearError> {
        let strides = strides(consumers)?;
        let mut taps = vec![vec![]; consumers.len()];
        let mut uploads = vec![];
        for stride in strides {
            let members: Vec<usize> = (0..consumers.len()).filter(|&k| consumers[k].conv.stride == stride).collect();
            let layers: Vec<Consumer> = members.iter().map(|&k| consumers[k]).collect();
            let frame = Frame::new(&layers);
            members.iter().for_each(|&k| taps[k] = frame.taps(&consumers[k]));
            let layers: Vec<(&Consumer, &[Tap])> = members.iter().map(|&k| (&consumers[k], &*taps[k])).collect();
            uploads.push(Upload::new(frame, members.clone(), &layers)?);
        }
        Ok(Self { consumers: consumers.to_vec(), uploads, taps, batch: 1 })
    }

    /// The same plan for the tensors of `batch` inputs at once. Their masks and shares are
    /// concatenated.
    pub fn times(&self, batch: usize) -> Self {
        Self { batch, ..self.clone() }
    }

    /// The layers, in the order given.
    pub fn consumers(&self) -> &[Consumer] {
        &self.consumers
    }

    /// Number of elements of all tensors in one exchange.
    pub fn input_len(&self) -> usize {
        self.batch * self.consumers[0].conv.in_len()
    }

    /// The choices of planning for each upload: tile outputs (rows, columns), classes, field and
    /// digits. Both parties must have made the same choices.
    pub fn choices(&self) -> Vec<u64> {
        let choices = self.uploads.iter().flat_map(|u| {
            let sizes = [u.layout.tile_out.0, u.layout.tile_out.1, u.layout.classes].map(|size| size as u64);
            [sizes[0], sizes[1], sizes[2], u.prime, u.limbs.into()]
        });
        choices.collect()
    }

    /// The Galois keys that the server needs.
    pub fn keys(&self) -> BTreeSet<Turn> {
        let mut keys = BTreeSet::from([Turn::Swap]);
        for steps in self.uploads.iter().flat_map(|u| &u.turns).map(|turns| chain::chain(turns)) {
            keys.extend(steps.iter().filter_map(|step| match step {
                Step::Move(distance) => Some(Turn::Left(*distance)),
                Step::Use(_, 0) => None,
                Step::Use(_, distance) => Some(Turn::Left(*distance)),
            }));
        }
        keys
    }

    /// Number of products of weights and ciphertexts of layer `k` for one tile and digit. For each
    /// output block: products with rows in place, and with rows swapped.
    pub(super) fn products(&self, upload: &Upload, k: usize) -> Vec<[usize; 2]> {
        let (layout, c) = (&upload.layout, &self.consumers[k]);
        let (blocks, outputs) = (layout.in_blocks(), layout.out_blocks(c));
        let phases = layout.frame.phases.len();
        let mut counts: HashMap<(usize, usize), [usize; 2]> = HashMap::new();
        let mut count_products = |output: usize, input: usize| {
            // Blocks of one group are alike, except for their phases and for missing channels of
            // the last blocks.
            let alike = c.conv.groups == 1 && output + 1 < outputs && input + 1 < blocks;
            let key = if alike { (usize::MAX, input * 2 * layout.classes % phases) } else { (output, input) };
            *counts.entry(key).or_insert_with(|| {
                let products =
                    layout.products(c, &self.taps[k], &upload.turns[input], output, input, |_, _, _| 1).weights;
                [0, 1].map(|half| products.iter().filter(|halves| halves[half].is_some()).count())
            })
        };
        let sums = (0..outputs).map(|output| {
            let inputs = (0..blocks).map(|input| count_products(output, input));
            inputs.fold([0; 2], |a: [usize; 2], b| [a[0] + b[0], a[1] + b[1]])
        });
        sums.collect()
    }
}

impl Upload {
    fn new(frame: Frame, members: Vec<usize>, layers: &[(&Consumer, &[Tap])]) -> Result<Self, LinearError> {
        let smallest = (frame.span.0 + 1, frame.span.1 + 1);
        let best = candidates(&frame).min_by_key(|layout| score(layout, layers));
        let Some(layout) = best else {
            let (rows, columns) = smallest;
            return Err(LinearError::Tile { consumer: members[0], rows, columns, degree: ROW });
        };
        let turns: Vec<Vec<usize>> = (0..layout.in_blocks()).map(|block| turns(&layout, layers, block)).collect();
        let ring_bits = layers.iter().map(|(c, _)| c.ring_bits).max().expect("an upload has a layer");
        let noise = Noise {
            products: 2 * turns.iter().map(Vec::len).sum::<usize>(),
            classes: layout.classes,
            turns: turns.iter().map(|t| chain::depth(&chain::chain(t))).max().unwrap_or(0),
        };
        let widest = largest_plain_log2(&noise);
        for limbs in 1..=MAX_LIMBS {
            let limb_bits = ring_bits.div_ceil(limbs);
            let needed = layers.iter().map(|(c, _)| plain_log2(c, limb_bits)).fold(0.0, tacit_floats::larger);
            if let Some(prime) = plain_prime(needed).filter(|&p| (p as f64).log2() <= widest) {
                return Ok(Self { layout, members, turns, prime, limbs, limb_bits, ring_bits });
            }
        }
        let norm_log2 = layers.iter().map(|(c, _)| c.norm_log2).max().unwrap_or(0);
        Err(HeError::TooNoisy { ring_bits, norm_log2: norm_log2.into(), max_error: 0 }.into())
    }

    pub(super) fn ciphertexts(&self) -> usize {
        self.limbs as usize * self.layout.tiles() * self.layout.in_blocks()
    }
}

fn turns(layout: &Layout, layers: &[(&Consumer, &[Tap])], block: usize) -> Vec<usize> {
    let turns: BTreeSet<usize> = layers.iter().flat_map(|(c, taps)| layout.turns(c, taps, block)).collect();
    turns.into_iter().collect()
}

/// Returns log2 of a field four times as wide as an output of the layer may be, for digits of
/// `bits` bits. `|W d|` is at most the product of the norms. It exceeds
/// `2^(bits + norm) (2.177 + sqrt(row) / 2^bits)` with probability at most 2^-40, since digits are
/// uniform (the second term is their mean of 1/2).
fn plain_log2(c: &Consumer, bits: u32) -> f64 {
    let row = ((c.conv.group_in() * c.conv.kernel.0 * c.conv.kernel.1) as f64).sqrt();
    let range = f64::from(bits).exp2();
    let largest = (UNIFORM_TAIL * range + row).min(row * range / 2.0);
    (4.0 * largest + 4.0).log2() + f64::from(c.norm_log2)
}

/// All sensible layouts.
fn candidates(frame: &Frame) -> impl Iterator<Item = Layout> + '_ {
    let classes = std::iter::successors(Some(1), |c| Some(2 * c)).take_while(|&c| c <= MAX_CLASSES);
    classes.flat_map(move |classes| {
        let tiles = sizes(frame.out.0).filter_map(move |h| {
            let fitting = sizes(frame.out.1).take_while(|&w| (h + frame.span.0) * (w + frame.span.1) * classes <= ROW);
            fitting.last().map(|w| (h, w))
        });
        tiles.map(move |tile_out| Layout { frame: frame.clone(), tile_out, classes })
    })
}

/// Returns the sizes that divide `total` into parts of about the same size.
fn sizes(total: usize) -> impl Iterator<Item = usize> {
    (1..=total).filter(move |&size| size == total.div_ceil(total.div_ceil(size)))
}

/// Weighted cost in bytes, extrapolated from the first input block.
fn score(layout: &Layout, layers: &[(&Consumer, &[Tap])]) -> usize {
    let (tiles, blocks) = (layout.tiles(), layout.in_blocks());
    let turned = turns(layout, layers, 0).len();
    let mut total = tiles * blocks * (FRESH_BYTES + POLY_WORTH + turned * TURN_WORTH);
    for (c, taps) in layers {
        let outputs = layout.out_blocks(c);
        let groups = (2 * layout.classes).min(c.conv.out_ch).div_ceil(c.conv.group_out()) + 1;
        let channels = groups.min(c.conv.groups) * c.conv.group_in() * layout.frame.phases.len();
        let inputs = (channels.div_ceil(2 * layout.classes) + usize::from(c.conv.groups > 1)).min(blocks);
        let products = 2 * layout.turns(c, taps, 0).len() * inputs;
        total += tiles * outputs * (ANSWER_BYTES + POLY_WORTH + TURN_WORTH + products * PRODUCT_WORTH);
    }
    total
}
