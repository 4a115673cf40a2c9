//! Planning: chooses the layers that share an upload, and the tiles of tensors.

use super::LinearError;
use super::tiling::{Consumer, Frame, Place, Tap, Tiling, strides};
use std::sync::Arc;
use tacit_he::HeError;
use tacit_he::coeff::{DEGREE, MAX_STEPS, Params, ParamsSpec};

// Processor time as bytes: what a link of 100 Mbit/s sends in this time, at 80 ns a byte.
/// The worth, in bytes, of an upload or an answer beside the bytes sent (about 0.1 ms measured).
const POLY_WORTH: usize = 1200;
/// The worth, in bytes, of a polynomial of weights (about 10 us measured).
const WEIGHT_WORTH: usize = 120;
/// The worth, in bytes, of a product of polynomials (about 2.5 us measured).
const PRODUCT_WORTH: usize = 30;
/// The worth, in bytes, of halving a part of an uploaded ciphertext (about 0.1 ms).
const HALVING_WORTH: usize = 1200;
/// Largest number of parts of a split tensor: 40 MiB at the server.
const MAX_PARTS: usize = 512;

/// Returns the smallest `norm_log2` that holds for weights of `out_ch` output channels. Publishing
/// this value tells the client this much about the weights; a model owner may publish a larger one.
#[must_use]
pub fn weight_norm_log2(out_ch: usize, weights: &[i32]) -> u32 {
    let row = (weights.len() / out_ch.max(1)).max(1);
    // The norm of no weights is 0.
    let largest = weights.chunks(row).map(norm_sq).fold(0, u128::max);
    (0..=63).find(|&n| largest <= 1u128 << (2 * n)).expect("fewer than 2^64 squares of at most 2^62 each")
}

pub(super) fn norm_sq(weights: &[i32]) -> u128 {
    weights.iter().map(|&w| u128::from(w.unsigned_abs()).pow(2)).sum()
}

/// Layers with one stride that share one encryption of the tensor.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    /// How the tensor is cut into polynomials.
    pub tiling: Tiling,
    /// Parameters of the ciphertexts.
    pub params: Params,
    /// For each polynomial of a tensor, the number of masks that the encryption chooses; `None` if
    /// the encryption chooses none.
    pub chosen: Option<Vec<usize>>,
}

/// A plan before the number of splitting steps is chosen.
pub struct LinearDraft {
    consumers: Vec<Consumer>,
    strides: Vec<(usize, usize)>,
    /// For each stride and number of splitting steps, the best upload with this number, if any
    /// fits, and its weighted cost in bytes.
    uploads: Vec<Vec<Option<(usize, Upload)>>>,
}

/// Plan for all linear layers that read one tensor. Both parties derive the same plan from public
/// data.
#[derive(Clone, Debug)]
pub struct LinearPlan {
    consumers: Vec<Consumer>,
    pub(super) uploads: Vec<Upload>,
    /// Upload of each consumer.
    upload_index: Vec<usize>,
    taps: Vec<Vec<Tap>>,
    /// Number of tensors in one exchange.
    pub(super) batch: usize,
}

impl LinearPlan {
    /// Plans `consumers`, which all read the same tensor `[C, H, W]`. `max_error >= 1` is the error
    /// allowed at each output. Wide rings raise this error (see [`LinearPlan::max_error`]). Larger
    /// errors save bytes.
    ///
    /// # Errors
    /// [`LinearError::Shape`], [`LinearError::Group`], [`LinearError::Tile`], or
    /// [`LinearError::He`] if no parameters fit the rings and norms.
    pub fn new(consumers: &[Consumer], max_error: u32) -> Result<Self, LinearError> {
        Ok(LinearDraft::new(consumers, max_error)?.plan(MAX_STEPS))
    }

    /// The same plan with masks chosen by the encryption, for masks that the client may choose
    /// freely. The encryption chooses the masks of elements that it meets for the first time
    /// ([`LinearClient::choose`](super::LinearClient::choose)). `l` bits of their coefficients then
    /// need not be sent.
    #[must_use]
    pub fn with_chosen_masks(mut self) -> Self {
        if let Some(first) = self.uploads.first_mut() {
            let places = (0..first.tiling.uploads()).map(|i| first.tiling.places(i));
            let free = places.map(|places| places.into_iter().filter(|place| place.is_free()).count());
            first.chosen = Some(free.collect());
        }
        self
    }

