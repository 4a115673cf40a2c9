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
/// Overhead of starting both programs, connecting and opening the model, seconds.
const START_S: f64 = 0.5;
/// Round trips of connecting and opening the model.
const START_ROUND_TRIPS: f64 = 8.0;
/// Boards that [PM24]'s question is about.
pub const BOARDS: [&str; 3] = ["raspberry-pi-3b", "raspberry-pi-4b", "jetson-nano"];

/// Predictions of one network at one device over one link, by approach.
pub type ByApproach = BTreeMap<&'static str, Prediction>;

pub fn link(link: &Link) -> tacit_plan::Link {
    let spec = link.spec.as_ref();
    tacit_plan::Link {
        name: link.name.clone(),
        up_bits_per_s: bits(spec.and_then(|s| s.up())),
        down_bits_per_s: bits(spec.and_then(|s| s.down())),
        ..endless_link(spec.map_or(0.0, |s| s.rtt().as_secs_f64()))
    }
}

fn bits(rate: Option<tacit_net::Rate>) -> f64 {
    rate.map_or(UNLIMITED, |rate| rate.bits_per_second() as f64)
}

/// Predicts the approaches that the calibration covers, with one thread a party.
pub fn predict_approaches(
    device: &str,
    net: &str,
    approaches: &[Approach],
    offered: &[Offered],
    link: tacit_plan::Link,
) -> anyhow::Result<ByApproach> {
    let (client, server) = (single_core(device)?, single_core("this")?);
    let setting = Setting { client, server, client_threads: 1, server_threads: 1, link };
    let offers = approaches.iter().filter_map(|approach| Some((approach.name, offer(approach, net, offered)?)));
    let (names, offers): (Vec<&'static str>, Vec<Offer>) = offers.unzip();
    if offers.is_empty() {
        return Ok(BTreeMap::new());
    }
    let limits = Limits { dealer: true, ..Limits::default() };
    let question = Question { offers: &offers, goal: Goal::Total, limits, usage: Usage::default() };
    let ranked = question.ranked(&setting).with_context(|| net.to_owned())?;
    Ok(ranked.into_iter().map(|choice| (names[choice.offer], choice.predicted)).collect())
}

fn single_core(name: &str) -> Result<Device, tacit_plan::PlanError> {
    Device::named(name).map(|device| Device { cores: 1, ..device })
}

/// Returns what an approach offers for a network; none if its costs are unknown.
fn offer(approach: &Approach, net: &str, offered: &[Offered]) -> Option<Offer> {
    let mut of_net = offered.iter().filter(|o| o.net == net);
    let (backend, wanted_options) = match approach.name {
        LOCAL => (LOCAL, "clear"),
        name => (approach.backend, name),
    };
    let costs = of_net.clone().find(|o| o.approach == wanted_options).and_then(|o| o.costs);
    let costs = match approach.name {
        // Any lowering declares the float network's multiplications.
        LOCAL => costs.or_else(|| of_net.find_map(|o| o.costs)),
        _ => costs,
    };
    let (backend, options, trust) = (backend.to_owned(), String::new(), approach.trust());
    costs.map(|costs| Offer { backend, options, trust, costs, agreement: None })
}

/// Sets a workload's estimates from two predictions: for a link without limits, and for one with a
/// round trip of one second.
pub fn estimate(workload: &mut WorkloadSpec, endless: &Prediction, waiting: &Prediction) {
    let computing = sum(endless, |p| p.compute_s);
    let bytes = sum(endless, |p| p.up_bytes.max(p.down_bytes) as f64 + 0.5 * p.up_bytes.min(p.down_bytes) as f64);
    workload.takes_s = Some(START_S + computing);
    workload.moves_bytes = bytes as u64;
    workload.round_trips =
        if workload.server.is_some() { START_ROUND_TRIPS + sum(waiting, |p| p.round_trips_s) } else { 0.0 };
}

fn sum(p: &Prediction, figure: fn(&tacit_plan::predict::Predicted) -> f64) -> f64 {
    figure(&p.setup) + figure(&p.offline) + figure(&p.online)
}

/// Returns a link on which only round trips take time.
pub fn endless_link(rtt_s: f64) -> tacit_plan::Link {
    tacit_plan::Link {
        name: String::new(),
        up_bits_per_s: UNLIMITED,
        down_bits_per_s: UNLIMITED,
        rtt_s,
        bucket: 0.0,
        tunnel_cpu_s_per_byte: 0.0,
    }
}

pub fn phases(p: &Prediction) -> Value {
    json!({"setup": p.setup, "offline": p.offline, "online": p.online})
}

/// Explains why the planner has no figure for a lowering, with the costs that the lowering
/// declares.
pub fn describe_unplanned(costs: &Costs) -> String {
    let memory = [&costs.setup, &costs.offline, &costs.online].map(|p| p.server.peak_memory_bytes).into_iter().max();
    format!(
        "left out: the calibration says nothing of it. It declares {} key switches, {} transforms, {:.0} MB of keys up and {:.1} GB of \
         memory at the server",
        work(costs, |w| w.key_switches),
        work(costs, |w| w.ntts),
        costs.setup.up_bytes as f64 / 1e6,
        memory.unwrap_or(0) as f64 / 1e9,
    )
}

fn work(costs: &Costs, count: fn(&tacit_backends::Work) -> u64) -> u64 {
    let parties = [&costs.setup, &costs.offline, &costs.online].map(|p| count(&p.client.work) + count(&p.server.work));
    parties.iter().sum()
}
