use super::*;
use crate::record_file::read_record;
use crate::source::{Provenance, Rail, Source, SourceInfo, Usage, Value};
use crate::wait::wait_sampled;
use std::process::Command as Program;
use std::time::Duration;

/// A source that answers from a function of time and call number.
struct Scripted {
    info: SourceInfo,
    script: fn(f64, usize) -> Result<Vec<Value>, MeterError>,
    calls: usize,
}

impl Source for Scripted {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read(&mut self, usage: &Usage) -> Result<Vec<Value>, MeterError> {
        self.calls += 1;
        (self.script)(usage.elapsed.as_secs_f64(), self.calls)
    }
}

fn scripted(
    name: &str,
    min_interval_ms: u32,
    script: fn(f64, usize) -> Result<Vec<Value>, MeterError>,
) -> Box<dyn Source> {
    let rail = |name: &str, counted| Rail { name: name.into(), counted };
    let rails = vec![rail("all", true), rail("part", false)];
    let info = SourceInfo { name: name.into(), provenance: Provenance::Measured, rails, min_interval_ms };
    Box::new(Scripted { info, script, calls: 0 })
}

fn config(sources: Vec<Box<dyn Source>>, ms: u64) -> SamplerConfig {
    SamplerConfig { sources, interval: Duration::from_millis(ms), keep_samples: true, ..SamplerConfig::default() }
}

fn failed() -> MeterError {
    MeterError::Source { name: "flaky".into(), reason: "no answer".into(), remedy: "plug it in".into() }
}

#[test]
fn power_is_integrated_and_counters_are_differenced() {
    let watts = scripted("watts", 1, |t, _| Ok(vec![Value::Watts(2.0 + 10.0 * t), Value::Watts(1000.0)]));
    let joules = scripted("joules", 1, |t, _| Ok(vec![Value::Joules(500.0 + 3.0 * t), Value::Missing]));
    let sampler = Sampler::start(config(vec![watts, joules], 5)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let stopped = sampler.stop().unwrap();
    let duration = stopped.summary.duration_s;
    assert!((0.3..3.0).contains(&duration), "{duration}");
    let expected = 2.0 * duration + 5.0 * duration * duration;
    let energy = stopped.summary.energy["watts"];
    assert!((energy.gross_j - expected).abs() < 0.03 * expected, "{energy:?} against {expected}");
    assert_eq!((energy.net_j, energy.provenance), (None, Provenance::Measured));
    let counted = stopped.summary.energy["joules"];
    assert!((counted.gross_j - 3.0 * duration).abs() < 0.05 * duration, "{counted:?}");
    let last = stopped.samples.last().unwrap();
    assert!((last.power["watts"][0].j - energy.gross_j).abs() < 1e-9);
    assert_eq!((last.power["joules"][1].w, last.power["joules"][1].j), (None, 0.0));
    let mut watts: Vec<f64> = stopped.samples.iter().filter_map(|s| s.power["joules"][0].w).collect();
    watts.sort_by(f64::total_cmp);
    assert!((watts[watts.len() / 2] - 3.0).abs() < 0.5, "{watts:?}");
}

#[test]
fn missing_values_are_bridged_and_never_0_watts() {
    // Readings 5 to 30 are missing.
    let source = scripted("gaps", 1, |_, call| {
        let value = if (5..=30).contains(&call) { Value::Missing } else { Value::Watts(4.0) };
        Ok(vec![value, Value::Watts(f64::NAN)])
    });
    let sampler = Sampler::start(config(vec![source], 2)).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let stopped = sampler.stop().unwrap();
    assert!(stopped.samples.len() > 35, "{} samples", stopped.samples.len());
    let energy = stopped.summary.energy["gaps"];
    assert!((energy.mean_w - 4.0).abs() < 1e-6, "{energy:?}");
    assert!((energy.gross_j - 4.0 * stopped.summary.duration_s).abs() < 0.02 * energy.gross_j, "{energy:?}");
    assert!(stopped.samples[10].power["gaps"][0].w.is_none());
    let odd: Vec<_> = stopped.notes.iter().filter(|n| n.text.contains("impossible value")).collect();
    assert_eq!(odd.len(), 1, "{odd:?}");
}

#[test]
fn a_failing_source_is_noted_once_and_tried_again() {
    let source = scripted("flaky", 1, |_, call| match call {
        3..=20 => Err(failed()),
        _ => Ok(vec![Value::Watts(6.0), Value::Missing]),
    });
    let dead = scripted("dead", 1, |_, _| Err(failed()));
    let wrong = scripted("wrong", 1, |_, _| Ok(vec![Value::Watts(1.0)]));
    let sampler = Sampler::start(config(vec![source, dead, wrong], 2)).unwrap();
    std::thread::sleep(Duration::from_millis(150));
    let stopped = sampler.stop().unwrap();
    let count = |text: &str| stopped.notes.iter().filter(|n| n.text.contains(text)).count();
    assert_eq!(count("no answer; plug it in; trying again"), 2, "{:?}", stopped.notes);
    assert_eq!(count("power source flaky works again"), 1);
    assert_eq!(count("1 values for 2 rails"), 1);
    assert_eq!(count("power source dead gave no energy"), 1);
    assert!((stopped.summary.energy["flaky"].mean_w - 6.0).abs() < 1e-6);
    assert!(!stopped.summary.energy.contains_key("dead"), "absent, not zero");
}

#[test]
fn a_slow_source_is_read_at_its_own_pace_and_deadlines_do_not_drift() {
    let slow = scripted("slow", 50, |_, _| Ok(vec![Value::Watts(1.0), Value::Missing]));
    let sampler = Sampler::start(config(vec![slow], 10)).unwrap();
    std::thread::sleep(Duration::from_millis(505));
    let stopped = sampler.stop().unwrap();
    let read = stopped.samples.iter().filter(|s| s.power.contains_key("slow")).count();
    assert!((4..=13).contains(&read), "{read} readings in half a second");
    // Every deadline is a multiple of the interval; a sample comes after its own and most come soon.
    let mut late: Vec<f64> = stopped.samples[1..stopped.samples.len() - 1].iter().map(|s| s.t % 0.01).collect();
    late.sort_by(f64::total_cmp);
    assert!(late[late.len() / 2] < 0.005, "half of the samples are {} s late or more", late[late.len() / 2]);
}

#[test]
fn a_record_holds_what_was_measured_of_real_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.jsonl");
    let source = scripted("s", 1, |_, _| Ok(vec![Value::Watts(5.0), Value::Missing]));
    let labels = BTreeMap::from([("rate".to_owned(), "20mbit".to_owned())]);
    let sampler =
        Sampler::start(SamplerConfig { output: Some(path.clone()), labels, ..config(vec![source], 20) }).unwrap();
    let busy = |n: u32| format!("( j=0; while [ $j -lt {n} ]; do j=$((j+1)); done )");
    let start = |n| Program::new("sh").args(["-c", &format!("{}; true", busy(n))]).spawn().unwrap();
    let (mut client, mut server) = (start(60_000), start(200_000));
    assert!(sampler.add_process("client", client.id()) && sampler.add_process("server", server.id()));
    assert!(!sampler.add_process("nobody", 0x7fff_fff0));
    sampler.mark("client", "online", Edge::Begin, BTreeMap::new());
    sampler.note("a remark");
    assert!(wait_sampled(&sampler.handle(), &mut client).unwrap().success());
    sampler.mark("client", "online", Edge::End, BTreeMap::from([("sent_bytes".to_owned(), 7.0)]));
    assert!(wait_sampled(&sampler.handle(), &mut server).unwrap().success());
    let mut stopped = sampler.stop().unwrap();
    stopped.attribute("s");
    stopped.summary.results.insert("latency_s".into(), 0.5);
    let summary = stopped.finish().unwrap();
    let record = read_record(&path).unwrap();
    assert_eq!(record.incomplete, None);
    assert_eq!(record.summary.as_ref(), Some(&summary));
    assert_eq!(record.header.labels["rate"], "20mbit");
    assert_eq!((record.marks.len(), record.notes[0].text.as_str()), (2, "a remark"));
    assert_eq!(record.marks[1].figures["sent_bytes"], 7.0);
    let cpu = |name: &str| summary.parties[name].user_s + summary.parties[name].system_s;
    assert!(cpu("server") > 1.5 * cpu("client") && cpu("client") > 0.0, "{:?}", summary.parties);
    assert!(summary.parties["client"].rss_bytes > 100_000);
    assert!(summary.party_energy["server"].gross_j > summary.party_energy["client"].gross_j);
    let marked = record.samples.iter().any(|s| (s.t - record.marks[1].t).abs() < 0.01);
    assert_eq!(summary.parties.len(), 2, "nobody is no party");
    assert!(marked, "a sample at the edge of the phase");
    assert!(record.samples.windows(2).all(|w| w[0].t < w[1].t));
    assert!(record.samples.iter().all(|s| !s.cores.is_empty() && s.memory_bytes > 1_000_000));
}

