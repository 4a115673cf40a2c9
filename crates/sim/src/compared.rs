//! A recorded run beside what the simulator makes of it: how far off it is, and why.

use crate::engine::Run;
use crate::error::SimError;
use crate::metrics::Summary;
use crate::recorded::{RecordedJob, Recording};
use crate::scenario::Scenario;
use serde::Serialize;
use std::collections::BTreeMap;
use tacit_sched::JobPhase;

/// Simulated over live: further from 1 than this needs a reason.
pub const TOLERANCE: f64 = 0.10;

/// A recorded run beside simulated ones of the same arrivals and policy. Times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// D of the recording.
    pub live: f64,
    /// D where every job takes what the learned profile says.
    pub simulated: f64,
    /// `simulated` over `live`; 1 where both are 0.
    pub ratio: f64,
    /// D where every job takes what it took in the recording.
    pub replayed: f64,
    /// `replayed` over `live`.
    pub replayed_ratio: f64,
    /// What the jobs took in all, over what the profile says that they take.
    pub job_ratio: f64,
    /// Mean length of jobs that ran beside another over that of jobs of the same kind that ran alone; none
    /// where no kind did both.
    pub side_by_side: Option<f64>,
    /// Mean time from the end of T_pre to the client's coming for T_on, of requests that were not announced.
    pub gap: f64,
}

/// `a / b`, where nothing over nothing is no difference.
pub fn ratio(a: f64, b: f64) -> f64 {
    match (a, b) {
        (a, b) if b > 0.0 => a / b,
        (a, _) if a > 0.0 => f64::INFINITY,
        _ => 1.0,
    }
}

fn is_off(ratio: f64) -> bool {
    // A hair more than the tolerance, for what decimal fractions lose.
    (ratio - 1.0).abs() > TOLERANCE + 1e-9
}

/// What the simulator made of a recording.
pub struct Simulated {
    /// With the learned profile.
    pub profile: (Scenario, Run),
    /// With the recorded times.
    pub replay: (Scenario, Run),
}

impl Comparison {
    /// Plays the recording again at its own number of cores.
    ///
    /// # Errors
    /// A configuration that the scheduler refuses.
    pub fn of(recording: &Recording) -> Result<(Self, Simulated), SimError> {
        let played = |scenario: Scenario| scenario.run(0).map(|run| (scenario, run));
        let profile = played(recording.scenario(recording.cores))?;
        let replay = played(recording.replay(recording.cores))?;
        let delay = |(scenario, run): &(Scenario, Run)| Summary::of(run, scenario).all.input_delay;
        let live = Summary::of(&recording.run(), &profile.0).all.input_delay;
        let (simulated, replayed) = (delay(&profile), delay(&replay));
        let compared = Self {
            live,
            simulated,
            ratio: ratio(simulated, live),
            replayed,
            replayed_ratio: ratio(replayed, live),
            job_ratio: job_ratio(recording),
            side_by_side: side_by_side(recording),
            gap: gap(recording),
        };
        Ok((compared, Simulated { profile, replay }))
    }

    /// Why the simulator is off by more than [`TOLERANCE`], in words; none where it is not. What is told are
    /// measured figures: where none of them explains it, that is said.
    pub fn reason(&self) -> Option<String> {
        if !is_off(self.ratio) {
            return None;
        }
        let mut parts = Vec::new();
        if is_off(self.job_ratio) {
            parts.push(format!("jobs took {:.2} times what the profile says", self.job_ratio));
        }
        if let Some(times) = self.side_by_side.filter(|times| is_off(*times)) {
            parts.push(format!(
                "a job beside another took {times:.2} times as long as alone (both halves share the two parties' cores)"
            ));
        }
        if self.gap > TOLERANCE * self.live {
            parts.push(format!(
                "clients came for T_on {:.3} s after T_pre had ended (the phase waits for its peer)",
                self.gap
            ));
        }
        let times = match is_off(self.replayed_ratio) {
            false => format!("job times explain it: with the recorded ones D is {:.2} of live", self.replayed_ratio),
            true => format!(
                "job times alone do not explain it: with the recorded ones D is {:.2} of live",
                self.replayed_ratio
            ),
        };
        parts.insert(0, times);
        Some(parts.join("; "))
    }
}

/// What jobs took over what the learned profile says.
fn job_ratio(recording: &Recording) -> f64 {
    let models = recording.learned();
    let (mut took, mut said) = (0.0, 0.0);
    for (i, phase, job) in recording.jobs() {
        let model = &models[recording.arrivals[i].model as usize];
        let spec = if phase == JobPhase::On { Some(model.on) } else { model.pre };
        took += job.length();
        said += spec.map_or(0.0, |spec| spec.first.time.secs());
    }
    ratio(took, said)
}

/// Share of a job's time in which another one ran.
fn overlap(job: &RecordedJob, at: usize, jobs: &[RecordedJob]) -> f64 {
    let mut parts: Vec<(f64, f64)> = jobs
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != at)
        .map(|(_, other)| (other.from.max(job.from), other.to.min(job.to)))
        .filter(|(from, to)| from < to)
        .collect();
    parts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut covered, mut until) = (0.0, job.from);
    for (from, to) in parts {
        covered += (to - from.max(until)).max(0.0);
        until = until.max(to);
    }
    covered / job.length().max(1e-9)
}

/// By kind (model and phase) the mean length of jobs that mostly ran beside another over that of those that
/// ran alone; the mean over the kinds, weighted by the time of jobs beside another.
fn side_by_side(recording: &Recording) -> Option<f64> {
    let jobs: Vec<_> = recording.jobs().collect();
    let bare: Vec<RecordedJob> = jobs.iter().map(|(_, _, job)| *job).collect();
    // Seconds and number, alone and beside another.
    let mut kinds: BTreeMap<(u32, JobPhase), [(f64, u32); 2]> = BTreeMap::new();
    for (at, (i, phase, job)) in jobs.iter().enumerate() {
        let which = match overlap(job, at, &bare) {
            share if share < 0.1 => 0,
            share if share >= 0.5 => 1,
            _ => continue,
        };
        let sum = &mut kinds.entry((recording.arrivals[*i].model, *phase)).or_default()[which];
        *sum = (sum.0 + job.length(), sum.1 + 1);
    }
    let (mut weighted, mut weights) = (0.0, 0.0);
    for [alone, beside] in kinds.values() {
        if alone.1 > 0 && beside.1 > 0 && alone.0 > 0.0 {
            let means = [alone, beside].map(|(seconds, n)| seconds / f64::from(*n));
            weighted += beside.0 * means[1] / means[0];
            weights += beside.0;
        }
    }
    (weights > 0.0).then(|| weighted / weights)
}

fn gap(recording: &Recording) -> f64 {
    let plain = recording.inputs.iter().zip(&recording.arrivals).filter(|(_, arrival)| arrival.lead.is_none());
    let gaps: Vec<f64> = plain.filter_map(|(input, _)| Some((input.on?.queued - input.pre?.to).max(0.0))).collect();
    gaps.iter().sum::<f64>() / gaps.len().max(1) as f64
}
