//! A recorded run beside the simulator. A recording of a simulated server replays to the same
//! figures, and each way in which a real server differs has a figure of its own.

use crate::mix;
use tacit_sched::profile::{Sample, Speedup};
use tacit_sched::{BoundTo, ModelSpec, Outcome, PhaseSpec, Span, Time};
use tacit_sim::{
    Arrival, Arrivals, Comparison, RecordedInput, RecordedJob, Recording, Run, RunFile, Summary, Workload, ratio,
};

fn model(name: &str, pre: f64, on: f64) -> ModelSpec {
    let phase = |secs| PhaseSpec { first: Sample { time: Span::from_secs(secs), memory: 0 }, speedup: Speedup::None };
    ModelSpec {
        name: name.into(),
        backend: "test".into(),
        link: "loopback".into(),
        binding: BoundTo::Client,
        material_bytes: 0,
        dealt: false,
        pre: Some(phase(pre)),
        on: phase(on),
    }
}

fn workload(notices: f64) -> Workload {
    let mut workload = Workload::new(mix(3, 1), Arrivals::Poisson(0.5), notices);
    (workload.requests, workload.notice_lead) = (40, Span::from_secs(5.0));
    workload
}

/// Returns the recording of a server that has run no job.
fn recording(policy: &str, cores: u32, arrivals: Vec<Arrival>, notices: f64) -> Recording {
    Recording {
        believed: vec![model("small", 1.0, 0.5), model("large", 6.0, 1.0)],
        cores,
        dealings: 0,
        policy: policy.parse().unwrap(),
        workload: workload(notices),
        inputs: vec![RecordedInput::default(); arrivals.len()],
        arrivals,
    }
}

/// Simulates a workload and records the run.
fn as_simulated(policy: &str, cores: u32, notices: f64) -> Recording {
    let mut recording = recording(policy, cores, workload(notices).draw(3), notices);
    let run = recording.scenario(cores).run(0).unwrap();
    record(&mut recording, &run);
    recording
}

