//! INA3221 rails by the older NVIDIA driver (JetPack 4 and before):
//! `/sys/bus/i2c/drivers/ina3221x/*/iio:device*/in_power*_input` in milliwatts, named by `rail_name_*`. The
//! newer driver is an hwmon chip, see [`super::hwmon`].
use super::detected::Detected;
use super::sysfs::{Reading, SysfsSource, explain};
use super::tree::Tree;
use super::{SourceInfo, rails};
use std::sync::Arc;

const FOLDER: &str = "/sys/bus/i2c/drivers/ina3221x";
/// The driver averages over a fixed window of a few milliseconds and does not report it.
const MIN_INTERVAL_MS: u32 = 10;

/// All rails of all chips as one source; `None` without the driver.
pub(crate) fn detect(tree: &Arc<dyn Tree>) -> Option<Detected> {
    let (mut names, mut readings) = (Vec::new(), Vec::new());
    for chip in tree.list(FOLDER).ok()? {
        for device in tree.list(&format!("{FOLDER}/{chip}")).unwrap_or_default() {
            if !device.starts_with("iio:device") {
                continue;
            }
            let folder = format!("{FOLDER}/{chip}/{device}");
            for channel in 0..3 {
                let path = format!("{folder}/in_power{channel}_input");
                let name = tree.read(&format!("{folder}/rail_name_{channel}")).unwrap_or_default();
                let is_absent = || tree.read(&path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
                if name.is_empty() || name == "NC" || is_absent() {
                    continue;
                }
                names.push(name);
                readings.push(Reading::Power { path, per_watt: 1e3 });
            }
        }
    }
    if names.is_empty() {
        return None;
    }
    let info = SourceInfo::measured("ina3221", rails::count(names), MIN_INTERVAL_MS);
    Some(Detected::probe(FOLDER, Box::new(SysfsSource::new(info, tree.clone(), readings, explain))))
}
