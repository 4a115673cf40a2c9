//! What the scheduler is told of a model before a job of it has run: what an earlier run of the server has
//! learned, or else what the planner predicts of it (`tacit_plan`, with the calibration that is built in).
//! The first measured job replaces it.
use crate::catalog::Offered;
use crate::state::{DEALING, LearnedDurations, POOL};
use tacit_backends::{PhaseCost, Preparation, ServerModel};
use tacit_client::wire::{Device, LinkClass};
use tacit_plan::{Link, Prediction, Setting};
use tacit_sched::profile::{Sample, Speedup};
use tacit_sched::{BoundTo, JobPhase, ModelSpec, PhaseSpec, Span};

/// The client of a warm-up run: on this machine, with one thread.
pub(crate) const HERE: Device = Device { threads: 1, link: LinkClass::Lan, memory_mib: 0 };

/// Share of a phase's work that more threads make faster, until it is measured.
const PARALLEL: f64 = 0.8;

/// A link of the class.
fn link(class: LinkClass) -> Link {
    let [bits, rtt_s] = match class {
        LinkClass::Lan => [800e6, 1e-3],
        LinkClass::Broadband => [40e6, 20e-3],
        LinkClass::Slow => [4e6, 40e-3],
    };
    Link { name: String::new(), up_bits: bits, down_bits: bits, rtt_s, bucket: 0.0, tunnel_s: 0.0 }
}

/// What the planner says of a model over its back end for a client like that, with one thread here; none of a
/// back end that its calibration does not know.
fn predicted(offered: &Offered, device: Device) -> Option<Prediction> {
    let here = tacit_plan::Device::named(HERE_NAME).expect("it is among the devices that are built in");
    let threads = u32::from(device.threads.max(1));
    let client = tacit_plan::Device { cores: threads, ..here.clone() };
    let link = link(device.link);
    let setting = Setting { client, server: here, client_threads: threads, server_threads: 1, link };
    Prediction::of(offered.backend, &offered.model.costs(), &setting)
}

/// The planner's name of a machine like the one that it was calibrated on.
const HERE_NAME: &str = "this";

/// A phase of which so much is expected. Of a back end that nobody has calibrated, the link's part is known.
fn phase(cost: &PhaseCost, expected: Option<f64>, device: Device) -> PhaseSpec {
    let link = link(device.link);
    let on_link = || link.waited_s(cost) + cost.exchanges as f64 * link.rtt_s;
    let time = Span::from_secs(expected.unwrap_or_else(on_link));
    PhaseSpec { first: Sample { time, memory: cost.server.peak_memory_bytes }, speedup: Speedup::Amdahl(PARALLEL) }
}

/// Memory of a device in MiB from which on it makes no difference.
const ENOUGH_MIB: u32 = 4096;

/// Devices that the same estimates serve: threads count as powers of two up to 8, memory as one where it is
/// little.
pub(crate) fn class(device: Device) -> Device {
    let threads = device.threads.clamp(1, 8);
    let memory_mib = match device.memory_mib {
        0 | ENOUGH_MIB.. => 0,
        little => 1 << little.ilog2(),
    };
    Device { threads: 1 << threads.ilog2(), memory_mib, ..device }
}

/// What the scheduler calls a class of devices.
pub(crate) fn class_name(device: Device) -> String {
    let link = match device.link {
        LinkClass::Lan => "lan",
        LinkClass::Broadband => "broadband",
        LinkClass::Slow => "slow",
    };
    match device.memory_mib {
        0 => format!("{link}, {} threads", device.threads),
        mib => format!("{link}, {} threads, {mib} MiB", device.threads),
    }
}

/// What the records call a phase.
pub(crate) fn phase_name(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Pre => "offline",
        JobPhase::On => "online",
    }
}

/// Whether a T_pre takes no core, since a dealer makes all of the material: not where some of it comes from
/// lattices.
pub(crate) fn only_waits(model: &dyn ServerModel) -> bool {
    model.preparation() == Preparation::Dealt && model.costs().offline.server.work.ntts == 0
}

