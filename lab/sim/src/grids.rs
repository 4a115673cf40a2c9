//! The grids: results of the policies, cell by cell, and checks of these results.

use crate::cell::Cell;
use crate::error::SimError;
use crate::metrics::Interval;
use crate::profile::ProfileFile;
use crate::scenario::{Scenario, Stock};
use crate::workload::{Arrivals, Batches, Workload};
use serde::Serialize;
use std::fmt::Write;
use std::ops::Range;
use tacit_sched::Config;
use tacit_sched::policy::{Adaptive, Policy, PolicySpec};
use tacit_sched::profile::Speedup;

/// Rates of the paper, requests per second.
const RATES: [f64; 3] = [0.25, 0.5, 1.0];
/// Parallel share of a job if more threads are allowed; assumed, since the profile has one thread
/// only.
const PARALLEL: Speedup = Speedup::Amdahl(0.95);
/// A comparison that the table's seeds do not decide is repeated with this many times as many
/// seeds.
const MORE_SEEDS: u64 = 25;

/// A requirement and its measured value.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// The cell: cores, rate, notices.
    pub cell: String,
    /// The requirement.
    pub rule: String,
    /// Measured ratio.
    pub value: f64,
    /// Half-width of its 95 % interval, for comparisons seed by seed.
    pub half: Option<f64>,
    /// Number of seeds: more than the cell's if those were not decisive.
    pub seeds: usize,
    /// Largest allowed ratio.
    pub limit: f64,
    /// Whether the requirement holds.
    pub met: bool,
}

/// A grid's cells and checks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Grid {
    /// Name.
    pub name: String,
    /// All cells.
    pub cells: Vec<Cell>,
    /// All checks.
    pub checks: Vec<Check>,
    /// Scenario of each cell.
    #[serde(skip)]
    scenarios: Vec<Scenario>,
}

/// Ratio of the means, with the half-width of the paired interval relative to the same mean.
fn paired_ratio(candidate: &[f64], baseline: &[f64]) -> Interval {
    let difference = Interval::from_values(&candidate.iter().zip(baseline).map(|(x, y)| x - y).collect::<Vec<_>>());
    let base = Interval::from_values(baseline).mean.max(1e-9);
    Interval { mean: 1.0 + difference.mean / base, half: difference.half / base }
}

impl Grid {
    fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    fn add(&mut self, label: &str, scenario: Scenario, seeds: &Range<u64>) -> Result<Cell, SimError> {
        let cell = Cell::measure(label, &scenario, seeds)?;
        self.cells.push(cell.clone());
        self.scenarios.push(scenario);
        Ok(cell)
    }

    fn check(&mut self, place: &str, rule: &str, value: f64, limit: f64) {
        // Equal figures differ in the last digit if they are summed in another order.
        let met = value <= limit * (1.0 + 1e-9);
        let seeds = self.cells.last().map_or(0, |c| c.delays.len());
        self.checks.push(Check { cell: place.into(), rule: rule.into(), value, half: None, seeds, limit, met });
    }

    /// Checks for every cell without a pool that D is lower with notices than without, by more than
    /// the 95 % interval.
    fn check_notices(&mut self, seeds: &Range<u64>) -> Result<(), SimError> {
        for with_index in 0..self.cells.len() {
            let cell = &self.cells[with_index];
            if cell.notices > 0.0
                && cell.stock == Stock::None
                && let Some(without_index) = self.cells.iter().position(|c| is_twin(c, cell))
            {
                let check = self.compare(with_index, without_index, seeds)?;
                self.checks.push(check);
            }
        }
        Ok(())
    }

    /// Compares two cells. The requests are the same, so the interval is that of the difference
    /// seed by seed. If the interval does not decide, [`MORE_SEEDS`] times as many further seeds
    /// are simulated and all are used together.
    fn compare(&self, with_index: usize, without_index: usize, seeds: &Range<u64>) -> Result<Check, SimError> {
        let cell = &self.cells[with_index];
        let mut columns = [with_index, without_index].map(|i| self.cells[i].delays.clone());
        let mut ratio = paired_ratio(&columns[0], &columns[1]);
        if (ratio.mean - 1.0).abs() <= ratio.half && ratio.half > 0.0 {
            let further_seeds = seeds.end..seeds.end + (seeds.end - seeds.start) * MORE_SEEDS;
            for (column, i) in columns.iter_mut().zip([with_index, without_index]) {
                column.extend(Cell::measure("", &self.scenarios[i], &further_seeds)?.delays);
            }
            ratio = paired_ratio(&columns[0], &columns[1]);
        }
        Ok(Check {
            cell: format!("{} {}", name(cell.cores, cell.rate, cell.notices), cell.label),
            rule: "D(25 % notices) / D(none)".into(),
            value: ratio.mean,
            half: Some(ratio.half),
            seeds: columns[0].len(),
            limit: 1.0,
            met: ratio.mean + ratio.half <= 1.0,
        })
    }
}

