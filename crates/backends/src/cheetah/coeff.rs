//! The `cheetah` back end's lattice half: coefficient-packed RLWE.

use std::sync::{Arc, OnceLock};

use tacit_arith::prg::Prg;
use tacit_he::coeff::{Context, DEGREE, MAX_STEPS, PUBLIC_KEY_BYTES, expansion_key_bytes, expansion_key_memory};
use tacit_mpc::ot::PlannedOts;
use tacit_mpc::{Ots, Session};
use tacit_net::{Channel, Talk};

use super::lattice::Lattice;
use super::linear::tiling::Consumer;
use super::linear::{self, CheckedWeights, LinearClient, LinearDraft, LinearError, LinearPlan, LinearServer};
use super::options::{self, Options};
use crate::ring::RingOptions;
use crate::{BackendError, PartyCost, seam};

/// The back end.
pub struct Cheetah;

/// Steps in which ciphertexts of a model are taken apart, at most: what the keys are for.
fn steps(plans: &[&LinearPlan]) -> u32 {
    plans.iter().map(|plan| plan.steps()).max().unwrap_or(0)
}

/// The ring is the same for all models.
fn context() -> Result<Arc<Context>, LinearError> {
    static CONTEXT: OnceLock<Arc<Context>> = OnceLock::new();
    if let Some(context) = CONTEXT.get() {
        return Ok(Arc::clone(context));
    }
    let made = Arc::new(Context::new()?);
    Ok(Arc::clone(CONTEXT.get_or_init(|| made)))
}

/// The client's keys for such plans, and what the server keeps of them. They are drawn anew for each material
/// here, and for a connection by `dealt`, where the client does not choose its masks.
pub(crate) struct Keys;

impl Keys {
    /// What sending them says.
    pub(crate) fn talk(plans: &[&LinearPlan], talk: &mut Talk) {
        talk.up(PUBLIC_KEY_BYTES);
        if steps(plans) > 0 {
            talk.up(expansion_key_bytes(steps(plans)));
        }
    }

    /// Their memory at the server.
    pub(crate) fn memory(plans: &[&LinearPlan]) -> u64 {
        expansion_key_memory(steps(plans)) as u64
    }

    /// Draws and sends them.
    ///
    /// # Errors
    /// Of the channel.
    pub(crate) fn send(
        plans: &[&LinearPlan],
        prg: &mut Prg,
        channel: &mut Channel,
    ) -> Result<linear::ClientKeys, LinearError> {
        linear::ClientKeys::setup(&context()?, steps(plans), prg, channel)
    }

    /// Receives them.
    ///
    /// # Errors
    /// Of the channel; malformed keys.
    pub(crate) fn receive(plans: &[&LinearPlan], channel: &mut Channel) -> Result<linear::ServerKeys, LinearError> {
        linear::ServerKeys::receive(&context()?, steps(plans), channel)
    }
}

/// The generator of a material's keys among those of its seed: no node has this number.
const KEYS: u64 = u64::MAX;

impl Lattice for Cheetah {
    const NAME: &'static str = "cheetah";
    const ABOUT: &'static str =
        "two parties: lattice-based linear layers, silent-OT comparisons; everything but the last bits ahead of time";
    const VERSION: u32 = 9;
    const DOMAIN: &'static str = "tacit 2026-11 cheetah plan, keys by material";
    const EXACT: bool = false;

    type Draft = LinearDraft;
    type Plan = LinearPlan;
    type Choices = Vec<[u64; 7]>;
    type ClientKeys = ();
    type ServerKeys = ();
    type Secret = linear::ClientKeys;
    type Public = Option<linear::ServerKeys>;

    fn parse(text: &seam::Options) -> Result<(Options, RingOptions), BackendError> {
        options::parse(Self::NAME, text)
    }

    fn check(options: &Options) -> Result<(), BackendError> {
        options.check(Self::NAME)
    }

    fn draft(layers: &[Consumer], options: &Options) -> Result<LinearDraft, LinearError> {
        LinearDraft::new(layers, options.linear_error)
    }

    /// With as many steps of taking ciphertexts apart as their keys are worth.
    fn plans(drafts: Vec<(LinearDraft, bool)>) -> Vec<LinearPlan> {
        let score =
            |&most: &u32| drafts.iter().map(|(draft, _)| draft.score(most)).sum::<usize>() + expansion_key_bytes(most);
        let most = (0..=MAX_STEPS).min_by_key(score).expect("there is a number of steps");
        let plan = |(draft, free): (LinearDraft, bool)| {
            let plan = draft.plan(most);
            if free { plan.choosing() } else { plan }
        };
        drafts.into_iter().map(plan).collect()
    }

