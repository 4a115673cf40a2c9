//! The server's side: checks weights, receives ciphertexts, evaluates layers.

use super::plan::norm_sq;
use super::tiling::Tap;
use super::{Consumer, LinearError, LinearPlan, ServerKeys, TAG_DOWN, TAG_SEED, TAG_UP, batch, batches};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Mutex;
use tacit_arith::prg::{Prg, PublicSeed, SplitPrg};
use tacit_he::coeff::{Ciphertext, Ciphertexts, Sums, Weights};
use tacit_he::core::ReshareStreams;
use tacit_net::Channel;

/// Tiles that share one transformation of the weights.
pub(super) const TILES_AT_ONCE: usize = 8;
/// Number of sums that are computed together, each 192 KiB. Sums of several output blocks share the
/// reads of the ciphertexts.
const SUMS_AT_ONCE: usize = 16;
/// Largest number of output blocks among these sums.
const OUTPUTS_AT_ONCE: usize = 8;
/// Number of weight polynomials held for a pass over the sums, each 40 KiB.
const WEIGHTS_AT_ONCE: usize = 64;

/// The weights of one layer, checked against the plan.
pub struct CheckedWeights<'a> {
    consumer: usize,
    values: &'a [i32],
}

impl<'a> CheckedWeights<'a> {
    /// Checks `[O, I/groups, kh, kw]` weights against the plan.
    ///
    /// # Errors
    /// [`LinearError::Consumer`], [`LinearError::Length`] or [`LinearError::WeightNorm`].
    pub fn new(plan: &LinearPlan, consumer: usize, values: &'a [i32]) -> Result<Self, LinearError> {
        let (c, _, _) = plan.consumer(consumer)?;
        check_weights(c, values)?;
        Ok(Self { consumer, values })
    }
}

/// Checks `[O, I/groups, kh, kw]` weights against the layer that the plan was made for.
///
/// # Errors
/// [`LinearError::Length`] or [`LinearError::WeightNorm`].
pub fn check_weights(c: &Consumer, values: &[i32]) -> Result<(), LinearError> {
    let expected = c.conv.weight_len();
    if values.len() != expected {
        return Err(LinearError::Length { what: "weights", got: values.len(), expected });
    }
    let limit = 1u128 << (2 * c.norm_log2.min(63));
    match values.chunks(expected / c.conv.out_ch).position(|w| norm_sq(w) > limit) {
        Some(channel) => Err(LinearError::WeightNorm { channel, norm_log2: c.norm_log2 }),
        None => Ok(()),
    }
}

/// Result of one layer at the server, for all inputs of the plan.
#[derive(Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// The server's share `[B, O, OH, OW]` mod `2^l` of the layer's own ring.
    pub share: Vec<u64>,
    /// Weight polynomials transformed.
    pub weight_polys: u64,
    /// Products of a weight polynomial and a ciphertext.
    pub products: u64,
}

/// A tensor's encrypted mask at the server.
pub struct LinearServer<'a> {
    keys: &'a ServerKeys,
    plan: &'a LinearPlan,
    /// Per upload, the split ciphertexts, input by input and tile by tile.
    received: Vec<Ciphertexts>,
}

/// A unit of work: output blocks, the input blocks that they all read, and up to [`TILES_AT_ONCE`]
/// tiles.
struct Part {
    outputs: Range<usize>,
    inputs: Vec<usize>,
    tiles: Range<usize>,
}

/// Answers and shares of a part, output block by output block.
struct Unit {
    answers: Vec<Vec<u8>>,
    /// Shares, each with its index into `Evaluation::share`.
    shares: Vec<(usize, u64)>,
    weight_polys: u64,
    products: u64,
}

struct Job<'a> {
    consumer: &'a Consumer,
    taps: &'a [Tap],
    weights: &'a CheckedWeights<'a>,
    upload: usize,
    /// Tiles of all inputs: tile t of input k is `k * tiles + t`.
    tiles: Vec<usize>,
    secret: Prg,
    public: PublicSeed,
    buffers: Buffers,
}

/// Buffers for sums and weight polynomials, which parts reuse one after the other.
#[derive(Default)]
struct Buffers(Mutex<Vec<(Sums, Weights)>>);

impl Buffers {
    fn take(&self) -> (Sums, Weights) {
        self.0.lock().expect(NO_PANIC).pop().unwrap_or_default()
    }

    fn give_back(&self, sums: Sums, weights: Weights) {
        self.0.lock().expect(NO_PANIC).push((sums, weights));
    }
}

const NO_PANIC: &str = "nothing panics while it holds the lock";