    /// Whether the encryption chooses masks.
    #[must_use]
    pub fn chooses_masks(&self) -> bool {
        self.uploads.iter().any(|upload| upload.chosen.is_some())
    }

    /// The same plan for the tensors of `batch` inputs at once. Their masks and shares are
    /// concatenated, and the weights are transformed for several tensors at a time.
    #[must_use]
    pub fn times(&self, batch: usize) -> Self {
        Self { batch, ..self.clone() }
    }

    /// The layers, in the order given.
    #[must_use]
    pub fn consumers(&self) -> &[Consumer] {
        &self.consumers
    }

    /// Number of elements of all tensors in one exchange.
    #[must_use]
    pub fn input_len(&self) -> usize {
        self.batch * self.consumers[0].conv.in_len()
    }

    /// Largest `|client_share + server_share - W r|` of a layer.
    ///
    /// # Panics
    /// If the plan has no such layer.
    #[must_use]
    pub fn max_error(&self, consumer: usize) -> u32 {
        self.uploads[self.upload_index[consumer]].params.max_error()
    }

    /// The widest ring in use: input shares must be known modulo 2 to the power of this width.
    #[must_use]
    pub fn ring_bits(&self) -> u32 {
        self.uploads.iter().map(|u| u.params.ring_bits()).max().expect("a plan has a layer")
    }

    /// Number of steps in which the server splits the largest ciphertexts.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.uploads.iter().map(|u| u.params.steps()).max().expect("a plan has a layer")
    }

    /// The choices of planning for each upload: splitting steps, tile outputs (rows, columns),
    /// channels in and out of a part, bits of a coefficient up and down. Both parties must have
    /// made the same choices.
    #[must_use]
    pub fn choices(&self) -> Vec<[u64; 7]> {
        let choices = self.uploads.iter().map(|u| {
            let (t, (rows, columns)) = (&u.tiling, u.tiling.tile_out);
            let sizes = [rows, columns, t.in_channels_per_part, t.out_channels_per_part].map(|size| size as u64);
            let [steps, up, down] = [t.steps, u.params.up_bits(), u.params.down_bits()].map(u64::from);
            [steps, sizes[0], sizes[1], sizes[2], sizes[3], up, down]
        });
        choices.collect()
    }

    /// A layer, its upload and its taps.
    pub(super) fn consumer(&self, consumer: usize) -> Result<(&Consumer, usize, &[Tap]), LinearError> {
        let missing = LinearError::Consumer { consumer, have: self.consumers.len() };
        let upload = *self.upload_index.get(consumer).ok_or(missing)?;
        Ok((&self.consumers[consumer], upload, &self.taps[consumer]))
    }

    /// The input blocks that output block `output` of a layer depends on.
    pub(super) fn inputs_reaching(&self, consumer: usize, output: usize) -> Vec<usize> {
        let (c, taps) = (&self.consumers[consumer], &self.taps[consumer]);
        let tiling = &self.uploads[self.upload_index[consumer]].tiling;
        (0..tiling.in_blocks()).filter(|&input| tiling.connects(c, taps, output, input)).collect()
    }
}

impl LinearDraft {
    /// Drafts a plan for `consumers`, which all read the same tensor: for each of their strides,
    /// the best upload for every number of splitting steps. `max_error` is as in
    /// [`LinearPlan::new`].
    ///
    /// # Errors
    /// [`LinearError::Shape`], [`LinearError::Group`], [`LinearError::Tile`], or
    /// [`LinearError::He`] if no parameters fit the rings and norms.
    pub fn new(consumers: &[Consumer], max_error: u32) -> Result<Self, LinearError> {
        let strides = strides(consumers)?;
        let draft = Self { consumers: consumers.to_vec(), strides, uploads: Vec::new() };
        let uploads = draft.strides.iter().map(|&stride| {
            let members: Vec<Consumer> = consumers.iter().filter(|c| c.conv.stride == stride).copied().collect();
            Upload::best_by_steps(&members, max_error).map_err(|e| draft.locate(stride, e))
        });
        let uploads = uploads.collect::<Result<_, _>>()?;
        Ok(Self { uploads, ..draft })
    }

