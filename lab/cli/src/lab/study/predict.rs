//! The planner's predictions for every cell before it runs, and for devices that are not here.
use super::approach::{Approach, LOCAL};
use super::folder::Offered;
use anyhow::Context;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tacit_backends::Costs;
use tacit_experiments::experiment::{Link, WorkloadSpec};
use tacit_plan::{Device, Goal, Limits, Offer, Prediction, Question, Setting, Usage};

/// Rate of a link without a limit, bit/s.
const UNLIMITED: f64 = 1e11;
/// Overhead of starting both programs, connecting and opening the model: seconds and round trips.
const AROUND: (f64, f64) = (0.5, 8.0);
/// Boards that [PM24]'s question is about.
pub const BOARDS: [&str; 3] = ["raspberry-pi-3b", "raspberry-pi-4b", "jetson-nano"];

/// Predictions of one network at one device over one link, by approach.
type ByApproach = BTreeMap<&'static str, Prediction>;

/// Converts a link of an experiment to the planner's form.
pub fn link(link: &Link) -> tacit_plan::Link {
    let spec = link.spec.as_ref();
    let bits = |rate: Option<tacit_net::Rate>| rate.map_or(UNLIMITED, |rate| rate.bits_per_second() as f64);
    tacit_plan::Link {
        name: link.name.clone(),
        up_bits: bits(spec.and_then(|s| s.up())),
        down_bits: bits(spec.and_then(|s| s.down())),
        rtt_s: spec.map_or(0.0, |s| s.rtt().as_secs_f64()),
        bucket: 0.0,
        tunnel_s: 0.0,
    }
}

/// Predicts the approaches that the calibration covers, with one thread a party.
pub fn of(
    device: &str,
    net: &str,
    (approaches, offered): (&[Approach], &[Offered]),
    link: tacit_plan::Link,
) -> anyhow::Result<ByApproach> {
    let one = |name: &str| Device::named(name).map(|device| Device { cores: 1, ..device });
    let setting = Setting { client: one(device)?, server: one("this")?, client_threads: 1, server_threads: 1, link };
    let cost = |name: &str| {
        let of = offered.iter().find(|o| o.net == net && o.approach == name);
        of.and_then(|o| o.costs)
    };
    let offer = |approach: &Approach| {
        // Any lowering declares the float network's multiplications.
        let costs = match approach.name {
            LOCAL => cost("clear").or_else(|| offered.iter().filter(|o| o.net == net).find_map(|o| o.costs)),
            name => cost(name),
        };
        let trust = approach.trust();
        let backend = if approach.name == LOCAL { LOCAL } else { approach.backend };
        let offer = |costs| Offer { backend: backend.into(), options: String::new(), trust, costs, agreement: None };
        costs.map(|costs| (approach.name, offer(costs)))
    };
    let (names, offers): (Vec<&'static str>, Vec<Offer>) = approaches.iter().filter_map(offer).unzip();
    if offers.is_empty() {
        return Ok(BTreeMap::new());
    }
    let limits = Limits { dealer: true, ..Limits::default() };
    let question = Question { offers: &offers, goal: Goal::Total, limits, usage: Usage::default() };
    let ranked = question.ranked(&setting).with_context(|| net.to_owned())?;
    Ok(ranked.into_iter().map(|choice| (names[choice.offer], choice.predicted)).collect())
}

/// Sets a workload's estimates from two predictions: for a link without limits, and for one with a
/// round trip of one second.
pub fn estimate(workload: &mut WorkloadSpec, endless: &Prediction, waiting: &Prediction) {
    let sum =
        |of: fn(&tacit_plan::predict::Predicted) -> f64, p: &Prediction| of(&p.setup) + of(&p.offline) + of(&p.online);
    let computing = sum(|p| p.compute_s, endless);
    let bytes = sum(|p| p.up_bytes.max(p.down_bytes) as f64 + 0.5 * p.up_bytes.min(p.down_bytes) as f64, endless);
    workload.takes_s = Some(AROUND.0 + computing);
    workload.moves_bytes = bytes as u64;
    workload.round_trips = if workload.server.is_some() { AROUND.1 + sum(|p| p.round_trips_s, waiting) } else { 0.0 };
}

/// Returns a link on which only round trips take time.
pub fn endless(rtt_s: f64) -> tacit_plan::Link {
    tacit_plan::Link {
        name: String::new(),
        up_bits: UNLIMITED,
        down_bits: UNLIMITED,
        rtt_s,
        bucket: 0.0,
        tunnel_s: 0.0,
    }
}

/// Returns a prediction's phases as JSON.
pub fn phases(p: &Prediction) -> Value {
    json!({"setup": p.setup, "offline": p.offline, "online": p.online})
}

/// Explains why the planner has no figure for a lowering, with the costs that the lowering
/// declares.
pub fn unplanned(costs: &Costs) -> String {
    let work = |of: fn(&tacit_backends::Work) -> u64| {
        let parties = [&costs.setup, &costs.offline, &costs.online].map(|p| of(&p.client.work) + of(&p.server.work));
        parties.iter().sum::<u64>()
    };
    let memory = [&costs.setup, &costs.offline, &costs.online].map(|p| p.server.peak_memory_bytes).into_iter().max();
    format!(
        "left out: the calibration says nothing of it. It declares {} key switches, {} transforms, {:.0} MB of keys up and {:.1} GB of \
         memory at the server",
        work(|w| w.key_switches),
        work(|w| w.ntts),
        costs.setup.up_bytes as f64 / 1e6,
        memory.unwrap_or(0) as f64 / 1e9,
    )
}
