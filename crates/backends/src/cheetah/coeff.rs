//! The `cheetah` back end's lattice half: coefficient-packed RLWE.

use std::sync::Arc;

use tacit_he::coeff::{Context, DEGREE, PUBLIC_KEY_BYTES, expansion_key_bytes, expansion_key_memory};
use tacit_mpc::ot::PlannedOts;
use tacit_mpc::{Ots, Session};
use tacit_net::Talk;

use super::lattice::Lattice;
use super::linear::tiling::Consumer;
use super::linear::{self, CheckedWeights, LinearClient, LinearError, LinearPlan, LinearServer};
use super::options::{self, Options};
use crate::ring::RingOptions;
use crate::{BackendError, PartyCost, seam};

/// The back end.
pub struct Cheetah;

/// Steps in which ciphertexts of a model are taken apart, at most: what the setup's keys are for.
fn steps(plans: &[&LinearPlan]) -> u32 {
    plans.iter().map(|plan| plan.steps()).max().unwrap_or(0)
}

impl Lattice for Cheetah {
    const NAME: &'static str = "cheetah";
    const ABOUT: &'static str =
        "two parties: lattice-based linear layers, silent-OT comparisons; everything but the last bits ahead of time";
    const VERSION: u32 = 8;
    const DOMAIN: &'static str = "tacit 2026-11 cheetah plan";
    const EXACT: bool = false;

    type Plan = LinearPlan;
    type Choices = Vec<[u64; 7]>;
    type ClientKeys = linear::ClientKeys;
    type ServerKeys = linear::ServerKeys;

    fn parse(text: &seam::Options) -> Result<(Options, RingOptions), BackendError> {
        options::parse(Self::NAME, text)
    }

    fn check(options: &Options) -> Result<(), BackendError> {
        options.check(Self::NAME)
    }

    fn plan(layers: &[Consumer], options: &Options) -> Result<LinearPlan, LinearError> {
        LinearPlan::new(layers, options.linear_error)
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

    fn setup_talk(plans: &[&LinearPlan], talk: &mut Talk) {
        talk.up(PUBLIC_KEY_BYTES);
        if steps(plans) > 0 {
            talk.up(expansion_key_bytes(steps(plans)));
        }
    }

    fn keys(plans: &[&LinearPlan]) -> PartyCost {
        let bytes = expansion_key_memory(steps(plans)) as u64;
        PartyCost { peak_memory_bytes: bytes, stored_bytes: bytes, ..PartyCost::default() }
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

    fn client_setup(plans: &[&LinearPlan], session: &mut Session<'_>) -> Result<linear::ClientKeys, BackendError> {
        let context = Arc::new(Context::new().map_err(LinearError::from)?);
        Ok(linear::ClientKeys::setup(&context, steps(plans), session.prg, session.channel)?)
    }

    fn server_setup(plans: &[&LinearPlan], session: &mut Session<'_>) -> Result<linear::ServerKeys, BackendError> {
        let context = Arc::new(Context::new().map_err(LinearError::from)?);
        Ok(linear::ServerKeys::receive(&context, steps(plans), session.channel)?)
    }

    fn client(
        plan: &LinearPlan,
        keys: &linear::ClientKeys,
        mask: &[u64],
        session: &mut Session<'_>,
        _: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        Ok(LinearClient::new(keys, plan).run(mask, session.prg, session.channel)?)
    }

    fn server(
        plan: &LinearPlan,
        keys: &linear::ServerKeys,
        weights: &[&[i32]],
        session: &mut Session<'_>,
        _: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        let checked = weights.iter().enumerate().map(|(index, w)| CheckedWeights::new(plan, index, w));
        let checked: Vec<CheckedWeights<'_>> = checked.collect::<Result<_, _>>()?;
        let Session { channel, prg, .. } = session;
        Ok(LinearServer::run(keys, plan, &checked, prg, channel)?)
    }
}
