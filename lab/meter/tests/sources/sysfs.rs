//! hwmon, INA3221 and RAPL.
use crate::{close, counted_rails, find_source, hwmon, message, refusal, total, tree_of, usable, usage_at};
use std::io::ErrorKind;
use std::sync::Arc;
use tacit_meter::source::{Detected, Disk, MemoryTree, Provenance, Roots, Value, detect, open};

const POWER: &str = "/sys/class/hwmon/hwmon0/power1_input";
const ENERGY: &str = "/sys/class/powercap/intel-rapl:0/energy_uj";

fn ina226() -> (Arc<MemoryTree>, Roots) {
    let files = [
        ("in0_input", "3\n"),
        ("in1_input", "5040\n"),
        ("curr1_input", "612\n"),
        ("power1_input", "3075000\n"),
        ("update_interval", "35\n"),
    ];
    tree_of(&hwmon(0, "ina226\n", files))
}

#[test]
fn prefers_hwmon_power_to_product() {
    let (tree, roots) = ina226();
    let mut source = usable(&roots, "hwmon:ina226");
    assert_eq!((source.info().min_interval_ms, source.info().provenance), (35, Provenance::Measured));
    assert_eq!(source.info().rails.len(), 1);
    assert_eq!(source.read(&usage_at(0.0)).unwrap(), [Value::Watts(3.075)]);
    tree.remove(POWER);
    let mut source = usable(&roots, "hwmon:ina226");
    assert!(close(total(&mut *source, &usage_at(0.0)), 5.04 * 0.612));
}

#[test]
fn reads_hwmon_names_averages_and_energy() {
    let energy = [
        ("energy1_input", "1000000"),
        ("energy1_label", "Ecore000"),
        ("energy2_input", "9000000"),
        ("energy2_label", "Esocket0"),
    ];
    let chips = [
        hwmon(0, "power_meter", [("power1_average", "151000000"), ("power1_average_interval", "1000")]),
        hwmon(1, "amd_energy", energy),
        hwmon(3, "amdgpu", [("power1_average", "30000000")]),
        hwmon(4, "power_meter", [("power1_average", "1")]),
        hwmon(5, "nvme", [("temp1_input", "43850")]),
    ];
    let (_, roots) = tree_of(&chips.concat());
    let meter = usable(&roots, "hwmon:power_meter");
    assert_eq!(meter.info().min_interval_ms, 1000);
    assert_eq!(meter.info().rails[0].name, "power1");
    assert_eq!(counted_rails(&*usable(&roots, "hwmon:amd_energy")), ["Esocket0"]);
    assert!(find_source(&roots, "hwmon:power_meter.2").is_usable());
    assert!(find_source(&roots, "hwmon:amdgpu").notes[0].contains("component"));
    let names: Vec<String> = detect(&roots).into_iter().map(|d| d.name).collect();
    let place = |name: &str| names.iter().position(|n| n == name).unwrap();
    assert!(place("hwmon:amdgpu") > place("rapl"));
    assert!(!names.iter().any(|n| n.contains("nvme")));
}

#[test]
fn names_reason_without_sensors() {
    let (_, roots) = tree_of(&hwmon(0, "coretemp", [("temp1_input", "4")]));
    assert!(refusal(&roots, "hwmon").0.contains("coretemp"));
    assert!(refusal(&roots, "rapl").0.contains("no RAPL zones"));
    assert!(detect(&roots).iter().all(|d| !d.is_usable()));
    let text = message(open("ina3221", &roots));
    assert!(text.contains("no such source"), "{text}");
    assert!(text.contains("model:PROFILE"), "{text}");
    assert!(message(open("rapl", &roots)).contains("modprobe"));
}

#[test]
fn rejects_vanished_and_invalid_hwmon_files() {
    let (tree, roots) = ina226();
    let mut source = open("hwmon", &roots).unwrap();
    tree.remove(POWER);
    assert!(message(source.read(&usage_at(1.0))).contains("device is gone"));
    for nonsense in ["", "abc", "1.5", "99999999999999999999999", "9000000000000"] {
        tree.write(POWER, nonsense);
        assert!(source.read(&usage_at(2.0)).is_err(), "{nonsense:?}");
    }
    tree.write(POWER, "1000000\n");
    assert_eq!(source.read(&usage_at(3.0)).unwrap(), [Value::Watts(1.0)]);
}

#[test]
fn chip_for_root_is_unusable() {
    let (tree, roots) = tree_of(&hwmon(0, "amd_energy", []));
    tree.forbid("/sys/class/hwmon/hwmon0/energy1_input", ErrorKind::PermissionDenied);
    let (_, remedy) = refusal(&roots, "hwmon:amd_energy");
    assert!(remedy.contains("chmod a+r /sys/class/hwmon/hwmon0/energy1_input"), "{remedy}");
}

