//! Devices: slowness compared with the calibrated machine, cores, memory and energy.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tacit_measure::device::DeviceProfile;

use crate::calibration::Calibration;
use crate::counts::{Counts, Primitive};
use crate::error::{PlanError, wrong};

const BUILT_IN: &str = include_str!("../devices.toml");

/// A device of the built-in file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    also: Vec<String>,
    cores: u32,
    memory_gib: f64,
    /// Name of the device's energy profile.
    energy: String,
    /// Time of a primitive, as a multiple of its time on the machine of the built-in calibration.
    slower: BTreeMap<Primitive, f64>,
    /// The same multiple for all primitives that are not named.
    otherwise: f64,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    device: Vec<Entry>,
}

fn built_in() -> Vec<Entry> {
    toml::from_str::<File>(BUILT_IN).expect("a test reads it").device
}

/// A device that runs a party.
#[derive(Debug, Clone, Serialize)]
pub struct Device {
    /// The device's name.
    pub name: String,
    /// Cores.
    pub cores: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The rates of the calibrated machine.
    #[serde(skip)]
    pub calibration: Arc<Calibration>,
    /// Time of each of [`Primitive::ALL`] on this device, as a multiple of the calibrated time.
    pub slower: Counts,
    /// Idle power, watts.
    pub base_w: f64,
    /// Joules of a second of processor time above idle.
    pub j_per_cpu_s: f64,
    /// Joules of a byte, in addition to those of its processor time.
    pub j_per_byte: f64,
    /// The sources of these numbers.
    pub sources: Vec<String>,
}

impl Device {
    /// Returns a device by name, with the built-in calibration.
    ///
    /// # Errors
    /// No device has that name; the error lists the names that exist.
    pub fn named(name: &str) -> Result<Self, PlanError> {
        let entries = built_in();
        let entry = entries.iter().find(|d| d.name == name || d.also.iter().any(|also| also == name));
        let Some(entry) = entry else {
            return wrong(format!("device {name:?}"), format!("there are {}", Self::names().join(", ")));
        };
        let (profile, mode) = DeviceProfile::load_with_mode(&entry.energy)?;
        let mode = profile.mode(mode)?;
        let slower = Primitive::ALL.map(|primitive| entry.slower.get(&primitive).copied().unwrap_or(entry.otherwise));
        let energy = [
            ("idle power", &mode.base_w),
            ("power of a core", &mode.w_per_core),
            ("energy of a byte", &mode.j_per_byte),
        ];
        let mut sources = vec![format!("speed: {}", entry.source)];
        sources.extend(energy.iter().map(|(quantity, coefficient)| format!("{quantity}: {}", coefficient.source)));
        Ok(Self {
            name: entry.name.clone(),
            cores: entry.cores,
            memory_bytes: (entry.memory_gib * f64::from(1 << 30)) as u64,
            calibration: Arc::new(Calibration::built_in()),
            slower,
            base_w: mode.base_w.value,
            j_per_cpu_s: mode.w_per_core.value,
            j_per_byte: mode.j_per_byte.value,
            sources,
        })
    }

    /// All names.
    #[must_use]
    pub fn names() -> Vec<String> {
        built_in().into_iter().map(|d| d.name).collect()
    }

    /// All names with their aliases: `raspberry-pi-4b (pi4b, pi4), ..`.
    #[must_use]
    pub fn list_names() -> String {
        let entries = built_in();
        let names = entries.iter().map(|d| format!("{} ({})", d.name, d.also.join(", ")));
        names.collect::<Vec<_>>().join(", ")
    }

    /// Returns this device with a calibration of its own.
    #[must_use]
    pub fn with_calibration(self, calibration: Arc<Calibration>) -> Self {
        let speed = format!("speed: calibrated on {}, {}", calibration.machine, calibration.made);
        let sources = std::iter::once(speed).chain(self.sources.into_iter().skip(1)).collect();
        Self { slower: [1.0; _], sources, calibration, ..self }
    }

    /// Joules above idle of this much processor time and this many bytes.
    #[must_use]
    pub fn net_j(&self, cpu_s: f64, bytes: u64) -> f64 {
        self.j_per_cpu_s * cpu_s + self.j_per_byte * bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacit_net::Phase;

    #[test]
    fn devices_have_plausible_numbers_and_sources() {
        assert!(Device::names().len() >= 8);
        assert!(Device::list_names().contains("raspberry-pi-4b (pi4b, pi4)"), "{}", Device::list_names());
        for name in Device::names() {
            let device = Device::named(&name).unwrap();
            assert!(device.slower.iter().all(|s| (0.1..1_000.0).contains(s)), "{name}");
            assert!(device.cores > 0, "{name}");
            assert!(device.memory_bytes > 1 << 28, "{name}");
            assert!(device.j_per_cpu_s > 0.0, "{name}");
            assert!(device.sources.iter().all(|s| s.len() > 20), "{name}: {:?}", device.sources);
        }
        let error = Device::named("toaster").unwrap_err().to_string();
        for part in ["toaster", "raspberry-pi-4b"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(Device::named("pi4b").unwrap().name, "raspberry-pi-4b");
    }

    /// Nanoseconds of an AES block and of a random OT: counted cycles divided by the clock rate.
    #[test]
    fn boards_take_the_counted_time_for_aes_and_ots() {
        let index_of = |primitive| Primitive::ALL.iter().position(|p| *p == primitive).unwrap();
        let (aes, ot) = (index_of(Primitive::Aes), index_of(Primitive::Ot));
        let rates = |backend: &str, phase| Calibration::built_in().backends[backend].phases[&phase].client.array();
        let (block_ns, ot_ns) = (1e9 * rates("dealt", Phase::Online)[aes], 1e9 * rates("cheetah", Phase::Offline)[ot]);
        let boards = [
            ("pi3b", 360.0 / 1.2, 1_600.0..2_400.0),
            ("pi4b", 335.0 / 1.5, 1_400.0 / 1.5..1_800.0 / 1.5),
            ("pi5", 19.0 / 2.4, 250.0 / 2.4..350.0 / 2.4),
            ("nano", 19.0 / 1.48, 250.0 / 1.48..600.0 / 1.48),
        ];
        for (name, block, ots) in boards {
            let slower = Device::named(name).unwrap().slower;
            let planned = slower[aes] * block_ns;
            assert!((planned / block - 1.0).abs() < 0.05, "{name}: {planned} ns a block, counted {block}");
            let planned = slower[ot] * ot_ns;
            assert!(ots.contains(&planned), "{name}: {planned} ns an OT, counted {ots:?}");
        }
    }
}
