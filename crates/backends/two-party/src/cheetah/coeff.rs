//! The `cheetah` back end's lattice half: coefficient-packed RLWE.

use std::sync::{Arc, OnceLock};

use tacit_arith::prg::Prg;
use tacit_he::coeff::{Context, DEGREE, MAX_STEPS, PUBLIC_KEY_BYTES, expansion_key_bytes, expansion_key_memory};
use tacit_mpc::ot::PlannedOts;
use tacit_mpc::{Ots, Session};
use tacit_net::{Channel, TrafficModel};

use super::lattice::Lattice;
use super::linear::tiling::Consumer;
use super::linear::{self, CheckedWeights, LinearClient, LinearDraft, LinearError, LinearPlan, LinearServer};
use super::options::{self, Options};
use tacit_backend_api::{BackendError, PartyCost, Sides, seam};
use tacit_ring::RingOptions;

/// The back end.
pub struct Cheetah;

/// The largest number of steps in which the server splits ciphertexts of a model: the keys are made
/// for this number.
fn largest_steps(plans: &[&LinearPlan]) -> u32 {
    plans.iter().map(|plan| plan.steps()).max().unwrap_or(0)
}

/// The context of the ring, which is the same for all models.
fn context() -> Result<Arc<Context>, LinearError> {
    static CONTEXT: OnceLock<Arc<Context>> = OnceLock::new();
    if let Some(context) = CONTEXT.get() {
        return Ok(Arc::clone(context));
    }
    let new_context = Arc::new(Context::new()?);
    Ok(Arc::clone(CONTEXT.get_or_init(|| new_context)))
}

/// The client's keys for a set of plans, and the server's part of them. Each material has its own
/// keys if the encryption chooses masks, since the masks follow from the keys. Otherwise, and with
/// `dealt`, the keys belong to the connection.
pub struct Keys;

impl Keys {
    /// Records the traffic of sending the keys.
    pub fn add_traffic(plans: &[&LinearPlan], traffic: &mut TrafficModel) {
        traffic.up(PUBLIC_KEY_BYTES);
        if largest_steps(plans) > 0 {
            traffic.up(expansion_key_bytes(largest_steps(plans)));
        }
    }

    /// Memory of the keys at the server.
    pub fn memory(plans: &[&LinearPlan]) -> u64 {
        expansion_key_memory(largest_steps(plans)) as u64
    }

    /// Draws and sends the keys.
    ///
    /// # Errors
    /// Channel errors.
    pub fn send(
        plans: &[&LinearPlan],
        prg: &mut Prg,
        channel: &mut Channel,
    ) -> Result<linear::ClientKeys, LinearError> {
        linear::ClientKeys::setup(&context()?, largest_steps(plans), prg, channel)
    }

    /// Receives the keys.
    ///
    /// # Errors
    /// Channel errors, and malformed keys.
    pub fn receive(plans: &[&LinearPlan], channel: &mut Channel) -> Result<linear::ServerKeys, LinearError> {
        linear::ServerKeys::receive(&context()?, largest_steps(plans), channel)
    }
}

/// Whether each material has its own keys, so that the connection has none.
fn has_material_keys(plans: &[&LinearPlan]) -> bool {
    plans.iter().any(|plan| plan.chooses_masks())
}

fn has_connection_keys(plans: &[&LinearPlan]) -> bool {
    !plans.is_empty() && !has_material_keys(plans)
}

/// Number of the fork of a material's seed that makes the keys. No fork for a node has this
/// number.
const KEYS_CHILD: u64 = u64::MAX;

const HAS_KEYS: &str = "a model with a linear layer has keys, of a material or a connection";

impl Lattice for Cheetah {
    const NAME: &'static str = "cheetah";
    const ABOUT: &'static str =
        "two parties: lattice-based linear layers, silent-OT comparisons; everything but the last bits ahead of time";
    const VERSION: u32 = 10;
    const DOMAIN: &'static str = "tacit 2026-11 cheetah plan, keys by material";
    const EXACT: bool = false;

    type Draft = LinearDraft;
    type Plan = LinearPlan;
    type Choices = Vec<[u64; 7]>;
    type ClientKeys = Option<linear::ClientKeys>;
    type ServerKeys = Option<linear::ServerKeys>;
    type Secret = Option<linear::ClientKeys>;
    type Public = Option<linear::ServerKeys>;

    fn parse(options: &seam::Options) -> Result<(Options, RingOptions), BackendError> {
        options::parse(Self::NAME, options)
    }

    fn check(options: &Options) -> Result<(), BackendError> {
        options.check(Self::NAME)
    }

    fn draft(layers: &[Consumer], options: &Options) -> Result<LinearDraft, LinearError> {
        LinearDraft::new(layers, options.linear_error)
    }

