//! One reading of a process tree, a core or a network interface; counters are cumulative.
use serde::{Deserialize, Serialize};

/// A party's process tree: live processes and those already ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartySample {
    /// User CPU seconds.
    pub user_s: f64,
    /// Kernel CPU seconds.
    pub system_s: f64,
    /// Resident set now, bytes.
    pub rss_bytes: u64,
    /// Processes alive.
    pub processes: u32,
}

/// One core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreSample {
    /// User seconds (with nice).
    pub user_s: f64,
    /// Kernel seconds (with interrupts).
    pub system_s: f64,
    /// Idle seconds (with waiting for I/O).
    pub idle_s: f64,
    /// Present frequency, MHz; absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mhz: Option<f64>,
}

/// One network interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceSample {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
}
