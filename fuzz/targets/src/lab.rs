//! Experiment files: text that people write, and that a campaign's folder may bring from elsewhere.

use tacit_experiments::experiment::{BUILT_IN, Experiment, ExperimentSpec, plan};

/// Larger matrices take honest time and memory to plan.
const MAX_RUNS: usize = 1 << 14;

/// An experiment's TOML text.
pub(crate) fn experiment(data: &[u8]) {
    let Ok(spec) = ExperimentSpec::from_toml("fuzz", &String::from_utf8_lossy(data)) else {
        return;
    };
    let text = spec.to_toml().expect("what was TOML can be written as TOML");
    let again = ExperimentSpec::from_toml("again", &text).expect("what is written is read");
    let Ok(experiment) = Experiment::new(spec) else {
        return;
    };
    assert!(experiment.spec().differences(&again).is_empty(), "what is written is read as the same");
    let runs = experiment.spec().repetitions as usize + experiment.spec().warm_up as usize;
    if plan::cells(&experiment).len() * runs <= MAX_RUNS {
        let jobs = plan::remaining(&experiment, &[]);
        assert_eq!(jobs.len(), plan::cells(&experiment).len() * runs);
        assert!(plan::total(&experiment, &jobs).as_secs_f64().is_finite());
    }
}

pub(crate) fn experiment_seeds() -> Vec<Vec<u8>> {
    const OWN: &str = r#"
name = "own"
links = ["lan", { name = "slow", rate = "4mbit", rtt = "80ms", jitter = "5ms", loss = 0.01 }, "none"]
paces = ["none", "20mbit"]
values = { model = "{campaign}/m" }
seed = 3
[[workloads]]
name = "w"
client = "x '{model}' {server}:{port} {pace} {{brace"
server = 'y "{dir}"'
ready = "up"
environment = { A = "{seconds}" }
"#;
    BUILT_IN.iter().map(|b| b.text).chain([OWN]).map(|t| t.as_bytes().to_vec()).collect()
}
