//! The server's side: receives keys and ciphertexts, evaluates layers.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;
use tacit_arith::prg::{Prg, SplitPrg};
use tacit_he::bfv::{
    Ciphertext, Classes, Context, FRESH_BYTES, GALOIS_KEY_BYTES, GaloisKey, PUBLIC_KEY_BYTES, Plain, Raised, Sum, Turn,
    WeightPoly, add_products, raise, reshare, turn_slots,
};
use tacit_he::core::{PublicKey, ReshareStreams};
use tacit_mpc::gate::LiftSpec;
use tacit_mpc::{Ots, Session};
use zeroize::Zeroizing;

use super::chain::{self, Step};
use super::layout::Products;
use super::plan::{SlotPlan, Upload};
use super::units::{
    TAG_DOWN, TAG_GALOIS, TAG_KEY, TAG_SEED, TAG_UP, Unit, combine_digits, keys, lift_spec, units, values,
};
use crate::cheetah::linear::{LinearError, batches, check_weights};
use tacit_backend_api::BackendError;

/// What a connection's setup leaves at the server.
pub struct ServerKeys {
    ctx: Arc<Context>,
    public: PublicKey,
    galois: BTreeMap<Turn, GaloisKey>,
}

/// Work done for one tensor.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Done {
    /// Rotations, row swaps included.
    pub rotations: u64,
    /// Products of weights and ciphertexts.
    pub products: u64,
}

struct Job<'a> {
    keys: &'a ServerKeys,
    plan: &'a SlotPlan,
    upload: &'a Upload,
    plain: &'a Plain,
    classes: Classes,
    weights: &'a [&'a [i32]],
}

/// A turned ciphertext, with the index of its turn.
type Turned = (usize, Ciphertext);
type Sink<'a> = dyn FnMut(&[Turned]) + 'a;
/// Sums of one output block: rows in place, and rows to be swapped.
type Sums = [Option<Sum>; 2];

impl ServerKeys {
    /// Runs the setup phase: receives the client's keys for all plans.
    ///
    /// # Errors
    /// Channel errors, and malformed keys.
    pub fn setup(plans: &[&SlotPlan], session: &mut Session<'_>) -> Result<Self, BackendError> {
        let ctx = Arc::new(Context::new().map_err(LinearError::from)?);
        let public = ctx.read_public_key(&session.channel.recv(TAG_KEY, PUBLIC_KEY_BYTES)?);
        let public = public.map_err(LinearError::from)?;
        let mut galois = BTreeMap::new();
        for turn in keys(plans) {
            let bytes = session.channel.recv(TAG_GALOIS, GALOIS_KEY_BYTES)?;
            galois.insert(turn, GaloisKey::from_bytes(&ctx, turn, &bytes).map_err(LinearError::from)?);
        }
        Ok(Self { ctx, public, galois })
    }

