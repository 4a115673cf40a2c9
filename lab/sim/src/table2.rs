//! The paper's Table 2 beside this simulator's results.

use crate::cell::Cell;
use crate::error::SimError;
use crate::profile::ProfileFile;
use crate::scenario::Scenario;
use crate::workload::Workload;
use serde::Serialize;
use std::fmt::Write;
use std::ops::Range;
use tacit_sched::policy::PolicySpec;

/// One line of the paper's table, in seconds.
struct Paper {
    workload: &'static str,
    policy: &'static str,
    rate: f64,
    /// D without notices, D with 25 %, W, throughput, speed-up, makespan; NaN for figures that the
    /// paper lacks.
    figures: [f64; 6],
}

const NONE: f64 = f64::NAN;

/// [SS26] Table 2.
const PAPER: [Paper; 14] = [
    line("mixed", "sequential", 0.25, [2246.09, NONE, 2233.21, 0.08, 1.0, 6440.53]),
    line("mixed", "fcfs", 0.25, [19.88, 14.74, 15.94, 0.21, 2.71, 2367.76]),
    line("mixed", "fcfs", 0.5, [43.08, 38.15, 38.99, 0.22, 2.85, 2247.47]),
    line("mixed", "fcfs", 1.0, [79.60, 54.28, 75.39, 0.22, 2.85, 2254.55]),
    line("mixed", "priority", 0.25, [20.87, 17.38, 16.89, 0.21, 2.67, 2407.76]),
    line("mixed", "priority", 0.5, [45.14, 26.46, 41.07, 0.22, 2.77, 2319.72]),
    line("mixed", "priority", 1.0, [50.86, 38.34, 46.43, 0.35, 4.56, 1410.84]),
    line("light", "sequential", 0.25, [671.89, NONE, 665.38, 0.15, 1.0, 3257.26]),
    line("light", "fcfs", 0.25, [2.30, 2.29, 0.03, 0.27, 1.73, 1877.84]),
    line("light", "fcfs", 0.5, [2.51, 2.49, 0.17, 0.53, 3.45, 941.51]),
    line("light", "fcfs", 1.0, [5.24, 4.53, 2.26, 0.84, 5.46, 596.01]),
    line("light", "priority", 0.25, [2.31, 2.31, 0.03, 0.27, 1.73, 1877.86]),
    line("light", "priority", 0.5, [2.50, 2.50, 0.03, 0.53, 3.45, 939.82]),
    line("light", "priority", 1.0, [7.18, 6.40, 4.30, 0.74, 4.79, 677.44]),
];

const fn line(workload: &'static str, policy: &'static str, rate: f64, figures: [f64; 6]) -> Paper {
    Paper { workload, policy, rate, figures }
}

/// One line of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `mixed` or `light`.
    pub workload: String,
    /// Policy.
    pub policy: String,
    /// Requests per second. The paper states none for `sequential`; its figures fit 0.25.
    pub rate: f64,
    /// The paper's figures, in the order of its columns; `null` for missing ones.
    pub paper: [Option<f64>; 6],
    /// Simulated figures without notices.
    pub plain: Cell,
    /// Simulated figures with 25 % of the requests announced 60 s ahead.
    pub announced: Cell,
    /// Simulated makespan of `sequential` at 0.25 over that of this row.
    pub speedup: f64,
}

/// The algorithm of the paper with its policies: as printed, and with the model-batch exclusivity of
/// its section 6.
const VARIANTS: [&str; 2] = ["", "+exclusive"];

/// Runs the grid of Table 2 by the paper's algorithm and, in the same setting (one thread a job, no
/// pool), by the policies of this project, which have no figures in the paper.
///
/// # Errors
/// [`SimError::UnknownModel`] for a profile that lacks a model.
pub fn table2(profile: &ProfileFile, seeds: &Range<u64>, cores: u32) -> Result<Vec<Row>, SimError> {
    let mut rows = Vec::new();
    for workload in ["mixed", "light"] {
        let mut sequential = None;
        for (policy, rate, paper) in lines(workload) {
            let cell = |notices: f64| {
                let load = Workload::paper(&format!("swiftsnni-{workload}"), rate, notices)?;
                let scenario = Scenario::new(profile, policy.parse::<PolicySpec>()?, cores, load)?;
                Cell::measure(&policy, &scenario, seeds)
            };
            let (plain, announced) = (cell(0.0)?, cell(0.25)?);
            let baseline = *sequential.get_or_insert(plain.makespan.mean);
            rows.push(Row {
                workload: workload.into(),
                policy,
                rate,
                paper: paper.map(|x| Some(x).filter(|x| !x.is_nan())),
                speedup: baseline / plain.makespan.mean,
                plain,
                announced,
            });
        }
    }
    Ok(rows)
}

/// Policy, rate and the paper's figures of each row of a workload.
fn lines(workload: &str) -> Vec<(String, f64, [f64; 6])> {
    let paper = || PAPER.iter().filter(|p| p.workload == workload);
    let mut lines: Vec<_> =
        paper().filter(|p| p.policy == "sequential").map(|p| (p.policy.to_owned(), p.rate, p.figures)).collect();
    for variant in VARIANTS {
        let rows = paper().filter(|p| p.policy != "sequential");
        lines.extend(rows.map(|p| (format!("ss26:{}{variant}", p.policy), p.rate, p.figures)));
        let by_entry = paper().filter(|p| p.policy == "fcfs");
        lines.extend(by_entry.map(|p| (format!("ss26:fcfs:entry{variant}"), p.rate, p.figures)));
    }
    for policy in ["fcfs", "priority", "adaptive"] {
        lines.extend([0.25, 0.5, 1.0].map(|rate| (policy.to_owned(), rate, [NONE; 6])));
    }
    lines
}

/// The comparison as a Markdown table: paper / simulated in each column, with the simulated 95 %
/// confidence interval of D.
pub fn print(rows: &[Row]) -> String {
    let mut text = String::from(
        "| workload | policy | rate | D no notice | D 25 % | W | throughput | speedup | makespan |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let (paper, p, a) = (row.paper.map(format_figure), &row.plain, &row.announced);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} / {:.2} ± {:.2} | {} / {:.2} ± {:.2} | {} / {:.2} | {} / {:.2} | {} / {:.2} | {} / {:.0} |",
            row.workload,
            row.policy,
            row.rate,
            paper[0],
            p.delay.mean,
            p.delay.half,
            paper[1],
            a.delay.mean,
            a.delay.half,
            paper[2],
            p.waiting.mean,
            paper[3],
            p.throughput.mean,
            paper[4],
            row.speedup,
            paper[5],
            p.makespan.mean,
        );
    }
    text
}

fn format_figure(figure: Option<f64>) -> String {
    figure.map_or("-".to_owned(), |x| format!("{x:.2}"))
}
