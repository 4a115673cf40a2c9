//! What sensors, meters and recorded traces give the meter.

use std::sync::Arc;
use std::time::Duration;

use tacit_measure::device::DeviceProfile;
use tacit_meter::source::http::{Field, parse_body};
use tacit_meter::source::mlperf::{EnergyTrace, parse_timestamps};
use tacit_meter::source::replay;
use tacit_meter::source::trace::Trace;
use tacit_meter::source::{Detected, MemoryTree, Roots, Usage, Value, csv, detect, pmic, tegrastats};

/// More rails or samples than this take honest time only.
const MAX_BYTES: usize = 1 << 16;

/// Whatever a trace holds, its energy never falls and is finite.
fn check_trace(trace: &Trace) {
    let mut before: Vec<f64> = vec![0.0; trace.rails().len()];
    for i in 0..=16 {
        let Some(joules) = trace.joules_at(trace.duration_s() * f64::from(i) / 16.0) else {
            continue;
        };
        assert_eq!(joules.len(), before.len());
        let rises = joules.iter().zip(&before).all(|(now, then)| *now >= then - 1e-6 * then.abs());
        assert!(rises, "{before:?} to {joules:?}");
        before = joules;
    }
}

/// A recorded tegrastats log.
pub(crate) fn tegrastats_log(data: &[u8]) {
    let text = String::from_utf8_lossy(&data[..data.len().min(MAX_BYTES)]);
    for (name, watts) in text.lines().flat_map(tegrastats::parse_line) {
        assert!(!name.is_empty() && (0.0..1e7).contains(&watts));
    }
    if let Ok(trace) = tegrastats::parse_log(&text, 1.0) {
        check_trace(&trace);
    }
}

pub(crate) fn tegrastats_seeds() -> Vec<Vec<u8>> {
    let nano = "RAM 936/3964MB (lfb 366x4MB) IRAM 0/252kB(lfb 252kB) CPU [10%@102,off] GR3D_FREQ 0%@76 POM_5V_IN 920/920 POM_5V_GPU 0/0\n";
    let orin = "07-21-2025 16:33:42 RAM 1/2MB tj@43.906C VDD_GPU_SOC 2798mW/2798mW VIN_SYS_5V0 3315mW/3315mW\n";
    let terminal = "nvidia@linux:~$ sudo tegrastats\n[sudo] password for nvidia:\nRAM 1/2MB VDD_IN 3566/3566\n";
    [nano.repeat(3), orin.repeat(2), terminal.into()].map(String::into_bytes).into()
}

/// Sensor files by hwmon and RAPL: one line a value, each value read by two sources at two times.
pub(crate) fn sensor_files(data: &[u8]) {
    const FILES: [&str; 12] = [
        "/sys/class/hwmon/hwmon0/name",
        "/sys/class/hwmon/hwmon0/power1_input",
        "/sys/class/hwmon/hwmon0/power1_label",
        "/sys/class/hwmon/hwmon0/in2_input",
        "/sys/class/hwmon/hwmon0/curr2_input",
        "/sys/class/hwmon/hwmon0/energy3_input",
        "/sys/class/hwmon/hwmon0/update_interval",
        "/sys/class/powercap/intel-rapl:0/name",
        "/sys/class/powercap/intel-rapl:0/energy_uj",
        "/sys/class/powercap/intel-rapl:0/max_energy_range_uj",
        "/sys/bus/i2c/drivers/ina3221x/0-0040/iio:device0/rail_name_0",
        "/sys/bus/i2c/drivers/ina3221x/0-0040/iio:device0/in_power0_input",
    ];
    let text = String::from_utf8_lossy(&data[..data.len().min(MAX_BYTES)]);
    let tree = Arc::new(MemoryTree::default());
    let mut lines = text.lines();
    FILES.iter().zip(&mut lines).for_each(|(file, line)| tree.write(file, line));
    let found = detect(&Roots::files(tree.clone())).into_iter().filter(Detected::is_usable);
    let mut sources: Vec<_> = found.filter_map(|d| d.into_source().ok()).collect();
    for time in 0..4 {
        let usage = Usage { elapsed: Duration::from_millis(time), ..Usage::default() };
        for source in &mut sources {
            let Ok(values) = source.read(&usage) else {
                continue;
            };
            assert_eq!(values.len(), source.info().rails.len());
            for value in values {
                match value {
                    Value::Watts(watts) => assert!(watts.abs() <= 5000.0),
                    Value::Joules(joules) => {
                        assert!((0.0..1e6).contains(&joules), "{joules} J within a few milliseconds")
                    }
                    Value::Missing => {}
                }
            }
        }
        FILES.iter().zip(&mut lines).for_each(|(file, line)| tree.write(file, line));
    }
}