fn is_twin(c: &Cell, with_notices: &Cell) -> bool {
    c.notices == 0.0
        && (&c.label, c.cores, c.rate, c.stock)
            == (&with_notices.label, with_notices.cores, with_notices.rate, with_notices.stock)
}

fn adaptive() -> PolicySpec {
    PolicySpec::Adaptive(Adaptive::default())
}

fn priority() -> PolicySpec {
    PolicySpec::Priority { beta: 0.1 }
}

fn mixed_workload(rate: f64, notices: f64) -> Result<Workload, SimError> {
    Workload::paper("swiftsnni-mixed", rate, notices)
}

/// Cores, rate and share of notices of every cell.
fn cells() -> impl Iterator<Item = (u32, f64, f64)> {
    [48, 16].into_iter().flat_map(|cores| [0.0, 0.25].map(|notices| RATES.map(|rate| (cores, rate, notices)))).flatten()
}

fn name(cores: u32, rate: f64, notices: f64) -> String {
    format!("P={cores} rate={rate} notices={:.0}%", notices * 100.0)
}

/// Grid A: one thread a job, no pool, P = 48 and 16, with a sweep of beta.
///
/// # Errors
/// [`SimError::UnknownModel`] for a profile that lacks a model.
pub fn grid_a(profile: &ProfileFile, seeds: &Range<u64>) -> Result<Grid, SimError> {
    let mut grid = Grid::new("A: one thread a job, no pool");
    for (cores, rate, notices) in cells() {
        let mut measure = |policy: PolicySpec| {
            let label = policy.name();
            grid.add(&label, Scenario::new(profile, policy, cores, mixed_workload(rate, notices)?)?, seeds)
        };
        let fcfs = measure(PolicySpec::Fcfs)?;
        let priority = measure(priority())?;
        let shortest = measure(PolicySpec::ShortestRemaining)?;
        for beta in [0.0, 0.01, 1.0] {
            measure(PolicySpec::Priority { beta })?;
        }
        let adaptive_cell = measure(adaptive())?;
        let place = name(cores, rate, notices);
        let d = adaptive_cell.delay.mean;
        let better = fcfs.delay.mean.min(priority.delay.mean);
        grid.check(&place, "D / D(shortest remaining)", d / shortest.delay.mean, 1.05);
        grid.check(&place, "D / D(better of fcfs, priority)", d / better, 1.01);
        let tail = adaptive_cell.vgg16_p99.mean / priority.vgg16_p99.mean;
        grid.check(&place, "VGG-16 p99 / p99(priority)", tail, 1.0);
    }
    grid.check_notices(seeds)?;
    Ok(grid)
}

/// Grid B: moldable T_on, pools allowed, P = 48 (and 16 for the effect of overload).
///
/// # Errors
/// [`SimError::UnknownModel`] for a profile that lacks a model.
pub fn grid_b(profile: &ProfileFile, seeds: &Range<u64>) -> Result<Grid, SimError> {
    let mut grid = Grid::new("B: moldable T_on, pools allowed");
    for (cores, rate, notices) in cells() {
        let single = Scenario::new(profile, priority(), cores, mixed_workload(rate, notices)?)?;
        let paper = grid.add(&priority().name(), single, seeds)?;
        for (stock, label) in [(Stock::None, "no pool"), (Stock::Cold, "cold pool"), (Stock::Full, "full pool")] {
            let moldable = Scenario::new(profile, adaptive(), cores, mixed_workload(rate, notices)?)?
                .with_on_threads(Config::thread_counts(cores), PARALLEL);
            let adaptive_cell = grid.add(&format!("adaptive, {label}"), moldable.with_stock(stock), seeds)?;
            if stock == Stock::Cold && cores == 48 {
                let place = name(cores, rate, notices);
                let ratio = adaptive_cell.delay.mean / paper.delay.mean;
                grid.check(&place, "D(cold pool) / D(priority), must", ratio, 0.6);
                grid.check(&place, "D(cold pool) / D(priority), aim", ratio, 0.3);
            }
        }
    }
    grid.check_notices(seeds)?;
    Ok(grid)
}