    /// Adds to `error` the index of the first layer with this stride.
    fn locate(&self, stride: (usize, usize), error: LinearError) -> LinearError {
        let first = self.consumers.iter().position(|c| c.conv.stride == stride);
        let first = first.expect("the stride is that of a layer");
        match error {
            LinearError::Tile { rows, columns, degree, .. } => {
                LinearError::Tile { consumer: first, rows, columns, degree }
            }
            error => error,
        }
    }

    /// The cheapest version of an upload with at most `max_steps` splitting steps.
    fn cheapest(candidates: &[Option<(usize, Upload)>], max_steps: u32) -> &(usize, Upload) {
        let within = candidates.iter().take(max_steps as usize + 1).flatten();
        within.min_by_key(|(score, _)| *score).expect("an upload that is not taken apart, or nothing else, was checked")
    }

    /// Weighted cost in bytes with at most `max_steps` splitting steps.
    #[must_use]
    pub fn score(&self, max_steps: u32) -> usize {
        self.uploads.iter().map(|candidates| Self::cheapest(candidates, max_steps).0).sum()
    }

    /// The plan with at most `max_steps` splitting steps.
    #[must_use]
    pub fn plan(&self, max_steps: u32) -> LinearPlan {
        let uploads: Vec<Upload> =
            self.uploads.iter().map(|candidates| Self::cheapest(candidates, max_steps).1.clone()).collect();
        let upload_index = self.consumers.iter().map(|c| {
            let upload = self.strides.iter().position(|&s| s == c.conv.stride);
            upload.expect("the strides of all layers were gathered")
        });
        let upload_index: Vec<usize> = upload_index.collect();
        let taps = self.consumers.iter().zip(&upload_index).map(|(c, &upload)| uploads[upload].tiling.frame.taps(c));
        LinearPlan { taps: taps.collect(), consumers: self.consumers.clone(), uploads, upload_index, batch: 1 }
    }
}

impl Upload {
    /// The best upload for each number of splitting steps, if any fits. The upload without
    /// splitting always exists.
    fn best_by_steps(members: &[Consumer], max_error: u32) -> Result<Vec<Option<(usize, Self)>>, LinearError> {
        let frame = Arc::new(Frame::new(members));
        // Parameters always exist without splitting. With splitting, there may be none for so small
        // an error.
        let whole = Self::best_with_steps(0, &frame, members, max_error)?;
        if whole.is_none() {
            let (rows, columns) = (frame.span.0 + 1, frame.span.1 + 1);
            return Err(LinearError::Tile { consumer: 0, rows, columns, degree: DEGREE });
        }
        let split_uploads =
            (1..=MAX_STEPS).map(|steps| Self::best_with_steps(steps, &frame, members, max_error).ok().flatten());
        Ok(std::iter::once(whole).chain(split_uploads).collect())
    }

    /// Bytes of polynomial `i` of a tensor.
    pub fn up_bytes(&self, i: usize) -> usize {
        self.params.up_bytes(self.chosen.as_ref().map_or(0, |chosen| chosen[i]))
    }

    /// For each of `places`, whether the encryption chooses the mask.
    pub fn free(&self, places: &[Place]) -> Vec<bool> {
        places.iter().map(|place| self.chosen.is_some() && place.is_free()).collect()
    }

    /// The best tiling with `steps` splitting steps, if any fits, with its score.
    fn best_with_steps(
        steps: u32,
        frame: &Arc<Frame>,
        members: &[Consumer],
        max_error: u32,
    ) -> Result<Option<(usize, Self)>, HeError> {
        let single = params(members, 1, steps, max_error, 1.0)?;
        // Parameters may not exist for many output channels in a part.
        let counts = (0..=DEGREE.ilog2()).map(|log2| 1 << log2);
        let max_channels = counts
            .take_while(|&out_channels_per_part| params(members, out_channels_per_part, steps, max_error, 1.0).is_ok())
            .last();
        let fitting = candidates(frame, steps)
            .filter(|tiling| max_channels.is_some_and(|max_channels| tiling.out_channels_per_part <= max_channels));
        let scored = fitting.map(|tiling| (score(&tiling, members, &single), tiling));
        let Some((score, tiling)) = scored.min_by_key(|(score, _)| *score) else { return Ok(None) };
        let down: usize = members.iter().map(|c| tiling.output_tiles(c).len() * tiling.out_blocks(c)).sum();
        let params =
            params(members, tiling.out_channels_per_part, steps, max_error, tiling.uploads() as f64 / down as f64)?;
        Ok(Some((score, Self { tiling, params, chosen: None })))
    }
}