    /// Runs the whole exchange for a plan's tensors and answers every layer. `weights[k]`
    /// (`[O, I/groups, kh, kw]`) are those of layer k. Returns the server's share `[B, O, OH, OW]`
    /// of each layer in its ring, in the plan's order, and the work done.
    ///
    /// # Errors
    /// Weights that do not fit the plan, malformed ciphertexts, and errors of channel and OTs.
    pub fn run(
        &self,
        plan: &SlotPlan,
        weights: &[&[i32]],
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<(Vec<Vec<u64>>, Done), BackendError> {
        let expected = plan.consumers().len();
        if weights.len() != expected {
            return Err(LinearError::Length { what: "weights", got: weights.len(), expected }.into());
        }
        plan.consumers().iter().zip(weights).try_for_each(|(c, w)| check_weights(c, w))?;
        let mut received = vec![];
        for upload in &plan.uploads {
            let ciphertexts = (0..plan.batch).map(|_| self.receive(upload, session));
            received.push(ciphertexts.collect::<Result<Vec<_>, _>>()?);
        }
        let mut shares = vec![vec![]; expected];
        let mut done = Done::default();
        for (upload, ciphertexts) in plan.uploads.iter().zip(received) {
            let plain = &Plain::new(&self.ctx, upload.prime).map_err(LinearError::from)?;
            let classes = Classes::new(&self.ctx, upload.layout.classes);
            let job = Job { keys: self, plan, upload, plain, classes, weights };
            let spec: LiftSpec = lift_spec(plan, upload);
            let mut field_shares = Zeroizing::new(Vec::with_capacity(spec.n));
            for ciphertexts in &ciphertexts {
                field_shares.extend(job.answer(ciphertexts, session, &mut done)?);
            }
            let lifted = Zeroizing::new(spec.server(&field_shares, session, ots)?);
            combine_digits(plan, upload, &lifted, &mut shares);
        }
        Ok((shares, done))
    }

    /// Receives the ciphertexts of one input's mask for an upload.
    fn receive(&self, upload: &Upload, session: &mut Session<'_>) -> Result<Vec<Ciphertext>, BackendError> {
        let count = upload.ciphertexts();
        let mut ciphertexts = Vec::with_capacity(count);
        for range in batches(count) {
            let frames = range.map(|_| session.channel.recv(TAG_UP, FRESH_BYTES));
            let frames: Vec<Vec<u8>> = frames.collect::<Result<_, _>>()?;
            let parsed = frames.par_iter().map(|frame| Ciphertext::from_bytes(&self.ctx, frame));
            ciphertexts.extend(parsed.collect::<Result<Vec<_>, _>>().map_err(LinearError::from)?);
        }
        Ok(ciphertexts)
    }

    fn key(&self, turn: Turn) -> &GaloisKey {
        self.galois.get(&turn).expect("the setup brought the keys of all plans")
    }
}

impl Job<'_> {
    /// Sends the answers for one input. Returns the server's shares in the field, layer by layer,
    /// digit by digit.
    fn answer(
        &self,
        ciphertexts: &[Ciphertext],
        session: &mut Session<'_>,
        done: &mut Done,
    ) -> Result<Vec<u64>, BackendError> {
        let mut random = SplitPrg::draw(session.prg);
        let (secret, public) = (Prg::from_seed(random.secret().next_seed()), random.public_seed());
        session.channel.send(TAG_SEED, &public.to_bytes())?;
        let mut field_shares = vec![0; values(self.plan, self.upload)];
        let units = units(self.plan, self.upload);
        let mut number = 0;
        for part in units.chunk_by(|a, b| (a.limb, a.tile) == (b.limb, b.tile)) {
            let sums = self.sums(part, ciphertexts, done);
            done.rotations += sums.iter().filter(|sums| sums[1].is_some()).count() as u64;
            let answers = sums.into_par_iter().enumerate().map(|(i, sums)| {
                let c = self.combine(sums);
                let stream = (number + i) as u64;
                let streams = ReshareStreams { secret: &mut secret.fork(stream), public: public.fork(stream) };
                let mut answer = vec![];
                let keys = self.keys;
                let share = reshare(&keys.ctx, self.plain, &keys.public, c, streams, &mut answer);
                (answer, Zeroizing::new(share))
            });
            let answers: Vec<(Vec<u8>, Zeroizing<Vec<u64>>)> = answers.collect();
            for (unit, (answer, share)) in part.iter().zip(answers) {
                session.channel.send(TAG_DOWN, &answer)?;
                unit.places(self.plan, self.upload).for_each(|(slot, index)| field_shares[index] = share[slot]);
            }
            number += part.len();
        }
        session.channel.flush()?;
        Ok(field_shares)
    }

    /// Adds up both sums of an output block, after swapping the rows of the second.
    fn combine(&self, [kept, swapped]: Sums) -> Ciphertext {
        let ctx = &self.keys.ctx;
        let mut c = kept.unwrap_or_else(|| Sum::new(ctx)).finish(ctx);
        if let Some(sum) = swapped {
            let swapped = sum.finish(ctx);
            c.add_assign(ctx, &turn_slots(ctx, &swapped, &raise(ctx, &swapped), self.keys.key(Turn::Swap)));
        }
        c
    }

