//! The simulator: same seed, same run; every request ends; figures that can be worked out by hand.

use crate::{mix, profile};
use tacit_sched::profile::Speedup;
use tacit_sched::{Config, Outcome, Span};
use tacit_sim::{Arrivals, Batches, ProfileFile, RunFile, Scenario, SimError, Stock, Summary, Workload, parse_trace};

fn workload(requests: usize, arrivals: Arrivals) -> Workload {
    Workload { requests, ..Workload::new(mix(9, 1), arrivals, 0.25) }
}

fn scenario(policy: &str, workload: Workload) -> Scenario {
    Scenario::new(&profile(20.0, 10.0), policy.parse().unwrap(), 4, workload).unwrap()
}

#[test]
fn shipped_profile_has_the_models_of_the_paper() {
    for name in ["swiftsnni-mixed", "swiftsnni-light"] {
        let workload = Workload::paper(name, 1.0, 0.0).unwrap();
        Scenario::new(&ProfileFile::shark(), "fcfs".parse().unwrap(), 4, workload).unwrap();
    }
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let mut scenario = scenario("adaptive", workload(200, Arrivals::Poisson(0.5)));
    (scenario.spread, scenario.failures) = (1.5, 0.05);
    let text = |seed| serde_json::to_string(&RunFile::from_run(&scenario, 0, &scenario.run(seed).unwrap())).unwrap();
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}

#[test]
fn every_input_ends_under_every_arrival_process() {
    let processes = [
        Arrivals::Poisson(1.0),
        Arrivals::Bursts { rate: 1.0, on: 5.0, off: 20.0 },
        Arrivals::Diurnal { rate: 1.0, period: 100.0, swing: 0.8 },
        Arrivals::Closed { clients: 7, think: 2.0 },
    ];
    for arrivals in processes {
        for stock in [Stock::None, Stock::Cold, Stock::Full] {
            let mut load = workload(300, arrivals.clone());
            load.batches = Batches::Geometric(2.0);
            load.timeout = Some(Span::from_secs(200.0));
            load.departures = 0.02;
            let threads = Config::thread_counts(4);
            let mut scenario =
                scenario("adaptive", load).with_stock(stock).with_on_threads(threads, Speedup::Amdahl(0.95));
            scenario.failures = 0.02;
            let run = scenario.run(3).unwrap();
            let sent: u32 = run.arrivals.iter().map(|a| a.inputs).sum();
            assert_eq!(run.reports.len(), sent as usize, "{arrivals:?} {stock:?}");
            assert!(run.refused.is_empty());
            let done_count = run.reports.iter().filter(|r| r.outcome == Outcome::Done).count();
            assert!(done_count * 2 > run.reports.len(), "{arrivals:?} {stock:?}: only {done_count} done");
        }
    }
}

#[test]
fn mean_rates_are_as_asked_for() {
    for arrivals in [
        Arrivals::Poisson(2.0),
        Arrivals::Bursts { rate: 2.0, on: 10.0, off: 30.0 },
        Arrivals::Diurnal { rate: 2.0, period: 50.0, swing: 0.5 },
    ] {
        let arrivals_drawn = workload(20_000, arrivals.clone()).draw(5);
        let rate = 20_000.0 / arrivals_drawn.last().unwrap().at.secs();
        assert!((rate / 2.0 - 1.0).abs() < 0.04, "{arrivals:?}: {rate}");
        let announced = arrivals_drawn.iter().filter(|a| a.lead.is_some()).count();
        assert!((announced as f64 / 20_000.0 - 0.25).abs() < 0.02);
    }
}

#[test]
fn a_trace_gives_the_figures_worked_out_by_hand() {
    let (mix, trace) = parse_trace("# three requests\n0, 1, small\n0, 2, small, 1, 5\n10, 1, large\n").unwrap();
    let mut scenario = scenario("fcfs", Workload::new(mix, Arrivals::Poisson(1.0), 0.0));
    scenario.trace = Some(trace);
    let run = scenario.run(0).unwrap();
    let s = Summary::from_run(&run, &scenario);
    // small: 1 + 1 s, twice; large: 20 + 10 s. The notice comes at time zero, with its request.
    assert!((s.all.input_delay - (2.0 + 2.0 + 30.0) / 3.0).abs() < 1e-9, "{}", s.all.input_delay);
    assert!((s.all.waiting_time - (1.0 + 1.0 + 20.0) / 3.0).abs() < 1e-9);
    assert!((s.makespan - 40.0).abs() < 1e-9);
    assert!((s.core_use - 34.0 / 160.0).abs() < 1e-9);
    for line in ["x,1,small", "1,small", "1,1", "-1,1,small", "1,1,small,nan"] {
        assert!(matches!(parse_trace(line), Err(SimError::BadFile { line: 1, .. })), "{line}");
    }
}