    fn times(plan: &LinearPlan, batch: usize) -> LinearPlan {
        plan.times(batch)
    }

    fn consumers(plan: &LinearPlan) -> &[Consumer] {
        plan.consumers()
    }

    fn max_error(plan: &LinearPlan, index: usize) -> u32 {
        plan.max_error(index)
    }

    fn choices(plan: &LinearPlan) -> Vec<[u64; 7]> {
        plan.choices()
    }

    fn rots(_: &LinearPlan) -> usize {
        0
    }

    fn setup_talk(_: &[&LinearPlan], _: &mut Talk) {}

    fn keys(_: &[&LinearPlan]) -> PartyCost {
        PartyCost::default()
    }

    fn public_talk(plans: &[&LinearPlan], talk: &mut Talk) {
        if !plans.is_empty() {
            Keys::talk(plans, talk);
        }
    }

    fn public(plans: &[&LinearPlan]) -> PartyCost {
        PartyCost { peak_memory_bytes: Keys::memory(plans), ..PartyCost::default() }
    }

    fn talk(plan: &LinearPlan, _: &mut PlannedOts, talk: &mut Talk) {
        plan.talk(talk);
    }

    fn work(plan: &LinearPlan) -> [PartyCost; 2] {
        let (linear, mut both) = (plan.cost(), [PartyCost::default(); 2]);
        let [client, server] = &mut both;
        client.work.ntts = linear.client_ntts();
        server.work.ntts = linear.server_ntts();
        // Each product multiplies both halves of a ciphertext modulo both primes.
        server.work.macs = 4 * DEGREE as u64 * linear.consumers.iter().map(|c| c.products).sum::<u64>();
        server.peak_memory_bytes = linear.memory_bytes;
        both
    }

    fn choosing(plan: &LinearPlan) -> PartyCost {
        let mut cost = PartyCost::default();
        cost.work.ntts = plan.cost().choosing_ntts();
        cost
    }

    fn client_setup(_: &[&LinearPlan], _: &mut Session<'_>) -> Result<(), BackendError> {
        Ok(())
    }

    fn server_setup(_: &[&LinearPlan], _: &mut Session<'_>) -> Result<(), BackendError> {
        Ok(())
    }

    fn secret(seed: &Prg) -> Result<linear::ClientKeys, BackendError> {
        Ok(linear::ClientKeys::draw(&context()?, &mut seed.fork(KEYS)))
    }

    fn send_public(plans: &[&LinearPlan], seed: &Prg, session: &mut Session<'_>) -> Result<(), BackendError> {
        if !plans.is_empty() {
            Keys::send(plans, &mut seed.fork(KEYS), session.channel)?;
        }
        Ok(())
    }

    fn receive_public(
        plans: &[&LinearPlan],
        session: &mut Session<'_>,
    ) -> Result<Option<linear::ServerKeys>, BackendError> {
        if plans.is_empty() {
            return Ok(None);
        }
        Ok(Some(Keys::receive(plans, session.channel)?))
    }

    fn choose(
        plan: &LinearPlan,
        secret: &linear::ClientKeys,
        random: &Prg,
        mask: &mut [u64],
    ) -> Result<(), BackendError> {
        Ok(LinearClient::new(secret, plan).choose(mask, random)?)
    }

    fn client(
        plan: &LinearPlan,
        (_, secret): (&(), &linear::ClientKeys),
        (mask, random): (&[u64], &Prg),
        session: &mut Session<'_>,
        _: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        Ok(LinearClient::new(secret, plan).run(mask, random, session.channel)?)
    }

    fn server(
        plan: &LinearPlan,
        (_, public): (&(), &Option<linear::ServerKeys>),
        weights: &[&[i32]],
        session: &mut Session<'_>,
        _: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        let public = public.as_ref().expect("a model with a linear layer has keys");
        let checked = weights.iter().enumerate().map(|(index, w)| CheckedWeights::new(plan, index, w));
        let checked: Vec<CheckedWeights<'_>> = checked.collect::<Result<_, _>>()?;
        let Session { channel, prg, .. } = session;
        Ok(LinearServer::run(public, plan, &checked, prg, channel)?)
    }
}
