//! NVIDIA graphics cards by NVML, loaded at run time. It measures only the cards, not the host.
use super::counter::Counter;
use super::detected::Detected;
use super::{Rail, Source, SourceInfo, Usage, Value};
use crate::MeterError;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::time::{Duration, Instant};

const NAME: &str = "nvml";
/// The driver refreshes power and energy every 20 to 100 ms, depending on the card.
const MIN_INTERVAL_MS: u32 = 100;

/// All cards: the energy counter (Volta and later), otherwise power.
pub(crate) struct Cards {
    info: SourceInfo,
    nvml: Nvml,
    counters: Vec<Counter>,
    last: Option<Instant>,
}

fn failure(error: &NvmlError) -> MeterError {
    let remedy = match error {
        NvmlError::LibloadingError(_) => "install the NVIDIA driver, if there is a card".to_string(),
        NvmlError::NoPermission => "run as root".to_string(),
        _ => "try nvidia-smi".to_string(),
    };
    MeterError::Source { name: NAME.into(), reason: error.to_string(), remedy }
}

impl Cards {
    fn open() -> Result<Self, MeterError> {
        let nvml = Nvml::init().map_err(|e| failure(&e))?;
        let count = nvml.device_count().map_err(|e| failure(&e))?;
        let mut rails = Vec::new();
        for index in 0..count {
            let name = nvml.device_by_index(index).and_then(|card| card.name()).map_err(|e| failure(&e))?;
            rails.push(Rail::counted(format!("gpu{index} {name}")));
        }
        let info = SourceInfo::measured(NAME, rails, MIN_INTERVAL_MS);
        // In millijoules.
        let counters = vec![Counter::new(1e-3, None); info.rails.len()];
        let mut cards = Self { info, nvml, counters, last: None };
        cards.read(&Usage::default())?;
        Ok(cards)
    }

    fn card(&mut self, index: usize, passed: Duration) -> Result<Value, NvmlError> {
        let number = u32::try_from(index).map_err(|_| NvmlError::InvalidArg)?;
        let card = self.nvml.device_by_index(number)?;
        match card.total_energy_consumption() {
            // A counter that decreased (reloaded driver) continues from there.
            Ok(millijoules) => {
                Ok(self.counters[index].advance(millijoules, passed).map_or(Value::Missing, Value::Joules))
            }
            Err(NvmlError::NotSupported) => Ok(Value::Watts(f64::from(card.power_usage()?) * 1e-3)),
            Err(error) => Err(error),
        }
    }
}

impl Source for Cards {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read(&mut self, _: &Usage) -> Result<Vec<Value>, MeterError> {
        let now = Instant::now();
        let passed = self.last.replace(now).map_or(Duration::ZERO, |last| now.duration_since(last));
        let (mut values, mut error) = (Vec::new(), None);
        for index in 0..self.counters.len() {
            values.push(self.card(index, passed).unwrap_or_else(|e| {
                error = Some(e);
                Value::Missing
            }));
        }
        match error {
            Some(error) if values.iter().all(|v| *v == Value::Missing) => Err(failure(&error)),
            _ => Ok(values),
        }
    }
}

pub(crate) fn detect() -> Detected {
    match Cards::open() {
        Ok(cards) if !cards.counters.is_empty() => {
            Detected::usable("libnvidia-ml.so", Box::new(cards)).note("sees the graphics cards only, not the host")
        }
        Ok(_) => Detected::unusable(NAME, "libnvidia-ml.so", "there is no card".into(), "nothing to do".into()),
        Err(error) => Detected::from_error(NAME, "libnvidia-ml.so", error),
    }
}