#[test]
fn dealings_take_their_time_and_no_core() {
    let on_s =
        |run: &tacit_sim::Run| -> f64 { run.arrivals.iter().map(|a| if a.model == 0 { 1.0 } else { 10.0 }).sum() };
    let mut own_stock = scenario("fcfs", workload(200, Arrivals::Poisson(1.0)));
    own_stock.timeline = true;
    let dealt = own_stock.clone().with_dealings(3);
    let [own_stock, dealt] = [own_stock, dealt].map(|scenario| (scenario.run(3).unwrap(), scenario));
    assert!((dealt.0.core_seconds - on_s(&dealt.0)).abs() < 1e-6);
    assert!(own_stock.0.core_seconds > dealt.0.core_seconds);
    let delay = |(run, scenario): &(tacit_sim::Run, Scenario)| Summary::from_run(run, scenario).all.input_delay;
    assert!(delay(&dealt) < delay(&own_stock), "{} and {}", delay(&dealt), delay(&own_stock));
    // No more at a time than there may be, and they are on no core of the picture.
    let jobs = |threads: u32| dealt.0.jobs.iter().filter(move |job| job.threads == threads);
    assert_eq!((jobs(0).count(), jobs(1).count()), (200, 200));
    let max_at_once =
        jobs(0).map(|current| jobs(0).filter(|job| job.from <= current.from && current.from < job.to).count()).max();
    assert_eq!(max_at_once, Some(3));
    // A pool of material is filled while the cores are busy.
    let mut busy = dealt.1.with_stock(Stock::Cold);
    (busy.config.capacity.cores, busy.config.capacity.dealings) = (1, 12);
    let run = busy.run(3).unwrap();
    let from_stock = run.reports.iter().filter(|report| report.source == tacit_sched::Source::Pool).count();
    assert!(from_stock > 100, "{from_stock} of 200");
}

/// Only threads, pools and deadlines make a difference, so the worst delays are the paper's.
#[test]
fn with_one_thread_a_job_adaptive_is_the_papers_policy() {
    for (rate, memory) in [(0.5, 1 << 30), (3.0, 150_000)] {
        let runs = ["priority", "adaptive"].map(|policy| {
            let mut load = workload(300, Arrivals::Poisson(rate));
            (load.batches, load.departures) = (Batches::Geometric(2.0), 0.02);
            let mut scenario = scenario(policy, load);
            scenario.config.capacity.memory = memory;
            (scenario.spread, scenario.failures) = (1.5, 0.02);
            scenario.run(4).unwrap()
        });
        assert!(runs[0].reports.len() > 300);
        assert_eq!(runs[0].reports, runs[1].reports);
    }
}

#[test]
fn the_run_file_has_inputs_jobs_and_queues() {
    let mut scenario = scenario("adaptive", workload(60, Arrivals::Poisson(1.0)));
    scenario.timeline = true;
    let run = scenario.run(0).unwrap();
    let file = serde_json::to_value(RunFile::from_run(&scenario, 0, &run)).unwrap();
    assert_eq!((&file["format"], &file["version"]), (&"tacit-simulation".into(), &1.into()));
    let rows = |name: &str| file[name].as_array().unwrap().clone();
    assert_eq!((rows("inputs").len(), rows("jobs").len(), rows("models").len()), (60, 120, 2));
    assert_eq!(rows("samples").len() as u64, run.events);
    // The file says what every job held, so the cores' time can be added up again.
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let core_seconds = |job: &serde_json::Value| number(&job["threads"]) * (number(&job["to"]) - number(&job["from"]));
    assert!((rows("jobs").iter().map(core_seconds).sum::<f64>() / run.core_seconds - 1.0).abs() < 1e-9);
    // Each input has its times in the queues.
    let waits = ["in_pre_queue", "in_pre", "in_ready_queue"];
    for input in rows("inputs") {
        let waited: f64 = waits.iter().map(|name| number(&input[name])).sum();
        assert!((waited - (number(&input["on_start"]) - number(&input["arrived"]))).abs() < 1e-9, "{input}");
    }
}

#[test]
fn streams_of_one_seed_are_drawn_apart() {
    let times = |notices, batches| {
        let load = Workload { notice_share: notices, batches, ..workload(50, Arrivals::Poisson(1.0)) };
        load.draw(7).iter().map(|a| (a.at, a.model)).collect::<Vec<_>>()
    };
    assert_eq!(times(0.0, Batches::Fixed(1)), times(0.5, Batches::Geometric(3.0)));
}
