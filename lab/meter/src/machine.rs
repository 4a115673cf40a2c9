//! Facts about the machine, for the header of a record: figures need them for comparison.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tacit_measure::usage::Roots;

const MAX_CORES: usize = 4096;

/// Facts from the machine, plus `extra` (versions of this program and its compiler) unchanged.
/// Unavailable facts are absent.
///
/// Keys: `cpu`, `cores`, `architecture`, `governor`, `min_mhz`, `max_mhz` (one value, or all
/// distinct values), `turbo`, `kernel`, `hostname`, `memory_bytes`, `board` (Raspberry Pi, Jetson),
/// `hypervisor` (`yes` or `no`), `load_1min`, `temperature_c` (hottest zone now).
#[must_use]
pub fn facts(roots: &Roots, extra: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut facts = extra.clone();
    let mut insert_fact = |key: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            facts.insert(key.to_owned(), value);
        }
    };
    let cpuinfo = fs::read_to_string(roots.proc.join("cpuinfo")).unwrap_or_default();
    insert_fact(
        "cpu",
        field(&cpuinfo, "model name")
            .or_else(|| field(&cpuinfo, "Hardware"))
            .or_else(|| field(&cpuinfo, "CPU part").map(|p| format!("CPU part {p}"))),
    );
    let cores = count_cores(&roots.proc);
    insert_fact("cores", (cores > 0).then(|| cores.to_string()));
    insert_fact("architecture", Some(std::env::consts::ARCH.to_owned()));
    if let Some(flags) = field(&cpuinfo, "flags") {
        let virtual_machine = flags.split_ascii_whitespace().any(|f| f == "hypervisor");
        insert_fact("hypervisor", Some(if virtual_machine { "yes" } else { "no" }.to_owned()));
    }
    let cpus = roots.sys.join("devices/system/cpu");
    insert_fact("governor", distinct(&cpus, cores, "cpufreq/scaling_governor", |v| Some(v.to_owned())));
    insert_fact("min_mhz", distinct(&cpus, cores, "cpufreq/scaling_min_freq", mhz));
    insert_fact("max_mhz", distinct(&cpus, cores, "cpufreq/scaling_max_freq", mhz));
    let turbo = line(&cpus.join("intel_pstate/no_turbo")).map(|v| v == "0");
    let turbo = turbo.or_else(|| line(&cpus.join("cpufreq/boost")).map(|v| v == "1"));
    insert_fact("turbo", turbo.map(|is_on| if is_on { "on" } else { "off" }.to_owned()));
    insert_fact("kernel", line(&roots.proc.join("sys/kernel/osrelease")));
    insert_fact("hostname", line(&roots.proc.join("sys/kernel/hostname")));
    insert_fact("board", line(&roots.proc.join("device-tree/model")).map(|m| m.trim_end_matches('\0').to_owned()));
    insert_fact("memory_bytes", memory_bytes(&roots.proc).map(|b| b.to_string()));
    insert_fact("load_1min", line(&roots.proc.join("loadavg")).and_then(|l| Some(l.split(' ').next()?.to_owned())));
    insert_fact("temperature_c", hottest(&roots.sys.join("class/thermal")).map(|t| format!("{t:.1}")));
    facts
}

