//! Replays: tegrastats logs, `mlperf_tiny` traces, CSV; and a live tegrastats.
use crate::{close, counted_rails, hwmon, message, shared_file, total, tree, tree_of, usable, usage_at};
use std::path::Path;
use std::time::{Duration, Instant};
use tacit_meter::source::mlperf::{EnergyTrace, parse_timestamps};
use tacit_meter::source::tegrastats::{self, Tegrastats};
use tacit_meter::source::trace::{Kind, Trace};
use tacit_meter::source::{Rail, Roots, Source, Value, open};

const NANO: &str = "RAM 936/3964MB (lfb 366x4MB) SWAP 0/4096MB (cached 0MB) IRAM 0/252kB(lfb 252kB) CPU [10%@102,3%@102] \
     EMC_FREQ 0%@204 GR3D_FREQ 0%@76 APE 25 PLL@24C POM_5V_IN 920/900 POM_5V_GPU 0/0 POM_5V_CPU 119/119";
const ORIN: &str = "07-21-2025 16:33:42 RAM 17953/62841MB (lfb 9x4MB) CPU [7%@1728,off] GR3D_FREQ 39%@[305,0] tj@43.906C \
     VDD_GPU_SOC 2798mW/2700mW VDD_CPU_CV 799mW/799mW VIN_SYS_5V0 3315mW/3315mW";

#[test]
fn parses_tegrastats_dialects() {
    for (line, rails) in [
        (NANO, &[("POM_5V_IN", 0.92), ("POM_5V_GPU", 0.0), ("POM_5V_CPU", 0.119)][..]),
        (ORIN, &[("VDD_GPU_SOC", 2.798), ("VDD_CPU_CV", 0.799), ("VIN_SYS_5V0", 3.315)]),
        ("GPU 311/311 CPU 932/1 SYS5V 1435/2", &[("GPU", 0.311), ("CPU", 0.932), ("SYS5V", 1.435)]),
        ("", &[]),
        ("nvidia@linux:~$ sudo tegrastats", &[]),
        ("VDD_IN", &[]),
        ("VDD_IN 1/", &[]),
        ("VDD_IN -3/4", &[]),
        ("VDD_IN 99999999999/1", &[]),
        ("RAM 1/2", &[]),
    ] {
        let parsed = tegrastats::parse_line(line);
        assert_eq!(parsed.iter().map(|(name, w)| (name.as_str(), *w)).collect::<Vec<_>>(), rails, "{line:?}");
    }
}

fn replay(path: &Path) -> Box<dyn Source> {
    open(&format!("replay:{}", path.display()), &Roots::system()).unwrap()
}

#[test]
fn parses_tegrastats_logs_of_boards() {
    let logs = [
        ("csc2231_project.txt", 114, vec!["POM_5V_IN"], 0.92),
        ("orin_nano_tegra_burn.log", 103, vec!["VDD_IN"], 5.542),
        ("llm_pipeline.log", 15, vec!["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"], 2.798 + 0.799 + 3.315),
        ("tx2_dlkit.log", 2, vec!["VDD_IN"], 3.566),
    ];
    for (file, lines, rails, first_w) in logs {
        let Some(path) = shared_file(&format!("tegrastats/{file}")) else { return };
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().filter(|l| !tegrastats::parse_line(l).is_empty()).count(), lines, "{file}");
        let source = replay(&path);
        assert_eq!(counted_rails(&*source), rails, "{file}");
        let first = text.lines().map(tegrastats::parse_line).find(|r| !r.is_empty()).unwrap();
        let sum: f64 = first.iter().filter(|(name, _)| rails.contains(&name.as_str())).map(|(_, w)| w).sum();
        assert!(close(sum, first_w), "{file}: {sum} W");
    }
}

