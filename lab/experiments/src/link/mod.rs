//! Emulated links: two hosts on one machine, joined by a link with a rate, a round-trip time and faults.
//!
//! Two anonymous network namespaces stand for client and server. The kernel's `tbf` sets rates; a link
//! without faults is a veth pair. An emulator in this crate sets delay, jitter, loss, corruption and
//! replay between two TUN devices, since many kernels lack `netem`. The link changes nothing outside
//! the namespaces, and nothing of it remains after the end of the program, for any cause.
//!
//! A rate is the goodput of one TCP connection (payload bytes), as [PM24] measures it; `tbf` gets
//! the rate that includes IP and TCP headers.
//!
//! Needs root, or a user namespace in which the program is root (`unshare -r`), and iproute2.
pub mod accuracy;
mod emulator;
mod measure;
mod namespace;
mod packet;
mod queue;
mod setup;

pub use emulator::{Counters, LinkCounters};
pub use setup::CONGESTION_CONTROL;

use crate::LabError;
use crate::campaign::LinkFigures;
use emulator::{Direction, Emulator};
use namespace::Namespace;
use queue::{REPLAY_AFTER, Treatment};
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::time::Duration;
use tacit_net::Rate;
use tacit_net::link::LinkSpec;

/// Rate for the bound on bytes under way of an unlimited link, in bit/s.
const UNLIMITED: Option<Rate> = Rate::new(10_000_000_000);

/// Most bytes under way in a direction: the largest window of a TCP connection.
const MAX_UNDER_WAY: u64 = 1 << 30;

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The end whose sending rate is `up`.
    Client,
    /// The end whose sending rate is `down`.
    Server,
}

impl Side {
    /// The other end.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// The sending rate of this end; `None` if unlimited.
    fn rate(self, spec: &LinkSpec) -> Option<Rate> {
        match self {
            Self::Client => spec.up(),
            Self::Server => spec.down(),
        }
    }

    /// The address: in 198.18.0.0/15, which RFC 2544 reserves for measurements.
    const fn address(self) -> Ipv4Addr {
        match self {
            Self::Client => Ipv4Addr::new(198, 18, 0, 1),
            Self::Server => Ipv4Addr::new(198, 18, 0, 2),
        }
    }
}

/// A running link. Dropping it ends every program inside and removes the link.
pub struct Link {
    spec: LinkSpec,
    // Dropped in this order: the emulator closes the devices, then the namespaces end.
    emulator: Option<Emulator>,
    client: Namespace,
    server: Namespace,
}

impl Link {
    /// Creates the two namespaces and joins them.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] without the rights, `/dev/net/tun` or iproute2, with the remedy;
    /// [`LabError::Failed`] and [`LabError::Io`] with the step that the kernel refuses.
    pub fn up(spec: &LinkSpec) -> Result<Self, LabError> {
        let (client, server) = (Namespace::new()?, Namespace::new()?);
        let mut devices = None;
        if spec.needs_emulator() {
            let offload = setup::offload(spec);
            devices = Some([setup::tun(&client, offload)?, setup::tun(&server, offload)?]);
        } else {
            setup::veth(&client, &server)?;
        }
        for (side, namespace) in [(Side::Client, &client), (Side::Server, &server)] {
            let spec = spec.clone();
            namespace.within(move || setup::configure(side, &spec))??;
        }
        let directions = [direction(spec, spec.up(), 1), direction(spec, spec.down(), 2)];
        let emulator = devices.map(|devices| Emulator::start(devices, directions)).transpose()?;
        Ok(Self { spec: spec.clone(), emulator, client, server })
    }

    /// The link's description.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// The address of `side`.
    pub fn address(&self, side: Side) -> Ipv4Addr {
        side.address()
    }

    fn namespace(&self, side: Side) -> &Namespace {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    /// Starts `command` on `side`, where it sees only the link and its own loopback interface.
    ///
    /// The child is the program itself; its number is that of the host. It is killed, with all its
    /// descendants, when the link is dropped or this program ends for any reason.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the program's name if it does not start.
    pub fn spawn(&self, side: Side, command: &mut Command) -> Result<Child, LabError> {
        self.namespace(side).spawn(command)
    }

    /// Runs `f` on a separate thread on `side` and waits for it. Sockets, threads and programs
    /// created inside belong to `side`. Programs started this way are not killed with the link: use
    /// [`Link::spawn`].
    ///
    /// # Errors
    /// [`LabError::Failed`] if the thread does not start, or `f` panics.
    pub fn within<T: Send + 'static>(&self, side: Side, f: impl FnOnce() -> T + Send + 'static) -> Result<T, LabError> {
        self.namespace(side).within(f)
    }

    /// Measures TCP goodput both ways (one reno connection each, without slow start), and the
    /// round-trip time, idle (median of UDP echoes) and of the full link. Takes about `effort`, or
    /// longer if a few round trips or packets of the link do (`nb-iot`: 45 s).
    ///
    /// # Errors
    /// [`LabError::Failed`] if no data passes.
    pub fn measure(&self, effort: Duration) -> Result<LinkFigures, LabError> {
        measure::measure(self, effort)
    }

    /// Processor time of the emulator, which belongs to neither side.
    pub fn emulator_cpu(&self) -> Duration {
        let Counters { up, down } = self.counters();
        up.cpu + down.cpu
    }

    /// The emulator's counters.
    pub fn counters(&self) -> Counters {
        self.emulator.as_ref().map(Emulator::counters).unwrap_or_default()
    }
}

/// Whether a table like `/proc/net/tcp` has a socket that listens at `port`.
pub fn is_listening(table: &str, port: u16) -> bool {
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = fields.next().and_then(|l| l.rsplit_once(':')).and_then(|(_, p)| u16::from_str_radix(p, 16).ok());
        // 0A: TCP_LISTEN.
        local == Some(port) && fields.nth(1) == Some("0A")
    })
}

fn direction(spec: &LinkSpec, rate: Option<Rate>, seed: u64) -> Direction {
    let treatment = Treatment {
        delay: half_ns(spec.rtt()),
        jitter: half_ns(spec.jitter()),
        loss: spec.loss(),
        corrupt: spec.corrupt(),
        duplicate: spec.duplicate(),
    };
    // Bytes under way on a full link, replays included, and a burst.
    let longest = Duration::from_nanos(treatment.delay + treatment.jitter + REPLAY_AFTER);
    let capacity = rate.or(UNLIMITED).map_or(0, |rate| rate.bytes_in(longest)).min(MAX_UNDER_WAY) as usize + (1 << 20);
    // With offload, 64 KiB and the header for the segmentation.
    let slot = if setup::offload(spec) { 66_000 } else { setup::MTU as usize };
    Direction { treatment, capacity, slot, seed }
}

fn half_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() / 2).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_of_long_fast_links_is_bounded() {
        for json in [r#"{"rtt": "60s", "jitter": "60s"}"#, r#"{"rate": "100gbit", "rtt": "60s"}"#] {
            let spec = LinkSpec::parse(&serde_json::from_str(json).unwrap()).unwrap();
            assert!(direction(&spec, spec.up(), 1).capacity <= (1 << 30) + (1 << 20), "{json}");
        }
        let usual = LinkSpec::preset("lan").unwrap();
        assert!(direction(&usual, usual.up(), 1).capacity < 16 << 20);
    }
}
