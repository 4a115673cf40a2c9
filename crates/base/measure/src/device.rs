//! Device profiles: the coefficients of the energy model, each with its source.
//!
//! A profile is a TOML file (docs/lab.md). Profiles of common devices are built in. For a machine
//! with a power sensor, `tacit lab calibrate` writes one.
use crate::MeasureError;
use serde::{Deserialize, Serialize};
use std::path::Path;

const MAX_FILE: u64 = 64 << 10;

const BUILT_IN: &[(&str, &str)] = &[
    ("generic-x86-server", include_str!("../devices/generic-x86-server.toml")),
    ("raspberry-pi-3b", include_str!("../devices/raspberry-pi-3b.toml")),
    ("raspberry-pi-4b", include_str!("../devices/raspberry-pi-4b.toml")),
    ("raspberry-pi-5", include_str!("../devices/raspberry-pi-5.toml")),
    ("jetson-nano", include_str!("../devices/jetson-nano.toml")),
    ("jetson-tx2", include_str!("../devices/jetson-tx2.toml")),
    ("jetson-agx-xavier", include_str!("../devices/jetson-agx-xavier.toml")),
    ("jetson-orin-nano", include_str!("../devices/jetson-orin-nano.toml")),
];

/// A number and its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficient {
    /// The number.
    pub value: f64,
    /// A citation, the measuring instrument, or the word `assumed` with the reason.
    pub source: String,
}

impl Coefficient {
    /// Whether the value is assumed and not measured.
    pub fn is_assumed(&self) -> bool {
        self.source.starts_with("assumed")
    }
}

/// A power mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mode {
    /// Name: `default`, `5w`, `max-n`.
    pub name: String,
    /// Mode number for `nvpmodel -m`, on a Jetson.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvpmodel: Option<u32>,
    /// Cores online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Highest core frequency, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_mhz: Option<u32>,
    /// The maker's power budget, watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_w: Option<f64>,
    /// Source of cores, frequency and budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_source: Option<String>,
    /// Power of the idle device, watts, 0 to 5000.
    pub base_w: Coefficient,
    /// Power of one busy core above idle, watts, 0 to 500: joules per CPU second.
    pub w_per_core: Coefficient,
    /// Energy of a byte on the network beyond its CPU time, joules, 0 to 0.001.
    pub j_per_byte: Coefficient,
}

/// A device with its power modes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    name: String,
    description: String,
    default_mode: String,
    #[serde(rename = "mode")]
    modes: Vec<Mode>,
}

impl DeviceProfile {
    /// A profile with one mode, `default`.
    ///
    /// # Errors
    /// [`MeasureError::Malformed`] if a value is out of range.
    pub fn single(
        name: &str,
        description: &str,
        base_w: Coefficient,
        w_per_core: Coefficient,
        j_per_byte: Coefficient,
    ) -> Result<Self, MeasureError> {
        let mode = Mode {
            name: "default".into(),
            nvpmodel: None,
            cores: None,
            max_mhz: None,
            budget_w: None,
            mode_source: None,
            base_w,
            w_per_core,
            j_per_byte,
        };
        let profile = Self {
            name: name.into(),
            description: description.into(),
            default_mode: "default".into(),
            modes: vec![mode],
        };
        profile.check()?;
        Ok(profile)
    }

    /// Reads a profile's TOML text.
    ///
    /// # Errors
    /// [`MeasureError::Malformed`] with the line, key or value.
    pub fn parse(text: &str) -> Result<Self, MeasureError> {
        let profile: Self = toml::from_str(text).map_err(|e| malformed_profile(e.to_string()))?;
        profile.check()?;
        Ok(profile)
    }

