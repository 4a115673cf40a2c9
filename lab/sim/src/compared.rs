//! Comparison of a recorded run with its simulation: the deviation, and its reason.

use crate::engine::Run;
use crate::error::SimError;
use crate::metrics::Summary;
use crate::recorded::{RecordedInput, Recording, RequestJob};
use crate::scenario::Scenario;
use serde::Serialize;
use std::collections::BTreeMap;
use tacit_sched::JobPhase;

/// Largest difference in seconds between a server's times of one moment.
const CLOCK_ERROR_S: f64 = 0.003;

/// Largest deviation from 1 of simulated over live that needs no reason.
pub const TOLERANCE: f64 = 0.10;

/// A recorded run beside simulated ones of the same arrivals and policy. Times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// D of the recording.
    pub live: f64,
    /// D if every job takes the mean of its kind in the recording.
    pub simulated: f64,
    /// `simulated` over `live`; 1 where both are 0.
    pub ratio: f64,
    /// D if every job takes its recorded time.
    pub replayed: f64,
    /// `replayed` over `live`.
    pub replayed_ratio: f64,
    /// D if, besides, notices and requests arrive at their recorded times, and clients come for
    /// T_on with the recorded delay after T_pre.
    pub handed: f64,
    /// `handed` over `live`.
    pub handed_ratio: f64,
    /// Total time of the jobs over their time by the server's profile table after the run.
    pub job_ratio: f64,
    /// Mean length of jobs that ran beside another over that of jobs of the same kind that ran
    /// alone; `None` without a kind that has both.
    pub side_by_side: Option<f64>,
    /// Mean time from the end of T_pre until the client came for T_on.
    pub gap: f64,
    /// Share of requests between whose phases another job started, so that their T_on waited.
    pub passed: f64,
}

/// `a / b`; 1 if both are 0.
pub fn ratio(a: f64, b: f64) -> f64 {
    match (a, b) {
        (a, b) if b > 0.0 => a / b,
        (a, _) if a > 0.0 => f64::INFINITY,
        _ => 1.0,
    }
}

fn is_off(ratio: f64) -> bool {
    // Slightly more than the tolerance, because of the rounding of decimal fractions.
    (ratio - 1.0).abs() > TOLERANCE + 1e-9
}

impl Comparison {
    /// Simulates the recording at its own number of cores; also returns the simulation with the
    /// profile.
    ///
    /// # Errors
    /// [`SimError::Scheduler`] if the scheduler refuses the configuration.
    pub fn from_recording(recording: &Recording) -> Result<(Self, (Scenario, Run)), SimError> {
        let profile = run_once(recording.scenario(recording.cores))?;
        let replay = run_once(recording.replay(recording.cores, false))?;
        let handed = run_once(recording.replay_recorded_arrivals())?;
        let live = Summary::from_run(&recording.run(), &profile.0).all.input_delay;
        let [simulated, replayed, handed] =
            [&profile, &replay, &handed].map(|(scenario, run)| Summary::from_run(run, scenario).all.input_delay);
        let compared = Self {
            live,
            simulated,
            ratio: ratio(simulated, live),
            replayed,
            replayed_ratio: ratio(replayed, live),
            handed,
            handed_ratio: ratio(handed, live),
            job_ratio: job_ratio(recording),
            side_by_side: side_by_side(recording),
            gap: gap(recording),
            passed: overtaken_share(recording),
        };
        Ok((compared, profile))
    }

    /// Describes why the simulation deviates by more than [`TOLERANCE`]; `None` if it does not.
    /// Uses only measured figures, and states if none of them explains the deviation.
    pub fn reason(&self) -> Option<String> {
        if !is_off(self.ratio) {
            return None;
        }
        let mut parts = Vec::new();
        if !is_off(self.replayed_ratio) {
            parts.push(format!("the job times do it: with those of the run D is {:.2} of live", self.replayed_ratio));
        } else if !is_off(self.handed_ratio) {
            let Self { replayed_ratio, handed_ratio, gap, passed, .. } = self;
            parts.push(format!(
                "when notices, requests and clients come does it: with the run's job times D is {replayed_ratio:.2} of live, and \
                 {handed_ratio:.2} where all come as they did, clients for T_on {gap:.4} s after T_pre",
            ));
            if *passed > 0.0 {
                let percent = 100.0 * passed;
                parts.push(format!(
                    "in that time another job started for {percent:.0} % of the requests, so that T_on waited"
                ));
            }
        } else {
            parts.push(format!(
                "not explained: with the run's job times D is {:.2} of live, and {:.2} where all come as they did",
                self.replayed_ratio, self.handed_ratio
            ));
        }
        if is_off(self.job_ratio) {
            parts.push(format!("jobs took {:.2} times what the server had learned", self.job_ratio));
        }
        if let Some(times) = self.side_by_side.filter(|times| is_off(*times)) {
            parts.push(format!(
                "beside another, a job took {times:.2} times as long as alone: they share the parties' cores"
            ));
        }
        Some(parts.join("; "))
    }
}