#[test]
fn replays_energy_of_log() {
    let lines: String = [1000, 2000, 4000].iter().map(|mw| format!("VDD_IN {mw}/{mw} VDD_SOC 1/1\n")).collect();
    let parse = |text: &str, interval_s| tegrastats::parse_log(text, interval_s).unwrap();
    let trace = parse(&lines, 0.5);
    assert!(close(trace.duration_s(), 1.0));
    assert!(close(trace.joules_at(1.0).unwrap()[0], 0.5 * 1.5 + 0.5 * 3.0));
    // Times of its own take precedence.
    let stamped = "12-31-2024 23:59:59 VDD_IN 1000mW/1mW\n01-01-2025 00:00:01 VDD_IN 1000mW/1mW\n";
    assert!(close(parse(stamped, 1.0).duration_s(), 2.0));
    let leap = "02-28-2024 00:00:00 VDD_IN 1/1\n03-01-2024 00:00:00 VDD_IN 1/1\n";
    assert!(close(parse(leap, 1.0).duration_s(), 2.0 * 86_400.0));
    let text = message(tegrastats::parse_log("VDD_IN 1/1\nVDD_SOC 1/1\n", 1.0));
    assert!(text.contains("line 2"), "{text}");
}

/// Energy reported by the EnergyRunner, window by window, against the sums over the trace.
#[test]
fn mlperf_traces_match_reports() {
    for board in ["greenwaves_gap9_650_ic", "octoml_l4r5zi_ad", "octoml_l4r5zi_ic", "octoml_l4r5zi_kws", "st_u575zi_ic"]
    {
        let Some(folder) = shared_file(&format!("mlperf_tiny/{board}")) else { return };
        let bytes = std::fs::read(folder.join("trace1-energy.bin")).unwrap();
        let trace = EnergyTrace::parse(&bytes).unwrap();
        assert_eq!(trace.rate_hz(), 1000.0);
        let times = parse_timestamps(&std::fs::read_to_string(folder.join("trace1-timestamps.json")).unwrap()).unwrap();
        let results = std::fs::read_to_string(folder.join("results.txt")).unwrap();
        let reported: Vec<f64> = results
            .lines()
            .filter_map(|l| l.split("Energy       :").nth(1)?.trim().strip_suffix(" uJ")?.trim().parse().ok())
            .collect();
        assert_eq!(reported.len(), 5, "{board}");
        let mut source = replay(&folder.join("trace1-energy.bin"));
        for (window, microjoules) in times[1..].chunks(2).zip(reported) {
            let sum = trace.joules_between(window[0], window[1]) * 1e6;
            assert!((sum / microjoules - 1.0).abs() < 5e-4, "{board}: {sum} uJ, reported {microjoules} uJ");
            let played = (total(&mut *source, &usage_at(window[1])) - total(&mut *source, &usage_at(window[0]))) * 1e6;
            assert!((played / microjoules - 1.0).abs() < 5e-4, "{board}: {played} uJ played back");
        }
        let end = trace.samples() as f64 / trace.rate_hz();
        assert!(message(source.read(&usage_at(end + 1.0))).contains("trace ended"));
    }
}

#[test]
fn rejects_malformed_mlperf_traces() {
    let trace = |rate: f32, samples: &[f32]| {
        let mut bytes = vec![0xF1];
        bytes.extend(rate.to_le_bytes());
        samples.iter().for_each(|s| bytes.extend(s.to_le_bytes()));
        bytes
    };
    let valid_trace = EnergyTrace::parse(&trace(10.0, &[1e6, 2e6])).unwrap();
    for (from_s, to_s, joules) in [(0.0, 0.2, 3.0), (0.1, 9e9, 2.0), (0.2, 0.1, 0.0), (f64::NAN, -1.0, 0.0)] {
        assert!(close(valid_trace.joules_between(from_s, to_s), joules), "{from_s} to {to_s}");
    }
    for text in [
        vec![],
        vec![0xF1, 0, 0],
        trace(0.0, &[]),
        trace(f32::NAN, &[1.0]),
        trace(1.0, &[-1.0]),
        trace(1.0, &[f32::INFINITY]),
    ] {
        assert!(EnergyTrace::parse(&text).is_err(), "{text:?}");
    }
    assert!(message(EnergyTrace::parse(&trace(1.0, &[1.0])[..8])).contains("within sample 0"));
    for text in ["", "{}", "[1, \"a\"]", "[2, 1]", "[-1]", "[1e999]"] {
        assert!(parse_timestamps(text).is_err(), "{text:?}");
    }
}

