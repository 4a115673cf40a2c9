//! The client's side: encrypts masks and decrypts answers.

use super::tiling::Place;
use super::{ClientKeys, LinearError, LinearPlan, TAG_DOWN, TAG_SEED, TAG_UP, batches};
use rayon::prelude::*;
use tacit_arith::prg::{Prg, PublicSeed, SplitPrg};
use tacit_he::HeError;
use tacit_he::coeff::{Encryptor, Opener};
use tacit_net::Channel;

/// The client of one plan.
pub struct LinearClient<'a> {
    keys: &'a ClientKeys,
    plan: &'a LinearPlan,
}

impl<'a> LinearClient<'a> {
    /// A client that runs `plan` under `keys`.
    #[must_use]
    pub fn new(keys: &'a ClientKeys, plan: &'a LinearPlan) -> Self {
        Self { keys, plan }
    }

    /// Replaces the low bits of `mask` `[B, C, H, W]` (as many as the ring has) at the elements for
    /// which the encryption with `random` chooses the mask (see [`LinearPlan::with_chosen_masks`]).
    ///
    /// # Errors
    /// [`LinearError::Length`].
    pub fn choose(&self, mask: &mut [u64], random: &Prg) -> Result<(), LinearError> {
        self.check(mask)?;
        let Some(upload) = self.plan.uploads.first().filter(|upload| upload.chosen.is_some()) else { return Ok(()) };
        let base = random.fork(0);
        let encryptor = Encryptor::new(&self.keys.ctx, &self.keys.secret, upload.params);
        let low = (1 << upload.params.ring_bits()) - 1;
        let (per_input, input_len) = (upload.tiling.uploads(), mask.len() / self.plan.batch);
        for (input, mask) in mask.chunks_exact_mut(input_len).enumerate() {
            for range in batches(per_input) {
                let choices = range.into_par_iter().map(|i| {
                    let blank = encryptor.blank(&mut SplitPrg::new(base.fork((input * per_input + i) as u64)));
                    let places = upload.tiling.places(i).into_iter().enumerate();
                    let element_masks = places.filter_map(|(coefficient, place)| match place {
                        Place::Element { index, is_first: true } => Some((index as usize, blank.mask(coefficient))),
                        _ => None,
                    });
                    element_masks.collect::<Vec<_>>()
                });
                let choices: Vec<Vec<(usize, u64)>> = choices.collect();
                choices.into_iter().flatten().for_each(|(index, chosen)| mask[index] = mask[index] & !low | chosen);
            }
        }
        Ok(())
    }

    /// Checks the length of a mask.
    fn check(&self, mask: &[u64]) -> Result<(), LinearError> {
        let expected = self.plan.input_len();
        if mask.len() == expected {
            return Ok(());
        }
        Err(LinearError::Length { what: "mask", got: mask.len(), expected })
    }

