//! The server's side: weights, ciphertexts, evaluation.

use super::plan::norm_sq;
use super::tiling::Tap;
use super::{Consumer, LinearError, LinearPlan, ServerKeys, TAG_DOWN, TAG_SEED, TAG_UP, batch};
use rayon::prelude::*;
use tacit_arith::prg::{Prg, PublicSeed, SplitPrg};
use tacit_he::coeff::{Ciphertext, Sum, WeightPoly};
use tacit_net::Channel;

/// Tiles that share one transformation of the weights: their sums take 256 KiB each.
pub(super) const TILES_AT_ONCE: usize = 8;
/// Input blocks multiplied in one pass over the sums.
const INPUTS_AT_ONCE: usize = 4;

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

/// Checks `[O, I/groups, kh, kw]` weights against what the plan was made for.
///
/// # Errors
/// [`LinearError::Length`] or [`LinearError::WeightNorm`].
pub(crate) fn check_weights(c: &Consumer, values: &[i32]) -> Result<(), LinearError> {
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

/// A tensor's mask as received by the server.
pub struct LinearServer<'a> {
    keys: &'a ServerKeys,
    plan: &'a LinearPlan,
    /// Per upload, input by input, tile by tile, taken apart.
    received: Vec<Vec<Ciphertext>>,
}

/// Answers and shares of one output block for up to [`TILES_AT_ONCE`] tiles.
struct Unit {
    answers: Vec<Vec<u8>>,
    /// (index into the output, share)
    shares: Vec<(usize, u64)>,
    weight_polys: u64,
    products: u64,
}

/// One layer under evaluation.
struct Job<'a> {
    consumer: &'a Consumer,
    taps: &'a [Tap],
    weights: &'a CheckedWeights<'a>,
    upload: usize,
    /// Of all inputs: tile t of input k is `k * tiles + t`.
    tiles: Vec<usize>,
    secret: Prg,
    public: PublicSeed,
}

impl<'a> LinearServer<'a> {
    /// Reads the client's ciphertexts; `source(n)` returns the next message, which must have n bytes.
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
            let (each, parts, steps) = (upload.tiling.uploads(), upload.tiling.parts(), upload.params.steps());
            if steps > keys.expansion.steps() {
                return Err(LinearError::Steps { needed: steps, have: keys.expansion.steps() });
            }
            let count = plan.batch * each;
            let mut ciphertexts = vec![];
            for start in (0..count).step_by(batch()) {
                let frames = (start..(start + batch()).min(count)).map(|_| source(upload.params.up_bytes()));
                let frames: Vec<Vec<u8>> = frames.collect::<Result<_, _>>()?;
                let parse = |f: &Vec<u8>| {
                    let whole = Ciphertext::from_bytes(&keys.ctx, &upload.params, f)?;
                    Ok(keys.expansion.expand(&keys.ctx, whole, steps))
                };
                let parsed: Vec<Vec<Ciphertext>> = frames.par_iter().map(parse).collect::<Result<_, LinearError>>()?;
                for (i, expanded) in (start..).zip(parsed) {
                    // The last ciphertext of an input may have room for more parts than there are.
                    let left = parts - ((i % each) << steps);
                    ciphertexts.extend(expanded.into_iter().take(left));
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
        self.received.iter().map(|c| c.len() * Ciphertext::MEMORY_BYTES).sum()
    }

    /// Evaluates one layer on the mask and hands the answer's messages to `sink`, in order: a 16-byte seed,
    /// then one message for each (output block, tile).
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
        let of_one = tiling.tiles_of(c);
        let of_input = |input: usize| of_one.iter().map(move |tile| input * tiling.tiles() + tile);
        let tiles = (0..self.plan.batch).flat_map(of_input).collect();
        let job = Job { consumer: c, taps, weights, upload, tiles, secret, public };
        let passes = job.tiles.len().div_ceil(TILES_AT_ONCE);
        let units = tiling.out_blocks(c) * passes;
        let mut result =
            Evaluation { share: vec![0; self.plan.batch * c.conv.out_len()], weight_polys: 0, products: 0 };
        let mask = (1 << c.ring_bits) - 1;
        for start in (0..units).step_by(batch()) {
            let range = start..(start + batch()).min(units);
            let done: Vec<Unit> = range.into_par_iter().map(|u| self.unit(&job, u / passes, u % passes)).collect();
            for unit in done {
                unit.answers.iter().try_for_each(|a| sink(a))?;
                unit.shares.iter().for_each(|&(at, v)| result.share[at] = v & mask);
                result.weight_polys += unit.weight_polys;
                result.products += unit.products;
            }
        }
        Ok(result)
    }

    fn unit(&self, job: &Job<'_>, output: usize, pass: usize) -> Unit {
        let upload = &self.plan.uploads[job.upload];
        let (tiling, ciphertexts) = (&upload.tiling, &self.received[job.upload]);
        let (ctx, key) = (&*self.keys.ctx, &self.keys.public);
        let first = pass * TILES_AT_ONCE;
        let tiles = &job.tiles[first..(first + TILES_AT_ONCE).min(job.tiles.len())];
        let mut sums: Vec<Sum> = tiles.iter().map(|_| Sum::new(ctx)).collect();
        let mut unit = Unit { answers: vec![], shares: vec![], weight_polys: 0, products: 0 };
        let mut buffer = vec![];
        for inputs in self.plan.joined(job.weights.consumer, output).chunks(INPUTS_AT_ONCE) {
            let transformed: Vec<WeightPoly> = inputs
                .iter()
                .map(|&input| {
                    tiling.encode_weights(job.consumer, job.taps, job.weights.values, (output, input), &mut buffer);
                    WeightPoly::new(ctx, &buffer)
                })
                .collect();
            unit.weight_polys += transformed.len() as u64;
            unit.products += (inputs.len() * tiles.len()) as u64;
            for (sum, &tile) in sums.iter_mut().zip(tiles) {
                let ciphertexts = inputs.iter().map(|&input| &ciphertexts[tile * tiling.in_blocks() + input]);
                sum.add_products(ctx, &transformed.iter().zip(ciphertexts).collect::<Vec<_>>());
            }
        }
        for (k, (sum, &tile)) in sums.iter_mut().zip(tiles).enumerate() {
            let number = (output * job.tiles.len() + first + k) as u64;
            let (positions, indices) = tiling.positions(job.consumer, tile % tiling.tiles(), output);
            let of_input = tile / tiling.tiles() * job.consumer.conv.out_len();
            let streams = (&mut job.secret.fork(number), job.public.fork(number));
            let mut answer = Vec::with_capacity(upload.params.down_bytes());
            let shares = sum.reshare(ctx, key, &upload.params, streams, &positions, &mut answer);
            unit.answers.push(answer);
            unit.shares.extend(indices.into_iter().map(|at| of_input + at).zip(shares));
        }
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

    /// The whole exchange for a plan's tensors: receives the mask, answers every layer, and returns the
    /// server's shares in the plan's order. `weights[k]` belongs to layer k.
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