#[test]
fn rejects_invalid_traces() {
    let new = |kind, times: &[f64], samples: &[f64]| {
        let samples = samples.iter().map(|s| vec![*s]).collect();
        Trace::new(vec![Rail::counted("a")], kind, times.to_vec(), samples)
    };
    for (kind, times, samples) in [
        (Kind::Watts, &[][..], &[][..]),
        (Kind::Watts, &[0.0, 1.0], &[1.0]),
        (Kind::Watts, &[1.0, 0.0], &[1.0, 1.0]),
        (Kind::Joules, &[0.0, 1.0], &[2.0, 1.0]),
        (Kind::Watts, &[0.0, f64::NAN], &[1.0, 1.0]),
    ] {
        assert!(new(kind, times, samples).is_err(), "{kind:?} {times:?} {samples:?}");
    }
    let trace = new(Kind::Joules, &[5.0, 6.0, 6.0, 8.0], &[100.0, 110.0, 120.0, 160.0]).unwrap();
    for (time, joules) in [(0.0, 0.0), (0.5, 5.0), (1.0, 20.0), (2.0, 40.0), (3.0, 60.0)] {
        assert!(close(trace.joules_at(time).unwrap()[0], joules), "at {time} s");
    }
    assert_eq!((trace.joules_at(3.1), trace.joules_at(-0.1)), (None, None));
}

/// Writes a program that behaves as tegrastats: a line of junk, then a line at each interval.
fn fake_tegrastats(folder: &Path, script: &str) -> std::path::PathBuf {
    let (text, path) = (folder.join("text"), folder.join("tegrastats"));
    std::fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
    // Written by another process: a file that this one had open for writing could be "busy" when it is to
    // run, as long as a child that another test starts at that moment still has our open files.
    let copied = std::process::Command::new("install").args(["-m", "755"]).args([&text, &path]).status();
    assert!(copied.unwrap().success());
    path
}

#[test]
fn reads_and_ends_live_tegrastats() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "echo $$ > {0}/pid; echo junk; echo \"$@\" > {0}/args; while :; do echo '{NANO}'; sleep 0.02; done",
        folder.path().display()
    );
    let program = fake_tegrastats(folder.path(), &script);
    let mut roots = tree([]).1;
    roots.tegrastats = Some(program);
    roots.tegrastats_interval = Duration::from_millis(20);
    let mut source = usable(&roots, "tegrastats");
    assert_eq!(counted_rails(&*source), ["POM_5V_IN"]);
    assert_eq!(source.info().min_interval_ms, 20);
    assert_eq!(source.read(&usage_at(0.0)).unwrap(), [0.92, 0.0, 0.119].map(Value::Watts));
    assert_eq!(std::fs::read_to_string(folder.path().join("args")).unwrap().trim(), "--interval 20");
    let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    drop(source);
    assert!(!Path::new("/proc").join(pid.trim()).exists());
}

#[test]
fn reports_ended_and_silent_tegrastats() {
    let folder = tempfile::tempdir().unwrap();
    let silent = fake_tegrastats(folder.path(), "echo RAM 1/2MB");
    assert!(message(Tegrastats::start(&silent, Duration::from_millis(10))).contains("no power rails"));
    assert!(Tegrastats::start(&folder.path().join("none"), Duration::from_millis(10)).is_err());
    let short = fake_tegrastats(folder.path(), "echo VDD_IN 5/5; sleep 0.2");
    let mut source = Tegrastats::start(&short, Duration::from_millis(10)).unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while source.read(&usage_at(0.0)).is_ok() {
        assert!(Instant::now() < patience);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(message(source.read(&usage_at(0.0))).contains("ended"));
}

#[test]
fn prefers_ina3221_to_tegrastats() {
    let files = hwmon(1, "ina3221", [("in1_input", "5000"), ("curr1_input", "100")]);
    let (_, mut roots) = tree_of(&files);
    roots.tegrastats = Some("/nonexistent/tegrastats".into());
    assert!(crate::refusal(&roots, "tegrastats").0.contains("ina3221"));
    assert!(message(open("tegrastats", &roots)).contains("/nonexistent"), "by name it is started");
}
