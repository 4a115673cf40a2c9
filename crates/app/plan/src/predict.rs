//! Predicts time, bytes, energy and memory of the phases from costs, calibration, devices and link.
//!
//! A party's processor time in a phase is the sum of its counts, each times the device's time for
//! one. The wall time of a phase is the sum of computing, transfer, round trips and the waiting of
//! a young connection until its window fills the link. Computing counts both parties, less their
//! overlap. Transfer counts the bytes that the client waits for, less what overlaps the computing.
//! The calibration measures both overlaps. Phases are taken to follow each other on one connection.
//! Bytes that are still on their way to the server when the client's phase ends are listed
//! separately: the next phase waits behind them.

use serde::Serialize;
use tacit_backends::{Costs, PhaseCost, Role};
use tacit_net::Phase;

use crate::calibration::{PhaseRates, Rates};
use crate::counts::{counts, memory};
use crate::device::Device;
use crate::link::{Link, OnLink};

/// Index of [`Primitive::Byte`] among the primitives.
const BYTE: usize = 5;

/// The devices of both parties, their threads, and the link.
#[derive(Debug, Clone, Serialize)]
pub struct Setting {
    /// The client's device.
    pub client: Device,
    /// The server's device.
    pub server: Device,
    /// The client's threads.
    pub client_threads: u32,
    /// The server's threads for one job.
    pub server_threads: u32,
    /// The link.
    pub link: Link,
}

/// The prediction for one phase.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Predicted {
    /// Wall time of the phase, seconds.
    pub wall_s: f64,
    /// One standard deviation of the wall time from the fit, as a share.
    pub error: f64,
    /// Computing of both parties less their overlap, and waiting for a dealer, seconds.
    pub compute_s: f64,
    /// Time in which the link is busy with bytes that the client waits for, seconds.
    pub transfer_s: f64,
    /// Round trips of the link, seconds, including the waiting of connections whose windows still
    /// grow.
    pub round_trips_s: f64,
    /// Time for which the link is still busy with bytes of this phase after its end, seconds. The
    /// next phase starts that much later.
    pub queued_s: f64,
    /// Processor time of the client, seconds.
    pub client_cpu_s: f64,
    /// Processor time of the server, seconds.
    pub server_cpu_s: f64,
    /// Payload to the server, bytes.
    pub up_bytes: u64,
    /// Payload to the client, bytes.
    pub down_bytes: u64,
    /// Joules of the client above idle.
    pub client_j: f64,
    /// Joules of the server above idle.
    pub server_j: f64,
    /// Peak memory of the client's process, bytes.
    pub client_bytes: u64,
    /// Peak memory of the server's process, bytes.
    pub server_bytes: u64,
}

/// The predictions for all phases.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Prediction {
    /// The setup, once for a client.
    pub setup: Predicted,
    /// The offline phase, for each input before it arrives.
    pub offline: Predicted,
    /// The online phase, for each input.
    pub online: Predicted,
}

impl Prediction {
    /// Predicts a back end's costs; `None` if a device's calibration does not cover the back end.
    #[must_use]
    pub fn compute(backend: &str, costs: &Costs, setting: &Setting) -> Option<Self> {
        let rates = [&setting.client, &setting.server].map(|device| device.calibration.backends.get(backend));
        let [Some(client), Some(server)] = rates else { return None };
        let [setup, offline, online] = Phase::ALL.map(|phase| match costs.phase(phase) {
            // A phase that the back end does not have costs nothing.
            cost if *cost == PhaseCost::default() => Some(Predicted::default()),
            _ => Some(predict(client.phases.get(&phase)?, server.phases.get(&phase)?, costs, phase, setting)),
        });
        Some(Self { setup: setup?, offline: offline?, online: online? })
    }

    /// Joules of the client for one input above idle; `inputs` inputs share the setup.
    #[must_use]
    pub fn client_j(&self, inputs: f64) -> f64 {
        self.offline.client_j + self.online.client_j + self.setup.client_j / inputs.max(1.0)
    }

    /// Processor seconds of the client for one input; `inputs` inputs share the setup.
    #[must_use]
    pub fn client_cpu_s(&self, inputs: f64) -> f64 {
        self.offline.client_cpu_s + self.online.client_cpu_s + self.setup.client_cpu_s / inputs.max(1.0)
    }