    /// Encrypts the mask `[B, C, H, W]` of all inputs of the plan with `random` and hands each
    /// ciphertext to `sink`, in order. Bits above the plan's ring are ignored. `random` must
    /// encrypt nothing else. The mask must already hold the values that the encryption chooses
    /// ([`choose`](Self::choose)).
    ///
    /// # Errors
    /// [`LinearError::Length`], or what `sink` returns.
    pub fn encrypt(
        &self,
        mask: &[u64],
        random: &Prg,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), LinearError>,
    ) -> Result<(), LinearError> {
        self.check(mask)?;
        for (index, upload) in self.plan.uploads.iter().enumerate() {
            let base = random.fork(index as u64);
            let encryptor = Encryptor::new(&self.keys.ctx, &self.keys.secret, upload.params);
            let (tiling, input_len) = (&upload.tiling, mask.len() / self.plan.batch);
            let per_input = tiling.uploads();
            let count = self.plan.batch * per_input;
            for range in batches(count) {
                let frames = range.into_par_iter().map(|i| {
                    let mask = &mask[i / per_input * input_len..][..input_len];
                    let places = tiling.places(i % per_input);
                    let message: Vec<u64> = places.iter().map(|place| place.value(mask)).collect();
                    let blank = encryptor.blank(&mut SplitPrg::new(base.fork(i as u64)));
                    blank.encrypt(&zeroize::Zeroizing::new(message), &upload.free(&places))
                });
                let frames: Vec<Vec<u8>> = frames.collect();
                frames.iter().try_for_each(|f| sink(f))?;
            }
        }
        Ok(())
    }

    /// Reads the answer of one layer. `source(n)` returns the next message, which must have n
    /// bytes. Returns the client's share `[B, O, OH, OW]` mod `2^l` of the layer's own ring.
    ///
    /// # Errors
    /// [`LinearError::Consumer`], [`LinearError::He`] for malformed answers, or what `source`
    /// returns.
    pub fn decrypt(
        &self,
        consumer: usize,
        source: &mut dyn FnMut(usize) -> Result<Vec<u8>, LinearError>,
    ) -> Result<Vec<u64>, LinearError> {
        let (c, upload, _) = self.plan.consumer(consumer)?;
        let upload = &self.plan.uploads[upload];
        let opener = Opener::new(&self.keys.ctx, &self.keys.secret, upload.params);
        let expected = PublicSeed::BYTES;
        let seed = <[u8; PublicSeed::BYTES]>::try_from(source(expected)?);
        let seed = seed.map_err(|s| HeError::Length { what: "answer seed", got: s.len(), expected })?;
        let public = PublicSeed::from_bytes(seed);
        let (tiles, out_len) = (upload.tiling.output_tiles(c), c.conv.out_len());
        let per_block = self.plan.batch * tiles.len();
        let count = per_block * upload.tiling.out_blocks(c);
        let mut share = vec![0; self.plan.batch * out_len];
        let mask = (1 << c.ring_bits) - 1;
        for range in batches(count) {
            let frames: Vec<(usize, Vec<u8>)> =
                range.map(|i| Ok((i, source(upload.params.down_bytes())?))).collect::<Result<_, LinearError>>()?;
            let opened = frames.par_iter().map(|(i, frame)| {
                let (output, input, tile) = (i / per_block, i % per_block / tiles.len(), i % tiles.len());
                let (positions, indices) = upload.tiling.positions(c, tiles[tile], output);
                Ok((input * out_len, indices, opener.open(frame, public.fork(*i as u64), &positions)?))
            });
            let opened: Vec<(usize, Vec<usize>, Vec<u64>)> = opened.collect::<Result<_, LinearError>>()?;
            for (first, indices, values) in opened {
                indices.iter().zip(values).for_each(|(&index, v)| share[first + index] = v & mask);
            }
        }
        Ok(share)
    }

    /// Sends the encrypted mask.
    ///
    /// # Errors
    /// As [`LinearClient::encrypt`].
    pub fn send_mask(&self, mask: &[u64], random: &Prg, channel: &mut Channel) -> Result<(), LinearError> {
        self.encrypt(mask, random, &mut |frame| Ok(channel.send(TAG_UP, frame)?))?;
        Ok(channel.flush()?)
    }

    /// Receives one layer's answer and returns the client's share `[B, O, OH, OW]`.
    ///
    /// # Errors
    /// As [`LinearClient::decrypt`].
    pub fn receive_share(&self, consumer: usize, channel: &mut Channel) -> Result<Vec<u64>, LinearError> {
        let mut first = true;
        self.decrypt(consumer, &mut |len| {
            let tag = if std::mem::take(&mut first) { TAG_SEED } else { TAG_DOWN };
            Ok(channel.recv(tag, len)?)
        })
    }

    /// Runs the whole exchange for a plan's tensors: sends the mask and returns the client's share
    /// of every layer, in the plan's order.
    ///
    /// # Errors
    /// As [`LinearClient::encrypt`] and [`LinearClient::decrypt`].
    pub fn run(&self, mask: &[u64], random: &Prg, channel: &mut Channel) -> Result<Vec<Vec<u64>>, LinearError> {
        self.send_mask(mask, random, channel)?;
        (0..self.plan.consumers().len()).map(|k| self.receive_share(k, channel)).collect()
    }
}
