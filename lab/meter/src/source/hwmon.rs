//! Sensor chips of the kernel's hwmon class, `/sys/class/hwmon/hwmon*` (kernel documentation
//! `hwmon/sysfs-interface.rst`).
//!
//! Each channel number uses the first available of these: `energy*_input` (microjoules),
//! `power*_input`, `power*_average` (microwatts), or `in*_input` times `curr*_input` (millivolts,
//! milliamperes). Names come from the label files. All INA3221 chips together are one source, since
//! a Jetson's rails are spread over several of them. Counted rails: [`super::rails`].
use super::counter::Counter;
use super::detected::Detected;
use super::sysfs::{Reading, SysfsSource, explain};
use super::tree::Tree;
use super::{SourceInfo, rails};
use std::collections::BTreeMap;
use std::sync::Arc;

const FOLDER: &str = "/sys/class/hwmon";
/// Chips that measure one component, not the host; last in the order of detection.
const COMPONENTS: &[&str] =
    &["amdgpu", "radeon", "nouveau", "i915", "xe", "nvidia", "BAT", "ucsi", "mlx", "nvme", "drivetemp"];
/// For chips that do not report their update interval.
const DEFAULT_INTERVAL_MS: u32 = 100;

/// Found chips: those that measure the host, and those that measure one component.
pub(crate) struct Chips {
    pub(crate) host: Vec<Detected>,
    pub(crate) ina3221: Option<Detected>,
    pub(crate) components: Vec<Detected>,
}

/// One rail of a chip.
struct Channel {
    name: String,
    reading: Reading,
}

/// Searches all chips; skips those without power, energy, or voltage and current.
pub(crate) fn detect(tree: &Arc<dyn Tree>) -> Chips {
    let mut detected_chips = Chips { host: Vec::new(), ina3221: None, components: Vec::new() };
    let (mut ina, mut ina_interval, mut ina_places) = (Vec::new(), 1, Vec::new());
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    let mut silent = Vec::new();
    let mut chips = tree.list(FOLDER).unwrap_or_default();
    chips.sort_by_key(|chip| (chip.len(), chip.clone()));
    for chip in chips {
        let folder = format!("{FOLDER}/{chip}");
        let name = tree.read(&format!("{folder}/name")).unwrap_or_else(|_| chip.clone());
        let channels = channels(&**tree, &folder, &name);
        if channels.is_empty() {
            silent.push(name);
            continue;
        }
        let interval = interval(&**tree, &folder);
        if name.starts_with("ina3221") {
            ina.extend(channels);
            ina_interval = ina_interval.max(interval);
            ina_places.push(folder);
            continue;
        }
        let count = names.entry(name.clone()).or_default();
        *count += 1;
        let full = if *count == 1 { format!("hwmon:{name}") } else { format!("hwmon:{name}.{count}") };
        let component = COMPONENTS.iter().any(|c| name.starts_with(c));
        let detected = usable(tree, full, &folder, channels, interval);
        if component {
            detected_chips.components.push(detected.note("sees one component, not the whole host"));
        } else {
            detected_chips.host.push(detected);
        }
    }
    if !ina.is_empty() {
        detected_chips.ina3221 = Some(usable(tree, "ina3221".into(), &ina_places.join(", "), ina, ina_interval));
    }
    if detected_chips.host.is_empty() && detected_chips.ina3221.is_none() && detected_chips.components.is_empty() {
        let chips =
            if silent.is_empty() { "there is no chip at all".into() } else { format!("found: {}", silent.join(", ")) };
        detected_chips.host.push(Detected::unusable(
            "hwmon",
            FOLDER,
            format!("no chip gives power, energy, or voltage with current ({chips})"),
            "connect a sensor such as an INA219 or INA226 (docs/lab.md), or use an external meter".into(),
        ));
    }
    detected_chips
}

fn usable(tree: &Arc<dyn Tree>, name: String, place: &str, channels: Vec<Channel>, min_interval_ms: u32) -> Detected {
    let (names, readings): (Vec<String>, Vec<Reading>) = channels.into_iter().map(|c| (c.name, c.reading)).unzip();
    let info = SourceInfo::measured(name, rails::count(names), min_interval_ms);
    Detected::probe(place, Box::new(SysfsSource::new(info, tree.clone(), readings, explain)))
}

/// The chip's own update interval, milliseconds.
fn interval(tree: &dyn Tree, folder: &str) -> u32 {
    ["update_interval", "power1_average_interval"]
        .iter()
        .find_map(|file| tree.read(&format!("{folder}/{file}")).ok()?.parse::<u32>().ok())
        .map_or(DEFAULT_INTERVAL_MS, |ms| ms.clamp(1, 60_000))
}

/// The best reading per channel number, in the order of numbers.
fn channels(tree: &dyn Tree, folder: &str, chip: &str) -> Vec<Channel> {
    let files = tree.list(folder).unwrap_or_default();
    // The INA3221 driver numbers shunt voltages in4 to in6, and curr4 is the sum of the channels: no rails.
    let rails = if chip.starts_with("ina3221") { 1..=3 } else { 0..=u32::MAX };
    let currents = numbers(&files, "curr", "_input");
    let mut best: BTreeMap<u32, (Reading, [&str; 2])> = BTreeMap::new();
    for n in numbers(&files, "in", "_input").into_iter().filter(|n| rails.contains(n) && currents.contains(n)) {
        let product =
            Reading::Product { volt: format!("{folder}/in{n}_input"), curr: format!("{folder}/curr{n}_input") };
        best.insert(n, (product, ["in", "curr"]));
    }
    for end in ["_average", "_input"] {
        for n in numbers(&files, "power", end) {
            let path = format!("{folder}/power{n}{end}");
            best.insert(n, (Reading::Power { path, per_watt: 1e6 }, ["power", "in"]));
        }
    }
    for n in numbers(&files, "energy", "_input") {
        let counter = Counter::new(1e-6, None);
        best.insert(n, (Reading::Energy { path: format!("{folder}/energy{n}_input"), counter }, ["energy", "power"]));
    }
    let named_readings = best.into_iter().filter_map(|(n, (reading, stems))| {
        let label = stems.iter().find_map(|stem| tree.read(&format!("{folder}/{stem}{n}_label")).ok());
        let name = label.filter(|l| !l.is_empty()).unwrap_or_else(|| format!("{}{n}", stems[0]));
        // Not connected (Jetson Orin).
        (name != "NC").then_some(Channel { name, reading })
    });
    named_readings.collect()
}

/// The channel numbers of the files with a stem and an end.
fn numbers(files: &[String], stem: &str, end: &str) -> Vec<u32> {
    files.iter().filter_map(|f| f.strip_prefix(stem)?.strip_suffix(end)?.parse().ok()).collect()
}
