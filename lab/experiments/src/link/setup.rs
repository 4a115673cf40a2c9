//! Devices, addresses and rates inside the two namespaces, by `ip` and `tc`.
use super::Side;
use super::namespace::Namespace;
use crate::LabError;
use std::io;
use std::process::Command;
use std::time::Duration;
use tacit_net::Rate;
use tacit_net::link::LinkSpec;
use tun_rs::{DeviceBuilder, SyncDevice};

/// The link's interface, in either namespace.
pub(super) const INTERFACE: &str = "link0";
/// Bytes of an IP packet at most.
pub(super) const MTU: u64 = 1500;
/// IPv4 and TCP headers with time stamps: the part of a full packet beside its payload.
const HEADER_BYTES: u64 = 52;
/// Bytes beside the IP packet that `tbf` counts on an Ethernet device (veth).
const ETHERNET_BYTES: u64 = 14;
/// From this rate on, the emulator moves TCP segments together, as network cards do (segmentation offload).
const OFFLOAD_FROM: u64 = 200_000_000;
/// TCP's congestion control over the link, on every host. A route that a program adds inside (such as a
/// tunnel's) needs `ip route ... congctl` with this name to be sure of the same.
pub const CONGESTION_CONTROL: &str = "cubic";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Rate of `tbf`, bit/s.
    pub(super) bits: u64,
    /// Bytes that may pass at once.
    pub(super) burst: u64,
    /// Bytes that may wait.
    pub(super) limit: u64,
}

impl Shape {
    /// A shape that gives a TCP connection `rate` of payload over a link with round-trip time `rtt`.
    ///
    /// Burst: 2 ms, so that a late timer costs no throughput, and two packets at least. Queue: the
    /// bandwidth-delay product, within 50 to 500 ms of the rate and 16 packets at least: cubic fills
    /// the link, and a slow link has no endless queue.
    pub(super) fn new(rate: Rate, rtt: Duration, ethernet: bool) -> Self {
        let frame = MTU + if ethernet { ETHERNET_BYTES } else { 0 };
        let bits =
            (u128::from(rate.bits_per_second()) * u128::from(frame)).div_ceil(u128::from(MTU - HEADER_BYTES)) as u64;
        let burst = (bits / 8 / 500).max(2 * frame);
        let queue = rate.bytes_in(rtt.clamp(Duration::from_millis(50), Duration::from_millis(500))).max(16 * frame);
        Self { bits, burst, limit: queue + burst }
    }
}

/// Whether the emulator moves TCP segments together on this link.
pub(super) fn offload(spec: &LinkSpec) -> bool {
    !spec.is_impaired() && (is_fast(spec.up()) || is_fast(spec.down()))
}

fn is_fast(rate: Option<Rate>) -> bool {
    rate.is_none_or(|rate| rate.bits_per_second() >= OFFLOAD_FROM)
}

/// Creates a TUN device in the namespace; it disappears with its last user.
pub(super) fn tun(namespace: &Namespace, offload: bool) -> Result<SyncDevice, LabError> {
    let result = namespace.within(move || {
        DeviceBuilder::new()
            .name(INTERFACE)
            .with(|options| {
                options.offload(offload);
            })
            .inherit_enable_state()
            .build_sync()
    })?;
    result.map_err(|error| {
        let (reason, remedy) = match error.kind() {
            io::ErrorKind::PermissionDenied => ("opening /dev/net/tun was not permitted", "run as root (sudo)"),
            _ => (
                "no TUN device could be made",
                "load the kernel's tun module (modprobe tun), or in a container pass /dev/net/tun",
            ),
        };
        LabError::unavailable("an emulated link", format!("{reason}: {error}"), remedy)
    })
}

pub(super) fn veth(client: &Namespace, server: &Namespace) -> Result<(), LabError> {
    let peer = server.thread_id.to_string();
    client.within(move || {
        run("ip", &["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", &peer])
    })?
}

/// Sets the address and the rate of the interface of `side`; called inside the namespace.
pub(super) fn configure(side: Side, spec: &LinkSpec) -> Result<(), LabError> {
    settings(spec)?;
    let emulated = spec.needs_emulator();
    run("ip", &["link", "set", "lo", "up"])?;
    run("ip", &["address", "add", &format!("{}/30", side.address()), "dev", INTERFACE])?;
    run("ip", &["link", "set", INTERFACE, "mtu", &MTU.to_string(), "txqueuelen", "2000"])?;
    if let Some(rate) = side.rate(spec) {
        let shape = Shape::new(rate, spec.rtt(), !emulated);
        // Segments that travel together take at most a quarter of the burst: the rate stays smooth.
        let burst_bytes = (shape.burst / 4).clamp(MTU, 65_536).to_string();
        run("ip", &["link", "set", INTERFACE, "gso_max_size", &burst_bytes])?;
        let (bits, burst, limit) =
            (format!("{}bit", shape.bits), format!("{}b", shape.burst), format!("{}b", shape.limit));
        run("tc", &["qdisc", "add", "dev", INTERFACE, "root", "tbf", "rate", &bits, "burst", &burst, "limit", &limit])?;
    }
    run("ip", &["link", "set", INTERFACE, "up"])?;
    let peer_address = format!("{}/32", side.other().address());
    run("ip", &["route", "replace", &peer_address, "dev", INTERFACE, "congctl", CONGESTION_CONTROL])
}

