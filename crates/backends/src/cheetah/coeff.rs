//! The `cheetah` back end's lattice half: coefficient-packed RLWE.

use std::sync::Arc;

use tacit_he::coeff::{Ciphertext, Context, DEGREE, PUBLIC_KEY_BYTES};
use tacit_he::core::PublicKey;
use tacit_mpc::{Ots, Session};

use super::lattice::Lattice;
use super::linear::tiling::Consumer;
use super::linear::{self, CheckedWeights, LinearClient, LinearError, LinearPlan, LinearServer};
use super::options::{self, Options};
use crate::ring::RingOptions;
use crate::{BackendError, PhaseCost, seam};

/// The back end.
pub struct Cheetah;

/// What the server keeps of a setup.
pub struct ServerKeys {
    context: Arc<Context>,
    key: PublicKey,
}

impl Lattice for Cheetah {
    const NAME: &'static str = "cheetah";
    const ABOUT: &'static str =
        "two parties: lattice-based linear layers, silent-OT comparisons; everything but the last bits ahead of time";
    const VERSION: u32 = 6;
    const DOMAIN: &'static str = "tacit 2026-11 cheetah plan";
    const EXACT: bool = false;

    type Plan = LinearPlan;
    type Choices = Vec<[u64; 6]>;
    type ClientKeys = linear::ClientKeys;
    type ServerKeys = ServerKeys;

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

    fn choices(plan: &LinearPlan) -> Vec<[u64; 6]> {
        plan.choices()
    }

    fn rots(_: &LinearPlan) -> usize {
        0
    }

    fn setup_cost(_: &[&LinearPlan]) -> PhaseCost {
        PhaseCost { up_bytes: PUBLIC_KEY_BYTES as u64, ..PhaseCost::default() }
    }

    fn cost(plan: &LinearPlan) -> PhaseCost {
        let linear = plan.cost();
        let mut offline = PhaseCost {
            up_bytes: linear.up_bytes,
            down_bytes: linear.down_bytes(),
            exchanges: 1,
            ..PhaseCost::default()
        };
        offline.client.work.ntts = linear.client_ntts();
        offline.server.work.ntts = linear.server_ntts();
        // Each product multiplies both halves of a ciphertext modulo both primes.
        offline.server.work.macs = 4 * DEGREE as u64 * linear.consumers.iter().map(|c| c.products).sum::<u64>();
        offline.server.peak_memory_bytes = linear.uploads * Ciphertext::MEMORY_BYTES as u64;
        offline
    }

    fn client_setup(_: &[&LinearPlan], session: &mut Session<'_>) -> Result<linear::ClientKeys, BackendError> {
        let context = Arc::new(Context::new().map_err(LinearError::from)?);
        Ok(linear::ClientKeys::setup(&context, session.prg, session.channel)?)
    }

    fn server_setup(_: &[&LinearPlan], session: &mut Session<'_>) -> Result<ServerKeys, BackendError> {
        let context = Arc::new(Context::new().map_err(LinearError::from)?);
        let key = linear::receive_public_key(&context, session.channel)?;
        Ok(ServerKeys { context, key })
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
        keys: &ServerKeys,
        weights: &[&[i32]],
        session: &mut Session<'_>,
        _: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        let checked = weights.iter().enumerate().map(|(index, w)| CheckedWeights::new(plan, index, w));
        let checked: Vec<CheckedWeights<'_>> = checked.collect::<Result<_, _>>()?;
        let Session { channel, prg, .. } = session;
        Ok(LinearServer::run(&keys.context, &keys.key, plan, &checked, prg, channel)?)
    }
}