    /// Lets encryptions choose masks where that saves more than a material's keys cost. The keys
    /// cover as many splitting steps as pay for themselves. Keys of a connection cost nothing here.
    fn plans(drafts: Vec<(LinearDraft, bool)>) -> Vec<LinearPlan> {
        let with_keys = |&max_steps: &u32| score(&drafts, max_steps) + expansion_key_bytes(max_steps);
        let max_steps = (0..=MAX_STEPS).min_by_key(with_keys).expect("there is a number of steps");
        let mut saved = 0;
        let choosing_plans = drafts.iter().map(|(draft, free)| {
            let plain_plan = draft.plan(max_steps);
            let before = plain_plan.up_bytes();
            let plan = if *free { plain_plan.with_chosen_masks() } else { plain_plan };
            saved += before - plan.up_bytes();
            plan
        });
        let choosing_plans: Vec<LinearPlan> = choosing_plans.collect();
        let is_cheaper = score(&drafts, MAX_STEPS) + saved as usize > with_keys(&max_steps) + PUBLIC_KEY_BYTES;
        if is_cheaper { choosing_plans } else { drafts.iter().map(|(draft, _)| draft.plan(MAX_STEPS)).collect() }
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

    fn add_setup_traffic(plans: &[&LinearPlan], traffic: &mut TrafficModel) {
        if has_connection_keys(plans) {
            Keys::add_traffic(plans, traffic);
        }
    }

    fn setup_key_cost(plans: &[&LinearPlan]) -> PartyCost {
        let bytes = if has_connection_keys(plans) { Keys::memory(plans) } else { 0 };
        PartyCost { peak_memory_bytes: bytes, stored_bytes: bytes, ..PartyCost::default() }
    }

    fn add_public_traffic(plans: &[&LinearPlan], traffic: &mut TrafficModel) {
        if has_material_keys(plans) {
            Keys::add_traffic(plans, traffic);
        }
    }

    fn public_values_cost(plans: &[&LinearPlan]) -> PartyCost {
        let bytes = if has_material_keys(plans) { Keys::memory(plans) } else { 0 };
        PartyCost { peak_memory_bytes: bytes, ..PartyCost::default() }
    }

    fn add_traffic(plan: &LinearPlan, _: &mut PlannedOts, traffic: &mut TrafficModel) {
        plan.add_traffic(traffic);
    }

    fn work(plan: &LinearPlan) -> Sides<PartyCost> {
        let (linear, mut work) = (plan.cost(), Sides::<PartyCost>::default());
        let Sides { client, server } = &mut work;
        client.work.ntts = linear.client_ntts();
        server.work.ntts = linear.server_ntts();
        // Each product multiplies both halves of a ciphertext modulo both primes.
        server.work.macs = 4 * DEGREE as u64 * linear.consumers.iter().map(|c| c.products).sum::<u64>();
        server.peak_memory_bytes = linear.memory_bytes;
        work
    }

    fn mask_choice_cost(plan: &LinearPlan) -> PartyCost {
        let mut cost = PartyCost::default();
        cost.work.ntts = plan.choosing_ntts();
        cost
    }

    fn client_setup(plans: &[&LinearPlan], session: &mut Session<'_>) -> Result<Self::ClientKeys, BackendError> {
        Ok(has_connection_keys(plans).then(|| Keys::send(plans, session.prg, session.channel)).transpose()?)
    }

    fn server_setup(plans: &[&LinearPlan], session: &mut Session<'_>) -> Result<Self::ServerKeys, BackendError> {
        Ok(has_connection_keys(plans).then(|| Keys::receive(plans, session.channel)).transpose()?)
    }

    fn secret(plans: &[&LinearPlan], seed: &Prg) -> Result<Self::Secret, BackendError> {
        let keys = has_material_keys(plans)
            .then(|| Ok::<_, LinearError>(linear::ClientKeys::draw(&context()?, &mut seed.fork(KEYS_CHILD))));
        Ok(keys.transpose()?)
    }

    fn send_public(plans: &[&LinearPlan], seed: &Prg, session: &mut Session<'_>) -> Result<(), BackendError> {
        if has_material_keys(plans) {
            Keys::send(plans, &mut seed.fork(KEYS_CHILD), session.channel)?;
        }
        Ok(())
    }

    fn receive_public(plans: &[&LinearPlan], session: &mut Session<'_>) -> Result<Self::Public, BackendError> {
        Ok(has_material_keys(plans).then(|| Keys::receive(plans, session.channel)).transpose()?)
    }

    fn choose(plan: &LinearPlan, secret: &Self::Secret, random: &Prg, mask: &mut [u64]) -> Result<(), BackendError> {
        match secret {
            Some(secret) => Ok(LinearClient::new(secret, plan).choose(mask, random)?),
            None => Ok(()),
        }
    }

    fn client(
        plan: &LinearPlan,
        keys: &Self::ClientKeys,
        secret: &Self::Secret,
        mask: &[u64],
        random: &Prg,
        session: &mut Session<'_>,
        _: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        let keys = secret.as_ref().or(keys.as_ref()).expect(HAS_KEYS);
        Ok(LinearClient::new(keys, plan).run(mask, random, session.channel)?)
    }

    fn server(
        plan: &LinearPlan,
        keys: &Self::ServerKeys,
        public: &Self::Public,
        weights: &[&[i32]],
        session: &mut Session<'_>,
        _: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        let keys = public.as_ref().or(keys.as_ref()).expect(HAS_KEYS);
        let checked = weights.iter().enumerate().map(|(index, w)| CheckedWeights::new(plan, index, w));
        let checked: Vec<CheckedWeights<'_>> = checked.collect::<Result<_, _>>()?;
        let Session { channel, prg, .. } = session;
        Ok(LinearServer::run(keys, plan, &checked, prg, channel)?)
    }
}

fn score(drafts: &[(LinearDraft, bool)], max_steps: u32) -> usize {
    drafts.iter().map(|(draft, _)| draft.score(max_steps)).sum()
}
