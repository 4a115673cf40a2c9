//! Processor energy counters (Intel RAPL, also AMD since Zen) by the kernel's powercap class,
//! `/sys/class/powercap/intel-rapl:*`.
//!
//! Counted: every `package-*` zone and its `dram` subzone, which on servers is outside the package.
//! Not counted: `core` and `uncore` (parts of the package), `psys` (the platform: it contains the
//! packages, and its other parts differ between boards) unless there is no package, and zones of
//! `intel-rapl-mmio`, which repeat a package over another interface. Counters wrap at
//! `max_energy_range_uj`, after minutes to an hour; the sampling interval must be shorter. RAPL
//! measures the processor and its memory, not the board, disks, network or power supply.
use super::counter::Counter;
use super::detected::Detected;
use super::sysfs::{Reading, SysfsSource};
use super::tree::Tree;
use super::{Rail, SourceInfo};
use std::io;
use std::sync::Arc;

const NAME: &str = "rapl";
const FOLDER: &str = "/sys/class/powercap";
/// The processor refreshes its counters about every millisecond.
const MIN_INTERVAL_MS: u32 = 1;
const PERMISSION: &str = "run as root, or allow reading until the next boot: sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj; \
     for good: the udev rule in docs/lab.md, or sudo setcap cap_dac_read_search+ep \"$(command -v tacit)\"";

/// A zone: `intel-rapl:0` or, below it, `intel-rapl:0:1`.
struct Zone {
    id: String,
    name: String,
}

impl Zone {
    fn top(&self) -> bool {
        self.id.matches(':').count() == 1
    }

    fn parent(&self) -> &str {
        self.id.rsplit_once(':').map_or("", |(parent, _)| parent)
    }
}

pub(crate) fn detect(tree: &Arc<dyn Tree>) -> Detected {
    let zones = zones(&**tree);
    if zones.is_empty() {
        let reason = "this kernel offers no RAPL zones (usual in virtual machines and containers, and on ARM)".into();
        let remedy =
            "on an x86 machine of your own: sudo modprobe intel_rapl_msr; in a virtual machine measure on the host"
                .into();
        return Detected::unusable(NAME, FOLDER, reason, remedy);
    }
    let packages = zones.iter().any(|z| z.name.starts_with("package"));
    let (mut rails, mut readings) = (Vec::new(), Vec::new());
    for zone in &zones {
        let path = format!("{FOLDER}/{}/energy_uj", zone.id);
        let counted = match zone.name.as_str() {
            "core" | "uncore" => false,
            "psys" => !packages,
            name => name.starts_with("package") || name == "dram",
        };
        if let Err(error) = tree.read(&path) {
            if counted {
                let (reason, remedy) = explain(&error, &path);
                return Detected::unusable(NAME, FOLDER, reason, remedy);
            }
            continue;
        }
        let range = tree.read(&format!("{FOLDER}/{}/max_energy_range_uj", zone.id)).ok().and_then(|r| r.parse().ok());
        readings.push(Reading::Energy { path, counter: Counter::new(1e-6, range) });
        let parent = zones.iter().find(|z| !zone.top() && z.id == zone.parent());
        let name = parent.map_or_else(|| zone.name.clone(), |p| format!("{}/{}", p.name, zone.name));
        rails.push(Rail { name, counted });
    }
    if !rails.iter().any(|r| r.counted) {
        let reason = format!("no zone of package, dram or platform in {FOLDER}");
        return Detected::unusable(NAME, FOLDER, reason, "use another source".into());
    }
    let info = SourceInfo::measured(NAME, rails, MIN_INTERVAL_MS);
    Detected::probe(FOLDER, Box::new(SysfsSource::new(info, tree.clone(), readings, explain)))
        .note("sees processor and memory only, not the board or the power supply")
}

/// All zones of `intel-rapl`, and those of `intel-rapl-mmio` if there is no package among them.
fn zones(tree: &dyn Tree) -> Vec<Zone> {
    let mut ids: Vec<String> = tree.list(FOLDER).unwrap_or_default();
    // Numeric order; hexadecimal ids last.
    ids.sort_by_key(|id| (id.len(), id.clone()));
    let mut zones = zones_with_prefix(tree, &ids, "intel-rapl");
    let mmio = zones_with_prefix(tree, &ids, "intel-rapl-mmio");
    if !zones.iter().any(|z| z.name.starts_with("package")) {
        zones.extend(mmio);
    }
    zones
}

fn zones_with_prefix(tree: &dyn Tree, ids: &[String], prefix: &str) -> Vec<Zone> {
    let of_kind = ids.iter().filter(|id| id.strip_prefix(prefix).is_some_and(|suffix| suffix.starts_with(':')));
    let zones = of_kind.filter_map(|id| {
        let name = tree.read(&format!("{FOLDER}/{id}/name")).ok()?;
        Some(Zone { id: id.clone(), name })
    });
    zones.collect()
}

fn explain(error: &io::Error, path: &str) -> (String, String) {
    if error.kind() == io::ErrorKind::PermissionDenied {
        let reason = format!("{path} may be read by root only (the kernel's answer to the PLATYPUS attack)");
        return (reason, PERMISSION.into());
    }
    super::sysfs::explain(error, path)
}
