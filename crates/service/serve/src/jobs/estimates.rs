//! Estimates of a model's phases before their first job: what an earlier run of the server has
//! learned, or else what the planner predicts (`tacit_plan`, with its built-in calibration). The
//! first measured job replaces them.
use crate::models::catalog::Offered;
use crate::ops::state::{DEALING, LearnedDurations, POOL};
use tacit_backends::{PhaseCost, Preparation, ServerModel};
use tacit_client::wire::{Device, LinkClass};
use tacit_plan::{Link, Prediction, Setting};
use tacit_sched::profile::{Sample, Speedup};
use tacit_sched::{BoundTo, JobPhase, ModelSpec, PhaseSpec, Span};

/// The client of a warm-up run: on this machine, with one thread.
pub(crate) const LOCAL_DEVICE: Device = Device { threads: 1, link: LinkClass::Lan, memory_mib: 0 };

/// Share of a phase's work that more threads make faster, until measured.
const PARALLEL_SHARE: f64 = 0.8;

fn typical_link(class: LinkClass) -> Link {
    let [bits, rtt_s] = match class {
        LinkClass::Lan => [800e6, 1e-3],
        LinkClass::Broadband => [40e6, 20e-3],
        LinkClass::Slow => [4e6, 40e-3],
    };
    Link {
        name: String::new(),
        up_bits_per_s: bits,
        down_bits_per_s: bits,
        rtt_s,
        bucket: 0.0,
        tunnel_cpu_s_per_byte: 0.0,
    }
}

/// Predicts a model's phases for such a client, with one thread here; `None` if the planner's
/// calibration lacks the back end.
fn predict(offered: &Offered, device: Device) -> Option<Prediction> {
    let machine = tacit_plan::Device::named(CALIBRATED_MACHINE).expect("it is among the devices that are built in");
    let threads = u32::from(device.threads.max(1));
    let client = tacit_plan::Device { cores: threads, ..machine.clone() };
    let link = typical_link(device.link);
    let setting = Setting { client, server: machine, client_threads: threads, server_threads: 1, link };
    Prediction::compute(offered.backend, &offered.model.costs(), &setting)
}

/// The planner's name of the machine that it was calibrated on.
const CALIBRATED_MACHINE: &str = "this";

/// A phase with its expected duration. For an uncalibrated back end, the link's part alone counts.
fn phase_spec(cost: &PhaseCost, expected: Option<f64>, device: Device) -> PhaseSpec {
    let link = typical_link(device.link);
    let time = expected.unwrap_or_else(|| link.waited_s(cost) + cost.exchanges as f64 * link.rtt_s);
    let time = Span::from_secs(time);
    let speedup = Speedup::Amdahl(PARALLEL_SHARE);
    PhaseSpec { first: Sample { time, memory: cost.server.peak_memory_bytes }, speedup }
}

/// Memory of a device, in MiB, above which more makes no difference.
const ENOUGH_MIB: u32 = 4096;

/// Devices of a class share estimates: threads are rounded down to a power of two up to 8, and
/// memory matters only where it is small.
pub(crate) fn device_class(device: Device) -> Device {
    let threads = device.threads.clamp(1, 8);
    let memory_mib = match device.memory_mib {
        0 | ENOUGH_MIB.. => 0,
        little => 1 << little.ilog2(),
    };
    Device { threads: 1 << threads.ilog2(), memory_mib, ..device }
}

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

pub(crate) fn phase_name(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Pre => "offline",
        JobPhase::On => "online",
    }
}

/// Whether a T_pre takes no core because a dealer makes all of the material; false if part of it
/// comes from lattices.
pub(crate) fn only_waits(model: &dyn ServerModel) -> bool {
    model.preparation() == Preparation::Dealt && model.costs().offline.server.work.ntts == 0
}

/// Describes a model for a class of devices and jobs of `threads` threads. Learned memory counts up
/// to `max_memory` bytes, all that jobs may take: such a job has run, so it is not refused.
pub(crate) fn model_spec(
    offered: &Offered,
    device: Device,
    learned: &LearnedDurations,
    threads: u32,
    max_memory: u64,
) -> ModelSpec {
    let (costs, predicted) = (offered.model.costs(), predict(offered, device));
    let phase = |which: JobPhase, cost: &PhaseCost| {
        let expected = predicted.map(|prediction| match which {
            JobPhase::Pre => prediction.offline.wall_s,
            JobPhase::On => prediction.online.wall_s,
        });
        let guess = phase_spec(cost, expected, device);
        let Some(row) = learned.get(offered.plan, &class_name(device), phase_name(which), threads) else {
            return guess;
        };
        // The scheduler gets the time for one thread, and derives the measured time from it.
        let time = Span::from_secs(row.seconds / guess.speedup.factor(row.threads));
        PhaseSpec { first: Sample { time, memory: row.memory.min(max_memory) }, ..guess }
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

/// Memory of a dealing for a pool: pieces of the half on their way to a file.
pub(crate) const DEALING_MEMORY: u64 = 8 << 20;

/// Describes a pool of halves of `half_bytes`: its T_pre is a dealing, and its material is bound to
/// no client.
pub(crate) fn dealing_spec(
    offered: &Offered,
    half_bytes: u64,
    learned: &LearnedDurations,
    threads: u32,
    max_memory: u64,
) -> ModelSpec {
    let link = typical_link(LOCAL_DEVICE.link);
    // Until a dealing is measured: the transfer time.
    let guess = link.transfer_s(0, half_bytes) + link.rtt_s;
    let time = Span::from_secs(learned.get(offered.plan, POOL, DEALING, threads).map_or(guess, |row| row.seconds));
    let first = Sample { time, memory: DEALING_MEMORY.min(max_memory) };
    // The dealer and the link take this time; more threads do not help.
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
    fn slower_links_take_longer_and_predictions_count() {
        assert!(tacit_plan::Device::named(CALIBRATED_MACHINE).is_ok());
        let cost = PhaseCost { up_bytes: 1 << 20, waited_bytes: 1 << 20, exchanges: 3, ..PhaseCost::default() };
        let times = [LinkClass::Lan, LinkClass::Broadband, LinkClass::Slow]
            .map(|link| phase_spec(&cost, None, Device { threads: 1, link, memory_mib: 0 }).first.time);
        assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
        assert!(times[2] > Span::from_secs(2.0), "{times:?}");
        assert_eq!(phase_spec(&cost, Some(7.0), LOCAL_DEVICE).first.time, Span::from_secs(7.0));
    }

    #[test]
    fn store_spools_from_the_size_that_the_planner_assumes() {
        assert_eq!(tacit_plan::counts::SPOOLED, tacit_store::MAX_IN_MEMORY_BYTES);
    }

    #[test]
    fn devices_of_a_class_share_their_estimates() {
        for (threads, memory_mib, name) in [
            (0, 0, "slow, 1 threads"),
            (7, 65_536, "slow, 4 threads"),
            (1000, 4096, "slow, 8 threads"),
            (4, 4095, "slow, 4 threads, 2048 MiB"),
            (4, 600, "slow, 4 threads, 512 MiB"),
            (4, 1, "slow, 4 threads, 1 MiB"),
        ] {
            assert_eq!(class_name(device_class(Device { threads, link: LinkClass::Slow, memory_mib })), name);
        }
    }
}
