//! One command measured from its start to its end.
use crate::MeterError;
use crate::energy::{Baseline, energy_curve};
use crate::marks::MarkListener;
use crate::phase::{PhaseCost, phase_costs};
use crate::record::{InterfaceSample, Note, Summary};
use crate::sampler::{Sampler, SamplerConfig, Since, Stopped};
use crate::source::{Source, SourceInfo};
use crate::wait::wait_sampled;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tacit_measure::mark::ENV_MARKS;
use tacit_measure::usage::wait_until_ended;

/// Name of the measured party if the program's marks give no other.
pub const PARTY: &str = "program";

/// Interval of checks of `hurry`.
const HURRY_INTERVAL: Duration = Duration::from_millis(100);

/// Settings of a measurement.
pub struct Plan {
    /// Sampling interval, at least 1 ms.
    pub interval: Duration,
    /// How long to measure the idle host before and after; zero takes no baseline, and then there
    /// is no net energy.
    pub idle: Duration,
    /// Power sources, the primary one first; may be empty.
    pub sources: Vec<Box<dyn Source>>,
    /// File for the record, if any.
    pub output: Option<PathBuf>,
    /// Facts about the machine, for the record.
    pub machine: BTreeMap<String, String>,
    /// Labels, for the record.
    pub labels: BTreeMap<String, String>,
    /// Once set, measurement of the idle host ends.
    pub hurry: Arc<AtomicBool>,
}

/// Results of a measurement.
pub struct Measured {
    /// Exit status of the command.
    pub status: ExitStatus,
    /// Energy by source, use of the command (party [`PARTY`]), duration; as in the record.
    pub summary: Summary,
    /// The subtracted baselines, by source.
    pub baselines: BTreeMap<String, Baseline>,
    /// Costs by phase, if the program marks any.
    pub phases: Vec<PhaseCost>,
    /// Traffic of the host during the command, by interface.
    pub interfaces: BTreeMap<String, InterfaceSample>,
    /// The power sources.
    pub sources: Vec<SourceInfo>,
    /// Remarks in the record.
    pub notes: Vec<Note>,
    /// Processor time of the sampler itself, seconds.
    pub sampler_cpu_s: f64,
}

/// Runs a command and measures it. Calls `running` with the process id, for signals, and with
/// `None` when the command has ended, before it is reaped and its id may be reused.
///
/// The command finds a mark listener in `TACIT_MARKS`. If the record is incompletely written, the
/// command has run, and the written part stays.
///
/// # Errors
/// [`MeterError::io`] if the command cannot be started or a file cannot be written, and as
/// [`Sampler::start`].
pub fn measure(mut command: Command, plan: Plan, mut running: impl FnMut(Option<u32>)) -> Result<Measured, MeterError> {
    let Plan { interval, idle, sources, output, machine, labels, hurry } = plan;
    let (before, sources) = watch_idle(sources, interval, idle, &hurry)?;
    let name = command.get_program().to_string_lossy().into_owned();
    let config =
        SamplerConfig { interval, sources, output, machine, labels, keep_samples: true, ..SamplerConfig::default() };
    // A folder that only this user can enter.
    let folder = tempfile::Builder::new().prefix("tacit-").tempdir().map_err(MeterError::io(std::env::temp_dir()))?;
    let socket = folder.path().join("marks");
    let sampler = Sampler::start(config)?;
    let listener = MarkListener::unix(&socket, &sampler.handle())?;
    command.env(ENV_MARKS, &socket);
    let mut child = command.spawn().map_err(MeterError::io(name))?;
    sampler.add_process(PARTY, child.id(), Since::Birth);
    running(Some(child.id()));
    wait_until_ended(child.id())?;
    running(None);
    let status = wait_sampled(&sampler.handle(), &mut child)?;
    listener.close();
    drop(folder);
    let mut stopped = sampler.stop()?;
    let (after, sources) = watch_idle(std::mem::take(&mut stopped.sources), interval, idle, &hurry)?;
    let mut baselines = before;
    for (name, baseline) in &mut baselines {
        if let Some(after) = after.get(name) {
            *baseline = Baseline::around(*baseline, *after);
        }
    }
    complete(stopped, status, baselines, &sources)
}

fn complete(
    mut stopped: Stopped,
    status: ExitStatus,
    baselines: BTreeMap<String, Baseline>,
    sources: &[Box<dyn Source>],
) -> Result<Measured, MeterError> {
    stopped.subtract_idle(&baselines);
    let sources: Vec<SourceInfo> = sources.iter().map(|s| s.info().clone()).collect();
    let mut curve = Vec::new();
    if let Some(primary) = sources.first() {
        stopped.attribute(&primary.name, 0.0);
        let counted: Vec<bool> = primary.rails.iter().map(|r| r.counted).collect();
        curve = energy_curve(&stopped.samples, &primary.name, &counted);
    }
    Ok(Measured {
        status,
        baselines,
        phases: phase_costs(&stopped.samples, &stopped.marks, &curve),
        interfaces: stopped.samples.last().map(|s| s.interfaces.clone()).unwrap_or_default(),
        sources,
        notes: std::mem::take(&mut stopped.notes),
        sampler_cpu_s: stopped.sampler_cpu_s,
        summary: stopped.finish()?,
    })
}

