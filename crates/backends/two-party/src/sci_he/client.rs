//! The client's side: makes keys, encrypts masks, decrypts answers.

use std::sync::Arc;

use rayon::prelude::*;
use tacit_arith::prg::{Prg, PublicSeed, SplitPrg};
use tacit_he::HeError;
use tacit_he::bfv::{ANSWER_BYTES, Context, Encryptor, Opener, Plain, galois_key};
use tacit_he::core::SecretKey;
use tacit_mpc::gate::LiftSpec;
use tacit_mpc::{Ots, Session};
use zeroize::Zeroizing;

use super::plan::{SlotPlan, Upload};
use super::units::{TAG_DOWN, TAG_GALOIS, TAG_KEY, TAG_SEED, TAG_UP, combine_digits, keys, lift_spec, units, values};
use crate::cheetah::linear::{LinearError, batch, batches};
use tacit_backend_api::BackendError;

/// The client's lattice key for one connection, which serves every plan. Wiped on drop.
pub struct ClientKeys {
    ctx: Arc<Context>,
    secret: SecretKey,
}

impl ClientKeys {
    /// Runs the setup phase: draws a key and sends the public key and the Galois keys of all plans.
    ///
    /// # Errors
    /// Channel errors.
    pub fn setup(plans: &[&SlotPlan], session: &mut Session<'_>) -> Result<Self, BackendError> {
        let ctx = Arc::new(Context::new().map_err(LinearError::from)?);
        let secret = ctx.secret_key(session.prg);
        let public = ctx.public_key(&secret, &mut SplitPrg::draw(session.prg));
        session.channel.send(TAG_KEY, &public.to_bytes(ctx.ring()))?;
        for turn in keys(plans) {
            let key = galois_key(&ctx, &secret, turn, &mut SplitPrg::draw(session.prg));
            session.channel.send(TAG_GALOIS, &key.map_err(LinearError::from)?)?;
        }
        Ok(Self { ctx, secret })
    }

    /// Runs the whole exchange for a plan's tensors: sends the mask `[B, C, H, W]` (bits above the
    /// plan's rings are ignored) and returns the client's share `[B, O, OH, OW]` of every layer in
    /// its ring, in the plan's order.
    ///
    /// # Errors
    /// Malformed answers, a mask of the wrong length, and errors of channel and OTs.
    pub fn run(
        &self,
        plan: &SlotPlan,
        mask: &[u64],
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        let expected = plan.input_len();
        if mask.len() != expected {
            return Err(LinearError::Length { what: "mask", got: mask.len(), expected }.into());
        }
        let plains = plan.uploads.iter().map(|upload| Plain::new(&self.ctx, upload.prime));
        let plains: Vec<Plain> = plains.collect::<Result<_, _>>().map_err(LinearError::from)?;
        for (upload, plain) in plan.uploads.iter().zip(&plains) {
            mask.chunks(expected / plan.batch).try_for_each(|mask| self.send(upload, plain, mask, session))?;
        }
        session.channel.flush()?;
        let mut shares = vec![vec![]; plan.consumers().len()];
        for (upload, plain) in plan.uploads.iter().zip(&plains) {
            let spec: LiftSpec = lift_spec(plan, upload);
            let mut field = Zeroizing::new(Vec::with_capacity(spec.n));
            for _ in 0..plan.batch {
                field.extend(self.receive(plan, upload, plain, session)?);
            }
            let lifted = Zeroizing::new(spec.client(&field, session, ots)?);
            combine_digits(plan, upload, &lifted, &mut shares);
        }
        Ok(shares)
    }

    /// Sends the encrypted mask of one input for an upload.
    fn send(
        &self,
        upload: &Upload,
        plain: &Plain,
        mask: &[u64],
        session: &mut Session<'_>,
    ) -> Result<(), BackendError> {
        let encryptor = Encryptor::new(&self.ctx, &self.secret);
        let base = Prg::from_seed(session.prg.next_seed());
        let mut rest = Zeroizing::new(mask.to_vec());
        let (layout, blocks) = (&upload.layout, upload.layout.in_blocks());
        let count = layout.tiles() * blocks;
        for limb in 0..upload.limbs as usize {
            let digits = Zeroizing::new(digits(&mut rest, upload.limb_bits, plain));
            for range in batches(count) {
                let frames = range.into_par_iter().map(|i| {
                    let slots = Zeroizing::new(layout.encode(&digits, i / blocks, i % blocks));
                    let prg = &mut SplitPrg::new(base.fork((limb * count + i) as u64));
                    encryptor.encrypt(plain, &slots, prg)
                });
                let frames: Vec<Vec<u8>> = frames.collect();
                frames.iter().try_for_each(|frame| session.channel.send(TAG_UP, frame))?;
            }
        }
        Ok(())
    }

    /// Receives the shares, in the field, of all layers of an upload for one input: layer by layer,
    /// digit by digit.
    fn receive(
        &self,
        plan: &SlotPlan,
        upload: &Upload,
        plain: &Plain,
        session: &mut Session<'_>,
    ) -> Result<Vec<u64>, BackendError> {
        let seed = session.channel.recv(TAG_SEED, PublicSeed::BYTES)?;
        let seed: [u8; PublicSeed::BYTES] = seed.try_into().expect("the channel gives as many bytes as asked for");
        let public = PublicSeed::from_bytes(seed);
        let opener = Opener::new(&self.ctx, &self.secret);
        let units = units(plan, upload);
        let mut field = vec![0; values(plan, upload)];
        for (start, part) in units.chunks(batch()).enumerate() {
            let frames = part.iter().map(|_| session.channel.recv(TAG_DOWN, ANSWER_BYTES));
            let frames: Vec<Vec<u8>> = frames.collect::<Result<_, _>>()?;
            let opened = frames.par_iter().enumerate().map(|(i, frame)| {
                opener.open(plain, frame, public.fork((start * batch() + i) as u64)).map(Zeroizing::new)
            });
            let opened: Result<Vec<_>, HeError> = opened.collect();
            for (unit, slots) in part.iter().zip(opened.map_err(LinearError::from)?) {
                unit.places(plan, upload).for_each(|(slot, index)| field[index] = slots[slot]);
            }
        }
        Ok(field)
    }
}

/// Removes the lowest signed digit of `bits` bits from every value and returns the digits as
/// residues of the field.
fn digits(rest: &mut [u64], bits: u32, plain: &Plain) -> Vec<u64> {
    let m = plain.modulus();
    rest.iter_mut()
        .map(|value| {
            let digit = ((*value << (64 - bits)) as i64) >> (64 - bits);
            // Nothing reads bits above the ring, so the bits that the shift brings in do not
            // matter.
            *value = value.wrapping_sub(digit as u64) >> bits;
            m.reduce_i64(digit)
        })
        .collect()
}