/// Kernel settings of the namespace.
fn settings(spec: &LinkSpec) -> Result<(), LabError> {
    // For routes that programs add, such as a tunnel's. Some hosts allow only their own default here;
    // such a route then needs its own `congctl`.
    _ = set("ipv4/tcp_congestion_control", CONGESTION_CONTROL);
    // Path metrics of one connection must not help the next.
    set("ipv4/tcp_no_metrics_save", "1")?;
    // No neighbour discovery between measurements. Kernels without IPv6 lack the setting.
    if std::path::Path::new("/proc/sys/net/ipv6").exists() {
        set("ipv6/conf/all/disable_ipv6", "1")?;
        set("ipv6/conf/default/disable_ipv6", "1")?;
    }
    // Windows must hold bytes under way and queued; the kernel's own limits suffice up to about 1 MiB.
    let fastest = spec.up().max(spec.down());
    let under_way = fastest.map_or(0, |rate| rate.bytes_in(spec.rtt() + spec.rtt().max(Duration::from_millis(50))));
    if under_way > 1 << 20 {
        let buffer_bytes = (4 * under_way).clamp(8 << 20, 1 << 30);
        set("ipv4/tcp_rmem", &format!("4096 131072 {buffer_bytes}"))?;
        set("ipv4/tcp_wmem", &format!("4096 16384 {buffer_bytes}"))?;
    }
    Ok(())
}

fn set(name: &str, value: &str) -> Result<(), LabError> {
    let path = std::path::Path::new("/proc/sys/net").join(name);
    std::fs::write(&path, value).map_err(LabError::io(path))
}

/// Runs a tool of iproute2; a missing one is [`LabError::Unavailable`].
fn run(tool: &str, arguments: &[&str]) -> Result<(), LabError> {
    let output = Command::new(tool).args(arguments).output().map_err(|error| match error.kind() {
        // The system also reports "not permitted" if a folder of PATH is closed to this user and no
        // other folder has the program.
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => LabError::unavailable(
            "an emulated link",
            format!("the program {tool} is missing ({error})"),
            "install iproute2 (Debian, Ubuntu: sudo apt install iproute2)",
        ),
        _ => LabError::failed(format!("starting {tool}"))(error),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(LabError::failed(format!("{tool} {}", arguments.join(" ")))(message.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_net::link::LinkSpecText;

    #[test]
    fn shape_adds_headers_and_bounds_the_queue() {
        let rate: Rate = "14.48mbit".parse().unwrap();
        let shape = Shape::new(rate, Duration::from_millis(40), false);
        assert_eq!(shape.bits, 15_000_000);
        assert_eq!(shape.burst, 3750);
        assert_eq!(shape.limit, 90_500 + 3750);
        assert_eq!(Shape::new(rate, Duration::from_millis(100), true).bits, 15_140_000);
        let slow = Shape::new("64kbit".parse().unwrap(), Duration::from_secs(2), false);
        assert_eq!((slow.burst, slow.limit), (3000, 16 * 1500 + 3000));
    }

    #[test]
    fn segments_travel_together_on_fast_clean_links_only() {
        let lan = LinkSpec::preset("lan").unwrap();
        assert!(offload(&lan));
        let lossy = LinkSpecText { preset: Some("lan".into()), loss: Some(0.1), ..LinkSpecText::default() };
        let slow = LinkSpecText { up: Rate::new(4_000_000), down: Rate::new(100_000_000), ..LinkSpecText::default() };
        for text in [lossy, slow] {
            assert!(!offload(&LinkSpec::parse(&text).unwrap()));
        }
    }

    #[test]
    fn missing_or_failing_tools_are_named() {
        let error = run("no-such-tool-of-iproute2", &[]).unwrap_err();
        assert!(
            matches!(&error, LabError::Unavailable { remedy, .. } if remedy.contains("apt install iproute2")),
            "{error}"
        );
        let error = run("sh", &["-c", "echo broken >&2; exit 2"]).unwrap_err();
        assert!(matches!(&error, LabError::Failed { detail, .. } if detail == "broken"), "{error}");
    }
}