/// A model over its back end, for a class of devices, with jobs of so many threads. What a job was measured
/// to hold counts up to `most` bytes, all that jobs may take: it has run, so it is not turned away.
pub(crate) fn spec(offered: &Offered, device: Device, known: &LearnedDurations, threads: u32, most: u64) -> ModelSpec {
    let (costs, predicted) = (offered.model.costs(), predicted(offered, device));
    let phase = |which: JobPhase, cost: &PhaseCost| {
        let expected = predicted.map(|all| match which {
            JobPhase::Pre => all.offline.wall_s,
            JobPhase::On => all.online.wall_s,
        });
        let guess = phase(cost, expected, device);
        let Some(found) = known.of(offered.plan, &class_name(device), phase_name(which), threads) else { return guess };
        // The scheduler is told of one thread, and makes the same time of it for as many as were measured.
        let time = Span::from_secs(found.seconds / guess.speedup.factor(found.threads));
        PhaseSpec { first: Sample { time, memory: found.memory.min(most) }, ..guess }
    };
    let needs_material = offered.model.preparation() != Preparation::Nothing;
    ModelSpec {
        name: offered.name.clone(),
        backend: offered.backend.into(),
        link: match offered.batch() {
            1 => class_name(device),
            batch => format!("{}, {batch} inputs", class_name(device)),
        },
        binding: BoundTo::Client,
        material_bytes: offered.material_bytes,
        dealt: only_waits(&*offered.model),
        pre: needs_material.then(|| phase(JobPhase::Pre, &costs.offline)),
        on: phase(JobPhase::On, &costs.online),
    }
}

/// What a dealing ahead of time holds in memory: pieces of the half, on their way to a file.
pub(crate) const DEALING_MEMORY: u64 = 8 << 20;

/// A pool of halves of so many bytes: its T_pre is a dealing, and what it makes is bound to nobody.
pub(crate) fn dealing(
    offered: &Offered,
    half_bytes: u64,
    known: &LearnedDurations,
    threads: u32,
    most: u64,
) -> ModelSpec {
    let link = link(HERE.link);
    // Until one is measured: what it takes on the way.
    let guess = link.transfer_s(0, half_bytes) + link.rtt_s;
    let time = Span::from_secs(known.of(offered.plan, POOL, DEALING, threads).map_or(guess, |found| found.seconds));
    let first = Sample { time, memory: DEALING_MEMORY.min(most) };
    // Its time is the dealer's and the link's.
    let phase = PhaseSpec { first, speedup: Speedup::None };
    ModelSpec {
        name: offered.name.clone(),
        backend: offered.backend.into(),
        link: format!("{POOL}, {} inputs", offered.batch()),
        binding: BoundTo::Unbound,
        material_bytes: half_bytes,
        dealt: true,
        pre: Some(phase),
        on: phase,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planner_knows_the_machine_and_slow_links_take_longer() {
        assert!(tacit_plan::Device::named(HERE_NAME).is_ok());
        let cost = PhaseCost { up_bytes: 1 << 20, waited_bytes: 1 << 20, exchanges: 3, ..PhaseCost::default() };
        let times = [LinkClass::Lan, LinkClass::Broadband, LinkClass::Slow]
            .map(|link| phase(&cost, None, Device { threads: 1, link, memory_mib: 0 }).first.time);
        assert!(times[0] < times[1] && times[1] < times[2] && times[2] > Span::from_secs(2.0), "{times:?}");
        assert_eq!(phase(&cost, Some(7.0), HERE).first.time, Span::from_secs(7.0), "what is predicted counts");
    }

    #[test]
    fn what_is_dealt_goes_to_disk_where_the_planner_takes_it_to() {
        assert_eq!(tacit_plan::counts::SPOOLED, tacit_store::IN_MEMORY);
    }

    #[test]
    fn devices_of_a_class_share_their_estimates() {
        let name = |threads, memory_mib| class_name(class(Device { threads, link: LinkClass::Slow, memory_mib }));
        assert_eq!(name(0, 0), "slow, 1 threads");
        assert_eq!(name(7, 65_536), "slow, 4 threads", "what is enough is not told apart");
        assert_eq!(name(1000, 4096), "slow, 8 threads");
        assert_eq!(name(4, 4095), "slow, 4 threads, 2048 MiB");
        assert_eq!((name(4, 600), name(4, 1)), ("slow, 4 threads, 512 MiB".into(), "slow, 4 threads, 1 MiB".into()));
    }
}