    /// A built-in profile by name, or a file if `name` ends in `.toml`.
    ///
    /// # Errors
    /// [`MeasureError::Io`], or [`MeasureError::Malformed`] for an unknown name (with the known
    /// ones) or an invalid file.
    pub fn load(name: &str) -> Result<Self, MeasureError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in_name, _)| *built_in_name == name) {
            return Self::parse(text);
        }
        if !name.ends_with(".toml") {
            let known_names = Self::names().collect::<Vec<_>>().join(", ");
            return Err(malformed_profile(format!(
                "there is no device profile {name:?}; built in: {known_names}; or give a file that ends in .toml"
            )));
        }
        let path = Path::new(name);
        let size = std::fs::metadata(path).map_err(MeasureError::io(path))?.len();
        if size > MAX_FILE {
            let detail = format!("{size} bytes, at most {MAX_FILE}");
            return Err(MeasureError::Malformed { what: name.into(), detail });
        }
        Self::parse(&std::fs::read_to_string(path).map_err(MeasureError::io(path))?)
    }

    /// A profile and the name of a mode from `PROFILE` or `PROFILE/MODE`; the path of a profile may
    /// itself contain slashes.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_with_mode(text: &str) -> Result<(Self, Option<&str>), MeasureError> {
        let (profile, mode) = match text.rsplit_once('/') {
            Some((profile, mode)) if !mode.ends_with(".toml") => (profile, Some(mode)),
            _ => (text, None),
        };
        Ok((Self::load(profile)?, mode))
    }

    /// Names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Name of the profile: lower-case letters, digits, dots and hyphens.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Description of the device.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// All power modes, at least one.
    pub fn modes(&self) -> &[Mode] {
        &self.modes
    }

    /// A power mode by name, or the default one.
    ///
    /// # Errors
    /// [`MeasureError::Malformed`] for an unknown name, with the known ones.
    pub fn mode(&self, name: Option<&str>) -> Result<&Mode, MeasureError> {
        let name = name.unwrap_or(&self.default_mode);
        self.modes.iter().find(|m| m.name == name).ok_or_else(|| {
            let known_names: Vec<&str> = self.modes.iter().map(|m| m.name.as_str()).collect();
            self.malformed(format!("no power mode {name:?}; it has {}", known_names.join(", ")))
        })
    }

    /// The profile as TOML text.
    ///
    /// # Errors
    /// [`MeasureError::Malformed`] if the profile cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, MeasureError> {
        toml::to_string(self).map_err(|e| self.malformed(e.to_string()))
    }

    fn malformed(&self, detail: String) -> MeasureError {
        MeasureError::Malformed { what: format!("device profile {:?}", self.name), detail }
    }

    fn check(&self) -> Result<(), MeasureError> {
        if !is_word(&self.name) {
            return Err(self.malformed("a name has 1 to 64 lower-case letters, digits, dots and hyphens".into()));
        }
        for (i, mode) in self.modes.iter().enumerate() {
            if !is_word(&mode.name) || self.modes[..i].iter().any(|m| m.name == mode.name) {
                return Err(self.malformed(format!("mode {:?} is named twice, or not in lower case", mode.name)));
            }
            let numbers = [
                ("base_w", &mode.base_w, 5000.0),
                ("w_per_core", &mode.w_per_core, 500.0),
                ("j_per_byte", &mode.j_per_byte, 1e-3),
            ];
            for (key, coefficient, max_value) in numbers {
                let (name, value) = (&mode.name, coefficient.value);
                if !(0.0..=max_value).contains(&value) {
                    return Err(self.malformed(format!("{key} of mode {name} is {value}, expected 0 to {max_value}")));
                }
                if coefficient.source.trim().is_empty() {
                    return Err(self.malformed(format!("{key} of mode {name} has no source; write \"assumed\"")));
                }
            }
        }
        self.mode(None).map(drop)
    }
}

fn malformed_profile(detail: String) -> MeasureError {
    MeasureError::Malformed { what: "device profile".into(), detail }
}

/// Whether a text can be the name of a device or mode.
fn is_word(s: &str) -> bool {
    !s.is_empty()
        && s.len() <= 64
        && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
}

#[cfg(test)]
mod tests;
