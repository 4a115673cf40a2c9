use super::*;
use crate::energy::Baseline;
use crate::record::Sample;
use crate::record_file::read_record;
use crate::source::{Provenance, Rail, Source, SourceInfo, Usage, Value};
use crate::wait::wait_sampled;
use std::io::Write;
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

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

fn scripted_source(
    name: &str,
    min_interval_ms: u32,
    script: fn(f64, usize) -> Result<Vec<Value>, MeterError>,
) -> Box<dyn Source> {
    let rails = vec![Rail::counted("all"), Rail { counted: false, ..Rail::counted("part") }];
    let info = SourceInfo::measured(name, rails, min_interval_ms);
    Box::new(Scripted { info, script, calls: 0 })
}

fn config(sources: Vec<Box<dyn Source>>, ms: u64) -> SamplerConfig {
    SamplerConfig { sources, interval: Duration::from_millis(ms), keep_samples: true, ..SamplerConfig::default() }
}

fn read_error() -> MeterError {
    MeterError::Source { name: "flaky".into(), reason: "no answer".into(), remedy: "plug it in".into() }
}

/// Runs a sampler that takes exactly `count` samples on demand, beside the first and the last. Also
/// returns the seconds from before its start until after its end.
fn run_sampler(sources: Vec<Box<dyn Source>>, count: usize) -> (Stopped, f64) {
    let begin = Instant::now();
    let sampler = Sampler::start(config(sources, 3_600_000)).unwrap();
    (0..count).for_each(|_| sampler.sample_now());
    let stopped = sampler.stop().unwrap();
    assert_eq!(stopped.samples.len(), count + 2);
    (stopped, begin.elapsed().as_secs_f64())
}

/// The path through the sampler; `power.rs` tests the arithmetic.
#[test]
fn integrates_power_and_differences_counters() {
    let watts = scripted_source("watts", 1, |_, _| Ok(vec![Value::Watts(2.0), Value::Watts(1000.0)]));
    let joules =
        scripted_source("joules", 1, |_, call| Ok(vec![Value::Joules(500.0 + 3.0 * call as f64), Value::Missing]));
    let (stopped, seconds) = run_sampler(vec![watts, joules], 60);
    let (first, last) = (&stopped.samples[1], stopped.samples.last().unwrap());
    // Readings follow their sample's time and precede the next sample.
    let energy = stopped.summary.energy["watts"];
    assert!((2.0 * (last.t - first.t)..2.0 * seconds).contains(&energy.gross_j), "{energy:?} in {seconds} s");
    assert!((energy.mean_w - 2.0).abs() < 1e-9, "{energy:?}");
    assert_eq!((energy.net_j, energy.provenance), (None, Provenance::Measured));
    let counter_energy = stopped.summary.energy["joules"];
    assert!((counter_energy.gross_j - 3.0 * 61.0).abs() < 1e-9, "{counter_energy:?}");
    assert!((last.power["watts"][0].j - energy.gross_j).abs() < 1e-9);
    assert_eq!((last.power["joules"][1].w, last.power["joules"][1].j), (None, 0.0));
    assert!(stopped.samples[1..].iter().all(|s| s.power["joules"][0].w.is_some_and(|w| w > 0.0)));
}

#[test]
fn bridges_missing_values() {
    // Readings 5 to 30 are missing.
    let source = scripted_source("gaps", 1, |_, call| {
        let value = if (5..=30).contains(&call) { Value::Missing } else { Value::Watts(4.0) };
        Ok(vec![value, Value::Watts(f64::NAN)])
    });
    let (stopped, seconds) = run_sampler(vec![source], 40);
    let energy = stopped.summary.energy["gaps"];
    assert!((energy.mean_w - 4.0).abs() < 1e-6, "{energy:?}");
    let min_joules = 4.0 * (stopped.samples.last().unwrap().t - stopped.samples[1].t);
    assert!((min_joules..4.0 * seconds).contains(&energy.gross_j), "{energy:?}, {min_joules} J at least");
    let missing = |s: &Sample| s.power["gaps"][0].w.is_none();
    assert!(stopped.samples.iter().enumerate().all(|(i, s)| missing(s) == (4..30).contains(&i)));
    let odd: Vec<_> = stopped.notes.iter().filter(|n| n.text.contains("impossible value")).collect();
    assert_eq!(odd.len(), 1, "{odd:?}");
}