/// Records a simulated run in the form of a server's recording.
fn record(recording: &mut Recording, run: &Run) {
    for report in &run.reports {
        assert_eq!(report.outcome, Outcome::Done);
        let job = |start: Option<Time>, end: Option<Time>, queued: Time| {
            Some(RecordedJob { queued: queued.secs(), from: start?.secs(), to: end?.secs() })
        };
        let ready = report.pre.finished.unwrap().max(report.arrived);
        recording.inputs[report.input.request.0 as usize] = RecordedInput {
            known: report.arrived.min(report.pre.started.unwrap()).secs(),
            arrived: report.arrived.secs(),
            pre: job(report.pre.started, report.pre.finished, report.arrived.min(report.pre.started.unwrap())),
            on: job(report.on.started, report.on.finished, ready),
        };
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6 * b.abs().max(1.0)
}

#[test]
fn a_recorded_simulation_replays_without_deviation() {
    for policy in ["sequential", "fcfs", "priority:0.1", "adaptive"] {
        for notices in [0.0, 0.25] {
            let recording = as_simulated(policy, 2, notices);
            let (comparison, (scenario, simulated)) = Comparison::from_recording(&recording).unwrap();
            assert!(close(comparison.ratio, 1.0), "{policy} {notices}: {comparison:?}");
            assert!(close(comparison.replayed_ratio, 1.0), "{comparison:?}");
            assert!(close(comparison.job_ratio, 1.0), "{comparison:?}");
            assert_eq!(comparison.reason(), None);
            assert_eq!(simulated.arrivals, recording.arrivals);
            // The recording has the figures of the simulated run.
            let (live, played) = (recording.run(), Summary::from_run(&simulated, &scenario));
            let figures = Summary::from_run(&live, &scenario);
            assert_eq!((figures.all.done, played.all.done), (40, 40));
            for (a, b) in [
                (figures.all.input_delay, played.all.input_delay),
                (figures.all.waiting_time, played.all.waiting_time),
                (figures.makespan, played.makespan),
                (figures.core_use, played.core_use),
            ] {
                assert!(close(a, b), "{policy} {notices}: {a} {b}");
            }
            let file = serde_json::to_value(RunFile::from_run(&scenario, 0, &live)).unwrap();
            assert_eq!((file["jobs"].as_array().unwrap().len(), file["inputs"].as_array().unwrap().len()), (80, 40));
            assert!(live.samples.iter().all(|sample| sample.cores <= 2));
            assert!(live.samples.last().unwrap().cores == 0);
        }
    }
}

#[test]
fn learned_times_are_medians_of_the_last_jobs() {
    let mut recording = as_simulated("fcfs", 2, 0.0);
    for input in &mut recording.inputs {
        input.on = input.on.map(|job| RecordedJob { to: job.from + 0.7, ..job });
    }
    let learned = recording.learned_models();
    // The estimate of each model is the median of its last nine jobs; the large model has ten jobs,
    // the small one thirty.
    assert!(learned.iter().all(|model| close(model.on.first.time.secs(), 0.7)));
    assert!(close(learned[1].pre.unwrap().first.time.secs(), 6.0));
    let few_inputs = Recording { inputs: vec![RecordedInput::default(); 40], ..recording };
    assert_eq!(few_inputs.learned_models(), few_inputs.believed);
    assert_eq!(few_inputs.measured_models(), few_inputs.believed);
}

#[test]
fn simulated_times_are_means_of_the_jobs() {
    let mut recording = as_simulated("fcfs", 2, 0.0);
    // One of the small model's jobs took very long. The median stays the same, but the other
    // requests wait for that job.
    let slow = recording.arrivals.iter().position(|a| a.model == 0).unwrap();
    recording.inputs[slow].on = recording.inputs[slow].on.map(|job| RecordedJob { to: job.from + 30.5, ..job });
    let small = recording.arrivals.iter().filter(|a| a.model == 0).count() as f64;
    let [learned, measured] =
        [recording.learned_models(), recording.measured_models()].map(|m| m[0].on.first.time.secs());
    assert!(close(learned, 0.5), "{learned} {measured}");
    assert!(close(measured, 0.5 + 30.0 / small), "{learned} {measured}");
}

fn arrival(at: f64, client: u64, model: u32) -> Arrival {
    Arrival { at: Time::from_secs(at), client, model, inputs: 1, lead: None, leaves: None }
}

fn job(queued: f64, from: f64, to: f64) -> Option<RecordedJob> {
    Some(RecordedJob { queued, from, to })
}

#[test]
fn names_slowdown_by_jobs_side_by_side() {
    // Four small jobs alone, then eight at once on two cores that take three times as long, and so on.
    let mut recording = recording("fcfs", 2, vec![], 0.0);
    for i in 0..32u64 {
        for k in 0..12 {
            let (at, times) = if k < 4 { (3.0 * k as f64, 1.0) } else { (12.0, 3.0) };
            let at = 50.0 * i as f64 + at;
            recording.arrivals.push(arrival(at, 12 * i + k, 0));
            let (pre, on) = (job(at, at, at + times), job(at + times, at + times, at + 1.5 * times));
            recording.inputs.push(RecordedInput { known: at, arrived: at, pre, on });
        }
    }
    let run = recording.replay(2, false).run(0).unwrap();
    record(&mut recording, &run);
    // The last jobs ran side by side, so the server has learned three times the duration for all.
    let (comparison, _) = Comparison::from_recording(&recording).unwrap();
    assert!(close(comparison.side_by_side.unwrap(), 3.0), "{comparison:?}");
    assert!(close(comparison.replayed_ratio, 1.0), "{comparison:?}");
    assert!((0.8..0.9).contains(&comparison.ratio), "{comparison:?}");
    assert!(close(comparison.job_ratio, 7.0 / 9.0), "{comparison:?}");
    let reason = comparison.reason().unwrap();
    for part in
        ["the job times do it", "1.00 of live", "0.78 times what the server had learned", "3.00 times as long as alone"]
    {
        assert!(reason.contains(part), "{part} is not in {reason}");
    }
}

#[test]
fn names_delay_by_clients_that_come_late() {
    // One core. The large job took the core before the first request's T_on, because that client
    // came a moment after its T_pre had ended.
    let mut recording = recording("sequential", 1, vec![arrival(0.0, 0, 0), arrival(0.5, 1, 1)], 0.0);
    recording.inputs = vec![
        RecordedInput { known: 0.0, arrived: 0.0, pre: job(0.0, 0.0, 1.0), on: job(1.001, 7.0, 7.5) },
        RecordedInput { known: 0.5, arrived: 0.5, pre: job(0.5, 1.0, 7.0), on: job(7.001, 7.5, 8.5) },
    ];
    let (comparison, _) = Comparison::from_recording(&recording).unwrap();
    assert!(close(comparison.live, (7.5 + 8.0) / 2.0));
    assert!(
        close(comparison.replayed, (1.5 + 8.0) / 2.0),
        "a client that is there is answered at once: {comparison:?}"
    );
    assert!(close(comparison.handed_ratio, 1.0), "{comparison:?}");
    assert_eq!(comparison.passed, 1.0);
    let reason = comparison.reason().unwrap();
    for part in
        ["when notices, requests and clients come does it", "0.61 of live", "and 1.00 ", "100 % of the requests"]
    {
        assert!(reason.contains(part), "{part} is not in {reason}");
    }
}

#[test]
fn names_delay_by_reordered_notices() {
    let announced = |at, client, model| Arrival { lead: Some(Span::from_secs(at)), ..arrival(at, client, model) };
    // Both requests are announced at the beginning, the large model's a moment later; dealings run
    // one at a time.
    let mut recording = recording("fcfs", 1, vec![announced(20.0, 0, 1), announced(1.5, 1, 0)], 1.0);
    (recording.dealings, recording.believed[0].dealt, recording.believed[1].dealt) = (1, true, true);
    recording.inputs = vec![
        RecordedInput { known: 0.001, arrived: 20.0, pre: job(0.002, 1.0, 7.0), on: job(20.25, 20.25, 21.25) },
        RecordedInput { known: 0.0, arrived: 1.5, pre: job(0.003, 0.0, 1.0), on: job(1.75, 1.75, 2.25) },
    ];
    let (comparison, _) = Comparison::from_recording(&recording).unwrap();
    assert!(close(comparison.live, (1.25 + 0.75) / 2.0), "{comparison:?}");
    assert!(close(comparison.replayed, (1.0 + 6.0) / 2.0), "the small one waits for the large one: {comparison:?}");
    assert!(close(comparison.handed_ratio, 1.0), "{comparison:?}");
    assert!(comparison.reason().unwrap().starts_with("when notices, requests and clients come does it"));
}

#[test]
fn states_an_unexplained_deviation() {
    let mut recording = recording("fcfs", 2, vec![arrival(0.0, 0, 0)], 0.0);
    // The offline job waited two seconds on an idle server.
    recording.inputs =
        vec![RecordedInput { known: 0.0, arrived: 0.0, pre: job(0.0, 2.0, 3.0), on: job(3.0, 3.0, 3.5) }];
    let reason = Comparison::from_recording(&recording).unwrap().0.reason().unwrap();
    assert!(reason.starts_with("not explained"), "{reason}");
}

/// The mean delay of the replay on this many cores.
fn delay(recording: &Recording, cores: u32) -> f64 {
    let scenario = recording.replay(cores, true);
    Summary::from_run(&scenario.run(0).unwrap(), &scenario).all.input_delay
}

#[test]
fn more_cores_do_not_delay_and_unanswered_requests_end() {
    let recording = as_simulated("sequential", 1, 0.25);
    assert!(close(delay(&recording, 8), delay(&recording, 1)));
    let mut recording = as_simulated("fcfs", 1, 0.25);
    assert!(delay(&recording, 8) < delay(&recording, 1));
    recording.inputs[0] = RecordedInput { known: 1.0, arrived: 1.0, pre: None, on: None };
    let (run, scenario) = (recording.run(), recording.scenario(1));
    let figures = Summary::from_run(&run, &scenario);
    assert_eq!((figures.all.done, run.reports.len()), (39, 40));
}

#[test]
fn recorded_jobs_never_share_a_core() {
    let mut recording = recording("fcfs", 1, vec![arrival(0.0, 0, 0), arrival(0.1, 1, 0)], 0.0);
    // The server recorded the first job's end after it had answered the client.
    recording.inputs = vec![
        RecordedInput { known: 0.0, arrived: 0.0, pre: job(0.0, 0.0, 1.002), on: job(1.003, 2.0, 2.5) },
        RecordedInput { known: 0.1, arrived: 0.1, pre: job(0.1, 1.0, 2.001), on: job(2.002, 2.5, 3.0) },
    ];
    let run = recording.run();
    let ends: Vec<f64> = run.jobs.iter().map(|job| job.to).collect();
    assert_eq!(ends, [1.0, 2.0, 2.5, 3.0]);
    assert!(run.samples.iter().all(|sample| sample.cores <= 1 && sample.pre <= 1));
    assert!(close(Summary::from_run(&run, &recording.scenario(1)).all.input_delay, (2.5 + 2.9) / 2.0));
}

#[test]
fn ratio_of_zeros_is_one() {
    assert_eq!((ratio(0.0, 0.0), ratio(1.0, 2.0)), (1.0, 0.5));
    assert!(ratio(1.0, 0.0).is_infinite());
}
