//! Modelled energy for hosts without a sensor: base power x time + watts per core x CPU seconds +
//! joules per byte x bytes.
use super::{Provenance, Rail, Source, SourceInfo, Usage, Value};
use crate::MeterError;
use tacit_measure::device::{DeviceProfile, Mode};

/// The model with the coefficients of a device's power mode. Its rails `base`, `cpu` and `network` add up to
/// the total.
pub struct Model {
    info: SourceInfo,
    base_w: f64,
    w_per_core: f64,
    j_per_byte: f64,
}

impl Model {
    /// The coefficients of `mode` of `profile`; the source's name is `model:PROFILE/MODE`.
    pub fn new(profile: &DeviceProfile, mode: &Mode) -> Self {
        let rails = ["base", "cpu", "network"].map(Rail::counted);
        let info = SourceInfo {
            name: format!("model:{}/{}", profile.name(), mode.name),
            provenance: Provenance::Modelled,
            rails: rails.into(),
            min_interval_ms: 1,
        };
        let (base_w, w_per_core) = (mode.base_w.value, mode.w_per_core.value);
        Self { info, base_w, w_per_core, j_per_byte: mode.j_per_byte.value }
    }
}

impl Source for Model {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read(&mut self, usage: &Usage) -> Result<Vec<Value>, MeterError> {
        let joules = [
            self.base_w * usage.elapsed.as_secs_f64(),
            self.w_per_core * usage.cpu_s.max(0.0),
            self.j_per_byte * usage.bytes as f64,
        ];
        Ok(joules.map(Value::Joules).into())
    }
}