    /// Joules of the server for one input above idle; `inputs` inputs share the setup.
    #[must_use]
    pub fn server_j(&self, inputs: f64) -> f64 {
        self.offline.server_j + self.online.server_j + self.setup.server_j / inputs.max(1.0)
    }

    /// Payload bytes both ways for one input; `inputs` inputs share the setup.
    #[must_use]
    pub fn bytes(&self, inputs: f64) -> f64 {
        both_ways(&self.offline) + both_ways(&self.online) + both_ways(&self.setup) / inputs.max(1.0)
    }

    /// Peak memory of the client's process, bytes.
    #[must_use]
    pub fn client_bytes(&self) -> u64 {
        self.setup.client_bytes.max(self.offline.client_bytes).max(self.online.client_bytes)
    }

    /// Peak memory of the server's process for one job, bytes.
    #[must_use]
    pub fn server_bytes(&self) -> u64 {
        self.setup.server_bytes.max(self.offline.server_bytes).max(self.online.server_bytes)
    }
}

fn both_ways(phase: &Predicted) -> f64 {
    (phase.up_bytes + phase.down_bytes) as f64
}

/// Returns the wall time of one second of computing on `threads` threads that share the part
/// `parallel` of it ([Amdahl](https://doi.org/10.1145/1465482.1465560)).
#[must_use]
pub fn with_threads(parallel: f64, threads: u32, cores: u32) -> f64 {
    let threads = f64::from(threads.clamp(1, cores.max(1)));
    1.0 - parallel + parallel / threads
}

fn predict(
    of_client: &PhaseRates,
    of_server: &PhaseRates,
    costs: &Costs,
    phase: Phase,
    setting: &Setting,
) -> Predicted {
    let (client, server, link, cost) = (&setting.client, &setting.server, &setting.link, costs.phase(phase));
    let dealt = costs.dealt_bytes(phase);
    let carried = costs.carried(phase);
    let cpu_s = |rates: &Rates, role: Role, device: &Device| {
        let carried = *role.value_of(&carried);
        let below = link.tunnel_cpu_s_per_byte * device.slower[BYTE] * carried as f64;
        rates.cpu_s(&counts(costs, phase, role, carried), &device.slower) + below
    };
    let client_cpu_s = cpu_s(&of_client.client, Role::Client, client);
    let server_cpu_s = cpu_s(&of_server.server, Role::Server, server);
    let a = client_cpu_s * with_threads(of_client.parallel, setting.client_threads, client.cores);
    let b = server_cpu_s * with_threads(of_server.parallel, setting.server_threads, server.cores);
    // The dealer's machine is assumed to perform as the server's calibration.
    let dealer_s = if phase == Phase::Offline { of_server.dealer_s(&costs.dealing) } else { 0.0 };
    let compute_s = a.max(b) + of_server.apart * a.min(b) + dealer_s;
    let OnLink { transfer_s, round_trips_s, least_s } = link.phase_time(costs, phase);
    let shares = [(&of_client.client, a), (&of_server.server, b)];
    let uncertain = shares.iter().map(|(rates, s)| (rates.error * s).powi(2)).sum::<f64>().sqrt();
    let overlapped_s = compute_s.max(transfer_s) + (1.0 - of_server.hidden) * compute_s.min(transfer_s);
    let wall_s = (overlapped_s + round_trips_s).max(least_s);
    Predicted {
        wall_s,
        error: if wall_s > 0.0 { uncertain / wall_s } else { 0.0 },
        compute_s,
        transfer_s,
        round_trips_s,
        queued_s: link.transfer_s(cost.queued_bytes, 0),
        client_cpu_s,
        server_cpu_s,
        up_bytes: cost.up_bytes,
        down_bytes: cost.down_bytes + dealt,
        client_j: client.net_j(client_cpu_s, carried.client),
        server_j: server.net_j(server_cpu_s, carried.server),
        client_bytes: of_client.client.resident_bytes(&memory(costs, phase, Role::Client)),
        server_bytes: of_server.server.resident_bytes(&memory(costs, phase, Role::Server)),
    }
}