#[test]
fn vanished_rail_is_missing() {
    let (tree, roots) = tree_of(&hwmon(0, "ltc2947", [("power1_input", "1000000"), ("power2_input", "2000000")]));
    let mut source = usable(&roots, "hwmon:ltc2947");
    tree.forbid(POWER, ErrorKind::Other);
    assert_eq!(source.read(&usage_at(1.0)).unwrap(), [Value::Missing, Value::Watts(2.0)]);
    tree.write(POWER, 3_000_000);
    assert_eq!(source.read(&usage_at(2.0)).unwrap(), [Value::Watts(3.0), Value::Watts(2.0)]);
}

#[test]
fn reports_restarted_energy_counter() {
    let energy = "/sys/class/hwmon/hwmon0/energy1_input";
    let (tree, roots) = tree_of(&hwmon(0, "ltc2947", [("energy1_input", "50000000")]));
    let mut source = usable(&roots, "hwmon:ltc2947");
    assert_eq!(total(&mut *source, &usage_at(0.0)), 0.0);
    tree.write(energy, 53_000_000);
    assert!(close(total(&mut *source, &usage_at(1.0)), 3.0));
    tree.write(energy, 1_000_000);
    assert!(message(source.read(&usage_at(2.0))).contains("went back"));
    tree.write(energy, 2_000_000);
    assert!(close(total(&mut *source, &usage_at(3.0)), 4.0), "the jump does not count");
}

/// An Orin Nano: one chip, three rails, and channel numbers without a rail.
#[test]
fn reads_ina3221_by_hwmon() {
    let mut files = hwmon(
        1,
        "ina3221",
        [("in4_input", "5"), ("curr4_input", "1576"), ("in7_input", "9"), ("in7_label", "sum of shunt voltages")],
    );
    let folder = "/sys/class/hwmon/hwmon1";
    for (n, label, mv, ma) in [(1, "VDD_IN", 4960, 1120), (2, "VDD_CPU_GPU_CV", 4952, 208), (3, "VDD_SOC", 4952, 248)] {
        files.push((format!("{folder}/in{n}_label"), label.into()));
        files.push((format!("{folder}/in{n}_input"), mv.to_string()));
        files.push((format!("{folder}/curr{n}_input"), ma.to_string()));
    }
    let (_, roots) = tree_of(&files);
    let mut source = usable(&roots, "ina3221");
    assert_eq!(source.info().rails.len(), 3);
    assert_eq!(counted_rails(&*source), ["VDD_IN"]);
    assert!(close(total(&mut *source, &usage_at(0.0)), 4.960 * 1.120));
}

/// A TX2 with JetPack 4: four chips in the older driver's folders.
#[test]
fn reads_ina3221_by_older_driver() {
    let driver = "/sys/bus/i2c/drivers/ina3221x";
    let rails = [
        ("0-0040/iio:device0", ["VDD_SYS_GPU", "VDD_SYS_SOC", "VDD_4V0_WIFI"], [192, 529, 38]),
        ("0-0041/iio:device1", ["VDD_IN", "VDD_SYS_CPU", "VDD_SYS_DDR"], [3566, 1156, 902]),
        ("0-0043/iio:device3", ["NC", "VDD_1V8_IO", "VDD_M2_IN"], [0, 0, 0]),
    ];
    let mut files = vec![(format!("{driver}/uevent"), String::new())];
    for (chip, names, milliwatts) in rails {
        for channel in 0..3 {
            files.push((format!("{driver}/{chip}/rail_name_{channel}"), names[channel].into()));
            files.push((format!("{driver}/{chip}/in_power{channel}_input"), milliwatts[channel].to_string()));
        }
    }
    let (tree, roots) = tree_of(&files);
    let mut source = usable(&roots, "ina3221");
    assert_eq!(source.info().rails.len(), 8, "NC is no rail");
    assert_eq!(counted_rails(&*source), ["VDD_IN"]);
    assert!(close(total(&mut *source, &usage_at(0.0)), 3.566));
    tree.write(&format!("{driver}/0-0041/iio:device1/in_power0_input"), "3700 mW");
    // A unit behind the number is passed over.
    assert!(close(total(&mut *source, &usage_at(1.0)), 3.7));
}

fn zone(id: &str, name: &str, energy: u64) -> Vec<(String, String)> {
    let folder = format!("/sys/class/powercap/{id}");
    let files =
        [("name", name.to_string()), ("energy_uj", energy.to_string()), ("max_energy_range_uj", RANGE.to_string())];
    files.into_iter().map(|(file, text)| (format!("{folder}/{file}"), text)).collect()
}

const RANGE: u64 = 262_143_328_850;

fn rapl(zones: &[(&str, &str, u64)]) -> Vec<(String, String)> {
    let mut files: Vec<_> = zones.iter().flat_map(|(id, name, energy)| zone(id, name, *energy)).collect();
    files.push(("/sys/class/powercap/intel-rapl/enabled".into(), "1".into()));
    files
}

const SERVER: [(&str, &str, u64); 8] = [
    ("intel-rapl:0", "package-0", RANGE - 4_000_000),
    ("intel-rapl:0:0", "core", 1),
    ("intel-rapl:0:1", "dram", 100),
    ("intel-rapl:1", "package-1", 200),
    ("intel-rapl:1:0", "dram", 300),
    ("intel-rapl:2", "psys", 400),
    ("intel-rapl-mmio:0", "package-0", 500),
    ("intel-rapl:10", "package-10", 600),
];

