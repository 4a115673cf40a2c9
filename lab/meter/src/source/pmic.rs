//! The Raspberry Pi 5's power management chip, read by `vcgencmd pmic_read_adc`.
//!
//! The chip reports volts and amperes of the rails after the board's converters: their sum lacks the
//! converters' losses and the devices on USB and the pins. Use it for comparisons, and an external
//! meter for absolute figures.
use super::poll::{Polled, Reader};
use super::sysfs::shorten;
use super::{Rail, Source, SourceInfo, Value};
use crate::MeterError;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

const NAME: &str = "pmic";
const INTERVAL_MS: u32 = 1000;
const REMEDY: &str = "only a Raspberry Pi 5 has this sensor; try `vcgencmd pmic_read_adc`, and join group video";

/// Volts times amperes of every rail that has both: `VDD_CORE_A current(7)=2.1A` and
/// `VDD_CORE_V volt(15)=0.88V`.
///
/// # Errors
/// [`MeterError::malformed`] if no rail has both.
pub fn parse(text: &str) -> Result<Vec<(String, f64)>, MeterError> {
    let mut rails: BTreeMap<&str, [Option<f64>; 2]> = BTreeMap::new();
    for line in text.lines() {
        let Some((name, number)) = line.split_once('=') else { continue };
        let name = name.split_whitespace().next().unwrap_or_default();
        let (rail, quantity, unit) = match (name.strip_suffix("_V"), name.strip_suffix("_A")) {
            (Some(rail), _) => (rail, 0, 'V'),
            (_, Some(rail)) => (rail, 1, 'A'),
            _ => continue,
        };
        let number = number.trim().strip_suffix(unit).and_then(|n| n.parse::<f64>().ok());
        rails.entry(rail).or_default()[quantity] = number.filter(|n| (0.0..=100.0).contains(n));
    }
    let rail_watts =
        rails.iter().filter_map(|(rail, [volt, ampere])| Some(((*rail).to_string(), (*volt)? * (*ampere)?)));
    let watts: Vec<(String, f64)> = rail_watts.collect();
    if watts.is_empty() {
        let detail = format!("no rail with volts and amperes in {:?}", shorten(text));
        return Err(MeterError::malformed("vcgencmd pmic_read_adc", detail));
    }
    Ok(watts)
}

fn ask(program: &Path) -> Result<Vec<(String, f64)>, MeterError> {
    let mut command = Command::new(program);
    command.arg("pmic_read_adc").stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().map_err(MeterError::io(program))?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// A polled source.
///
/// # Errors
/// [`MeterError`] if the program does not run or reports no rails.
pub fn open(program: &Path) -> Result<Box<dyn Source>, MeterError> {
    let first = ask(program)?;
    let rails: Vec<Rail> = first.iter().map(|(name, _)| Rail::counted(name)).collect();
    let info = SourceInfo::measured(NAME, rails.clone(), INTERVAL_MS);
    let now = values(&first, &rails);
    let program = program.to_path_buf();
    let reader: Reader = Box::new(move || Ok(values(&ask(&program)?, &rails)));
    Ok(Box::new(Polled::start(info, REMEDY, now, reader)))
}

/// The found values in the order of the rails.
fn values(readings: &[(String, f64)], rails: &[Rail]) -> Vec<Value> {
    let values = rails.iter().map(|rail| {
        let of_rail = readings.iter().find(|(name, _)| *name == rail.name);
        of_rail.map_or(Value::Missing, |(_, watts)| Value::Watts(*watts))
    });
    values.collect()
}
