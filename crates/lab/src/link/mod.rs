//! Emulated links: two hosts on one machine, joined by a link with a rate, a round-trip time and faults.
//!
//! Two anonymous network namespaces stand for client and server. Rates are set by the kernel's `tbf`; delay,
//! jitter, loss, corruption and replay by an emulator of ours that moves packets between two TUN devices,
//! since many kernels lack `netem`. A link that only limits the rate is a veth pair. Nothing outside the two
//! namespaces is touched, and nothing of them remains once the program is gone, however it ended: neither
//! interface, nor namespace, nor process started inside.
//!
//! What a rate means: the goodput of one TCP connection (payload bytes), as [PM24] measures it; `tbf` gets
//! the rate that includes IP and TCP headers. The congestion control inside is cubic, whatever the host uses,
//! so that figures compare between hosts.
//!
//! Needs root, or a user namespace in which the program is root (`unshare -r`), and iproute2.
pub mod accuracy;
mod emulator;
mod measure;
mod namespace;
mod packet;
mod presets;
mod queue;
mod setup;
mod spec;

pub use emulator::LinkCounters;
pub use presets::{PRESETS, Preset};
pub use setup::CONGESTION_CONTROL;
pub use spec::{LinkSpec, LinkSpecText, format_duration, parse_duration};

use crate::LabError;
use crate::campaign::LinkFigures;
use emulator::{Direction, Emulator};
use namespace::Namespace;
use queue::{REPLAY_AFTER, Treatment};
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::time::Duration;
use tacit_net::Rate;

/// Bytes under way are bounded as if an unlimited link had this rate, in bit/s.
const UNLIMITED: Option<Rate> = Rate::new(10_000_000_000);

/// A direction never holds more bytes than this: the largest window of a TCP connection.
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

    /// The address: of 198.18.0.0/15, which RFC 2544 sets aside for measurements.
    const fn address(self) -> Ipv4Addr {
        match self {
            Self::Client => Ipv4Addr::new(198, 18, 0, 1),
            Self::Server => Ipv4Addr::new(198, 18, 0, 2),
        }
    }
}

/// A link that is up. Its drop ends every program inside and removes it.
pub struct Link {
    spec: LinkSpec,
    // Dropped in this order: the emulator lets go of the devices, then the namespaces end.
    emulator: Option<Emulator>,
    client: Namespace,
    server: Namespace,
}

impl Link {
    /// Makes the two namespaces and joins them.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] without the rights, `/dev/net/tun` or iproute2, with what to do;
    /// [`LabError::Failed`] and [`LabError::Io`] where the kernel refuses a step, named.
    pub fn up(spec: &LinkSpec) -> Result<Self, LabError> {
        let (client, server) = (Namespace::new()?, Namespace::new()?);
        let mut devices = None;
        if spec.emulated() {
            let offload = setup::offload(spec);
            devices = Some([setup::tun(&client, offload)?, setup::tun(&server, offload)?]);
        } else {
            setup::veth(&client, &server)?;
        }
        for (side, namespace) in [(Side::Client, &client), (Side::Server, &server)] {
            let spec = spec.clone();
            namespace.within(move || setup::configure(side, &spec))??;
        }
        let directions = [direction(spec, spec.up, 1), direction(spec, spec.down, 2)];
        let emulator = devices.map(|devices| Emulator::start(devices, directions)).transpose()?;
        Ok(Self { spec: spec.clone(), emulator, client, server })
    }

    /// What was asked for.
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

    /// Starts `command` on `side`, where it sees only the link and a loopback interface of its own.
    ///
    /// The child is the program itself, our own child, in a process namespace of the side: its number is the
    /// one that the host sees. It is killed, with all its descendants, when the link is dropped or when this
    /// program ends, by whatever means.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the program's name where it does not start.
    pub fn spawn(&self, side: Side, command: &mut Command) -> Result<Child, LabError> {
        self.namespace(side).spawn(command)
    }

    /// Runs `f` on a thread of its own on `side` and waits for it. Sockets, threads and programs made inside
    /// belong to `side`, and sockets may be used outside afterwards. (Programs started so are not killed with
    /// the link: use [`Link::spawn`].)
    ///
    /// # Errors
    /// [`LabError::Failed`] where the thread does not start, or `f` panics.
    pub fn within<T: Send + 'static>(&self, side: Side, f: impl FnOnce() -> T + Send + 'static) -> Result<T, LabError> {
        self.namespace(side).within(f)
    }

    /// Measures TCP goodput both ways (one reno connection each, slow start left out), the idle round-trip
    /// time (median of UDP echoes) and that of the full link. Takes about `effort` (3 s are enough above 1
    /// Mbit/s), and longer where a few round trips or packets of the link take longer (`nb-iot`: 45 s).
    ///
    /// # Errors
    /// [`LabError::Failed`] where nothing comes through.
    pub fn measure(&self, effort: Duration) -> Result<LinkFigures, LabError> {
        measure::measure(self, effort)
    }

    /// Processor time that the emulator has used: it belongs to neither side.
    pub fn emulator_cpu(&self) -> Duration {
        self.counters().iter().map(|counters| counters.cpu).sum()
    }

    /// What the emulator did: client to server, and server to client.
    pub fn counters(&self) -> [LinkCounters; 2] {
        self.emulator.as_ref().map(Emulator::counters).unwrap_or_default()
    }
}

/// One direction of the emulator.
fn direction(spec: &LinkSpec, rate: Option<Rate>, seed: u64) -> Direction {
    let half = |time: Duration| u64::try_from(time.as_nanos() / 2).unwrap_or(u64::MAX);
    let treatment = Treatment {
        delay: half(spec.rtt),
        jitter: half(spec.jitter),
        loss: spec.loss,
        corrupt: spec.corrupt,
        duplicate: spec.duplicate,
    };
    // What a full link keeps under way, replays included, and a burst.
    let longest = Duration::from_nanos(treatment.delay + treatment.jitter + REPLAY_AFTER);
    let capacity = rate.or(UNLIMITED).map_or(0, |rate| rate.bytes_in(longest)).min(MAX_UNDER_WAY) as usize + (1 << 20);
    // With offload, 64 KiB and the header that says how to cut them.
    let slot = if setup::offload(spec) { 66_000 } else { setup::MTU as usize };
    Direction { treatment, capacity, slot, seed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_fast_link_takes_no_absurd_memory() {
        for json in [r#"{"rtt": "60s", "jitter": "60s"}"#, r#"{"rate": "100gbit", "rtt": "60s"}"#] {
            let spec = LinkSpec::parse(&serde_json::from_str(json).unwrap()).unwrap();
            assert!(direction(&spec, spec.up, 1).capacity <= (1 << 30) + (1 << 20), "{json}");
        }
        let usual = LinkSpec::preset("lan").unwrap();
        assert!(direction(&usual, usual.up, 1).capacity < 16 << 20);
    }
}
