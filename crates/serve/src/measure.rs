//! What a phase costs one party: wall time, processor time, peak memory, bytes and rounds.
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fs;
use std::time::Instant;
use tacit_net::{Channel, Phase, Traffic};

/// One party's figures for one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Wall time in seconds.
    pub wall_s: f64,
    /// Processor time of the whole process in seconds (all threads; with several clients at once, of all their sessions).
    pub cpu_s: f64,
    /// Largest resident set of the process during the phase, in bytes; 0 where the system does not tell.
    pub peak_rss_bytes: u64,
    /// Bytes sent, with frame headers, without TLS and TCP.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Turns from sending to waiting.
    pub rounds: u64,
}

/// Both parties' figures for one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// The client's, measured here.
    pub client: Figures,
    /// The server's, as it reports them.
    pub server: Figures,
}

/// A running measurement.
pub(crate) struct Meter {
    start: Instant,
    cpu_s: f64,
    phase: Phase,
    traffic: Traffic,
}

impl Meter {
    /// Starts measuring and books the channel's traffic on `phase`.
    pub(crate) fn start(channel: &mut Channel, phase: Phase) -> Self {
        // Resets the high-water mark; where that is not allowed, the peak is that of the process so far.
        let _ = fs::write("/proc/self/clear_refs", "5");
        channel.set_phase(phase);
        Self { start: Instant::now(), cpu_s: process_cpu_s(), phase, traffic: channel.traffic(phase) }
    }

    /// The figures since the start.
    pub(crate) fn stop(self, channel: &Channel) -> Figures {
        let traffic = channel.traffic(self.phase) - self.traffic;
        Figures {
            wall_s: self.start.elapsed().as_secs_f64(),
            cpu_s: process_cpu_s() - self.cpu_s,
            peak_rss_bytes: peak_rss_bytes().unwrap_or(0),
            sent_bytes: traffic.sent,
            received_bytes: traffic.received,
            rounds: traffic.rounds,
        }
    }
}

/// Processor time that this process has used, in seconds.
#[must_use]
pub fn process_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Largest resident set since the start or the last reset, in bytes.
fn peak_rss_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