/// Grid C: moldable T_pre too, against every fixed thread count.
///
/// # Errors
/// [`SimError::UnknownModel`] for a profile that lacks a model.
pub fn grid_c(profile: &ProfileFile, seeds: &Range<u64>) -> Result<Grid, SimError> {
    let mut grid = Grid::new("C: T_pre and T_on moldable, no pool");
    for (cores, rate, notices) in cells() {
        let mut measure = |label: &str, policy: PolicySpec, threads: Vec<u32>| {
            let scenario = Scenario::new(profile, policy, cores, mixed_workload(rate, notices)?)?;
            let scenario = scenario.with_pre_threads(threads.clone(), PARALLEL).with_on_threads(threads, PARALLEL);
            grid.add(label, scenario, seeds)
        };
        let adaptive_cell = measure("adaptive", adaptive(), Config::thread_counts(cores))?;
        let mut best = f64::INFINITY;
        for threads in Config::thread_counts(cores) {
            let label = format!("shortest-remaining, {threads} threads");
            best = best.min(measure(&label, PolicySpec::ShortestRemaining, vec![threads])?.delay.mean);
        }
        let place = name(cores, rate, notices);
        grid.check(&place, "D / D(best fixed threads in hindsight)", adaptive_cell.delay.mean / best, 1.0);
    }
    grid.check_notices(seeds)?;
    Ok(grid)
}

/// Sensitivity: wrong estimates, bursts, a flood from one client, heavy-tailed batches. P = 16,
/// rate 0.5 unless stated otherwise.
///
/// # Errors
/// [`SimError::UnknownModel`] for a profile that lacks a model.
pub fn sensitivity(profile: &ProfileFile, seeds: &Range<u64>) -> Result<Grid, SimError> {
    let mut grid = Grid::new("Sensitivity, P = 16");
    let bursts = Arrivals::Bursts { rate: 0.5, on: 60.0, off: 180.0 };
    let bursts = Workload { arrivals: bursts, ..mixed_workload(0.5, 0.0)? };
    let heavy = Workload { batches: Batches::Pareto { alpha: 1.5, max: 64 }, ..mixed_workload(0.2, 0.0)? };
    let flood = Workload { heavy_client: 0.9, ..mixed_workload(1.0, 0.0)? };
    for policy in [PolicySpec::Fcfs, priority(), PolicySpec::ShortestRemaining, adaptive()] {
        let label = policy.name();
        let base = on_16_cores(profile, &policy, &mixed_workload(0.5, 0.0)?)?;
        let mut share = on_16_cores(profile, &policy, &heavy)?;
        share.config.batch_share = 0.5;
        for (change, scenario) in [
            ("base", base.clone()),
            ("first estimates x2, /2", Scenario { bias: vec![2.0, 0.5, 2.0, 0.5, 2.0], ..base.clone() }),
            ("each job x2 to /2", Scenario { spread: 2.0, ..base }),
            ("bursts", on_16_cores(profile, &policy, &bursts)?),
            ("heavy-tailed batches, rate 0.2", on_16_cores(profile, &policy, &heavy)?),
            ("the same, a request holds half", share),
        ] {
            grid.add(&format!("{label}; {change}"), scenario, seeds)?;
        }
    }
    for policy in [PolicySpec::Fcfs, priority(), adaptive()] {
        let fair = PolicySpec::Fair { strength: 1.0, inner: Box::new(policy.clone()) };
        for policy in [policy, fair] {
            let label = format!("{}; one client sends 90 %, rate 1", policy.name());
            grid.add(&label, Scenario::new(profile, policy, 16, flood.clone())?, seeds)?;
        }
    }
    Ok(grid)
}

fn on_16_cores(profile: &ProfileFile, policy: &PolicySpec, load: &Workload) -> Result<Scenario, SimError> {
    Scenario::new(profile, policy.clone(), 16, load.clone())
}

/// A grid as Markdown: its cells, then its checks.
pub fn print(grid: &Grid) -> String {
    let mut text = format!("## Grid {}\n\n", grid.name);
    text.push_str(
        "| setting | P | rate | notices | D | W | p99 | VGG-16 p99 | makespan | load | cores | memory | D others |\n",
    );
    text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for c in &grid.cells {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} % | {:.2} ± {:.2} | {:.2} | {:.2} | {:.1} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} |",
            c.label,
            c.cores,
            c.rate,
            c.notices * 100.0,
            c.delay.mean,
            c.delay.half,
            c.waiting.mean,
            c.p99.mean,
            c.vgg16_p99.mean,
            c.makespan.mean,
            c.offered.mean,
            c.core_use.mean,
            c.memory_use.mean,
            c.others_delay.mean,
        );
    }
    if !grid.checks.is_empty() {
        text.push_str("\n| where | rule | measured | seeds | limit | met |\n| --- | --- | --- | --- | --- | --- |\n");
    }
    for c in &grid.checks {
        let met = if c.met { "yes" } else { "NO" };
        let half_width = c.half.map_or(String::new(), |half_width| format!(" ± {half_width:.4}"));
        let _ = writeln!(
            text,
            "| {} | {} | {:.4}{half_width} | {} | {} | {met} |",
            c.cell, c.rule, c.value, c.seeds, c.limit
        );
    }
    text
}