#[test]
fn notes_failing_source_once() {
    let source = scripted_source("flaky", 1, |_, call| match call {
        3..=20 => Err(read_error()),
        _ => Ok(vec![Value::Watts(6.0), Value::Missing]),
    });
    let dead = scripted_source("dead", 1, |_, _| Err(read_error()));
    let wrong_source = scripted_source("wrong", 1, |_, _| Ok(vec![Value::Watts(1.0)]));
    let (stopped, _) = run_sampler(vec![source, dead, wrong_source], 30);
    let count = |text: &str| stopped.notes.iter().filter(|n| n.text.contains(text)).count();
    assert_eq!(count("no answer; plug it in; trying again"), 2, "{:?}", stopped.notes);
    assert_eq!(count("power source flaky works again"), 1);
    assert_eq!(count("1 values for 2 rails"), 1);
    assert_eq!(count("power source dead gave no energy"), 1);
    assert!((stopped.summary.energy["flaky"].mean_w - 6.0).abs() < 1e-6);
    assert!(!stopped.summary.energy.contains_key("dead"), "absent, not zero");
}

#[test]
fn slow_source_keeps_own_interval_without_drift() {
    let slow = scripted_source("slow", 50, |_, _| Ok(vec![Value::Watts(1.0), Value::Missing]));
    // Without absolute deadlines every sample would delay all later ones by these 4 ms.
    let heavy = scripted_source("heavy", 1, |_, _| {
        std::thread::sleep(Duration::from_millis(4));
        Ok(vec![Value::Watts(1.0), Value::Missing])
    });
    let sampler = Sampler::start(config(vec![slow, heavy], 10)).unwrap();
    std::thread::sleep(Duration::from_millis(1000));
    let stopped = sampler.stop().unwrap();
    // Each reading falls between its sample's time and the next one's. The first and the last
    // sample read all sources.
    let samples = &stopped.samples[..stopped.samples.len() - 1];
    let mut read = 0;
    for (i, sample) in samples.iter().enumerate().skip(1) {
        if sample.power.contains_key("slow") {
            assert!(sample.t - samples[read].t >= 0.045, "read again after {} s", sample.t - samples[read].t);
            read = i;
        } else {
            assert!(sample.t - samples[read + 1].t < 0.045, "not read for {} s", sample.t - samples[read].t);
        }
    }
    assert!(read > 0);
    // Every deadline is met or counted as missed, none is delayed. The end may cut off the last
    // ones.
    let missed = stopped
        .notes
        .iter()
        .find_map(|n| n.text.strip_suffix(" samples are missing: the host or a source was too slow"));
    let met = samples.len() as f64 - 1.0 + missed.map_or(0.0, |n| n.parse::<f64>().unwrap());
    let due = stopped.samples.last().unwrap().t / 0.01;
    assert!(met <= due, "{met} of {due} deadlines");
    assert!(met > 0.8 * due, "{met} of {due} deadlines");
}

/// A program that counts to `n` in a child process, after [`go`].
fn waiting(n: u32) -> Child {
    let script = format!("read go; ( j=0; while [ $j -lt {n} ]; do j=$((j+1)); done ); true");
    Program::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap()
}

fn go(program: &mut Child) {
    program.stdin.take().unwrap().write_all(b"go\n").unwrap();
}

#[test]
fn subtracts_idle_power_for_observed_time() {
    // Half of the time the source has no value.
    let source = scripted_source("s", 1, |_, call| {
        Ok(vec![if call <= 20 { Value::Watts(3.0) } else { Value::Missing }, Value::Missing])
    });
    let (mut stopped, _) = run_sampler(vec![source], 40);
    let baseline = Baseline::from_power(&[(1.0, 3.0), (1.0, 3.0)], 0.0).unwrap();
    stopped.subtract_idle(&BTreeMap::from([("s".to_owned(), baseline)]));
    let energy = stopped.summary.energy["s"];
    assert!(energy.net_j.unwrap().abs() < 1e-6 * energy.gross_j, "{energy:?}");
    assert!((energy.mean_w - 3.0).abs() < 1e-6, "{energy:?}");
}

#[test]
fn limits_flood_of_marks() {
    let sampler = Sampler::start(config(vec![], 60_000)).unwrap();
    let handle = sampler.handle();
    for _ in 0..110 {
        (0..1000).for_each(|_| handle.mark("client", "online", Edge::Begin, BTreeMap::new()));
        // Waits until the queue is empty.
        handle.sample_now();
    }
    let stopped = sampler.stop().unwrap();
    assert_eq!(stopped.marks.len(), 100_000);
    assert!(stopped.notes.iter().any(|n| n.text.contains("10000 marks or notes were dropped")), "{:?}", stopped.notes);
}

