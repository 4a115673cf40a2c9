//! Modelled energy cost of answers on this machine; nothing is measured.
use serde_json::{Value, json};
use tacit_client::measure::Figures;
use tacit_measure::MeasureError;
use tacit_measure::device::{Coefficient, DeviceProfile};

/// A device in one power mode, as its profile describes it.
#[derive(Clone, Debug)]
pub struct EnergyModel {
    device: String,
    w_per_core: Coefficient,
    j_per_byte: Coefficient,
}

impl EnergyModel {
    /// Loads a device profile: the name of a built-in one or a file, with `/MODE` if it is not the
    /// default mode.
    ///
    /// # Errors
    /// There is no such profile or mode, or the file is invalid.
    pub fn load(text: &str) -> Result<Self, MeasureError> {
        let (profile, mode) = DeviceProfile::load_with_mode(text)?;
        let mode = profile.mode(mode)?;
        let device = format!("{} ({})", profile.description(), mode.name);
        Ok(Self { device, w_per_core: mode.w_per_core.clone(), j_per_byte: mode.j_per_byte.clone() })
    }

    /// Joules above idle that a phase costs this machine: processor seconds and bytes in both
    /// directions, each times its coefficient.
    #[must_use]
    pub fn joules(&self, figures: &Figures) -> f64 {
        let bytes = figures.sent_bytes.saturating_add(figures.received_bytes);
        self.w_per_core.value * figures.cpu_s + self.j_per_byte.value * bytes as f64
    }

    pub(crate) fn describe(&self) -> Value {
        json!({
            "provenance": "modelled",
            "device": self.device,
            "coefficients": [
                describe_coefficient("a busy core", "W", &self.w_per_core),
                describe_coefficient("a byte", "J", &self.j_per_byte),
            ],
        })
    }
}

fn describe_coefficient(activity: &str, unit: &str, coefficient: &Coefficient) -> Value {
    let Coefficient { value, source, .. } = coefficient;
    json!({ "what": activity, "value": value, "unit": unit, "source": source, "assumed": coefficient.is_assumed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_joules_from_cpu_time_and_bytes() {
        let model = EnergyModel::load("raspberry-pi-4b").unwrap();
        let figures = Figures { cpu_s: 2.0, sent_bytes: 6_000_000, received_bytes: 4_000_000, ..Figures::default() };
        assert!((model.joules(&figures) - (2.0 * 0.925 + 1e7 * 1e-8)).abs() < 1e-12);
        assert_eq!(model.joules(&Figures::default()), 0.0);
        let description = model.describe();
        assert_eq!(
            (&description["provenance"], &description["coefficients"][1]["assumed"]),
            (&json!("modelled"), &json!(true))
        );
        assert!(EnergyModel::load("jetson-nano/5w").is_ok());
        assert!(EnergyModel::load("abacus").is_err());
        assert!(EnergyModel::load("raspberry-pi-4b/ludicrous").is_err());
    }
}