#[test]
fn rapl_counts_nothing_twice_and_undoes_wraps() {
    let (tree, roots) = tree_of(&rapl(&SERVER));
    let mut source = usable(&roots, "rapl");
    assert_eq!(source.info().min_interval_ms, 1);
    assert_eq!(counted_rails(&*source), ["package-0", "package-1", "package-10", "package-0/dram", "package-1/dram"]);
    assert!(source.info().rails.iter().any(|r| r.name == "psys" && !r.counted));
    assert_eq!(source.info().rails.len(), 7, "the mmio zone repeats package-0");
    assert_eq!(total(&mut *source, &usage_at(0.0)), 0.0);
    for (zone, microjoules) in [("0", 6_000_000), ("0:1", 1_000_100), ("0:0", 7_000_000), ("2", 90_000_000)] {
        tree.write(&format!("/sys/class/powercap/intel-rapl:{zone}/energy_uj"), microjoules);
    }
    assert!(close(total(&mut *source, &usage_at(1.0)), 11.0), "10 J over the wrap, 1 J of memory");
}

#[test]
fn psys_counts_without_package() {
    for (id, name) in [("intel-rapl:0", "psys"), ("intel-rapl-mmio:0", "package-0")] {
        let (_, roots) = tree_of(&rapl(&[(id, name, 5)]));
        assert_eq!(counted_rails(&*usable(&roots, "rapl")), [name]);
    }
}

#[test]
fn rapl_for_root_names_remedies() {
    let (tree, roots) = tree_of(&rapl(&SERVER));
    tree.forbid("/sys/class/powercap/intel-rapl:1/energy_uj", ErrorKind::PermissionDenied);
    let (reason, remedy) = refusal(&roots, "rapl");
    assert!(reason.contains("root only"), "{reason}");
    for fix in ["chmod a+r", "udev", "setcap cap_dac_read_search"] {
        assert!(remedy.contains(fix), "{remedy}");
    }
}

#[test]
fn rapl_decrease_is_no_wrap() {
    let (tree, roots) = tree_of(&rapl(&[("intel-rapl:0", "package-0", 200_000_000_000)]));
    let mut source = usable(&roots, "rapl");
    assert_eq!(total(&mut *source, &usage_at(0.0)), 0.0);
    tree.write(ENERGY, 1_000_000_000u64);
    let text = message(source.read(&usage_at(1.0)));
    assert!(text.contains("package-0"), "{text}");
    assert!(text.contains("jumped"), "{text}");
    tree.write(ENERGY, 1_002_000_000u64);
    assert!(close(total(&mut *source, &usage_at(2.0)), 2.0));
    tree.remove(ENERGY);
    assert!(message(source.read(&usage_at(3.0))).contains("device is gone"));
    tree.write(ENERGY, 1_009_000_000u64);
    // Energy over a gap counts if the counter went on.
    assert!(close(total(&mut *source, &usage_at(4.0)), 9.0));
}

/// The layout of prometheus/procfs' fixture (`procfs_sysfs.tar.gz`): two packages, hexadecimal numbers, a
/// core subzone; and an NVMe drive without power among the chips.
#[test]
fn detects_layout_of_real_machine() {
    let mut files = rapl(&[
        ("intel-rapl:0", "package-0", 240_422_366_267),
        ("intel-rapl:0:0", "core", 118_821_284_256),
        ("intel-rapl:a", "package-10", 240_422_366_267),
    ]);
    files.push(("/sys/class/powercap/intel-rapl:0:0/constraint_0_max_power_uw".into(), String::new()));
    files.extend(hwmon(3, "nvme", [("temp1_input", "43850")]));
    let (_, roots) = tree_of(&files);
    let usable: Vec<Detected> = detect(&roots).into_iter().filter(Detected::is_usable).collect();
    assert_eq!(usable.len(), 1);
    let source = usable.into_iter().next().unwrap().into_source().unwrap();
    assert_eq!(counted_rails(&*source), ["package-0", "package-10"]);
    assert!(source.info().rails.iter().any(|r| r.name == "package-0/core"));
}

/// The layout of the previous test, from prometheus/procfs' files on disk.
#[test]
fn detects_procfs_fixture_on_disk() {
    let Some(archive) = crate::shared_file("procfs_sysfs.tar.gz") else { return };
    let folder = tempfile::tempdir().unwrap();
    let tar = std::process::Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(folder.path()).status();
    if !tar.is_ok_and(|status| status.success()) {
        eprintln!("skipped: tar cannot unpack the fixture");
        return;
    }
    let roots = Roots::files(Arc::new(Disk::new(folder.path().join("procfs_sysfs"))));
    let mut source = usable(&roots, "rapl");
    assert_eq!(counted_rails(&*source), ["package-0", "package-10"]);
    assert_eq!(source.info().rails.iter().filter(|r| r.name == "package-0/core").count(), 1);
    assert_eq!(total(&mut *source, &usage_at(0.0)), 0.0);
    assert!(refusal(&roots, "hwmon").0.contains("no chip"));
}
