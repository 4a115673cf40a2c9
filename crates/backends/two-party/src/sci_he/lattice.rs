//! Implements the protocol's lattice half for this back end.

use tacit_arith::prg::Prg;
use tacit_mpc::gate::LiftSpec;
use tacit_mpc::ot::PlannedOts;
use tacit_mpc::{Ots, Session};
use tacit_net::TrafficModel;

use super::client::ClientKeys;
use super::cost;
use super::plan::SlotPlan;
use super::server::ServerKeys;
use super::units::lift_spec;
use crate::cheetah::linear::LinearError;
use crate::cheetah::linear::tiling::Consumer;
use crate::cheetah::{Lattice, Options, read_gates};
use tacit_backend_api::{BackendError, PartyCost, Sides, seam};
use tacit_ring::RingOptions;

/// The back end.
pub struct SciHe;

/// Sets the options of an exact computation: no dropped bits, no error.
fn exact(options: Options) -> Options {
    Options { relu_drop: 0, linear_error: 0, ..options }
}

crate::cheetah::model::two_party_backend!(SciHe);

impl Lattice for SciHe {
    const NAME: &'static str = "sci-he";
    const ABOUT: &'static str =
        "two parties: slot-packed BFV linear layers, silent-OT comparisons, exact answers; little work for the client";
    const VERSION: u32 = 7;
    const DOMAIN: &'static str = "tacit 2026-11 sci-he plan, folded constants";
    const EXACT: bool = true;

    type Draft = SlotPlan;
    type Plan = SlotPlan;
    type Choices = Vec<u64>;
    type ClientKeys = ClientKeys;
    type ServerKeys = ServerKeys;
    type Secret = ();
    type Public = ();

    fn parse(options: &seam::Options) -> Result<(Options, RingOptions), BackendError> {
        let mut reader = options.reader(Self::NAME);
        let options = exact(read_gates(&mut reader)?);
        let ring = RingOptions { linear_error: 0, ..RingOptions::read(&mut reader)? };
        reader.end()?;
        Ok((options, ring))
    }

    fn check(options: &Options) -> Result<(), BackendError> {
        if *options != exact(*options) {
            let what = "`relu_drop` and `linear_error` are 0 in a back end that is exact".into();
            return Err(BackendError::Public { what });
        }
        // The other options have the ranges that `cheetah` checks.
        Options { linear_error: 1, ..*options }.check(Self::NAME)
    }

    fn draft(layers: &[Consumer], _: &Options) -> Result<SlotPlan, LinearError> {
        SlotPlan::new(layers)
    }

    fn plans(drafts: Vec<(SlotPlan, bool)>) -> Vec<SlotPlan> {
        drafts.into_iter().map(|(plan, _)| plan).collect()
    }

    fn times(plan: &SlotPlan, batch: usize) -> SlotPlan {
        plan.times(batch)
    }

    fn consumers(plan: &SlotPlan) -> &[Consumer] {
        plan.consumers()
    }

    fn max_error(_: &SlotPlan, _: usize) -> u32 {
        0
    }

    fn choices(plan: &SlotPlan) -> Vec<u64> {
        plan.choices()
    }

    fn rots(plan: &SlotPlan) -> usize {
        plan.uploads.iter().map(|upload| lift_spec(plan, upload)).map(|spec: LiftSpec| spec.n).sum()
    }

    fn add_setup_traffic(plans: &[&SlotPlan], traffic: &mut TrafficModel) {
        cost::add_setup_traffic(plans, traffic);
    }

    fn setup_key_cost(plans: &[&SlotPlan]) -> PartyCost {
        cost::key_memory(plans)
    }

    fn add_public_traffic(_: &[&SlotPlan], _: &mut TrafficModel) {}

    fn public_values_cost(_: &[&SlotPlan]) -> PartyCost {
        PartyCost::default()
    }

    fn add_traffic(plan: &SlotPlan, ots: &mut PlannedOts, traffic: &mut TrafficModel) {
        cost::add_traffic(plan, ots, traffic);
    }

    fn work(plan: &SlotPlan) -> Sides<PartyCost> {
        cost::work(plan)
    }

    fn mask_choice_cost(_: &SlotPlan) -> PartyCost {
        PartyCost::default()
    }

    fn client_setup(plans: &[&SlotPlan], session: &mut Session<'_>) -> Result<ClientKeys, BackendError> {
        ClientKeys::setup(plans, session)
    }

    fn server_setup(plans: &[&SlotPlan], session: &mut Session<'_>) -> Result<ServerKeys, BackendError> {
        ServerKeys::setup(plans, session)
    }

    fn secret(_: &[&SlotPlan], _: &Prg) -> Result<(), BackendError> {
        Ok(())
    }

    fn send_public(_: &[&SlotPlan], _: &Prg, _: &mut Session<'_>) -> Result<(), BackendError> {
        Ok(())
    }

    fn receive_public(_: &[&SlotPlan], _: &mut Session<'_>) -> Result<(), BackendError> {
        Ok(())
    }

    fn choose(_: &SlotPlan, (): &(), _: &Prg, _: &mut [u64]) -> Result<(), BackendError> {
        Ok(())
    }

    fn client(
        plan: &SlotPlan,
        keys: &ClientKeys,
        (): &(),
        mask: &[u64],
        _: &Prg,
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        keys.run(plan, mask, session, ots)
    }

    fn server(
        plan: &SlotPlan,
        keys: &ServerKeys,
        (): &(),
        weights: &[&[i32]],
        session: &mut Session<'_>,
        ots: &mut Ots,
    ) -> Result<Vec<Vec<u64>>, BackendError> {
        Ok(keys.run(plan, weights, session, ots)?.0)
    }
}
