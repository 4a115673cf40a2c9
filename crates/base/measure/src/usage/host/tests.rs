use super::*;
use crate::usage::tests::Fake;

fn open(fake: &Fake) -> HostReader {
    let mut reader = HostReader::open(&fake.roots()).unwrap();
    reader.seconds_per_tick = 0.01;
    reader
}

const MEMINFO: &str = "MemTotal:        1000 kB\nMemFree:          100 kB\nMemAvailable:     400 kB\nBuffers: 1 kB\n";

#[test]
fn core_times_count_from_the_start_and_add_up_by_kind() {
    let fake = Fake::new();
    fake.write_file("proc/stat", "cpu  9 9 9 9\ncpu0 100 10 50 1000 20 3 2 99 0 0\ncpu1 1 1 1 1 1 1 1 1 1 1\nintr 1\n");
    fake.write_file("proc/meminfo", MEMINFO);
    let mut reader = open(&fake);
    assert!(reader.cores().unwrap().iter().all(|c| (c.user_s, c.system_s, c.idle_s) == (0.0, 0.0, 0.0)));
    fake.write_file("proc/stat", "cpu0 150 20 60 1100 30 8 7 500 0 0\ncpu1 2 1 1 1 1 1 1 1 1 1\n");
    let cores = reader.cores().unwrap();
    let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
    assert!(close(cores[0].user_s, 0.6) && close(cores[0].system_s, 0.2) && close(cores[0].idle_s, 1.1), "{cores:?}");
    // Stolen time does not count.
    assert!(close(busy_s(&cores), 0.81));
    assert_eq!(cores[0].mhz, None);
    assert_eq!(reader.memory_bytes(), Some(600 * 1024));
    // One core disappears, a counter runs backwards, another core appears.
    fake.write_file("proc/stat", "cpu0 150 20 60 1050 30 8 7\ncpu3 5 0 0 5\n");
    let cores = reader.cores().unwrap();
    assert_eq!(cores.len(), 3);
    assert!(close(cores[0].idle_s, 1.1) && close(cores[1].user_s, 0.01) && close(cores[2].user_s, 0.0));
}

#[test]
fn frequencies_come_from_sys_or_from_cpuinfo() {
    let fake = Fake::new();
    fake.write_file("proc/stat", "cpu0 1 1 1 1\ncpu1 1 1 1 1\n");
    fake.write_file("proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 2596.122\n\nprocessor\t: 1\ncpu MHz\t\t: rubbish\n");
    let mhz = |reader: &mut HostReader| reader.cores().unwrap().iter().map(|c| c.mhz).collect::<Vec<_>>();
    assert_eq!(mhz(&mut open(&fake)), [Some(2596.122), None]);
    fake.write_file("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "1200000\n");
    assert_eq!(mhz(&mut open(&fake)), [None, Some(1200.0)]);
}

#[test]
fn broken_files_yield_no_figures() {
    for line in [
        "",
        "cpu",
        "cpu 1 2 3 4",
        "cpux 1 2 3 4",
        "cpu0",
        "cpu0 1 2 3",
        "cpu0 a b c d",
        "cpu99999999 1 2 3 4",
        "intr 1 2 3 4",
    ] {
        assert!(core_line(line).is_none(), "{line:?}");
    }
    assert_eq!(core_line("cpu2 1 2 3 4").unwrap(), (2, [3, 3, 4]), "a very old kernel");
    let fake = Fake::new();
    fake.write_file("proc/stat", "cpu0 1 1 1 1\n");
    fake.write_file("proc/meminfo", "MemTotal: many kB\n");
    assert_eq!(open(&fake).memory_bytes(), None);
    let nothing = Roots { proc: "/nonexistent".into(), sys: "/nonexistent".into() };
    let error = HostReader::open(&nothing).err().unwrap().to_string();
    assert!(error.contains("/nonexistent/stat"), "{error}");
}

#[test]
fn a_large_file_is_read_whole() {
    let fake = Fake::new();
    let cores: String = (0..3000).map(|n| format!("cpu{n} 1 1 1 1 1 1 1 1 1 1\n")).collect();
    fake.write_file("proc/stat", &cores);
    assert_eq!(open(&fake).cores().unwrap().len(), 3000);
}
