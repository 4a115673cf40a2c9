//! The simulator: same seed, same run; every request ends; figures that can be worked out by hand.

use tacit_sched::policy::PolicySpec;
use tacit_sched::sim::experiment::{Setting, Stock};
use tacit_sched::sim::page::{Panel, page};
use tacit_sched::sim::{
    Ahead, Arrivals, Batches, Bounds, Mix, ProfileFile, RunFile, Scenario, Summary, Workload, parse_trace,
};
use tacit_sched::{Config, Outcome, SchedError, Span};

const PROFILE: &str = r#"{
  "backend": "test", "link": "loopback", "models": {
    "small": {"pre": {"wall_s": 1.0, "peak_rss_bytes": 1000}, "on": {"wall_s": 0.5, "load_s": 0.5, "peak_rss_bytes": 2000},
              "key_bytes_server": 10, "key_bytes_client": 10},
    "large": {"pre": {"wall_s": 20.0, "peak_rss_bytes": 50000}, "on": {"wall_s": 10.0, "peak_rss_bytes": 90000},
              "key_bytes_server": 1000, "key_bytes_client": 1000}
  }
}"#;

fn profile() -> ProfileFile {
    ProfileFile::parse(PROFILE).unwrap()
}

fn workload(requests: usize, arrivals: Arrivals) -> Workload {
    let mix = Mix { name: "test".into(), counts: vec![("small".into(), 9), ("large".into(), 1)] };
    Workload { requests, ..Workload::new(mix, arrivals, 0.25) }
}

fn scenario(policy: &str, workload: Workload) -> Scenario {
    Setting::new(policy.parse::<PolicySpec>().unwrap(), 4, workload).scenario(&profile()).unwrap()
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let mut scenario = scenario("adaptive", workload(200, Arrivals::Poisson(0.5)));
    (scenario.spread, scenario.failures) = (1.5, 0.05);
    let text = |seed| serde_json::to_string(&RunFile::of(&scenario, 0, &scenario.run(seed).unwrap())).unwrap();
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
            let mut setting = Setting::new("adaptive".parse().unwrap(), 4, load);
            setting.stock = stock;
            setting.on_threads = Config::thread_counts(4);
            let mut scenario = setting.scenario(&profile()).unwrap();
            scenario.failures = 0.02;
            let run = scenario.run(3).unwrap();
            let sent: u32 = run.arrivals.iter().map(|a| a.inputs).sum();
            assert_eq!(run.reports.len(), sent as usize, "{arrivals:?} {stock:?}");
            assert!(run.refused.is_empty());
            let done = run.reports.iter().filter(|r| r.outcome == Outcome::Done).count();
            assert!(done * 2 > run.reports.len(), "{arrivals:?} {stock:?}: only {done} done");
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
        let drawn = workload(20_000, arrivals.clone()).draw(5);
        let rate = 20_000.0 / drawn.last().unwrap().at.secs();
        assert!((rate / 2.0 - 1.0).abs() < 0.04, "{arrivals:?}: {rate}");
        let announced = drawn.iter().filter(|a| a.lead.is_some()).count();
        assert!((announced as f64 / 20_000.0 - 0.25).abs() < 0.02);
    }
}

#[test]
fn a_trace_gives_the_figures_worked_out_by_hand() {
    let (mix, trace) = parse_trace("# three requests\n0, 1, small\n0, 2, small, 1, 5\n10, 1, large\n").unwrap();
    let mut scenario = scenario("fcfs", Workload::new(mix.clone(), Arrivals::Poisson(1.0), 0.0));
    scenario.trace = Some(trace);
    let run = scenario.run(0).unwrap();
    let s = Summary::of(&run, &mix, 4, 1 << 38);
    // small: 1 + 1 s, twice; large: 20 + 10 s. The notice comes at time zero, with its request.
    assert!((s.all.input_delay - (2.0 + 2.0 + 30.0) / 3.0).abs() < 1e-9, "{}", s.all.input_delay);
    assert!((s.all.waiting_time - (1.0 + 1.0 + 20.0) / 3.0).abs() < 1e-9);
    assert!((s.makespan - 40.0).abs() < 1e-9);
    assert!((s.core_use - 34.0 / 160.0).abs() < 1e-9);
    let bounds = Bounds::of(&run.arrivals, &scenario.models, &scenario.config, Ahead::Notices);
    assert!((bounds.alone - 34.0 / 3.0).abs() < 1e-9);
    for bad in ["x,1,small", "1,small", "1,1", "-1,1,small", "1,1,small,nan"] {
        assert!(matches!(parse_trace(bad), Err(SchedError::BadFile { line: 1, .. })), "{bad}");
    }
}

/// So its worst delays are the paper's, by construction. Only threads, pools and deadlines make a difference.
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
fn no_policy_beats_the_bound() {
    for (stock, rate, memory) in [
        (Stock::None, 0.9, 1 << 30),
        (Stock::None, 3.0, 150_000),
        (Stock::Cold, 0.9, 1 << 30),
        (Stock::Cold, 3.0, 150_000),
        (Stock::Full, 3.0, 1 << 30),
    ] {
        for seed in 0..3 {
            let mut bounds = None;
            for policy in ["fcfs", "priority", "sequential", "srt", "adaptive"] {
                let mut setting = Setting::new(policy.parse().unwrap(), 4, workload(150, Arrivals::Poisson(rate)));
                (setting.stock, setting.on_threads) = (stock, vec![1, 2, 4]);
                let mut scenario = setting.scenario(&profile()).unwrap();
                scenario.config.capacity.memory = memory;
                let run = scenario.run(seed).unwrap();
                // The requests are the same for all policies, and so are the bounds.
                let bounds = bounds.get_or_insert_with(|| {
                    let ahead = match stock {
                        Stock::None => Ahead::Notices,
                        Stock::Cold | Stock::Full => Ahead::Pool { stock: &run.stock },
                    };
                    (run.arrivals.clone(), Bounds::of(&run.arrivals, &scenario.models, &scenario.config, ahead))
                });
                assert_eq!(bounds.0, run.arrivals);
                let bounds = bounds.1;
                let d = Summary::of(&run, &scenario.workload.mix, 4, 1).all.input_delay;
                assert!(d >= bounds.best() * 0.999_999, "{policy}, {stock:?}, rate {rate}: {d} is below {bounds:?}");
                // Under overload prices prove more than a machine to itself does.
                assert!(rate < 2.0 || stock != Stock::None || bounds.priced > 1.2 * bounds.alone, "{bounds:?}");
            }
        }
    }
}

#[test]
fn the_page_is_complete_and_self_contained() {
    let mut scenario = scenario("adaptive", workload(60, Arrivals::Poisson(1.0)));
    scenario.timeline = true;
    let run = scenario.run(0).unwrap();
    assert_eq!(run.jobs.len(), 120);
    let html = page("a <title> & more", &[Panel { label: "adaptive".into(), scenario: &scenario, run: &run }]);
    assert!(html.contains("a &lt;title&gt; &amp; more") && html.ends_with("</html>\n"));
    assert!(html.matches("<title>").count() > 120, "a tooltip for every job");
    for outside in ["<script", "src=", "@import"] {
        assert!(!html.contains(outside), "{outside}");
    }
}