fn field(cpuinfo: &str, name: &str) -> Option<String> {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn mhz(khz: &str) -> Option<String> {
    khz.parse::<u64>().ok().map(|k| (k / 1000).to_string())
}

fn line(path: &Path) -> Option<String> {
    let text = fs::read(path).ok().filter(|t| t.len() <= 1 << 16)?;
    Some(String::from_utf8_lossy(&text).lines().next()?.trim().to_owned())
}

fn count_cores(proc: &Path) -> usize {
    let stat = fs::read_to_string(proc.join("stat")).unwrap_or_default();
    let cores = stat.lines().filter_map(|l| l.strip_prefix("cpu"));
    cores.filter(|suffix| suffix.starts_with(|c: char| c.is_ascii_digit())).count().min(MAX_CORES)
}

/// A setting of all cores: its distinct values, sorted and separated by `/`.
fn distinct(cpus: &Path, cores: usize, file: &str, read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let values = (0..cores).filter_map(|n| read(&line(&cpus.join(format!("cpu{n}")).join(file))?));
    let mut values: Vec<String> = values.collect();
    values.sort();
    values.dedup();
    (!values.is_empty()).then(|| values.join("/"))
}

fn memory_bytes(proc: &Path) -> Option<u64> {
    let text = fs::read_to_string(proc.join("meminfo")).ok()?;
    let total = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Degrees Celsius of the hottest thermal zone.
fn hottest(thermal: &Path) -> Option<f64> {
    let zones = fs::read_dir(thermal).ok()?.flatten();
    let degrees = zones.filter_map(|z| line(&z.path().join("temp"))?.parse::<f64>().ok().map(|milli| milli / 1e3));
    degrees.filter(|t| (-50.0..200.0).contains(t)).reduce(tacit_floats::larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn reads_facts_of_board() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots { proc: folder.path().join("proc"), sys: folder.path().join("sys") };
        put(&roots.proc, "cpuinfo", "processor\t: 0\nBogoMIPS\t: 38.40\nCPU part\t: 0xd03\nHardware\t: BCM2835\n");
        put(&roots.proc, "stat", "cpu  1 2 3 4\ncpu0 1 2 3 4\ncpu1 1 2 3 4\nintr 5\n");
        put(&roots.proc, "device-tree/model", "Raspberry Pi 3 Model B Rev 1.2\0");
        put(&roots.proc, "meminfo", "MemTotal:         948304 kB\nMemFree: 1 kB\n");
        put(&roots.proc, "loadavg", "0.52 0.58 0.59 1/700 1234\n");
        put(&roots.proc, "sys/kernel/osrelease", "6.1.21-v7+\n");
        for (core, governor) in [("cpu0", "ondemand"), ("cpu1", "performance")] {
            put(&roots.sys, &format!("devices/system/cpu/{core}/cpufreq/scaling_governor"), governor);
            put(&roots.sys, &format!("devices/system/cpu/{core}/cpufreq/scaling_max_freq"), "1200000\n");
        }
        put(&roots.sys, "devices/system/cpu/cpufreq/boost", "0\n");
        put(&roots.sys, "class/thermal/thermal_zone0/temp", "48312\n");
        put(&roots.sys, "class/thermal/thermal_zone1/temp", "-273000\n");
        let extra = BTreeMap::from([("tacit".to_owned(), "0.1.0".to_owned())]);
        let facts = facts(&roots, &extra);
        let expected = [
            ("cpu", "BCM2835"),
            ("cores", "2"),
            ("board", "Raspberry Pi 3 Model B Rev 1.2"),
            ("governor", "ondemand/performance"),
            ("max_mhz", "1200"),
            ("turbo", "off"),
            ("memory_bytes", "971063296"),
            ("load_1min", "0.52"),
            ("kernel", "6.1.21-v7+"),
            ("temperature_c", "48.3"),
            ("tacit", "0.1.0"),
        ];
        for (key, value) in expected {
            assert_eq!(facts.get(key).map(String::as_str), Some(value), "{key}");
        }
        assert!(["hypervisor", "min_mhz", "hostname"].iter().all(|key| !facts.contains_key(*key)), "{facts:?}");
    }

    #[test]
    fn reads_facts_of_this_and_empty_machine() {
        let facts_here = facts(&Roots::default(), &BTreeMap::new());
        assert!(facts_here.contains_key("kernel"));
        assert!(facts_here["cores"].parse::<usize>().unwrap() >= 1);
        assert!(facts_here["memory_bytes"].parse::<u64>().unwrap() > 1 << 20);
        let empty_roots = Roots { proc: "/nonexistent".into(), sys: "/nonexistent".into() };
        assert_eq!(facts(&empty_roots, &BTreeMap::new()).len(), 1, "the architecture");
    }
}