/// Parameters for layers with `out_channels_per_part` output channels in a part of an answer, and
/// `steps` splitting steps.
fn params(
    members: &[Consumer],
    out_channels_per_part: usize,
    steps: u32,
    max_error: u32,
    up_per_down: f64,
) -> Result<Params, HeError> {
    let ring_bits = members.iter().map(|c| c.ring_bits).max().expect("a group has a layer");
    let norms =
        members.iter().map(|c| 4f64.powi(c.norm_log2.min(64) as i32) * out_channels_per_part.min(c.conv.out_ch) as f64);
    let norm_sq = norms.fold(1.0, tacit_floats::larger);
    let max_error = max_error.max(Params::smallest_error(ring_bits, norm_sq)?);
    Params::new(&ParamsSpec { ring_bits, norm_sq, steps, max_error, up_per_down })
}

/// The smallest size for each number of parts that `total` can be cut into, up to `max_size`.
fn sizes(total: usize, max_size: usize) -> impl Iterator<Item = usize> + Clone {
    (1..=total.min(max_size)).filter(move |&size| size == total.div_ceil(total.div_ceil(size)))
}

/// All sensible tilings that fit a part of a polynomial.
fn candidates(frame: &Arc<Frame>, steps: u32) -> impl Iterator<Item = Tiling> {
    let (span, n) = (frame.span, DEGREE >> steps);
    let rows = sizes(frame.out.0, n);
    let pairs = rows.flat_map(move |h| sizes(frame.out.1, n).map(move |w| (h, w)));
    let fitting = pairs.filter_map(move |(h, w)| {
        let area = (h + span.0).checked_mul(w + span.1).filter(|&a| a <= n)?;
        Some(((h, w), area))
    });
    let tilings = fitting.flat_map(move |(tile_out, area)| {
        let sizes = sizes(frame.virtual_channels(), n / area);
        sizes.map(move |in_channels_per_part| Tiling {
            frame: Arc::clone(frame),
            tile_out,
            in_channels_per_part,
            out_channels_per_part: n / (in_channels_per_part * area),
            steps,
        })
    });
    tilings.filter(move |tiling| steps == 0 || tiling.parts() <= MAX_PARTS)
}

/// Weighted cost in bytes. Counts of weight polynomials are estimated for grouped layers.
fn score(t: &Tiling, members: &[Consumer], single: &Params) -> usize {
    // Each doubling of `out_channels_per_part` costs half a bit of every uploaded coefficient.
    let spread = DEGREE / 16 * t.out_channels_per_part.ilog2() as usize;
    let phases = t.frame.phases.len();
    let halvings = ((1 << t.steps) - 1) * HALVING_WORTH;
    let mut total = t.uploads() * (single.up_bytes(0) + spread + POLY_WORTH + halvings);
    for c in members {
        let (h, w) = (c.conv.out_h().div_ceil(t.tile_out.0), c.conv.out_w().div_ceil(t.tile_out.1));
        let groups = (t.outputs_at_once().min(c.conv.out_ch) / c.conv.group_out() + 1).min(c.conv.groups);
        let inputs = ((groups * c.conv.group_in() * phases).div_ceil(t.in_channels_per_part)
            + usize::from(c.conv.groups > 1))
        .min(t.in_blocks());
        let weights = t.out_blocks(c) * inputs;
        total += h * w * t.out_blocks(c) * (single.down_bytes() + POLY_WORTH);
        total += weights * (WEIGHT_WORTH + h * w * PRODUCT_WORTH);
    }
    total
}
