//! Links with a name and a source.
/// A link with a name and a source.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name on the command line and in records.
    pub name: &'static str,
    pub(super) up_kbit: u64,
    pub(super) down_kbit: u64,
    pub(super) rtt_us: u64,
    pub(super) jitter_us: u64,
    /// Source of the figures; `assumed` without a source.
    pub source: &'static str,
}

const fn symmetric(name: &'static str, kbit: u64, rtt_us: u64, source: &'static str) -> Preset {
    Preset { name, up_kbit: kbit, down_kbit: kbit, rtt_us, jitter_us: 0, source }
}

/// Every preset, each with its source.
pub const PRESETS: &[Preset] = &[
    symmetric("lan", 941_000, 600, "[PM24] sec. 4: wired gigabit Ethernet, 941 Mbit/s and 0.6 ms as measured there"),
    Preset {
        name: "wifi",
        up_kbit: 15_000,
        down_kbit: 30_000,
        rtt_us: 2_000,
        jitter_us: 1_000,
        source: "[Firefox DevTools, network throttling, profile Wi-Fi]: 30 Mbit/s down, 15 up, 2 ms; jitter 1 ms is assumed",
    },
    symmetric("lte", 12_000, 70_000, "[WebPageTest, connectivity profile LTE]: 12 Mbit/s both ways, 70 ms"),
    Preset {
        name: "3g",
        up_kbit: 750,
        down_kbit: 1_600,
        rtt_us: 150_000,
        jitter_us: 0,
        source: "[Lighthouse, docs/throttling.md; WebPageTest 3G Fast]: 1.6 Mbit/s down, 750 kbit/s up, 150 ms: the best quarter of 3G",
    },
    Preset {
        name: "nb-iot",
        up_kbit: 159,
        down_kbit: 127,
        rtt_us: 1_600_000,
        jitter_us: 0,
        source: "[3GPP Rel. 14, Cat NB2]: peak rates 159 kbit/s up and 127 down, latency 1.6 to 10 s, of which the least is taken",
    },
    symmetric("cheetah-wan", 352_000, 40_000, "[Chee22] evaluation: the WAN setting, 352 Mbit/s and 40 ms round trip"),
    symmetric("pm24-941", 941_000, 600, "[PM24] bandwidth sweep, 941 Mbit/s; round trip as in its LAN"),
    symmetric("pm24-95.6", 95_600, 600, "[PM24] bandwidth sweep, 95.6 Mbit/s; round trip as in its LAN"),
    symmetric("pm24-19.2", 19_200, 600, "[PM24] bandwidth sweep, 19.2 Mbit/s; round trip as in its LAN"),
    symmetric("pm24-3.89", 3_890, 600, "[PM24] bandwidth sweep, 3.89 Mbit/s; round trip as in its LAN"),
];

pub(super) fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

pub(super) fn names() -> String {
    PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
}