impl<'a> LinearServer<'a> {
    /// Reads the client's ciphertexts; `source(n)` returns the next message, which must have n
    /// bytes.
    ///
    /// # Errors
    /// [`LinearError::He`] for malformed ciphertexts, or what `source` returns.
    pub fn receive_from(
        keys: &'a ServerKeys,
        plan: &'a LinearPlan,
        source: &mut dyn FnMut(usize) -> Result<Vec<u8>, LinearError>,
    ) -> Result<Self, LinearError> {
        let mut received = vec![];
        for upload in &plan.uploads {
            let (per_input, parts, steps) = (upload.tiling.uploads(), upload.tiling.parts(), upload.params.steps());
            if steps > keys.expansion.steps() {
                return Err(LinearError::Steps { needed: steps, have: keys.expansion.steps() });
            }
            let count = plan.batch * per_input;
            let mut ciphertexts = Ciphertexts::new(plan.batch * parts);
            let mut next_index = 0;
            for range in batches(count) {
                let start = range.start;
                let frames = range.map(|i| Ok((i, source(upload.up_bytes(i % per_input))?)));
                let frames: Vec<(usize, Vec<u8>)> = frames.collect::<Result<_, LinearError>>()?;
                let parsed = frames.par_iter().map(|(i, frame)| {
                    let free = upload.free(&upload.tiling.places(i % per_input));
                    let whole = Ciphertext::from_bytes(&keys.ctx, &upload.params, frame, &free)?;
                    Ok(keys.expansion.expand(&keys.ctx, whole, steps))
                });
                let parsed: Vec<Vec<Ciphertext>> = parsed.collect::<Result<_, LinearError>>()?;
                for (i, expanded) in (start..).zip(parsed) {
                    // The last ciphertext of an input may have room for more parts than the tensor
                    // has.
                    let left = parts - ((i % per_input) << steps);
                    for ciphertext in expanded.into_iter().take(left) {
                        ciphertexts.put(next_index, &ciphertext);
                        next_index += 1;
                    }
                }
            }
            received.push(ciphertexts);
        }
        Ok(Self { keys, plan, received })
    }

    /// Receives the client's encrypted mask.
    ///
    /// # Errors
    /// As [`LinearServer::receive_from`].
    pub fn receive(keys: &'a ServerKeys, plan: &'a LinearPlan, channel: &mut Channel) -> Result<Self, LinearError> {
        Self::receive_from(keys, plan, &mut |len| Ok(channel.recv(TAG_UP, len)?))
    }