    /// All sums of one tile and digit, for the output blocks of `units`.
    fn sums(&self, units: &[Unit], ciphertexts: &[Ciphertext], done: &mut Done) -> Vec<Sums> {
        let (layout, blocks) = (&self.upload.layout, self.upload.layout.in_blocks());
        let first = (units[0].limb * layout.tiles() + units[0].tile) * blocks;
        let mut sums: Vec<Sums> = units.iter().map(|_| [None, None]).collect();
        for block in 0..blocks {
            let products = units.par_iter().map(|unit| {
                let c = &self.plan.consumers()[unit.layer];
                let (conv, weights) = (&c.conv, self.weights[unit.layer]);
                let kernel = conv.kernel.0 * conv.kernel.1;
                let (taps, turns) = (&self.plan.taps[unit.layer], &self.upload.turns[block]);
                layout.products(c, taps, turns, unit.output, block, |o, inner, tap| {
                    weights[(o * conv.group_in() + inner) * kernel + tap]
                })
            });
            let products: Vec<Products> = products.collect();
            done.products += products.iter().map(|p| p.count() as u64).sum::<u64>();
            let steps = chain::chain(&self.upload.turns[block]);
            done.rotations += chain::rotations(&steps) as u64;
            self.walk(&steps, &ciphertexts[first + block], &mut |turned| {
                self.add(&mut sums, &products, turned);
            });
        }
        sums
    }

    /// Hands all turns of a ciphertext, with their indices, to `sink` in groups.
    fn walk(&self, steps: &[Step], c: &Ciphertext, sink: &mut Sink<'_>) {
        let (mut anchor, mut raised): (Ciphertext, Option<Raised>) = (c.clone(), None);
        let mut group = vec![];
        for step in steps {
            match *step {
                Step::Use(index, 0) => group.push((index, anchor.clone())),
                Step::Use(index, distance) => group.push((index, self.turn(&anchor, &mut raised, distance))),
                Step::Move(distance) => {
                    anchor = self.turn(&anchor, &mut raised, distance);
                    raised = None;
                    sink(&std::mem::take(&mut group));
                }
            }
        }
        sink(&group);
    }

    /// Turns a ciphertext by `distance` slots. Raises it first unless `raised` has done so.
    fn turn(&self, anchor: &Ciphertext, raised: &mut Option<Raised>, distance: usize) -> Ciphertext {
        let ctx = &self.keys.ctx;
        let raised = raised.get_or_insert_with(|| raise(ctx, anchor));
        turn_slots(ctx, anchor, raised, self.keys.key(Turn::Left(distance)))
    }

    /// Adds the products of all output blocks with some turns.
    fn add(&self, sums: &mut [Sums], products: &[Products], turned: &[Turned]) {
        let ctx = &self.keys.ctx;
        for row_side in [0, 1] {
            let terms = products.par_iter().map(|products| {
                let used =
                    turned.iter().filter_map(|(index, c)| Some((products.weights[*index][row_side].as_ref()?, c)));
                used.map(|(weights, c)| (WeightPoly::new(ctx, self.plain, &self.classes, weights), c))
                    .collect::<Vec<_>>()
            });
            let terms: Vec<Vec<(WeightPoly, &Ciphertext)>> = terms.collect();
            let used = sums.iter_mut().zip(terms).filter(|(_, terms)| !terms.is_empty());
            let mut used: Vec<(&mut Sum, Vec<(WeightPoly, &Ciphertext)>)> =
                used.map(|(sums, terms)| (sums[row_side].get_or_insert_with(|| Sum::new(ctx)), terms)).collect();
            add_products(ctx, &mut used);
        }
    }
}