#[test]
fn records_real_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.jsonl");
    let source = scripted_source("s", 1, |_, _| Ok(vec![Value::Watts(5.0), Value::Missing]));
    let labels = BTreeMap::from([("rate".to_owned(), "20mbit".to_owned())]);
    let sampler =
        Sampler::start(SamplerConfig { output: Some(path.clone()), labels, ..config(vec![source], 20) }).unwrap();
    let (mut client, mut server) = (waiting(150_000), waiting(600_000));
    assert!(sampler.add_process("client", client.id(), Since::Birth));
    assert!(sampler.add_process("server", server.id(), Since::Birth));
    sampler.mark("client", "online", Edge::Begin, BTreeMap::new());
    sampler.note("a remark");
    go(&mut client);
    go(&mut server);
    assert!(wait_sampled(&sampler.handle(), &mut client).unwrap().success());
    sampler.mark("client", "online", Edge::End, BTreeMap::from([("sent_bytes".to_owned(), 7.0)]));
    // The answer follows the completion of all earlier commands.
    assert!(!sampler.add_process("nobody", 0x7fff_fff0, Since::Now));
    let marked_until = sampler.handle().seconds(monotonic_ns());
    assert!(wait_sampled(&sampler.handle(), &mut server).unwrap().success());
    let mut stopped = sampler.stop().unwrap();
    stopped.attribute("s", 0.0);
    stopped.summary.results.insert("latency_s".into(), 0.5);
    let summary = stopped.finish().unwrap();
    let record = read_record(&path).unwrap();
    assert_eq!(record.incomplete, None);
    assert_eq!(record.summary.as_ref(), Some(&summary));
    assert_eq!(record.header.labels["rate"], "20mbit");
    assert_eq!((record.marks.len(), record.notes[0].text.as_str()), (2, "a remark"));
    assert_eq!(record.marks[1].figures["sent_bytes"], 7.0);
    let cpu = |name: &str| summary.parties[name].user_s + summary.parties[name].system_s;
    // One time in ten thousand, a time is a whole number of ticks by chance.
    let parts = summary.parties.values().flat_map(|p| [p.user_s, p.system_s]).map(|s| s * 100.0);
    let whole_ticks = parts.filter(|ticks| (ticks - ticks.round()).abs() < 1e-6).count();
    assert!(whole_ticks < 2 * summary.parties.len(), "all is in whole ticks of 10 ms: {:?}", summary.parties);
    assert!(cpu("server") > 1.5 * cpu("client"), "{:?}", summary.parties);
    assert!(cpu("client") > 0.0, "{:?}", summary.parties);
    assert!(summary.parties["client"].rss_bytes > 100_000);
    assert!(summary.party_energy["server"].gross_j > summary.party_energy["client"].gross_j);
    let marked = record.samples.iter().any(|s| (record.marks[1].t - 0.002..marked_until).contains(&s.t));
    assert_eq!(summary.parties.len(), 2);
    assert!(marked, "a sample at the edge of the phase");
    assert!(record.samples.windows(2).all(|w| w[0].t < w[1].t));
    assert!(record.samples.iter().all(|s| !s.cores.is_empty() && s.memory_bytes > 1_000_000));
}

#[test]
fn tolerates_late_calls_and_rejects_zero_interval() {
    let sampler = Sampler::start(config(vec![], 1000)).unwrap();
    let handle = sampler.handle();
    let stopped = sampler.stop().unwrap();
    assert!(stopped.summary.energy.is_empty());
    assert!(stopped.summary.duration_s > 0.0);
    handle.sample_now();
    handle.note("too late");
    assert!(!handle.add_process("client", std::process::id(), Since::Now));
    assert!(Sampler::start(config(vec![], 0)).is_err());
}

/// The limit is 0.5 % of a core at 10 Hz. The test allows twice that, in the best of several tries,
/// since other programs share this machine's caches and cores.
#[test]
fn sampling_costs_little_processor_time() {
    let folder = tempfile::tempdir().unwrap();
    let share = || {
        let source = scripted_source("s", 1, |_, _| Ok(vec![Value::Watts(5.0), Value::Missing]));
        let output = Some(folder.path().join("r.jsonl"));
        let config = SamplerConfig { output, keep_samples: false, ..config(vec![source], 100) };
        let sampler = Sampler::start(config).unwrap();
        assert!(sampler.add_process("self", std::process::id(), Since::Now));
        std::thread::sleep(Duration::from_secs(1));
        let stopped = sampler.stop().unwrap();
        println!("sampler: {:.0} us a sample", stopped.sampler_cpu_s / stopped.sample_count as f64 * 1e6);
        stopped.sampler_cpu_s / stopped.summary.duration_s
    };
    let mut shares = Vec::new();
    while shares.len() < 10 && shares.last().is_none_or(|share| *share >= 0.01) {
        shares.push(share());
    }
    assert!(shares.last().is_some_and(|share| *share < 0.01), "shares of a core: {shares:?}");
}