    /// Bytes of ciphertexts held.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.received.iter().map(|c| c.count() * Ciphertexts::MEMORY_BYTES).sum()
    }

    /// Evaluates one layer on the mask. Hands the answer's messages to `sink`, in order: a 16-byte
    /// seed, then one message for each (output block, tile).
    ///
    /// # Errors
    /// [`LinearError::Consumer`], or what `sink` returns.
    pub fn evaluate(
        &self,
        consumer: usize,
        weights: &CheckedWeights<'_>,
        prg: &mut Prg,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), LinearError>,
    ) -> Result<Evaluation, LinearError> {
        let (c, upload, taps) = self.plan.consumer(consumer)?;
        if weights.consumer != consumer || weights.values.len() != c.conv.weight_len() {
            return Err(LinearError::Consumer { consumer: weights.consumer, have: self.plan.consumers().len() });
        }
        let tiling = &self.plan.uploads[upload].tiling;
        let mut random = SplitPrg::draw(prg);
        let (secret, public) = (Prg::from_seed(random.secret().next_seed()), random.public_seed());
        sink(&public.to_bytes())?;
        let input_tiles = tiling.output_tiles(c);
        let inputs = 0..self.plan.batch;
        let tiles =
            inputs.flat_map(|input| input_tiles.iter().map(move |tile| input * tiling.tiles() + tile)).collect();
        let job = Job { consumer: c, taps, weights, upload, tiles, secret, public, buffers: Buffers::default() };
        let parts = self.parts(&job, tiling.out_blocks(c));
        let mut result =
            Evaluation { share: vec![0; self.plan.batch * c.conv.out_len()], weight_polys: 0, products: 0 };
        let mask = (1 << c.ring_bits) - 1;
        for parts in parts.chunks(batch()) {
            let units: Vec<Unit> = parts.par_iter().map(|part| self.evaluate_part(&job, part)).collect();
            for unit in units {
                unit.answers.iter().try_for_each(|a| sink(a))?;
                unit.shares.iter().for_each(|&(index, v)| result.share[index] = v & mask);
                result.weight_polys += unit.weight_polys;
                result.products += unit.products;
            }
        }
        Ok(result)
    }

    /// All parts in the order of their answers: output block by output block, tile by tile.
    fn parts(&self, job: &Job<'_>, blocks: usize) -> Vec<Part> {
        let (tiles, threads) = (job.tiles.len(), rayon::current_num_threads());
        let max_outputs = if tiles > TILES_AT_ONCE { 1 } else { (SUMS_AT_ONCE / tiles.max(1)).min(OUTPUTS_AT_ONCE) };
        let max_outputs = max_outputs.min(blocks.div_ceil(threads));
        let joined: Vec<Vec<usize>> =
            (0..blocks).map(|output| self.plan.inputs_reaching(job.weights.consumer, output)).collect();
        let (mut parts, mut first) = (vec![], 0);
        while first < blocks {
            let count = joined[first..].iter().take(max_outputs).take_while(|inputs| **inputs == joined[first]).count();
            let (outputs, inputs) = (first..first + count, &joined[first]);
            let tiles = (0..tiles).step_by(TILES_AT_ONCE).map(|start| start..(start + TILES_AT_ONCE).min(tiles));
            parts.extend(tiles.map(|tiles| Part { outputs: outputs.clone(), inputs: inputs.clone(), tiles }));
            first += count;
        }
        parts
    }

    fn evaluate_part(&self, job: &Job<'_>, part: &Part) -> Unit {
        let upload = &self.plan.uploads[job.upload];
        let (tiling, ciphertexts) = (&upload.tiling, &self.received[job.upload]);
        let (ctx, key) = (&*self.keys.ctx, &self.keys.public);
        let (outputs, tiles) = (part.outputs.clone(), &job.tiles[part.tiles.clone()]);
        let (mut sums, mut weights) = job.buffers.take();
        sums.reset(outputs.len(), tiles.len());
        let mut unit = Unit { answers: vec![], shares: vec![], weight_polys: 0, products: 0 };
        let mut buffer = vec![];
        for inputs in part.inputs.chunks(WEIGHTS_AT_ONCE / outputs.len()) {
            weights.resize(outputs.len(), inputs.len());
            for (row, output) in outputs.clone().enumerate() {
                for (k, &input) in inputs.iter().enumerate() {
                    tiling.encode_weights(job.consumer, job.taps, job.weights.values, output, input, &mut buffer);
                    weights.put(ctx, row, k, &buffer);
                }
            }
            let tile_inputs =
                tiles.iter().map(|&tile| inputs.iter().map(|input| tile * tiling.in_blocks() + input).collect());
            sums.add(ctx, &weights, ciphertexts, &tile_inputs.collect::<Vec<_>>());
            unit.weight_polys += (outputs.len() * inputs.len()) as u64;
            unit.products += (outputs.len() * inputs.len() * tiles.len()) as u64;
        }
        for (row, column) in (0..outputs.len()).flat_map(|row| (0..tiles.len()).map(move |column| (row, column))) {
            let (output, tile) = (outputs.start + row, tiles[column]);
            let number = (output * job.tiles.len() + part.tiles.start + column) as u64;
            let (positions, indices) = tiling.positions(job.consumer, tile % tiling.tiles(), output);
            let input_offset = tile / tiling.tiles() * job.consumer.conv.out_len();
            let streams = ReshareStreams { secret: &mut job.secret.fork(number), public: job.public.fork(number) };
            let mut answer = Vec::with_capacity(upload.params.down_bytes());
            let mut sum = sums.sum(ctx, row, column);
            let shares = sum.reshare(ctx, key, &upload.params, streams, &positions, &mut answer);
            unit.answers.push(answer);
            unit.shares.extend(indices.into_iter().map(|index| input_offset + index).zip(shares));
        }
        job.buffers.give_back(sums, weights);
        unit
    }

    /// Evaluates one layer and sends the answer; returns the server's share.
    ///
    /// # Errors
    /// As [`LinearServer::evaluate`].
    pub fn send_answer(
        &self,
        consumer: usize,
        weights: &CheckedWeights<'_>,
        prg: &mut Prg,
        channel: &mut Channel,
    ) -> Result<Vec<u64>, LinearError> {
        let mut first = true;
        let result = self.evaluate(consumer, weights, prg, &mut |message| {
            let tag = if std::mem::take(&mut first) { TAG_SEED } else { TAG_DOWN };
            Ok(channel.send(tag, message)?)
        })?;
        channel.flush()?;
        Ok(result.share)
    }

    /// Runs the whole exchange for a plan's tensors: receives the mask, answers every layer, and
    /// returns the server's shares in the plan's order. `weights[k]` belongs to layer k.
    ///
    /// # Errors
    /// As [`LinearServer::receive`] and [`LinearServer::evaluate`].
    pub fn run(
        keys: &'a ServerKeys,
        plan: &'a LinearPlan,
        weights: &[CheckedWeights<'_>],
        prg: &mut Prg,
        channel: &mut Channel,
    ) -> Result<Vec<Vec<u64>>, LinearError> {
        let expected = plan.consumers().len();
        if weights.len() != expected {
            return Err(LinearError::Length { what: "weights", got: weights.len(), expected });
        }
        let server = Self::receive(keys, plan, channel)?;
        weights.iter().enumerate().map(|(k, w)| server.send_answer(k, w, prg, channel)).collect()
    }
}