pub(crate) fn sensor_seeds() -> Vec<Vec<u8>> {
    let first = "ina226\n3075000\nVDD_IN\n5040\n612\n1000\n35\npackage-0\n262143328840\n262143328850\nVDD_IN\n3566\n";
    let wrap = "ina226\n3075000\nVDD_IN\n5040\n-612\n2000\n35\npackage-0\n10\n262143328850\nVDD_IN\n3566 mW\n";
    [format!("{first}{wrap}"), first.replace("ina226", "ina3221"), first.replace("package-0", "psys")]
        .map(String::into_bytes)
        .into()
}

/// An `mlperf_tiny` energy trace, and its time stamps.
pub(crate) fn mlperf_trace(data: &[u8]) {
    if let Ok(trace) = EnergyTrace::parse(data) {
        let all = trace.joules_between(0.0, f64::INFINITY);
        assert!(all.is_finite() && all >= trace.joules_between(0.001, 1.0));
        if trace.samples() < MAX_BYTES {
            check_trace(&trace.trace().expect("a trace that was read"));
        }
    }
    if let Ok(times) = parse_timestamps(&String::from_utf8_lossy(data)) {
        assert!(times.is_sorted());
    }
}

pub(crate) fn mlperf_seeds() -> Vec<Vec<u8>> {
    let samples = [1000.0_f32, 37.0, 46.3, 53.9, 0.0];
    let trace = std::iter::once(0xF1).chain(samples.iter().flat_map(|s| s.to_le_bytes())).collect();
    vec![trace, b"[0.013, 9.063, 21.971]".to_vec()]
}

/// A file that a user gives for replay: a trace of any kind.
pub(crate) fn meter_csv(data: &[u8]) {
    let data = &data[..data.len().min(MAX_BYTES)];
    if let Ok(trace) = replay::parse(data, 0.5) {
        check_trace(&trace);
    }
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    if let Ok(format) = csv::Format::parse(lines.next().unwrap_or_default()) {
        for (time, value) in lines.filter_map(|line| format.row(line).ok()?) {
            assert!(time.is_finite() && value.is_finite());
        }
    }
}

pub(crate) fn csv_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "time_s,watts\n0,3.2\n1,3.4\n# x\n\n2,1e1\n",
        "Time_s;Volts;joules\n0,5;5;1,5\n1,5;5;2,5\n",
        "\u{feff}\"watts\",\"time_s\"\n1,2\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// A meter's answer over HTTP after a line that names the number; and the answer of `vcgencmd pmic_read_adc`.
pub(crate) fn meter_answer(data: &[u8]) {
    let text = String::from_utf8_lossy(&data[..data.len().min(MAX_BYTES)]);
    let (field, body) = text.split_once('\n').unwrap_or(("", &text));
    for value in [parse_body(body, None), parse_body(body, Field::parse(field).ok().as_ref())].into_iter().flatten() {
        assert!(matches!(value, Value::Watts(x) | Value::Joules(x) if x.is_finite()));
    }
    if let Ok(rails) = pmic::parse(&text) {
        assert!(rails.iter().all(|(name, watts)| !name.is_empty() || (0.0..=1e4).contains(watts)));
    }
}

pub(crate) fn answer_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "watts=/apower\n{\"id\": 0, \"apower\": 8.9, \"watts\": \"3\"}",
        "kwh=/StatusSNS/ENERGY/Total\n{\"StatusSNS\": {\"ENERGY\": {\"Total\": 1.5}}, \"joules\": 12}",
        "3V3_SYS_A current(1)=0.5A\n3V3_SYS_V volt(9)=3.3V\nEXT5V_V volt(24)=5.1V\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// A device profile.
pub(crate) fn device_profile(data: &[u8]) {
    let Ok(profile) = DeviceProfile::parse(&String::from_utf8_lossy(data)) else {
        return;
    };
    profile.mode(None).expect("the default mode was checked");
    let text = profile.to_toml().expect("what was read can be written");
    assert_eq!(DeviceProfile::parse(&text).expect("and read again"), profile);
}

pub(crate) fn profile_seeds() -> Vec<Vec<u8>> {
    let profiles =
        ["raspberry-pi-4b", "jetson-nano"].map(|name| DeviceProfile::load(name).expect("a built-in profile"));
    profiles.map(|p| p.to_toml().expect("TOML").into_bytes()).into()
}