/// Idle baselines by source, and the sources.
type Watched = (BTreeMap<String, Baseline>, Vec<Box<dyn Source>>);

fn watch_idle(
    sources: Vec<Box<dyn Source>>,
    interval: Duration,
    idle: Duration,
    hurry: &AtomicBool,
) -> Result<Watched, MeterError> {
    if idle.is_zero() || sources.is_empty() || hurry.load(Ordering::SeqCst) {
        return Ok((BTreeMap::new(), sources));
    }
    let config = SamplerConfig { interval, sources, keep_samples: true, ..SamplerConfig::default() };
    let sampler = Sampler::start(config)?;
    let until = Instant::now() + idle;
    while !hurry.load(Ordering::SeqCst) && Instant::now() < until {
        std::thread::sleep(until.saturating_duration_since(Instant::now()).min(HURRY_INTERVAL));
    }
    let stopped = sampler.stop()?;
    Ok((stopped.baselines(), stopped.sources))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_file::read_record;
    use crate::source::{Rail, Usage, Value};

    /// 3 W, and 8 W once the flag is set.
    struct Step(SourceInfo, Arc<AtomicBool>);

    impl Step {
        fn boxed(high: &Arc<AtomicBool>) -> Box<dyn Source> {
            let info = SourceInfo::measured("step", vec![Rail::counted("all")], 1);
            Box::new(Self(info, high.clone()))
        }
    }

    impl Source for Step {
        fn info(&self) -> &SourceInfo {
            &self.0
        }

        fn read(&mut self, _: &Usage) -> Result<Vec<Value>, MeterError> {
            Ok(vec![Value::Watts(if self.1.load(Ordering::SeqCst) { 8.0 } else { 3.0 })])
        }
    }

    fn plan(sources: Vec<Box<dyn Source>>, idle_ms: u64, output: Option<PathBuf>) -> Plan {
        let interval = Duration::from_millis(10);
        let (machine, labels) = (BTreeMap::new(), BTreeMap::new());
        let (idle, hurry) = (Duration::from_millis(idle_ms), Arc::default());
        Plan { interval, idle, sources, output, machine, labels, hurry }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn measures_command_and_subtracts_idle_power() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let (high, mut pids) = (Arc::<AtomicBool>::default(), vec![]);
        let script = "test -S \"$TACIT_MARKS\" && sleep 0.3; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 3";
        let started = |pid: Option<u32>| {
            high.fetch_or(pid.is_some(), Ordering::SeqCst);
            pids.push(pid);
        };
        let plan = plan(vec![Step::boxed(&high)], 400, Some(path.clone()));
        let measured = measure(shell(script), plan, started).unwrap();
        assert!(matches!(pids[..], [Some(1..), None]), "{pids:?}");
        assert_eq!(measured.status.code(), Some(3));
        let summary = &measured.summary;
        assert!(summary.duration_s >= 0.3);
        let program = summary.parties[PARTY];
        assert!(program.user_s + program.system_s > 0.0, "{program:?}: sampled before it was reaped");
        let baseline = measured.baselines["step"];
        // On a busy machine a reading lags more behind its sample's time, so the drift is not
        // exactly 5 W.
        assert!((baseline.drift_w - 5.0).abs() < 2.5, "{baseline:?}");
        let energy = summary.energy["step"];
        let observed_s = energy.idle_j.unwrap() / baseline.mean_w;
        assert!(observed_s > 0.0, "{energy:?}");
        assert!(observed_s < summary.duration_s + 10.0, "{energy:?}");
        assert!((energy.gross_j - energy.idle_j.unwrap() - energy.net_j.unwrap()).abs() < 1e-9, "{energy:?}");
        assert!(energy.net_sd_j.unwrap() > 0.2 * summary.duration_s, "{energy:?}");
        assert_eq!(summary.party_energy[PARTY].gross_j, energy.gross_j);
        let record = read_record(&path).unwrap();
        assert_eq!((record.summary.as_ref(), record.incomplete), (Some(summary), None));
    }

    #[test]
    fn without_source_only_joules_are_absent() {
        let begin = Instant::now();
        let measured = measure(shell("true"), plan(vec![], 100_000, None), |_| {}).unwrap();
        assert!(measured.status.success());
        assert!(begin.elapsed().as_secs() < 100);
        assert!(measured.summary.energy.is_empty());
        assert!(measured.summary.party_energy.is_empty());
        assert!(measured.baselines.is_empty());
        assert!(measured.phases.is_empty());
        assert!(measured.summary.parties.contains_key(PARTY));
        assert!(measured.interfaces.contains_key("lo"));
    }

    #[test]
    fn hurry_skips_idle_measurement() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let plan = plan(vec![Step::boxed(&Arc::default())], 3_600_000, Some(path.clone()));
        plan.hurry.store(true, Ordering::SeqCst);
        let measured = measure(shell("true"), plan, |_| {}).unwrap();
        assert!(measured.baselines.is_empty());
        assert_eq!(read_record(&path).unwrap().incomplete, None);
    }

    #[test]
    fn names_missing_command() {
        let error = measure(Command::new("/nonexistent/program"), plan(vec![], 0, None), |_| {}).err().unwrap();
        assert!(error.to_string().contains("/nonexistent/program"), "{error}");
    }
}