fn run_once(scenario: Scenario) -> Result<(Scenario, Run), SimError> {
    scenario.run(0).map(|run| (scenario, run))
}

/// Total time of the jobs over their time by the server's table after the run.
fn job_ratio(recording: &Recording) -> f64 {
    let models = recording.learned_models();
    let (mut took, mut predicted) = (0.0, 0.0);
    for RequestJob { request, phase, times } in recording.jobs() {
        let model = &models[recording.arrivals[request].model as usize];
        let spec = if phase == JobPhase::On { Some(model.on) } else { model.pre };
        took += times.length();
        predicted += spec.map_or(0.0, |spec| spec.first.time.secs());
    }
    ratio(took, predicted)
}

/// Share of a job's time in which another job ran. A job's end may be recorded after the next one's
/// start.
fn overlap(index: usize, jobs: &[RequestJob]) -> f64 {
    let job = jobs[index].times;
    let mut parts: Vec<(f64, f64)> = jobs
        .iter()
        .enumerate()
        .filter(|(other_index, _)| *other_index != index)
        .map(|(_, other)| other.times)
        .map(|other| (other.from.max(job.from), (other.to - CLOCK_ERROR_S).min(job.to)))
        .filter(|(start, end)| start < end)
        .collect();
    parts.sort_by(|a, b| tacit_floats::rising(&a.0, &b.0));
    let (mut covered, mut until) = (0.0, job.from);
    for (start, end) in parts {
        covered += (end - start.max(until)).max(0.0);
        until = until.max(end);
    }
    covered / job.length().max(1e-9)
}

/// Returns how much longer jobs take beside other jobs than alone, as a ratio of mean lengths. The
/// ratio is taken by kind (model and phase) and averaged, weighted by the time of jobs beside
/// others.
fn side_by_side(recording: &Recording) -> Option<f64> {
    let jobs: Vec<RequestJob> = recording.jobs().collect();
    // Seconds and number, alone and beside another.
    let mut kinds: BTreeMap<(u32, JobPhase), [(f64, u32); 2]> = BTreeMap::new();
    for (index, RequestJob { request, phase, times }) in jobs.iter().enumerate() {
        let kind = match overlap(index, &jobs) {
            share if share < 0.1 => 0,
            share if share >= 0.5 => 1,
            _ => continue,
        };
        let sum = &mut kinds.entry((recording.arrivals[*request].model, *phase)).or_default()[kind];
        *sum = (sum.0 + times.length(), sum.1 + 1);
    }
    let (mut weighted, mut weights) = (0.0, 0.0);
    for [without_overlap, with_overlap] in kinds.values() {
        if without_overlap.1 > 0 && with_overlap.1 > 0 && without_overlap.0 > 0.0 {
            let means = [without_overlap, with_overlap].map(|(seconds, n)| seconds / f64::from(*n));
            weighted += with_overlap.0 * means[1] / means[0];
            weights += with_overlap.0;
        }
    }
    (weights > 0.0).then(|| weighted / weights)
}

fn gap(recording: &Recording) -> f64 {
    let gaps: Vec<f64> = recording.inputs.iter().filter_map(RecordedInput::gap).collect();
    // The sum of an empty list is -0.
    gaps.iter().sum::<f64>().max(0.0) / gaps.len().max(1) as f64
}

fn overtaken_share(recording: &Recording) -> f64 {
    let starts: Vec<(usize, f64)> = recording.jobs().map(|job| (job.request, job.times.from)).collect();
    let passed = recording.inputs.iter().enumerate().filter(|(i, input)| {
        let (Some(pre), Some(on)) = (input.pre, input.on) else { return false };
        let (start, end) = (pre.to.max(input.arrived) - CLOCK_ERROR_S, on.queued + CLOCK_ERROR_S);
        on.from > end
            && starts.iter().any(|(other, start_of_other)| other != i && (start..=end).contains(start_of_other))
    });
    passed.count() as f64 / recording.inputs.len().max(1) as f64
}