#[test]
fn calls_after_the_end_and_bad_intervals_are_no_trouble() {
    let sampler = Sampler::start(config(vec![], 1000)).unwrap();
    let handle = sampler.handle();
    let stopped = sampler.stop().unwrap();
    assert!(stopped.summary.energy.is_empty() && stopped.summary.duration_s > 0.0);
    handle.sample_now();
    handle.note("too late");
    assert!(!handle.add_process("client", std::process::id()));
    assert!(Sampler::start(config(vec![], 0)).is_err());
}

/// The limit is 0.5 % of a core at 10 Hz; asserted at twice that, since other programs share this machine's caches and cores.
#[test]
fn sampling_costs_little_processor_time() {
    let folder = tempfile::tempdir().unwrap();
    let source = scripted("s", 1, |_, _| Ok(vec![Value::Watts(5.0), Value::Missing]));
    let output = Some(folder.path().join("r.jsonl"));
    let sampler = Sampler::start(SamplerConfig { output, keep_samples: false, ..config(vec![source], 100) }).unwrap();
    assert!(sampler.add_process("self", std::process::id()));
    std::thread::sleep(Duration::from_secs(3));
    let stopped = sampler.stop().unwrap();
    let share = stopped.sampler_cpu_s / stopped.summary.duration_s;
    println!(
        "sampler at 10 Hz: {:.3} % of a core, {:.0} us a sample",
        share * 100.0,
        stopped.sampler_cpu_s / stopped.sample_count as f64 * 1e6
    );
    assert!(share < 0.01, "{:.2} % of a core", share * 100.0);
}
